#include "backend/cpu/integer_convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "backend/cpu/integer_product.h"
#include "backend/cpu/product_pieces.h"
#include "backend/cpu/program_kernels.h"
#include "backend/cpu/thread_memory.h"
#include "core/division.h"

namespace ulpscope::cpu {
namespace {

using Index = std::int64_t;

/// Of rows and columns; a lone dimension is that of columns.
std::array<Index, 2> rows_and_columns(std::span<const Index> values, Index absent) {
  return values.size() == 1 ? std::array{absent, values[0]} : std::array{values[0], values[1]};
}

/// The weights [out, in, window...] as [out, window..., in].
Tensor channels_behind(const Tensor& weights, Index in) {
  const Index out = weights.shape()[0], window = weights.size() / std::max<Index>(1, out * in);
  Tensor result(DataType::kInt8, {out, window * in});
  const auto* from = weights.data<std::int8_t>();
  auto* to = result.data<std::int8_t>();
  for (Index o = 0; o < out; ++o)
    for (Index w = 0; w < window; ++w)
      for (Index c = 0; c < in; ++c) *to++ = from[(o * in + c) * window + w];
  return result;
}

class IntegerConvolution final : public Kernel {
 public:
  IntegerConvolution(const ConvolutionSpec& spec, const MatrixShape& product, const ObjectCache& cache)
      : is_unsigned_(spec.type == DataType::kUInt8),
        product_(product),
        in_(spec.input[1]),
        input_(rows_and_columns(std::span(spec.input).subspan(2), 1)),
        output_(rows_and_columns(std::span(spec.output).subspan(2), 1)),
        window_(rows_and_columns(std::span(spec.kernel).subspan(2), 1)),
        strides_(rows_and_columns(spec.strides, 1)),
        dilations_(rows_and_columns(spec.dilations, 1)),
        pads_(rows_and_columns(spec.pads_begin, 0)),
        pieces_(product, product.k, program_kernels().product.panel),
        weights_(cache(spec.key + "|packed integers, channels behind", [product, in = in_, values = spec.weights] {
          return pack_integers(channels_behind(values(), in), product);
        })) {}

  std::string name() const override {
    return fmt::format("product of patches of integers, {}", program_kernels().name);
  }

  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const std::shared_ptr<const void> held = weights_();
    float* const out = outputs[0]->data<float>();
    pieces_.for_each([&](const ProductPieces::Piece& piece) {
      IntegerPart part{};
      part.a_stride = round_up(product_.k, 2);
      part.b = static_cast<const std::int16_t*>(held.get()) + piece.columns.begin * part.a_stride;
      part.out_stride = product_.n;
      part.columns = piece.columns.end - piece.columns.begin;
      part.k = product_.k;
      // As many rows as the second-level cache holds beside columns of b.
      constexpr Index kElements = 1 << 16;
      const Index most = std::clamp<Index>(kElements / part.a_stride / 6 * 6, 6, 48);
      thread_local ThreadMemory memory;
      auto* const a = reinterpret_cast<std::int16_t*>(
          memory.get(static_cast<std::size_t>(most * part.a_stride) * sizeof(std::int16_t)));
      for (Index row = piece.rows.begin; row < piece.rows.end; row += most) {
        part.rows = std::min(most, piece.rows.end - row);
        for (Index r = 0; r < part.rows; ++r)
          is_unsigned_ ? copy_patch(inputs[0]->data<std::uint8_t>(), row + r, a + r * part.a_stride)
                       : copy_patch(inputs[0]->data<std::int8_t>(), row + r, a + r * part.a_stride);
        part.a = a;
        part.out = out + row * product_.n + piece.columns.begin;
        program_kernels().product.multiply_integers(part);
      }
    });
  }

 private:
  /// What output `number` of all images reads; what is outside of the image is 0.
  template <typename T>
  void copy_patch(const T* images, Index number, std::int16_t* to) const {
    const Index x = number % output_[1] * strides_[1] - pads_[1], row = number / output_[1];
    const Index y = row % output_[0] * strides_[0] - pads_[0];
    const T* const image = images + row / output_[0] * input_[0] * input_[1] * in_;
    for (Index i = 0; i < window_[0]; ++i) {
      const Index at = y + i * dilations_[0];
      if (at < 0 || at >= input_[0])
        to = std::fill_n(to, window_[1] * in_, std::int16_t{0});
      else
        to = copy_row(image + at * input_[1] * in_, x, to);
    }
    if (product_.k % 2 != 0) *to = 0;
  }

  /// A row of the window, from column x of a row of the image on.
  template <typename T>
  std::int16_t* copy_row(const T* row, Index x, std::int16_t* to) const {
    if (dilations_[1] == 1) {
      const Index begin = std::clamp<Index>(-x, 0, window_[1]), end = std::clamp(input_[1] - x, begin, window_[1]);
      to = std::fill_n(to, begin * in_, std::int16_t{0});
      to = std::copy(row + (x + begin) * in_, row + (x + end) * in_, to);
      return std::fill_n(to, (window_[1] - end) * in_, std::int16_t{0});
    }
    for (Index j = 0; j < window_[1]; ++j) {
      const Index at = x + j * dilations_[1];
      if (at < 0 || at >= input_[1])
        to = std::fill_n(to, in_, std::int16_t{0});
      else
        to = std::copy(row + at * in_, row + (at + 1) * in_, to);
    }
    return to;
  }

  using Pair = std::array<Index, 2>;
  const bool is_unsigned_;
  const MatrixShape product_;  ///< Of [positions, places and channels] and [output channels, ...], transposed.
  const Index in_;
  const Pair input_, output_, window_, strides_, dilations_, pads_;
  const ProductPieces pieces_;
  const PreparedSource weights_;
};

}  // namespace

std::unique_ptr<Kernel> make_integer_convolution_kernel(const ConvolutionSpec& spec, const ObjectCache& cache) {
  MatrixShape product;
  product.n = spec.kernel[0];
  product.k = num_elements(spec.kernel) / product.n;
  product.m = num_elements(spec.output) / product.n;
  product.transpose_b = true;
  if (spec.transposed || spec.groups != 1 || !multiplies_integers(product.k)) return nullptr;
  return std::make_unique<IntegerConvolution>(spec, product, cache);
}

}  // namespace ulpscope::cpu
