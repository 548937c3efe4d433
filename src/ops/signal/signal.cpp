// Fourier transforms, and the windows and filters that go with them.
#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "core/parallel.h"
#include "core/vector_clones.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

struct LineValues;

/// Discrete Fourier transforms of one length, in float64. The forward transform is not normalized, the inverse is
/// divided by the length. Thread-safe.
class FourierTransform {
 public:
  using Values = std::vector<std::complex<double>>;
  explicit FourierTransform(std::int64_t length);
  /// values has `length` elements.
  void forward(Values& values) const { transform(values, 1, false); }
  void inverse(Values& values) const;
  /// Some at a time, with the same bits where all of them are finite. The inverse is not divided.
  void transform_lines(const LineValues& from, LineValues& to, bool inverse) const;

 private:
  /// Transforms `values` whose twiddle factors are every `step`-th of roots_.
  void transform(Values& values, std::size_t step, bool conjugate) const;
  Values roots_;  ///< exp(-2 pi i k / length).
};

FourierTransform::FourierTransform(std::int64_t length) {
  for (std::int64_t k = 0; k < length; ++k)
    roots_.push_back(std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(length)));
}

void FourierTransform::inverse(Values& values) const {
  transform(values, 1, true);
  for (auto& value : values) value /= static_cast<double>(values.size());
}

void FourierTransform::transform(Values& values, std::size_t step, bool conjugate) const {
  const std::size_t n = values.size();
  const auto root = [&](std::size_t k) {
    const std::complex<double> r = roots_[k % n * step];
    return conjugate ? std::conj(r) : r;
  };
  if (n <= 1) return;
  if (n % 2 == 0) {  // Cooley and Tukey's step
    Values even(n / 2), odd(n / 2);
    for (std::size_t i = 0; i < n / 2; ++i) {
      even[i] = values[2 * i];
      odd[i] = values[2 * i + 1];
    }
    transform(even, 2 * step, conjugate);
    transform(odd, 2 * step, conjugate);
    for (std::size_t k = 0; k < n / 2; ++k) {
      const std::complex<double> turned = root(k) * odd[k];
      values[k] = even[k] + turned;
      values[k + n / 2] = even[k] - turned;
    }
    return;
  }
  Values sums(n);
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t i = 0; i < n; ++i) sums[k] += values[i] * root(k * i);
  values.swap(sums);
}

constexpr std::size_t kLines = 8;  ///< Transforms side by side, an element each.
/// `count` elements of kLines lines, real and imaginary parts.
struct LineValues {
  explicit LineValues(std::size_t count) : real(count * kLines), imaginary(count * kLines) {}
  std::vector<double> real, imaginary;
};

/// even + root * odd, and even - root * odd, for the first half and the second half of `size` elements of lines;
/// roots are `step` apart.
ULPSCOPE_VECTOR_CLONES void combine_halves(double* real, double* imaginary, std::size_t size,
                                           const std::complex<double>* roots, std::size_t step, double sign) {
  const std::size_t half = size / 2 * kLines;
  for (std::size_t k = 0; k < half; k += kLines) {
    const double a = roots[k / kLines * step].real(), b = sign * roots[k / kLines * step].imag();
    for (std::size_t j = k; j < k + kLines; ++j) {
      const double x = real[j + half], y = imaginary[j + half];
      const double turned = a * x - b * y, other = a * y + b * x;
      const double even = real[j], even_other = imaginary[j];
      real[j] = even + turned;
      imaginary[j] = even_other + other;
      real[j + half] = even - turned;
      imaginary[j + half] = even_other - other;
    }
  }
}

