// BitCast, ai.onnx 26: the same bits as another type of the same size.
#include "formats/convert.h"
#include "ops/movement.h"
#include "ops/onnx_types.h"

namespace ulpscope::ops {
namespace {

/// Bits of an element in ONNX; 0 for a type not known yet.
int bits_of(DataType type) {
  const NumericFormat* format = format_of(type);
  return is_storage_only(type) && format != nullptr ? format->bits() : 8 * static_cast<int>(size_of(type));
}

void infer_bit_cast(InferContext& ctx) {
  const DataType from = ctx.type(0), to = data_type_from_onnx(ctx.layer(), ctx.attributes().required_integer("to"));
  ctx.set_type(0, to);
  if (from != DataType::kUndefined && bits_of(from) != bits_of(to))
    ctx.fail(fmt::format("{} and {} differ in size", name_of(from), name_of(to)));
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

}  // namespace

OpDef bit_cast() {
  return {.name = "BitCast",
          .since_version = 26,
          .precision = PrecisionRule::kFixed,
          .storage_types = StorageTypes::kTaken,
          .infer = infer_bit_cast,
          .run = run_bit_cast};
}

}  // namespace ulpscope::ops
