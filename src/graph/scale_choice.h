// What is chosen about the scales of blocks, where formats leave it open.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "formats/encoding.h"
#include "graph/layer_form.h"

namespace ulpscope {

/// What the scales of weights in int4 and nvfp4 are made for: `--weight-scales`.
enum class WeightScales : std::uint8_t {
  kAmax,          ///< The largest weight of a block becomes the largest element.
  kLeastSquares,  ///< The sum of the squared errors of a block is least, of a few scales.
  kActivations,   ///< The same, each error times the mean square of what the weight is multiplied by.
};

/// How the power of two is rounded that MXFP8 and MXFP4 have as scale: `--mx-scale-rule`.
enum class MxScaleRule : std::uint8_t {
  kCeil,  ///< Up: no value saturates.
  kOcp,   ///< Down, as OCP's MX 1.0 has it: the largest ones may saturate.
};

struct ScaleChoice {
  WeightScales weights = WeightScales::kAmax;
  MxScaleRule mx = MxScaleRule::kCeil;
  friend bool operator==(const ScaleChoice&, const ScaleChoice&) = default;
};

/// "amax", "least-squares", "activations"; "ceil", "ocp".
std::string_view name_of(WeightScales scales) noexcept;
std::string_view name_of(MxScaleRule rule) noexcept;
/// The reverse; `where` starts the message. Throws Error(kInvalidArgument).
WeightScales weight_scales_from_name(std::string_view name, std::string_view where);
MxScaleRule mx_scale_rule_from_name(std::string_view name, std::string_view where);

/// The encoding of activations or weights in blocks has scales that --mx-scale-rule is about.
constexpr bool has_mx_scales(const Encoding& encoding) noexcept { return encoding.scale == Format::kFloat8E8M0; }
/// The encoding of weights in blocks has scales that --weight-scales is about.
constexpr bool has_chosen_scales(const Encoding& encoding) noexcept {
  return encoding.granularity == Granularity::kBlock && !has_mx_scales(encoding);
}

/// Throws Error(kInvalidArgument), which starts with `where`, where scales other than the usual ones are asked for, and
/// no precision has them.
void check_weight_scales(WeightScales asked, PrecisionSet enabled, std::string_view where);
/// Of these precisions, one has weights or blocks with such scales.
bool have_chosen_scales(PrecisionSet precisions) noexcept;
bool have_mx_scales(PrecisionSet precisions) noexcept;

/// Layers of TensorRT's TRT_MXFP8DynamicQuantize round their scales by this rule. What TensorRT does is not documented.
void set_dynamic_scale_rule(struct Network& network, MxScaleRule rule);
/// The attribute that says so, 1 for kOcp and else absent; no file has it.
inline constexpr std::string_view kRoundsScalesDown = "ulpscope_rounds_scales_down";

/// The mean squares of the channels that constant weights are multiplied by.
struct ChannelWeights {
  int axis = 0;  ///< Of the weights: its positions are the channels.
  std::vector<float> mean_squares;
};
/// Null where they are not known.
using SharedChannelWeights = std::shared_ptr<const ChannelWeights>;

}  // namespace ulpscope
