#include "compare/data_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "compare/array_text.h"
#include "compare/random_state.h"
#include "compare/results.h"
#include "compare/shape_match.h"
#include "core/memory.h"
#include "core/messages.h"
#include "formats/numeric_format.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope {
namespace {

bool is_dynamic(const Shape& shape) {
  return std::ranges::any_of(shape, [](std::int64_t dim) { return dim < 0; });
}

/// "Input tensor: x [shape=(2, -1)] | "; without the shape where there is none.
std::string prefix_of(const InputBinding& binding) {
  const std::string shape = binding.shape ? " [shape=" + to_string(*binding.shape) + "]" : "";
  return "Input tensor: " + binding.name + shape + " | ";
}

bool fits(const Shape& shape, const InputBinding& binding) {
  return !binding.shape || shape_fits(shape, *binding.shape);
}

const Shape* find_shape(const std::vector<std::pair<std::string, Shape>>& shapes, const std::string& name) {
  const Shape* found = nullptr;
  for (const auto& [pattern, shape] : shapes)
    if (pattern == name || matches_wildcard(name, pattern)) found = &shape;
  return found;
}

std::vector<std::string> names_of(const std::vector<InputBinding>& bindings) {
  std::vector<std::string> names;
  for (const InputBinding& binding : bindings) names.push_back(binding.name);
  return names;
}

void warn_unmatched(const DataLoaderOptions& options, const std::vector<InputBinding>& bindings) {
  const std::vector<std::string> names = names_of(bindings);
  for (const auto& entry : options.input_shapes) {
    const std::string& pattern = entry.first;
    if (std::ranges::any_of(
            names, [&](const std::string& name) { return name == pattern || matches_wildcard(name, pattern); }))
      continue;
    std::string message =
        "Input tensor: " + pattern + " | Metadata was provided, but the input does not exist in one or more runners.";
    if (const auto similar = find_similar(pattern, names))
      message += "\nMaybe you meant to set: " + names[*similar] + "?";
    log_once(LogLevel::kWarning, message);
  }
  for (const auto& entry : options.val_range.entries()) {
    if (entry.first.empty() || std::ranges::find(names, entry.first) != names.end()) continue;
    log_once(LogLevel::kWarning, "Extra items in val_range: {" + python_string(entry.first) +
                                     "}.\nNote: inputs are: " + python_list(names));
  }
}

/// An integer input of one static dimension that was given as many values as it has elements: a shape tensor.
bool takes_values(const InputBinding& binding, const Shape& given) {
  return is_integer(binding.type) && binding.shape && binding.shape->size() == 1 && !is_dynamic(*binding.shape) &&
         !is_dynamic(given) && static_cast<std::int64_t>(given.size()) == binding.shape->front();
}

/// Of an input whose own shape is not known, where the user gives none: that of the profile, else 1 for each dimension.
Shape default_shape(const DataLoaderOptions& options, const InputBinding& binding) {
  const auto preset = std::ranges::find(options.default_shapes, binding.name, &std::pair<std::string, Shape>::first);
  if (preset != options.default_shapes.end()) {
    if (fits(preset->second, binding)) return preset->second;
    throw invalid_argument("[inputs] input '" + binding.name + "': cannot override its shape " +
                           to_string(*binding.shape) + " by " + to_string(preset->second) +
                           "; try another --trt-min-shapes");
  }
  if (!binding.shape)
    throw invalid_argument("[inputs] input '" + binding.name +
                           "': expected a shape, since the model gives not even its rank; try --input-shapes \"" +
                           binding.name + ":[1,3,224,224]\", or --load-inputs FILE");
  Shape shape = *binding.shape;
  std::ranges::replace(shape, std::int64_t{-1}, std::int64_t{1});
  return shape;
}

/// The shape of the data, or its values if `values` is set.
Shape shape_of(const DataLoaderOptions& options, const InputBinding& binding, bool& values) {
  values = false;
  const std::string prefix = prefix_of(binding);
  if (const Shape* given = find_shape(options.input_shapes, binding.name)) {
    values = takes_values(binding, *given);
    if (is_dynamic(*given)) {
      log_once(LogLevel::kWarning, prefix + "Provided input shape: " + to_string(*given) +
                                       " is dynamic.\nDynamic shapes cannot be used to generate inference data. Will "
                                       "use default shape instead.\nTo avoid this, please provide a "
                                       "fixed shape to the data loader. ");
    } else if (values || fits(*given, binding)) {
      return *given;
    } else {
      log_once(LogLevel::kWarning, prefix + "Cannot use provided custom shape: " + to_string(*given) +
                                       " to override tensor shape. Will use default shape instead.");
    }
  }
  if (binding.shape && !is_dynamic(*binding.shape)) return *binding.shape;
  const Shape shape = default_shape(options, binding);
  log_once(LogLevel::kWarning, prefix + "Will generate data of shape: " + to_string(shape) +
                                   ".\nIf this is incorrect, please provide a custom data loader, or --input-shapes.");
  return shape;
}

Tensor draw_floats(RandomState& random, const InputBinding& binding, const Shape& shape, const ValueRange& range) {
  double scale = range.high - range.low, shift = range.low;
  // Otherwise two infinities would meet in a NaN.
  if (std::isinf(range.low)) {
    scale = range.low;
    shift = 0;
  }
  if (std::isinf(range.high)) scale = range.high;
  Tensor values = random.random_sample(shape);
  double* data = values.data<double>();
  for (std::int64_t i = 0; i < values.size(); ++i) data[i] = data[i] * scale + shift;
  return values.cast(binding.type);
}

std::int64_t whole(double bound, const InputBinding& binding) {
  if (!(std::fabs(bound) < 0x1p63))
    throw invalid_argument("[inputs] input '" + binding.name + "': " + python_float(bound) +
                           " is no bound for values of type " + std::string(name_of(binding.type)) +
                           "; try another --val-range");
  return static_cast<std::int64_t>(bound);
}

Tensor draw_integers(RandomState& random, const InputBinding& binding, const Shape& shape, const ValueRange& range) {
  const bool is_bool = binding.type == DataType::kBool;
  const std::int64_t low = is_bool ? range.low != 0 : whole(range.low, binding);
  const std::int64_t high = is_bool ? range.high != 0 : whole(range.high, binding);
  try {
    if (high == std::numeric_limits<std::int64_t>::max()) throw invalid_argument("the upper bound is too large");
    if (!is_storage_only(binding.type)) return random.randint(low, high + 1, shape, binding.type);
    const NumericFormat& format = *format_of(binding.type);
    if (static_cast<double>(low) < format.lowest() || static_cast<double>(high) > format.largest())
      throw invalid_argument("the type does not hold them");
    return random.randint(low, high + 1, shape, physical_type(binding.type)).cast(binding.type);
  } catch (const Error& error) {
    throw Error(error.code(), "[inputs] input '" + binding.name + "': cannot draw values of type " +
                                  std::string(name_of(binding.type)) + " from [" + std::to_string(low) + ", " +
                                  std::to_string(high) + "]: " + error.what() + "; try another --val-range");
  }
}

Tensor given_values(const InputBinding& binding, const Shape& values) {
  Tensor result =
      Tensor::of<std::int64_t>({static_cast<std::int64_t>(values.size())}, std::span<const std::int64_t>(values))
          .cast(binding.type);
  log_once(LogLevel::kInfo, "Assuming " + binding.name +
                                " is a shape tensor. Setting input values to: " + array_text(result) +
                                ". If these values are not correct, please set it correctly in 'input_metadata' or by "
                                "providing --input-shapes");
  return result;
}

/// Whether a value lies outside of what the type can hold.
bool out_of_range(const Tensor& tensor, DataType type) {
  double low, high;
  // For bfloat16 as for float32, as Polygraphy has it.
  if (const NumericFormat* format = format_of(type == DataType::kBFloat16 ? DataType::kFloat32 : type)) {
    low = format->lowest();
    high = format->largest();
  } else if (is_integer(type)) {
    const int bits = static_cast<int>(size_of(type)) * 8;
    const bool is_unsigned = type == DataType::kUInt32 || type == DataType::kUInt64;
    low = is_unsigned ? 0 : -std::ldexp(1.0, bits - 1);
    high = std::ldexp(1.0, is_unsigned ? bits : bits - 1) - 1;
  } else {
    return false;
  }
  const Tensor values = tensor.cast(DataType::kFloat64);
  const auto all = values.values<double>();
  return std::ranges::any_of(all, [=](double value) { return value < low || value > high; });
}

Tensor adapt(const NamedTensor& given, const InputBinding& binding) {
  const Tensor& tensor = given.tensor;
  Tensor result = tensor;
  if (result.type() != binding.type) {
    log_once(LogLevel::kWarning, "Input tensor: " + binding.name + " | Buffer dtype (" +
                                     std::string(name_of(result.type())) + ") does not match expected input dtype (" +
                                     std::string(name_of(binding.type)) + "), attempting to cast.");
    if (out_of_range(result, binding.type))
      log_once(LogLevel::kWarning, "Some values in this input are out of range of " +
                                       std::string(name_of(binding.type)) + ". Unexpected behavior may ensue!");
    result = result.cast(binding.type);
  }
  if (!fits(result.shape(), binding)) {
    log_once(LogLevel::kWarning, "Input tensor: " + binding.name + " | Buffer shape (" + to_string(result.shape()) +
                                     ") does not match expected input shape (" + to_string(*binding.shape) +
                                     "). Attempting to transpose/reshape.");
    result = match_shape(result, *binding.shape);
    if (!fits(result.shape(), binding)) {
      throw invalid_argument(
          "[inputs] Input tensor: {} | Cannot reuse input data due to mismatch in shape or data type. Note: Provided "
          "input: [dtype={}, shape={}], Requested input: [dtype={}, shape={}]; the first cannot be permuted or "
          "reshaped to the second{}",
          binding.name, name_of(tensor.type()), to_string(tensor.shape()), name_of(binding.type),
          to_string(*binding.shape),
          given.name == binding.name
              ? ""
              : fmt::format("; it was provided as '{}': try the name '{}'", given.name, binding.name));
    }
  }
  return result;
}

std::vector<std::string> names_of(const TensorMap& tensors) {
  std::vector<std::string> names;
  for (const NamedTensor& each : tensors) names.push_back(each.name);
  return names;
}

bool is_left_out(const InputBinding& binding, const std::vector<std::string>& names) {
  return binding.has_default && std::ranges::find(names, binding.name) == names.end();
}

/// Which of the names the input is given by. A tensor that is another input's by name is not taken for this one.
std::optional<std::size_t> find_input(const std::string& name, std::size_t place, const std::vector<std::string>& names,
                                      const std::vector<std::string>& wanted) {
  const auto found = find_similar(name, names, place);
  const bool taken = found && names[*found] != name && std::ranges::find(wanted, names[*found]) != wanted.end();
  return taken ? std::nullopt : found;
}

[[noreturn]] void throw_missing(const InputBinding& binding, const std::vector<std::string>& names,
                                const std::string& where) {
  throw invalid_argument("[inputs] {}Input tensor: {} | Does not exist in the provided input data, which has {}",
                         where.empty() ? "" : where + ": ", binding.name, python_list(names));
}

}  // namespace

