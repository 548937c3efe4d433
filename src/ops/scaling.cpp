#include "ops/scaling.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "graph/network.h"

namespace ulpscope::ops {
namespace {

using Rule = Scaling (*)(const Layer&);

template <Scaling scaling>
Scaling always(const Layer&) {
  return scaling;
}

/// Limits that are attributes cannot be scaled.
Scaling clip(const Layer& layer) {
  return layer.attributes.has("min") || layer.attributes.has("max") ? Scaling::kNone : Scaling::kTogether;
}

Scaling pad(const Layer& layer) { return layer.attributes.real("value", 0) != 0 ? Scaling::kNone : Scaling::kTogether; }

Scaling scatter(const Layer& layer) {
  return layer.attributes.text("reduction", "none") == "mul" ? Scaling::kNone : Scaling::kTogether;
}

Scaling resize(const Layer& layer) {
  const bool crops = layer.attributes.text("coordinate_transformation_mode", "") == "tf_crop_and_resize";
  return crops && layer.attributes.real("extrapolation_value", 0) != 0 ? Scaling::kNone : Scaling::kFirst;
}

Scaling einsum(const Layer& layer) {
  const std::size_t operands = layer.inputs.size();
  return operands == 1 ? Scaling::kFirst : operands == 2 ? Scaling::kProduct : Scaling::kNone;
}

/// The bias has no factor.
Scaling matmul_nbits(const Layer& layer) { return layer.input(5) == kNone ? Scaling::kFirst : Scaling::kNone; }

/// Means and deviations are other functions than the first result.
Scaling normalization(const Layer& layer) { return layer.has_one_output() ? Scaling::kNormalization : Scaling::kNone; }

Scaling batch_normalization(const Layer& layer) {
  const bool trains = layer.attributes.integer("training_mode", 0) != 0;
  return layer.has_one_output() && !trains ? Scaling::kChannelNormalization : Scaling::kNone;
}

/// A rule, and what follows it: functions, and operators by name whose other traits do not tell it.
struct Row {
  Rule rule;
  std::vector<Function> functions;
  std::vector<std::string_view> names;
};

using F = Function;
using S = Scaling;

const std::vector<Row>& rows() {
  static const std::vector<Row> kRows = {
      {always<S::kFirst>,
       {F::kNeg,       F::kAbs,       F::kRelu,     F::kLeakyRelu, F::kPRelu,   F::kReduceSum,   F::kReduceMean,
        F::kReduceMax, F::kReduceMin, F::kReduceL1, F::kReduceL2,  F::kMaxPool, F::kAveragePool, F::kGlobalAveragePool,
        F::kUpsample,  F::kTranspose, F::kIdentity, F::kDropout,   F::kCast,    F::kCastLike},
       {"CumSum", "GlobalMaxPool", "GridSample", "MaxUnpool", "RotaryEmbedding", "TopK", "Trilu"}},
      {always<S::kTogether>,
       {F::kAdd, F::kSub, F::kMin, F::kMax, F::kSum, F::kMean, F::kConcat},
       {"TensorScatter", "Where"}},
      {always<S::kProduct>, {F::kMul, F::kMatMul, F::kGemm, F::kConv, F::kConvTranspose}, {}},
      {always<S::kQuotient>, {F::kDiv}, {}},
      {always<S::kPower>, {F::kPow}, {}},
      {always<S::kSquare>, {F::kReduceSumSquare}, {}},
      {always<S::kRoot>, {F::kSqrt}, {}},
      {always<S::kInverse>, {F::kReciprocal}, {}},
      {always<S::kInvariant>,
       {F::kSign},
       {"ArgMax", "ArgMin", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "NonZero"}},
      {clip, {F::kClip}, {}},
      {resize, {F::kResize}, {}},
      {normalization,
       {F::kLayerNormalization, F::kRmsNormalization, F::kInstanceNormalization},
       {"GroupNormalization"}},
      {batch_normalization, {F::kBatchNormalization}, {}},
      {einsum, {}, {"Einsum"}},
      {matmul_nbits, {}, {"MatMulNBits"}},
      {pad, {}, {"Pad"}},
      {scatter, {}, {"ScatterElements", "ScatterND"}},
  };
  return kRows;
}

}  // namespace

Rule scaling_rule(const OpDef& op) {
  if (op.moves_values) return always<Scaling::kFirst>;
  if (op.reads_shape_only) return always<Scaling::kInvariant>;
  // What a function says counts more than a name.
  const auto of_function = [&](const Row& row) {
    return std::ranges::find(row.functions, op.function) != row.functions.end();
  };
  const auto of_name = [&](const Row& row) { return std::ranges::find(row.names, op.name) != row.names.end(); };
  auto found = std::ranges::find_if(rows(), of_function);
  if (found == rows().end()) found = std::ranges::find_if(rows(), of_name);
  return found == rows().end() ? nullptr : found->rule;
}

}  // namespace ulpscope::ops
