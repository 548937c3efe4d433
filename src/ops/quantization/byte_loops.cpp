#include "ops/quantization/byte_loops.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/instruction_set.h"
#include "core/parallel.h"
#include "core/vector_clones.h"
#include "ops/common.h"

// As ULPSCOPE_VECTOR_CLONES, where a function fuses multiplications and additions, which "avx2" alone does not.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define ULPSCOPE_FUSED_LOOPS
#endif

namespace ulpscope::ops {
namespace {

using Index = std::int64_t;

constexpr Index kBytesPerTask = 1 << 15;

struct ByteLimits {
  float low, high;
};
ByteLimits limits_of(ByteSign sign) { return sign == ByteSign::kSigned ? ByteLimits{-128, 127} : ByteLimits{0, 255}; }

/// ByteArithmetic as numbers: a * ratio_a + (b * ratio_b + fixed), or (a - zero_a) * (b - zero_b) * ratio_a + fixed.
struct ByteNumbers {
  float ratio_a, ratio_b, fixed, zero_a, zero_b;
  ByteLimits limits;
};

ByteNumbers numbers_of(const ByteArithmetic& form) {
  ByteNumbers n{};
  n.limits = limits_of(form.sign);
  n.zero_a = static_cast<float>(form.a.zero);
  n.zero_b = static_cast<float>(form.b.zero);
  const auto zero = static_cast<float>(form.out.zero);
  if (form.multiplies) {
    n.ratio_a = form.a.scale * form.b.scale / form.out.scale;
    n.fixed = zero;
  } else {
    n.ratio_a = form.a.scale / form.out.scale;
    n.ratio_b = form.b.scale / form.out.scale;
    n.fixed = zero - std::fma(n.ratio_a, n.zero_a, n.ratio_b * n.zero_b);
  }
  return n;
}

constexpr float kRound = 0x1.8p23F;  // What is added to it loses its fraction, ties to even.

template <bool multiplies, typename T, Index step_a, Index step_b>
[[gnu::always_inline]] inline void arithmetic_loop(const ByteNumbers& n, const T* a, const T* b, T* out, Index count) {
  for (Index i = 0; i < count; ++i) {
    const auto x = static_cast<float>(a[i * step_a]), y = static_cast<float>(b[i * step_b]);
    float value = multiplies ? (x - n.zero_a) * (y - n.zero_b) * n.ratio_a + n.fixed
                             : __builtin_fmaf(x, n.ratio_a, __builtin_fmaf(y, n.ratio_b, n.fixed));
    value = value > n.limits.low ? value : n.limits.low;
    value = value < n.limits.high ? value : n.limits.high;
    out[i] = static_cast<T>(static_cast<std::int32_t>(value + kRound - kRound));
  }
}

template <bool multiplies, typename T, Index step_a, Index step_b>
using ArithmeticLoop = void (*)(const ByteNumbers&, const T*, const T*, T*, Index);

template <bool multiplies, typename T, Index step_a, Index step_b>
void arithmetic_plainly(const ByteNumbers& n, const T* a, const T* b, T* out, Index count) {
  arithmetic_loop<multiplies, T, step_a, step_b>(n, a, b, out, count);
}

#if defined(__x86_64__) && defined(ULPSCOPE_FUSED_LOOPS)
template <bool multiplies, typename T, Index step_a, Index step_b>
[[gnu::target("avx2,fma"), gnu::optimize("O3", "fp-contract=off")]] void arithmetic_avx2(const ByteNumbers& n,
                                                                                         const T* a, const T* b, T* out,
                                                                                         Index count) {
  arithmetic_loop<multiplies, T, step_a, step_b>(n, a, b, out, count);
}
template <bool multiplies, typename T, Index step_a, Index step_b>
[[gnu::target("avx512f,avx512bw,avx512vl,fma"), gnu::optimize("O3", "fp-contract=off")]] void arithmetic_avx512(
    const ByteNumbers& n, const T* a, const T* b, T* out, Index count) {
  arithmetic_loop<multiplies, T, step_a, step_b>(n, a, b, out, count);
}
#endif

template <bool multiplies, typename T, Index step_a, Index step_b>
ArithmeticLoop<multiplies, T, step_a, step_b> arithmetic_function() {
#if defined(__x86_64__) && defined(ULPSCOPE_FUSED_LOOPS)
  if (instruction_set() >= InstructionSet::kAvx512) return arithmetic_avx512<multiplies, T, step_a, step_b>;
  if (instruction_set() >= InstructionSet::kAvx2) return arithmetic_avx2<multiplies, T, step_a, step_b>;
#endif
  return arithmetic_plainly<multiplies, T, step_a, step_b>;
}

/// An operand is 1 or 0 elements apart along the run.
template <bool multiplies, typename T>
auto arithmetic_function(Index step_a, Index step_b) {
  if (step_a == 0) return arithmetic_function<multiplies, T, 0, 1>();
  return step_b == 0 ? arithmetic_function<multiplies, T, 1, 0>() : arithmetic_function<multiplies, T, 1, 1>();
}

/// The dimensions from which on an operand lies as the result does, or is one element.
bool is_run(const std::vector<Index>& strides, const Shape& shape, std::size_t first) {
  Index dense = 1;
  bool as_result = true, single = true;
  for (std::size_t d = shape.size(); d-- > first; dense *= shape[d]) {
    if (shape[d] == 1) continue;
    as_result &= strides[d] == dense;
    single &= strides[d] == 0;
  }
  return as_result || single;
}

template <bool multiplies, typename T>
void run_arithmetic(const ByteNumbers& n, const T* a, const std::vector<Index>& a_strides, const T* b,
                    const std::vector<Index>& b_strides, T* out, const Shape& shape) {
  std::size_t first = shape.size();
  while (first > 0 && is_run(a_strides, shape, first - 1) && is_run(b_strides, shape, first - 1)) --first;
  const Index length = product(shape, first, shape.size()), outer = product(shape, 0, first);
  if (length == 0 || outer == 0) return;
  Index step_a = 0, step_b = 0;
  for (std::size_t d = first; d < shape.size(); ++d) {
    if (a_strides[d] != 0) step_a = 1;
    if (b_strides[d] != 0) step_b = 1;
  }
  if (step_a == 0 && step_b == 0) step_a = step_b = length == 1 ? 1 : 0;
  const auto function = arithmetic_function<multiplies, T>(step_a, step_b);
  const Index pieces = std::max<Index>(1, length / kBytesPerTask), each = (length + pieces - 1) / pieces;
  parallel_for(outer * pieces, items_per_task(outer * pieces, each), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const Index from = i % pieces * each, count = std::min(each, length - from);
      Index at_a = step_a * from, at_b = step_b * from, rest = i / pieces;
      for (std::size_t d = first; d-- > 0; rest /= shape[d]) {
        at_a += rest % shape[d] * a_strides[d];
        at_b += rest % shape[d] * b_strides[d];
      }
      if (count > 0) function(n, a + at_a, b + at_b, out + i / pieces * length + from, count);
    }
  });
}

