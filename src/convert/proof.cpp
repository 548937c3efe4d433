#include "convert/proof.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>

#include "core/messages.h"
#include "engine/assign.h"
#include "engine/option_names.h"
#include "onnx/import.h"
#include "runners/foreign_operators.h"
#include "runtime/executable.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

/// Bytes of outputs that wait for those of the other network.
constexpr std::size_t kKeptOutputs = std::size_t{256} << 20;

/// The same under a limit (0: none).
std::size_t kept_bytes(std::size_t memory_limit) {
  return memory_limit == 0 ? kKeptOutputs : std::clamp<std::size_t>(memory_limit / 4, 1, kKeptOutputs);
}

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

/// What both networks are given.
struct ProofSample {
  std::vector<Tensor> inputs;  ///< Physical types.
  std::vector<Shape> shapes;
};

ProofSample proof_sample(const Network& network, const Network& typed, const TensorMap& sample, std::size_t index) {
  ProofSample result;
  for (std::size_t i = 0; i < network.inputs.size(); ++i) {
    const TensorInfo& info = network.tensor(network.inputs[i]);
    const Tensor* found = find_tensor(sample, info.name);
    if (found == nullptr) throw invalid_argument("[convert] sample {}: expected the input '{}'", index, info.name);
    Tensor value = found->type() == info.type ? *found : found->cast(info.type);
    // An input in a narrower type arrives rounded; so both get the same values.
    const DataType type = typed.tensor(typed.inputs[i]).type;
    if (type != info.type) value = value.cast(type).cast(info.type);
    result.shapes.push_back(value.shape());
    const DataType physical = physical_type(info.type);
    result.inputs.push_back(physical == value.type() ? value : value.cast(physical));
  }
  return result;
}

/// Of the types that the network declares.
TensorMap named(const Network& network, const std::vector<Tensor>& outputs) {
  TensorMap result;
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    const TensorInfo& info = network.tensor(network.outputs[o]);
    const bool other = info.type != DataType::kUndefined && outputs[o].type() != info.type;
    result.push_back({info.name, other ? outputs[o].cast(info.type) : outputs[o]});
  }
  return result;
}

/// Of the bodies that no sample ran so far, those that none did now.
void keep_idle(std::vector<std::string> now, std::optional<std::vector<std::string>>& idle) {
  if (idle) std::erase_if(now, [&](const auto& body) { return std::ranges::find(*idle, body) == idle->end(); });
  idle = std::move(now);
}

void warn_of_idle(const std::vector<std::string>& bodies) {
  if (bodies.empty()) return;
  log_warning(
      "[convert] No sample runs {}: what is written there follows the same rules, but no bits prove it; try samples "
      "that run it",
      fmt::join(bodies, ", "));
}

}  // namespace

int prove_equal_bits(const Network& network, const Assignment& assignment, const std::filesystem::path& file,
                     const TypedModelOptions& convert_options, bool equal_at_every_level,
                     std::vector<TensorMap>& outputs) {
  const std::shared_ptr<Network> typed = import_onnx(file, registry_with_onnxruntime());
  set_dynamic_scale_rule(*typed, assignment.scale_choice.mx);
  BuildOptions options, typed_options;
  options.fusion = typed_options.fusion = convert_options.fusion;
  options.memory_limit = typed_options.memory_limit = convert_options.memory_limit;
  const std::size_t kept_outputs = kept_bytes(options.memory_limit);
  options.constraints = ConstraintMode::kObey;  // As what the assignment was made with, for what bodies store.
  typed_options.strongly_typed = true;
  typed_options.accumulation = assignment.accumulation;
  typed_options.attention = assignment.attention;
  // What a file stores does not depend on the sample: one shows that it is the same without fusion.
  const bool both_levels = convert_options.fusion != Fusion::kNone && equal_at_every_level;
  const auto levels_of = [&](std::size_t sample) {
    return both_levels && sample == 0 ? std::vector{convert_options.fusion, Fusion::kNone}
                                      : std::vector{convert_options.fusion};
  };
  std::vector<ProofSample> samples;
  for (std::size_t s = 0; s < convert_options.samples.size(); ++s)
    samples.push_back(proof_sample(network, *typed, convert_options.samples[s], s));
  if (samples.empty()) return 0;
  const auto first_spec = specialize(*typed, samples.front().shapes);
  const Assignment types = assign_precisions(*first_spec, typed_options);
  using Outputs = std::vector<Tensor>;
  const auto run = [&](Executable& executable, const ProofSample& sample, Fusion level) {
    if (convert_options.interrupt) convert_options.interrupt();
    return naming_file(network, [&] {
      return executable.plan_for(sample.shapes, executable.assignment(), level)->run(sample.inputs);
    });
  };
  std::optional<std::vector<std::string>> idle;
  // One network after the other, as many samples as outputs are kept of: never the weights of both.
  for (std::size_t begin = 0, end = 0; begin < samples.size(); begin = end) {
    std::vector<Outputs> expected;
    {
      Executable original(network, assignment, options);
      for (std::size_t bytes = 0; end < samples.size() && bytes < kept_outputs; ++end)
        for (Fusion level : levels_of(end)) {
          expected.push_back(run(original, samples[end], level));
          if (level == convert_options.fusion) outputs.push_back(named(network, expected.back()));
          for (const Tensor& output : expected.back()) bytes += output.bytes();
        }
      keep_idle(original.idle_bodies(assignment), idle);
    }
    Executable converted(*typed, types, typed_options, first_spec);
    auto next = expected.begin();
    for (std::size_t s = begin; s < end; ++s)
      for (Fusion level : levels_of(s)) {
        const Outputs actual = run(converted, samples[s], level);
        for (std::size_t o = 0; o < actual.size(); ++o)
          compare(network, *typed, o, s, level, std::move((*next)[o]), actual[o]);
        next++->clear();
      }
  }
  warn_of_idle(*idle);
  return static_cast<int>(samples.size() + (both_levels ? 1 : 0));
}

}  // namespace ulpscope