/// sums[k] = the sum over i of values[i * stride] * root(k i), of `size` elements of lines.
ULPSCOPE_VECTOR_CLONES void transform_directly(const double* real, const double* imaginary, std::size_t stride,
                                               std::size_t size, const std::complex<double>* roots, std::size_t step,
                                               double sign, double* to, double* to_imaginary) {
  for (std::size_t k = 0; k < size; ++k) {
    double sums[kLines] = {}, others[kLines] = {};
    for (std::size_t i = 0; i < size; ++i) {
      const double a = roots[k * i % size * step].real(), b = sign * roots[k * i % size * step].imag();
      for (std::size_t j = 0; j < kLines; ++j) {
        const double x = real[i * stride * kLines + j], y = imaginary[i * stride * kLines + j];
        sums[j] += x * a - y * b;
        others[j] += x * b + y * a;
      }
    }
    for (std::size_t j = 0; j < kLines; ++j) {
      to[k * kLines + j] = sums[j];
      to_imaginary[k * kLines + j] = others[j];
    }
  }
}

void FourierTransform::transform_lines(const LineValues& from, LineValues& to, bool inverse) const {
  const std::size_t n = roots_.size();
  std::size_t blocks = 1;
  while (n / blocks % 2 == 0) blocks *= 2;
  const std::size_t leaf = n / blocks;
  const double sign = inverse ? -1 : 1;
  for (std::size_t block = 0; block < blocks; ++block) {
    // Which elements halves of halves leave: the bits of the block's number from the other end.
    std::size_t first = 0;
    for (std::size_t bit = 1; bit < blocks; bit *= 2) first = 2 * first + (block / bit % 2);
    const std::size_t at = block * leaf * kLines, source = first * kLines;
    if (leaf == 1) {
      std::copy_n(from.real.data() + source, kLines, to.real.data() + at);
      std::copy_n(from.imaginary.data() + source, kLines, to.imaginary.data() + at);
    } else {
      transform_directly(from.real.data() + source, from.imaginary.data() + source, blocks, leaf, roots_.data(), blocks,
                         sign, to.real.data() + at, to.imaginary.data() + at);
    }
  }
  for (std::size_t size = 2 * leaf; size <= n; size *= 2)
    for (std::size_t at = 0; at < n; at += size)
      combine_halves(to.real.data() + at * kLines, to.imaginary.data() + at * kLines, size, roots_.data(), n / size,
                     sign);
}

/// Transforms of `count` lines: read(line, values) fills one, write(line, values) takes its transform.
template <typename Read, typename Write>
void transform_all(const FourierTransform& transform, std::int64_t length, std::int64_t count, bool inverse,
                   const Read& read, const Write& write) {
  const auto n = static_cast<std::size_t>(length);
  parallel_for(count, kLines, [&](std::int64_t begin, std::int64_t end) {
    LineValues lines(n), results(n);
    FourierTransform::Values values;
    for (std::int64_t line = begin; line < end; ++line) {
      values.assign(n, {});
      read(line, values);
      for (std::size_t i = 0; i < n; ++i) {
        lines.real[i * kLines + static_cast<std::size_t>(line - begin)] = values[i].real();
        lines.imaginary[i * kLines + static_cast<std::size_t>(line - begin)] = values[i].imag();
      }
    }
    transform.transform_lines(lines, results, inverse);
    for (std::int64_t line = begin; line < end; ++line) {
      const auto at = static_cast<std::size_t>(line - begin);
      bool finite = true;
      for (std::size_t i = 0; i < n; ++i) {
        values[i] = {results.real[i * kLines + at], results.imaginary[i * kLines + at]};
        finite &= std::isfinite(values[i].real()) && std::isfinite(values[i].imag());
        if (inverse) values[i] /= static_cast<double>(n);
      }
      if (!finite) {  // Products of complex numbers with infinities have rules of their own.
        values.assign(n, {});
        read(line, values);
        inverse ? transform.inverse(values) : transform.forward(values);
      }
      write(line, values);
    }
  });
}

struct DftPlan {
  std::int64_t axis = 0, length = 0;
  bool inverse = false, onesided = false;
  Shape output;
};

