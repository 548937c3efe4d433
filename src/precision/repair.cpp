#include "precision/repair.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "calibration/region_scaling.h"
#include "engine/fusion.h"
#include "formats/stored_elements.h"
#include "graph/name_match.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

constexpr double kLargestFp16 = 65504.0;

/// The constant of that name: a tensor, or the output of a Constant layer.
TensorId find_constant(const Network& network, std::string_view name) {
  const auto is_constant = [&](TensorId id) { return static_cast<bool>(network.tensor(id).value); };
  if (const TensorId id = network.find_tensor(name); id != kNone && is_constant(id)) return id;
  if (const LayerId id = network.find_layer(name); id != kNone)
    for (TensorId output : present(network.layer(id).outputs))
      if (is_constant(output)) return output;
  std::vector<std::string> names;
  for (const TensorInfo& info : network.tensors)
    if (info.value && is_floating(info.type)) names.push_back(info.name);
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("[repair] there is no constant '{}'{}", name, did_you_mean(std::string(name), names)));
}

/// False if no magnitude is larger than the limit, NaN aside: the common case, in one pass over the bits.
bool may_exceed(const Tensor& value, float limit) {
  return any_elements(value, [&](std::span<const float> elements) {
    std::int32_t largest = 0;  // Bits of magnitudes are ordered as the magnitudes are.
    for (float v : elements) largest = std::max(largest, std::bit_cast<std::int32_t>(v) & 0x7fffffff);
    return largest > std::bit_cast<std::int32_t>(limit);
  });
}

struct Extent {
  std::int64_t beyond = 0;
  double largest = 0;
};

Extent extent_of(const Tensor& given, double limit) {
  const Tensor value = given.in_memory();
  Extent result;
  for (float v : value.values<float>()) {
    const double magnitude = std::abs(static_cast<double>(v));
    if (std::isnan(magnitude)) continue;
    result.largest = std::max(result.largest, magnitude);
    result.beyond += magnitude > limit ? 1 : 0;
  }
  return result;
}

}  // namespace

void clamp_constant(Network& network, std::string_view name, double limit) {
  if (!(limit > 0) || !std::isfinite(limit))
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("[repair] constant '{}': expected a positive limit, got {}", name, limit));
  TensorInfo& info = network.tensor(find_constant(network, name));
  if (info.type != DataType::kFloat32 || info.value.type() != DataType::kFloat32)
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("[repair] constant '{}': expected elements of type float32, got {}", name, name_of(info.type)));
  Tensor clamped = info.value.clone();
  const auto bound = static_cast<float>(limit);
  float* v = clamped.data<float>();
  for (std::int64_t i = 0; i < clamped.size(); ++i)
    if (std::abs(v[i]) > bound) v[i] = std::copysign(bound, v[i]);
  info.value = std::move(clamped);
  if (info.producer == kNone) return;
  // A Constant layer carries the elements as an attribute as well.
  Layer& layer = network.layer(info.producer);
  if (layer.attributes.has("value")) layer.attributes.set("value", info.value);
  const std::span<const float> elements = info.value.values<float>();
  if (layer.attributes.has("value_float")) layer.attributes.set("value_float", elements[0]);
  if (layer.attributes.has("value_floats"))
    layer.attributes.set("value_floats", std::vector<float>(elements.begin(), elements.end()));
}

std::vector<Repair> clamp_constants(Network& network, const std::vector<std::string>& words) {
  const auto exists = [&](const std::string& name) {
    return network.find_tensor(name) != kNone || network.find_layer(name) != kNone;
  };
  std::vector<Repair> done;
  for (const std::string& word : words) {
    Repair clamp{"clamp", word, kHalfOfFp16, ""};
    if (const std::size_t colon = word.rfind(':'); !exists(word) && colon != std::string::npos) {
      const std::string name = word.substr(0, colon), text = word.substr(colon + 1);
      char* end = nullptr;
      const double limit = std::strtod(text.c_str(), &end);
      const bool number = !text.empty() && *end == '\0';
      if (!number && exists(name))
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("[options] --clamp-constants '{}': expected NAME or NAME:LIMIT with a number, got '{}'",
                                word, text));
      if (number) {
        clamp.name = name;
        clamp.limit = limit;
      }
    }
    clamp_constant(network, clamp.name, clamp.limit);
    done.push_back(std::move(clamp));
  }
  return done;
}

