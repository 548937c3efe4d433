#include "calibration/constant_path.h"

#include <algorithm>
#include <cmath>

#include "calibration/row_range.h"

namespace ulpscope {
namespace {

bool fp16_holds(double smallest, double largest) { return !is_zero_in_fp16(smallest) && largest < 65520; }

/// What a reader on the way makes of [smallest, largest], read as `from`. False: it is no layer of a way.
bool follow(const Specialization& spec, ConstantStep& step) {
  const Network& network = *spec.network;
  const Layer& layer = network.layer(step.layer);
  if (layer.op->precision == PrecisionRule::kMovement) return true;
  RowRange other;
  const auto meets_data = [&](std::size_t i) {
    const TensorId id = layer.input(i);
    if (id == kNone || !spec.is_constant(id) || spec.type(id) != DataType::kFloat32) return true;
    other.add(spec.value(id));
    return false;
  };
  switch (scaling_of(layer)) {
    case Scaling::kRoot:
      step.smallest = std::sqrt(step.smallest);
      step.largest = std::sqrt(step.largest);
      return true;
    case Scaling::kInverse:
      step = {step.layer, step.from, step.to, 1 / step.largest, 1 / step.smallest};
      return true;
    case Scaling::kQuotient:
      if (layer.input(0) == layer.input(1)) return false;
      if (layer.input(1) == step.from && meets_data(0)) {
        step.to = kNone;
      } else if (layer.input(1) == step.from) {
        step = {step.layer, step.from, step.to, other.smallest() / step.largest, other.largest() / step.smallest};
      } else if (meets_data(1)) {
        return false;
      } else {
        step = {step.layer, step.from, step.to, step.smallest / other.largest(), step.largest / other.smallest()};
      }
      return true;
    case Scaling::kProduct:
      if (layer.op->function != Function::kMul || layer.input(0) == layer.input(1)) return false;
      if (meets_data(layer.input(0) == step.from ? 1 : 0))
        step.to = kNone;
      else
        step = {step.layer, step.from, step.to, step.smallest * other.smallest(), step.largest * other.largest()};
      return true;
    default:
      return false;
  }
}

}  // namespace

bool is_zero_in_fp16(double magnitude) { return magnitude <= std::ldexp(1.0, -25); }

std::optional<std::vector<ConstantStep>> constant_path(const Specialization& spec, const ScalingModel::Change& added,
                                                       double smallest, double largest) {
  constexpr std::size_t kLongest = 32;
  const Network& network = *spec.network;
  const Layer& first = network.layer(added.layer);
  if (scaling_of(first) != Scaling::kTogether || !first.has_one_output()) return std::nullopt;
  std::vector<ConstantStep> path{{added.layer, kNone, first.outputs[0], smallest, largest}};
  for (std::size_t i = 0; i < path.size(); ++i) {
    const ConstantStep before = path[i];
    if (before.to == kNone) continue;
    if (spec.output[before.to] || path.size() > kLongest) return std::nullopt;
    for (LayerId reader : spec.consumers[before.to]) {
      const Layer& layer = network.layer(reader);
      if (!layer.has_one_output()) return std::nullopt;
      ConstantStep step{reader, before.to, layer.outputs[0], before.smallest, before.largest};
      if (!follow(spec, step)) return std::nullopt;
      path.push_back(step);
    }
  }
  return path;
}

std::vector<LayerId> beyond_fp16(const ScalingModel& model, const ScalingModel::Change& added,
                                 std::span<const ConstantStep> path, std::span<const int> values, bool high) {
  const auto leaves = [&](const ConstantStep& step, const Exponent& exponent) {
    const auto e = static_cast<int>(exponent.at(values));
    return (high || fp16_holds(step.smallest, step.largest)) &&
           !fp16_holds(std::ldexp(step.smallest, e), std::ldexp(step.largest, e));
  };
  std::vector<LayerId> result;
  for (const ConstantStep& step : path) {
    const auto from =
        std::ranges::find_if(path, [&](const ConstantStep& each) { return each.to != kNone && each.to == step.from; });
    const bool reads = step.from == kNone ? leaves(step, added.exponent) : leaves(*from, model.exponent[step.from]);
    const bool makes = step.to != kNone && leaves(step, model.exponent[step.to]);
    if ((reads || makes) && std::ranges::find(result, step.layer) == result.end()) result.push_back(step.layer);
  }
  return result;
}

}  // namespace ulpscope
