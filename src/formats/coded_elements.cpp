#include "formats/coded_elements.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/file.h"
#include "core/parallel.h"
#include "formats/codes.h"
#include "formats/convert.h"
#include "formats/rounding.h"
#include "formats/stored_elements.h"

namespace ulpscope {
namespace {

constexpr std::int64_t kCodesAtATime =
    4096;  ///< Elements on their way; a multiple of 8, whose packed codes fill bytes.

/// All elements of a source, on all threads.
Tensor made_of(const TensorSource& source, DataType type, const Shape& shape) {
  Tensor result(type, shape);
  auto* const out = static_cast<std::byte*>(result.raw());
  parallel_for(result.size(), std::int64_t{1} << 16, [&](std::int64_t begin, std::int64_t end) {
    source.read(begin, end - begin, out + static_cast<std::size_t>(begin) * size_of(type));
  });
  source.release();
  return result;
}

/// Shared where they are float32 in memory: of small blocks, scales take a quarter of what codes do.
Tensor as_floats(const Tensor& scales) {
  return scales.type() == DataType::kFloat32 ? scales.in_memory() : scales.cast(DataType::kFloat32);
}

}  // namespace

CodedElements::CodedElements(DataType type, Shape shape, Codes codes)
    : type_(type), shape_(std::move(shape)), codes_(std::move(codes)) {}

Tensor CodedElements::make() const { return made_of(*this, type_, shape_); }

void CodedElements::read(std::int64_t begin, std::int64_t count, void* out) const {
  auto* const target = static_cast<std::byte*>(out);
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(codes_.bytes);
  if (!codes_.packed)
    return convert_elements(codes_.format, bytes + begin, type_, out, static_cast<std::size_t>(count));
  const NumericFormat& format = *format_of(codes_.format);
  std::array<std::uint8_t, kCodesAtATime> piece;
  const std::int64_t end = begin + count;
  for (std::int64_t at = begin / 8 * 8; at < end; at += kCodesAtATime) {
    const std::int64_t last = std::min(at + kCodesAtATime, end), first = std::max(at, begin);
    unpack(format, bytes + packed_bytes(format, static_cast<std::size_t>(at)), static_cast<std::size_t>(last - at),
           piece.data());
    convert_elements(codes_.format, piece.data() + (first - at), type_,
                     target + static_cast<std::size_t>(first - begin) * size_of(type_),
                     static_cast<std::size_t>(last - first));
  }
}

void CodedElements::release() const noexcept {
  const auto count = static_cast<std::size_t>(num_elements(shape_));
  MappedFile::release(codes_.bytes, codes_.packed ? packed_bytes(*format_of(codes_.format), count) : count);
}

std::optional<std::int64_t> block_along(const ScaleLayout& layout, std::int64_t n, std::int64_t k, bool transposed) {
  if (layout.shared) return k;
  if (layout.rows != 0) return std::nullopt;
  if (layout.blocked)
    return layout.axis == k && layout.inner == (transposed ? 1 : n) ? std::optional(layout.block) : std::nullopt;
  return layout.axis == n && layout.inner == (transposed ? k : 1) ? std::optional(k) : std::nullopt;
}

DequantizedElements::DequantizedElements(Tensor codes, ScaleLayout layout, const Tensor& scales,
                                         const Tensor& zero_points)
    : codes_(std::move(codes)), layout_(std::move(layout)), scales_(as_floats(scales)), zeros_{0.0} {
  has_half_scales_ =
      std::ranges::all_of(scales_.values<float>(), [](float x) { return round_value(x, Rounding::kF16) == x; });
  if (!zero_points) return;
  const Tensor zeros = zero_points.cast(DataType::kFloat64);
  zeros_.assign(zeros.data<double>(), zeros.data<double>() + zeros.size());
}

std::optional<ScaleLayout> DequantizedElements::layout(const Shape& elements, const Shape& scales, std::int64_t axis,
                                                       std::int64_t block) {
  if (num_elements(scales) == 1 && scales.size() <= 1) return ScaleLayout();
  Encoding encoding{.granularity = Granularity::kChannel, .axis = static_cast<int>(axis)};
  if (block > 0) {
    encoding.granularity = Granularity::kBlock;
    encoding.block = block;
  }
  ScaleLayout layout(encoding, elements.empty() ? Shape{1} : elements);
  return scales == layout.scales ? std::optional(layout) : std::nullopt;
}

Tensor DequantizedElements::make() const {
  if (has_parts()) return made_of(*this, DataType::kFloat32, codes_.shape());
  DequantizedElements there = *this;
  there.codes_ = codes_.in_memory();
  return there.make();
}

Format DequantizedElements::format() const noexcept {
  const auto coded = std::dynamic_pointer_cast<const CodedElements>(codes_.source());
  const NumericFormat* const known = format_of(coded == nullptr ? codes_.type() : coded->codes().format);
  return known == nullptr ? Format::kFloat32 : known->id;
}

std::optional<CodedMatrix> DequantizedElements::matrix(bool transposed) const {
  const Shape& shape = codes_.shape();
  if (shape.size() != 2 || std::ranges::any_of(zeros_, [&](double zero) { return zero != zeros_[0]; })) return {};
  CodedMatrix result{.format = format(), .zero_point = static_cast<float>(zeros_[0])};
  if (result.format == Format::kUInt4 && zeros_[0] == 8)
    result.format = Format::kInt4;
  else if (result.format == Format::kUInt8 && zeros_[0] == 128)
    result.format = Format::kInt8;
  else if (zeros_[0] != 0)
    return {};
  result.n = shape[transposed ? 0 : 1], result.k = shape[transposed ? 1 : 0];
  const auto block = block_along(layout_, result.n, result.k, transposed);
  if (!block) return {};
  result.block = *block;
  return result;
}

bool DequantizedElements::has_parts() const noexcept { return ulpscope::has_parts(codes_); }

void DequantizedElements::read(std::int64_t begin, std::int64_t count, void* out) const {
  auto* const target = static_cast<float*>(out);
  alignas(64) std::array<double, kCodesAtATime> piece, wide;
  for (std::int64_t done = 0; done < count; done += kCodesAtATime) {
    const std::int64_t some = std::min(kCodesAtATime, count - done);
    read_elements(codes_, begin + done, some, piece.data());
    // float32 holds the difference of two integers of 16 bits.
    const bool exact = codes_.type() != DataType::kInt32;
    convert_elements(codes_.type(), piece.data(), exact ? DataType::kFloat32 : DataType::kFloat64, wide.data(),
                     static_cast<std::size_t>(some));
    if (exact)
      dequantize(reinterpret_cast<const float*>(wide.data()), begin + done, some, target + done);
    else
      dequantize(wide.data(), begin + done, some, target + done);
  }
}

template <typename T>
void DequantizedElements::dequantize(const T* in, std::int64_t begin, std::int64_t count, float* out) const {
  const std::int64_t end = begin + count, inner = layout_.inner;
  for (std::int64_t at = begin; at < end;) {
    // A run of one scale, or of scales that follow each other.
    std::int64_t run = end - at;
    bool same = true;
    if (!layout_.shared && inner > 1) {
      run = std::min(run, inner - at % inner);
      same = !layout_.blocked;
    } else if (!layout_.shared) {
      const std::int64_t position = at % layout_.axis;
      run = std::min(run, layout_.axis - position);
      same = layout_.blocked;
      if (same) run = std::min(run, layout_.block - position % layout_.block);
    }
    const std::int64_t first = layout_.index(at);
    const float* const scale = scales_.data<float>() + first;
    const double* const zero = zeros_.data() + (zeros_.size() == 1 ? 0 : first);
    const T* const from = in + (at - begin);
    float* const to = out + (at - begin);
    const T shift = static_cast<T>(zero[0]);
    if (same)
      for (std::int64_t i = 0; i < run; ++i) to[i] = static_cast<float>(from[i] - shift) * scale[0];
    else if (zeros_.size() == 1)
      for (std::int64_t i = 0; i < run; ++i) to[i] = static_cast<float>(from[i] - shift) * scale[i];
    else
      for (std::int64_t i = 0; i < run; ++i) to[i] = static_cast<float>(from[i] - static_cast<T>(zero[i])) * scale[i];
    at += run;
  }
}

void DequantizedElements::release() const noexcept { release_elements(codes_); }

}  // namespace ulpscope
