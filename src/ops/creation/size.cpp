// Size, ai.onnx 1, 13, 19, 21, 23, 24, 25: the number of elements.
#include "ops/common.h"

namespace ulpscope::ops {
namespace {

void infer_size(InferContext& ctx) { ctx.set(0, DataType::kInt64, {}); }

void run_size(KernelContext& ctx) { ctx.output(0).data<std::int64_t>()[0] = ctx.input(0).size(); }

}  // namespace

OpDef size() {
  return {.name = "Size",
          .precision = PrecisionRule::kFixed,
          .storage_types = StorageTypes::kTaken,
          .reads_shape_only = true,
          .infer = infer_size,
          .run = run_size};
}

}  // namespace ulpscope::ops
