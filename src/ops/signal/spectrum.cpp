#include "ops/signal/spectrum.h"

#include <cmath>
#include <numbers>

#include "ops/movement.h"
#include "ops/onnx_types.h"

namespace ulpscope::ops {

FourierTransform::FourierTransform(std::int64_t length) {
  for (std::int64_t k = 0; k < length; ++k)
    roots_.push_back(std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(length)));
}

void FourierTransform::inverse(Values& values) const {
  transform(values, 1, true);
  for (auto& value : values) value /= static_cast<double>(values.size());
}

void FourierTransform::transform(Values& values, std::size_t step, bool conjugate) const {
  const std::size_t n = values.size();
  const auto root = [&](std::size_t k) {
    const std::complex<double> r = roots_[k % n * step];
    return conjugate ? std::conj(r) : r;
  };
  if (n <= 1) return;
  if (n % 2 == 0) {  // Cooley and Tukey's step
    Values even(n / 2), odd(n / 2);
    for (std::size_t i = 0; i < n / 2; ++i) {
      even[i] = values[2 * i];
      odd[i] = values[2 * i + 1];
    }
    transform(even, 2 * step, conjugate);
    transform(odd, 2 * step, conjugate);
    for (std::size_t k = 0; k < n / 2; ++k) {
      const std::complex<double> turned = root(k) * odd[k];
      values[k] = even[k] + turned;
      values[k + n / 2] = even[k] - turned;
    }
    return;
  }
  Values sums(n);
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t i = 0; i < n; ++i) sums[k] += values[i] * root(k * i);
  values.swap(sums);
}

void infer_window(InferContext& ctx) {
  ctx.set_type(0, data_type_from_onnx(ctx.layer(), ctx.attributes().integer("output_datatype", 1)));
  const std::int64_t size = single_integer(ctx, 0);
  if (size < 0) ctx.fail(fmt::format("expected a size >= 0, got {}", size));
  ctx.set_shape(0, {size});
}

void run_window(KernelContext& ctx, double a0, double a1, double a2) {
  const std::int64_t size = single_integer(ctx, 0);
  const std::int64_t period = ctx.attributes().integer("periodic", 1) != 0 ? size : size - 1;
  Tensor window(DataType::kFloat64, {size});
  double* values = window.data<double>();
  for (std::int64_t i = 0; i < size; ++i) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(period);
    values[i] = period <= 0 ? 1 : a0 + a1 * std::cos(angle) + a2 * std::cos(2 * angle);
  }
  ctx.set_output(0, window.cast(physical_type(ctx.output_type(0))));
}

}  // namespace ulpscope::ops
