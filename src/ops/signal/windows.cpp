// Window functions: sums of cosines.
#include <cmath>
#include <numbers>

#include "ops/movement.h"
#include "ops/onnx_types.h"

namespace ulpscope::ops {
namespace {

void infer_window(InferContext& ctx) {
  ctx.set_type(0, data_type_from_onnx(ctx.layer(), ctx.attributes().integer("output_datatype", 1)));
  const std::int64_t size = single_integer(ctx, 0);
  if (size < 0) ctx.fail(fmt::format("expected a size >= 0, got {}", size));
  ctx.set_shape(0, {size});
}

/// a0 + a1 cos(2 pi n / N) + a2 cos(4 pi n / N).
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

OpDef window(std::string_view name, void (*run)(KernelContext&)) {
  return {.name = name,
          .since_version = 17,
          .types = {kIndices},
          .precision = PrecisionRule::kFixed,
          .weights = 0b1,
          .infer = infer_window,
          .run = run};
}

}  // namespace

OpTable windows() {
  return {
      // BlackmanWindow, ai.onnx 17.
      window("BlackmanWindow", [](KernelContext& ctx) { run_window(ctx, 0.42, -0.5, 0.08); }),
      // HammingWindow, ai.onnx 17.
      window("HammingWindow", [](KernelContext& ctx) { run_window(ctx, 25.0 / 46, -21.0 / 46, 0); }),
      // HannWindow, ai.onnx 17.
      window("HannWindow", [](KernelContext& ctx) { run_window(ctx, 0.5, -0.5, 0); }),
  };
}

}  // namespace ulpscope::ops