std::vector<InputBinding> input_bindings(const Network& network) {
  std::vector<InputBinding> bindings;
  for (TensorId id : network.inputs) {
    const TensorInfo& info = network.tensor(id);
    bindings.push_back({info.name, info.type, info.shape});
  }
  return bindings;
}

void warn_of_kept_defaults(const TensorMap& data, const Network& network) {
  for (const NamedTensor& each : data)
    if (network.find_default(each.name) != nullptr)
      log_once(LogLevel::kWarning,
               "[inputs] '" + each.name +
                   "' is a constant of the model and keeps its value here: the data's has no "
                   "effect. Only `run` takes another; for one that varies, try a model without the initializer");
}

TensorMap generate_inputs(const DataLoaderOptions& options, const std::vector<InputBinding>& bindings,
                          std::int64_t iteration) {
  warn_unmatched(options, bindings);
  const std::int64_t seed = options.seed + iteration;
  if (seed < 0 || seed > std::numeric_limits<std::uint32_t>::max())
    throw invalid_argument("[inputs] --seed: expected a seed between 0 and 2**32 - 1, got " + std::to_string(seed));
  log_verbose("Generating data using numpy seed: " + std::to_string(seed));
  RandomState random(static_cast<std::uint32_t>(seed));
  TensorMap result;
  for (const InputBinding& binding : bindings) {
    if (binding.has_default) continue;
    bool values = false;
    const Shape shape = shape_of(options, binding, values);
    if (values) {
      result.push_back({binding.name, given_values(binding, shape)});
      continue;
    }
    // Numbers are drawn as doubles.
    if (const std::string reason = why_too_large(DataType::kFloat64, shape); !reason.empty())
      throw invalid_argument("[inputs] input '" + binding.name + "': " + reason);
    const ValueRange range = options.val_range.get(binding.name, ValueRange{});
    const bool counted = is_integer(binding.type) || binding.type == DataType::kBool;
    if (!counted && !is_floating(binding.type))
      throw invalid_argument("[inputs] input '" + binding.name + "': cannot generate values of type " +
                             std::string(name_of(binding.type)) + "; try --load-inputs");
    result.push_back({binding.name, counted ? draw_integers(random, binding, shape, range)
                                            : draw_floats(random, binding, shape, range)});
  }
  return result;
}

