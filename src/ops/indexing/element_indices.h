// Tensors of indices that choose element by element along an axis.
#pragma once

#include <vector>

#include "core/vector_clones.h"
#include "ops/movement.h"

namespace ulpscope::ops {

/// Asks for the next row of a table, of which a random order of elements is read.
template <typename Word>
void prefetch_row(const Word* row, std::int64_t count) {
  constexpr std::int64_t kLine = 64 / sizeof(Word);
  for (std::int64_t i = 0; i < count; i += kLine) __builtin_prefetch(row + i);
}

/// The indices of input 1, which replace the coordinate `axis` of where they stand: places in `data`.
class ElementIndices {
 public:
  ElementIndices(const KernelContext& ctx, const Shape& data)
      : ctx_(ctx),
        shape_(ctx.input(1).shape()),
        axis_(axis_of(ctx, 0)),
        strides_(strides_of(data)),
        size_(data[axis_]) {
    const Tensor& indices = ctx.input(1);
    const bool as_they_are = indices.type() == DataType::kInt64;
    if (!as_they_are) converted_ = ctx.input_ints(1);
    values_ = as_they_are ? indices.data<std::int64_t>() : converted_.data();
  }

  /// Fails when an index is out of range.
  void check() const {
    const std::int64_t count = num_elements(shape_);
    if (!are_indices(values_, count, size_))
      for (std::int64_t i = 0; i < count; ++i) normalize_index(ctx_, values_[i], size_);
  }

  std::int64_t rows() const { return length() == 0 ? 0 : num_elements(shape_) / length(); }

  /// Calls function(i, offset into data) for every index i of a row, in order. REQUIRES: check().
  template <typename Function>
  void for_row(std::int64_t row, Function&& function) const {
    const std::int64_t first = row * length(), base = base_of(row), step = step_of(), stride = strides_[axis_];
    for (std::int64_t j = 0; j < length(); ++j) {
      const std::int64_t index = values_[first + j];
      function(first + j, base + j * step + (index < 0 ? index + size_ : index) * stride);
    }
  }

  /// A row of what they choose; false where an index is out of range.
  template <typename Word>
  bool gather(std::int64_t row, const Word* in, Word* out) const {
    const std::int64_t first = row * length();
    return gather_words(in + base_of(row), values_ + first, size_, step_of(), strides_[axis_], length(), out + first);
  }

 private:
  /// All of them are in [-size, size).
  static ULPSCOPE_VECTOR_CLONES bool are_indices(const std::int64_t* values, std::int64_t count, std::int64_t size) {
    bool are = true;
    for (std::int64_t i = 0; i < count; ++i) are &= (values[i] >= -size) & (values[i] < size);
    return are;
  }

  /// out[j] = in[j * step + index j * stride]; negative indices count from `size`, and false says that others are out
  /// of range. One by one: processors gather no faster.
  template <typename Word>
  static bool gather_words(const Word* __restrict in, const std::int64_t* __restrict indices, std::int64_t size,
                           std::int64_t step, std::int64_t stride, std::int64_t count, Word* __restrict out) {
    if (size == 0) return count == 0;
    bool fit = true;
    const auto place = [&](std::int64_t index) {
      index += size & (index >> 63);
      const bool inside = static_cast<std::uint64_t>(index) < static_cast<std::uint64_t>(size);
      fit &= inside;
      return inside ? index : 0;
    };
    if (step == 0 && stride == 1) {
      if (count > size / 8) prefetch_row(in + size, size);
      for (std::int64_t j = 0; j < count; ++j) out[j] = in[place(indices[j])];
    } else {
      for (std::int64_t j = 0; j < count; ++j) out[j] = in[j * step + place(indices[j]) * stride];
    }
    return fit;
  }

  std::int64_t length() const { return shape_.back(); }
  std::int64_t step_of() const { return axis_ + 1 == shape_.size() ? 0 : strides_.back(); }

  /// Where the row's first element would be, were its index 0.
  std::int64_t base_of(std::int64_t row) const {
    std::int64_t base = 0;
    for (std::size_t d = shape_.size() - 1; d-- > 0; row /= shape_[d])
      if (d != axis_) base += row % shape_[d] * strides_[d];
    return base;
  }

  const KernelContext& ctx_;
  const Shape& shape_;
  const std::size_t axis_;
  const std::vector<std::int64_t> strides_;
  const std::int64_t size_;
  std::vector<std::int64_t> converted_;
  const std::int64_t* values_ = nullptr;
};

}  // namespace ulpscope::ops