// Inputs: input (d..., 1 or 2), dft_length, axis (opset 20; an attribute before).
template <typename Context>
DftPlan dft_plan(const Context& ctx) {
  const Shape& x = shape_of(ctx, 0);
  const std::int64_t rank = static_cast<std::int64_t>(x.size());
  if (rank < 2 || (x.back() != 1 && x.back() != 2))
    ctx.fail("expected an input (..., 1) or (..., 2), got shape {}", to_string(x));
  DftPlan p;
  p.inverse = ctx.attributes().integer("inverse", 0) != 0;
  p.onesided = ctx.attributes().integer("onesided", 0) != 0;
  const std::int64_t default_axis = ctx.opset() < 20 ? 1 : -2;
  p.axis = ctx.has_input(2) ? single_integer(ctx, 2) : ctx.attributes().integer("axis", default_axis);
  p.axis = normalize_axis(ctx, p.axis, rank);
  if (p.axis == rank - 1) ctx.fail("the last axis holds the real and the imaginary part; it cannot be transformed");
  if (p.onesided && !p.inverse && x.back() != 1) ctx.fail("a one-sided transform needs a real input");
  const std::int64_t size = x[static_cast<std::size_t>(p.axis)];
  p.length = ctx.has_input(1) ? single_integer(ctx, 1) : p.inverse && p.onesided ? 2 * (size - 1) : size;
  p.output = x;
  p.output[static_cast<std::size_t>(p.axis)] = p.onesided && !p.inverse ? p.length / 2 + 1 : p.length;
  p.output.back() = p.onesided && p.inverse ? 1 : 2;
  const bool empty = p.length == 0 && num_elements(p.output) == 0;
  if (p.length < 1 && !empty) ctx.fail("expected a length >= 1, got {}", p.length);
  return p;
}

void infer_dft(InferContext& ctx) {
  ctx.set_shape(0, dft_plan(ctx).output);
}

void run_dft(KernelContext& ctx) {
  const DftPlan p = dft_plan(ctx);
  if (p.length == 0) return;
  const Shape& x = ctx.input(0).shape();
  const auto axis = static_cast<std::size_t>(p.axis);
  const std::int64_t in_parts = x.back(), out_parts = p.output.back();
  const std::int64_t outer = product(x, 0, axis), inner = product(x, axis + 1, x.size() - 1);
  const std::int64_t in_size = x[axis], out_size = p.output[axis];
  const FourierTransform transform(p.length);
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&]<typename T>(T) {
    const T* in = ctx.input(0).data<T>();
    T* out = ctx.output(0).data<T>();
    const auto read = [&](std::int64_t line, FourierTransform::Values& values) {
      for (std::int64_t k = 0; k < std::min(in_size, p.length); ++k) {
        const T* at = in + ((line / inner * in_size + k) * inner + line % inner) * in_parts;
        values[static_cast<std::size_t>(k)] = {at[0], in_parts == 2 ? at[1] : T{}};
      }
      if (p.inverse && p.onesided)  // The other half mirrors the first one.
        for (std::int64_t k = p.length / 2 + 1; k < p.length; ++k)
          values[static_cast<std::size_t>(k)] = std::conj(values[static_cast<std::size_t>(p.length - k)]);
    };
    const auto write = [&](std::int64_t line, const FourierTransform::Values& values) {
      for (std::int64_t k = 0; k < out_size; ++k) {
        T* at = out + ((line / inner * out_size + k) * inner + line % inner) * out_parts;
        at[0] = static_cast<T>(values[static_cast<std::size_t>(k)].real());
        if (out_parts == 2) at[1] = static_cast<T>(values[static_cast<std::size_t>(k)].imag());
      }
    };
    transform_all(transform, p.length, outer * inner, p.inverse, read, write);
  });
}

struct StftPlan {
  std::int64_t signal = 0, parts = 1, step = 0, length = 0, frames = 0, bins = 0;
  Shape output;
};

