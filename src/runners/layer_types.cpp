// Which TensorRT layer type an ONNX operator becomes (onnx-tensorrt's documentation of supported operators).
#include <ranges>
#include <string_view>
#include <unordered_map>

#include "graph/network.h"
#include "runners/network_exchange.h"

namespace ulpscope {
namespace {

struct Row {
  std::string_view type;
  std::string_view operators;  ///< Separated by blanks.
};

constexpr Row kRows[] = {
    {"CONSTANT", "Constant"},
    {"IDENTITY", "Identity Dropout"},
    {"CAST", "Cast CastLike"},
    {"CONVOLUTION", "Conv ConvInteger"},
    {"DECONVOLUTION", "ConvTranspose"},
    {"MATRIX_MULTIPLY", "MatMul Gemm MatMulInteger"},
    {"EINSUM", "Einsum"},
    {"ELEMENTWISE",
     "Add Sub Mul Div Pow Max Min Sum Mean Mod And Or Xor Equal Greater Less GreaterOrEqual LessOrEqual "
     "BitShift"},
    {"ACTIVATION",
     "Relu Sigmoid Tanh LeakyRelu Elu Selu Softsign Softplus Clip HardSigmoid HardSwish ThresholdedRelu "
     "Gelu Celu Mish Swish"},
    {"PARAMETRIC_RELU", "PRelu"},
    {"UNARY",
     "Exp Log Sqrt Reciprocal Abs Neg Sin Cos Tan Sinh Cosh Asin Acos Atan Asinh Acosh Atanh Ceil Floor "
     "Erf Not Sign Round IsInf IsNaN"},
    {"SOFTMAX", "Softmax LogSoftmax Hardmax"},
    {"POOLING", "MaxPool AveragePool LpPool"},
    {"REDUCE",
     "GlobalAveragePool GlobalMaxPool GlobalLpPool ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd "
     "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare"},
    {"SCALE", "BatchNormalization"},
    {"NORMALIZATION", "InstanceNormalization LayerNormalization GroupNormalization RMSNormalization"},
    {"LRN", "LRN"},
    {"SHUFFLE", "Reshape Transpose Flatten DepthToSpace SpaceToDepth"},
    {"SQUEEZE", "Squeeze"},
    {"UNSQUEEZE", "Unsqueeze"},
    {"CONCATENATION", "Concat"},
    {"SLICE", "Slice Split Expand Tile"},
    {"PADDING", "Pad"},
    {"GATHER", "Gather GatherElements GatherND"},
    {"SCATTER", "ScatterElements ScatterND"},
    {"TOPK", "TopK ArgMax ArgMin"},
    {"RESIZE", "Resize Upsample"},
    {"GRID_SAMPLE", "GridSample"},
    {"SHAPE", "Shape Size"},
    {"SELECT", "Where"},
    {"ONE_HOT", "OneHot"},
    {"NON_ZERO", "NonZero"},
    {"FILL", "Range ConstantOfShape RandomUniform RandomNormal"},
    {"CUMULATIVE", "CumSum"},
    {"QUANTIZE", "QuantizeLinear"},
    {"DEQUANTIZE", "DequantizeLinear"},
    {"NMS", "NonMaxSuppression"},
    {"REVERSE_SEQUENCE", "ReverseSequence"},
    {"CONDITION", "If"},
    {"TRIP_LIMIT", "Loop Scan"},
    {"RECURRENCE", "LSTM GRU RNN"},
};

}  // namespace

std::string_view tensorrt_layer_type(const Layer& layer) {
  static const std::unordered_map<std::string_view, std::string_view> types = [] {
    std::unordered_map<std::string_view, std::string_view> result;
    for (const auto& [type, operators] : kRows)
      for (const auto& name : std::views::split(operators, ' '))
        result.emplace(std::string_view(name.begin(), name.end()), type);
    return result;
  }();
  const auto found = types.find(layer.op->name);
  return found == types.end() || !layer.op->domain.empty() ? "PLUGIN_V2" : found->second;
}

}  // namespace ulpscope
