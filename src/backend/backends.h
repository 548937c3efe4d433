// The backends that there are, each in a folder of its own.
#pragma once

#include "backend/device_plan.h"

namespace ulpscope {
namespace cpu {

/// This machine's processor: products through oneDNN or by our own loops, programs of our own, the operators' reference
/// kernels for the rest.
const Backend& cpu_backend();

/// Throws Error unless ULPSCOPE_ISA and ONEDNN_MAX_CPU_ISA are unset or name sets of instructions: the first one that
/// this processor has, the other one any, which is the most that oneDNN takes.
void check_instructions();

}  // namespace cpu
namespace cuda {

/// An NVIDIA GPU.
const Backend& cuda_backend();

/// The memory of the GPU as callers see it, and plans between tensors in it. Opens the device when it is asked for its
/// space. Throws as Device::get().
const DeviceBackend& cuda_device_backend();

}  // namespace cuda
namespace plain {

/// The simplest code that carries out any description, to be read and compared with: no layouts, no prepared weights,
/// no arena. Products add up in float64 and give the nearest float32; every instruction of a program does the same.
const Backend& plain_backend();

}  // namespace plain
}  // namespace ulpscope