// Inputs: signal (batch..., length, 1 or 2), or (batch, length) as ONNX Runtime takes it; frame_step, window,
// frame_length.
template <typename Context>
StftPlan stft_plan(const Context& ctx) {
  const Shape& x = shape_of(ctx, 0);
  if (x.size() < 2 || (x.size() > 2 && x.back() != 1 && x.back() != 2))
    ctx.fail("expected a signal (batch, length) or (batch, length, 1 or 2), got shape {}", to_string(x));
  StftPlan p;
  p.output = x;
  if (x.size() > 2) {
    p.parts = x.back();
    p.output.pop_back();
  }
  p.signal = p.output.back();
  p.output.pop_back();
  p.step = single_integer(ctx, 1);
  p.length = p.signal;
  if (ctx.has_input(3))
    p.length = single_integer(ctx, 3);
  else if (ctx.has_input(2))
    p.length = num_elements(shape_of(ctx, 2));
  if (p.step < 1 || p.length < 1 || p.length > p.signal)
    ctx.fail("frames of {} elements every {} do not fit a signal of {}", p.length, p.step, p.signal);
  if (ctx.has_input(2) && shape_of(ctx, 2) != Shape{p.length})
    ctx.fail("expected a window of {} elements, got shape {}", p.length, to_string(shape_of(ctx, 2)));
  p.frames = (p.signal - p.length) / p.step + 1;
  const bool onesided = ctx.attributes().integer("onesided", 1) != 0;
  if (onesided && p.parts == 2) ctx.fail("a one-sided transform needs a real signal; try onesided = 0");
  p.bins = onesided ? p.length / 2 + 1 : p.length;
  p.output.insert(p.output.end(), {p.frames, p.bins, 2});
  return p;
}

void infer_stft(InferContext& ctx) {
  require_type_of_first(ctx, {2});
  ctx.set_shape(0, stft_plan(ctx).output);
}

void run_stft(KernelContext& ctx) {
  const StftPlan p = stft_plan(ctx);
  const FourierTransform transform(p.length);
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&]<typename T>(T) {
    const T* signal = ctx.input(0).data<T>();
    const T* window = ctx.has_input(2) ? ctx.input(2).data<T>() : nullptr;
    T* out = ctx.output(0).data<T>();
    const auto read = [&](std::int64_t frame, FourierTransform::Values& values) {
      const T* start = signal + (frame / p.frames * p.signal + frame % p.frames * p.step) * p.parts;
      for (std::int64_t i = 0; i < p.length; ++i) {
        const double weight = window ? window[i] : 1;
        values[static_cast<std::size_t>(i)] = {weight * start[i * p.parts],
                                               p.parts == 2 ? weight * start[i * 2 + 1] : 0};
      }
    };
    const auto write = [&](std::int64_t frame, const FourierTransform::Values& values) {
      for (std::int64_t k = 0; k < p.bins; ++k) {
        out[(frame * p.bins + k) * 2] = static_cast<T>(values[static_cast<std::size_t>(k)].real());
        out[(frame * p.bins + k) * 2 + 1] = static_cast<T>(values[static_cast<std::size_t>(k)].imag());
      }
    };
    transform_all(transform, p.length, num_elements(p.output) / (p.bins * 2), false, read, write);
  });
}

// Inputs: num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz.
void infer_mel_weight_matrix(InferContext& ctx) {
  ctx.set_type(0, data_type_from_onnx(ctx.layer(), ctx.attributes().integer("output_datatype", 1)));
  const std::int64_t bins = single_integer(ctx, 0), length = single_integer(ctx, 1);
  if (bins < 0 || length < 0) ctx.fail("expected sizes >= 0, got {} and {}", bins, length);
  ctx.set_shape(0, {length / 2 + 1, bins});
}

double number(const KernelContext& ctx, int i) {
  if (ctx.input(i).size() != 1) ctx.fail("expected one element as input {}", i);
  return *ctx.input(i).cast(DataType::kFloat64).data<double>();
}