ULPSCOPE_VECTOR_CLONES void add_unsigned(std::int32_t* sums, const std::uint8_t* in, Index count) {
  for (Index i = 0; i < count; ++i) sums[i] += in[i];
}
ULPSCOPE_VECTOR_CLONES std::int32_t sum_unsigned(const std::uint8_t* in, Index count, std::uint8_t flip) {
  std::int32_t sum = 0;
  for (Index i = 0; i < count; ++i) sum += static_cast<std::uint8_t>(in[i] ^ flip);
  return sum;
}
ULPSCOPE_VECTOR_CLONES void flip_and_add(std::int32_t* sums, const std::uint8_t* in, Index count) {
  for (Index i = 0; i < count; ++i) sums[i] += in[i] ^ 0x80;
}

template <typename T>
ULPSCOPE_VECTOR_CLONES void add_reals(float* sums, const T* in, Index count, float scale, std::int32_t zero) {
  for (Index i = 0; i < count; ++i) sums[i] += scale * static_cast<float>(in[i] - zero);
}
template <typename T>
ULPSCOPE_VECTOR_CLONES void means_to_bytes(const float* sums, Index count, float elements, float scale, float zero,
                                           float low, float high, T* out) {
  for (Index i = 0; i < count; ++i) {
    float value = sums[i] / elements / scale + zero;
    value = value > low ? value : low;
    value = value < high ? value : high;
    out[i] = static_cast<T>(static_cast<std::int32_t>(value + kRound - kRound));
  }
}

