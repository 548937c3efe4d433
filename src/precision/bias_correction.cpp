#include "precision/bias_correction.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "calibration/channel_fold.h"
#include "engine/int8.h"
#include "graph/evaluate.h"
#include "ops/forms.h"
#include "precision/local_errors.h"

namespace ulpscope {
namespace {

/// The constant vector that is added to the channels of a product.
struct Bias {
  LayerId layer = kNone;  ///< That reads it,
  std::size_t input = 0;  ///< and where.
  double factor = 1;      ///< What it is multiplied by: beta of Gemm.
};

std::optional<Bias> bias_constant(const Specialization& spec, LayerId product) {
  const Network& network = *spec.network;
  const Layer& layer = network.layer(product);
  const std::int64_t channels = output_channels(spec, layer);
  const auto fits = [&](const Layer& reader, std::size_t input) {
    const Tensor* value = constant_input(network, reader, input);
    return value != nullptr && value->size() == channels;
  };
  if (const LayerId add = spec.bias[product]; add != kNone)
    for (const std::size_t input : {std::size_t{0}, std::size_t{1}})
      if (fits(network.layer(add), input)) return Bias{add, input};
  if (!fits(layer, 2)) return {};
  const auto form = ops::matrix_form(layer);
  const double beta = form ? static_cast<double>(form->beta) : 1;
  if (beta == 0) return {};
  return Bias{product, 2, beta};
}

/// Which dimension of its output counts the channels of a product.
std::size_t channel_axis(const Layer& layer, const Shape& shape) {
  return ops::is_convolution(layer) || ops::is_transposed_convolution(layer) ? 1 : shape.size() - 1;
}

/// The mean per channel of everything that is added.
class ChannelMeans {
 public:
  explicit ChannelMeans(std::size_t channels) : sums_(channels) {}

  void add(const Tensor& values, std::size_t axis) {
    const Shape& shape = values.shape();
    const std::int64_t inner = std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, shape.end(),
                                               std::int64_t{1}, std::multiplies<>());
    const float* data = values.data<float>();
    for (std::int64_t i = 0; i < values.size(); ++i)
      sums_[static_cast<std::size_t>(i / inner % shape[axis])] += static_cast<double>(data[i]);
    count_ += values.size() / std::max<std::int64_t>(1, shape[axis]);
  }
  /// Nothing where no value was added, or some were not finite.
  std::optional<std::vector<double>> means() const {
    std::vector<double> result = sums_;
    for (double& value : result) value /= static_cast<double>(count_);
    if (count_ == 0 || !std::ranges::all_of(result, [](double value) { return std::isfinite(value); })) return {};
    return result;
  }

 private:
  std::vector<double> sums_;
  std::int64_t count_ = 0;
};

}  // namespace

BiasCorrections correct_biases(Network& network, const Specialization& spec, const Assignment& low,
                               const BuildOptions& options, std::span<const TensorMap> samples) {
  BiasCorrections result;
  std::vector<LayerId> products;
  std::vector<Bias> biases;
  std::vector<ChannelMeans> errors;
  for (const auto& [l, layer] : network.layers.items()) {
    if (!is_quantized(low.precision[l]) || !is_product(layer.op->function) || spec.folded[l] ||
        constant_input(network, layer, 1) == nullptr || is_integer_product(spec, l))
      continue;
    const auto bias = bias_constant(spec, l);
    if (!bias) {
      ++result.without_bias;
      continue;
    }
    products.push_back(l);
    biases.push_back(*bias);
    errors.emplace_back(static_cast<std::size_t>(output_channels(spec, layer)));
  }
  if (products.empty()) return result;
  LocalErrors local(network, low, products, options);
  for (const TensorMap& sample : samples) {
    std::vector<Tensor> inputs;
    for (const NamedTensor& each : sample) inputs.push_back(to_physical(each.tensor));
    const auto run = local.run(inputs, {});
    for (const LocalError& each : run.errors) {
      const auto place = static_cast<std::size_t>(std::ranges::find(products, each.layer) - products.begin());
      errors[place].add(each.error, channel_axis(network.layer(each.layer), each.error.shape()));
    }
  }
  for (std::size_t p = 0; p < products.size(); ++p) {
    const auto means = errors[p].means();
    if (!means) continue;
    Layer& reader = network.layer(biases[p].layer);
    const TensorId before = reader.inputs[biases[p].input];
    const Tensor& old = *constant_input(network, reader, biases[p].input);
    TensorInfo info;
    info.name = network.free_name(network.tensor(before).name + "/corrected");
    info.type = DataType::kFloat32;
    info.shape = old.shape();
    info.value = old.clone();
    BiasCorrection done{network.layer(products[p]).name, network.tensor(before).name};
    for (std::size_t c = 0; c < means->size(); ++c) {
      info.value.data<float>()[c] =
          static_cast<float>(static_cast<double>(old.data<float>()[c]) - (*means)[c] / biases[p].factor);
      done.largest = std::max(done.largest, std::fabs((*means)[c] / biases[p].factor));
    }
    network.layer(biases[p].layer).inputs[biases[p].input] = network.add_tensor(std::move(info));
    result.done.push_back(std::move(done));
  }
  return result;
}

}  // namespace ulpscope
