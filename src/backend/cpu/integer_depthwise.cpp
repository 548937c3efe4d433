#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "backend/cpu/byte_store.h"
#include "backend/cpu/plane_window.h"
#include "backend/cpu/quantized_layers.h"
#include "backend/cpu/thread_memory.h"
#include "core/division.h"
#include "core/parallel.h"

namespace ulpscope::cpu {
namespace {

using Index = std::int64_t;

/// Blocks of channels that do not fill a vector are masked with AVX-512, and copied one by one elsewhere.
const ProgramKernels& kernels_for([[maybe_unused]] Index channels) {
  const ProgramKernels& kernels = program_kernels();
#if defined(__x86_64__)
  if (kernels.depthwise_bytes.block == 64 && channels == 32 && program_kernels_avx2().product.has_byte_products())
    return program_kernels_avx2();
  if (kernels.depthwise_bytes.block == 32 && channels < 32) return program_kernels_baseline();
#endif
  return kernels;
}

/// The channel of each place of all blocks; -1: none.
std::vector<Index> channels_of_places(const DepthwiseBytesKernels& kernels, Index channels) {
  std::vector<Index> result;
  for (Index i = 0; i < round_up(channels, kernels.block); ++i) {
    const Index first = std::min(i / kernels.block * kernels.block, std::max<Index>(0, channels - kernels.block));
    const Index c = first + kernels.channel(i % kernels.block);
    result.push_back(c < channels ? c : -1);
  }
  return result;
}

/// The vectors of program_kernels().depthwise_bytes, for rows of the window by its columns by channels.
class DepthwiseBytes final : public Kernel, PlaneWindow {
 public:
  DepthwiseBytes(const ConvolutionSpec& spec, const Requantization& form, bool is_signed)
      : PlaneWindow(spec),
        images_(spec.input[0]),
        channels_(spec.input[1]),
        fours_(divided_up(window_[0], 4)),
        flip_(is_signed ? 0x80 : 0),
        kernels_(kernels_for(spec.input[1])),
        places_(channels_of_places(kernels_.depthwise_bytes, channels_)) {
    if (form.type != DataType::kFloat32) store_.emplace(form, places_);
    const Tensor given = spec.weights();
    const auto* weights = given.data<std::int16_t>();
    const bool by_bytes = kernels_.product.has_byte_products() &&
                          std::all_of(weights, weights + given.size(), [](int w) { return w == std::int8_t(w); });
    const auto size = places_.size() * static_cast<std::size_t>(4 * fours_ * window_[1]);
    by_bytes ? bytes_.resize(size) : words_.resize(size);
    sums_.resize(places_.size());
    for (Index i = 0; i < static_cast<Index>(places_.size()); ++i)
      if (places_[i] >= 0) place_weights(weights + places_[i] * window_[0] * window_[1], i);
  }

  std::string name() const override { return fmt::format("depthwise convolution of bytes, {}", kernels_.name); }

  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const auto* in = static_cast<const std::uint8_t*>(inputs[0]->raw());
    const Tensor* const zero = inputs.size() > 1 ? inputs[1] : nullptr;
    const auto raw_zero = zero == nullptr ? std::uint8_t{0} : static_cast<const std::uint8_t*>(zero->raw())[0];
    const std::vector<std::uint8_t> zeros(static_cast<std::size_t>(channels_), raw_zero);
    std::vector<std::int32_t> start(sums_.size());
    for (std::size_t i = 0; i < start.size(); ++i) start[i] = -sums_[i] * (raw_zero ^ flip_);
    ByteForm form{};
    if (store_) {
      store_->add_bias(0, start);
      form = store_->from(0);
    }
    DepthwiseBytesRun run{};
    run.zeros = zeros.data();
    run.fours = fours_;
    run.columns = window_[1];
    run.width = input_[1];
    run.channels = channels_;
    run.stride = strides_[1];
    run.dilation = dilations_[1];
    run.flip = flip_;
    run.words = words_.data();
    run.bytes = bytes_.empty() ? nullptr : bytes_.data();
    run.start = start.data();
    run.form = store_ ? &form : nullptr;
    const Index rows = images_ * output_[0], each = output_[1] * channels_ * window_[0] * window_[1];
    parallel_for(rows, items_per_task(rows, each), [&](Index begin, Index end) {
      for (Index row = begin; row < end; ++row)
        run_row(in + row / output_[0] * input_[0] * input_[1] * channels_, row, run, *outputs[0]);
    });
  }

