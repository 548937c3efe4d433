#include "engine/scale_shift.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "ops/forms.h"

namespace ulpscope {
namespace {

/// What is not there contributes nothing, infinite factors or not.
double times(double value, double factor) { return value == 0 ? 0 : value * factor; }

}  // namespace

ScaleAndShift scale_shift(const Specialization& spec, const Layer& layer, Rounding rounding) {
  const auto values = [&](std::size_t i) {
    const Tensor& value = spec.value(layer.inputs[i]);
    Tensor rounded(value.type(), value.shape());
    round_array(value.data<float>(), rounded.data<float>(), static_cast<std::size_t>(value.size()), rounding);
    return rounded.cast(DataType::kFloat64);
  };
  const Tensor gamma = values(1), beta = values(2), mean = values(3), variance = values(4);
  const double epsilon = static_cast<double>(layer.attributes.real("epsilon", 1e-5f));
  ScaleAndShift result{Tensor(DataType::kFloat32, {gamma.size()}), Tensor(DataType::kFloat32, {gamma.size()})};
  for (std::int64_t c = 0; c < gamma.size(); ++c) {
    const double scale = gamma.data<double>()[c] / std::sqrt(variance.data<double>()[c] + epsilon);
    result.scale.data<float>()[c] = static_cast<float>(scale);
    result.shift.data<float>()[c] = static_cast<float>(beta.data<double>()[c] - times(mean.data<double>()[c], scale));
  }
  return result;
}

bool survives_rounding(const Specialization& spec, const Layer& layer, Rounding rounding) {
  for (std::size_t i = 1; i < 5; ++i)
    for (float value : spec.value(layer.inputs[i]).values<float>())
      if (std::isfinite(value) && !(std::fabs(round_value(value, rounding) - value) <= 0x1p-7f * std::fabs(value)))
        return false;
  return true;
}

ScaleAndShift rounded_scale_shift(const Specialization& spec, const Layer& layer, Rounding rounding) {
  // An unfused kernel reads four parameters of the layer's type. Where the type cannot hold them (variances of 1e7 in
  // fp16), they are prepared as scale and shift in fp32 and rounded after that.
  if (survives_rounding(spec, layer, rounding)) return scale_shift(spec, layer, rounding);
  ScaleAndShift result = scale_shift(spec, layer, Rounding::kNone);
  for (Tensor* values : {&result.scale, &result.shift})
    round_array(values->data<float>(), values->data<float>(), static_cast<std::size_t>(values->size()), rounding);
  return result;
}

Tensor scaled_weights(const Specialization& spec, const Layer& convolution, const Tensor& scale) {
  const Tensor weights = spec.value(convolution.inputs[1]).in_memory();
  const bool transposed = ops::is_transposed_convolution(convolution);
  const std::int64_t groups = convolution.attributes.integer("group", 1);
  const std::int64_t channels = scale.size(), outer = weights.shape()[0], second = weights.shape()[1];
  const std::int64_t area = weights.size() / std::max<std::int64_t>(1, outer * second);
  Tensor result(DataType::kFloat32, weights.shape());
  const float* in = weights.data<float>();
  const float* factor = scale.data<float>();
  float* out = result.data<float>();
  const std::int64_t filters = outer * second;
  parallel_each(filters, items_per_task(filters, area), [&](std::int64_t filter) {
    const std::int64_t i = filter / second, j = filter % second;
    const std::int64_t channel = transposed ? i / (outer / groups) * (channels / groups) + j : i;
    for (std::int64_t k = filter * area; k < (filter + 1) * area; ++k) out[k] = in[k] * factor[channel];
  });
  return result;
}

Tensor scaled_bias(const Specialization& spec, const Layer& convolution, const ScaleAndShift& channels) {
  const bool own = convolution.inputs.size() > 2 && convolution.inputs[2] != kNone;
  Tensor result(DataType::kFloat32, {channels.scale.size()});
  for (std::int64_t c = 0; c < result.size(); ++c) {
    const double bias = own ? static_cast<double>(spec.value(convolution.inputs[2]).data<float>()[c]) : 0.0;
    result.data<float>()[c] = static_cast<float>(times(bias, static_cast<double>(channels.scale.data<float>()[c])) +
                                                 static_cast<double>(channels.shift.data<float>()[c]));
  }
  return result;
}

}  // namespace ulpscope
