#include "ops/movement.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "backend/cpu/layer_kernels.h"
#include "backend/cpu/program_kernels.h"
#include "backend/strides.h"
#include "core/parallel.h"

namespace ulpscope::cpu {

std::unique_ptr<Kernel> make_concat_kernel(std::int64_t outer, std::vector<std::int64_t> widths) {
  const std::int64_t total = std::accumulate(widths.begin(), widths.end(), std::int64_t{0});
  return make_kernel("joined", [=, widths = std::move(widths)](Kernel::Inputs inputs, Kernel::Outputs outputs) {
    float* out = outputs[0]->data<float>();
    parallel_for(outer, items_per_task(outer, total), [&](std::int64_t begin, std::int64_t end) {
      std::int64_t offset = 0;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const float* in = inputs[i]->data<float>();
        const std::int64_t width = widths[i];
        for (std::int64_t o = begin; o < end; ++o)
          std::memcpy(out + o * total + offset, in + o * width, static_cast<std::size_t>(width) * sizeof(float));
        offset += width;
      }
    });
  });
}

std::unique_ptr<Kernel> make_cut_kernel(const Shape& input, const ops::Cut& cut, const Shape& output) {
  Shape shape = output;
  std::vector<std::int64_t> from = channels_last_strides(input), to = channels_last_strides(output);
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < from.size(); ++d) {
    offset += cut.begin[d] * from[d];
    from[d] *= cut.step[d];
  }
  // copy_strided goes through dimensions in their order: that of memory.
  for (auto* list : {&shape, &from, &to}) std::rotate(list->begin() + 1, list->begin() + 2, list->end());
  return make_kernel("cut", [=](Kernel::Inputs inputs, Kernel::Outputs outputs) {
    ops::copy_strided(DataType::kFloat32, inputs[0]->data<float>() + offset, from, outputs[0]->raw(), to, shape);
  });
}

std::unique_ptr<Kernel> make_arranging_kernel(std::vector<std::int64_t> strides, Shape shape) {
  return make_kernel("arranged", [strides = std::move(strides), shape = std::move(shape)](Kernel::Inputs inputs,
                                                                                          Kernel::Outputs outputs) {
    ops::copy_strided(DataType::kFloat32, inputs[0]->raw(), strides, outputs[0]->raw(), shape);
  });
}

std::unique_ptr<Kernel> make_channel_mean_kernel(std::int64_t batch, std::int64_t positions, std::int64_t channels) {
  return make_kernel("means of channels", [=](Kernel::Inputs inputs, Kernel::Outputs outputs) {
    const float* in = inputs[0]->data<float>();
    float* out = outputs[0]->data<float>();
    constexpr std::int64_t kBlock = 128, kChannels = 128;
    const std::int64_t blocks = (positions + kBlock - 1) / kBlock;
    std::vector<float> partial(static_cast<std::size_t>(batch * blocks * channels), 0.0f);
    const std::int64_t parts = (channels + kChannels - 1) / kChannels, tasks = batch * blocks * parts;
    const std::int64_t size = std::min(positions, kBlock) * std::min(channels, kChannels);
    parallel_each(tasks, items_per_task(tasks, size), [&](std::int64_t task) {
      const std::int64_t block = task / parts, channel = task % parts * kChannels;
      const std::int64_t width = std::min(kChannels, channels - channel);
      float* sum = partial.data() + block * channels + channel;
      const std::int64_t first = block % blocks * kBlock, last = std::min(positions, first + kBlock);
      const float* source = in + block / blocks * positions * channels + channel;
      program_kernels().add_rows(sum, source + first * channels, channels, last - first, width);
    });
    for (std::int64_t n = 0; n < batch; ++n)
      for (std::int64_t c = 0; c < channels; ++c) {
        float sum = 0.0f;
        for (std::int64_t b = 0; b < blocks; ++b) sum += partial[(n * blocks + b) * channels + c];
        out[n * channels + c] = sum / static_cast<float>(positions);
      }
  });
}

}  // namespace ulpscope::cpu
