#include "precision/repair.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "calibration/region_scaling.h"
#include "core/messages.h"
#include "engine/fusion.h"
#include "formats/stored_elements.h"
#include "graph/name_match.h"
#include "precision/mask_reach.h"

namespace ulpscope {
namespace {

constexpr double kLargestFp16 = 65504.0;
/// From here on rounding to fp16 gives infinity.
constexpr double kInfiniteInFp16 = 65520.0;

/// Whether a body has a constant of that name, of its own or of the graph around it.
bool body_has_constant(const Network& network, std::string_view name) {
  return std::ranges::any_of(network.bodies(), [&](const Body& body) {
    const Network& inner = *body.graph->network;
    const TensorId id = inner.find_tensor(name);
    return (id != kNone && inner.tensor(id).value) || body_has_constant(inner, name);
  });
}

/// The constant of that name: a tensor, or the output of a Constant layer.
TensorId find_constant(const Network& network, std::string_view name) {
  const auto is_constant = [&](TensorId id) { return static_cast<bool>(network.tensor(id).value); };
  if (const TensorId id = network.find_tensor(name); id != kNone && is_constant(id)) return id;
  if (const LayerId id = network.find_layer(name); id != kNone && network.layers.contains(id))
    for (TensorId output : present(network.layer(id).outputs))
      if (is_constant(output)) return output;
  if (body_has_constant(network, name))
    throw invalid_argument(
        "[repair] constant '{}': expected one that a layer outside of bodies reads, got one that only the body of an "
        "If, Loop or Scan reads, where nothing is repaired; try --keep with the layers that read it",
        name);
  std::vector<std::string> names;
  for (const TensorInfo& info : network.tensors)
    if (info.value && is_floating(info.type)) names.push_back(info.name);
  throw invalid_argument("[repair] there is no constant '{}'{}", name, did_you_mean(std::string(name), names));
}

/// False if no finite magnitude reaches the limit: the common case, in one pass over the bits.
bool may_reach(const Tensor& value, float limit) {
  return any_elements(value, [&](std::span<const float> elements) {
    constexpr std::int32_t kInfinity = 0x7f800000;
    std::int32_t largest = 0;  // Bits of magnitudes are ordered as the magnitudes are.
    for (float v : elements) {
      const std::int32_t magnitude = std::bit_cast<std::int32_t>(v) & 0x7fffffff;
      largest = std::max(largest, magnitude < kInfinity ? magnitude : 0);
    }
    return largest >= std::bit_cast<std::int32_t>(limit);
  });
}

/// Of finite elements.
struct Extent {
  std::int64_t beyond = 0;  ///< So many become infinite in fp16.
  double largest = 0;
  double largest_held = 0;  ///< Of the others.
};

Extent extent_of(const Tensor& given) {
  const Tensor value = given.in_memory();
  Extent result;
  for (float v : value.values<float>()) {
    const double magnitude = std::abs(static_cast<double>(v));
    if (!std::isfinite(magnitude)) continue;
    result.largest = std::max(result.largest, magnitude);
    if (magnitude >= kInfiniteInFp16)
      ++result.beyond;
    else
      result.largest_held = std::max(result.largest_held, magnitude);
  }
  return result;
}

bool has_infinities(const Tensor& value) {
  return any_elements(value, [](std::span<const float> elements) {
    return std::ranges::any_of(elements, [](float v) { return std::isinf(v); });
  });
}

/// The first layer that computes with the constant in fp16, behind movement and what is folded; or nothing.
std::string fp16_reader(const Specialization& spec, const Assignment& low, TensorId constant) {
  const Network& network = *spec.network;
  std::vector<TensorId> reached{constant};
  for (std::size_t i = 0; i < reached.size(); ++i)
    for (LayerId id : spec.consumers[reached[i]]) {
      const Layer& layer = network.layer(id);
      if (layer.op->precision == PrecisionRule::kMovement || spec.folded[id]) {
        for (TensorId output : present(layer.outputs))
          if (std::ranges::find(reached, output) == reached.end()) reached.push_back(output);
      } else if (low.precision[id] == Precision::kFP16) {
        return layer.name;
      }
    }
  return {};
}

void clamp_tensor(Network& network, TensorId id, double limit) {
  TensorInfo& info = network.tensor(id);
  const std::string& name = info.name;
  if (info.type != DataType::kFloat32 || info.value.type() != DataType::kFloat32)
    throw invalid_argument("[repair] constant '{}': expected elements of type float32, got {}", name,
                           name_of(info.type));
  Tensor clamped = info.value.clone();
  const auto bound = static_cast<float>(limit);
  float* v = clamped.data<float>();
  for (std::int64_t i = 0; i < clamped.size(); ++i)
    if (std::isfinite(v[i]) && std::abs(v[i]) > bound) v[i] = std::copysign(bound, v[i]);
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

/// What bodies read of the graph around them is a constant of theirs, too. REQUIRES: the bodies are the network's own.
void clamp_in_bodies(Network& network, const std::string& name, double limit) {
  for (const Body& body : network.bodies()) {
    Network& inner = *body.graph->network;
    if (const TensorId id = inner.find_tensor(name); id != kNone && inner.tensor(id).value)
      clamp_tensor(inner, id, limit);
    clamp_in_bodies(inner, name, limit);
  }
}

void apply(Network& network, std::map<std::string, float>& scales, const std::string& name, const Clamp& clamp) {
  clamp_constant(network, name, clamp.limit);
  // What was calibrated beyond fp16 where the constant's elements are came from them: with steps as coarse, int8
  // would round everything else to 0.
  for (const TensorId id : mask_reach(network, find_constant(network, name)).tensors)
    if (const auto scale = scales.find(network.tensor(id).name);
        scale != scales.end() && 127.0 * static_cast<double>(scale->second) > kLargestFp16)
      scale->second = static_cast<float>(clamp.limit / 127.0);
}

void apply(Network& network, std::map<std::string, float>& scales, const std::string& name, const Equalize& equalize) {
  Equalization equalization;
  equalization.copies = equalize.copies;
  equalization.tensor = name;
  equalization.exponents = equalize.exponents;
  equalization.scale_after = static_cast<float>(equalize.scale);
  apply_equalization(network, scales, equalization);
}

void apply(Network& network, std::map<std::string, float>& scales, const std::string&, const ScaleRegion& region) {
  apply_region_scaling(network, scales, region.edits);
}

void apply(Network&, std::map<std::string, float>&, const std::string&, const ScaleShift&) {}
/// Made with the typed model, from its samples.
void apply(Network&, std::map<std::string, float>&, const std::string&, const CorrectBiases&) {}

/// The number among what it does, which tells two of one kind apart.
double limit_of(const Repair& repair) {
  double limit = 0;
  const auto read = [&](const char*, const auto& value) {
    if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(value)>>) limit = static_cast<double>(value);
  };
  std::visit([&](const auto& change) { change.visit(change, read); }, repair.change);
  return limit;
}

}  // namespace

void clamp_constant(Network& network, std::string_view name, double limit) {
  if (!(limit > 0) || !std::isfinite(limit))
    throw invalid_argument("[repair] constant '{}': expected a positive limit, got {}", name, limit);
  const TensorId id = find_constant(network, name);
  clamp_tensor(network, id, limit);
  const std::string tensor = network.tensor(id).name;
  if (!body_has_constant(network, tensor)) return;
  network.own_bodies();
  clamp_in_bodies(network, tensor, limit);
}

std::vector<Repair> clamp_constants(Network& network, const std::vector<std::string>& words) {
  const auto exists = [&](const std::string& name) {
    return network.find_tensor(name) != kNone || network.find_layer(name) != kNone;
  };
  std::vector<Repair> done;
  for (const std::string& word : words) {
    Repair repair{word, Clamp{kHalfOfFp16}};
    auto& clamp = std::get<Clamp>(repair.change);
    if (const std::size_t colon = word.rfind(':'); !exists(word) && colon != std::string::npos) {
      const std::string name = word.substr(0, colon), text = word.substr(colon + 1);
      char* end = nullptr;
      const double limit = std::strtod(text.c_str(), &end);
      const bool number = !text.empty() && *end == '\0';
      if (!number && exists(name))
        throw invalid_argument("[options] --clamp-constants '{}': expected NAME or NAME:LIMIT with a number, got '{}'",
                               word, text);
      if (number) {
        repair.name = name;
        clamp.limit = limit;
      }
    }
    clamp_constant(network, repair.name, clamp.limit);
    if (has_infinities(network.tensor(find_constant(network, repair.name)).value))
      log_warning("[options] --clamp-constants '{}': infinities stay as they are, since every float type holds them",
                  repair.name);
    done.push_back(std::move(repair));
  }
  return done;
}

std::vector<Repair> find_clamps(const Specialization& spec, const Assignment& low) {
  const Network& network = *spec.network;
  if (std::ranges::find(low.precision, Precision::kFP16) == low.precision.end()) return {};
  std::vector<Repair> result;
  for (const auto& [t, info] : network.tensors.items()) {
    if (!info.value || info.value.type() != DataType::kFloat32 || info.value.size() == 0) continue;
    // Also those that reach a layer through movement or folding are named at their origin.
    const LayerId producer = info.producer;
    if (producer != kNone && network.layer(producer).op->kind != OpKind::kConstant) continue;
    if (!may_reach(info.value, static_cast<float>(kInfiniteInFp16))) continue;
    const std::string reader = fp16_reader(spec, low, t);
    if (reader.empty() || !mask_reach(network, t).only_masks) continue;
    const Extent extent = extent_of(info.value);
    const double limit = std::max(kHalfOfFp16, extent.largest_held);
    result.push_back(
        {info.name, Clamp{limit},
         fmt::format("{} element(s) of the constant '{}' lie beyond fp16 (up to {:.3g}; read by '{}'): clamped to {}",
                     extent.beyond, info.name, extent.largest, reader, limit)});
  }
  return result;
}

std::vector<Repair> tightened(std::span<const Repair> clamps) {
  std::vector<Repair> result(clamps.begin(), clamps.end());
  for (Repair& each : result) std::get<Clamp>(each.change).limit /= 8;
  return result;
}

std::vector<Repair> find_scale_shifts(const Specialization& spec, const Assignment& low) {
  const Network& network = *spec.network;
  std::vector<Repair> result;
  for (const auto& [l, layer] : network.layers.items()) {
    if (low.precision[l] != Precision::kFP16 || !is_scale_shift(spec, layer) || layer.inputs.size() < 5) continue;
    double largest = 0;
    for (std::size_t i = 1; i < 5; ++i) largest = std::max(largest, extent_of(spec.value(layer.inputs[i])).largest);
    if (largest < kInfiniteInFp16) continue;
    result.push_back(
        {layer.name, ScaleShift{},
         fmt::format("parameters up to {:.3g} lie beyond fp16: prepared as scale and shift in fp32", largest)});
  }
  return result;
}

Repair repair_of(const Equalization& equalization) {
  const int most = equalization.exponents.empty() ? 0 : *std::ranges::max_element(equalization.exponents);
  const std::string text = fmt::format(
      "channels of '{}' differ by up to 2^{}: scaled by powers of two {}, the int8 step falls from {:.3g} to {:.3g}",
      equalization.tensor, most, equalization.copies ? "on the way to its int8 products" : "in the constants around it",
      equalization.scale_before, equalization.scale_after);
  return {equalization.tensor,
          Equalize{static_cast<double>(equalization.scale_after), equalization.exponents, equalization.copies}, text};
}

bool changes_network(const Repair& repair) { return !std::holds_alternative<ScaleShift>(repair.change); }

std::vector<std::string> words_of(std::span<const Repair> repairs) {
  std::vector<std::string> words;
  for (const Repair& repair : repairs)
    if (changes_network(repair))
      words.push_back(fmt::format("{} {}:{:g}", kind_of(repair), repair.name, limit_of(repair)));
  return words;
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
  for (const Repair& repair : repairs)
    std::visit([&](const auto& change) { apply(network, scales, repair.name, change); }, repair.change);
}

}  // namespace ulpscope
