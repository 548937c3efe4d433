// Interpolation at given positions.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/parallel.h"
#include "ops/common.h"

namespace ulpscope::ops {
namespace {

enum class Padding { kZeros, kBorder, kReflection };

// Inputs: X (N, C, d...), grid (N, o..., r), whose last dimension counts from the innermost dimension outwards.
void infer_grid_sample(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
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

/// mode: 0 nearest, 1 linear, 3 cubic (Keys' kernel with a = -0.75).
template <typename T>
Taps<T> taps_of(const Dimension<T>& d, T normalized, int mode) {
  Taps<T> taps;
  T x = d.position(normalized);
  if (mode == 0) {
    taps.add(d.element(d.bring_in(std::nearbyint(x))), 1);
    return taps;
  }
  if (mode == 1) x = d.bring_in(x);  // cubic: the padding applies to each element, not to the position
  const T base = std::floor(x), t = x - base;
  if (mode == 1) {
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

int mode_of(const KernelContext& ctx) {
  const std::string mode = ctx.attributes().text("mode", "linear");
  if (mode == "nearest") return 0;
  if (mode == "linear" || mode == "bilinear") return 1;
  if (mode == "cubic" || mode == "bicubic") return 3;
  ctx.fail("'{}' is not a value of 'mode'", mode);
}

Padding padding_of(const KernelContext& ctx) {
  const std::string mode = ctx.attributes().text("padding_mode", "zeros");
  if (mode == "zeros") return Padding::kZeros;
  if (mode == "border") return Padding::kBorder;
  if (mode == "reflection") return Padding::kReflection;
  ctx.fail("'{}' is not a value of 'padding_mode'", mode);
}

void run_grid_sample(KernelContext& ctx) {
  const Shape& x = ctx.input(0).shape();
  const std::int64_t rank = static_cast<std::int64_t>(x.size()) - 2, channels = x[1];
  const int mode = mode_of(ctx);
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
  ctx.set_type(0, ctx.type(0));
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
    parallel_for(shape[0] * points, 1 << 12, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t p = begin; p < end; ++p) {
        const T* matrix = theta + p / points * rank * (rank + 1);
        const std::int64_t at = p % points;
        const std::array<T, 3> xyz{position(at % spatial[2], spatial[2]),
                                   position(at / spatial[2] % spatial[1], spatial[1]),
                                   position(at / (spatial[2] * spatial[1]), spatial[0])};
        for (std::int64_t row = 0; row < rank; ++row) {
          T sum{};
          for (std::int64_t k = 0; k < rank; ++k)
            sum += matrix[row * (rank + 1) + k] * xyz[static_cast<std::size_t>(k)];
          out[p * rank + row] = sum + matrix[row * (rank + 1) + rank];
        }
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
