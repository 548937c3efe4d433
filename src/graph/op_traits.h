// Facts about operators that the rest of the program asks for, so that nobody else needs to know an operator's name.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "ulpscope/data_type.h"

namespace ulpscope {

/// A set of element types.
class TypeSet {
 public:
  constexpr TypeSet() = default;
  constexpr TypeSet(std::initializer_list<DataType> types) {
    for (DataType type : types) bits_ |= std::uint32_t{1} << static_cast<unsigned>(type);
  }
  constexpr bool has(DataType type) const { return (bits_ >> static_cast<unsigned>(type) & 1U) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  friend constexpr TypeSet operator|(TypeSet a, TypeSet b) {
    a.bits_ |= b.bits_;
    return a;
  }

 private:
  std::uint32_t bits_ = 0;
};

inline constexpr TypeSet kFloats{DataType::kFloat32, DataType::kFloat64};
inline constexpr TypeSet kSignedIntegers{DataType::kInt8, DataType::kInt16, DataType::kInt32, DataType::kInt64};
inline constexpr TypeSet kIntegers =
    kSignedIntegers | TypeSet{DataType::kUInt8, DataType::kUInt16, DataType::kUInt32, DataType::kUInt64};
inline constexpr TypeSet kNumbers = kFloats | kIntegers;
inline constexpr TypeSet kBooleans{DataType::kBool};
inline constexpr TypeSet kEverything = kNumbers | kBooleans;
inline constexpr TypeSet kBytes{DataType::kInt8, DataType::kUInt8};
/// What indices, shapes and axes are held in.
inline constexpr TypeSet kIndices{DataType::kInt32, DataType::kInt64};

/// What an operator computes, where fusion, lowering or conversion tell it from others of its OpKind; several operators
/// may compute one function. Also what an instruction of a program computes (graph/program.h), in float32.
enum class Function : std::uint8_t {
  kNone,
// Pointwise instructions of one operand, and the operators that are one: kNeg to kSwish. Coefficients of operators
// (OpDef::coefficients) are p and q.
#define ULPSCOPE_UNARY(instruction, ...) instruction,
#include "graph/instructions.def"
  kFakeQuantize,  ///< p: scale, q: 1 for unsigned. To 8-bit integers and back: clamp(round(x / p)) p.
// Those of two operands.
#define ULPSCOPE_BINARY(instruction, ...) instruction,
#include "graph/instructions.def"
  // Of two operands, or of any number.
  kBiasGelu,  ///< kGelu of the sum of the operands; the second may be absent.
  kSum,
  kMean,
  // Of rows: OpDef::axes. The first ones are one instruction each.
  kReduceSum,
  kReduceMean,
  kReduceMax,
  kReduceMin,
  kReduceSumSquare,
  kReduceL1,
  kReduceL2,
  kSoftmax,
  kLogSoftmax,
  kLayerNormalization,
  kRmsNormalization,
  kInstanceNormalization,
  kBatchNormalization,
  // Sums of products.
  kMatMul,
  kGemm,
  kConv,
  kConvTranspose,
  // Of windows.
  kMaxPool,
  kAveragePool,
  kGlobalAveragePool,
  kResize,
  kUpsample,
  // Of the elements as they are.
  kTranspose,
  kConcat,
  kIdentity,
  kGather,
  kWhere,
  kPad,
  kDropout,
  kIsNan,
  kCast,
  kCastLike,
  kQuantize,
  kDequantize,
  // Over time.
  kRnn,
  kGru,
  kLstm,
};

/// One instruction of one operand, of two, or of a row, which becomes one value.
constexpr bool is_unary_instruction(Function f) { return f >= Function::kNeg && f <= Function::kSwish; }
constexpr bool is_binary_instruction(Function f) { return f >= Function::kAdd && f <= Function::kPRelu; }
constexpr bool is_row_instruction(Function f) { return f >= Function::kReduceSum && f <= Function::kReduceL1; }
constexpr bool is_convolution(Function f) { return f == Function::kConv || f == Function::kConvTranspose; }
constexpr bool is_product(Function f) { return f >= Function::kMatMul && f <= Function::kConvTranspose; }

/// A float attribute that a pointwise function takes as a number, and its value where it is absent.
struct Coefficient {
  std::string_view attribute;
  float absent = 0;
};

/// What rounding its operands does to the result of an operator with PrecisionRule::kCompute.
enum class Exactness : std::uint8_t {
  kRounds,    ///< The result needs rounding of its own.
  kSelects,   ///< The result is an operand, a limit, 0, or one of these negated: it has the operands' type exactly.
  kCommutes,  ///< Moreover round(f(x)) has the bits of f(round(x)) for every x, signs of zeros included.
};

/// What happens to the results of an operator when its float operands are multiplied by powers of two. Operands that
/// only select or are parameters (OpDef::selects, OpDef::parameters) do not count.
enum class Scaling : std::uint8_t {
  kNone,      ///< Another function: no operand and no result may be scaled.
  kFirst,     ///< Input 0 hands its factor on; the others have none.
  kTogether,  ///< All operands share one factor, and hand it on.
  kProduct,   ///< Factors of inputs 0 and 1 multiply; what is added to the product has that of the result.
  kQuotient,  ///< The factor of input 0 over that of input 1.
  kPower,     ///< Input 0 to the power of input 1, a constant: so is the factor.
  kSquare,
  kRoot,
  kInverse,
  kInvariant,      ///< Operands share one factor, which the results do not have.
  kNormalization,  ///< Any factor of input 0, by whose square the epsilon is multiplied; the others hand on theirs.
  /// Input 0 and its mean (input 3) share any factor; the variance (input 4) and the epsilon have none. The result has
  /// that of the bias (input 2); the scale (input 1) makes up for the difference.
  kChannelNormalization,
};

/// Where the formal input of a sub-graph comes from.
struct BodyInput {
  int input = -1;                        ///< The layer's input of the same type; -1: none.
  DataType type = DataType::kUndefined;  ///< The type, where the operator's definition says it.
  /// Axes of the layer's input that one entry of it, which the sub-graph gets, does not have.
  std::vector<std::int64_t> without;
};

}  // namespace ulpscope
