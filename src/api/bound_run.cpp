#include "ulpscope/bound_run.h"

#include <mutex>
#include <utility>

#include "api/onnx_engine_impl.h"
#include "api/tensors_in_order.h"
#include "backend/device_plan.h"
#include "core/messages.h"
#include "runtime/device_run.h"

namespace ulpscope {
namespace {

using ByName = std::map<std::string, DeviceTensor>;

DeviceRun run_of(const OnnxEngine::Impl& impl, const ByName& inputs, const ByName& outputs, void* stream) {
  const Network& network = impl.engine->network();
  auto [ordered, given] = naming_file(network, [&] { return in_order("input", impl.inputs, impl.defaults, inputs); });
  std::vector<DeviceTensor> results;
  if (!outputs.empty())
    results = naming_file(network, [&] { return in_order("output", impl.outputs, {}, outputs); }).first;
  return {given.empty() ? impl.engine : impl.engine->with_given(given), std::move(ordered), std::move(results), stream};
}

ByName by_name(const std::vector<TensorSpec>& specs, const std::vector<DeviceTensor>& tensors) {
  ByName result;
  for (std::size_t i = 0; i < tensors.size(); ++i) result.emplace(specs[i].name, tensors[i]);
  return result;
}

}  // namespace

struct BoundRun::Impl {
  std::mutex mutex;
  DeviceRun run;
  const std::vector<TensorSpec> specs;
};

BoundRun::BoundRun(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

void BoundRun::run(void* stream) const {
  const std::lock_guard lock(impl_->mutex);
  impl_->run.run(stream);
}

ByName BoundRun::outputs() const {
  const std::lock_guard lock(impl_->mutex);
  return by_name(impl_->specs, impl_->run.outputs());
}

std::optional<int> OnnxEngine::device() const {
  const DeviceSpace* const space = impl_->engine->space();
  return space != nullptr ? std::optional(space->number()) : std::nullopt;
}

ByName OnnxEngine::run_on_device(const ByName& inputs, void* stream) const {
  DeviceRun run = run_of(*impl_, inputs, {}, stream);
  run.run(stream);
  return by_name(impl_->outputs, run.outputs());
}

BoundRun OnnxEngine::bind(const ByName& inputs, const ByName& outputs, void* stream) const {
  std::shared_ptr<BoundRun::Impl> impl(new BoundRun::Impl{{}, run_of(*impl_, inputs, outputs, stream), impl_->outputs});
  if (impl->run.outputs().empty()) impl->run.run(stream);
  return BoundRun(std::move(impl));
}

Tensor to_host(const DeviceTensor& tensor, void* stream) {
  if (!tensor.cuda) return to_cpu_tensor(tensor);
  DeviceSpace* const space = &find_device_backend("cuda")->space();
  if (*tensor.cuda != space->number())
    throw invalid_argument("[run] expected a tensor on CUDA device {}, got one on {}", space->number(),
                           place_of(tensor));
  Tensor result(tensor.type, tensor.shape);
  if (result.bytes() > 0) space->download(result.raw(), tensor.data, result.bytes(), stream);
  return result;
}

}  // namespace ulpscope
