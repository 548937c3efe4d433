// The backend that runs on an NVIDIA GPU.
#pragma once

#include "backend/backend.h"

namespace ulpscope::cuda {

const Backend& cuda_backend();

}  // namespace ulpscope::cuda
