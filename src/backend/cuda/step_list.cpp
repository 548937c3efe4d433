#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/cuda/placement.h"

namespace ulpscope::cuda {

View StepList::new_view(DataType type, const Shape& shape, std::vector<std::int64_t> strides) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) last += (shape[d] - 1) * strides[d];
  const std::size_t elements = num_elements(shape) == 0 ? 0 : static_cast<std::size_t>(last + 1);
  made_.buffers.push_back({elements * size_of(type), {}, nullptr, {}});
  return {static_cast<int>(made_.buffers.size()) - 1, type, 0, std::move(strides)};
}

int StepList::new_host(DataType type, const std::optional<Shape>& shape) {
  HostValue value;
  value.type = physical_type(type);
  if (shape) value.shape = *shape;
  made_.host.push_back(std::move(value));
  return static_cast<int>(made_.host.size()) - 1;
}

int StepList::host_constant(Tensor value) {
  made_.host.push_back({std::move(value)});
  return static_cast<int>(made_.host.size()) - 1;
}

View StepList::constant_memory(const std::string& key, DataType type, const ConstantSource& values,
                               std::span<const StoredMatrix> stored) {
  Buffer buffer;
  const std::string name = fmt::format("cuda|{}|{}", key, name_of(type));
  buffer.name = activation_key(name);
  const auto make = [&] {
    const Tensor value = values();
    return value.type() == type ? value : value.cast(type);
  };
  buffer.constant =
      stored.empty() ? target_.constant(weights_, name, make) : target_.matrices(weights_, name, stored, type, make);
  made_.buffers.push_back(std::move(buffer));
  return {static_cast<int>(made_.buffers.size()) - 1, type, 0, {}};
}

void StepList::add_copy(const View& from, const View& to, const Shape& shape) {
  add(KernelStep{
      shared_copy({from.type, shape, from.strides}, {to.type, shape, to.strides}), {pointer(from)}, {pointer(to)}});
}

void StepList::hoist_host_steps() {
  std::vector<char> early(made_.host.size(), 0);
  for (std::size_t i = 0; i < early.size(); ++i) early[i] = made_.host[i].constant || made_.host[i].input >= 0;
  const auto is_early = [&](const Step& step) {
    if (const auto* upload = std::get_if<UploadStep>(&step.work)) return early[upload->host] != 0;
    const auto* host = std::get_if<HostStep>(&step.work);
    if (host == nullptr) return false;
    if (!std::ranges::all_of(host->inputs, [&](int value) { return value < 0 || early[value] != 0; })) return false;
    for (int value : host->outputs)
      if (value >= 0) early[value] = 1;
    return true;
  };
  // What only network outputs need comes to the host when all is done.
  std::vector<char> read(made_.host.size(), 0);
  for (const Step& step : made_.steps) {
    if (const auto* upload = std::get_if<UploadStep>(&step.work)) read[upload->host] = 1;
    if (const auto* host = std::get_if<HostStep>(&step.work))
      for (int value : host->inputs)
        if (value >= 0) read[value] = 1;
  }
  const auto is_late = [&](const Step& step) {
    const auto* download = std::get_if<DownloadStep>(&step.work);
    return download != nullptr && read[download->host] == 0;
  };
  std::vector<int> turns;
  for (const Step& step : made_.steps) turns.push_back(is_early(step) ? 0 : is_late(step) ? 2 : 1);
  std::vector<Step> ordered;
  ordered.reserve(turns.size());
  for (const int turn : {0, 1, 2})
    for (std::size_t i = 0; i < turns.size(); ++i)
      if (turns[i] == turn) ordered.push_back(std::move(made_.steps[i]));
  made_.steps = std::move(ordered);
}

void StepList::find_lifetimes() {
  for (std::size_t i = 0; i < made_.steps.size(); ++i)
    for_each_pointer(made_.steps[i], [&](const Pointer& pointer, bool) {
      if (pointer.buffer < 0 || !made_.buffers[pointer.buffer].is_in_arena()) return;
      Buffer& buffer = made_.buffers[pointer.buffer];
      buffer.place.bytes = buffer.bytes;
      if (buffer.place.first < 0) buffer.place.first = static_cast<int>(i);
      buffer.place.last = static_cast<int>(i);
    });
}

int StepList::new_input(DataType type, const std::optional<Shape>& shape, std::size_t index) {
  const int value = new_host(type, shape);
  made_.host.back().input = static_cast<int>(index);
  return value;
}

View StepList::callers_view(DataType type, const Shape& shape, std::size_t number) {
  View view = new_view(type, shape, ops::strides_of(shape));
  made_.buffers.back().callers = static_cast<int>(number);
  return view;
}

bool StepList::give_to_caller(const View& view, const Shape& shape, std::size_t number) {
  Buffer& buffer = made_.buffers[view.buffer];
  if (!buffer.is_in_arena() || view.offset != 0 || !same_places(shape, view.strides, ops::strides_of(shape)) ||
      buffer.bytes != static_cast<std::size_t>(num_elements(shape)) * size_of(view.type))
    return false;
  buffer.callers = static_cast<int>(number);
  return true;
}

void StepList::extend(const View& view, std::int64_t elements) {
  made_.buffers[view.buffer].bytes += static_cast<std::size_t>(elements) * size_of(view.type);
}

void StepList::add_clear(const View& view) { add(ClearStep{{view.buffer, 0}, made_.buffers[view.buffer].bytes}); }

Steps StepList::finish(std::vector<int> outputs) && {
  made_.outputs = std::move(outputs);
  hoist_host_steps();
  find_lifetimes();
  return std::move(made_);
}

}  // namespace ulpscope::cuda
