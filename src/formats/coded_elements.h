// Elements that stay codes of a few bits until they are needed, and what these stand for.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/tensor_source.h"
#include "formats/encoding.h"

namespace ulpscope {

/// Codes of a format with 8 bits or less, packed or one per byte, which `owner` keeps.
class CodedElements final : public TensorSource {
 public:
  struct Codes {
    DataType format;  ///< One that only holds values.
    const std::byte* bytes;
    bool packed;
    std::shared_ptr<const void> owner;
  };
  /// As the numbers that they are; where `type` is that of the codes, as these, one per byte.
  CodedElements(DataType type, Shape shape, Codes codes);

  Tensor make() const override;
  bool has_parts() const noexcept override { return true; }
  void read(std::int64_t begin, std::int64_t count, void* out) const override;
  void release() const noexcept override;
  const Codes& codes() const noexcept { return codes_; }

 private:
  DataType type_;
  Shape shape_;
  Codes codes_;
};

/// How many elements along k share a scale, in a matrix [n, k] or, unless `transposed`, [k, n]; k: all of a row.
/// Nothing where scales lie otherwise.
std::optional<std::int64_t> block_along(const ScaleLayout& layout, std::int64_t n, std::int64_t k, bool transposed);

/// A matrix [n, k] of elements that a format with a sign holds once `zero_point` is subtracted.
struct CodedMatrix {
  Format format = Format::kFloat32;
  float zero_point = 0;
  std::int64_t n = 0, k = 0;
  std::int64_t block = 0;  ///< Elements along k that share a scale; k: all of a row.
};

/// What a DequantizeLinear makes of codes, in float32: (code - zero point) * scale.
class DequantizedElements final : public TensorSource {
 public:
  /// `codes`: integers of up to 32 bits, or float32 that a narrow type holds; not always in memory. `zero_points`: of
  /// their type, one or one per scale; may be absent.
  DequantizedElements(Tensor codes, ScaleLayout layout, const Tensor& scales, const Tensor& zero_points);
  /// Scales of this shape belong to elements of that; nothing where they do not fit. `axis` counts from the front.
  static std::optional<ScaleLayout> layout(const Shape& elements, const Shape& scales, std::int64_t axis,
                                           std::int64_t block);

  Tensor make() const override;
  bool has_parts() const noexcept override;
  /// What the values are made of; `scales` in the order of the layout, one zero point or one per scale.
  const Tensor& codes() const noexcept { return codes_; }
  const ScaleLayout& layout() const noexcept { return layout_; }
  const Tensor& scales() const noexcept { return scales_; }
  const std::vector<double>& zero_points() const noexcept { return zeros_; }
  /// That of the codes; kFloat32 where their tensor does not say it.
  Format format() const noexcept;
  /// Of codes of rank 2, as [n, k] or, unless `transposed`, as [k, n]. Nothing where zero points differ, where elements
  /// without theirs need another format, or where blocks do not follow each other along k.
  std::optional<CodedMatrix> matrix(bool transposed) const;
  /// float16 holds all scales.
  bool has_half_scales() const noexcept { return has_half_scales_; }
  void read(std::int64_t begin, std::int64_t count, void* out) const override;
  void release() const noexcept override;

 private:
  /// `in`: the codes of the elements from number `begin` on; T holds all of them.
  template <typename T>
  void dequantize(const T* in, std::int64_t begin, std::int64_t count, float* out) const;

  Tensor codes_;
  ScaleLayout layout_;
  Tensor scales_;
  std::vector<double> zeros_;  ///< One, or one per scale.
  bool has_half_scales_;
};

}  // namespace ulpscope
