#include "backend/cuda/driver.h"

#include <fmt/format.h>

#include "ulpscope/error.h"

namespace ulpscope::cuda {

Driver::Driver() : library({"libcuda.so.1"}, "") {
  library.get("cuInit", init);
  library.get("cuGetErrorString", get_error_string);
  library.get("cuGetErrorName", get_error_name);
  library.get("cuDriverGetVersion", driver_version);
  library.get("cuDeviceGet", device_get);
  library.get("cuDeviceGetCount", device_count);
  library.get("cuDeviceGetName", device_name);
  library.get("cuDeviceGetAttribute", device_attribute);
  library.get("cuDevicePrimaryCtxRetain", primary_context_retain);
  library.get("cuCtxSetCurrent", context_set_current);
  library.get("cuMemGetInfo_v2", memory_info);
  library.get("cuMemAlloc_v2", memory_allocate);
  library.get("cuMemFree_v2", memory_free);
  library.get("cuMemHostAlloc", host_allocate);
  library.get("cuMemFreeHost", host_free);
  library.get("cuMemcpyHtoDAsync_v2", copy_to_device);
  library.get("cuMemcpyDtoHAsync_v2", copy_to_host);
  library.get("cuMemcpyDtoDAsync_v2", copy_on_device);
  library.get("cuMemsetD8Async", set_bytes);
  library.get("cuModuleLoadData", module_load);
  library.get("cuModuleUnload", module_unload);
  library.get("cuModuleGetFunction", module_function);
  library.get("cuFuncSetAttribute", function_set_attribute);
  library.get("cuLaunchKernelEx", launch);
  library.get("cuTensorMapEncodeTiled", encode_boxes);
  library.get("cuStreamCreate", stream_create);
  library.get("cuStreamSynchronize", stream_synchronize);
  library.get("cuStreamWaitEvent", stream_wait_event);
  library.get("cuStreamIsCapturing", stream_is_capturing);
  library.get("cuStreamBeginCapture_v2", stream_begin_capture);
  library.get("cuStreamEndCapture", stream_end_capture);
  library.get("cuGraphInstantiateWithFlags", graph_instantiate);
  library.get("cuGraphLaunch", graph_launch);
  library.get("cuGraphDestroy", graph_destroy);
  library.get("cuGraphExecDestroy", graph_exec_destroy);
  library.get("cuEventCreate", event_create);
  library.get("cuEventDestroy_v2", event_destroy);
  library.get("cuEventRecord", event_record);
  library.get("cuEventSynchronize", event_synchronize);
  library.get("cuEventElapsedTime", event_elapsed);
}

const Driver& driver() {
  static const Driver functions;
  return functions;
}

void check(Result result, const char* what) {
  if (result == kSuccess) return;
  const char *name = nullptr, *text = nullptr;
  driver().get_error_name(result, &name);
  driver().get_error_string(result, &text);
  throw Error(ErrorCode::kUnsupported,
              fmt::format("[run] backend 'cuda': the driver could not {}: {} ({}); the CPU stays usable: leave out "
                          "--backend cuda",
                          what, text != nullptr ? text : "unknown error", name != nullptr ? name : "no name"));
}

}  // namespace ulpscope::cuda
