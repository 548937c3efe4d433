// MaxRoiPool, ai.onnx 1, 22: the largest element in each cell of a grid laid over each region of interest
// (Girshick, "Fast R-CNN", 2015).
#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "ops/common.h"
#include "ops/indexing/to_index.h"
#include "ops/type_rules.h"

namespace ulpscope::ops {
namespace {

// Inputs: X (N, C, H, W), rois (R, 5): batch, x1, y1, x2, y2.
Shape pooled_shape(const Layer& layer) { return layer.attributes.required_integers("pooled_shape"); }

void infer_max_roi_pool(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  require_type_of_first(ctx, {1});
  const Shape& x = ctx.shape(0);
  const Shape& rois = ctx.shape(1);
  const Shape pooled = pooled_shape(ctx.layer());
  if (x.size() != 4 || rois.size() != 2 || rois[1] != 5 || pooled.size() != 2)
    ctx.fail(fmt::format("expected (N, C, H, W), rois (R, 5) and two values in 'pooled_shape', got {}, {} and {}",
                         to_string(x), to_string(rois), to_string(pooled)));
  ctx.set_shape(0, {rois[0], x[1], pooled[0], pooled[1]});
}

void run_max_roi_pool(KernelContext& ctx) {
  const Shape& x = ctx.input(0).shape();
  const Shape pooled = pooled_shape(ctx.layer());
  const std::int64_t channels = x[1], height = x[2], width = x[3];
  const float scale = ctx.attributes().real("spatial_scale", 1);
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    const T* data = ctx.input(0).data<T>();
    const T* rois = ctx.input(1).data<T>();
    T* out = ctx.output(0).data<T>();
    const std::int64_t count = ctx.input(1).shape()[0];
    for (std::int64_t r = 0; r < count; ++r)
      if (!(rois[r * 5] >= 0 && rois[r * 5] < static_cast<T>(x[0])))
        ctx.fail(fmt::format("region {} is in image {} of {}", r, rois[r * 5], x[0]));
    parallel_for(count * channels, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t plane = begin; plane < end; ++plane) {
        const T* roi = rois + plane / channels * 5;
        const T* image = data + (static_cast<std::int64_t>(roi[0]) * channels + plane % channels) * height * width;
        const auto at = [&](int i) { return to_index(std::round(roi[i] * static_cast<T>(scale))); };
        const std::int64_t left = at(1), top = at(2);
        const T cell_h = static_cast<T>(std::max<std::int64_t>(at(4) - top + 1, 1)) / static_cast<T>(pooled[0]);
        const T cell_w = static_cast<T>(std::max<std::int64_t>(at(3) - left + 1, 1)) / static_cast<T>(pooled[1]);
        for (std::int64_t ph = 0; ph < pooled[0]; ++ph)
          for (std::int64_t pw = 0; pw < pooled[1]; ++pw) {
            const auto edge = [](T position, std::int64_t start, std::int64_t limit) {
              return std::clamp<std::int64_t>(to_index(position) + start, 0, limit);
            };
            const std::int64_t y0 = edge(std::floor(static_cast<T>(ph) * cell_h), top, height);
            const std::int64_t y1 = edge(std::ceil(static_cast<T>(ph + 1) * cell_h), top, height);
            const std::int64_t x0 = edge(std::floor(static_cast<T>(pw) * cell_w), left, width);
            const std::int64_t x1 = edge(std::ceil(static_cast<T>(pw + 1) * cell_w), left, width);
            T best = y1 <= y0 || x1 <= x0 ? T{} : image[y0 * width + x0];
            for (std::int64_t y = y0; y < y1; ++y)
              for (std::int64_t i = x0; i < x1; ++i) best = std::max(best, image[y * width + i]);
            out[(plane * pooled[0] + ph) * pooled[1] + pw] = best;
          }
      }
    });
  });
}

}  // namespace

OpDef max_roi_pool() {
  return {.name = "MaxRoiPool",
          .inputs = {2, 2},
          .types = {kFloats},
          .kind = OpKind::kPooling,
          .infer = infer_max_roi_pool,
          .run = run_max_roi_pool};
}

}  // namespace ulpscope::ops
