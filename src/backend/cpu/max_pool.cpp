// Pooling of what lies channels last: maxima along each row of the image, then of these along its columns.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <type_traits>

#include "backend/cpu/layer_kernels.h"
#include "backend/cpu/program_kernels.h"
#include "backend/cpu/quantized_layers.h"
#include "backend/cpu/thread_memory.h"
#include "core/parallel.h"
#include "core/vector_clones.h"
#include "ops/window.h"

namespace ulpscope::cpu {
namespace {

using Pair = std::array<std::int64_t, 2>;

/// The last two entries, with `absent` in front of a lone one.
Pair pair_of(const std::vector<std::int64_t>& values, std::int64_t absent) {
  return values.size() < 2 ? Pair{absent, values.empty() ? absent : values[0]} : Pair{values[0], values[1]};
}

/// The later one of equals, as Instruction::kMax; unless all are `numbers`, the first NaN where there is one.
template <bool numbers, typename T>
inline T larger_of(T a, T b) {
  const T larger = a > b ? a : b;
  if constexpr (numbers) return larger;
  // As integers: the compiler makes no vectors of comparisons of floats that could raise an exception.
  else
    return (std::bit_cast<std::int32_t>(a) & 0x7fffffff) > 0x7f800000 ? a : larger;
}

/// Where `lines` of results come from, each `count` elements.
struct Lines {
  std::int64_t lines, count;
  std::int64_t place;    ///< From one place of a window to the next.
  std::int64_t in, out;  ///< From line to line.
};

/// out[i] = the largest of in[i + k * place] for `places` k; `more`: and of out[i], which comes first.
template <bool numbers, typename T, bool more, int places>
ULPSCOPE_VECTOR_CLONES void take_maxima(const T* in, const Lines& form, T* __restrict out) {
  const Lines f = form;  // Bytes could lie where it does.
  for (std::int64_t line = 0; line < f.lines; ++line, in += f.in, out += f.out)
    for (std::int64_t i = 0; i < f.count; ++i) {
      T largest = more ? larger_of<numbers>(out[i], in[i]) : in[i];
      for (int k = 1; k < places; ++k) largest = larger_of<numbers>(largest, in[i + k * f.place]);
      out[i] = largest;
    }
}

/// Of any number of places but none.
template <bool numbers, typename T>
void take_some(const T* in, std::int64_t places, const Lines& form, T* out) {
  using Take = void (*)(const T*, const Lines&, T*);
  constexpr std::int64_t kAtOnce = 5;
  static constexpr Take kFirst[] = {take_maxima<numbers, T, false, 1>, take_maxima<numbers, T, false, 2>,
                                    take_maxima<numbers, T, false, 3>, take_maxima<numbers, T, false, 4>,
                                    take_maxima<numbers, T, false, 5>};
  static constexpr Take kMore[] = {take_maxima<numbers, T, true, 1>, take_maxima<numbers, T, true, 2>,
                                   take_maxima<numbers, T, true, 3>, take_maxima<numbers, T, true, 4>,
                                   take_maxima<numbers, T, true, 5>};
  for (std::int64_t k = 0; k < places; k += kAtOnce) {
    const std::int64_t now = std::min(kAtOnce, places - k);
    (k == 0 ? kFirst : kMore)[now - 1](in + k * form.place, form, out);
  }
}

template <typename T>
void take_all(const T* in, std::int64_t places, const Lines& form, bool numbers, T* out) {
  if constexpr (std::is_integral_v<T>)
    take_some<true>(in, places, form, out);
  else
    numbers ? take_some<true>(in, places, form, out) : take_some<false>(in, places, form, out);
}

/// larger(out, a, b, count): the maxima of two.
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
        larger_(larger) {
    for (std::int64_t x = 0; x < out_[1]; ++x)
      if (const ops::OutputRange inside = places(1, x); inside.end - inside.begin == kernel_[1]) {
        first_ = std::min(first_, x);
        last_ = x + 1;
      }
    first_ = std::min(first_, last_);
  }

  std::string name() const override { return "maxima of windows"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    // Neighbors share maxima of rows, which are to stay in the second-level cache. Blocks change no bit.
    constexpr std::int64_t kElements = 1 << 16, kWork = 1 << 14;
    const std::int64_t row = out_[1] * channels_, threads = num_threads();
    const std::int64_t most = std::max(2 * kernel_[0], kElements / row), least = kWork / (row * kernel_[1]) + 1;
    const std::int64_t rows = std::clamp((out_[0] + threads - 1) / threads, std::min(least, most), most);
    const std::int64_t blocks = (out_[0] + rows - 1) / rows;
    parallel_each(batch_ * blocks, 1, [&](std::int64_t task) {
      const std::int64_t image = task / blocks, first = task % blocks * rows;
      pool(inputs[0]->data<T>() + image * in_[0] * in_[1] * channels_, first, std::min(first + rows, out_[0]),
           outputs[0]->data<T>() + image * out_[0] * row);
    });
  }

