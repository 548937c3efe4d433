// Random programs over strided operands, and what they mean: evaluated register by register over the whole domain,
// from src/graph/program.h and docs/numerics.md alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "backend/cuda/program_source.h"

namespace ulpscope::cuda::testing_programs {

using I = Instruction;

inline bool is_row(const Program::Value& v) {
  return v.kind == Program::Kind::kResult && is_row_instruction(v.instruction);
}

enum class Style {
  kAny,       ///< Every instruction.
  kIntegers,  ///< Sums of small integers: exact in any order.
  kBits,      ///< No sums; instructions that are one operation of IEEE 754. Special values.
  kSmooth,    ///< Sums of fractions, for comparisons with a tolerance.
};

/// What one operation of IEEE 754 (or none) computes.
inline constexpr I kExactUnary[] = {
    I::kNeg,  I::kAbs,       I::kSign, I::kReciprocal,      I::kSqrt, I::kFloor,  I::kCeil,        I::kRound,
    I::kRelu, I::kLeakyRelu, I::kClip, I::kThresholdedRelu, I::kCopy, I::kSquare, I::kFakeQuantize};
inline constexpr I kExactBinary[] = {I::kAdd, I::kSub, I::kMul, I::kDiv, I::kMin, I::kMax, I::kPRelu};
inline constexpr I kIntegerUnary[] = {I::kNeg,  I::kAbs,       I::kSign,   I::kRelu,
                                      I::kCopy, I::kLeakyRelu, I::kSquare, I::kThresholdedRelu};
inline constexpr I kIntegerBinary[] = {I::kAdd, I::kSub, I::kMul, I::kMin, I::kMax, I::kPRelu};
inline constexpr I kSmoothUnary[] = {I::kNeg,      I::kTanh,      I::kSigmoid, I::kErf,  I::kSoftsign, I::kGelu,
                                     I::kGeluTanh, I::kHardSwish, I::kSin,     I::kAtan, I::kSwish,    I::kMish};
inline constexpr I kSmoothBinary[] = {I::kAdd, I::kSub, I::kMin, I::kMax};
inline constexpr I kRows[] = {I::kReduceSum, I::kReduceMean,      I::kReduceMax,
                              I::kReduceMin, I::kReduceSumSquare, I::kReduceL1};

class ProgramMaker {
 public:
  ProgramMaker(unsigned seed, Style style) : random_(seed), style_(style) {}

  ProgramSpec make() {
    make_domain();
    if (chance(70)) order_ = shuffled();
    const int loads = 1 + pick(4);
    for (int i = 0; i < loads; ++i) {
      spec_.inputs.push_back(input());
      add(spec_.program.load(i), moves_along_row(spec_.inputs.back().strides));
    }
    if (chance(60)) add(spec_.program.constant(style_ == Style::kIntegers ? 3.0f : 0.75f), false);
    for (int i = 1 + pick(9); i > 0; --i) step();
    const int outputs = 1 + pick(3);
    for (int i = 0; i < outputs; ++i) spec_.outputs.push_back(output(i == 0 ? last() : pick(last() + 1)));
    return std::move(spec_);
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool chance(int percent) { return pick(100) < percent; }
  template <typename List>
  auto any(const List& list) {
    return *(std::begin(list) + pick(static_cast<int>(std::size(list))));
  }
  Register last() const { return static_cast<Register>(spec_.program.values.size()) - 1; }
  void add(Register r, bool along_row) {
    along_row_.push_back(along_row);
    operands_.push_back(r);
  }
  /// What `limit` is about to bound: an output can be made of it, another instruction reads the bounded register.
  void add_unlimited(Register r, bool along_row) {
    add(r, along_row);
    if (style_ == Style::kIntegers || style_ == Style::kSmooth) operands_.pop_back();
  }

  void make_domain() {
    static constexpr std::int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 32, 33, 56, 64, 96, 128, 197};
    const int rank = pick(5);
    for (int d = 0; d < rank; ++d) spec_.domain.push_back(any(kSizes));
    while (num_elements(spec_.domain) > 12000) {
      auto& largest = *std::max_element(spec_.domain.begin(), spec_.domain.end());
      largest = (largest + 1) / 2;
    }
    spec_.row_dims = rank > 0 && chance(70) ? 1 + pick(rank) : 0;
    if (spec_.row_dims == 0 && chance(20)) {  // Large enough for vectors, perhaps with a tail.
      static constexpr std::int64_t kInner[] = {1, 3, 8, 24, 96, 100, 128};
      const std::int64_t inner = any(kInner);
      spec_.domain = {1 + pick(3), 136000 / inner / 3 + pick(40), inner};
    }
    if (spec_.row_dims == 1 && chance(12)) {  // Long rows.
      spec_.domain.assign(1, 1 + pick(3));
      spec_.domain.push_back(chance(50) ? 4096 + 8 * pick(800) : 33000 + pick(9000));
    }
  }

