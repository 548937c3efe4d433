#include "backend/cpu/quantized_layers.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "backend/cpu/thread_memory.h"
#include "core/parallel.h"
#include "core/vector_clones.h"

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

/// [rows, columns] to [columns, rows], a square at a time.
template <typename T>
void turn(const T* in, Index stride, Index rows, Index columns, T* out, Index out_stride) {
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
  explicit Turning(const Shape& shape)
      : images_(shape[0]), channels_(shape[1]), positions_(num_elements(shape) / (shape[0] * shape[1])) {}

 protected:
  /// change(elements, how many, to).
  template <typename T, typename To, typename Change>
  void turn_images(const T* in, To* out, const Change& change) const {
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

using Pair = std::array<Index, 2>;

/// Of rows and columns; a lone dimension is that of columns.
Pair pair_of(std::span<const Index> values, Index absent) {
  return values.size() == 1 ? Pair{absent, values[0]} : Pair{values[0], values[1]};
}

class DepthwiseIntegers final : public Kernel {
 public:
  explicit DepthwiseIntegers(const ConvolutionSpec& spec)
      : images_(spec.input[0]),
        channels_(spec.input[1]),
        input_(pair_of(std::span(spec.input).subspan(2), 1)),
        output_(pair_of(std::span(spec.output).subspan(2), 1)),
        window_(pair_of(std::span(spec.kernel).subspan(2), 1)),
        strides_(pair_of(spec.strides, 1)),
        dilations_(pair_of(spec.dilations, 1)),
        pads_(pair_of(spec.pads_begin, 0)) {
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
  const Pair input_, output_, window_, strides_, dilations_, pads_;
  std::vector<std::int16_t> weights_;  ///< [window..., channels].
};

/// `low` and `high` are without the zero point.
ULPSCOPE_VECTOR_CLONES void requantize(const std::int32_t* sums, const std::int32_t* bias, const double* scales,
                                       Index count, double low, double high, std::int32_t zero, std::uint8_t* out) {
  constexpr double kRound = 0x1.8p52;  // What is added to it loses its fraction, ties to even.
  for (Index i = 0; i < count; ++i) {
    const auto sum =
        static_cast<std::int32_t>(static_cast<std::uint32_t>(sums[i]) + static_cast<std::uint32_t>(bias[i]));
    double value = sum * scales[i];
    value = value == value ? value : 0;
    value = value > low ? value : low;
    value = value < high ? value : high;
    out[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(value + kRound - kRound) + zero);
  }
}

class Requantizing final : public Kernel {
 public:
  Requantizing(Index outer, Index inner, Requantization form, bool channels_first)
      : outer_(outer),
        inner_(inner),
        channels_(static_cast<Index>(form.scales.size())),
        form_(std::move(form)),
        channels_first_(channels_first) {}

  std::string name() const override { return "sums to bytes"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const auto* in = inputs[0]->data<std::int32_t>();
    auto* const out = static_cast<std::uint8_t*>(outputs[0]->raw());
    const bool is_signed = form_.type == DataType::kInt8;
    const double low = (is_signed ? -128 : 0) - form_.zero, high = (is_signed ? 127 : 255) - form_.zero;
    const auto row = [&](Index at, std::uint8_t* to) {
      requantize(in + at * channels_, form_.bias.data(), form_.scales.data(), channels_, low, high, form_.zero, to);
    };
    const Index blocks = (inner_ + kBlock - 1) / kBlock;
    parallel_for(outer_ * blocks, items_per_task(outer_ * blocks, kBlock * channels_), [&](Index begin, Index end) {
      thread_local ThreadMemory memory;
      auto* const rows = reinterpret_cast<std::uint8_t*>(
          channels_first_ ? memory.get(static_cast<std::size_t>(channels_ * kBlock)) : nullptr);
      for (Index i = begin; i < end; ++i) {
        const Index first = i % blocks * kBlock, count = std::min(kBlock, inner_ - first), image = i / blocks * inner_;
        for (Index p = 0; p < count; ++p)
          row(image + first + p, channels_first_ ? rows + p * channels_ : out + (image + first + p) * channels_);
        if (channels_first_) turn(rows, channels_, count, channels_, out + image * channels_ + first, inner_);
      }
    });
  }

 private:
  const Index outer_, inner_, channels_;
  const Requantization form_;
  const bool channels_first_;
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

std::unique_ptr<Kernel> make_centering_kernel(const Shape& shape) { return std::make_unique<Centering>(shape); }
std::unique_ptr<Kernel> make_unsigned_kernel(const Shape& shape) { return std::make_unique<Unsigned>(shape); }

std::unique_ptr<Kernel> make_depthwise_integer_kernel(const ConvolutionSpec& spec) {
  return std::make_unique<DepthwiseIntegers>(spec);
}

std::unique_ptr<Kernel> make_requantizing_kernel(Index outer, Index inner, Requantization form, bool channels_first) {
  return std::make_unique<Requantizing>(outer, inner, std::move(form), channels_first);
}

std::unique_ptr<Kernel> make_channels_first_kernel(Index outer, Index inner, Index channels) {
  return std::make_unique<ChannelsFirst>(outer, inner, channels);
}

}  // namespace ulpscope::cpu
