// Comparisons, logic and bits: results that are boolean, or that no precision changes.
#include <utility>

#include "ops/elementwise.h"
#include "ops/predicates.h"

namespace ulpscope::ops {
namespace {

using Boolean = TypeList<bool>;
constexpr PrecisionRule kFixed = PrecisionRule::kFixed;

/// Arithmetic for signed types. Shifts out of range leave nothing but copies of the sign.
template <typename T>
T shifted_right(T x, T by) noexcept {
  if (by < 0 || by >= static_cast<T>(8 * sizeof(T))) return static_cast<T>(x < 0 ? -1 : 0);
  return static_cast<T>(x >> by);
}
template <typename T>
T shifted_left(T x, T by) noexcept {
  if (by < 0 || by >= static_cast<T>(8 * sizeof(T))) return 0;
  return static_cast<T>(static_cast<Arithmetic<T>>(x) << by);
}

void run_bit_shift(KernelContext& ctx) {
  const auto left = [](auto x, auto by) { return shifted_left(x, by); };
  const auto right = [](auto x, auto by) { return shifted_right(x, by); };
  const std::string direction = ctx.attributes().text("direction", "");
  if (direction == "LEFT") return run_binary(ctx, find_binary_loop<IntegerTypes, decltype(left)>(ctx));
  if (direction == "RIGHT") return run_binary(ctx, find_binary_loop<IntegerTypes, decltype(right)>(ctx));
  ctx.fail("expected direction LEFT or RIGHT, got '{}'", direction);
}

/// On bytes, since compilers have no vectors of negated booleans.
void run_not(KernelContext& ctx) {
  map_unary(ctx.input(0), ctx.output(0), [](const void* a, void* out, std::int64_t count, Coefficients) {
    const auto* x = static_cast<const std::uint8_t*>(a);
    auto* y = static_cast<std::uint8_t*>(out);
    for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] == 0;
  });
}

void run_is_inf(KernelContext& ctx) {
  const auto found = [](auto x, float positive, float negative) -> bool {
    constexpr auto infinity = std::numeric_limits<decltype(x)>::infinity();
    return (positive != 0 && x == infinity) || (negative != 0 && x == -infinity);
  };
  const auto wanted = [&](const char* name) { return ctx.attributes().integer(name, 1) != 0 ? 1.0F : 0.0F; };
  map_unary(ctx.input(0), ctx.output(0), find_unary_loop<FloatTypes, decltype(found)>(ctx),
            {wanted("detect_positive"), wanted("detect_negative")});
}

}  // namespace

std::optional<Predicate> predicate_of(const Layer& layer) {
  constexpr std::pair<std::string_view, Predicate> kNames[] = {
      {"Equal", Predicate::kEqual},
      {"Greater", Predicate::kGreater},
      {"GreaterOrEqual", Predicate::kGreaterOrEqual},
      {"Less", Predicate::kLess},
      {"LessOrEqual", Predicate::kLessOrEqual},
      {"And", Predicate::kAnd},
      {"Or", Predicate::kOr},
      {"Xor", Predicate::kXor},
      {"Not", Predicate::kNot},
      {"IsNaN", Predicate::kIsNan},
  };
  if (!layer.op->domain.empty()) return std::nullopt;
  if (layer.op->run == run_is_inf) {
    const bool positive = layer.attributes.integer("detect_positive", 1) != 0;
    const bool negative = layer.attributes.integer("detect_negative", 1) != 0;
    if (positive && negative) return Predicate::kIsInfinity;
    return positive   ? Predicate::kIsPositiveInfinity
           : negative ? Predicate::kIsNegativeInfinity
                      : Predicate::kIsNeither;
  }
  const auto found = std::ranges::find(kNames, layer.op->name, [](const auto& row) { return row.first; });
  return found == std::end(kNames) ? std::nullopt : std::optional(found->second);
}

