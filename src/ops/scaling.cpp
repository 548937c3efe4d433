#include "ops/scaling.h"

#include <algorithm>
#include <iterator>
#include <string_view>

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

/// Of operators whose other traits do not tell it.
struct NamedRule {
  std::string_view name;
  Rule rule;
};
constexpr NamedRule kNamed[] = {
    {"ArgMax", always<Scaling::kInvariant>},
    {"ArgMin", always<Scaling::kInvariant>},
    {"CumSum", always<Scaling::kFirst>},
    {"Einsum", einsum},
    {"Equal", always<Scaling::kInvariant>},
    {"GlobalMaxPool", always<Scaling::kFirst>},
    {"Greater", always<Scaling::kInvariant>},
    {"GreaterOrEqual", always<Scaling::kInvariant>},
    {"GridSample", always<Scaling::kFirst>},
    {"GroupNormalization", normalization},
    {"IsInf", always<Scaling::kInvariant>},
    {"IsNaN", always<Scaling::kInvariant>},
    {"Less", always<Scaling::kInvariant>},
    {"LessOrEqual", always<Scaling::kInvariant>},
    {"MatMulNBits", matmul_nbits},
    {"MaxUnpool", always<Scaling::kFirst>},
    {"NonZero", always<Scaling::kInvariant>},
    {"Pad", pad},
    {"RotaryEmbedding", always<Scaling::kFirst>},
    {"ScatterElements", scatter},
    {"ScatterND", scatter},
    {"TensorScatter", always<Scaling::kTogether>},
    {"TopK", always<Scaling::kFirst>},
    {"Trilu", always<Scaling::kFirst>},
    {"Where", always<Scaling::kTogether>},
};

Rule rule_of(Function function) {
  switch (function) {
    case Function::kNeg:
    case Function::kAbs:
    case Function::kRelu:
    case Function::kLeakyRelu:
    case Function::kPRelu:
    case Function::kReduceSum:
    case Function::kReduceMean:
    case Function::kReduceMax:
    case Function::kReduceMin:
    case Function::kReduceL1:
    case Function::kReduceL2:
    case Function::kMaxPool:
    case Function::kAveragePool:
    case Function::kGlobalAveragePool:
    case Function::kUpsample:
    case Function::kTranspose:
    case Function::kIdentity:
    case Function::kDropout:
    case Function::kCast:
    case Function::kCastLike:
      return always<Scaling::kFirst>;
    case Function::kAdd:
    case Function::kSub:
    case Function::kMin:
    case Function::kMax:
    case Function::kSum:
    case Function::kMean:
    case Function::kConcat:
      return always<Scaling::kTogether>;
    case Function::kMul:
    case Function::kMatMul:
    case Function::kGemm:
    case Function::kConv:
    case Function::kConvTranspose:
      return always<Scaling::kProduct>;
    case Function::kDiv:
      return always<Scaling::kQuotient>;
    case Function::kPow:
      return always<Scaling::kPower>;
    case Function::kReduceSumSquare:
      return always<Scaling::kSquare>;
    case Function::kSqrt:
      return always<Scaling::kRoot>;
    case Function::kReciprocal:
      return always<Scaling::kInverse>;
    case Function::kSign:
      return always<Scaling::kInvariant>;
    case Function::kClip:
      return clip;
    case Function::kResize:
      return resize;
    case Function::kLayerNormalization:
    case Function::kRmsNormalization:
    case Function::kInstanceNormalization:
      return normalization;
    case Function::kBatchNormalization:
      return batch_normalization;
    default:
      return nullptr;
  }
}

}  // namespace

Rule scaling_rule(const OpDef& op) {
  if (op.moves_values) return always<Scaling::kFirst>;
  if (op.reads_shape_only) return always<Scaling::kInvariant>;
  if (const Rule rule = rule_of(op.function)) return rule;
  const auto named = std::ranges::find(kNamed, op.name, &NamedRule::name);
  return named == std::end(kNamed) ? nullptr : named->rule;
}

}  // namespace ulpscope::ops
