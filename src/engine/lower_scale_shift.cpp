// Inference BatchNormalization as a scale and a shift per channel.
#include <fmt/format.h>

#include <cmath>

#include "engine/plan_builder.h"

namespace ulpscope {
namespace {

/// Scale or shift, computed in double from the four parameters (rounded first): x * scale + shift.
Tensor channel_values(const Specialization& spec, const Layer& l, bool shift, Rounding rounding) {
  const auto values = [&](std::size_t i) {
    const Tensor& value = spec.value(l.inputs[i]);
    Tensor rounded(value.type(), value.shape());
    round_array(value.data<float>(), rounded.data<float>(), static_cast<std::size_t>(value.size()), rounding);
    return rounded.cast(DataType::kFloat64);
  };
  const Tensor gamma = values(1), beta = values(2), mean = values(3), variance = values(4);
  const double epsilon = static_cast<double>(l.attributes.real("epsilon", 1e-5f));
  Tensor result(DataType::kFloat32, {gamma.size()});
  for (std::int64_t c = 0; c < gamma.size(); ++c) {
    const double scale = gamma.data<double>()[c] / std::sqrt(variance.data<double>()[c] + epsilon);
    result.data<float>()[c] =
        static_cast<float>(shift ? beta.data<double>()[c] - mean.data<double>()[c] * scale : scale);
  }
  return result;
}

/// Every parameter keeps its size when it is rounded: nothing overflows, nothing drowns among the subnormals.
bool survive_rounding(const Specialization& spec, const Layer& l, Rounding rounding) {
  for (std::size_t i = 1; i < 5; ++i)
    for (float value : spec.value(l.inputs[i]).values<float>())
      if (!(std::fabs(round_value(value, rounding) - value) <= 0x1p-7f * std::fabs(value))) return false;
  return true;
}

}  // namespace

std::string PlanBuilder::scale_shift_key(const Layer& l) const {
  std::string key = fmt::format("{}", l.outputs[0]);
  for (std::size_t i = 1; i < 5; ++i) key += "," + constant_key(l.inputs[i]);
  return key;
}

Tensor PlanBuilder::scale_of(const Layer& l) const {
  return weights_.get(fmt::format("scale|{}", scale_shift_key(l)),
                      [&] { return channel_values(spec_, l, false, Rounding::kNone); });
}

Tensor PlanBuilder::shift_of(const Layer& l) const {
  return weights_.get(fmt::format("shift|{}", scale_shift_key(l)),
                      [&] { return channel_values(spec_, l, true, Rounding::kNone); });
}

Tensor PlanBuilder::rounded_scale_shift(LayerId id, bool shift) {
  const Layer& l = layer(id);
  const Rounding rounding = rounding_of(precision(id));
  if (rounding == Rounding::kNone || rounding == Rounding::kTF32) return shift ? shift_of(l) : scale_of(l);
  return weights_.get(
      fmt::format("{}|{}|rounded {}", shift ? "shift" : "scale", scale_shift_key(l), static_cast<int>(rounding)), [&] {
        // An unfused kernel reads four parameters of the layer's type. Where the type cannot hold them (variances of
        // 1e7 in fp16), they are prepared as scale and shift in fp32 and rounded after that.
        if (survive_rounding(spec_, l, rounding)) return channel_values(spec_, l, shift, rounding);
        Tensor result = channel_values(spec_, l, shift, Rounding::kNone);
        round_array(result.data<float>(), result.data<float>(), static_cast<std::size_t>(result.size()), rounding);
        return result;
      });
}

}  // namespace ulpscope
