// The loops of programs, products and depthwise convolutions, compiled once per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/program.h"
#include "backend/cpu/recurrent_kernels.h"

namespace ulpscope::cpu {

/// A part of a product out = a b + bias: some rows and columns of it, and all of k. Strides are in elements.
///
/// out[r, c] is the sum, over k, of one chain of (fused, where the set has it) multiplications and additions for each
/// kSpan of k, from 0 and in the order of k; the chains' sums are added in order, then the bias. Whatever else a part
/// is - its rows, its columns, where it begins - changes no bit.
struct ProductPart {
  const float* a;
  std::int64_t a_stride;  ///< From row to row.
  const float* b;         ///< The first column's panel.
  /// 0: b is packed: panels of ProductKernels::panel columns, k rows each; the last panel has as many columns as there
  /// are, rounded up to whole vectors. Else from row to row of b, which is read where it lies.
  std::int64_t b_stride;
  const float* bias;  ///< Of the first column; may be null.
  float* out;
  std::int64_t out_stride;
  std::int64_t rows, columns, k;
};

/// How sums become bytes: float(sum) * scale, plus the bias where there is one, within [low, high], is divided by
/// `step` and rounded, ties to even; then `zero` is added. REQUIRES: none of it is NaN, and the bytes hold what comes
/// out.
struct ByteForm {
  enum class Quotient : std::uint8_t {
    kNone,      ///< `step` is 1, and there is no bias.
    kInverse,   ///< x * (r + s), as BlockKernels::find_inverse() found it;
    kDivision,  ///< within [least, most] again.
  };
  Quotient quotient;
  const float* scales;  ///< By column.
  const float* bias;    ///< By column.
  float low, high;
  float step, r, s, least, most;
  std::int32_t zero;
};

/// A part of a product of integers of 8 bits and a sign, which are held in 16: some rows and columns of it, and all of
/// k. The sums are exact, and rounded to float32 once. REQUIRES: they are less than 2^31.
struct IntegerPart {
  /// `bytes`: the memory of uint8 whose products with int8 are added, four at a time in the place of two numbers of 16
  /// bits, in `b`, too; a_stride and k count pairs of bytes, k an even number of them.
  const std::int16_t* a;
  std::int64_t a_stride;  ///< From row to row, in elements; even. What is beyond k is 0.
  /// Panels of ProductKernels::panel columns. One has the numbers of all of its columns for k = 0 and 1, side by side,
  /// then for 2 and 3, and so on; what there is not is 0.
  const std::int16_t* b;
  float* out;
  std::int64_t out_stride;
  std::int64_t rows, columns, k;
  bool as_integers;  ///< `out` is memory of int32, for the sums themselves.
  bool bytes;
  const std::int32_t* start;  ///< What the sums begin from, by column, for whole panels; may be null.
  /// If not null, `stored` gets what the sums become, and `out` is scratch. Its columns are for whole panels, too.
  const ByteForm* form;
  std::uint8_t* stored;
  std::int64_t stored_stride;
};

struct ProductKernels {
  static constexpr std::int64_t kSpan = 256;

