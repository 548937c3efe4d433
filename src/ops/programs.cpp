#include "ops/programs.h"

#include <array>
#include <limits>
#include <string_view>
#include <unordered_map>

namespace ulpscope::ops {
namespace {

using I = Instruction;

/// The single float of a constant operand.
std::optional<float> scalar(const Tensor* value) {
  if (value == nullptr || value->type() != DataType::kFloat32 || value->size() != 1) return std::nullopt;
  return value->data<float>()[0];
}

const std::unordered_map<std::string_view, I>& plain_unary() {
  static const std::unordered_map<std::string_view, I> table{{"Neg", I::kNeg},           {"Abs", I::kAbs},
                                                             {"Sign", I::kSign},         {"Reciprocal", I::kReciprocal},
                                                             {"Sqrt", I::kSqrt},         {"Exp", I::kExp},
                                                             {"Log", I::kLog},           {"Erf", I::kErf},
                                                             {"Tanh", I::kTanh},         {"Sigmoid", I::kSigmoid},
                                                             {"Sin", I::kSin},           {"Cos", I::kCos},
                                                             {"Tan", I::kTan},           {"Asin", I::kAsin},
                                                             {"Acos", I::kAcos},         {"Atan", I::kAtan},
                                                             {"Sinh", I::kSinh},         {"Cosh", I::kCosh},
                                                             {"Asinh", I::kAsinh},       {"Acosh", I::kAcosh},
                                                             {"Atanh", I::kAtanh},       {"Floor", I::kFloor},
                                                             {"Ceil", I::kCeil},         {"Round", I::kRound},
                                                             {"Relu", I::kRelu},         {"HardSwish", I::kHardSwish},
                                                             {"Softplus", I::kSoftplus}, {"Softsign", I::kSoftsign},
                                                             {"Mish", I::kMish}};
  return table;
}

const std::unordered_map<std::string_view, I>& plain_binary() {
  static const std::unordered_map<std::string_view, I> table{
      {"Add", I::kAdd},     {"Sub", I::kSub}, {"Mul", I::kMul}, {"Div", I::kDiv}, {"Pow", I::kPow},
      {"PRelu", I::kPRelu}, {"Min", I::kMin}, {"Max", I::kMax}, {"Sum", I::kAdd}, {"Mean", I::kAdd}};
  return table;
}

struct Parametric {
  I instruction;
  const char* p_name;
  float p;
  const char* q_name;
  float q;
};

const std::unordered_map<std::string_view, Parametric>& parametric_unary() {
  static const std::unordered_map<std::string_view, Parametric> table{
      {"LeakyRelu", {I::kLeakyRelu, "alpha", 0.01f, nullptr, 0}},
      {"HardSigmoid", {I::kHardSigmoid, "alpha", 0.2f, "beta", 0.5f}},
      {"Elu", {I::kElu, "alpha", 1.0f, nullptr, 0}},
      {"Selu", {I::kSelu, "alpha", 1.67326319217681884765625f, "gamma", 1.05070102214813232421875f}},
      {"Celu", {I::kCelu, "alpha", 1.0f, nullptr, 0}},
      {"ThresholdedRelu", {I::kThresholdedRelu, "alpha", 1.0f, nullptr, 0}},
      {"Swish", {I::kSwish, "alpha", 1.0f, nullptr, 0}},
      {"QuickGelu", {I::kSwish, "alpha", 1.702f, nullptr, 0}}};
  return table;
}

constexpr std::uint32_t kAll = ~0u;

bool is_reduction_name(std::string_view op) {
  static constexpr std::array<std::string_view, 7> kNames{"ReduceSum", "ReduceMean", "ReduceMax",      "ReduceMin",
                                                          "ReduceL1",  "ReduceL2",   "ReduceSumSquare"};
  for (std::string_view name : kNames)
    if (name == op) return true;
  return false;
}

bool is_row_norm(std::string_view op) {
  return op == "LayerNormalization" || op == "RMSNormalization" || op == "InstanceNormalization" ||
         op == "SimplifiedLayerNormalization";
}

Register lower_reduction(Program& p, std::string_view op, Register x) {
  if (op == "ReduceSum") return p.apply(I::kRowSum, x);
  if (op == "ReduceMean") return p.apply(I::kRowMean, x);
  if (op == "ReduceMax") return p.apply(I::kRowMax, x);
  if (op == "ReduceMin") return p.apply(I::kRowMin, x);
  if (op == "ReduceL1") return p.apply(I::kRowL1, x);
  const Register sum = p.apply(I::kRowSumSquare, x);
  return op == "ReduceL2" ? p.apply(I::kSqrt, sum) : sum;
}

Register lower_softmax(Program& p, Register x, bool logarithm) {
  const Register shifted = p.apply(I::kSub, x, p.apply(I::kRowMax, x));
  const Register exponential = p.apply(I::kExp, shifted);
  const Register sum = p.apply(I::kRowSum, exponential);
  if (logarithm) return p.apply(I::kSub, shifted, p.apply(I::kLog, sum));
  return p.apply(I::kMul, exponential, p.apply(I::kReciprocal, sum));
}

/// Two passes (mean first, then the squares of the differences): no cancellation.
Register lower_norm(Program& p, const Layer& layer, std::span<const ProgramOperand> operands,
                    std::int64_t row_elements) {
  const std::string_view op = layer.op->name;
  const bool centred = op == "LayerNormalization" || op == "InstanceNormalization";
  Register x = operands[0].reg;
  if (centred) x = p.apply(I::kSub, x, p.apply(I::kRowMean, x));
  const Register sum = p.apply(I::kRowSumSquare, x);
  const Register mean_square = p.apply(I::kDiv, sum, p.constant(static_cast<float>(row_elements)));
  const Register variance = p.apply(I::kAdd, mean_square, p.constant(layer.attributes.real("epsilon", 1e-5f)));
  x = p.apply(I::kMul, x, p.apply(I::kRsqrt, variance));
  if (operands.size() > 1 && operands[1].reg >= 0) x = p.apply(I::kMul, x, operands[1].reg);
  if (operands.size() > 2 && operands[2].reg >= 0) x = p.apply(I::kAdd, x, operands[2].reg);
  return x;
}

}  // namespace

ProgramSupport program_support(const Layer& layer, std::span<const Tensor* const> constants) {
  const std::string_view op = layer.op->name;
  const auto constant = [&](std::size_t i) { return i < constants.size() ? constants[i] : nullptr; };
  const auto absent = [&](std::size_t i) { return i >= layer.inputs.size() || layer.inputs[i] == kNone; };
  if (plain_unary().contains(op) || parametric_unary().contains(op)) return {true, 1};
  if (plain_binary().contains(op)) return {true, kAll};
  if (op == "Gelu") return {true, 1};
  if (op == "FastGelu" || op == "BiasGelu") return {true, kAll};
  if (op == "Clip") return {(absent(1) || scalar(constant(1))) && (absent(2) || scalar(constant(2))), 1};
  if (is_reduction_name(op)) return {true, 1};
  if (op == "Softmax" || op == "LogSoftmax") return {true, 1};
  if (is_row_norm(op)) return {true, kAll};
  return {};
}

std::optional<Register> append_instructions(Program& p, const Layer& layer, std::span<const ProgramOperand> operands,
                                    std::int64_t row_elements) {
  const std::string_view op = layer.op->name;
  const Register x = operands[0].reg;
  if (const auto found = plain_unary().find(op); found != plain_unary().end()) return p.apply(found->second, x);
  if (const auto found = parametric_unary().find(op); found != parametric_unary().end()) {
    const Parametric& u = found->second;
    return p.apply(u.instruction, x, -1, layer.attributes.real(u.p_name, u.p),
                   u.q_name ? layer.attributes.real(u.q_name, u.q) : 0);
  }
  if (const auto found = plain_binary().find(op); found != plain_binary().end()) {
    if (op == "Pow") {
      const auto exponent = scalar(operands[1].value);
      if (exponent == 2.0f) return p.apply(I::kSquare, x);
      if (exponent == 1.0f) return p.apply(I::kCopy, x);
    }
    Register result = x;
    for (std::size_t i = 1; i < operands.size(); ++i) result = p.apply(found->second, result, operands[i].reg);
    if (operands.size() == 1) result = p.apply(I::kCopy, x);
    if (op == "Mean") result = p.apply(I::kDiv, result, p.constant(static_cast<float>(operands.size())));
    return result;
  }
  if (op == "Gelu") return p.apply(layer.attributes.text("approximate", "none") == "tanh" ? I::kGeluTanh : I::kGelu, x);
  if (op == "FastGelu" || op == "BiasGelu") {
    const bool biased = operands.size() > 1 && operands[1].reg >= 0;
    return p.apply(op == "FastGelu" ? I::kGeluTanh : I::kGelu, biased ? p.apply(I::kAdd, x, operands[1].reg) : x);
  }
  if (op == "Clip") {
    constexpr float kMax = std::numeric_limits<float>::infinity();
    const auto bound = [&](std::size_t i, const char* name, float open) {
      if (layer.opset < 11) return layer.attributes.real(name, open);
      return i < operands.size() && operands[i].value ? *scalar(operands[i].value) : open;
    };
    return p.apply(I::kClip, x, -1, bound(1, "min", -kMax), bound(2, "max", kMax));
  }
  if (is_reduction_name(op)) return lower_reduction(p, op, x);
  if (op == "Softmax" || op == "LogSoftmax") return lower_softmax(p, x, op == "LogSoftmax");
  if (is_row_norm(op)) return lower_norm(p, layer, operands, row_elements);
  return std::nullopt;
}

}  // namespace ulpscope::ops
