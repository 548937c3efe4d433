// Range, ai.onnx 11, 27 (stash_type): start, start + delta, ... below (above) limit. Floats are start + i * delta, in
// float32 also for narrower types (stash_type 1).
#include <cmath>

#include "core/parallel.h"
#include "ops/common.h"

namespace ulpscope::ops {
namespace {

using RangeTypes = TypeList<float, double, std::int16_t, std::int32_t, std::int64_t>;

template <typename T>
T range_bound(const InferContext& ctx, int i) {
  const Tensor& tensor = ctx.value(i);
  if (tensor.size() != 1 || tensor.type() != type_of<T>())
    ctx.fail(fmt::format("expected one {} as input {}, got {} of {}", name_of(type_of<T>()), i, tensor.size(),
                         name_of(tensor.type())));
  return tensor.data<T>()[0];
}

template <typename T>
std::int64_t count_of(const InferContext& ctx) {
  const T start = range_bound<T>(ctx, 0), limit = range_bound<T>(ctx, 1), delta = range_bound<T>(ctx, 2);
  if (delta == T{0}) ctx.fail("delta is 0");
  if constexpr (std::is_floating_point_v<T>) {
    const double count =
        std::ceil((static_cast<double>(limit) - static_cast<double>(start)) / static_cast<double>(delta));
    if (!(count < 0x1p40))
      ctx.fail(fmt::format("a range from {} to {} in steps of {} is not a tensor", start, limit, delta));
    return count > 0 ? static_cast<std::int64_t>(count) : 0;
  } else {
    if (delta > 0 ? start >= limit : start <= limit) return 0;
    // Unsigned, since the distance may exceed int64.
    const std::uint64_t from = static_cast<std::uint64_t>(std::int64_t{start}),
                        to = static_cast<std::uint64_t>(std::int64_t{limit});
    const std::uint64_t distance = delta > 0 ? to - from : from - to,
                        step = static_cast<std::uint64_t>(std::int64_t{delta});
    const std::uint64_t count = (distance - 1) / (delta > 0 ? step : -step) + 1;
    if (count >= std::uint64_t{1} << 40)
      ctx.fail(fmt::format("a range from {} to {} in steps of {} is not a tensor", start, limit, delta));
    return static_cast<std::int64_t>(count);
  }
}

template <typename... Ts>
std::optional<std::int64_t> count_of_type(TypeList<Ts...>, const InferContext& ctx, DataType type) {
  std::optional<std::int64_t> result;
  ((type_of<Ts>() == type ? static_cast<void>(result = count_of<Ts>(ctx)) : void()), ...);
  return result;
}

void infer_range(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  const auto count = count_of_type(RangeTypes{}, ctx, ctx.value(0).type());
  if (!count) ctx.fail(fmt::format("cannot count in {}", name_of(ctx.type(0))));
  ctx.set_shape(0, {*count});
}

void run_range(KernelContext& ctx) {
  with_type(RangeTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    const T start = ctx.input(0).data<T>()[0], delta = ctx.input(2).data<T>()[0];
    Tensor& output = ctx.output(0);
    T* out = output.data<T>();
    parallel_for(output.size(), 1 << 15, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        if constexpr (std::is_floating_point_v<T>)
          out[i] = start + static_cast<T>(i) * delta;
        else
          out[i] = static_cast<T>(static_cast<std::uint64_t>(start) +
                                  static_cast<std::uint64_t>(i) * static_cast<std::uint64_t>(delta));
      }
    });
  });
}

}  // namespace

OpDef range() {
  return {.name = "Range",
          .since_version = 11,
          .inputs = {3, 3},
          .types = {set_of(RangeTypes{})},
          .precision = PrecisionRule::kFixed,
          .infer = infer_range,
          .run = run_range};
}

}  // namespace ulpscope::ops