  std::vector<std::size_t> shuffled() {
    std::vector<std::size_t> order(spec_.domain.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    return order;
  }

  /// Dense or padded, in the common order of memory or in one of its own; 0 along dimensions in `fixed`.
  std::vector<std::int64_t> strides(const std::vector<bool>& fixed, bool may_flip) {
    std::vector<std::size_t> order = order_;
    if (order.empty()) {
      order.resize(spec_.domain.size());
      std::iota(order.begin(), order.end(), 0);
    }
    if (chance(15)) order = shuffled();
    std::vector<std::int64_t> result(spec_.domain.size());
    std::int64_t step = chance(8) ? 2 : 1;
    for (std::size_t i = order.size(); i-- > 0;) {
      if (fixed[order[i]]) continue;
      result[order[i]] = may_flip && chance(3) ? -step : step;
      step = step * spec_.domain[order[i]] + (chance(8) ? 1 + pick(8) : 0);
    }
    return result;
  }

  bool moves_along_row(const std::vector<std::int64_t>& strides) const {
    for (std::size_t d = strides.size() - spec_.row_dims; d < strides.size(); ++d)
      if (strides[d] != 0 && spec_.domain[d] != 1) return true;
    return false;
  }

  Rounding rounding() {
    static constexpr Rounding kAll[] = {Rounding::kNone, Rounding::kNone, Rounding::kF16, Rounding::kBF16,
                                        Rounding::kTF32};
    return any(kAll);
  }

  ProgramInput input() {
    static constexpr DataType kFloatTypes[] = {DataType::kFloat16, DataType::kFloat32, DataType::kBFloat16};
    static constexpr DataType kOthers[] = {DataType::kBool,  DataType::kInt8,   DataType::kUInt8, DataType::kInt16,
                                           DataType::kInt32, DataType::kUInt16, DataType::kInt64, DataType::kUInt32};
    ProgramInput in{chance(80) ? any(kFloatTypes) : any(kOthers)};
    std::vector<bool> fixed(spec_.domain.size());
    const bool broadcast = chance(40);
    for (std::size_t d = 0; d < fixed.size(); ++d) fixed[d] = broadcast && chance(60);
    in.strides = strides(fixed, true);
    in.rounding = rounding();
    if (chance(15)) in.alignment = static_cast<int>(size_of(in.type));
    return in;
  }

  ProgramOutput output(Register source) {
    static constexpr DataType kTypes[] = {DataType::kFloat16, DataType::kFloat32, DataType::kBFloat16};
    ProgramOutput out{source, any(kTypes)};
    std::vector<bool> fixed(spec_.domain.size());
    if (!along_row_[source] && chance(80)) std::fill(fixed.end() - spec_.row_dims, fixed.end(), true);
    out.strides = strides(fixed, false);
    out.rounding = rounding();
    if (chance(15)) out.alignment = static_cast<int>(size_of(out.type));
    if (chance(10)) {
      out.quantization = to_bytes(0.5f, chance(50));
      out.type = out.quantization->is_unsigned() ? DataType::kUInt8 : DataType::kInt8;
      out.alignment = 16;
    }
    return out;
  }

  void step() {
    const Register a = any(operands_);
    if (spec_.row_dims > 0 && chance(35)) return reduce(a);
    const bool unary = chance(45);
    I instruction = I::kCopy;
    if (style_ == Style::kAny)
      instruction = static_cast<I>(
          unary ? static_cast<int>(I::kNeg) + pick(static_cast<int>(I::kSwish) - static_cast<int>(I::kNeg) + 1)
                : static_cast<int>(I::kAdd) + pick(static_cast<int>(I::kPRelu) - static_cast<int>(I::kAdd) + 1));
    else if (style_ == Style::kBits)
      instruction = unary ? any(kExactUnary) : any(kExactBinary);
    else if (style_ == Style::kSmooth)
      instruction = unary ? any(kSmoothUnary) : any(kSmoothBinary);
    else
      instruction = unary ? any(kIntegerUnary) : any(kIntegerBinary);
    const float p = instruction == I::kClip ? -1.5f : style_ == Style::kSmooth ? 1.0f : 2.0f;
    const Register b = is_binary_instruction(instruction) ? any(operands_) : -1;
    const bool along = along_row_[a] || (b >= 0 && along_row_[b]);
    add_unlimited(spec_.program.apply(instruction, a, b, p, 1.0f), along);
    limit(along);
  }

  void reduce(Register a) {
    const I instruction = style_ == Style::kBits ? (chance(50) ? I::kReduceMax : I::kReduceMin) : any(kRows);
    add_unlimited(spec_.program.apply(instruction, a), false);
    if (style_ == Style::kBits) {  // The sign of a zero depends on the order.
      add(spec_.program.constant(0.0f), false);
      add(spec_.program.apply(I::kAdd, last() - 1, last()), false);
    } else if (style_ == Style::kSmooth) {
      if (instruction != I::kReduceMean && instruction != I::kReduceMax && instruction != I::kReduceMin) {
        const Shape row(spec_.domain.end() - spec_.row_dims, spec_.domain.end());
        add_unlimited(spec_.program.constant(static_cast<float>(num_elements(row))), false);
        add_unlimited(spec_.program.apply(I::kDiv, last() - 1, last()), false);
      }
      limit(false);
    } else if (style_ == Style::kIntegers) {
      if (instruction == I::kReduceMean) add_unlimited(spec_.program.apply(I::kRound, last()), false);
      limit(false);
    }
  }

  /// Keeps values so small that sums of their squares are exact.
  void limit(bool along) {
    if (style_ == Style::kIntegers) add(spec_.program.apply(I::kClip, last(), -1, -8.0f, 8.0f), along);
    if (style_ == Style::kSmooth) add(spec_.program.apply(I::kClip, last(), -1, -4.0f, 4.0f), along);
  }

  std::mt19937 random_;
  Style style_;
  ProgramSpec spec_;
  std::vector<bool> along_row_;
  std::vector<Register> operands_;  ///< Registers that instructions may read.
  std::vector<std::size_t> order_;
};

// --- What programs mean ---

inline double nan_wins(double a, double b, bool larger) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  return (larger ? a > b : a < b) ? a : b;
}
inline double smaller(double a, double b) { return nan_wins(a, b, false); }
inline double larger(double a, double b) { return nan_wins(a, b, true); }
inline double clamp(double x, double low, double high) { return smaller(larger(x, low), high); }
inline double quantized(double x, float scale, bool is_unsigned) {
  const double q = std::nearbyint(static_cast<double>(static_cast<float>(x) / scale));
  return std::isnan(q) ? 0 : std::clamp(q, is_unsigned ? 0.0 : -128.0, is_unsigned ? 255.0 : 127.0) + 0.0;  // Never -0.
}
inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double softplus(double x) { return x > 30 ? x : std::log1p(std::exp(x)); }

/// In double; the float nearest to it is the result.
inline double meaning(const Program::Value& v, double x, double y) {
  const double p = static_cast<double>(v.p), q = static_cast<double>(v.q);
  switch (v.instruction) {
#define ULPSCOPE_UNARY(instruction, name, reference, ...) \
  case I::instruction:                                    \
    return reference;
#define ULPSCOPE_BINARY ULPSCOPE_UNARY
#include "graph/instructions.def"
    case I::kFakeQuantize:
      return quantized(x, v.p, v.q != 0) * p;
    default:
      throw std::logic_error("no pointwise instruction");
  }
}

inline double reduced(I instruction, const double* row, std::int64_t count) {
  double result = instruction == I::kReduceMax   ? -std::numeric_limits<double>::infinity()
                  : instruction == I::kReduceMin ? std::numeric_limits<double>::infinity()
                                                 : 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (instruction == I::kReduceMax || instruction == I::kReduceMin)
      result = nan_wins(result, row[i], instruction == I::kReduceMax);
    else
      result += instruction == I::kReduceSumSquare ? row[i] * row[i]
                : instruction == I::kReduceL1      ? std::fabs(row[i])
                                                   : row[i];
  }
  return instruction == I::kReduceMean ? result / static_cast<double>(count) : result;
}

