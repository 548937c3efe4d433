#include "ops/indexing/scatter_reduction.h"

#include "ops/elementwise.h"
#include "ops/movement.h"
#include "ops/type_rules.h"

namespace ulpscope::ops {
namespace {

template <typename T, typename Function>
void combine(void* target, const void* updates, std::int64_t count) {
  T* out = static_cast<T*>(target);
  const T* in = static_cast<const T*>(updates);
  for (std::int64_t i = 0; i < count; ++i) out[i] = Function{}(out[i], in[i]);
}

}  // namespace

void check_reduction(const InferContext& ctx) {
  require_type_of_first(ctx, {2});
  const std::string name = ctx.attributes().text("reduction", "none");
  if (name == "none") return;
  if (ctx.type(0) == DataType::kBool) ctx.fail(fmt::format("expected numbers for reduction {}, got bool", name));
  for (std::string_view known : {"add", "mul", "max", "min"})
    if (name == known) return;
  ctx.fail(fmt::format("expected reduction none, add, mul, max or min, got '{}'", name));
}

Combine find_combine(const KernelContext& ctx, DataType type) {
  const std::string name = ctx.attributes().text("reduction", "none");
  Combine result = nullptr;
  if (name == "none") {
    const auto replace = [](auto, auto b) { return b; };
    with_word(type, [&](auto word) { result = combine<decltype(word), decltype(replace)>; });
    return result;
  }
  with_type(NumericTypes{}, ctx, type, [&](auto tag) {
    using T = decltype(tag);
    const auto add = [](T a, T b) { return plus(a, b); };
    const auto mul = [](T a, T b) { return times(a, b); };
    const auto max = [](T a, T b) { return b > a || b != b ? b : a; };
    const auto min = [](T a, T b) { return b < a || b != b ? b : a; };
    result = name == "add"   ? combine<T, decltype(add)>
             : name == "mul" ? combine<T, decltype(mul)>
             : name == "max" ? combine<T, decltype(max)>
                             : combine<T, decltype(min)>;
  });
  return result;
}

}  // namespace ulpscope::ops
