#include "convert/constants.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "convert/casts.h"
#include "convert/selection.h"
#include "core/messages.h"
#include "engine/fusion.h"
#include "graph/dequantized_constant.h"

namespace ulpscope {
namespace {

/// What the network has of repairs goes into the file.
class TakeOver {
 public:
  TakeOver(const Network& network, TypedChanges& changes, std::vector<std::string>& sentences)
      : network_(network), changes_(changes), sentences_(sentences) {}

  void operator()(const Repair& repair, const auto&) { sentences_.push_back(repair.text); }
  void operator()(const Repair&, const ScaleShift&) {}

  void operator()(const Repair& repair, const ScaleRegion& region) {
    sentences_.push_back(fmt::format("region of '{}': {}", repair.name, repair.text));
    for (const ScaleEdit& edit : region.edits)
      if (const LayerId id = network_.find_layer(edit.name); edit.kind == ScaleEdit::Kind::kEpsilon)
        changes_.epsilons.emplace_back(id, network_.layer(id).attributes.real("epsilon", 0));
  }

  void operator()(const Repair& repair, const Clamp& clamp) {
    TensorId id = network_.find_tensor(repair.name);
    if (id == kNone)
      if (const LayerId layer = network_.find_layer(repair.name); network_.layers.contains(layer))
        id = network_.layer(layer).outputs[0];
    if (id == kNone) return;
    changes_.replaced.push_back(id);
    sentences_.push_back(fmt::format("constant '{}' is clamped to {}", repair.name, clamp.limit));
  }

 private:
  const Network& network_;
  TypedChanges& changes_;
  std::vector<std::string>& sentences_;
};

/// A layer reads the constant in another type than it has.
bool is_read_in_another_type(const Specialization& spec, const Typing& typing, TensorId id) {
  return std::ranges::any_of(spec.consumers[id], [&](LayerId reader) {
    const Layer& layer = spec.network->layer(reader);
    for (std::size_t i = 0; i < layer.inputs.size(); ++i)
      if (const DataType type = typing.reads[reader][i].type;
          layer.inputs[i] == id && type != spec.inferred.types[id] && type != DataType::kUndefined)
        return true;
    return false;
  });
}

void warn_of_infinite_constants(const Specialization& spec, const Typing& typing) {
  const Network& network = *spec.network;
  int infinite = 0;
  std::map<TensorId, bool> beyond;
  for (LayerId l : network.layers.ids())
    for (std::size_t i = 0; i < network.layers[l].inputs.size(); ++i) {
      const TensorId id = network.layers[l].inputs[i];
      if (id == kNone || !typing.constant[id] || typing.reads[l][i].type != DataType::kFloat16 ||
          spec.type(id) != DataType::kFloat32 || is_scale_shift(spec, network.layers[l]))
        continue;
      if (!beyond.contains(id)) beyond[id] = goes_beyond_float16(spec.value(id));
      infinite += beyond[id];
    }
  if (infinite > 0)
    log_warning(
        "[convert] {} read(s) of constants beyond 65504 become infinite in float16, as the assignment has it; try "
        "--clamp-constants to clamp them",
        infinite);
}

}  // namespace

std::vector<std::string> prepare_constants(const Specialization& spec, const std::vector<Repair>& repairs,
                                           TypedChanges& changes) {
  const Network& network = *spec.network;
  std::vector<std::string> sentences;
  changes.computed_constants = computed_constants(spec, changes.typing);
  int folded = 0, dequantized = 0;
  for (TensorId id : network.tensors.ids())
    if (changes.computed_constants[id] && is_read_in_another_type(spec, changes.typing, id))
      ++(is_dequantized_constant(network, id) ? dequantized : folded);
  if (folded > 0)
    sentences.push_back(fmt::format("{} constant(s) that the model computes are computed in fp32 and stored", folded));
  if (dequantized > 0)
    sentences.push_back(
        fmt::format("{} constant(s) behind DequantizeLinear stay as the file stores them, and are cast where they are "
                    "read",
                    dequantized));
  TakeOver take_over(network, changes, sentences);
  for (const Repair& repair : repairs)
    std::visit([&](const auto& change) { take_over(repair, change); }, repair.change);
  warn_of_infinite_constants(spec, changes.typing);
  return sentences;
}

}  // namespace ulpscope
