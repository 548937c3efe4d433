#include "backend/cpu/quantized_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "backend/cpu/plane_window.h"
#include "backend/cpu/program_kernels.h"
#include "backend/cpu/thread_memory.h"
#include "core/division.h"
#include "core/parallel.h"
#include "core/vector_clones.h"
#include "ops/window.h"

namespace ulpscope::cpu {
namespace {

using Index = std::int64_t;

constexpr Index kBlock = 64;  ///< Positions that are turned at a time.

template <typename T>
ULPSCOPE_VECTOR_CLONES void center(const T* in, Index count, std::int16_t zero, std::int16_t* out) {
  for (Index i = 0; i < count; ++i) out[i] = static_cast<std::int16_t>(in[i] - zero);
}

/// 16 rows of 16 bytes as columns: what is next to each other is put between each other, four times.
inline void turn_square(const std::uint8_t* in, Index stride, std::uint8_t* out, Index out_stride) {
  typedef std::uint8_t Bytes __attribute__((vector_size(16)));
  Bytes rows[16], next[16];
  for (int i = 0; i < 16; ++i) std::memcpy(&rows[i], in + i * stride, sizeof(Bytes));
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 8; ++i) {
      next[2 * i] =
          __builtin_shufflevector(rows[i], rows[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      next[2 * i + 1] =
          __builtin_shufflevector(rows[i], rows[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
    std::copy_n(next, 16, rows);
  }
  for (int i = 0; i < 16; ++i) std::memcpy(out + i * out_stride, &rows[i], sizeof(Bytes));
}

/// Images of three channels.
template <typename T>
ULPSCOPE_VECTOR_CLONES void interleave_three(const T* in, Index stride, Index columns, T* out) {
  for (Index i = 0; i < columns; ++i) {
    out[3 * i] = in[i];
    out[3 * i + 1] = in[stride + i];
    out[3 * i + 2] = in[2 * stride + i];
  }
}

/// [rows, columns] to [columns, rows], a square at a time.
template <typename T>
void turn(const T* in, Index stride, Index rows, Index columns, T* out, Index out_stride) {
  if (rows == 3 && out_stride == 3) return interleave_three(in, stride, columns, out);
  constexpr Index kSquare = 16;
  for (Index r = 0; r < rows; r += kSquare)
    for (Index c = 0; c < columns; c += kSquare) {
      const Index last_row = std::min(r + kSquare, rows), last_column = std::min(c + kSquare, columns);
      if (std::is_same_v<T, std::uint8_t> && last_row - r == kSquare && last_column - c == kSquare) {
        turn_square(reinterpret_cast<const std::uint8_t*>(in + r * stride + c), stride,
                    reinterpret_cast<std::uint8_t*>(out + c * out_stride + r), out_stride);
        continue;
      }
      for (Index j = c; j < last_column; ++j)
        for (Index i = r; i < last_row; ++i) out[j * out_stride + i] = in[i * stride + j];
    }
}

ULPSCOPE_VECTOR_CLONES void flip_bits(const std::uint8_t* in, Index count, std::uint8_t bits, std::uint8_t* out) {
  for (Index i = 0; i < count; ++i) out[i] = static_cast<std::uint8_t>(in[i] ^ bits);
}

/// To [n, spatial..., c], element by element from what `change` makes of parts of channels.
class Turning : public Kernel {
 public:
  Turning(const Shape& shape, Layout from)
      : images_(shape[0]),
        channels_(shape[1]),
        positions_(positions_of(shape)),
        is_turned_(from == Layout::kChannelsLast) {}

 protected:
  /// change(elements, how many, to).
  template <typename T, typename To, typename Change>
  void turn_images(const T* in, To* out, const Change& change) const {
    if (is_turned_)
      return parallel_for(images_ * channels_ * positions_, Index{1} << 15,
                          [&](Index begin, Index end) { change(in + begin, end - begin, out + begin); });
    const Index blocks = (positions_ + kBlock - 1) / kBlock;
    parallel_for(images_ * blocks, items_per_task(images_ * blocks, kBlock * channels_), [&](Index begin, Index end) {
      thread_local ThreadMemory memory;
      auto* const rows = reinterpret_cast<To*>(memory.get(static_cast<std::size_t>(channels_ * kBlock) * sizeof(To)));
      for (Index i = begin; i < end; ++i) {
        const Index first = i % blocks * kBlock, count = std::min(kBlock, positions_ - first);
        const T* from = in + i / blocks * channels_ * positions_ + first;
        for (Index c = 0; c < channels_; ++c) change(from + c * positions_, count, rows + c * kBlock);
        turn(rows, kBlock, channels_, count, out + (i / blocks * positions_ + first) * channels_, channels_);
      }
    });
  }

 private:
  const Index images_, channels_, positions_;
  const bool is_turned_;
};

class Centering final : public Turning {
 public:
  using Turning::Turning;
  std::string name() const override { return "bytes less their zero point"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const auto run_typed = [&]<typename T>(T) {
      const auto zero = static_cast<std::int16_t>(inputs[1] == nullptr ? T{} : inputs[1]->data<T>()[0]);
      turn_images(inputs[0]->data<T>(), outputs[0]->data<std::int16_t>(),
                  [zero](const T* from, Index count, std::int16_t* to) { center(from, count, zero, to); });
    };
    inputs[0]->type() == DataType::kUInt8 ? run_typed(std::uint8_t{}) : run_typed(std::int8_t{});
  }
};

class Unsigned final : public Turning {
 public:
  using Turning::Turning;
  std::string name() const override { return "bytes as unsigned ones"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const std::uint8_t flip = inputs[0]->type() == DataType::kInt8 ? 0x80 : 0;
    turn_images(static_cast<const std::uint8_t*>(inputs[0]->raw()), outputs[0]->data<std::uint8_t>(),
                [flip](const std::uint8_t* from, Index count, std::uint8_t* to) { flip_bits(from, count, flip, to); });
    const std::uint8_t zero =
        inputs[1] == nullptr ? std::uint8_t{0} : static_cast<const std::uint8_t*>(inputs[1]->raw())[0];
    outputs[1]->data<std::uint8_t>()[0] = static_cast<std::uint8_t>(zero ^ flip);
  }
};

/// sums[c] += x[c] * w[c].
ULPSCOPE_VECTOR_CLONES void add_products(const std::int16_t* x, const std::int16_t* w, Index count,
                                         std::int32_t* sums) {
  for (Index c = 0; c < count; ++c) sums[c] += std::int32_t{x[c]} * std::int32_t{w[c]};
}

class DepthwiseIntegers final : public Kernel, PlaneWindow {
 public:
  explicit DepthwiseIntegers(const ConvolutionSpec& spec)
      : PlaneWindow(spec), images_(spec.input[0]), channels_(spec.input[1]) {
    const Tensor given = spec.weights();
    const Index places = window_[0] * window_[1];
    weights_.resize(static_cast<std::size_t>(given.size()));
    for (Index c = 0; c < channels_; ++c)
      for (Index p = 0; p < places; ++p) weights_[p * channels_ + c] = given.data<std::int16_t>()[c * places + p];
  }

  std::string name() const override { return "depthwise convolution of integers"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const auto* in = inputs[0]->data<std::int16_t>();
    auto* out = outputs[0]->data<std::int32_t>();
    const Index rows = images_ * output_[0], each = output_[1] * channels_ * window_[0] * window_[1];
    parallel_for(rows, items_per_task(rows, each), [&](Index begin, Index end) {
      for (Index row = begin; row < end; ++row)
        for (Index x = 0; x < output_[1]; ++x)
          add_window(in + row / output_[0] * input_[0] * input_[1] * channels_, {row % output_[0], x},
                     out + (row * output_[1] + x) * channels_);
    });
  }

 private:
  void add_window(const std::int16_t* image, const Pair& at, std::int32_t* sums) const {
    std::fill_n(sums, channels_, 0);
    for (Index i = 0; i < window_[0]; ++i) {
      const Index y = at[0] * strides_[0] - pads_[0] + i * dilations_[0];
      if (y < 0 || y >= input_[0]) continue;
      for (Index j = 0; j < window_[1]; ++j) {
        const Index x = at[1] * strides_[1] - pads_[1] + j * dilations_[1];
        if (x < 0 || x >= input_[1]) continue;
        add_products(image + (y * input_[1] + x) * channels_, weights_.data() + (i * window_[1] + j) * channels_,
                     channels_, sums);
      }
    }
  }

  const Index images_, channels_;
  std::vector<std::int16_t> weights_;  ///< [window..., channels].
};

class ChannelsFirst final : public Kernel {
 public:
  ChannelsFirst(Index outer, Index inner, Index channels) : outer_(outer), inner_(inner), channels_(channels) {}

  std::string name() const override { return "reorder"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const auto* in = inputs[0]->data<std::int32_t>();
    auto* out = outputs[0]->data<std::int32_t>();
    const Index blocks = (inner_ + kBlock - 1) / kBlock;
    parallel_for(outer_ * blocks, items_per_task(outer_ * blocks, kBlock * channels_), [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const Index first = i % blocks * kBlock, count = std::min(kBlock, inner_ - first);
        const Index image = i / blocks * inner_ * channels_;
        turn(in + image + first * channels_, channels_, count, channels_, out + image + first, inner_);
      }
    });
  }

 private:
  const Index outer_, inner_, channels_;
};

}  // namespace

std::unique_ptr<Kernel> make_byte_reorder_kernel(const Shape& shape, Layout to) {
  const Index positions = positions_of(shape);
  const bool to_last = to == Layout::kChannelsLast;
  const Index images = shape[0], rows = to_last ? shape[1] : positions, columns = to_last ? positions : shape[1];
  return make_kernel("reorder of bytes", [=](Kernel::Inputs inputs, Kernel::Outputs outputs) {
    const auto* in = static_cast<const std::uint8_t*>(inputs[0]->raw());
    auto* const out = static_cast<std::uint8_t*>(outputs[0]->raw());
    const Index blocks = (columns + kBlock - 1) / kBlock;
    parallel_each(images * blocks, items_per_task(images * blocks, kBlock * rows), [&](Index i) {
      const Index first = i % blocks * kBlock, image = i / blocks * rows * columns;
      turn(in + image + first, columns, rows, std::min(kBlock, columns - first), out + image + first * rows, rows);
    });
  });
}

std::unique_ptr<Kernel> make_centering_kernel(const Shape& shape, Layout from) {
  return std::make_unique<Centering>(shape, from);
}
std::unique_ptr<Kernel> make_unsigned_kernel(const Shape& shape, Layout from) {
  return std::make_unique<Unsigned>(shape, from);
}

std::unique_ptr<Kernel> make_depthwise_integer_kernel(const ConvolutionSpec& spec) {
  return std::make_unique<DepthwiseIntegers>(spec);
}

std::unique_ptr<Kernel> make_scaling_kernel(Index rows, Requantization form) {
  const auto channels = static_cast<Index>(form.scales.size());
  return make_kernel("sums to real numbers", [=, form = std::move(form)](Kernel::Inputs inputs,
                                                                         Kernel::Outputs outputs) {
    const auto* in = inputs[0]->data<std::int32_t>();
    auto* const out = outputs[0]->data<float>();
    parallel_each(rows, items_per_task(rows, channels), [&](Index row) {
      for (Index i = row * channels, c = 0; c < channels; ++i, ++c)
        out[i] = form.scales[c] * static_cast<float>(static_cast<std::int32_t>(
                                      static_cast<std::uint32_t>(in[i]) + static_cast<std::uint32_t>(form.bias[c])));
    });
  });
}

std::unique_ptr<Kernel> make_channels_first_kernel(Index outer, Index inner, Index channels) {
  return std::make_unique<ChannelsFirst>(outer, inner, channels);
}

}  // namespace ulpscope::cpu