 private:
  /// Of the window of output `at` along a dimension, those inside of the image.
  ops::OutputRange places(std::size_t d, std::int64_t at) const {
    return ops::valid_outputs(kernel_[d], in_[d], dilations_[d], at * strides_[d] - pads_[d]);
  }

  static bool has_numbers(const T* in, std::int64_t count) {
    if constexpr (std::is_integral_v<T>)
      return true;
    else
      return !any_nan(in, count);
  }

  /// Output rows [first, last) of an image.
  void pool(const T* image, std::int64_t first, std::int64_t last, T* out) const {
    if (kernel_[0] <= strides_[0]) return pool_apart(image, first, last, out);
    const std::int64_t row = out_[1] * channels_;
    const std::int64_t begin = std::clamp<std::int64_t>(first * strides_[0] - pads_[0], 0, in_[0]);
    const std::int64_t reach = (last - 1) * strides_[0] - pads_[0] + (kernel_[0] - 1) * dilations_[0] + 1;
    const std::int64_t end = std::clamp(reach, begin, in_[0]);
    const bool numbers = has_numbers(image + begin * in_[1] * channels_, (end - begin) * in_[1] * channels_);
    thread_local ThreadMemory memory;
    const std::size_t bytes = static_cast<std::size_t>((end - begin) * row) * sizeof(T);
    T* const maxima = reinterpret_cast<T*>(memory.floats(bytes / sizeof(float) + 1));
    for (std::int64_t y = begin; y < end; ++y)
      take_row(image + y * in_[1] * channels_, numbers, maxima + (y - begin) * row);
    for (std::int64_t y = first; y < last; ++y) {
      const ops::OutputRange inside = places(0, y);
      const std::int64_t at = y * strides_[0] - pads_[0] + inside.begin * dilations_[0] - begin;
      if (inside.begin >= inside.end)
        std::fill_n(out + y * row, row, least_);
      else
        take_all(maxima + at * row, inside.end - inside.begin, {1, row, dilations_[0] * row, 0, 0}, numbers,
                 out + y * row);
    }
  }

  /// The same where no two windows read the same row: place by place of each.
  void pool_apart(const T* image, std::int64_t first, std::int64_t last, T* out) const {
    for (std::int64_t y = first; y < last; ++y)
      for (std::int64_t x = 0; x < out_[1]; ++x) pool_window(image, y, x, out + (y * out_[1] + x) * channels_);
  }
  void pool_window(const T* image, std::int64_t y, std::int64_t x, T* out) const {
    const ops::OutputRange rows = places(0, y), columns = places(1, x);
    const T* before = nullptr;
    for (std::int64_t ky = rows.begin; ky < rows.end; ++ky)
      for (std::int64_t kx = columns.begin; kx < columns.end; ++kx) {
        const std::int64_t iy = y * strides_[0] - pads_[0] + ky * dilations_[0];
        const std::int64_t ix = x * strides_[1] - pads_[1] + kx * dilations_[1];
        const T* const source = image + (iy * in_[1] + ix) * channels_;
        if (before != nullptr) larger_(out, before, source, channels_);
        before = before == nullptr ? source : out;
      }
    if (before == nullptr) std::fill_n(out, channels_, least_);
    if (before != nullptr && before != out) std::copy_n(before, channels_, out);
  }

  /// The maxima along a row of the image: windows that reach out of it, and all others at once.
  void take_row(const T* row, bool numbers, T* out) const {
    const auto take = [&](std::int64_t x, std::int64_t lines) {
      const ops::OutputRange inside = places(1, x);
      const std::int64_t step = strides_[1] * channels_, count = inside.end - inside.begin;
      if (count <= 0) return static_cast<void>(std::fill_n(out + x * channels_, channels_, least_));
      Lines form{lines, channels_, dilations_[1] * channels_, step, channels_};
      if (step == channels_) form = {1, lines * channels_, form.place, 0, 0};
      take_all(row + x * step + (inside.begin * dilations_[1] - pads_[1]) * channels_, count, form, numbers,
               out + x * channels_);
    };
    for (std::int64_t x = 0; x < first_; ++x) take(x, 1);
    if (first_ < last_) take(first_, last_ - first_);
    for (std::int64_t x = last_; x < out_[1]; ++x) take(x, 1);
  }

  const std::int64_t batch_, channels_;
  const Pair in_, out_, kernel_, strides_, dilations_, pads_;
  const T least_;
  const Larger larger_;
  std::int64_t first_ = std::numeric_limits<std::int64_t>::max(), last_ = 0;  ///< Whose windows are inside of a row.
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
