#include "onnx/type_support.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>

namespace ulpscope {
namespace {

constexpr int kFloat16 = 1, kBFloat16 = 2, kSameAsBefore = 4;

struct Version {
  int since;  ///< Opset.
  int flags;  ///< kFloat16 | kBFloat16 | kSameAsBefore: a node of the version before means the same.
};

struct Operator {
  std::string_view name;
  Version versions[16];
};

// From the schemas of the onnx package, by scripts/make_type_table.py; sorted by name.
// clang-format off
constexpr Operator kOperators[] = {
    {"Abs",{{1,1},{6,1},{13,7}}}, {"Acos",{{7,1},{22,7}}}, {"Acosh",{{9,1},{22,7}}},
    {"Add",{{1,1},{6,1},{7,1},{13,7},{14,7}}}, {"AffineGrid",{{20,3}}}, {"And",{{1,0},{7,0}}},
    {"ArgMax",{{1,1},{11,5},{12,5},{13,7}}}, {"ArgMin",{{1,1},{11,5},{12,5},{13,7}}}, {"Asin",{{7,1},{22,7}}},
    {"Asinh",{{9,1},{22,7}}}, {"Atan",{{7,1},{22,7}}}, {"Atanh",{{9,1},{22,7}}}, {"Attention",{{23,3},{24,3},{25,7}}},
    {"AveragePool",{{1,1},{7,5},{10,5},{11,5},{19,5},{22,7}}},
    {"BatchNormalization",{{1,1},{6,1},{7,1},{9,1},{14,3},{15,7}}}, {"Bernoulli",{{15,1},{22,7}}}, {"BitCast",{{26,3}}},
    {"BitShift",{{11,0},{28,4}}}, {"BitwiseAnd",{{18,0}}}, {"BitwiseNot",{{18,0}}}, {"BitwiseOr",{{18,0}}},
    {"BitwiseXor",{{18,0}}}, {"BlackmanWindow",{{17,3}}},
    {"Cast",{{1,1},{6,1},{9,5},{13,7},{19,7},{21,7},{23,7},{24,7},{25,7},{28,7}}},
    {"CastLike",{{15,3},{19,7},{21,7},{23,7},{24,7},{25,7}}}, {"CausalConvWithState",{{27,3}}},
    {"Ceil",{{1,1},{6,1},{13,7}}}, {"Celu",{{12,0},{28,7}}}, {"CenterCropPad",{{18,3}}},
    {"Clip",{{1,1},{6,1},{11,1},{12,5},{13,7}}}, {"Col2Im",{{18,3}}}, {"Compress",{{9,1},{11,5},{28,7}}},
    {"Concat",{{1,1},{4,5},{11,5},{13,7}}}, {"ConcatFromSequence",{{11,1}}},
    {"Constant",{{1,1},{9,5},{11,5},{12,5},{13,7},{19,7},{21,7},{23,7},{24,7},{25,7}}},
    {"ConstantOfShape",{{9,1},{20,7},{21,7},{23,7},{24,7},{25,7}}}, {"Conv",{{1,1},{11,5},{22,7}}},
    {"ConvInteger",{{10,0}}}, {"ConvTranspose",{{1,1},{11,5},{22,7}}}, {"Cos",{{7,1},{22,7}}}, {"Cosh",{{9,1},{22,7}}},
    {"CumProd",{{26,3}}}, {"CumSum",{{11,0},{14,7}}}, {"DFT",{{17,3},{20,3}}}, {"DeformConv",{{19,1},{22,7}}},
    {"DepthToSpace",{{1,1},{11,5},{13,7},{28,7}}},
    {"DequantizeLinear",{{10,0},{13,4},{19,7},{21,7},{23,7},{24,7},{25,7},{28,7}}}, {"Det",{{11,1},{22,7}}},
    {"Div",{{1,1},{6,1},{7,1},{13,7},{14,7}}}, {"Dropout",{{1,1},{6,1},{7,1},{10,5},{12,1},{13,7},{22,7}}},
    {"DynamicQuantizeLinear",{{11,0}}}, {"Einsum",{{12,1},{28,7}}}, {"Elu",{{1,1},{6,1},{22,7}}},
    {"Equal",{{1,0},{7,0},{11,5},{13,7},{19,7}}}, {"Erf",{{9,1},{13,7}}}, {"Exp",{{1,1},{6,1},{13,7}}},
    {"Expand",{{8,1},{13,7}}}, {"EyeLike",{{9,1},{22,7}}},
    {"Flatten",{{1,1},{9,5},{11,5},{13,7},{21,7},{23,7},{24,7},{25,7}}}, {"Floor",{{1,1},{6,1},{13,7}}},
    {"GRU",{{1,1},{3,1},{7,1},{14,5},{22,7}}}, {"Gather",{{1,1},{11,5},{13,7}}}, {"GatherElements",{{11,1},{13,7}}},
    {"GatherND",{{11,1},{12,5},{13,7}}}, {"Gelu",{{20,3}}}, {"Gemm",{{1,1},{6,5},{7,1},{9,5},{11,5},{13,7}}},
    {"GlobalAveragePool",{{1,1},{22,7}}}, {"GlobalLpPool",{{1,1},{2,1},{22,7}}}, {"GlobalMaxPool",{{1,1},{22,7}}},
    {"Greater",{{1,1},{7,1},{9,5},{13,7}}}, {"GreaterOrEqual",{{12,1},{16,7}}}, {"GridSample",{{16,1},{20,1},{22,7}}},
    {"GroupNormalization",{{18,0},{21,3}}}, {"HammingWindow",{{17,3}}}, {"HannWindow",{{17,3}}},
    {"HardSigmoid",{{1,1},{6,1},{22,7}}}, {"HardSwish",{{14,1},{22,7}}}, {"Hardmax",{{1,1},{11,5},{13,3}}},
    {"Identity",{{1,1},{13,7},{14,7},{16,7},{19,7},{21,7},{23,7},{24,7},{25,7}}},
    {"If",{{1,1},{11,5},{13,5},{16,7},{19,7},{21,7},{23,7},{24,7},{25,7}}}, {"ImageDecoder",{{20,0}}},
    {"InstanceNormalization",{{1,1},{6,1},{22,7}}}, {"IsInf",{{10,0},{20,7}}}, {"IsNaN",{{9,1},{13,7},{20,7}}},
    {"LRN",{{1,1},{13,7}}}, {"LSTM",{{1,1},{7,1},{14,5},{22,7}}}, {"LayerNormalization",{{17,3}}},
    {"LeakyRelu",{{1,1},{6,1},{16,7}}}, {"Less",{{1,1},{7,1},{9,5},{13,7}}}, {"LessOrEqual",{{12,1},{16,7}}},
    {"LinearAttention",{{27,3}}}, {"Log",{{1,1},{6,1},{13,7}}}, {"LogSoftmax",{{1,1},{11,5},{13,3}}},
    {"Loop",{{1,1},{11,5},{13,5},{16,7},{19,7},{21,7},{23,7},{24,7},{25,7}}}, {"LpNormalization",{{1,1},{22,7}}},
    {"LpPool",{{1,1},{2,1},{11,5},{18,5},{22,7}}}, {"MatMul",{{1,1},{9,5},{13,7}}}, {"MatMulInteger",{{10,0}}},
    {"Max",{{1,1},{6,1},{8,5},{12,5},{13,7}}}, {"MaxPool",{{1,1},{8,5},{10,5},{11,5},{12,5},{22,7}}},
    {"MaxRoiPool",{{1,1},{22,7}}}, {"MaxUnpool",{{9,1},{11,5},{22,7}}}, {"Mean",{{1,1},{6,1},{8,5},{13,7}}},
    {"MeanVarianceNormalization",{{9,1},{13,7}}}, {"MelWeightMatrix",{{17,3}}},
    {"Min",{{1,1},{6,1},{8,5},{12,5},{13,7}}}, {"Mish",{{18,1},{22,7}}}, {"Mod",{{10,1},{13,7},{28,7}}},
    {"Mul",{{1,1},{6,1},{7,1},{13,7},{14,7}}}, {"Multinomial",{{7,1},{22,7}}}, {"Neg",{{1,1},{6,1},{13,7}}},
    {"NegativeLogLikelihoodLoss",{{12,1},{13,5},{22,7}}}, {"NonMaxSuppression",{{10,0},{11,4}}},
    {"NonZero",{{9,1},{13,7}}}, {"Not",{{1,0}}}, {"OneHot",{{9,1},{11,5},{28,5}}}, {"Optional",{{15,1},{28,7}}},
    {"OptionalGetElement",{{15,1},{18,5},{28,7}}}, {"OptionalHasElement",{{15,0},{18,5},{28,7}}}, {"Or",{{1,0},{7,0}}},
    {"PRelu",{{1,1},{6,1},{7,5},{9,5},{16,7}}},
    {"Pad",{{1,1},{2,1},{11,1},{13,7},{18,7},{19,7},{21,7},{23,7},{24,7},{25,7}}},
    {"Pow",{{1,1},{7,1},{12,5},{13,5},{15,7}}}, {"QLinearConv",{{10,0}}}, {"QLinearMatMul",{{10,0},{21,7}}},
    {"QuantizeLinear",{{10,0},{13,4},{19,7},{21,7},{23,7},{24,7},{25,7},{28,7}}}, {"RMSNormalization",{{23,3}}},
    {"RNN",{{1,1},{7,1},{14,5},{22,7}}}, {"RandomNormal",{{1,1},{22,7}}}, {"RandomNormalLike",{{1,1},{22,7}}},
    {"RandomUniform",{{1,1},{22,7}}}, {"RandomUniformLike",{{1,1},{22,7}}}, {"Range",{{11,0},{27,7}}},
    {"Reciprocal",{{1,1},{6,1},{13,7}}}, {"ReduceL1",{{1,1},{11,5},{13,7},{18,3}}},
    {"ReduceL2",{{1,1},{11,5},{13,7},{18,3}}}, {"ReduceLogSum",{{1,1},{11,5},{13,7},{18,3},{28,7}}},
    {"ReduceLogSumExp",{{1,1},{11,5},{13,7},{18,3},{28,7}}}, {"ReduceMax",{{1,1},{11,5},{12,5},{13,7},{18,3},{20,7}}},
    {"ReduceMean",{{1,1},{11,5},{13,7},{18,3}}}, {"ReduceMin",{{1,1},{11,5},{12,5},{13,7},{18,3},{20,7}}},
    {"ReduceProd",{{1,1},{11,5},{13,7},{18,3}}}, {"ReduceSum",{{1,1},{11,5},{13,3}}},
    {"ReduceSumSquare",{{1,1},{11,5},{13,7},{18,3}}}, {"RegexFullMatch",{{20,0}}}, {"Relu",{{1,1},{6,1},{13,7},{14,7}}},
    {"Reshape",{{1,1},{5,1},{13,7},{14,7},{19,7},{21,7},{23,7},{24,7},{25,7}}},
    {"Resize",{{10,1},{11,1},{13,7},{18,7},{19,7}}}, {"ReverseSequence",{{10,1},{28,7}}},
    {"RoiAlign",{{10,1},{16,1},{22,7}}}, {"RotaryEmbedding",{{23,3}}}, {"Round",{{11,1},{22,7}}}, {"STFT",{{17,3}}},
    {"Scan",{{8,1},{9,1},{11,5},{16,7},{19,7},{21,7},{23,7},{24,7},{25,7}}}, {"Scatter",{{9,1},{11,0}}},
    {"ScatterElements",{{11,1},{13,7},{16,7},{18,7}}}, {"ScatterND",{{11,1},{13,7},{16,7},{18,7}}},
    {"Selu",{{1,1},{6,1},{22,7}}}, {"SequenceAt",{{11,1}}}, {"SequenceConstruct",{{11,1}}}, {"SequenceEmpty",{{11,0}}},
    {"SequenceErase",{{11,0}}}, {"SequenceInsert",{{11,1}}}, {"SequenceLength",{{11,0}}}, {"SequenceMap",{{17,1}}},
    {"Shape",{{1,1},{13,7},{15,7},{19,7},{21,7},{23,7},{24,7},{25,7}}}, {"Shrink",{{9,1}}},
    {"Sigmoid",{{1,1},{6,1},{13,7}}}, {"Sign",{{9,1},{13,7}}}, {"Sin",{{7,1},{22,7}}}, {"Sinh",{{9,1},{22,7}}},
    {"Size",{{1,1},{13,7},{19,7},{21,7},{23,7},{24,7},{25,7}}}, {"Slice",{{1,1},{10,1},{11,5},{13,7}}},
    {"Softmax",{{1,1},{11,5},{13,3}}}, {"SoftmaxCrossEntropyLoss",{{12,1},{13,7}}}, {"Softplus",{{1,1},{22,7}}},
    {"Softsign",{{1,1},{22,7}}}, {"SpaceToDepth",{{1,1},{13,7},{28,7}}}, {"Split",{{1,1},{2,1},{11,5},{13,3},{18,7}}},
    {"SplitToSequence",{{11,1},{24,7}}}, {"Sqrt",{{1,1},{6,1},{13,7}}},
    {"Squeeze",{{1,1},{11,5},{13,3},{21,7},{23,7},{24,7},{25,7}}}, {"StringConcat",{{20,0}}},
    {"StringNormalizer",{{10,0}}}, {"StringSplit",{{20,0}}}, {"Sub",{{1,1},{6,1},{7,1},{13,7},{14,7}}},
    {"Sum",{{1,1},{6,1},{8,5},{13,7}}}, {"SwiGLU",{{28,3}}}, {"Swish",{{24,3}}}, {"Tan",{{7,1},{22,7}}},
    {"Tanh",{{1,1},{6,1},{13,7}}}, {"TensorScatter",{{24,3}}}, {"TfIdfVectorizer",{{9,0}}},
    {"ThresholdedRelu",{{10,1},{22,7}}}, {"Tile",{{1,1},{6,1},{13,7}}}, {"TopK",{{1,1},{10,1},{11,5},{24,7}}},
    {"Transpose",{{1,1},{13,7},{21,7},{23,7},{24,7},{25,7}}}, {"Trilu",{{14,3}}}, {"Unique",{{11,1},{28,7}}},
    {"Unsqueeze",{{1,1},{11,5},{13,3},{21,7},{23,7},{24,7},{25,7}}}, {"Upsample",{{1,1},{7,1},{9,1},{10,0}}},
    {"Where",{{9,1},{16,7}}}, {"Xor",{{1,0},{7,0}}},
};
// clang-format on

const Operator* find(std::string_view domain, std::string_view op) noexcept {
  if (!domain.empty() && domain != "ai.onnx") return nullptr;
  const auto* found = std::lower_bound(std::begin(kOperators), std::end(kOperators), op,
                                       [](const Operator& a, std::string_view b) { return a.name < b; });
  return found != std::end(kOperators) && found->name == op ? found : nullptr;
}

int flag_of(DataType type) noexcept {
  return type == DataType::kFloat16 ? kFloat16 : type == DataType::kBFloat16 ? kBFloat16 : 0;
}

}  // namespace

bool onnx_accepts(std::string_view domain, std::string_view op, int opset, DataType type) noexcept {
  if (type == DataType::kFloat32 || (!domain.empty() && domain != "ai.onnx")) return true;
  const Operator* found = find(domain, op);
  if (found == nullptr) return false;
  int flags = 0;
  for (const Version& version : found->versions)
    if (version.since != 0 && version.since <= opset) flags = version.flags;
  return (flags & flag_of(type)) != 0;
}

int onnx_accepts_since(std::string_view domain, std::string_view op, int opset, DataType type) noexcept {
  if (onnx_accepts(domain, op, opset, type)) return opset;
  const Operator* found = find(domain, op);
  if (found == nullptr) return 0;
  for (const Version& version : found->versions)
    if (version.since > opset && (version.flags & flag_of(type)) != 0) return version.since;
  return 0;
}

bool onnx_means_the_same(std::string_view domain, std::string_view op, int from, int to) noexcept {
  if (!domain.empty() && domain != "ai.onnx") return true;
  const Operator* found = find(domain, op);
  if (found == nullptr) return from == to;
  for (const Version& version : found->versions)
    if (version.since > from && version.since <= to && (version.flags & kSameAsBefore) == 0) return false;
  return true;
}

}  // namespace ulpscope