void run_mel_weight_matrix(KernelContext& ctx) {
  const std::int64_t bins = single_integer(ctx, 0), length = single_integer(ctx, 1), rows = length / 2 + 1;
  const double rate = number(ctx, 2);
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double low = mel(number(ctx, 3)), step = (mel(number(ctx, 4)) - low) / static_cast<double>(bins + 2);
  std::vector<std::int64_t> edges;  // In DFT bins; filter i rises from edge i to i + 1 and falls to i + 2.
  for (std::int64_t i = 0; i < bins + 2; ++i) {
    const double hertz = 700 * (std::pow(10, (low + static_cast<double>(i) * step) / 2595) - 1);
    edges.push_back(to_index(std::floor(static_cast<double>(length + 1) * hertz / rate)));
    if (!(rate > 0) || edges.back() < 0 || edges.back() > rows)
      ctx.fail("the edges in hertz are outside of the spectrum; try an upper edge of at most half of the sample rate");
  }
  Tensor matrix(DataType::kFloat64, {rows, bins});
  double* out = matrix.data<double>();
  std::fill(out, out + matrix.size(), 0.0);
  for (std::int64_t i = 0; i < bins; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t start = edges[at], peak = edges[at + 1], stop = edges[at + 2];
    const auto set = [&](std::int64_t row, double value) {
      if (row < rows) out[row * bins + i] = value;
    };
    if (peak == start)
      set(peak, 1);
    else
      for (std::int64_t j = start; j <= peak; ++j)
        set(j, static_cast<double>(j - start) / static_cast<double>(peak - start));
    for (std::int64_t j = peak; j < stop; ++j) set(j, static_cast<double>(stop - j) / static_cast<double>(stop - peak));
  }
  ctx.set_output(0, matrix.cast(physical_type(ctx.output_type(0))));
}

void infer_window(InferContext& ctx) {
  ctx.set_type(0, data_type_from_onnx(ctx.layer(), ctx.attributes().integer("output_datatype", 1)));
  const std::int64_t size = single_integer(ctx, 0);
  if (size < 0) ctx.fail("expected a size >= 0, got {}", size);
  ctx.set_shape(0, {size});
}

/// a0 + a1 cos(2 pi n / N) + a2 cos(4 pi n / N).
void run_window(KernelContext& ctx, double a0, double a1, double a2) {
  const std::int64_t size = single_integer(ctx, 0);
  const std::int64_t period = ctx.attributes().integer("periodic", 1) != 0 ? size : size - 1;
  Tensor window(DataType::kFloat64, {size});
  double* values = window.data<double>();
  for (std::int64_t i = 0; i < size; ++i) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(period);
    values[i] = period <= 0 ? 1 : a0 + a1 * std::cos(angle) + a2 * std::cos(2 * angle);
  }
  ctx.set_output(0, window.cast(physical_type(ctx.output_type(0))));
}

OpDef window(std::string_view name, void (*run)(KernelContext&)) {
  return {.name = name,
          .since_version = 17,
          .types = {kIndices},
          .precision = PrecisionRule::kFixed,
          .weights = 0b1,
          .infer = infer_window,
          .run = run};
}

}  // namespace

OpTable signal() {
  return {
      // DFT, ai.onnx 17, 20: the discrete Fourier transform along one axis.
      make_op({.name = "DFT", .since_version = 17, .inputs = {1, 3}, .types = {kFloats, kIndices}, .weights = 0b110},
              infer_dft, run_dft),
      // STFT, ai.onnx 17: Fourier transforms of overlapping, windowed frames of a signal.
      make_op({.name = "STFT",
               .since_version = 17,
               .inputs = {2, 4},
               .types = {kFloats, kIndices, kFloats, kIndices},
               .weights = 0b1110},
              infer_stft, run_stft),
      // MelWeightMatrix, ai.onnx 17: triangular filters on the mel scale, for the bins of a one-sided DFT.
      fixed_op({.name = "MelWeightMatrix",
                .since_version = 17,
                .inputs = {5, 5},
                .types = {kIndices, kIndices, kIndices, kFloats},
                .weights = 0b11111},
               infer_mel_weight_matrix, run_mel_weight_matrix),
      // BlackmanWindow, ai.onnx 17.
      window("BlackmanWindow", [](KernelContext& ctx) { run_window(ctx, 0.42, -0.5, 0.08); }),
      // HammingWindow, ai.onnx 17.
      window("HammingWindow", [](KernelContext& ctx) { run_window(ctx, 25.0 / 46, -21.0 / 46, 0); }),
      // HannWindow, ai.onnx 17.
      window("HannWindow", [](KernelContext& ctx) { run_window(ctx, 0.5, -0.5, 0); }),
  };
}

}  // namespace ulpscope::ops