  std::int64_t lanes;  ///< Of a vector.
  std::int64_t panel;  ///< Columns; a multiple of lanes.
  /// With b in place, `columns` is a multiple of lanes.
  void (*multiply)(const ProductPart& part);
  /// out[c, r] = in[r, c]; out has `rows` columns. Strides from row to row.
  void (*transpose)(const float* in, std::int64_t in_stride, std::int64_t rows, std::int64_t columns, float* out,
                    std::int64_t out_stride);
  /// Null: floats that hold the integers are faster.
  void (*multiply_integers)(const IntegerPart& part);
  /// Whether this processor multiplies IntegerPart::bytes.
  bool (*has_byte_products)();
};

/// Outputs side by side of a depthwise convolution of bytes. Rows of the window are in fours, and channels in blocks of
/// as many as a vector has bytes, the last one of which has the last channels, some of them for the second time, where
/// there are enough for a block. What belongs to a block is in the order of DepthwiseBytesKernels::channel.
struct DepthwiseBytesRun {
  const std::uint8_t* const* rows;  ///< Of the image, for each row of the window: column 0; 4 * fours.
  const std::int64_t* row_steps;    ///< From column to column; 0: `zeros`.
  const std::uint8_t* zeros;        ///< For all channels: what there is outside of the image.
  std::int64_t fours, columns;      ///< Of the window.
  std::int64_t width, channels;     ///< Of the image.
  std::int64_t first;               ///< The column of the image where the first window begins.
  std::int64_t stride, dilation, count;
  std::uint8_t flip;          ///< Of each byte, to be unsigned.
  const std::int16_t* words;  ///< Weights, without `bytes`; rows that fill up the fours have 0. [block, column, four,
                              ///< part, 2: rows 0 and 2, or 1 and 3; channel, 2 rows]
  const std::int8_t* bytes;   ///< The same, if not null, for dot products of bytes: [block, column, four, part,
                              ///< channel, 4].
  const std::int32_t* start;  ///< What sums begin from.
  const ByteForm* form;       ///< Null: `floats` gets the sums, rounded once.
  std::uint8_t* out;
  float* floats;
  std::uint8_t* scratch;  ///< Of 4 * block * fours bytes for each column from the first window's to the last one's.
};

struct DepthwiseBytesKernels {
  std::int64_t block;  ///< Channels.
  /// The channel of a block that is at this place of what belongs to it: parts of as many lanes as a vector has.
  std::int64_t (*channel)(std::int64_t place);
  void (*run)(const DepthwiseBytesRun& run);
};

/// Of convolutions of groups of `depth` channels, which become as many, in most cases of single ones: outputs side by
/// side in a row, all of whose windows have the same places inside of the image.
struct DepthwiseRun {
  const float* in;       ///< Of the first output: the first place of its window, which is inside.
  const float* weights;  ///< Of that place. [rows of the window, columns, depth, channels]: by input, then by output.
  const float* bias;     ///< One per channel, or null.
  float* out;
  std::int64_t count, channels;
  std::int64_t depth;                    ///< 1, 2, 4, or 8 where a vector has these; divides the channels.
  std::int64_t rows, columns;            ///< Places of the window that are inside.
  std::int64_t row_step, column_step;    ///< From one to the next, in elements of the input;
  std::int64_t weight_row, output_step;  ///< a row of the window's weights; the inputs of neighboring outputs.
};

using DepthwiseFunction = void (*)(const DepthwiseRun& run);

/// An operation on a block: as many numbers as eight vector registers hold. A list of them is run from front to back,
/// and the block stays in registers all the while. Functions are of a type of their own, which only run() knows.
struct BlockOp {
  using Function = void (*)();
  Function function = nullptr;
  float p = 0, q = 0;         ///< Of the instruction, or a number.
  float r = 0, s = 0;         ///< Of quantizations: what find_inverse() found;
  float least = 0, most = 0;  ///< the range of the integers;
  std::int32_t zero = 0;      ///< and what is added to bytes.
  int place = -1;             ///< Which of the places it reads or writes.
};

/// A binary instruction by where its operands are; the other one is the block.
struct BlockBinary {
  BlockOp::Function with_place, place_with, with_number, number_with;
};

struct BlockKernels {
  std::int64_t elements;  ///< Of a block.
  BlockOp::Function (*load)();
  BlockOp::Function (*store)();
  BlockOp::Function (*fill)();  ///< With p.
  BlockOp::Function (*end)();   ///< The last one of each list.
  BlockOp::Function (*unary)(Instruction);
  BlockBinary (*binary)(Instruction);
  /// Integers times their scale p again, and integers stored as bytes or as float32. `inverse`: r and s are an inverse.
  BlockOp::Function (*quantize)(bool inverse);
  BlockOp::Function (*store_bytes)(bool inverse);
  BlockOp::Function (*store_integers)(bool inverse);
  /// True where x * (r + s) gives, for every x, the integer that x / scale gives.
  bool (*find_inverse)(float scale, float least, float most, float& r, float& s);
  /// Runs the list on `count` blocks. The first `moving` places go on by `steps`, in bytes, behind each.
  void (*run)(const BlockOp* ops, std::byte** places, const std::ptrdiff_t* steps, std::size_t moving,
              std::int64_t count);
};

/// `count` elements; `out` may be `a` or `b`. The scalar forms have one operand fixed.
struct ProgramKernels {
  using Unary = void (*)(float* out, const float* a, std::int64_t count, float p, float q);
  using Binary = void (*)(float* out, const float* a, const float* b, std::int64_t count);
  using BinaryScalar = void (*)(float* out, const float* a, float b, std::int64_t count);
  using ScalarBinary = void (*)(float* out, float a, const float* b, std::int64_t count);
  using Reduce = float (*)(const float* a, std::int64_t count);

  Unary (*unary)(Instruction);
  Binary (*binary)(Instruction);
  BinaryScalar (*binary_scalar)(Instruction);
  ScalarBinary (*scalar_binary)(Instruction);
  Reduce (*reduce)(Instruction);
  /// Adds to each of `width` sums its column of `rows` rows, from the first to the last.
  void (*add_rows)(float* sums, const float* in, std::int64_t stride, std::int64_t rows, std::int64_t width);
  DepthwiseFunction depthwise;
  DepthwiseBytesKernels depthwise_bytes;  ///< run: null where there are no ProductKernels::multiply_integers.
  BlockKernels block;
  RecurrentKernels recurrent;
  ProductKernels product;
  const char* name;
};

const ProgramKernels& program_kernels_baseline();
const ProgramKernels& program_kernels_avx2();
const ProgramKernels& program_kernels_avx512();

/// Those of instruction_set().
const ProgramKernels& program_kernels();

/// BlockKernels::find_inverse() of these. Found once: it takes some microseconds.
struct Inverse {
  bool exists = false;
  float r = 0, s = 0;
};
Inverse inverse_of(float scale, float least, float most);

}  // namespace ulpscope::cpu
