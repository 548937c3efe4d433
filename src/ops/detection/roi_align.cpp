// RoiAlign, ai.onnx 10, 16, 22: bilinear samples in each cell of a grid laid over each region of interest, averaged or
// maximised (He et al., "Mask R-CNN", 2017).
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "ops/common.h"
#include "ops/indexing/to_index.h"
#include "ops/type_rules.h"

namespace ulpscope::ops {
namespace {

/// Per region; any image is much smaller.
constexpr std::int64_t kMostSamples = std::int64_t{1} << 26;

// Inputs: X (N, C, H, W), rois (R, 4): x1, y1, x2, y2, batch_indices (R).
void infer_roi_align(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  require_type_of_first(ctx, {1});
  const Shape& x = ctx.shape(0);
  const Shape& rois = ctx.shape(1);
  if (x.size() != 4 || rois.size() != 2 || rois[1] != 4 || ctx.shape(2) != Shape{rois[0]})
    ctx.fail(fmt::format("expected (N, C, H, W), rois (R, 4) and batch indices (R), got {}, {} and {}", to_string(x),
                         to_string(rois), to_string(ctx.shape(2))));
  ctx.set_shape(
      0, {rois[0], x[1], ctx.attributes().integer("output_height", 1), ctx.attributes().integer("output_width", 1)});
}

/// One bilinear sample: four positions in a plane with their weights.
template <typename T>
struct Sample {
  std::array<std::int64_t, 4> at{};
  std::array<T, 4> weight{};
};

template <typename T>
Sample<T> make_sample(T y, T x, std::int64_t height, std::int64_t width) {
  Sample<T> s;
  // Also NaN.
  if (!(y >= -1 && y <= static_cast<T>(height) && x >= -1 && x <= static_cast<T>(width))) return s;
  const auto split = [](T position, std::int64_t size, std::int64_t& low, std::int64_t& high) {
    position = std::max(position, T{});
    low = std::min(static_cast<std::int64_t>(position), size - 1);
    high = std::min(low + 1, size - 1);
    return low == high ? T{} : position - static_cast<T>(low);
  };
  std::int64_t y0, y1, x0, x1;
  const T fy = split(y, height, y0, y1), fx = split(x, width, x0, x1);
  s.at = {y0 * width + x0, y0 * width + x1, y1 * width + x0, y1 * width + x1};
  s.weight = {(1 - fy) * (1 - fx), (1 - fy) * fx, fy * (1 - fx), fy * fx};
  return s;
}

void run_roi_align(KernelContext& ctx) {
  const Attributes& attributes = ctx.attributes();
  const Shape& x = ctx.input(0).shape();
  const Shape& y = ctx.output(0).shape();
  const std::int64_t channels = x[1], height = x[2], width = x[3], rows = y[2], columns = y[3];
  const bool half_pixel =
      ctx.opset() >= 16 && attributes.text("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  const std::string mode = attributes.text("mode", "avg");
  if (mode != "avg" && mode != "max") ctx.fail(fmt::format("expected 'mode' to be avg or max, got '{}'", mode));
  const std::int64_t ratio = attributes.integer("sampling_ratio", 0);
  const float scale = attributes.real("spatial_scale", 1);
  const std::vector<std::int64_t> batch = ctx.integers(2);
  for (std::int64_t b : batch)
    if (b < 0 || b >= x[0]) ctx.fail(fmt::format("batch index {} is outside of [0, {})", b, x[0]));
  if (ctx.output(0).size() == 0) return;
  if (height == 0 || width == 0) ctx.fail(fmt::format("cannot sample images of shape {}", to_string(x)));
  if (rows > kMostSamples / columns) ctx.fail(fmt::format("a grid of {} x {} cells is too large", rows, columns));
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    const T* data = ctx.input(0).data<T>();
    const T* rois = ctx.input(1).data<T>();
    T* out = ctx.output(0).data<T>();
    const auto samples_along = [&](T cell) {
      return std::clamp<std::int64_t>(ratio > 0 ? ratio : to_index(std::ceil(cell)), 0, kMostSamples);
    };
    for (std::int64_t r = 0; r < y[0]; ++r) {
      const T* box = rois + r * 4;
      const std::int64_t in_width = samples_along((box[2] - box[0]) * static_cast<T>(scale) / static_cast<T>(columns));
      const std::int64_t in_height = samples_along((box[3] - box[1]) * static_cast<T>(scale) / static_cast<T>(rows));
      if (in_width * in_height > kMostSamples / (rows * columns))
        ctx.fail(fmt::format("region {} is far larger than an image of {} x {}", r, height, width));
    }
    parallel_for(y[0], 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<Sample<T>> samples;
      for (std::int64_t r = begin; r < end; ++r) {
        std::array<T, 4> box;  // x1, y1, x2, y2
        for (std::size_t i = 0; i < 4; ++i)
          box[i] = rois[r * 4 + static_cast<std::int64_t>(i)] * static_cast<T>(scale) - (half_pixel ? T(0.5) : T{});
        const T least = half_pixel ? -std::numeric_limits<T>::infinity() : T{1};
        const T w = std::max(box[2] - box[0], least), h = std::max(box[3] - box[1], least);
        const T cell_w = w / static_cast<T>(columns), cell_h = h / static_cast<T>(rows);
        const std::int64_t grid_h = samples_along(cell_h), grid_w = samples_along(cell_w), count = grid_h * grid_w;
        samples.clear();
        for (std::int64_t ph = 0; ph < rows; ++ph)
          for (std::int64_t pw = 0; pw < columns; ++pw)
            for (std::int64_t iy = 0; iy < grid_h; ++iy)
              for (std::int64_t ix = 0; ix < grid_w; ++ix)
                samples.push_back(make_sample(box[1] + static_cast<T>(ph) * cell_h +
                                                  (static_cast<T>(iy) + T(0.5)) * cell_h / static_cast<T>(grid_h),
                                              box[0] + static_cast<T>(pw) * cell_w +
                                                  (static_cast<T>(ix) + T(0.5)) * cell_w / static_cast<T>(grid_w),
                                              height, width));
        for (std::int64_t c = 0; c < channels; ++c) {
          const T* image = data + (batch[static_cast<std::size_t>(r)] * channels + c) * height * width;
          T* cell = out + (r * channels + c) * rows * columns;
          for (std::int64_t p = 0; p < rows * columns; ++p) {
            T sum{}, best{};
            for (std::int64_t k = 0; k < count; ++k) {
              const Sample<T>& s = samples[static_cast<std::size_t>(p * count + k)];
              T largest = s.weight[0] * image[s.at[0]], total = largest;
              for (std::size_t i = 1; i < 4; ++i) {
                const T value = s.weight[i] * image[s.at[i]];
                largest = std::max(largest, value);
                total += value;
              }
              sum += total;
              best = k == 0 ? largest : std::max(best, largest);
            }
            cell[p] = mode == "max" ? best : sum / static_cast<T>(std::max<std::int64_t>(count, 1));
          }
        }
      }
    });
  });
}

}  // namespace

OpDef roi_align() {
  return {.name = "RoiAlign",
          .since_version = 10,
          .inputs = {3, 3},
          .types = {kFloats, kFloats, kIndices},
          .kind = OpKind::kPooling,
          .infer = infer_roi_align,
          .run = run_roi_align};
}

}  // namespace ulpscope::ops
