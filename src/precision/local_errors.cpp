#include "precision/local_errors.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/adjoint.h"
#include "ops/registry.h"
#include "ulpscope/error.h"

namespace ulpscope {

struct LocalErrors::Twin {
  Network network;
  std::vector<std::pair<LayerId, TensorId>> errors;  ///< Per leading output: layer and tensor of the original network.
  std::vector<TensorId> tensors;
  Assignment assignment;
  std::unique_ptr<Executable> executable;
};

LocalErrors::LocalErrors(const Network& network, const Assignment& low, std::span<const LayerId> candidates,
                         const BuildOptions& options, const WeightCache& weights)
    : network_(network),
      low_(low),
      candidates_(candidates.begin(), candidates.end()),
      options_(options),
      weights_(weights) {}

LocalErrors::~LocalErrors() = default;

std::shared_ptr<LocalErrors::Twin> LocalErrors::twin(std::span<const TensorId> tensors,
                                                     const std::vector<Shape>& shapes) {
  const std::lock_guard lock(mutex_);
  if (twin_ && std::ranges::equal(twin_->tensors, tensors)) return twin_;
  auto made = std::make_shared<Twin>();
  made->tensors.assign(tensors.begin(), tensors.end());
  Network& network = made->network;
  network = network_;
  network.outputs.clear();
  std::vector<Precision> twin_precision;
  const OpDef* sub = op_registry().find("", "Sub");
  for (LayerId id : candidates_) {
    Layer low = network_.layer(id);
    low.name += "/low";
    for (TensorId& output : low.outputs) {
      if (output == kNone) continue;
      TensorInfo info;
      info.name = network_.tensor(output).name + "/low";
      info.type = network_.tensor(output).type;
      output = network.add_tensor(std::move(info));
    }
    const std::vector<TensorId> low_outputs = low.outputs;
    network.add_layer(std::move(low));
    twin_precision.push_back(low_.precision[id]);
    for (std::size_t o = 0; o < low_outputs.size(); ++o) {
      const TensorId exact = network_.layer(id).outputs[o];
      if (exact == kNone || !is_floating(network_.tensor(exact).type)) continue;
      TensorInfo info;
      info.name = network_.tensor(exact).name + "/error";
      info.type = network_.tensor(exact).type;
      const TensorId error = network.add_tensor(std::move(info));
      Layer difference;
      difference.name = fmt::format("{}/error {}", network_.layer(id).name, o);
      difference.op = sub;
      difference.opset = AdjointContext::kAdjointOpset;
      difference.inputs = {low_outputs[o], exact};
      difference.outputs = {error};
      network.add_layer(std::move(difference));
      twin_precision.push_back(Precision::kFP32);
      network.outputs.push_back(error);
      made->errors.emplace_back(id, exact);
    }
  }
  network.outputs.insert(network.outputs.end(), tensors.begin(), tensors.end());
  network.check();

  Assignment& assignment = made->assignment;
  assignment.precision.assign(network_.layers.size(), Precision::kFP32);
  for (Precision precision : twin_precision) assignment.precision.push_back(precision);
  assignment.reason.resize(network.layers.size());
  assignment.scale = low_.scale;
  assignment.int8_output = low_.int8_output;
  if (!assignment.scale.empty()) assignment.scale.resize(network.tensors.size(), 0.0f);
  const auto spec = specialize(network, shapes);
  derive_storage(network, spec->inferred, false, false, assignment);
  BuildOptions options = options_;
  options.fusion = Fusion::kNone;
  made->executable = std::make_unique<Executable>(network, assignment, options, spec, weights_);
  return twin_ = std::move(made);
}

LocalErrors::Result LocalErrors::run(std::span<const Tensor> inputs, std::span<const TensorId> tensors) {
  std::vector<Shape> shapes;
  for (const Tensor& tensor : inputs) shapes.push_back(tensor.shape());
  const std::shared_ptr<Twin> made = twin(tensors, shapes);
  std::vector<Tensor> outputs = made->executable->plan_for(shapes, made->assignment, Fusion::kNone)->run(inputs);
  Result result;
  for (std::size_t i = 0; i < made->errors.size(); ++i)
    result.errors.push_back({made->errors[i].first, made->errors[i].second, std::move(outputs[i])});
  for (std::size_t i = made->errors.size(); i < outputs.size(); ++i) result.values.push_back(std::move(outputs[i]));
  return result;
}

}  // namespace ulpscope
