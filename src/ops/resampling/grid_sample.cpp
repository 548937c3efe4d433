// Interpolation at given positions.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/parallel.h"
#include "core/vector_clones.h"
#include "ops/common.h"

namespace ulpscope::ops {
namespace {

enum class Padding { kZeros, kBorder, kReflection };
/// kCubic: Keys' kernel with a = -0.75.
enum class Interpolation { kNearest, kLinear, kCubic };

// Inputs: X (N, C, d...), grid (N, o..., r), whose last dimension counts from the innermost dimension outwards.
void infer_grid_sample(InferContext& ctx) {
  const Shape& x = ctx.shape(0);
  const Shape& grid = ctx.shape(1);
  if (x.size() < 3 || x.size() > 5 || grid.size() != x.size() || grid[0] != x[0] ||
      grid.back() != static_cast<std::int64_t>(x.size()) - 2)
    ctx.fail("a grid of shape {} does not fit an input of shape {}", to_string(grid), to_string(x));
  Shape shape{x[0], x[1]};
  shape.insert(shape.end(), grid.begin() + 1, grid.end() - 1);
  ctx.set_shape(0, std::move(shape));
}

/// Mirrors `x` at the borders until it lies between them.
template <typename T>
T reflect(T x, T low, T high) {
  const T range = high - low;
  if (range <= 0) return low;
  const bool below = x < low;
  if (!below && x <= high) return x;
  const T distance = below ? low - x : x - high;
  const T turns = std::floor(distance / range), rest = distance - turns * range;
  const bool even = std::fmod(turns, T{2}) == 0;
  return even == below ? low + rest : high - rest;
}

/// One dimension of the input, and how positions in it are read.
template <typename T>
struct Dimension {
  std::int64_t size;
  bool align;
  Padding padding;

  T low() const { return align ? T{0} : T(-0.5); }
  T high() const { return static_cast<T>(size) + (align ? T{-1} : T(-0.5)); }

  /// From [-1, 1] to positions of elements.
  T position(T normalized) const {
    return align ? (normalized + 1) / 2 * static_cast<T>(size - 1) : ((normalized + 1) * static_cast<T>(size) - 1) / 2;
  }
  /// Brings a position that is outside of the borders back, where the padding asks for it.
  T bring_in(T x) const {
    if (x >= low() && x <= high()) return x;
    if (padding == Padding::kBorder) return std::clamp(x, T{0}, static_cast<T>(size - 1));
    if (padding == Padding::kReflection) return reflect(x, low(), high());
    return x;
  }
  /// The element at an integral position; -1: a zero.
  std::int64_t element(T i) const {
    if (size == 0 || !(i >= T{-1e18} && i <= T{1e18})) return -1;
    if (padding == Padding::kBorder) i = std::clamp(i, T{0}, static_cast<T>(size - 1));
    if (padding == Padding::kReflection)
      i = std::clamp(std::trunc(reflect(i, low(), high())), T{0}, static_cast<T>(size - 1));
    const auto index = static_cast<std::int64_t>(i);
    return index >= 0 && index < size ? index : -1;
  }
};

/// The elements of one dimension that a position reads, with their weights.
template <typename T>
struct Taps {
  int count = 0;
  std::array<std::int64_t, 4> index{};
  std::array<T, 4> weight{};
  void add(std::int64_t i, T w) {
    index[static_cast<std::size_t>(count)] = i;
    weight[static_cast<std::size_t>(count++)] = w;
  }
};

template <typename T>
Taps<T> taps_of(const Dimension<T>& d, T normalized, Interpolation mode) {
  Taps<T> taps;
  T x = d.position(normalized);
  if (mode == Interpolation::kNearest) {
    taps.add(d.element(d.bring_in(std::nearbyint(x))), 1);
    return taps;
  }
  // kCubic: the padding applies to each element, not to the position.
  if (mode == Interpolation::kLinear) x = d.bring_in(x);
  const T base = std::floor(x), t = x - base;
  if (mode == Interpolation::kLinear) {
    taps.add(d.element(base), 1 - t);
    taps.add(d.element(base + 1), t);
    return taps;
  }
  constexpr T a = T(-0.75);
  const auto inner = [&](T u) { return ((a + 2) * u - (a + 3)) * u * u + 1; };
  const auto outer = [&](T u) { return ((a * u - 5 * a) * u + 8 * a) * u - 4 * a; };
  taps.add(d.element(base - 1), outer(t + 1));
  taps.add(d.element(base), inner(t));
  taps.add(d.element(base + 1), inner(1 - t));
  taps.add(d.element(base + 2), outer(2 - t));
  return taps;
}

Interpolation mode_of(const KernelContext& ctx) {
  const std::string mode = ctx.attributes().text("mode", "linear");
  if (mode == "nearest") return Interpolation::kNearest;
  if (mode == "linear" || mode == "bilinear") return Interpolation::kLinear;
  if (mode == "cubic" || mode == "bicubic") return Interpolation::kCubic;
  ctx.fail("'{}' is not a value of 'mode'", mode);
}

Padding padding_of(const KernelContext& ctx) {
  const std::string mode = ctx.attributes().text("padding_mode", "zeros");
  if (mode == "zeros") return Padding::kZeros;
  if (mode == "border") return Padding::kBorder;
  if (mode == "reflection") return Padding::kReflection;
  ctx.fail("'{}' is not a value of 'padding_mode'", mode);
}

/// What some points read of an image by linear interpolation: places and weights of four elements each.
struct LinearTaps {
  static constexpr std::int64_t kPoints = 128;
  std::int32_t place[4][kPoints];
  std::int32_t counts[4][kPoints];  ///< Not 0: it is an element; else a zero.
  float weight_y[4][kPoints], weight_x[4][kPoints];
};

/// The four products are added in this order, from 0.
ULPSCOPE_VECTOR_CLONES void interpolate(const LinearTaps& taps, const float* image, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int k = 0; k < 4; ++k) {
      const float term = image[taps.place[k][i]] * taps.weight_y[k][i] * taps.weight_x[k][i];
      sum += taps.counts[k][i] != 0 ? term : 0.0F;
    }
    out[i] = sum;
  }
}

