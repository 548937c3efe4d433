#include "ulpscope/onnx_engine.h"

#include <optional>
#include <utility>

#include "api/onnx_engine_impl.h"
#include "api/tensors_in_order.h"
#include "backend/backend.h"
#include "core/parallel.h"
#include "engine/option_names.h"
#include "graph/layer_choice.h"
#include "onnx/import.h"
#include "runners/foreign_operators.h"

namespace ulpscope {
namespace {

BuildOptions apply(const EngineOptions& options, Network& network) {
  const Precision base = precision_from_name(name_of(options.precision), "[engine] precision", is_rung);
  BuildOptions build;
  build.fusion = fusion_from_name(options.fusion, "[engine] fusion");
  build.accumulation = accumulation_from_name(options.accumulation, "[engine] accumulation");
  build.attention = attention_from_name(options.attention, "[engine] attention");
  build.threads = checked_threads(options.threads, "[engine] threads");
  build.memory_limit = options.memory_limit;
  build.backend = find_backend(options.backend).name();
  build.constraints = ConstraintMode::kObey;
  build.assume_lowest = true;
  if (base != Precision::kFP32) build.enabled.set(base);
  std::vector<std::string> words;
  for (const auto& [name, precision] : options.layer_precisions) words.push_back(name + ":" + precision);
  for (const auto& [id, request] :
       find_layer_precisions(network, words, {.where = "[engine] layer_precisions", .accepts = is_any})) {
    network.layer(id).precision = request;
    build.on_request.set(*request.precision());
  }
  build.on_request = with_smaller_blocks(build.on_request);
  build.scales = options.scales;
  return build;
}

std::shared_ptr<Engine> build(const std::shared_ptr<Network>& network, const EngineOptions& options) {
  const BuildOptions build_options = apply(options, *network);
  return Engine::build(network, build_options);
}

}  // namespace

OnnxEngine::OnnxEngine(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

OnnxEngine OnnxEngine::from_file(const std::filesystem::path& path, const EngineOptions& options) {
  return OnnxEngine(std::make_shared<Impl>(build(import_onnx(path, registry_with_onnxruntime()), options)));
}

OnnxEngine OnnxEngine::from_bytes(std::span<const std::byte> model, const EngineOptions& options) {
  return OnnxEngine(std::make_shared<Impl>(build(import_onnx(model, "model", registry_with_onnxruntime()), options)));
}

const std::vector<TensorSpec>& OnnxEngine::inputs() const noexcept { return impl_->inputs; }
const std::vector<TensorSpec>& OnnxEngine::outputs() const noexcept { return impl_->outputs; }
const std::vector<TensorSpec>& OnnxEngine::defaults() const noexcept { return impl_->defaults; }

std::vector<LayerSummary> OnnxEngine::layers() const {
  std::vector<LayerSummary> result;
  for (Engine::LayerReport& layer : impl_->engine->report()) {
    result.push_back({std::move(layer.name), std::move(layer.op), std::move(layer.precision), std::move(layer.reason),
                      std::move(layer.nodes)});
  }
  return result;
}

std::vector<Tensor> OnnxEngine::run(std::span<const Tensor> inputs) const { return impl_->engine->run(inputs); }

std::optional<double> OnnxEngine::device_microseconds(std::span<const Shape> shapes) const {
  return impl_->engine->device_microseconds({shapes.begin(), shapes.end()});
}

std::map<std::string, Tensor> OnnxEngine::run(const std::map<std::string, Tensor>& inputs) const {
  const auto [ordered, given] =
      naming_file(impl_->engine->network(), [&] { return in_order("input", impl_->inputs, impl_->defaults, inputs); });
  Engine& engine = given.empty() ? *impl_->engine : *impl_->engine->with_given(given);
  std::vector<Tensor> results = engine.run(ordered);
  std::map<std::string, Tensor> by_name;
  for (std::size_t i = 0; i < results.size(); ++i) by_name.emplace(impl_->outputs[i].name, std::move(results[i]));
  return by_name;
}

}  // namespace ulpscope