/// Offsets of an operand for every element of a domain, in the order of the domain.
inline std::vector<std::int64_t> offsets_of(const Shape& domain, const std::vector<std::int64_t>& strides) {
  std::vector<std::int64_t> offsets{0};
  for (std::size_t d = 0; d < domain.size(); ++d) {
    std::vector<std::int64_t> next;
    next.reserve(offsets.size() * static_cast<std::size_t>(domain[d]));
    for (std::int64_t offset : offsets)
      for (std::int64_t i = 0; i < domain[d]; ++i) next.push_back(offset + i * strides[d]);
    offsets = std::move(next);
  }
  return offsets;
}

/// Every register over the whole domain; float32 between instructions unless `wide`. `loads`: per input, per element.
inline std::vector<std::vector<double>> evaluate(const ProgramSpec& spec, const std::vector<std::vector<double>>& loads,
                                                 bool wide = false) {
  const std::int64_t count = num_elements(spec.domain);
  const std::int64_t row = num_elements(Shape(spec.domain.end() - spec.row_dims, spec.domain.end()));
  std::vector<std::vector<double>> registers;
  for (const Program::Value& v : spec.program.values) {
    std::vector<double> out(static_cast<std::size_t>(count), static_cast<double>(v.constant));
    if (v.kind == Program::Kind::kLoad) {
      out = loads[v.load];
    } else if (is_row(v)) {
      for (std::int64_t i = 0; i < count; i += row)
        std::fill_n(out.begin() + i, row, reduced(v.instruction, registers[v.a].data() + i, row));
    } else if (v.kind == Program::Kind::kResult) {
      for (std::int64_t i = 0; i < count; ++i) out[i] = meaning(v, registers[v.a][i], v.b < 0 ? 0 : registers[v.b][i]);
    }
    if (!wide)
      for (double& x : out) x = static_cast<double>(static_cast<float>(x));
    registers.push_back(std::move(out));
  }
  return registers;
}

}  // namespace ulpscope::cuda::testing_programs
