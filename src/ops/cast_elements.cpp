#include "ops/cast_elements.h"

#include <algorithm>
#include <array>

#include "core/convert.h"
#include "core/parallel.h"
#include "core/rounding.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

constexpr std::int64_t kElementsPerTask = 1 << 15;

/// Through the bits of the narrow type, in pieces that stay in the nearest cache.
void cast_narrow(DataType from, const std::byte* in, DataType narrow, float* out, std::size_t count) {
  std::array<std::uint16_t, 1024> bits;
  for (std::size_t at = 0; at < count; at += bits.size()) {
    const std::size_t piece = std::min(bits.size(), count - at);
    convert_elements(from, in + at * size_of(from), narrow, bits.data(), piece);
    convert_elements(narrow, bits.data(), DataType::kFloat32, out + at, piece);
  }
}

}  // namespace

void cast_elements(const KernelContext& ctx, const Tensor& in, DataType declared, Tensor& out) {
  const DataType from = in.type();
  const Rounding rounding = rounding_of(declared);
  if (physical_type(declared) != declared && rounding == Rounding::kNone)
    ctx.fail(fmt::format("elements of type {} are not supported", name_of(declared)));
  if (from == declared) return copy_bytes(in.raw(), out.raw(), in.bytes());
  parallel_for(in.size(), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
    const std::size_t count = static_cast<std::size_t>(end - begin);
    const std::byte* source = element(in, begin);
    if (rounding == Rounding::kNone)
      convert_elements(from, source, declared, element(out, begin), count);
    else if (from == DataType::kFloat32)
      round_array(in.data<float>() + begin, out.data<float>() + begin, count, rounding);
    else
      cast_narrow(from, source, declared, out.data<float>() + begin, count);
  });
}

void run_cast(KernelContext& ctx) { cast_elements(ctx, ctx.input(0), ctx.output_type(0), ctx.output(0)); }

}  // namespace ulpscope::ops
