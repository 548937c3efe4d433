#include "runtime/memory_limit.h"

#include <algorithm>

#include "core/memory.h"
#include "core/messages.h"

namespace ulpscope {

void warn_beyond_limit(std::size_t limit, std::size_t bytes, const std::string& what, const std::string& advice) {
  if (limit == 0 || bytes <= limit) return;
  log_warning("[memory] --memory-limit {}: {} {}; a limit of {} or more can be kept, or try {}", to_size_string(limit),
              what, to_size_string(bytes), to_size_string(bytes), advice);
}

void warn_of_small_limit(const Network& network, std::size_t memory_limit) {
  std::size_t most = 0;
  const Layer* largest = nullptr;
  for (const Layer& layer : network.layers) {
    std::size_t bytes = 0;
    for (TensorId id : present(layer.inputs))
      if (const Tensor& value = network.tensor(id).value; value && layer.op->kind == OpKind::kContraction)
        bytes += static_cast<std::size_t>(value.size()) * sizeof(float);
    if (bytes > most) largest = &layer;
    most = std::max(most, bytes);
  }
  if (memory_limit == 0 || most <= memory_limit) return;
  log_warning(
      "[memory] --memory-limit {}: the weights of layer '{}' alone take {}, and are held while it runs; a limit of {} "
      "or more can be kept",
      to_size_string(memory_limit), largest->name, to_size_string(most), to_size_string(most));
}

void begin_limited(const Network& network, std::size_t memory_limit) {
  warn_of_small_limit(network, memory_limit);
  take_peak_element_bytes();
}

void end_limited(std::size_t memory_limit, const std::string& what, const std::string& advice) {
  warn_beyond_limit(memory_limit, take_peak_element_bytes(), what, advice);
}

void warn_of_unlimited(std::string_view runner, std::size_t memory_limit) {
  if (memory_limit == 0) return;
  log_warning(
      "[memory] --memory-limit {}: it bounds what ulpscope holds; {} is another process and takes what it needs",
      to_size_string(memory_limit), runner);
}

void warn_of_activations(const Plan& plan, std::size_t memory_limit) {
  const Specialization& spec = plan.specialization();
  std::size_t bytes = plan.arena_bytes();
  for (const auto* ids : {&spec.network->inputs, &spec.network->outputs})
    for (const TensorId id : *ids)
      if (const auto& shape = spec.shape(id))
        bytes += static_cast<std::size_t>(num_elements(*shape)) * size_of(physical_type(spec.type(id)));
  warn_beyond_limit(memory_limit, bytes, "inputs, activations and outputs of one run take", "smaller inputs");
}

}  // namespace ulpscope