/// Of the indices and weights of both dimensions, for the low and the high neighbor each.
ULPSCOPE_VECTOR_CLONES void combine_taps(const std::int32_t (*y)[LinearTaps::kPoints],
                                         const std::int32_t (*x)[LinearTaps::kPoints],
                                         const float (*of_y)[LinearTaps::kPoints],
                                         const float (*of_x)[LinearTaps::kPoints], std::int32_t width,
                                         std::int64_t count, LinearTaps& taps) {
  for (int k = 0; k < 4; ++k)
    for (std::int64_t i = 0; i < count; ++i) {
      const bool counts = (y[k / 2][i] >= 0) & (x[k % 2][i] >= 0);
      taps.counts[k][i] = counts ? 1 : 0;
      taps.place[k][i] = counts ? y[k / 2][i] * width + x[k % 2][i] : 0;
      taps.weight_y[k][i] = of_y[k / 2][i];
      taps.weight_x[k][i] = of_x[k % 2][i];
    }
}

/// One dimension for linear interpolation and zeros around the image: taps_of(), for points whose coordinates lie two
/// apart. `low` and `high` are elements, -1 for a zero.
ULPSCOPE_VECTOR_CLONES void linear_taps(const float* grid, std::int64_t count, float size, bool align,
                                        std::int32_t* low, std::int32_t* high, float* of_low, float* of_high) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = grid[2 * i] + 1;
    const float x = align ? g / 2 * (size - 1) : (g * size - 1) / 2;
    const float base = std::floor(x), t = x - base, next = base + 1;
    low[i] = (base >= 0) & (base < size) ? static_cast<std::int32_t>(base >= 0 && base < size ? base : 0.0F) : -1;
    high[i] = (next >= 0) & (next < size) ? static_cast<std::int32_t>(next >= 0 && next < size ? next : 0.0F) : -1;
    of_low[i] = 1 - t;
    of_high[i] = t;
  }
}

