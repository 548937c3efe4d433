#include "convert/normalizations.h"

#include <fmt/format.h>

#include <map>
#include <utility>
#include <variant>

#include "convert/lowerable.h"
#include "engine/fusion.h"
#include "engine/kernels.h"
#include "engine/scale_shift.h"

namespace ulpscope {
namespace {

/// The kernels of convolutions that the engine multiplies a BatchNormalization into.
std::vector<ProductKernel> multiplied_products(const Specialization& spec, const Assignment& assignment,
                                               Fusion fusion) {
  std::vector<ProductKernel> result;
  Schedule schedule = describe(spec, assignment, fuse(spec, assignment, fusion));
  for (auto& kernels : schedule.kernels)
    for (KernelDescription& kernel : kernels)
      if (auto* product = std::get_if<ProductKernel>(&kernel); product != nullptr && product->normalization != kNone)
        result.push_back(std::move(*product));
  return result;
}

}  // namespace

std::map<LayerId, LayerId> normalizations_in_elements(const Specialization& spec, const Assignment& assignment,
                                                      Fusion fusion) {
  std::map<LayerId, LayerId> result;
  for (const ProductKernel& product : multiplied_products(spec, assignment, fusion))
    if (product.operands[1].is_encoded()) result.emplace(product.layer, product.normalization);
  return result;
}

std::vector<std::string> prepare_normalizations(const Specialization& spec, const Assignment& assignment, Fusion fusion,
                                                TypedChanges& changes, IntegerExport& integers) {
  const Network& network = *spec.network;
  std::vector<std::string> sentences;
  std::map<LayerId, ProductKernel> products;
  for (ProductKernel& product : multiplied_products(spec, assignment, fusion))
    products.emplace(product.normalization, std::move(product));
  int prepared = 0;
  for (const auto& [id, layer] : network.layers.items()) {
    if (!spec.numeric[id] || layer.output(0) == kNone) continue;
    if (spec.type(layer.outputs[0]) != DataType::kFloat32 || !is_scale_shift(spec, layer)) continue;
    const auto product = products.find(id);
    const bool absorbed = product != products.end(), in_elements = absorbed && product->second.operands[1].is_encoded();
    if (!in_elements && !is_narrow(assignment.precision[id])) continue;
    const DataType type = storage_of(assignment.precision[id]);
    if (absorbed) {
      const LayerId convolution = product->second.layer;
      const ScaleAndShift channels = scale_shift(spec, layer, Rounding::kNone);
      const Layer& conv = network.layer(convolution);
      Tensor weights = scaled_weights(spec, conv, channels.scale);
      if (in_elements)
        integers.set_weights(convolution, std::move(weights));
      else
        changes.parameters.push_back({convolution, 1, std::move(weights)});
      changes.parameters.push_back({convolution, 2, scaled_bias(spec, conv, channels)});
      changes.absorbed.emplace_back(convolution, id);
      continue;
    }
    const Rounding rounding = rounding_of(type);
    if (survives_rounding(spec, layer, rounding)) continue;
    const ScaleAndShift channels = rounded_scale_shift(spec, layer, rounding);
    const std::int64_t count = channels.scale.size();
    const std::vector<float> zeros(static_cast<std::size_t>(count), 0.0F), ones(static_cast<std::size_t>(count), 1.0F);
    changes.parameters.push_back({id, 1, channels.scale});
    changes.parameters.push_back({id, 2, channels.shift});
    changes.parameters.push_back({id, 3, Tensor::of<float>({count}, zeros)});
    changes.parameters.push_back({id, 4, Tensor::of<float>({count}, ones)});
    changes.epsilons.emplace_back(id, 0.0F);
    ++prepared;
  }
  if (!changes.absorbed.empty())
    sentences.push_back(
        fmt::format("{} BatchNormalization(s) are multiplied into the convolutions before them, "
                    "in fp32 before rounding (as --fusion {} does)",
                    changes.absorbed.size(), fusion == Fusion::kFull ? "full" : "pointwise"));
  if (prepared > 0)
    sentences.push_back(
        fmt::format("{} BatchNormalization(s) have scale and shift prepared in fp32, with mean 0, "
                    "variance 1 and epsilon 0: the narrow type cannot hold their parameters",
                    prepared));
  return sentences;
}

}  // namespace ulpscope
