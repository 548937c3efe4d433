#include "backend/cuda/weight_budget.h"

#include "core/memory.h"
#include "core/messages.h"

namespace ulpscope::cuda {

void WeightBudget::check() const {
  if (!is_beyond()) return;
  throw unsupported(
      "[build] backend 'cuda': the weights that one plan reads take {} on the GPU, --memory-limit is {}; try a limit "
      "of {} or more, or the CPU, which prepares weights in turns (leave out --backend cuda)",
      to_size_string(bytes_), to_size_string(limit_), to_size_string(bytes_));
}

std::shared_ptr<const DeviceMemory> WeightBudget::counted(const std::string& key,
                                                          std::shared_ptr<const DeviceMemory> memory) {
  if (keys_.insert(key).second) bytes_ += memory->bytes();
  return memory;
}

std::shared_ptr<const DeviceMemory> WeightBudget::constant(WeightCache& weights, const std::string& key,
                                                           const std::function<Tensor()>& make) {
  if (is_beyond()) return counted(key, std::make_shared<const DeviceMemory>(Address{0}, make().bytes()));
  return counted(key, target_.constant(weights, key, make));
}

std::shared_ptr<const DeviceMemory> WeightBudget::matrices(WeightCache& weights, const std::string& key,
                                                           std::span<const StoredMatrix> parts, DataType type,
                                                           const std::function<Tensor()>& make) {
  std::size_t bytes = 0;
  for (const StoredMatrix& matrix : parts) bytes += static_cast<std::size_t>(matrix.rows * matrix.columns) * size_of(type);
  if (is_beyond() || (!keys_.contains(key) && bytes > limit_ - bytes_))
    return counted(key, std::make_shared<const DeviceMemory>(Address{0}, bytes));
  return counted(key, target_.matrices(weights, key, parts, type, make));
}

}  // namespace ulpscope::cuda
