// The memory of the GPU as callers see it, and plans between tensors in it.
#pragma once

#include "backend/device_plan.h"

namespace ulpscope::cuda {

/// Opens the device when it is asked for its space. Throws as Device::get().
const DeviceBackend& cuda_device_backend();

}  // namespace ulpscope::cuda
