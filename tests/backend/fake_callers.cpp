// The tensors of a caller, for plans that stay on the device.
#include <algorithm>
#include <cstring>

#include "backend/fake_device.h"

namespace ulpscope::cuda::fake {
namespace {

/// An address that is aligned to 16 bytes and no more. REQUIRES: 48 bytes more than are used.
unsigned char* at_16(std::vector<unsigned char>& memory) {
  unsigned char* at = memory.data();
  while (reinterpret_cast<std::uintptr_t>(at) % 32 != 16) ++at;
  return at;
}

}  // namespace

unsigned char* FakePlan::callers_address(std::size_t number) const { return at_16(callers_.at(number)); }

bool FakePlan::may_write(const Buffer& buffer) const {
  return !buffer.constant &&
         (buffer.callers < 0 || static_cast<std::size_t>(buffer.callers) >= spec_.network->inputs.size());
}

void FakePlan::place_callers(std::span<const Tensor> inputs, unsigned char poison) {
  callers_.clear();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor given = inputs[i].cast(spec_.type(spec_.network->inputs[i]));
    auto& memory = callers_.emplace_back(given.bytes() + 48);
    if (given.bytes() > 0) std::memcpy(at_16(memory), given.raw(), given.bytes());
  }
  for (TensorId id : spec_.network->outputs)
    callers_.emplace_back(static_cast<std::size_t>(num_elements(*spec_.shape(id))) * size_of(spec_.type(id)) + 48,
                          poison);
}

std::vector<Tensor> FakePlan::callers_outputs(std::size_t number) {
  std::vector<Tensor> outputs;
  for (TensorId id : spec_.network->outputs) {
    const Tensor made = Tensor::borrow(spec_.type(id), *spec_.shape(id), at_16(callers_[number++]), nullptr);
    outputs.push_back(made.cast(physical_type(made.type())).clone());
  }
  return outputs;
}

}  // namespace ulpscope::cuda::fake
