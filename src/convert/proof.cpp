#include "convert/proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "engine/assign.h"
#include "engine/option_names.h"
#include "onnx/import.h"
#include "ops/registry.h"
#include "runtime/executable.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

void compare(const Network& network, const Network& typed, std::size_t output, std::size_t sample, Fusion level,
             Tensor expected, Tensor actual) {
  const DataType type = typed.tensor(typed.outputs[output]).type;
  if (type != DataType::kUndefined && expected.type() != type) expected = expected.cast(type);
  if (type != DataType::kUndefined && actual.type() != type) actual = actual.cast(type);
  const std::string& name = network.tensor(network.outputs[output]).name;
  const auto fail = [&](const std::string& what) {
    throw InternalError(
        fmt::format("[convert] the typed model does not compute what the assignment does: output '{}', sample {}, "
                    "--fusion {}: {}; "
                    "nothing was written",
                    name, sample, name_of(level), what));
  };
  if (expected.type() != actual.type() || expected.shape() != actual.shape())
    fail(fmt::format("expected {} {}, got {} {}", name_of(expected.type()), to_string(expected.shape()),
                     name_of(actual.type()), to_string(actual.shape())));
  if (std::memcmp(expected.raw(), actual.raw(), expected.bytes()) == 0) return;
  if (!is_floating(expected.type())) fail("integers differ");
  const Tensor a = expected.cast(DataType::kFloat64), b = actual.cast(DataType::kFloat64);
  std::int64_t count = 0, first = -1;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double x = a.data<double>()[i], y = b.data<double>()[i];
    if ((std::isnan(x) && std::isnan(y)) || (x == y && std::signbit(x) == std::signbit(y))) continue;
    if (first < 0) first = i;
    ++count;
  }
  if (count > 0)
    fail(fmt::format("{} of {} elements differ, the first at {}: expected {}, got {}", count, a.size(), first,
                     a.data<double>()[first], b.data<double>()[first]));
}

}  // namespace

int prove_equal_bits(const Network& network, const Assignment& assignment, const std::filesystem::path& file,
                     const TypedModelOptions& convert_options, bool equal_at_every_level) {
  int checked = 0;
  const std::shared_ptr<Network> typed = import_onnx(file, op_registry());
  BuildOptions options;
  options.fusion = convert_options.fusion;
  // The bodies of control flow keep their types; they are not part of an assignment.
  Executable original(network, assignment, options);
  options.strongly_typed = true;
  std::unique_ptr<Executable> converted;
  std::vector<Fusion> levels{convert_options.fusion};
  if (convert_options.fusion != Fusion::kNone && equal_at_every_level) levels.push_back(Fusion::kNone);
  for (std::size_t s = 0; s < convert_options.samples.size(); ++s) {
    std::vector<Tensor> given, typed_inputs;
    std::vector<Shape> shapes;
    for (std::size_t i = 0; i < network.inputs.size(); ++i) {
      const TensorInfo& info = network.tensor(network.inputs[i]);
      const auto found =
          std::ranges::find_if(convert_options.samples[s], [&](const NamedTensor& t) { return t.name == info.name; });
      if (found == convert_options.samples[s].end())
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("[convert] sample {}: expected the input '{}'", s, info.name));
      Tensor value = found->tensor.type() == info.type ? found->tensor : found->tensor.cast(info.type);
      // An input in a narrower type arrives rounded; so both get the same values.
      const DataType type = typed->tensor(typed->inputs[i]).type;
      if (type != info.type) value = value.cast(type).cast(info.type);
      shapes.push_back(value.shape());
      const DataType physical = physical_type(info.type);
      given.push_back(physical == value.type() ? value : value.cast(physical));
      typed_inputs.push_back(given.back());
    }
    if (converted == nullptr) {
      auto spec = specialize(*typed, shapes);
      Assignment types = assign_precisions(*spec, options);
      converted = std::make_unique<Executable>(*typed, std::move(types), options, spec);
    }
    for (Fusion level : levels) {
      if (convert_options.interrupt) convert_options.interrupt();
      auto expected = original.plan_for(shapes, original.assignment(), level)->run(given);
      auto actual = converted->plan_for(shapes, converted->assignment(), level)->run(typed_inputs);
      for (std::size_t o = 0; o < expected.size(); ++o) compare(network, *typed, o, s, level, expected[o], actual[o]);
      ++checked;
    }
  }
  return checked;
}

}  // namespace ulpscope
