// Multinomial, ai.onnx 7, 22: draws class indices from rows of unnormalised log-probabilities (the generator:
// ops/random/random.h).
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/common.h"
#include "ops/onnx_types.h"
#include "ops/random/random.h"

namespace ulpscope::ops {
namespace {

void infer_multinomial(InferContext& ctx) {
  const DataType type = dtype_attribute(ctx.layer(), DataType::kInt32);
  if (type != DataType::kInt32 && type != DataType::kInt64)
    ctx.fail(fmt::format("expected dtype int32 or int64, got {}", name_of(type)));
  ctx.set_type(0, type);
  const Shape& shape = ctx.shape(0);
  if (shape.size() != 2 || shape[1] == 0)
    ctx.fail(fmt::format("expected (batch, classes), got shape {}", to_string(shape)));
  ctx.set_shape(0, {shape[0], ctx.attributes().integer("sample_size", 1)});
}

void run_multinomial(KernelContext& ctx) {
  RandomStream stream = random_stream(ctx.layer());
  const Tensor& in = ctx.input(0);
  Tensor& out = ctx.output(0);
  const std::int64_t batches = in.shape()[0], classes = in.shape()[1], samples = out.shape()[1];
  std::vector<double> sums(static_cast<std::size_t>(classes));
  const auto sample_row = [&](auto logits, auto draws) {
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (std::int64_t c = 0; c < classes; ++c) largest = std::max(largest, static_cast<double>(logits[c]));
    for (std::int64_t c = 0; c < classes; ++c)
      sums[static_cast<std::size_t>(c)] = sum += std::exp(static_cast<double>(logits[c]) - largest);
    for (std::int64_t s = 0; s < samples; ++s) {
      const auto at = std::upper_bound(sums.begin(), sums.end(), stream.uniform() * sum) - sums.begin();
      draws[s] = static_cast<std::decay_t<decltype(*draws)>>(std::min<std::int64_t>(at, classes - 1));
    }
  };
  with_type(FloatTypes{}, ctx, in.type(), [&](auto in_tag) {
    with_type(TypeList<std::int32_t, std::int64_t>{}, ctx, out.type(), [&](auto out_tag) {
      for (std::int64_t b = 0; b < batches; ++b)
        sample_row(in.data<decltype(in_tag)>() + b * classes, out.data<decltype(out_tag)>() + b * samples);
    });
  });
}

}  // namespace

OpDef multinomial() {
  return {.name = "Multinomial",
          .since_version = 7,
          .types = {kFloats},
          .precision = PrecisionRule::kFixed,
          .infer = infer_multinomial,
          .run = run_multinomial,
          .is_random = [](std::span<const Tensor* const>) { return true; }};
}

}  // namespace ulpscope::ops