std::vector<TensorMap> generate_inputs(const DataLoaderOptions& options, const std::vector<InputBinding>& bindings) {
  std::vector<TensorMap> result;
  for (std::int64_t i = 0; i < options.iterations; ++i) result.push_back(generate_inputs(options, bindings, i));
  return result;
}

void check_present(const TensorMap& loaded, const std::vector<InputBinding>& bindings, const std::string& where) {
  const std::vector<std::string> wanted = names_of(bindings), names = names_of(loaded);
  for (std::size_t place = 0; place < bindings.size(); ++place)
    if (!is_left_out(bindings[place], names) && !find_input(bindings[place].name, place, names, wanted))
      throw_missing(bindings[place], names, where);
}

TensorMap adapt_inputs(const TensorMap& loaded, const std::vector<InputBinding>& bindings) {
  const std::vector<std::string> wanted = names_of(bindings), names = names_of(loaded);
  TensorMap result;
  for (std::size_t place = 0; place < bindings.size(); ++place) {
    const InputBinding& binding = bindings[place];
    if (is_left_out(binding, names)) continue;
    const auto found = find_input(binding.name, place, names, wanted);
    if (!found) throw_missing(binding, names, "");
    if (names[*found] != binding.name)
      log_once(LogLevel::kWarning, "Input tensor: " + binding.name + " | Buffer name (" + names[*found] +
                                       ") does not match expected input name (" + binding.name + ").");
    result.push_back({binding.name, adapt(loaded[*found], binding)});
  }
  return result;
}

}  // namespace ulpscope