/// Images of float32 in two dimensions, interpolated linearly.
void sample_images(const Tensor& input, const float* grid, const std::array<Dimension<float>, 2>& dims,
                   std::int64_t points, float* out) {
  const std::int64_t channels = input.shape()[1], volume = dims[0].size * dims[1].size;
  const std::int64_t blocks = (points + LinearTaps::kPoints - 1) / LinearTaps::kPoints;
  const bool zeros = dims[0].padding == Padding::kZeros;
  const auto find = [&](const Dimension<float>& d, const float* from, std::int64_t count,
                        std::int32_t (*index)[LinearTaps::kPoints], float (*weight)[LinearTaps::kPoints]) {
    if (zeros)
      return linear_taps(from, count, static_cast<float>(d.size), d.align, index[0], index[1], weight[0], weight[1]);
    for (std::int64_t i = 0; i < count; ++i) {
      const Taps<float> taps = taps_of(d, from[2 * i], Interpolation::kLinear);
      for (std::size_t k = 0; k < 2; ++k) {
        index[k][i] = static_cast<std::int32_t>(taps.index[k]);
        weight[k][i] = taps.weight[k];
      }
    }
  };
  parallel_for(input.shape()[0] * blocks, 2, [&](std::int64_t begin, std::int64_t end) {
    LinearTaps taps;
    std::int32_t index[2][2][LinearTaps::kPoints];
    float weight[2][2][LinearTaps::kPoints];
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t n = block / blocks, first = block % blocks * LinearTaps::kPoints;
      const std::int64_t count = std::min(LinearTaps::kPoints, points - first);
      for (std::size_t d = 0; d < 2; ++d)
        find(dims[d], grid + (n * points + first) * 2 + 1 - static_cast<std::int64_t>(d), count, index[d], weight[d]);
      combine_taps(index[0], index[1], weight[0], weight[1], static_cast<std::int32_t>(dims[1].size), count, taps);
      for (std::int64_t c = n * channels; c < (n + 1) * channels; ++c)
        interpolate(taps, input.data<float>() + c * volume, count, out + c * points + first);
    }
  });
}

void run_grid_sample(KernelContext& ctx) {
  const Shape& x = ctx.input(0).shape();
  const std::int64_t rank = static_cast<std::int64_t>(x.size()) - 2, channels = x[1];
  const Interpolation mode = mode_of(ctx);
  const Padding padding = padding_of(ctx);
  const bool align = ctx.attributes().integer("align_corners", 0) != 0;
  const std::int64_t points = product(ctx.output(0).shape(), 2, ctx.output(0).shape().size());
  const std::int64_t volume = product(x, 2, x.size());
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&]<typename T>(T) {
    const T* data = ctx.input(0).data<T>();
    const Tensor grid_values = ctx.input(1).cast(type_of<T>());
    const T* grid = grid_values.data<T>();
    T* out = ctx.output(0).data<T>();
    std::array<Dimension<T>, 3> dims;  // The missing leading ones have one element, always read with weight 1.
    for (std::int64_t d = 0; d < rank; ++d)
      dims[static_cast<std::size_t>(3 - rank + d)] = {x[static_cast<std::size_t>(d) + 2], align, padding};
    if constexpr (std::is_same_v<T, float>)
      if (rank == 2 && mode == Interpolation::kLinear && volume > 0 && volume < std::int64_t{1} << 24)
        return sample_images(ctx.input(0), grid, {dims[1], dims[2]}, points, out);
    parallel_for(x[0] * points, 256, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t p = begin; p < end; ++p) {
        std::array<Taps<T>, 3> taps;
        for (std::int64_t d = 0; d < 3; ++d) {
          auto& t = taps[static_cast<std::size_t>(d)];
          if (d < 3 - rank)
            t.add(0, 1);
          else
            t = taps_of(dims[static_cast<std::size_t>(d)], grid[p * rank + 2 - d], mode);
        }
        const std::int64_t stride_y = x[static_cast<std::size_t>(rank) + 1];
        const std::int64_t stride_z = rank > 1 ? stride_y * x[static_cast<std::size_t>(rank)] : 0;
        for (std::int64_t c = 0; c < channels; ++c) {
          const T* image = data + (p / points * channels + c) * volume;
          T sum{};
          for (int iz = 0; iz < taps[0].count; ++iz)
            for (int iy = 0; iy < taps[1].count; ++iy)
              for (int ix = 0; ix < taps[2].count; ++ix) {
                const std::int64_t z = taps[0].index[static_cast<std::size_t>(iz)];
                const std::int64_t y = taps[1].index[static_cast<std::size_t>(iy)];
                const std::int64_t i = taps[2].index[static_cast<std::size_t>(ix)];
                if (z < 0 || y < 0 || i < 0) continue;
                sum += image[z * stride_z + y * stride_y + i] * taps[0].weight[static_cast<std::size_t>(iz)] *
                       taps[1].weight[static_cast<std::size_t>(iy)] * taps[2].weight[static_cast<std::size_t>(ix)];
              }
          out[(p / points * channels + c) * points + p % points] = sum;
        }
      }
    });
  });
}

