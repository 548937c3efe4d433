// Other types of the same values, or of the same bits.
#include <algorithm>
#include <array>

#include "core/parallel.h"
#include "formats/convert.h"
#include "formats/rounding.h"
#include "ops/adjoint_values.h"
#include "ops/conversion/narrowing.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

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

/// The input converted to the declared type, rounded once; the output has the physical type of it.
void run_cast(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  Tensor& out = ctx.output(0);
  const DataType from = in.type(), declared = ctx.output_type(0);
  const Narrowing conversion = conversion_of(ctx);
  if (from == declared) return copy_bytes(in.raw(), out.raw(), in.bytes());
  parallel_for(in.size(), 1 << 15, [&](std::int64_t begin, std::int64_t end) {
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

/// Bits of an element in ONNX; 0 for a type not known yet.
int bits_of(DataType type) {
  const NumericFormat* format = format_of(type);
  return is_storage_only(type) && format != nullptr ? format->bits() : 8 * static_cast<int>(size_of(type));
}

void infer_bit_cast(InferContext& ctx) {
  const DataType from = ctx.type(0), to = data_type_from_onnx(ctx.layer(), ctx.attributes().required_integer("to"));
  ctx.set_type(0, to);
  if (from != DataType::kUndefined && bits_of(from) != bits_of(to))
    ctx.fail("{} and {} differ in size", name_of(from), name_of(to));
  if (physical_type(from) != from && from != to)  // their values are held in float32, the bits are gone
    fail(ctx.layer(), fmt::format("the bits of {} are not supported", name_of(from)), ErrorCode::kUnsupported);
  ctx.set_shape(0, ctx.shape(0));
}

void run_bit_cast(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  Tensor& out = ctx.output(0);
  const DataType declared = ctx.output_type(0);
  if (in.bytes() == out.bytes()) return copy_bytes(in.raw(), out.raw(), in.bytes());
  convert_elements(declared, in.raw(), out.type(), out.raw(),
                   static_cast<std::size_t>(in.size()));  // 16 bits to float32
}

template <bool like>
void infer_cast(InferContext& ctx) {
  ctx.set_type(0, like ? ctx.type(1) : data_type_from_onnx(ctx.layer(), ctx.attributes().required_integer("to")));
  conversion_of(ctx);
  ctx.set_shape(0, ctx.shape(0));
}

}  // namespace

OpTable conversion() {
  return {
      // BitCast, ai.onnx 26: the same bits as another type of the same size.
      fixed_op({.name = "BitCast", .since_version = 26, .storage_types = StorageTypes::kTaken}, infer_bit_cast,
               run_bit_cast),
      // Cast, ai.onnx 1, 6, 9, 13, 19, 21, 23, 24, 25, 28: converts elements as C++ and NumPy do; narrow floats round
      // to nearest even, once; float8 saturates unless `saturate` is 0. The type is the file's choice, so no precision
      // applies.
      fixed_op({.name = "Cast", .function = Function::kCast, .storage_types = StorageTypes::kTaken, .casts = true},
               infer_cast<false>, run_cast, view_adjoint),
      // CastLike, ai.onnx 15, 19, 21, 23, 24, 25: Cast to the type of the second input.
      fixed_op({.name = "CastLike",
                .since_version = 15,
                .inputs = {2, 2},
                .function = Function::kCastLike,
                .storage_types = StorageTypes::kTaken,
                .casts = true},
               infer_cast<true>, run_cast, view_adjoint),
  };
}

}  // namespace ulpscope::ops
