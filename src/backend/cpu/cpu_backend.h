// This machine's processor: products through oneDNN, programs of our own, the operators' reference kernels for the
// rest.
#pragma once

#include "backend/backend.h"

namespace ulpscope::cpu {

const Backend& cpu_backend();

}  // namespace ulpscope::cpu
