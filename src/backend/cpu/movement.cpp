#include "backend/cpu/movement.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/program_kernels.h"
#include "backend/strides.h"
#include "core/parallel.h"
#include "ops/movement.h"

namespace ulpscope::cpu {
namespace {

/// out[o, :] = the inputs' rows o side by side.
class ConcatKernel final : public Kernel {
 public:
  ConcatKernel(std::int64_t outer, std::vector<std::int64_t> widths) : outer_(outer), widths_(std::move(widths)) {
    for (std::int64_t w : widths_) total_ += w;
  }

  std::string name() const override { return "joined"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    float* out = outputs[0]->data<float>();
    parallel_for(outer_, items_per_task(outer_, total_), [&](std::int64_t begin, std::int64_t end) {
      std::int64_t offset = 0;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const float* in = inputs[i]->data<float>();
        const std::int64_t width = widths_[i];
        for (std::int64_t o = begin; o < end; ++o)
          std::memcpy(out + o * total_ + offset, in + o * width, static_cast<std::size_t>(width) * sizeof(float));
        offset += width;
      }
    });
  }

 private:
  const std::int64_t outer_;
  const std::vector<std::int64_t> widths_;
  std::int64_t total_ = 0;
};

/// Every so many elements of each dimension.
class CutKernel final : public Kernel {
 public:
  CutKernel(const Shape& input, const ops::Cut& cut, const Shape& output)
      : shape_(output), in_(channels_last_strides(input)), out_(channels_last_strides(output)) {
    for (std::size_t d = 0; d < in_.size(); ++d) {
      offset_ += cut.begin[d] * in_[d];
      in_[d] *= cut.step[d];
    }
    // copy_strided goes through dimensions in their order: that of memory.
    for (auto* list : {&shape_, &in_, &out_}) std::rotate(list->begin() + 1, list->begin() + 2, list->end());
  }

  std::string name() const override { return "cut"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    ops::copy_strided(DataType::kFloat32, inputs[0]->data<float>() + offset_, in_, outputs[0]->raw(), out_, shape_);
  }

 private:
  Shape shape_;
  std::vector<std::int64_t> in_, out_;
  std::int64_t offset_ = 0;
};

/// Mean over all positions of each channel, channels last; partial sums in fixed blocks of positions.
class ChannelMeanKernel final : public Kernel {
 public:
  ChannelMeanKernel(std::int64_t batch, std::int64_t positions, std::int64_t channels)
      : batch_(batch), positions_(positions), channels_(channels) {}

  std::string name() const override { return "means of channels"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const float* in = inputs[0]->data<float>();
    float* out = outputs[0]->data<float>();
    constexpr std::int64_t kBlock = 128, kChannels = 128;
    const std::int64_t blocks = (positions_ + kBlock - 1) / kBlock;
    std::vector<float> partial(static_cast<std::size_t>(batch_ * blocks * channels_), 0.0f);
    const std::int64_t parts = (channels_ + kChannels - 1) / kChannels, tasks = batch_ * blocks * parts;
    const std::int64_t size = std::min(positions_, kBlock) * std::min(channels_, kChannels);
    parallel_for(tasks, items_per_task(tasks, size), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t block = task / parts, channel = task % parts * kChannels;
        const std::int64_t width = std::min(kChannels, channels_ - channel);
        float* sum = partial.data() + block * channels_ + channel;
        const std::int64_t first = block % blocks * kBlock, last = std::min(positions_, first + kBlock);
        const float* source = in + block / blocks * positions_ * channels_ + channel;
        program_kernels().add_rows(sum, source + first * channels_, channels_, last - first, width);
      }
    });
    for (std::int64_t n = 0; n < batch_; ++n)
      for (std::int64_t c = 0; c < channels_; ++c) {
        float sum = 0.0f;
        for (std::int64_t b = 0; b < blocks; ++b) sum += partial[(n * blocks + b) * channels_ + c];
        out[n * channels_ + c] = sum / static_cast<float>(positions_);
      }
  }

 private:
  const std::int64_t batch_, positions_, channels_;
};

class ArrangingKernel final : public Kernel {
 public:
  ArrangingKernel(std::vector<std::int64_t> strides, Shape shape)
      : strides_(std::move(strides)), shape_(std::move(shape)) {}

  std::string name() const override { return "arranged"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    ops::copy_strided(DataType::kFloat32, inputs[0]->raw(), strides_, outputs[0]->raw(), shape_);
  }

 private:
  const std::vector<std::int64_t> strides_;
  const Shape shape_;
};

}  // namespace

std::unique_ptr<Kernel> make_concat_kernel(std::int64_t outer, std::vector<std::int64_t> widths) {
  return std::make_unique<ConcatKernel>(outer, std::move(widths));
}

std::unique_ptr<Kernel> make_cut_kernel(const Shape& input, const ops::Cut& cut, const Shape& output) {
  return std::make_unique<CutKernel>(input, cut, output);
}

std::unique_ptr<Kernel> make_arranging_kernel(std::vector<std::int64_t> strides, Shape shape) {
  return std::make_unique<ArrangingKernel>(std::move(strides), std::move(shape));
}

std::unique_ptr<Kernel> make_channel_mean_kernel(std::int64_t batch, std::int64_t positions, std::int64_t channels) {
  return std::make_unique<ChannelMeanKernel>(batch, positions, channels);
}

}  // namespace ulpscope::cpu