std::vector<Repair> find_clamps(const Specialization& spec, const Assignment& low) {
  const Network& network = *spec.network;
  const bool any_fp16 = std::ranges::find(low.precision, Precision::kFP16) != low.precision.end();
  std::vector<Repair> result;
  for (const auto& [t, info] : network.tensors.items()) {
    if (!info.value || info.value.type() != DataType::kFloat32 || info.value.size() == 0) continue;
    // Also those that reach a layer through movement or folding are named at their origin.
    const LayerId producer = info.producer;
    if (producer != kNone && network.layer(producer).op->kind != OpKind::kConstant) continue;
    if (!any_fp16 || !may_exceed(info.value, static_cast<float>(kLargestFp16))) continue;
    const Extent extent = extent_of(info.value, kLargestFp16);
    if (extent.beyond == 0) continue;
    // Follow the constant through movement layers to the layers that compute with it.
    std::vector<TensorId> reached{t};
    std::vector<std::string> readers;
    bool elsewhere = false;
    for (std::size_t i = 0; i < reached.size(); ++i)
      for (LayerId id : spec.consumers[reached[i]]) {
        const Layer& layer = network.layer(id);
        if (layer.op->precision == PrecisionRule::kMovement || spec.folded[id]) {
          for (TensorId output : present(layer.outputs))
            if (std::ranges::find(reached, output) == reached.end()) reached.push_back(output);
        } else if (is_scale_shift(spec, layer)) {
          elsewhere = true;  // Prepared in fp32.
        } else if (low.precision[id] == Precision::kFP16) {
          readers.push_back(layer.name);
        }
      }
    if (readers.empty() || elsewhere) continue;
    Repair repair;
    repair.kind = "clamp";
    repair.name = info.name;
    repair.limit = kHalfOfFp16;
    repair.text =
        fmt::format("{} element(s) of the constant '{}' lie beyond fp16 (up to {:.3g}; read by '{}'): clamped to {}",
                    extent.beyond, info.name, extent.largest, readers.front(), kHalfOfFp16);
    result.push_back(std::move(repair));
  }
  return result;
}

std::vector<Repair> find_scale_shifts(const Specialization& spec, const Assignment& low) {
  const Network& network = *spec.network;
  std::vector<Repair> result;
  for (const auto& [l, layer] : network.layers.items()) {
    if (low.precision[l] != Precision::kFP16 || !is_scale_shift(spec, layer) || layer.inputs.size() < 5) continue;
    double largest = 0;
    for (std::size_t i = 1; i < 5; ++i)
      largest = std::max(largest, extent_of(spec.value(layer.inputs[i]), kLargestFp16).largest);
    if (largest <= kLargestFp16) continue;
    Repair repair;
    repair.kind = "scale-shift";
    repair.name = layer.name;
    repair.text = fmt::format("parameters up to {:.3g} lie beyond fp16: prepared as scale and shift in fp32", largest);
    result.push_back(std::move(repair));
  }
  return result;
}

Repair repair_of(const Equalization& equalization) {
  Repair repair;
  repair.kind = equalization.copies ? "equalise-copy" : "equalise";
  repair.name = equalization.tensor;
  repair.limit = static_cast<double>(equalization.scale_after);
  repair.exponents = equalization.exponents;
  const int most = equalization.exponents.empty() ? 0 : *std::ranges::max_element(equalization.exponents);
  repair.text = fmt::format(
      "channels of '{}' differ by up to 2^{}: scaled by powers of two {}, the int8 step falls from {:.3g} to {:.3g}",
      equalization.tensor, most, equalization.copies ? "on the way to its int8 products" : "in the constants around it",
      equalization.scale_before, equalization.scale_after);
  return repair;
}

bool same_bits(std::span<const TensorMap> a, std::span<const TensorMap> b) {
  const auto same = [](const NamedTensor& x, const NamedTensor& y) {
    return x.tensor.type() == y.tensor.type() && x.tensor.shape() == y.tensor.shape() &&
           (x.tensor.bytes() == 0 || std::memcmp(x.tensor.raw(), y.tensor.raw(), x.tensor.bytes()) == 0);
  };
  return std::ranges::equal(a, b,
                            [&](const TensorMap& x, const TensorMap& y) { return std::ranges::equal(x, y, same); });
}

void apply_repairs(Network& network, std::map<std::string, float>& scales, std::span<const Repair> repairs) {
  for (const Repair& repair : repairs) {
    if (repair.kind == "clamp") {
      clamp_constant(network, repair.name, repair.limit);
      // What was calibrated beyond fp16 came from such a constant: with steps as coarse, int8 would round it to 0.
      for (auto& [tensor, scale] : scales)
        if (127.0 * static_cast<double>(scale) > kLargestFp16) scale = static_cast<float>(repair.limit / 127.0);
    } else if (repair.kind == "equalise" || repair.kind == "equalise-copy") {
      Equalization equalization;
      equalization.copies = repair.kind == "equalise-copy";
      equalization.tensor = repair.name;
      equalization.exponents = repair.exponents;
      equalization.scale_after = static_cast<float>(repair.limit);
      apply_equalization(network, scales, equalization);
    } else if (repair.kind == "scale") {
      apply_region_scaling(network, scales, repair);
    }
  }
}

}  // namespace ulpscope
