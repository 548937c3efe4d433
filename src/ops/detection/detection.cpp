// Regions of images: pooled, or chosen among those that overlap.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "core/parallel.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

// Inputs: X (N, C, H, W), rois (R, 5): batch, x1, y1, x2, y2.
Shape pooled_shape(const Layer& layer) { return layer.attributes.required_ints("pooled_shape"); }

void infer_max_roi_pool(InferContext& ctx) {
  require_type_of_first(ctx, {1});
  const Shape& x = ctx.shape(0);
  const Shape& rois = ctx.shape(1);
  const Shape pooled = pooled_shape(ctx.layer());
  if (x.size() != 4 || rois.size() != 2 || rois[1] != 5 || pooled.size() != 2)
    ctx.fail("expected (N, C, H, W), rois (R, 5) and two values in 'pooled_shape', got {}, {} and {}", to_string(x),
             to_string(rois), to_string(pooled));
  ctx.set_shape(0, {rois[0], x[1], pooled[0], pooled[1]});
}

void run_max_roi_pool(KernelContext& ctx) {
  const Shape& x = ctx.input(0).shape();
  const Shape pooled = pooled_shape(ctx.layer());
  const std::int64_t channels = x[1], height = x[2], width = x[3];
  const float scale = ctx.attributes().real("spatial_scale", 1);
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&]<typename T>(T) {
    const T* data = ctx.input(0).data<T>();
    const T* rois = ctx.input(1).data<T>();
    T* out = ctx.output(0).data<T>();
    const std::int64_t count = ctx.input(1).shape()[0];
    for (std::int64_t r = 0; r < count; ++r)
      if (!(rois[r * 5] >= 0 && rois[r * 5] < static_cast<T>(x[0])))
        ctx.fail("region {} is in image {} of {}", r, rois[r * 5], x[0]);
    parallel_each(count * channels, 1, [&](std::int64_t plane) {
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
    });
  });
}

/// Per region; any image is much smaller.
constexpr std::int64_t kMostSamples = std::int64_t{1} << 26;

// Inputs: X (N, C, H, W), rois (R, 4): x1, y1, x2, y2, batch_indices (R).
void infer_roi_align(InferContext& ctx) {
  require_type_of_first(ctx, {1});
  const Shape& x = ctx.shape(0);
  const Shape& rois = ctx.shape(1);
  if (x.size() != 4 || rois.size() != 2 || rois[1] != 4 || ctx.shape(2) != Shape{rois[0]})
    ctx.fail("expected (N, C, H, W), rois (R, 4) and batch indices (R), got {}, {} and {}", to_string(x),
             to_string(rois), to_string(ctx.shape(2)));
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

/// The largest weighted value of all samples, or the mean of their sums.
template <typename T>
T pooled(std::span<const Sample<T>> samples, const T* image, bool largest_of_all) {
  T sum{}, best{};
  for (const Sample<T>& s : samples) {
    T largest = s.weight[0] * image[s.at[0]], total = largest;
    for (std::size_t i = 1; i < 4; ++i) {
      const T value = s.weight[i] * image[s.at[i]];
      largest = std::max(largest, value);
      total += value;
    }
    sum += total;
    best = &s == samples.data() ? largest : std::max(best, largest);
  }
  return largest_of_all ? best : sum / static_cast<T>(std::max<std::size_t>(samples.size(), 1));
}

void run_roi_align(KernelContext& ctx) {
  const Attributes& attributes = ctx.attributes();
  const Shape& x = ctx.input(0).shape();
  const Shape& y = ctx.output(0).shape();
  const std::int64_t channels = x[1], height = x[2], width = x[3], rows = y[2], columns = y[3];
  const bool half_pixel =
      ctx.opset() >= 16 && attributes.text("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  const std::string mode = attributes.text("mode", "avg");
  if (mode != "avg" && mode != "max") ctx.fail("expected 'mode' to be avg or max, got '{}'", mode);
  const std::int64_t ratio = attributes.integer("sampling_ratio", 0);
  const float scale = attributes.real("spatial_scale", 1);
  const std::vector<std::int64_t> batch = ctx.input_ints(2);
  for (std::int64_t b : batch)
    if (b < 0 || b >= x[0]) ctx.fail("batch index {} is outside of [0, {})", b, x[0]);
  if (ctx.output(0).size() == 0) return;
  if (height == 0 || width == 0) ctx.fail("cannot sample images of shape {}", to_string(x));
  if (rows > kMostSamples / columns) ctx.fail("a grid of {} x {} cells is too large", rows, columns);
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&]<typename T>(T) {
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
        ctx.fail("region {} is far larger than an image of {} x {}", r, height, width);
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
            const std::span<const Sample<T>> own(samples.data() + p * count, static_cast<std::size_t>(count));
            cell[p] = pooled(own, image, mode == "max");
          }
        }
      }
    });
  });
}

constexpr TypeSet kSingle{DataType::kFloat32};

struct Box {
  float y1, x1, y2, x2;  ///< y1 <= y2, x1 <= x2.
  float area() const { return (y2 - y1) * (x2 - x1); }
};

