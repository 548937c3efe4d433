// Makes the changes of region scaling in a network.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "calibration/region_scaling.h"
#include "calibration/scaling_model.h"
#include "core/file.h"
#include "core/messages.h"
#include "formats/quantized.h"
#include "graph/adjoint.h"
#include "graph/name_match.h"
#include "ops/registry.h"

namespace ulpscope {
namespace {

[[noreturn]] void refuse(const std::string& where, const std::string& expected) {
  throw invalid_argument("[repair] {}: expected {}; is the answer of another model?", where, expected);
}

std::string where_of(const ScaleEdit& edit) {
  const bool tensor = edit.kind == ScaleEdit::Kind::kSharedConstant || edit.kind == ScaleEdit::Kind::kInt8Scale;
  return tensor ? fmt::format("tensor '{}'", edit.name) : fmt::format("layer '{}', input {}", edit.name, edit.input);
}

LayerId find_layer(const Network& network, const ScaleEdit& edit) {
  const LayerId id = network.find_layer(edit.name);
  if (id != kNone) return id;
  std::vector<std::string> names;
  for (const Layer& layer : network.layers) names.push_back(layer.name);
  refuse(fmt::format("layer '{}'", edit.name), "a layer of the network" + did_you_mean(edit.name, names));
}

/// Nothing where that would not be exact.
std::optional<Tensor> times_power(const Tensor& given, int exponent) {
  const Tensor value = given.in_memory();
  Tensor result(DataType::kFloat32, value.shape());
  const float* from = value.data<float>();
  float* to = result.data<float>();
  const float factor = std::ldexp(1.0F, exponent);
  bool exact = true;
  for (std::int64_t i = 0; i < value.size(); ++i) {
    to[i] = from[i] * factor;
    const float magnitude = std::fabs(to[i]);
    exact &= from[i] == 0 ||
             (magnitude >= std::numeric_limits<float>::min() && magnitude <= std::numeric_limits<float>::max());
  }
  MappedFile::release(value.raw(), value.bytes());
  if (!exact) return std::nullopt;
  return result;
}

/// The constant times a power of two, as a tensor of its own. One that has the same elements already serves again.
TensorId scaled_constant(Network& network, TensorId id, const ScaleEdit& edit) {
  const Tensor* value = id == kNone ? nullptr : stored_constant(network, id);
  if (value == nullptr || value->type() != DataType::kFloat32) refuse(where_of(edit), "a constant of type float32");
  auto scaled = times_power(*value, edit.exponent);
  if (!scaled)
    refuse(where_of(edit), fmt::format("a constant that stays in float32's range times 2^{}", edit.exponent));
  const std::string name = fmt::format("{}/times_2^{}", network.tensor(id).name, edit.exponent);
  if (const TensorId same = network.find_tensor(name); same != kNone && network.tensor(same).producer == kNone)
    if (const Tensor& other = network.tensor(same).value; other && other.type() == scaled->type() &&
                                                          other.shape() == scaled->shape() &&
                                                          std::memcmp(other.raw(), scaled->raw(), other.bytes()) == 0)
      return same;
  TensorInfo info;
  info.name = network.free_name(name);
  info.type = DataType::kFloat32;
  info.shape = scaled->shape();
  info.value = std::move(*scaled);
  return network.add_tensor(std::move(info));
}

TensorId input_of(const Network& network, LayerId id, const ScaleEdit& edit) {
  const TensorId tensor =
      edit.input < 0 ? TensorId(kNone) : network.layer(id).input(static_cast<std::size_t>(edit.input));
  if (tensor == kNone) refuse(where_of(edit), "an input that the layer has");
  return tensor;
}

/// A scale for another one's tensor times 2^exponent.
float moved_scale(float scale, const ScaleEdit& edit) {
  const float moved = std::ldexp(scale, edit.exponent);
  if (!std::isnormal(moved) || moved > kLargestScale)
    refuse(where_of(edit), fmt::format("an int8 scale ({:g}) that stays in float32's range times 2^{}",
                                       static_cast<double>(scale), edit.exponent));
  return moved;
}

/// Whoever computes without int8 has no scales.
void move_scale(const Network& network, std::map<std::string, float>& scales, const ScaleEdit& edit) {
  if (network.find_tensor(edit.name) == kNone) refuse(where_of(edit), "a tensor of the network");
  if (const auto found = scales.find(edit.name); found != scales.end())
    found->second = moved_scale(found->second, edit);
}

void insert(Network& network, std::map<std::string, float>& scales, const ScaleEdit& edit) {
  const LayerId reader = find_layer(network, edit);
  const TensorId before = input_of(network, reader, edit);
  if (network.tensor(before).type != DataType::kFloat32) refuse(where_of(edit), "an input of type float32");
  TensorInfo factor;
  Layer layer;
  layer.name = network.free_name(fmt::format("{}/times_2^{}", edit.name, edit.exponent));
  factor.name = network.free_name(layer.name + "/factor");
  factor.type = DataType::kFloat32;
  factor.shape = Shape{};
  factor.value = Tensor(DataType::kFloat32, Shape{});
  factor.value.data<float>()[0] = std::ldexp(1.0F, edit.exponent);
  TensorInfo product = network.tensor(before);
  product.name = layer.name;
  product.producer = kNone;
  product.value = {};
  if (const auto found = scales.find(network.tensor(before).name); found != scales.end())
    scales[product.name] = moved_scale(found->second, edit);
  layer.op = op_registry().find("", "Mul");
  layer.opset = AdjointContext::kAdjointOpset;
  layer.inputs = {before, network.add_tensor(std::move(factor))};
  const TensorId output = network.add_tensor(std::move(product));
  layer.outputs = {output};
  std::ranges::replace(network.layer(reader).inputs, before, output);
  network.insert_layer(reader, std::move(layer));
}

void scale_epsilon(Network& network, const ScaleEdit& edit) {
  Layer& layer = network.layer(find_layer(network, edit));
  if (scaling_of(layer) != Scaling::kNormalization) refuse(where_of(edit), "a normalization with an epsilon");
  layer.attributes.set("epsilon", std::ldexp(layer.attributes.real("epsilon", kAbsentEpsilon), edit.exponent));
}

}  // namespace

void apply_region_scaling(Network& network, std::map<std::string, float>& scales, std::span<const ScaleEdit> edits) {
  for (const ScaleEdit& edit : edits) {
    if (std::abs(edit.exponent) > ExponentCost::kLargest)
      refuse(where_of(edit), fmt::format("an exponent of at most {}", ExponentCost::kLargest));
    switch (edit.kind) {
      case ScaleEdit::Kind::kConstant: {
        const LayerId id = find_layer(network, edit);
        const TensorId scaled = scaled_constant(network, input_of(network, id, edit), edit);
        network.layer(id).inputs[static_cast<std::size_t>(edit.input)] = scaled;
        break;
      }
      case ScaleEdit::Kind::kSharedConstant: {
        const TensorId id = network.find_tensor(edit.name), scaled = scaled_constant(network, id, edit);
        for (Layer& layer : network.layers) std::ranges::replace(layer.inputs, id, scaled);
        break;
      }
      case ScaleEdit::Kind::kInsertion:
        insert(network, scales, edit);
        break;
      case ScaleEdit::Kind::kEpsilon:
        scale_epsilon(network, edit);
        break;
      case ScaleEdit::Kind::kInt8Scale:
        move_scale(network, scales, edit);
        break;
    }
  }
}

}  // namespace ulpscope
