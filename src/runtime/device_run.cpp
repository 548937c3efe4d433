#include "runtime/device_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/messages.h"

namespace ulpscope {
namespace {

class TensorOwner final : public DeviceOwner {
 public:
  explicit TensorOwner(Tensor tensor) : tensor_(std::move(tensor)) {}

 private:
  const Tensor tensor_;
};

[[noreturn]] void refuse(const std::string& what, const std::string& why) {
  throw invalid_argument("[run] {}: {}", what, why);
}

std::string input_name(const Engine& engine, std::size_t i) {
  return fmt::format("input '{}'", engine.inputs()[i].name);
}
std::string output_name(const Engine& engine, std::size_t o) {
  return fmt::format("output '{}'", engine.outputs()[o].name);
}

bool overlap(const DeviceTensor& a, const DeviceTensor& b) {
  if (a.cuda != b.cuda) return false;
  const auto begin = [](const DeviceTensor& t) { return reinterpret_cast<std::uintptr_t>(t.data); };
  return bytes_of(a) > 0 && bytes_of(b) > 0 && begin(a) < begin(b) + bytes_of(b) && begin(b) < begin(a) + bytes_of(a);
}

std::vector<Shape> shapes_of(const std::vector<DeviceTensor>& tensors) {
  std::vector<Shape> shapes;
  for (const DeviceTensor& tensor : tensors) shapes.push_back(tensor.shape);
  return shapes;
}

void check_output(const std::string& what, const DeviceTensor& given, DataType type, const Shape& shape) {
  if (given.type != type)
    refuse(what, fmt::format("expected elements of type {}, got {}", name_of(type), name_of(given.type)));
  if (given.shape != shape)
    refuse(what, fmt::format("expected the shape {}, got {}", to_string(shape), to_string(given.shape)));
}

}  // namespace

std::size_t bytes_of(const DeviceTensor& tensor) {
  return static_cast<std::size_t>(num_elements(tensor.shape)) * size_of(tensor.type);
}

std::string place_of(const DeviceTensor& tensor) {
  return tensor.cuda ? fmt::format("CUDA device {}", *tensor.cuda) : "the CPU";
}

DeviceTensor to_device_tensor(Tensor tensor) {
  void* const data = tensor.raw();
  const DataType type = tensor.type();
  Shape shape = tensor.shape();
  return {type, std::move(shape), data, {}, std::make_shared<TensorOwner>(std::move(tensor))};
}

Tensor to_cpu_tensor(const DeviceTensor& tensor) {
  return Tensor::borrow(tensor.type, tensor.shape, tensor.data, tensor.owner);
}

DeviceRun::DeviceRun(std::shared_ptr<Engine> engine, std::vector<DeviceTensor> inputs,
                     std::vector<DeviceTensor> outputs, CallerStream stream)
    : engine_(std::move(engine)), space_(engine_->space()), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {
  naming_file(engine_->network(), [&] {
    if (space_ != nullptr) space_->check(stream);
    engine_->check_inputs(inputs_);
    for (std::size_t i = 0; i < inputs_.size(); ++i) check_device(inputs_[i], input_name(*engine_, i), true);
    if (space_ != nullptr) plan_ = engine_->device_plan(shapes_of(inputs_));
    if (!outputs_.empty())
      check_outputs();
    else if (plan_ != nullptr)
      for (const DeviceTensor& output : plan_->outputs())
        outputs_.push_back(space_->allocate(output.type, output.shape, stream));
  });
}

void DeviceRun::check_device(const DeviceTensor& tensor, const std::string& what, bool may_be_on_cpu) const {
  if (space_ == nullptr && tensor.cuda)
    refuse(what, fmt::format("expected a tensor on the CPU, where the engine computes, got one on {}; try a copy of it "
                             "there (.cpu()), or an engine with the backend 'cuda'",
                             place_of(tensor)));
  const bool fits = tensor.cuda ? space_ == nullptr || *tensor.cuda == space_->number() : may_be_on_cpu;
  if (space_ != nullptr && !fits)
    refuse(what,
           fmt::format("expected a tensor on CUDA device {}, where the engine computes, got one on {}; try a copy "
                       "of it there (.to('cuda:{}'))",
                       space_->number(), place_of(tensor), space_->number()));
}

void DeviceRun::check_outputs() const {
  if (outputs_.size() != engine_->outputs().size())
    refuse("outputs", fmt::format("expected {} tensors, got {}", engine_->outputs().size(), outputs_.size()));
  std::vector<DeviceTensor> made;
  if (plan_ != nullptr) made = plan_->outputs();
  for (std::size_t o = 0; o < outputs_.size(); ++o) {
    const std::string what = output_name(*engine_, o);
    check_device(outputs_[o], what, false);
    if (plan_ != nullptr) check_output(what, outputs_[o], made[o].type, made[o].shape);
  }
  check_overlaps();
}

void DeviceRun::check_overlaps() const {
  for (std::size_t o = 0; o < outputs_.size(); ++o) {
    const auto check = [&](const DeviceTensor& other, const std::string& name) {
      if (overlap(outputs_[o], other))
        refuse(output_name(*engine_, o),
               fmt::format("expected memory of its own, got some of {}'s; try a tensor that shares nothing", name));
    };
    for (std::size_t i = 0; i < inputs_.size(); ++i) check(inputs_[i], input_name(*engine_, i));
    for (std::size_t other = 0; other < o; ++other) check(outputs_[other], output_name(*engine_, other));
  }
}

DeviceTensor DeviceRun::allocate(DataType type, const Shape& shape, CallerStream stream) const {
  return space_ != nullptr ? space_->allocate(type, shape, stream) : to_device_tensor(Tensor(type, shape));
}

void DeviceRun::run(CallerStream stream) {
  if (space_ != nullptr) naming_file(engine_->network(), [&] { space_->check(stream); });
  if (plan_ == nullptr) return run_on_cpu(stream);
  std::vector<void*> in, out;
  std::vector<DeviceTensor> uploaded;
  for (const DeviceTensor& input : inputs_) {
    in.push_back(input.data);
    if (input.cuda) continue;
    uploaded.push_back(space_->allocate(input.type, input.shape, stream));
    in.back() = uploaded.back().data;
    space_->upload(in.back(), input.data, bytes_of(input), stream);
  }
  for (const DeviceTensor& output : outputs_) out.push_back(output.data);
  naming_file(engine_->network(), [&] { plan_->run(in, out, stream); });
}

void DeviceRun::run_on_cpu(CallerStream stream) {
  std::vector<Tensor> tensors;
  for (const DeviceTensor& input : inputs_) {
    if (!input.cuda) {
      tensors.push_back(to_cpu_tensor(input));
      continue;
    }
    tensors.emplace_back(input.type, input.shape);
    space_->download(tensors.back().raw(), input.data, bytes_of(input), stream);
  }
  take(engine_->run(tensors), stream);
}

void DeviceRun::take(const std::vector<Tensor>& results, CallerStream stream) {
  if (outputs_.empty() && space_ == nullptr) {
    for (const Tensor& result : results) outputs_.push_back(to_device_tensor(result));
    return;
  }
  naming_file(engine_->network(), [&] {
    if (outputs_.empty())
      for (const Tensor& result : results) outputs_.push_back(allocate(result.type(), result.shape(), stream));
    for (std::size_t o = 0; o < results.size(); ++o)
      check_output(output_name(*engine_, o), outputs_[o], results[o].type(), results[o].shape());
  });
  for (std::size_t o = 0; o < results.size(); ++o) {
    if (results[o].bytes() == 0) continue;
    if (space_ != nullptr)
      space_->upload(outputs_[o].data, results[o].raw(), results[o].bytes(), stream);
    else
      std::memcpy(outputs_[o].data, results[o].raw(), results[o].bytes());
  }
}

}  // namespace ulpscope
