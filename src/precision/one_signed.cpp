#include "precision/one_signed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/quantized_choices.h"
#include "ulpscope/log.h"

namespace ulpscope {
namespace {

/// The least length whose loss is about that of rounding the operands (fp8) or the result (fp16).
double least_length(Precision precision) {
  constexpr double kLongInFP8 = 1024, kLongInHalves = 65536;
  if (precision == Precision::kFP8) return kLongInFP8;
  if (precision == Precision::kFP16 || precision == Precision::kBF16) return kLongInHalves;
  return HUGE_VAL;
}

/// How many products a sum of this layer has; 0: not known.
double sum_length(const Specialization& spec, const Layer& layer) {
  std::vector<const Shape*> inputs;
  for (const TensorId id : layer.inputs) inputs.push_back(id != kNone && spec.shape(id) ? &*spec.shape(id) : nullptr);
  if (layer.op->multiply_adds == nullptr || inputs.size() < 2 || inputs[0] == nullptr || inputs[1] == nullptr ||
      !spec.shape(layer.outputs[0]))
    return 0;
  const Shape& output = *spec.shape(layer.outputs[0]);
  const auto sums = static_cast<double>(num_elements(output));
  return sums == 0 ? 0 : layer.op->multiply_adds(layer, inputs, output) / sums;
}

}  // namespace

double OneSignedProducts::Signs::share() const {
  const double all = positive + negative;
  return all > 0 ? std::max(positive, negative) / all : 0;
}

OneSignedProducts::OneSignedProducts(const Specialization& spec, const Assignment& assignment,
                                     Accumulation accumulation)
    : spec_(spec), assignment_(assignment) {
  if (accumulation != Accumulation::kFP32) return;
  for (const auto& [id, layer] : spec.network->layers.items()) {
    if (!is_product(layer.op->function) || spec.folded[id] || !spec.numeric[id]) continue;
    const double length = sum_length(spec, layer);
    if (length < least_length(assignment.precision[id])) continue;
    products_.push_back({id, length});
    for (const std::size_t i : {0, 1}) signs_[layer.inputs[i]];
  }
  for (const LongProduct& product : products_)
    for (const std::size_t i : {0, 1})
      if (const TensorId id = spec.network->layer(product.layer).inputs[i];
          spec.is_constant(id) && signs_[id].share() == 0)
        add(id, spec.value(id));
}

void OneSignedProducts::add(TensorId tensor, const Tensor& given) {
  const auto found = signs_.find(tensor);
  if (found == signs_.end() || given.type() != DataType::kFloat32) return;
  const Tensor values = given.in_memory();
  for (const float value : values.values<float>())
    if (std::isfinite(value)) (value > 0 ? found->second.positive : found->second.negative) += std::fabs(value);
}

void OneSignedProducts::warn() const {
  constexpr double kMostly = 0.9;
  std::vector<std::string> layers;
  double longest = 0, longest_of_fp8 = 0;
  for (const LongProduct& product : products_) {
    const Layer& layer = spec_.network->layer(product.layer);
    const double a = signs_.at(layer.inputs[0]).share(), b = signs_.at(layer.inputs[1]).share();
    if (a < kMostly || b < kMostly) continue;
    const Precision precision = assignment_.precision[product.layer];
    double& most = precision == Precision::kFP8 ? longest_of_fp8 : longest;
    most = std::max(most, product.length);
    layers.push_back(fmt::format("{} ({}, K = {:.0f}, of one sign: {:.0f} % and {:.0f} % of its operands)", layer.name,
                                 name_of(precision), product.length, 100 * a, 100 * b));
  }
  if (layers.empty()) return;
  std::string text = fmt::format(
      "[search] {} product(s) add up long sums of mostly one sign, here in float32: {}. A Hopper GPU loses of such "
      "sums",
      layers.size(), first_names(layers));
  if (longest_of_fp8 > 0)
    text += fmt::format(" up to {:.2g} in fp8 with fast accumulation (hopper-fast), and 6e-4 without (hopper)",
                        longest_of_fp8 * 0x1p-16);
  if (longest > 0)
    text += fmt::format("{} about {:.2g} in fp16 and bf16 (hopper)", longest_of_fp8 > 0 ? "," : "",
                        longest * std::exp2(-27.5));
  log_warning(text + fmt::format(". Try --accumulation {} in run or verify, or --keep these layers",
                                 longest_of_fp8 > 0 ? "hopper-fast" : "hopper"));
}

}  // namespace ulpscope
