// Derivatives of Pad in every mode, and of Resize in every mode with every transformation of coordinates and rounding.
#include <fmt/format.h>

#include "ops/adjoint_rows.h"
#include "ops/op_rows.h"

namespace ulpscope::test {
namespace {

using Ints = std::vector<std::int64_t>;

std::vector<AdjointRow> pad_rows() {
  // Within the reach of one copy, beyond it on one or both sides, of one element, beside a cropped end.
  const std::vector<std::pair<Shape, Ints>> shapes{
      {{5, 4}, {4, 0, 0, 3}},  {{2, 3}, {0, 8, 0, 1}}, {{3, 2}, {1, 9, 12, 4}},        {{4}, {11, 10}},
      {{1, 3}, {2, 0, 3, 1}},  {{2}, {7, 0}},          {{5, 4}, {-1, 3, 6, -2}},       {{4, 3}, {-3, 1, 2, 0}},
      {{3, 3}, {-1, 0, 0, 2}}, {{5}, {-2, -1}},        {{2, 2, 2}, {1, 1, 0, 1, 0, 3}}};
  std::vector<AdjointRow> rows;
  for (const char* mode : {"constant", "reflect", "edge", "wrap"})
    for (std::size_t i = 0; i < shapes.size(); ++i)
      rows.push_back({"Pad",
                      fmt::format("{}, form {}", mode, i),
                      {vary(shapes[i].first), constant(shapes[i].second)},
                      {{"mode", std::string(mode)}}});
  return rows;
}

/// To `sizes`, of all axes.
AdjointRow resized(const std::string& label, const Shape& shape, const Ints& sizes,
                   std::map<std::string, Attribute> attributes) {
  AdjointInput region = absent();
  if (std::get<std::string>(attributes.at("coordinate_transformation_mode")) == "tf_crop_and_resize") {
    // From within the input to beyond its end.
    std::vector<float> roi(2 * shape.size(), 0.0f);
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const bool changes = sizes[d] != shape[d];
      roi[d] = changes ? 0.15f : 0.0f;
      roi[d + shape.size()] = changes ? 1.2f : 1.0f;
    }
    region = constant(Tensor::of<float>({static_cast<std::int64_t>(roi.size())}, std::span<const float>(roi)));
  }
  return {"Resize", label, {vary(shape), region, absent(), constant(sizes)}, std::move(attributes), 19};
}

std::vector<AdjointRow> resize_rows() {
  std::vector<AdjointRow> rows;
  const std::vector<std::pair<std::string, Ints>> sizes{{"enlarged", {1, 7, 11}},
                                                        {"reduced", {1, 3, 2}},
                                                        {"doubled", {1, 10, 8}},
                                                        {"both", {1, 2, 9}},
                                                        {"to one", {1, 1, 12}}};
  const Shape shape{1, 5, 4};
  for (const std::string coordinates : {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
                                        "asymmetric", "tf_crop_and_resize", "tf_half_pixel_for_nn"})
    for (const auto& [name, size] : sizes) {
      const auto add = [&](const std::string& label, std::map<std::string, Attribute> attributes) {
        attributes["coordinate_transformation_mode"] = coordinates;
        rows.push_back(resized(fmt::format("{}, {}, {}", label, coordinates, name), shape, size, attributes));
      };
      for (const std::string rounding : {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"})
        add("nearest " + rounding, {{"mode", std::string("nearest")}, {"nearest_mode", rounding}});
      for (const std::string mode : {"linear", "cubic"})
        for (const std::int64_t antialias : {0, 1})
          for (const std::int64_t exclude : {0, 1})
            add(fmt::format("{}{}{}", mode, antialias == 1 ? ", antialias" : "", exclude == 1 ? ", inside" : ""),
                {{"mode", mode}, {"antialias", antialias}, {"exclude_outside", exclude}});
      add("cubic -0.5", {{"mode", std::string("cubic")}, {"cubic_coeff_a", -0.5f}});
    }
  // Every rank that has a pooling layer for repeated elements, and two that have none.
  for (const Shape& each : {Shape{4}, Shape{2, 3}, Shape{1, 2, 3}, Shape{1, 2, 3, 2}, Shape{1, 1, 2, 3, 2}}) {
    Ints doubled = each;
    for (std::size_t d = each.size() > 2 ? 2 : 0; d < doubled.size(); ++d) doubled[d] *= d % 2 == 0 ? 2 : 3;
    rows.push_back(resized(
        fmt::format("repeated, rank {}", each.size()), each, doubled,
        {{"coordinate_transformation_mode", std::string("asymmetric")}, {"nearest_mode", std::string("floor")}}));
  }
  const std::vector<float> scales{1, 0.6f, 2.7f};
  const AdjointInput given_scales = constant(Tensor::of<float>({3}, std::span<const float>(scales)));
  for (const std::string mode : {"nearest", "linear", "cubic"})
    rows.push_back(
        {"Resize", mode + ", scales that do not divide", {vary(shape), absent(), given_scales}, {{"mode", mode}}, 19});
  for (const std::string policy : {"not_larger", "not_smaller"})
    rows.push_back({"Resize",
                    policy,
                    {vary(shape), absent(), absent(), constant(Ints{7, 9})},
                    {{"mode", std::string("linear")}, {"axes", Ints{1, 2}}, {"keep_aspect_ratio_policy", policy}},
                    19});
  for (const std::string mode : {"nearest", "linear"})
    rows.push_back({"Upsample",
                    mode + " by parts",
                    {vary({1, 1, 3, 4}), constant(f32({4}, {1, 1, 1.5f, 2.3f}))},
                    {{"mode", mode}},
                    9});
  return rows;
}

const AddAdjointRows kPads(pad_rows()), kResizes(resize_rows());

const AddAdjointRows kWindows({
    {"LRN", "one channel", {vary({2, 1, 3})}, {{"size", std::int64_t{3}}, {"alpha", 0.5f}}},
    {"LRN", "an even window", {vary({1, 6, 2})}, {{"size", std::int64_t{4}}, {"alpha", 0.5f}}},
    {"LRN", "no channels", {vary({2, 0, 3})}, {{"size", std::int64_t{2}}}},
    {"LRN", "wider than the channels", {vary({1, 3, 2, 2})}, {{"size", std::int64_t{9}}, {"alpha", 0.5f}}},
});

}  // namespace
}  // namespace ulpscope::test
