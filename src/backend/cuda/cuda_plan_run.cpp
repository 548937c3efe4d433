// How a plan runs: what is enqueued and recorded, and where a run begins that shares activations with earlier ones.
#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/cuda_plan.h"
#include "core/memory.h"

namespace ulpscope::cuda {

MatrixProductOperands CudaPlan::operands_of(const ProductStep& step) const {
  return {address(step.a), address(step.b), address(step.d), address(step.bias), address(step.residual), step.factor};
}

ConvolutionOperands CudaPlan::operands_of(const ConvolveStep& step) const {
  ConvolutionOperands operands{address(step.x), address(step.weights), address(step.y), {}};
  for (const Pointer& pointer : step.steps) operands.steps.push_back(address(pointer));
  return operands;
}

void CudaPlan::enqueue(const KernelStep& step) const {
  std::vector<Address> pointers;
  for (const Pointer& pointer : step.reads) pointers.push_back(address(pointer));
  for (const Pointer& pointer : step.writes) pointers.push_back(address(pointer));
  std::vector<TensorMap> boxed;
  for (const BoxedMatrix& matrix : step.source->boxed)
    boxed.push_back(Device::get().boxes(matrix, pointers[static_cast<std::size_t>(matrix.argument)]));
  Device::get().launch(*step.source, step.function, pointers, boxed);
}

void CudaPlan::enqueue(const ProductStep& step) const {
  step.product->run(operands_of(step), workspace_->address(), Device::get().stream());
}

void CudaPlan::enqueue(const ProductProgramStep& step) const {
  if (step.function == nullptr) {
    enqueue(step.product);
    return enqueue(step.program);
  }
  Device& device = Device::get();
  const TensorMap boxed[] = {device.boxes(step.fused.a, address(step.product.a)),
                             device.boxes(step.fused.b, address(step.product.b))};
  std::vector<Address> pointers;
  for (std::size_t i = 1; i < step.program.reads.size(); ++i) pointers.push_back(address(step.program.reads[i]));
  for (const Pointer& pointer : step.program.writes) pointers.push_back(address(pointer));
  device.launch(*step.fused.source, step.function, pointers, boxed);
}

void CudaPlan::enqueue(const Step& step) const {
  Device& device = Device::get();
  if (const auto* kernel = std::get_if<KernelStep>(&step.work)) {
    enqueue(*kernel);
  } else if (const auto* product = std::get_if<ProductStep>(&step.work)) {
    enqueue(*product);
  } else if (const auto* both = std::get_if<ProductProgramStep>(&step.work)) {
    enqueue(*both);
  } else if (const auto* convolution = std::get_if<ConvolveStep>(&step.work)) {
    convolution->plan->run(operands_of(*convolution), workspace_->address());
  } else if (const auto* clear = std::get_if<ClearStep>(&step.work)) {
    check(driver().set_bytes(address(clear->to), 0, clear->bytes, device.stream()), "clear memory");
  }
}

void CudaPlan::enqueue(const Range& range) const {
  for (std::size_t i = range.first; i < range.last; ++i) enqueue(made_.steps[i]);
}

void CudaPlan::launch(Range& range) const {
  if (range.graph == nullptr) range.graph = Device::get().capture([&] { enqueue(range); });
  range.graph->launch();
}

namespace {

constexpr std::size_t kBlockAlignment = 256;

/// What a store has of a plan: part of a block.
struct KeptActivation {
  std::shared_ptr<const DeviceMemory> block;
  std::size_t offset = 0;
};

}  // namespace

void CudaPlan::launch_sharing(ActivationStore& store, bool keep) const {
  if (stretches_.empty()) {
    const auto& [first, last, graph] = ranges_[0];
    checkpoints_ = checkpoints_of(made_, first, last);
    stretches_.push_back({first, last, nullptr});
    for (const Checkpoint& checkpoint : checkpoints_) {
      stretches_.back().last = checkpoint.step;
      stretches_.push_back({checkpoint.step, last, nullptr});
    }
  }
  const auto has = [&](const Checkpoint::Value& value) { return store.contains(value.key); };
  std::size_t begin = checkpoints_.size();
  while (begin > 0 && !std::ranges::all_of(checkpoints_[begin - 1].values, has)) --begin;
  if (begin == 0 && !keep) return launch(ranges_[0]);
  if (begin > 0)
    for (const auto& [key, buffer] : checkpoints_[begin - 1].values) {
      const auto* kept = store.find<KeptActivation>(key);
      Device::get().copy(address_of(buffer), kept->block->address() + kept->offset, made_.buffers[buffer].bytes);
    }
  for (std::size_t i = begin; i < stretches_.size(); ++i) {
    launch(stretches_[i]);
    if (keep && i < checkpoints_.size()) keep_values(checkpoints_[i], store);
  }
}

void CudaPlan::keep_values(const Checkpoint& checkpoint, ActivationStore& store) const {
  std::size_t bytes = 0;
  const auto aligned = [](std::size_t n) { return (n + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment; };
  for (const auto& [key, buffer] : checkpoint.values)
    if (!store.contains(key)) bytes += aligned(made_.buffers[buffer].bytes);
  if (bytes == 0 || bytes > store.byte_limit()) return;
  const auto block = Device::get().block(bytes);
  if (block == nullptr) return;
  std::size_t offset = 0;
  for (const auto& [key, buffer] : checkpoint.values) {
    if (store.contains(key)) continue;
    const std::size_t own = made_.buffers[buffer].bytes;
    Device::get().copy(block->address() + offset, address_of(buffer), own);
    store.put(key, KeptActivation{block, offset}, own);
    offset += aligned(own);
  }
}

/// Steps of the device between those of the host are recorded once and launched as a graph. Without a store, the first
/// run enqueues them one by one: it may be the only one, and a recording would take longer.
std::vector<Tensor> CudaPlan::run(std::span<const Tensor> inputs, ActivationStore* store, bool keep) const {
  Device& device = Device::get();
  const auto lock = device.lock();
  std::vector<Tensor> host(made_.host.size());
  for (std::size_t i = 0; i < host.size(); ++i)
    if (const int input = made_.host[i].input; input >= 0) host[i] = inputs[static_cast<std::size_t>(input)];
  const bool shares = store != nullptr && ranges_.size() == 1;
  run_steps(host, bytes_of_results_ > 0 ? allocate_elements(bytes_of_results_) : nullptr, [&](std::size_t range) {
    if (shares)
      launch_sharing(*store, keep);
    else if (store != nullptr || has_run_)
      launch(ranges_[range]);
    else
      enqueue(ranges_[range]);  // A single run is done before a recording would be.
  });
  device.wait();
  has_run_ = true;
  std::vector<Tensor> results;
  for (int value : made_.outputs) {
    const bool own = made_.host[value].input < 0 && !made_.host[value].constant;
    results.push_back(own ? host[value] : host[value].clone());
  }
  return results;
}

void CudaPlan::run_steps(std::vector<Tensor>& host, const std::shared_ptr<std::byte>& block,
                         const std::function<void(std::size_t)>& work) const {
  const Device& device = Device::get();
  for (std::size_t i = 0; i < host.size(); ++i)
    if (made_.host[i].constant) host[i] = made_.host[i].constant;
  std::vector<const Tensor*> in;
  std::vector<Tensor*> out;
  std::size_t range = 0;
  for (std::size_t i = 0; i < made_.steps.size();) {
    if (range < ranges_.size() && ranges_[range].first == i) {
      work(range);
      i = ranges_[range++].last;
      continue;
    }
    const Step& step = made_.steps[i++];
    if (const auto* upload = std::get_if<UploadStep>(&step.work)) {
      device.upload(address(upload->to), host[upload->host].raw(), host[upload->host].bytes());
    } else if (const auto* download = std::get_if<DownloadStep>(&step.work)) {
      const HostValue& value = made_.host[download->host];
      const std::size_t offset = offsets_of_results_[download->host];
      host[download->host] = block != nullptr && offset != kNoPlace
                                 ? Tensor::borrow(value.type, value.shape, block.get() + offset, block)
                                 : Tensor(value.type, value.shape);
      device.download(host[download->host].raw(), address(download->from), host[download->host].bytes());
    } else {
      const HostStep& on_host = std::get<HostStep>(step.work);
      in.clear();
      out.clear();
      for (int value : on_host.inputs) in.push_back(value < 0 ? nullptr : &host[value]);
      for (int value : on_host.outputs) out.push_back(value < 0 ? nullptr : &host[value]);
      on_host.kernel->run(in, out);
    }
  }
}

PlanTactics CudaPlan::tactics() const { return {identity_, tactics_of(made_)}; }

std::optional<double> CudaPlan::microseconds() const {
  // With work of the CPU in between, what the device takes says little.
  if (ranges_.size() > 1) return std::nullopt;
  Device& device = Device::get();
  const auto lock = device.lock();
  if (ranges_.empty()) return 0.0;
  launch(ranges_[0]);
  // The clock of a GPU that had nothing to do rises for some milliseconds; the least of many runs is what stays the
  // same from one measurement to the next.
  constexpr double kLongEnough = 60e3;
  constexpr int kFewest = 30, kMost = 500;
  const double about = device.time(*ranges_[0].graph, 3);
  const int runs = std::clamp(static_cast<int>(kLongEnough / std::max(about, 1.0)), kFewest, kMost);
  return std::min(about, device.time(*ranges_[0].graph, runs));
}

namespace {

std::string describe_step(const Step& step) {
  if (const auto* product = std::get_if<ProductStep>(&step.work)) return "cuBLASLt: " + product->spec.text();
  if (const auto* both = std::get_if<ProductProgramStep>(&step.work))
    return fmt::format("{}: {}, and the program behind it",
                       both->function == nullptr ? "cuBLASLt and a generated kernel"
                                                 : fmt::format("generated kernel in tiles of {}", both->algorithm),
                       both->product.spec.text());
  if (const auto* convolution = std::get_if<ConvolveStep>(&step.work))
    return "cuDNN: " + text_of(convolution->spec) + ", " + convolution->plan->tactic();
  if (const auto* kernel = std::get_if<KernelStep>(&step.work))
    return fmt::format("generated kernel: {} x {} x {} blocks of {}", kernel->source->grid[0], kernel->source->grid[1],
                       kernel->source->grid[2], kernel->source->block);
  return "cleared memory";
}

}  // namespace

std::vector<StepTime> CudaPlan::profile(std::span<const Tensor>) const {
  Device& device = Device::get();
  const auto lock = device.lock();
  std::vector<StepTime> times;
  for (const Step& step : made_.steps)
    if (runs_on_device(step))
      times.push_back({.layer = step.layer,
                       .what = describe_step(step),
                       .microseconds = device.time([&] { enqueue(step); }, 20, 3),
                       .converts = step.converts});
  return times;
}

}  // namespace ulpscope::cuda