/// Some channels of one output, from the first one's bytes on.
template <typename T>
void average_window(const ByteWindows& form, const ByteScale& in_scale, const ByteScale& out_scale, const T* image,
                    Index place, Index stride, Index count, T* out) {
  constexpr Index kChannels = 128;
  float sums[kChannels];
  const Window3& w = form.windows;
  Window3::Triple at{place / (w.output[1] * w.output[2]), place / w.output[2] % w.output[1], place % w.output[2]};
  OutputRange inside[3];
  for (std::size_t d = 0; d < 3; ++d) {
    at[d] = at[d] * w.strides[d] - w.pads_begin[d];
    inside[d] = valid_outputs(w.kernel[d], w.input[d], w.dilations[d], at[d]);
  }
  Index elements = Window3::volume(w.kernel);
  if (!form.include_pad)
    elements =
        (inside[0].end - inside[0].begin) * (inside[1].end - inside[1].begin) * (inside[2].end - inside[2].begin);
  const ByteSign sign = std::is_signed_v<T> ? ByteSign::kSigned : ByteSign::kUnsigned;
  const auto [low, high] = limits_of(sign);
  for (Index first = 0; first < count; first += kChannels) {
    const Index some = std::min(kChannels, count - first);
    std::fill_n(sums, some, 0.0F);
    for (Index z = inside[0].begin; z < inside[0].end; ++z)
      for (Index y = inside[1].begin; y < inside[1].end; ++y)
        for (Index x = inside[2].begin; x < inside[2].end; ++x) {
          const Index row = (at[0] + z * w.dilations[0]) * w.input[1] + at[1] + y * w.dilations[1];
          add_reals(sums, image + (row * w.input[2] + at[2] + x * w.dilations[2]) * stride + first, some,
                    in_scale.scale, in_scale.zero);
        }
    means_to_bytes(sums, some, static_cast<float>(std::max<Index>(1, elements)), out_scale.scale,
                   static_cast<float>(out_scale.zero), low, high, out + first);
  }
}

}  // namespace

std::int32_t nearest_byte(float ratio, std::int32_t zero, ByteSign sign) {
  const auto [low, high] = limits_of(sign);
  const float value = ratio + static_cast<float>(zero);
  return static_cast<std::int32_t>(std::nearbyint(value > low ? std::min(value, high) : low));
}

std::int32_t requantized(std::int32_t sum, float scale, std::int32_t zero, ByteSign sign) {
  float value = static_cast<float>(sum) * scale;
  if (value != value) value = 0;
  return nearest_byte(std::nearbyint(value), zero, sign);
}

void run_byte_arithmetic(const ByteArithmetic& form, const void* a, const Shape& a_shape, const void* b,
                         const Shape& b_shape, void* out, const Shape& out_shape) {
  const ByteNumbers n = numbers_of(form);
  const auto a_strides = broadcast_strides(a_shape, out_shape), b_strides = broadcast_strides(b_shape, out_shape);
  const auto run = [&]<typename T>(T) {
    const auto typed = [&](auto function) {
      function(n, static_cast<const T*>(a), a_strides, static_cast<const T*>(b), b_strides, static_cast<T*>(out),
               out_shape);
    };
    form.multiplies ? typed(run_arithmetic<true, T>) : typed(run_arithmetic<false, T>);
  };
  form.sign == ByteSign::kSigned ? run(std::int8_t{}) : run(std::uint8_t{});
}

void look_up_bytes(const ByteTable& table, const void* in, Index count, void* out) {
  const auto* from = static_cast<const std::uint8_t*>(in);
  auto* to = static_cast<std::uint8_t*>(out);
  parallel_for(count, kBytesPerTask, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) to[i] = table[from[i]];
  });
}

void softmax_bytes(ByteSign sign, float in_scale, const ByteScale& out_scale, const void* in,
                   const std::array<std::int64_t, 3>& sizes, void* out) {
  const auto [outer, size, inner] = sizes;
  if (outer * size * inner == 0) return;
  constexpr double kRoom = 5;  // Powers of e that ONNX Runtime keeps free above the sum.
  const double room = std::log(std::numeric_limits<float>::max() / static_cast<float>(size)) - kRoom;
  const double shift = std::max(0.0, room) / in_scale;
  std::array<float, 256> powers;  // By how far a byte is below the largest one.
  for (int below = 0; below < 256; ++below)
    powers[static_cast<std::size_t>(below)] =
        static_cast<float>(std::exp((shift - below) * static_cast<double>(in_scale)));
  const float ratio = std::floor(1.0F / out_scale.scale);
  const bool is_signed = sign == ByteSign::kSigned;
  // Of one number alone, whose power has no room for the ratio: what x86 makes of infinity as an integer, plus the zero
  // point modulo 2^32, saturated.
  const std::int32_t alone = !is_signed ? out_scale.zero : out_scale.zero < 0 ? 127 : -128;
  parallel_for(outer * inner, std::max<Index>(1, kBytesPerTask / (4 * size)), [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const Index first = row / inner * size * inner + row % inner;
      const auto* from = static_cast<const std::uint8_t*>(in) + first;
      auto* to = static_cast<std::uint8_t*>(out) + first;
      const std::uint8_t flip = is_signed ? 0x80 : 0;
      std::uint8_t largest = 0;
      for (Index i = 0; i < size; ++i) largest = std::max(largest, static_cast<std::uint8_t>(from[i * inner] ^ flip));
      const auto power = [&](Index i) { return powers[static_cast<std::size_t>(largest - (from[i * inner] ^ flip))]; };
      float sum = 0;
      for (Index i = 0; i < size; ++i) sum += power(i);
      for (Index i = 0; i < size; ++i) {
        const float share = std::nearbyint(power(i) * ratio / sum);
        const std::int32_t byte =
            std::fabs(share) < 0x1p31F ? static_cast<std::int32_t>(share) + out_scale.zero : alone;
        to[i * inner] = static_cast<std::uint8_t>(std::min(byte, is_signed ? 127 : 255));
      }
    }
  });
}

