// NonZero, ai.onnx 9, 13: the coordinates of the elements that are not zero, one row per dimension.
#include "ops/common.h"

namespace ulpscope::ops {
namespace {

void infer_non_zero(InferContext& ctx) { ctx.set_type(0, DataType::kInt64); }

void run_non_zero(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  std::vector<std::int64_t> found;
  with_type(AllTypes{}, ctx, in.type(), [&](auto tag) {
    using T = decltype(tag);
    const T* values = in.data<T>();
    for (std::int64_t i = 0; i < in.size(); ++i)
      if (values[i] != T{0}) found.push_back(i);
  });
  const std::int64_t count = static_cast<std::int64_t>(found.size());
  Tensor out(DataType::kInt64, {in.rank(), count});
  const std::vector<std::int64_t> strides = strides_of(in.shape());
  std::int64_t* row = out.data<std::int64_t>();
  for (std::size_t d = 0; d < strides.size(); ++d)
    for (std::int64_t at : found) *row++ = at / strides[d] % in.shape()[d];
  ctx.set_output(0, std::move(out));
}

}  // namespace

OpDef non_zero() {
  return {.name = "NonZero",
          .since_version = 9,
          .types = {kEverything},
          .precision = PrecisionRule::kFixed,
          .infer = infer_non_zero,
          .run = run_non_zero};
}

}  // namespace ulpscope::ops