// Inputs: theta (N, 2, 3) or (N, 3, 4), size (N, C, H, W) or (N, C, D, H, W). Output (N, H, W, 2) or (N, D, H, W, 3).
void infer_affine_grid(InferContext& ctx) {
  const Shape& theta = ctx.shape(0);
  const auto size = ctx.input_ints(1);
  const std::int64_t rank = static_cast<std::int64_t>(size.size()) - 2;
  if ((rank != 2 && rank != 3) || theta != Shape{size[0], rank, rank + 1})
    ctx.fail("theta {} does not fit the size {}", to_string(theta), to_string(size));
  Shape shape{size[0]};
  shape.insert(shape.end(), size.begin() + 2, size.end());
  shape.push_back(rank);
  ctx.set_shape(0, std::move(shape));
}

void run_affine_grid(KernelContext& ctx) {
  const Shape& shape = ctx.output(0).shape();
  const std::int64_t rank = shape.back();
  const bool align = ctx.attributes().integer("align_corners", 0) != 0;
  Shape spatial(shape.begin() + 1, shape.end() - 1);
  if (rank == 2) spatial.insert(spatial.begin(), 1);
  const std::int64_t points = num_elements(spatial);
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&]<typename T>(T) {
    const T* theta = ctx.input(0).data<T>();
    T* out = ctx.output(0).data<T>();
    const auto position = [&](std::int64_t i, std::int64_t size) {
      if (align) return size == 1 ? T{-1} : T{-1} + T{2} * static_cast<T>(i) / static_cast<T>(size - 1);
      return T{-1} + (T{2} * static_cast<T>(i) + T{1}) / static_cast<T>(size);
    };
    parallel_each(shape[0] * points, 1 << 12, [&](std::int64_t p) {
      const T* matrix = theta + p / points * rank * (rank + 1);
      const std::int64_t at = p % points;
      const std::array<T, 3> xyz{position(at % spatial[2], spatial[2]),
                                 position(at / spatial[2] % spatial[1], spatial[1]),
                                 position(at / (spatial[2] * spatial[1]), spatial[0])};
      for (std::int64_t row = 0; row < rank; ++row) {
        T sum{};
        for (std::int64_t k = 0; k < rank; ++k) sum += matrix[row * (rank + 1) + k] * xyz[static_cast<std::size_t>(k)];
        out[p * rank + row] = sum + matrix[row * (rank + 1) + rank];
      }
    });
  });
}

}  // namespace

OpTable grid_sample() {
  return {
      // GridSample, ai.onnx 16, 20, 22: interpolates at given positions, over one to three spatial dimensions.
      make_op({.name = "GridSample", .since_version = 16, .inputs = {2, 2}, .types = {kFloats}}, infer_grid_sample,
              run_grid_sample),
      // AffineGrid, ai.onnx 20: positions for GridSample from affine matrices.
      make_op(
          {.name = "AffineGrid", .since_version = 20, .inputs = {2, 2}, .types = {kFloats, kIndices}, .weights = 0b10},
          infer_affine_grid, run_affine_grid),
  };
}

}  // namespace ulpscope::ops
