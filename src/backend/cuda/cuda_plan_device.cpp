// How a plan runs between tensors that a caller has on the device.
#include <algorithm>

#include "backend/cuda/cuda_plan.h"

namespace ulpscope::cuda {
namespace {

constexpr std::size_t kRecordings = 16;  ///< Lists of addresses whose graphs are kept.
constexpr Address kAligned = 16;         ///< What kernels and libraries were told of addresses.

}  // namespace

std::size_t CudaPlan::bytes_of_callers(std::size_t number) const {
  const Network& network = *spec_->network;
  const std::size_t inputs = network.inputs.size();
  const TensorId id = number < inputs ? network.inputs[number] : network.outputs[number - inputs];
  return static_cast<std::size_t>(num_elements(*spec_->shape(id))) * size_of(spec_->type(id));
}

/// Memory for measurements before there is a caller.
std::shared_ptr<const DeviceMemory> CudaPlan::stand_in() const {
  constexpr std::size_t kStep = 256;
  const std::size_t count = spec_->network->inputs.size() + spec_->network->outputs.size();
  std::vector<std::size_t> begins;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    begins.push_back(bytes);
    bytes += (bytes_of_callers(i) + kStep - 1) / kStep * kStep;
  }
  auto memory = std::make_shared<const DeviceMemory>(bytes);
  callers_.clear();
  for (const std::size_t begin : begins) callers_.push_back(memory->address() + begin);
  return memory;
}

std::vector<DeviceTensor> CudaPlan::outputs() const {
  std::vector<DeviceTensor> result;
  for (TensorId id : spec_->network->outputs)
    result.push_back({spec_->type(id), *spec_->shape(id), nullptr, {}, nullptr});
  return result;
}

void CudaPlan::run(std::span<void* const> inputs, std::span<void* const> outputs, CallerStream stream) const {
  Device& device = Device::get();
  const auto lock = device.lock();
  device.wait_for(static_cast<Stream>(stream));
  callers_.clear();
  for (const auto& tensors : {inputs, outputs})
    for (void* const data : tensors) callers_.push_back(reinterpret_cast<Address>(data));
  struct Copy {
    Address place, callers;
    std::size_t bytes;
    DeviceMemory memory;
    Copy(Address theirs, std::size_t n) : callers(theirs), bytes(n), memory(n) { place = memory.address(); }
  };
  std::list<Copy> copied;  // Of outputs.
  try {
    std::list<Copy> read;
    for (std::size_t i = 0; i < callers_.size(); ++i) {
      if (callers_[i] % kAligned == 0) continue;
      const bool is_input = i < inputs.size();
      const Copy& made = (is_input ? read : copied).emplace_back(callers_[i], bytes_of_callers(i));
      if (is_input) device.copy(made.place, made.callers, made.bytes);
      callers_[i] = made.place;
    }
    run_between();
    for (const Copy& made : copied) device.copy(made.callers, made.place, made.bytes);
    if (!read.empty() || !copied.empty()) device.wait();
  } catch (...) {
    device.wait();  // What is enqueued may read what the caller frees now.
    throw;
  }
  device.let_wait(static_cast<Stream>(stream));
}

void CudaPlan::run_between() const {
  const Device& device = Device::get();
  const auto known = std::ranges::find(recordings_, callers_, &Recording::callers);
  const bool again = known != recordings_.end();
  if (again)
    recordings_.splice(recordings_.begin(), recordings_, known);
  else
    recordings_.push_front({callers_, {}});
  if (recordings_.size() > kRecordings) recordings_.pop_back();
  Recording& recording = recordings_.front();
  if (again) recording.graphs.resize(ranges_.size());
  std::vector<Tensor> host(made_.host.size());
  run_steps(host, nullptr, [&](std::size_t range) {
    if (!again) return enqueue(ranges_[range]);
    auto& graph = recording.graphs[range];
    if (graph == nullptr) graph = device.capture([&] { enqueue(ranges_[range]); });
    graph->launch();
  });
  // Copies from the host may still read what is freed here.
  if (!std::ranges::all_of(made_.steps, runs_on_device)) device.wait();
}

}  // namespace ulpscope::cuda
