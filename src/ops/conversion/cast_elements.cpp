#include "ops/conversion/cast_elements.h"

#include <algorithm>
#include <array>

#include "core/parallel.h"
#include "formats/convert.h"
#include "formats/rounding.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

constexpr std::int64_t kCastsPerTask = 1 << 15;

/// Through the bits of the narrow type, in pieces that stay in the nearest cache.
void cast_narrow(DataType from, const std::byte* in, DataType narrow, std::byte* out, std::size_t count,
                 Narrowing conversion) {
  std::array<std::uint16_t, 1024> bits;
  const DataType physical = physical_type(narrow);
  for (std::size_t at = 0; at < count; at += bits.size()) {
    const std::size_t piece = std::min(bits.size(), count - at);
    convert_elements(from, in + at * size_of(from), narrow, bits.data(), piece, conversion);
    convert_elements(narrow, bits.data(), physical, out + at * size_of(physical), piece);
  }
}

}  // namespace

void cast_elements(const Tensor& in, DataType declared, Narrowing conversion, Tensor& out) {
  const DataType from = in.type();
  if (from == declared) return copy_bytes(in.raw(), out.raw(), in.bytes());
  parallel_for(in.size(), kCastsPerTask, [&](std::int64_t begin, std::int64_t end) {
    const std::size_t count = static_cast<std::size_t>(end - begin);
    const std::byte* source = element(in, begin);
    if (physical_type(declared) == declared)
      convert_elements(from, source, declared, element(out, begin), count);
    else if (from != DataType::kFloat32 || !is_floating(declared))
      cast_narrow(from, source, declared, element(out, begin), count, conversion);
    else if (is_storage_only(declared))
      round_array(in.data<float>() + begin, out.data<float>() + begin, count, *format_of(declared), conversion);
    else
      round_array(in.data<float>() + begin, out.data<float>() + begin, count, rounding_of(declared));
  });
}

void run_cast(KernelContext& ctx) {
  cast_elements(ctx.input(0), ctx.output_type(0), conversion_of(ctx), ctx.output(0));
}

}  // namespace ulpscope::ops
