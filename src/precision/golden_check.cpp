// Golden outputs that nothing can be judged against, and where in the network they come from.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/metrics.h"
#include "engine/assign.h"
#include "precision/search_phases.h"
#include "runtime/executable.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

struct FirstNonFinite {
  LayerId layer = kNone;
  bool reads_zero = false;
};

/// Values of a tensor in one run in float32; empty: an integer.
using Values = IdMap<TensorId, Tensor>;

bool is_finite(const Tensor& value) {
  if (!value || !is_floating(value.type())) return true;
  const NonFinite found = count_non_finite(value);
  return found.nan == 0 && found.inf == 0;
}

bool has_zero(const Tensor& value) {
  const Tensor wide = value.cast(DataType::kFloat64);
  return std::ranges::find(wide.values<double>(), 0.0) != wide.values<double>().end();
}

/// What every layer of the network gives; those within bodies are not looked at.
Values values_of(const Network& network, std::span<const Tensor> inputs, int threads) {
  Network all = network;
  all.outputs.clear();
  for (const Layer& layer : all.layers)
    for (const TensorId output : present(layer.outputs))
      if (is_floating(all.tensor(output).type)) all.outputs.push_back(output);
  std::vector<Shape> shapes;
  for (const Tensor& input : inputs) shapes.push_back(input.shape());
  BuildOptions options;
  options.threads = threads;
  options.fusion = Fusion::kNone;
  const auto spec = specialize(all, shapes);
  std::vector<Tensor> outputs = Executable(all, assign_precisions(*spec, options), options, spec).run(inputs);
  Values values(all.tensors.size());
  for (const TensorId id : all.tensors.ids()) values[id] = all.tensor(id).value;
  for (std::size_t i = 0; i < inputs.size(); ++i) values[all.inputs[i]] = inputs[i];
  for (std::size_t i = 0; i < outputs.size(); ++i) values[all.outputs[i]] = std::move(outputs[i]);
  return values;
}

/// The first layer that makes an infinity or a NaN of numbers.
FirstNonFinite first_non_finite(const Network& network, const Values& values) {
  for (const LayerId id : network.layers.ids()) {
    const Layer& layer = network.layer(id);
    const auto finite = [&](TensorId tensor) { return is_finite(values[tensor]); };
    if (std::ranges::all_of(present(layer.outputs), finite) || !std::ranges::all_of(present(layer.inputs), finite))
      continue;
    const bool zero = std::ranges::any_of(present(layer.inputs), [&](TensorId tensor) {
      return values[tensor] && is_floating(values[tensor].type()) && has_zero(values[tensor]);
    });
    return {id, zero};
  }
  return {};
}

/// "; the first infinity or NaN comes from 'log_1' (Log), which reads zeros"; empty where that is not found.
std::string where_from(const SearchState& search, std::size_t sample) {
  Trials& trials = search.space().trials();
  if (search.options.memory_limit > 0) return "";  // All values at once may be beyond it.
  const Network& network = *search.data.network;
  for (std::size_t i = 0; i < network.inputs.size(); ++i)
    if (!is_finite(trials.inputs(sample)[i]))
      return fmt::format("; its input '{}' has NaN or Inf, too", network.tensor(network.inputs[i]).name);
  const FirstNonFinite first =
      first_non_finite(network, values_of(network, trials.inputs(sample), trials.options().threads));
  if (first.layer == kNone) return "";
  const Layer& layer = network.layer(first.layer);
  return fmt::format("; the first infinity or NaN comes from '{}' ({}){}", layer.name, layer.op->name,
                     first.reads_zero ? ", which reads zeros (torch.onnx.export makes log(x) of log(x + 1e-10) unless "
                                        "it is told optimize=False)"
                                      : "");
}

}  // namespace

void check_golden_values(const SearchState& search, std::span<const TensorMap> golden, std::size_t first) {
  const char* const what = first > 0 ? " of the held-out samples" : "";
  for (std::size_t s = 0; s < golden.size(); ++s)
    for (const NamedTensor& output : golden[s]) {
      if (!search.criterion.judges(output.name)) continue;
      const NonFinite found = count_non_finite(output.tensor);
      if (found.nan == 0 && (found.inf == 0 || search.options.infinities_equal)) continue;
      const char* const or_else =
          found.nan > 0 ? "" : ", or --infinities-compare-equal, with which the same infinity is no error";
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("[golden] output '{}', sample {}{}: expected numbers, got {} NaN and {} Inf in {} elements "
                      "of the float32 outputs: nothing can be judged against them{}; try other inputs{}",
                      output.name, s, what, found.nan, found.inf, output.tensor.size(), where_from(search, first + s),
                      or_else));
    }
  check_has_elements(golden, search.criterion, what);
}

}  // namespace ulpscope
