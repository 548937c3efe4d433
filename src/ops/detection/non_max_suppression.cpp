// NonMaxSuppression, ai.onnx 10, 11: per batch and class, boxes by falling score without those that overlap a chosen
// one.
#include <algorithm>
#include <array>

#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

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
    ctx.fail(fmt::format(
        "boxes of shape {} and scores of shape {} do not fit: expected (batch, boxes, 4) and (batch, classes, boxes)",
        to_string(boxes), to_string(scores)));
}

void run_non_max_suppression(KernelContext& ctx) {
  const Tensor &boxes = ctx.input(0), &scores = ctx.input(1);
  const std::int64_t limit = ctx.has_input(2) && ctx.input(2).size() != 0 ? single_integer(ctx, 2) : 0;
  const float iou_threshold = float_input(ctx, 3, 0.0f);
  if (!(iou_threshold >= 0 && iou_threshold <= 1))
    ctx.fail(fmt::format("expected an iou_threshold in [0, 1], got {}", iou_threshold));
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
      std::stable_sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t k) { return score[i] > score[k]; });
      std::vector<std::int64_t> chosen;
      for (std::int64_t i : order) {
        if (static_cast<std::int64_t>(chosen.size()) >= limit) break;
        const Box& box = batch_boxes[static_cast<std::size_t>(i)];
        const bool overlaps = std::any_of(chosen.begin(), chosen.end(), [&](std::int64_t k) {
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

OpDef non_max_suppression() {
  return {.name = "NonMaxSuppression",
          .since_version = 10,
          .inputs = {2, 5},
          .types = {kSingle, kSingle, kIndices, kSingle, kSingle},
          .precision = PrecisionRule::kFixed,
          .weights = 0b11100,
          .infer = infer_non_max_suppression,
          .run = run_non_max_suppression};
}

}  // namespace ulpscope::ops
