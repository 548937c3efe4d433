#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "backend/cpu/byte_store.h"
#include "backend/cpu/integer_product.h"
#include "backend/cpu/plane_window.h"
#include "backend/cpu/product.h"
#include "backend/cpu/product_pieces.h"
#include "backend/cpu/program_kernels.h"
#include "backend/cpu/thread_memory.h"
#include "core/division.h"
#include "core/vector_clones.h"

namespace ulpscope::cpu {
namespace {

using Index = std::int64_t;

/// The weights [out, in, window...] as [out, window..., in].
template <typename T>
Tensor channels_behind(const Tensor& weights, Index in) {
  const Index out = weights.shape()[0], window = weights.size() / std::max<Index>(1, out * in);
  Tensor result(weights.type(), {out, window * in});
  const T* from = weights.data<T>();
  T* to = result.data<T>();
  for (Index o = 0; o < out; ++o)
    for (Index w = 0; w < window; ++w)
      for (Index c = 0; c < in; ++c) *to++ = from[(o * in + c) * window + w];
  return result;
}

ULPSCOPE_VECTOR_CLONES void flip_bytes(std::uint8_t* bytes, Index count, std::uint8_t bits) {
  for (Index i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(bytes[i] ^ bits);
}

/// Few bytes without a call.
template <typename T>
T* copy_some(const T* from, Index count, T* to) {
  const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
  const auto copy_ends = [&](auto part) {
    constexpr std::size_t kBytes = sizeof part;
    std::memcpy(&part, from, kBytes);
    auto last = part;
    std::memcpy(&last, reinterpret_cast<const std::byte*>(from) + bytes - kBytes, kBytes);
    std::memcpy(to, &part, kBytes);
    std::memcpy(reinterpret_cast<std::byte*>(to) + bytes - kBytes, &last, kBytes);
  };
  if (bytes >= 8 && bytes <= 16)
    copy_ends(std::uint64_t{});
  else if (bytes > 16 && bytes <= 32)
    copy_ends(std::array<std::uint64_t, 2>{});
  else
    std::copy_n(from, count, to);
  return to + count;
}
template <typename T>
  requires(!std::is_same_v<T, std::int16_t>)
std::int16_t* copy_some(const T* from, Index count, std::int16_t* to) {
  return std::copy_n(from, count, to);
}

class IntegerConvolution final : public Kernel, PlaneWindow {
 public:
  IntegerConvolution(const ConvolutionSpec& spec, const MatrixShape& product, bool by_bytes, const ObjectCache& cache,
                     std::optional<Requantization> bytes)
      : PlaneWindow(spec),
        type_(spec.type),
        by_bytes_(by_bytes),
        as_integers_(spec.type == DataType::kInt16 && !bytes),
        product_(product),
        groups_(spec.groups),
        in_(spec.input[1] / spec.groups),
        pieces_(product, product.k, program_kernels().product.panel),
        flip_(by_bytes && spec.type == DataType::kInt8 ? 0x80 : 0),
        stride_(by_bytes ? round_up(product.k, 4) / 2 : round_up(product.k, 2)),
        in_place_((by_bytes_ || type_ == DataType::kInt16) && flip_ == 0 && groups_ == 1 && window_ == Pair{1, 1} &&
                  strides_ == Pair{1, 1} && input_ == output_ && in_ % (by_bytes_ ? 4 : 2) == 0) {
    if (bytes && bytes->type != DataType::kFloat32)
      store_.emplace(*bytes, groups_, product.n, program_kernels().product.panel);
    const bool wide = type_ == DataType::kInt16;
    weights_ = cache(fmt::format("{}|packed {}, channels behind, {} groups", spec.key,
                                 by_bytes ? "bytes"
                                 : wide   ? "words"
                                          : "integers",
                                 groups_),
                     [product, in = in_, groups = groups_, by_bytes, wide, values = spec.weights] {
                       const Tensor given = values();
                       const Tensor behind =
                           wide ? channels_behind<std::int16_t>(given, in) : channels_behind<std::int8_t>(given, in);
                       return by_bytes ? pack_bytes(behind.cast(DataType::kInt16), product, groups)
                                       : pack_integers(behind, product, groups);
                     });
  }

  std::string name() const override {
    return fmt::format("product of patches of {}, {}", by_bytes_ ? "bytes" : "integers", program_kernels().name);
  }

  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const std::shared_ptr<const void> held = weights_();
    auto* const out = static_cast<std::byte*>(outputs[0]->raw());
    const Tensor* const zero_point = by_bytes_ && inputs.size() > 1 ? inputs[1] : nullptr;
    const auto zero = zero_point == nullptr ? std::uint8_t{0} : static_cast<const std::uint8_t*>(zero_point->raw())[0];
    pieces_.for_each([&](const ProductPieces::Piece& piece) {
      IntegerPart part{};
      part.a_stride = stride_;
      part.out_stride = groups_ * product_.n;
      part.columns = piece.columns.end - piece.columns.begin;
      part.k = by_bytes_ ? stride_ : product_.k;
      part.as_integers = as_integers_;
      part.bytes = by_bytes_;
      ByteMatrix matrix{};
      if (by_bytes_)
        matrix = byte_matrix(held.get(), product_, piece.matrix, zero ^ flip_);
      else
        matrix.b = static_cast<const std::int16_t*>(held.get()) + piece.matrix * packed_integers(product_);
      const Index padded = round_up(product_.n, program_kernels().product.panel);
      ByteForm form{};
      if (store_) {
        matrix.start.resize(static_cast<std::size_t>(padded));
        store_->add_bias(piece.matrix * padded, matrix.start);
        form = store_->from(piece.matrix * padded + piece.columns.begin);
        part.form = &form;
      }
      if (!matrix.start.empty()) part.start = matrix.start.data() + piece.columns.begin;
      part.b = matrix.b + piece.columns.begin * stride_;
      multiply_rows(*inputs[0], piece, zero, part, out);
    });
  }

 private:
  void multiply_rows(const Tensor& images, const ProductPieces::Piece& piece, std::uint8_t zero, IntegerPart part,
                     std::byte* out) const {
    // As many rows as the second-level cache holds beside columns of b.
    constexpr Index kElements = 1 << 16, kRows = 48;
    Index most =
        in_place_ ? piece.rows.end - piece.rows.begin : std::clamp<Index>(kElements / stride_ / 6 * 6, 6, kRows);
    if (store_) most = std::min(most, kRows);
    thread_local ThreadMemory patches, sums;
    auto* const a = in_place_ ? nullptr
                              : reinterpret_cast<std::int16_t*>(
                                    patches.get(static_cast<std::size_t>(most * stride_) * sizeof(std::int16_t)));
    if (store_) {
      part.out = sums.floats(static_cast<std::size_t>(most * part.columns));
      part.out_stride = part.columns;
      part.stored_stride = groups_ * product_.n;
    }
    for (Index row = piece.rows.begin; row < piece.rows.end; row += most) {
      part.rows = std::min(most, piece.rows.end - row);
      if (!in_place_) copy_patches(images, piece.matrix * in_, row, part.rows, zero, a);
      part.a = in_place_ ? static_cast<const std::int16_t*>(images.raw()) + row * stride_ : a;
      const Index to = (row * groups_ + piece.matrix) * product_.n + piece.columns.begin;
      if (store_)
        part.stored = reinterpret_cast<std::uint8_t*>(out) + to;
      else
        part.out = reinterpret_cast<float*>(out) + to;
      program_kernels().product.multiply_integers(part);
    }
  }

  /// What `count` outputs of all images read, from `first` and a channel on; what is outside of the image is 0, or the
  /// zero point.
  void copy_patches(const Tensor& images, Index channel, Index first, Index count, std::uint8_t zero,
                    std::int16_t* to) const {
    if (by_bytes_) {
      auto* const bytes = reinterpret_cast<std::uint8_t*>(to);
      copy_patches(static_cast<const std::uint8_t*>(images.raw()) + channel, first, count, zero, bytes);
      if (flip_ != 0) flip_bytes(bytes, 2 * count * stride_, flip_);
    } else if (type_ == DataType::kInt16)
      copy_patches(images.data<std::int16_t>() + channel, first, count, std::int16_t{0}, to);
    else if (type_ == DataType::kUInt8)
      copy_patches(images.data<std::uint8_t>() + channel, first, count, std::int16_t{0}, to);
    else
      copy_patches(images.data<std::int8_t>() + channel, first, count, std::int16_t{0}, to);
  }

  template <typename T, typename To>
  void copy_patches(const T* images, Index first, Index count, To zero, To* to) const {
    const Index stride = stride_ * (sizeof(To) == 1 ? 2 : 1);
    Index column = first % output_[1], row = first / output_[1];
    for (; count > 0; --count, to += stride) {
      copy_patch(images, row, column, zero, to, stride);
      if (++column < output_[1]) continue;
      column = 0;
      ++row;
    }
  }

  /// Of the output in this column and this row of all images' outputs.
  template <typename T, typename To>
  void copy_patch(const T* images, Index row, Index column, To zero, To* to, Index size) const {
    const Index x = column * strides_[1] - pads_[1], y = row % output_[0] * strides_[0] - pads_[0];
    const Index width = input_[1] * groups_ * in_, length = window_[1] * in_;
    const T* const image = images + row / output_[0] * input_[0] * width;
    const bool is_whole = dilations_[1] == 1 && groups_ == 1 && x >= 0 && x + window_[1] <= input_[1];
    To* const end = to + size;
    for (Index i = 0; i < window_[0]; ++i) {
      const Index at = y + i * dilations_[0];
      if (at < 0 || at >= input_[0])
        to = std::fill_n(to, length, zero);
      else if (is_whole)
        to = copy_some(image + at * width + x * in_, length, to);
      else
        to = copy_row(image + at * width, x, zero, to);
    }
    while (to != end) *to++ = To{0};
  }

  /// A row of the window, from column x of a row of the image on.
  template <typename T, typename To>
  To* copy_row(const T* row, Index x, To zero, To* to) const {
    if (dilations_[1] == 1 && groups_ == 1) {
      const Index begin = std::clamp<Index>(-x, 0, window_[1]), end = std::clamp(input_[1] - x, begin, window_[1]);
      to = std::fill_n(to, begin * in_, zero);
      to = copy_some(row + (x + begin) * in_, (end - begin) * in_, to);
      return std::fill_n(to, (window_[1] - end) * in_, zero);
    }
    for (Index j = 0; j < window_[1]; ++j) {
      const Index at = x + j * dilations_[1];
      if (at < 0 || at >= input_[1])
        to = std::fill_n(to, in_, zero);
      else
        to = copy_some(row + at * groups_ * in_, in_, to);
    }
    return to;
  }

  const DataType type_;
  const bool by_bytes_, as_integers_;
  std::optional<ByteStore> store_;
  const MatrixShape product_;  ///< Of [positions, places and channels] and [output channels, ...], transposed.
  const Index groups_, in_;    ///< `in_`: channels of a group.
  const ProductPieces pieces_;
  const std::uint8_t flip_;  ///< Of each byte, to be unsigned.
  const Index stride_;   ///< Of rows of patches, in 16 bits.
  const bool in_place_;  ///< Each position is a row as it lies.
  PreparedSource weights_;
};

}  // namespace

namespace {

/// What each group multiplies.
MatrixShape product_of(const ConvolutionSpec& spec) {
  MatrixShape product;
  product.n = spec.kernel[0] / spec.groups;
  product.k = num_elements(spec.kernel) / spec.kernel[0];
  product.m = num_elements(spec.output) / spec.kernel[0];
  product.transpose_b = true;
  if (spec.groups != 1) product.batch_a = product.batch_b = {spec.groups};
  return product;
}

}  // namespace

std::unique_ptr<Kernel> make_integer_convolution_kernel(const ConvolutionSpec& spec, const ObjectCache& cache,
                                                        std::optional<Requantization> bytes) {
  const MatrixShape product = product_of(spec);
  const bool centered = spec.type == DataType::kInt16;
  if (spec.transposed || (spec.groups != 1 && !centered) ||
      !(centered ? multiplies_centered_integers(product.k) : multiplies_integers(product.k)))
    return nullptr;
  return std::make_unique<IntegerConvolution>(spec, product, false, cache, std::move(bytes));
}

std::unique_ptr<Kernel> make_byte_convolution_kernel(const ConvolutionSpec& spec, const ObjectCache& cache,
                                                     std::optional<Requantization> bytes) {
  const MatrixShape product = product_of(spec);
  if (!multiplies_bytes_with_zeros(product.k)) return nullptr;
  return std::make_unique<IntegerConvolution>(spec, product, true, cache, std::move(bytes));
}

}  // namespace ulpscope::cpu