 private:
  void place_weights(const std::int16_t* window, Index place) {
    const Index size = kernels_.depthwise_bytes.block, lanes = size / 4;
    const Index block = place / size, part = place % size / lanes, lane = place % lanes;
    for (Index row = 0; row < window_[0]; ++row)
      for (Index column = 0; column < window_[1]; ++column) {
        const std::int16_t weight = window[row * window_[1] + column];
        const Index vector = ((block * window_[1] + column) * fours_ + row / 4) * 4 + part, of_four = row % 4;
        if (words_.empty())
          bytes_[(vector * lanes + lane) * 4 + of_four] = static_cast<std::int8_t>(weight);
        else
          words_[(vector * 2 + of_four % 2) * lanes * 2 + lane * 2 + of_four / 2] = weight;
        sums_[place] += weight;
      }
  }

  /// `row`: of all images' outputs.
  void run_row(const std::uint8_t* image, Index row, DepthwiseBytesRun run, Tensor& output) const {
    constexpr Index kOutputs = 32;  // What they read, side by side, stays in the first-level cache.
    thread_local std::vector<const std::uint8_t*> rows;
    thread_local std::vector<Index> steps;
    thread_local ThreadMemory scratch;
    rows.assign(static_cast<std::size_t>(fours_ * 4), run.zeros);
    steps.assign(rows.size(), 0);
    for (Index i = 0; i < window_[0]; ++i) {
      const Index y = row % output_[0] * strides_[0] - pads_[0] + i * dilations_[0];
      if (y < 0 || y >= input_[0]) continue;
      rows[static_cast<std::size_t>(i)] = image + y * input_[1] * channels_;
      steps[static_cast<std::size_t>(i)] = channels_;
    }
    run.rows = rows.data();
    run.row_steps = steps.data();
    const Index columns = (kOutputs - 1) * strides_[1] + (window_[1] - 1) * dilations_[1] + 1;
    run.scratch = reinterpret_cast<std::uint8_t*>(
        scratch.get(static_cast<std::size_t>(columns * fours_ * 4 * kernels_.depthwise_bytes.block)));
    for (Index x = 0; x < output_[1]; x += kOutputs) {
      run.first = x * strides_[1] - pads_[1];
      run.count = std::min(kOutputs, output_[1] - x);
      const Index to = (row * output_[1] + x) * channels_;
      if (store_)
        run.out = static_cast<std::uint8_t*>(output.raw()) + to;
      else
        run.floats = output.data<float>() + to;
      kernels_.depthwise_bytes.run(run);
    }
  }

  const Index images_, channels_;
  const Index fours_;  ///< Of rows of the window.
  const std::uint8_t flip_;
  const ProgramKernels& kernels_;
  const std::vector<Index> places_;
  std::optional<ByteStore> store_;
  std::vector<std::int8_t> bytes_;  ///< As DepthwiseBytesRun has them.
  std::vector<std::int16_t> words_;
  std::vector<std::int32_t> sums_;  ///< Of the weights of a place's channel.
};

}  // namespace

std::unique_ptr<Kernel> make_depthwise_bytes_kernel(const ConvolutionSpec& spec, const Requantization& form,
                                                    bool is_signed) {
  if (program_kernels().depthwise_bytes.run == nullptr) return nullptr;
  return std::make_unique<DepthwiseBytes>(spec, form, is_signed);
}

}  // namespace ulpscope::cpu