void average_bytes(ByteSign sign, const ByteScale& in_scale, const ByteScale& out_scale, const void* in,
                   const std::array<Index, 3>& sizes, bool channels_last, void* out) {
  const auto [batch, channels, positions] = sizes;
  const auto* bytes = static_cast<const std::uint8_t*>(in);
  auto* to = static_cast<std::uint8_t*>(out);
  const std::uint8_t flip = sign == ByteSign::kSigned ? 0x80 : 0;
  const std::int32_t zero = static_cast<std::int32_t>(positions) * (in_scale.zero + flip);
  const float scale = in_scale.scale / (out_scale.scale * static_cast<float>(positions));
  const auto finish = [&](std::int32_t sum) {
    return static_cast<std::uint8_t>(requantized(sum - zero, scale, out_scale.zero, sign));
  };
  if (!channels_last) {
    parallel_each(batch * channels, items_per_task(batch * channels, positions),
                  [&](Index i) { to[i] = finish(sum_unsigned(bytes + i * positions, positions, flip)); });
    return;
  }
  constexpr Index kChannels = 64;
  const Index blocks = (channels + kChannels - 1) / kChannels;
  parallel_each(batch * blocks, items_per_task(batch * blocks, positions * kChannels), [&](Index i) {
    const Index first = i % blocks * kChannels, count = std::min(kChannels, channels - first), image = i / blocks;
    std::int32_t sums[kChannels] = {};
    for (Index p = 0; p < positions; ++p)
      (flip != 0 ? flip_and_add : add_unsigned)(sums, bytes + (image * positions + p) * channels + first, count);
    for (Index c = 0; c < count; ++c) to[image * channels + first + c] = finish(sums[c]);
  });
}

void average_windows(ByteSign sign, const ByteScale& in_scale, const ByteScale& out_scale, const ByteWindows& form,
                     const void* in, bool channels_last, void* out) {
  const Index images = channels_last ? form.batch : form.batch * form.channels;
  const Index channels = channels_last ? form.channels : 1;
  const Index inputs = Window3::volume(form.windows.input) * channels, places = Window3::volume(form.windows.output);
  const auto run = [&]<typename T>(T) {
    const Index work = channels * Window3::volume(form.windows.kernel);
    parallel_each(images * places, items_per_task(images * places, work), [&](Index i) {
      average_window(form, in_scale, out_scale, static_cast<const T*>(in) + i / places * inputs, i % places, channels,
                     channels, static_cast<T*>(out) + i * channels);
    });
  };
  sign == ByteSign::kSigned ? run(std::int8_t{}) : run(std::uint8_t{});
}

void place_bytes(ByteSign sign, const ByteScale& in_scale, const ByteScale& out_scale, const void* in, Index outer,
                 Index width, std::uint8_t* out, Index out_stride) {
  const auto* from = static_cast<const std::uint8_t*>(in);
  const bool same = in_scale == out_scale;
  const ByteTable table =
      same ? ByteTable{} : make_byte_table(sign, in_scale, out_scale, [](float value) { return value; });
  parallel_each(outer, items_per_task(outer, width), [&](Index i) {
    const std::uint8_t* row = from + i * width;
    if (same)
      std::copy_n(row, width, out + i * out_stride);
    else
      std::transform(row, row + width, out + i * out_stride, [&](std::uint8_t byte) { return table[byte]; });
  });
}

}  // namespace ulpscope::ops