Box box_at(const float* b, bool center) {
  if (center) return {b[1] - b[3] / 2, b[0] - b[2] / 2, b[1] + b[3] / 2, b[0] + b[2] / 2};
  return {std::min(b[0], b[2]), std::min(b[1], b[3]), std::max(b[0], b[2]), std::max(b[1], b[3])};
}

float intersection_over_union(const Box& a, const Box& b) {
  const float height = std::min(a.y2, b.y2) - std::max(a.y1, b.y1), width = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
  if (height <= 0 || width <= 0) return 0;
  const float common = height * width, joined = a.area() + b.area() - common;
  return joined > 0 ? common / joined : 0;
}

float float_input(const KernelContext& ctx, int i, float otherwise) {
  if (!ctx.has_input(i) || ctx.input(i).size() == 0) return otherwise;
  return ctx.input(i).data<float>()[0];
}

void infer_non_max_suppression(InferContext& ctx) {
  ctx.set_type(0, DataType::kInt64);
  const Shape &boxes = ctx.shape(0), &scores = ctx.shape(1);
  if (boxes.size() != 3 || scores.size() != 3 || boxes[2] != 4 || boxes[0] != scores[0] || boxes[1] != scores[2])
    ctx.fail(
        "boxes of shape {} and scores of shape {} do not fit: expected (batch, boxes, 4) and (batch, classes, boxes)",
        to_string(boxes), to_string(scores));
}

void run_non_max_suppression(KernelContext& ctx) {
  const Tensor &boxes = ctx.input(0), &scores = ctx.input(1);
  const std::int64_t limit = ctx.has_input(2) && ctx.input(2).size() != 0 ? single_integer(ctx, 2) : 0;
  const float iou_threshold = float_input(ctx, 3, 0.0f);
  if (!(iou_threshold >= 0 && iou_threshold <= 1))
    ctx.fail("expected an iou_threshold in [0, 1], got {}", iou_threshold);
  const bool has_score_threshold = ctx.has_input(4) && ctx.input(4).size() != 0;
  const float score_threshold = float_input(ctx, 4, 0.0f);
  const bool center = ctx.attributes().integer("center_point_box", 0) != 0;
  const std::int64_t batches = scores.shape()[0], classes = scores.shape()[1], count = scores.shape()[2];

  std::vector<std::array<std::int64_t, 3>> result;
  std::vector<Box> batch_boxes(static_cast<std::size_t>(count));
  for (std::int64_t b = 0; b < batches; ++b) {
    for (std::int64_t i = 0; i < count; ++i)
      batch_boxes[static_cast<std::size_t>(i)] = box_at(boxes.data<float>() + (b * count + i) * 4, center);
    for (std::int64_t c = 0; c < classes; ++c) {
      const float* score = scores.data<float>() + (b * classes + c) * count;
      std::vector<std::int64_t> order;
      for (std::int64_t i = 0; i < count; ++i)
        if (has_score_threshold ? score[i] > score_threshold : score[i] == score[i]) order.push_back(i);
      std::ranges::stable_sort(order, [&](std::int64_t i, std::int64_t k) { return score[i] > score[k]; });
      std::vector<std::int64_t> chosen;
      for (std::int64_t i : order) {
        if (static_cast<std::int64_t>(chosen.size()) >= limit) break;
        const Box& box = batch_boxes[static_cast<std::size_t>(i)];
        const bool overlaps = std::ranges::any_of(chosen, [&](std::int64_t k) {
          return intersection_over_union(box, batch_boxes[static_cast<std::size_t>(k)]) > iou_threshold;
        });
        if (!overlaps) chosen.push_back(i);
      }
      for (std::int64_t i : chosen) result.push_back({b, c, i});
    }
  }
  Tensor out(DataType::kInt64, {static_cast<std::int64_t>(result.size()), 3});
  if (!result.empty()) std::memcpy(out.raw(), result.data(), out.bytes());
  ctx.set_output(0, std::move(out));
}

}  // namespace

OpTable detection() {
  return {
      // MaxRoiPool, ai.onnx 1, 22: the largest element in each cell of a grid laid over each region of interest
      // (Girshick, "Fast R-CNN", 2015).
      make_op({.name = "MaxRoiPool", .inputs = {2, 2}, .types = {kFloats}, .kind = OpKind::kPooling},
              infer_max_roi_pool, run_max_roi_pool),
      // RoiAlign, ai.onnx 10, 16, 22: bilinear samples in each cell of a grid laid over each region of interest,
      // averaged or maximized (He et al., "Mask R-CNN", 2017).
      make_op({.name = "RoiAlign",
               .since_version = 10,
               .inputs = {3, 3},
               .types = {kFloats, kFloats, kIndices},
               .kind = OpKind::kPooling},
              infer_roi_align, run_roi_align),
      // NonMaxSuppression, ai.onnx 10, 11: per batch and class, boxes by falling score without those that overlap a
      // chosen one.
      fixed_op({.name = "NonMaxSuppression",
                .since_version = 10,
                .inputs = {2, 5},
                .types = {kSingle, kSingle, kIndices, kSingle, kSingle},
                .weights = 0b11100},
               infer_non_max_suppression, run_non_max_suppression),
  };
}

}  // namespace ulpscope::ops
