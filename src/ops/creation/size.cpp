// Size, ai.onnx 1, 13, 19, 21, 23, 24, 25: the number of elements.
#include "ops/common.h"

namespace ulpscope::ops {
namespace {

void infer(InferContext& ctx) { ctx.set(0, DataType::kInt64, {}); }

void run(KernelContext& ctx) { ctx.output(0).data<std::int64_t>()[0] = ctx.input(0).size(); }

}  // namespace

OpDef size() {
  return {.name = "Size",
          .precision = PrecisionRule::kFixed,
          .storage_types = StorageTypes::kTaken,
          .infer = infer,
          .run = run};
}

}  // namespace ulpscope::ops
