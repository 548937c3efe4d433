// If, ai.onnx 1, 11, 13, 16, 19, 21, 23, 24, 25: the outputs of one of two sub-graphs (tensors only).
#include "ops/control/subgraphs.h"

namespace ulpscope::ops {
namespace {

void infer_if(InferContext& ctx) {
  const Subgraph &then_branch = ctx.attributes().required_graph("then_branch"),
                 &else_branch = ctx.attributes().required_graph("else_branch");
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    const DataType type = subgraph_output_type(then_branch, static_cast<std::size_t>(i)),
                   other = subgraph_output_type(else_branch, static_cast<std::size_t>(i));
    if (type != DataType::kUndefined && other != DataType::kUndefined && physical_type(type) != physical_type(other))
      ctx.fail(fmt::format("expected branches of one type, output {} is {} in the one and {} in the other", i,
                           name_of(type), name_of(other)));
    ctx.set_type(i, type != DataType::kUndefined ? type : other);
  }
}

void run_if(KernelContext& ctx) {
  const bool condition = single_bool(ctx, ctx.input(0), "condition");
  std::vector<Tensor> results =
      run_subgraph(ctx, condition ? "then_branch" : "else_branch", {}, static_cast<std::size_t>(ctx.num_outputs()));
  for (int i = 0; i < ctx.num_outputs(); ++i) ctx.set_output(i, std::move(results[static_cast<std::size_t>(i)]));
}

}  // namespace

OpDef if_() {
  return {.name = "If",
          .inputs = {1, kAnyNumber},
          .outputs = {1, kAnyNumber},
          .types = {kBooleans, kEverything},
          .precision = PrecisionRule::kFixed,
          .kind = OpKind::kControl,
          .selects = 0b1,
          .infer = infer_if,
          .run = run_if};
}

}  // namespace ulpscope::ops