OpTable logic() {
  return {
      // And, ai.onnx 1, 7: logical and with NumPy broadcasting.
      binary<Boolean>({.name = "And"}, [](bool a, bool b) { return a && b; }),
      // Or, ai.onnx 1, 7: logical or with NumPy broadcasting.
      binary<Boolean>({.name = "Or"}, [](bool a, bool b) { return a || b; }),
      // Xor, ai.onnx 1, 7: logical exclusive or with NumPy broadcasting.
      binary<Boolean>({.name = "Xor"}, [](bool a, bool b) { return a != b; }),
      // Not, ai.onnx 1: logical negation.
      fixed_op({.name = "Not", .types = {set_of(Boolean{})}, .kind = OpKind::kPointwise}, infer_same_as_first, run_not),

      // Equal, ai.onnx 1, 7, 11, 13, 19: a == b with NumPy broadcasting.
      binary<AllTypes>({.name = "Equal"}, [](auto a, auto b) { return a == b; }),
      // Greater, ai.onnx 1, 7, 9, 13: a > b with NumPy broadcasting.
      binary<NumericTypes>({.name = "Greater"}, [](auto a, auto b) { return a > b; }),
      // GreaterOrEqual, ai.onnx 12, 16: a >= b with NumPy broadcasting.
      binary<NumericTypes>({.name = "GreaterOrEqual", .since_version = 12}, [](auto a, auto b) { return a >= b; }),
      // Less, ai.onnx 1, 7, 9, 13: a < b with NumPy broadcasting.
      binary<NumericTypes>({.name = "Less"}, [](auto a, auto b) { return a < b; }),
      // LessOrEqual, ai.onnx 12, 16: a <= b with NumPy broadcasting.
      binary<NumericTypes>({.name = "LessOrEqual", .since_version = 12}, [](auto a, auto b) { return a <= b; }),
      // IsNaN, ai.onnx 9, 13, 20: true where an element is not a number.
      unary<FloatTypes>({.name = "IsNaN",
                         .since_version = 9,
                         .precision = kFixed,
                         .function = Function::kIsNan,
                         .storage_types = StorageTypes::kTaken,
                         .infer = infer_comparison},
                        [](auto x) { return x != x; }),
      // IsInf, ai.onnx 10, 20: true where an element is an infinity of a sign that is asked for.
      fixed_op({.name = "IsInf",
                .since_version = 10,
                .types = {kFloats},
                .kind = OpKind::kPointwise,
                .storage_types = StorageTypes::kTaken},
               infer_comparison, run_is_inf),

      // BitwiseAnd, ai.onnx 18: the bits that both integers have, with NumPy broadcasting.
      binary<IntegerTypes>({.name = "BitwiseAnd", .since_version = 18, .precision = kFixed},
                           [](auto a, auto b) { return a & b; }),
      // BitwiseOr, ai.onnx 18: the bits that one of the integers has, with NumPy broadcasting.
      binary<IntegerTypes>({.name = "BitwiseOr", .since_version = 18, .precision = kFixed},
                           [](auto a, auto b) { return a | b; }),
      // BitwiseXor, ai.onnx 18: the bits in which two integers differ, with NumPy broadcasting.
      binary<IntegerTypes>({.name = "BitwiseXor", .since_version = 18, .precision = kFixed},
                           [](auto a, auto b) { return a ^ b; }),
      // BitwiseNot, ai.onnx 18: all bits of an integer flipped.
      unary<IntegerTypes>({.name = "BitwiseNot", .since_version = 18, .precision = kFixed}, [](auto x) { return ~x; }),
      // BitShift, ai.onnx 11, 28 (signed types): shifts bits to the left or, keeping the sign, to the right.
      fixed_op(
          {.name = "BitShift", .since_version = 11, .inputs = {2, 2}, .types = {kIntegers}, .kind = OpKind::kPointwise},
          infer_broadcast, run_bit_shift),
  };
}

}  // namespace ulpscope::ops
