#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "backend/cpu/layer_kernels.h"
#include "backend/cpu/program_kernels.h"
#include "backend/cpu/quantized_layers.h"
#include "core/parallel.h"
#include "core/vector_clones.h"

namespace ulpscope::cpu {
namespace {

using Pair = std::array<std::int64_t, 2>;

/// The last two entries, with `absent` in front of a lone one.
Pair pair_of(const std::vector<std::int64_t>& values, std::int64_t absent) {
  return values.size() < 2 ? Pair{absent, values.empty() ? absent : values[0]} : Pair{values[0], values[1]};
}

/// larger(out, out, source, count): the maxima of two.
template <typename T, typename Larger>
class MaxPoolKernel final : public Kernel {
 public:
  MaxPoolKernel(const PoolSpec& spec, T least, Larger larger)
      : batch_(spec.input[0]),
        channels_(spec.input[1]),
        in_(pair_of({spec.input.begin() + 2, spec.input.end()}, 1)),
        out_(pair_of({spec.output.begin() + 2, spec.output.end()}, 1)),
        kernel_(pair_of(spec.kernel, 1)),
        strides_(pair_of(spec.strides, 1)),
        dilations_(pair_of(spec.dilations, 1)),
        pads_(pair_of(spec.pads_begin, 0)),
        least_(least),
        larger_(larger) {}

  std::string name() const override { return "maxima of windows"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const T* in = inputs[0]->data<T>();
    T* out = outputs[0]->data<T>();
    const std::int64_t row = out_[1] * channels_;
    const std::int64_t grain =
        std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, row * kernel_[0] * kernel_[1]));
    parallel_each(batch_ * out_[0], grain, [&](std::int64_t y) {
      for (std::int64_t x = 0; x < out_[1]; ++x)
        pool(in + y / out_[0] * in_[0] * in_[1] * channels_, y % out_[0], x, out + y * row + x * channels_);
    });
  }

 private:
  void pool(const T* image, std::int64_t y, std::int64_t x, T* out) const {
    bool first = true;
    for (std::int64_t ky = 0; ky < kernel_[0]; ++ky) {
      const std::int64_t iy = y * strides_[0] - pads_[0] + ky * dilations_[0];
      if (iy < 0 || iy >= in_[0]) continue;
      for (std::int64_t kx = 0; kx < kernel_[1]; ++kx) {
        const std::int64_t ix = x * strides_[1] - pads_[1] + kx * dilations_[1];
        if (ix < 0 || ix >= in_[1]) continue;
        const T* source = image + (iy * in_[1] + ix) * channels_;
        if (first)
          std::memcpy(out, source, static_cast<std::size_t>(channels_) * sizeof(T));
        else
          larger_(out, out, source, channels_);
        first = false;
      }
    }
    if (first) std::fill(out, out + channels_, least_);
  }

  const std::int64_t batch_, channels_;
  const Pair in_, out_, kernel_, strides_, dilations_, pads_;
  const T least_;
  const Larger larger_;
};

template <typename T>
ULPSCOPE_VECTOR_CLONES void larger_bytes(T* out, const T* a, const T* b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = std::max(a[i], b[i]);
}

template <typename T>
std::unique_ptr<Kernel> byte_max_pool(const PoolSpec& spec) {
  return std::make_unique<MaxPoolKernel<T, decltype(&larger_bytes<T>)>>(spec, std::numeric_limits<T>::min(),
                                                                        larger_bytes<T>);
}

}  // namespace

std::unique_ptr<Kernel> make_max_pool_kernel(const PoolSpec& spec) {
  return std::make_unique<MaxPoolKernel<float, ProgramKernels::Binary>>(spec, -std::numeric_limits<float>::infinity(),
                                                                        program_kernels().binary(Instruction::kMax));
}
std::unique_ptr<Kernel> make_byte_max_pool_kernel(const PoolSpec& spec, bool is_signed) {
  return is_signed ? byte_max_pool<std::int8_t>(spec) : byte_max_pool<std::uint8_t>(spec);
}

}  // namespace ulpscope::cpu
