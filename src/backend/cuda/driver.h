// The functions of NVIDIA's driver that the backend calls, as cuda.h declares them (CUDA 12 and 13; the suffixes _v2
// are what cuda.h makes of the plain names). tests/backend/cuda_declarations.cpp compares them with the real header.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/library.h"

namespace ulpscope::cuda {

using Address = std::uint64_t;  ///< CUdeviceptr.
using Context = struct OpaqueContext*;
using Module = struct OpaqueModule*;
using Function = struct OpaqueFunction*;
using Stream = struct OpaqueStream*;
using Event = struct OpaqueEvent*;
using Graph = struct OpaqueGraph*;
using GraphExec = struct OpaqueGraphExec*;

/// CUresult: what the driver says of a call.
enum Result : int {
  kSuccess = 0,
  kOutOfMemory = 2,
  kNoDevice = 100,
};

/// CUdevice_attribute.
enum class DeviceAttribute : int {
  kMultiprocessors = 16,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
};

inline constexpr int kMaxDynamicSharedMemory = 8;  ///< CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
inline constexpr unsigned kNonBlockingStream = 1;  ///< CU_STREAM_NON_BLOCKING
inline constexpr unsigned kEventWithoutTime = 2;   ///< CU_EVENT_DISABLE_TIMING
inline constexpr int kNotCapturing = 0;            ///< CU_STREAM_CAPTURE_STATUS_NONE
inline constexpr int kCaptureThreadLocal = 1;      ///< CU_STREAM_CAPTURE_MODE_THREAD_LOCAL

/// CUtensorMap: where a matrix lies that kernels read in boxes.
struct alignas(128) TensorMap {
  std::uint64_t words[16];
};

/// CUtensorMapDataType.
enum class BoxElement : int { kByte = 0, kFloat16 = 6, kBFloat16 = 9 };

inline constexpr int kWordsInOrder = 0;  ///< CU_TENSOR_MAP_INTERLEAVE_NONE
inline constexpr int kSwizzle128 = 3;    ///< CU_TENSOR_MAP_SWIZZLE_128B
inline constexpr int kPromote256 = 3;    ///< CU_TENSOR_MAP_L2_PROMOTION_L2_256B
inline constexpr int kZerosOutside = 0;  ///< CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE

/// CUlaunchConfig and CUlaunchAttribute.
struct LaunchAttribute {
  std::uint32_t id = 0, padding = 0;
  union {
    std::int32_t flag;
    unsigned char bytes[64];
  } value{};
};
struct LaunchConfig {
  std::uint32_t grid[3], block[3], shared;
  Stream stream;
  LaunchAttribute* attributes;
  std::uint32_t count;
};
inline constexpr std::uint32_t kProgrammaticSerialization = 6;  ///< CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_...

struct Driver {
  Library library{{"libcuda.so.1"}, ""};
  Result (*init)(unsigned flags) = library.function("cuInit");
  Result (*get_error_string)(Result, const char**) = library.function("cuGetErrorString");
  Result (*get_error_name)(Result, const char**) = library.function("cuGetErrorName");
  Result (*driver_version)(int*) = library.function("cuDriverGetVersion");
  Result (*device_get)(int* device, int ordinal) = library.function("cuDeviceGet");
  Result (*device_count)(int*) = library.function("cuDeviceGetCount");
  Result (*device_name)(char*, int length, int device) = library.function("cuDeviceGetName");
  Result (*device_attribute)(int*, DeviceAttribute, int device) = library.function("cuDeviceGetAttribute");
  Result (*primary_context_retain)(Context*, int device) = library.function("cuDevicePrimaryCtxRetain");
  Result (*context_set_current)(Context) = library.function("cuCtxSetCurrent");
  Result (*memory_info)(std::size_t* free, std::size_t* total) = library.function("cuMemGetInfo_v2");
  Result (*memory_allocate)(Address*, std::size_t) = library.function("cuMemAlloc_v2");
  Result (*memory_free)(Address) = library.function("cuMemFree_v2");
  Result (*copy_to_device)(Address, const void*, std::size_t, Stream) = library.function("cuMemcpyHtoDAsync_v2");
  Result (*copy_to_host)(void*, Address, std::size_t, Stream) = library.function("cuMemcpyDtoHAsync_v2");
  Result (*copy_on_device)(Address, Address, std::size_t, Stream) = library.function("cuMemcpyDtoDAsync_v2");
  Result (*set_bytes)(Address, unsigned char, std::size_t, Stream) = library.function("cuMemsetD8Async");
  Result (*module_load)(Module*, const void* image) = library.function("cuModuleLoadData");
  Result (*module_function)(Function*, Module, const char*) = library.function("cuModuleGetFunction");
  Result (*function_set_attribute)(Function, int attribute, int value) = library.function("cuFuncSetAttribute");
  Result (*launch)(const LaunchConfig*, Function, void** arguments, void**) = library.function("cuLaunchKernelEx");
  Result (*encode_boxes)(TensorMap*, BoxElement, std::uint32_t rank, void* address, const std::uint64_t* sizes,
                         const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t* steps,
                         int interleave, int swizzle, int promotion,
                         int fill) = library.function("cuTensorMapEncodeTiled");
  Result (*stream_create)(Stream*, unsigned flags) = library.function("cuStreamCreate");
  Result (*stream_synchronize)(Stream) = library.function("cuStreamSynchronize");
  Result (*stream_wait_event)(Stream, Event, unsigned flags) = library.function("cuStreamWaitEvent");
  Result (*stream_is_capturing)(Stream, int* status) = library.function("cuStreamIsCapturing");
  Result (*stream_begin_capture)(Stream, int mode) = library.function("cuStreamBeginCapture_v2");
  Result (*stream_end_capture)(Stream, Graph*) = library.function("cuStreamEndCapture");
  Result (*graph_instantiate)(GraphExec*, Graph,
                              unsigned long long flags) = library.function("cuGraphInstantiateWithFlags");
  Result (*graph_launch)(GraphExec, Stream) = library.function("cuGraphLaunch");
  Result (*graph_destroy)(Graph) = library.function("cuGraphDestroy");
  Result (*graph_exec_destroy)(GraphExec) = library.function("cuGraphExecDestroy");
  Result (*event_create)(Event*, unsigned flags) = library.function("cuEventCreate");
  Result (*event_destroy)(Event) = library.function("cuEventDestroy_v2");
  Result (*event_record)(Event, Stream) = library.function("cuEventRecord");
  Result (*event_synchronize)(Event) = library.function("cuEventSynchronize");
  Result (*event_elapsed)(float* milliseconds, Event, Event) = library.function("cuEventElapsedTime");
};

/// Opened on the first call. Throws Error(kUnsupported) when there is no driver, or an old one.
const Driver& driver();

/// Throws for everything but success: Error(kUnsupported) with the driver's words. `what`: "launch a kernel".
void check(Result result, const char* what);

}  // namespace ulpscope::cuda
