// AffineGrid, ai.onnx 20: positions for GridSample from affine matrices.
#include <array>

#include "core/parallel.h"
#include "ops/common.h"

namespace ulpscope::ops {
namespace {

// Inputs: theta (N, 2, 3) or (N, 3, 4), size (N, C, H, W) or (N, C, D, H, W). Output (N, H, W, 2) or (N, D, H, W, 3).
void infer_affine_grid(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  const Shape& theta = ctx.shape(0);
  const auto size = ctx.integers(1);
  const std::int64_t rank = static_cast<std::int64_t>(size.size()) - 2;
  if ((rank != 2 && rank != 3) || theta != Shape{size[0], rank, rank + 1})
    ctx.fail(fmt::format("theta {} does not fit the size {}", to_string(theta), to_string(size)));
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
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
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

OpDef affine_grid() {
  return {.name = "AffineGrid",
          .since_version = 20,
          .inputs = {2, 2},
          .types = {kFloats, kIndices},
          .weights = 0b10,
          .infer = infer_affine_grid,
          .run = run_affine_grid};
}

}  // namespace ulpscope::ops
