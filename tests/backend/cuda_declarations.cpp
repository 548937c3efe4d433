// Compiled by CudaDeclarations against NVIDIA's headers, one of them at a time, never linked: what the backend declares
// of the driver (ULPSCOPE_CHECK=1), NVRTC (2) and cuBLASLt (3) is what they say.
#if ULPSCOPE_CHECK == 1
#include <cuda.h>

#include "backend/cuda/driver.h"
using Functions = ulpscope::cuda::Driver;
using namespace ulpscope::cuda;
#elif ULPSCOPE_CHECK == 2
#include <nvrtc.h>

#include "backend/cuda/nvrtc_api.h"
using Functions = ulpscope::cuda::Nvrtc;
using namespace ulpscope::cuda;
#elif ULPSCOPE_CHECK == 3
#include <cublasLt.h>

#include "backend/cuda/cublas_lt_api.h"
using Functions = ulpscope::cuda::lt::CublasLt;
using namespace ulpscope::cuda::lt;
#endif

#include <cstddef>
#include <type_traits>

namespace {

#define SAME(ours, theirs) static_assert(static_cast<long>(ours) == static_cast<long>(theirs), #theirs)

/// Results and parameters of the same sizes and kinds: integers (and enumerations), floating point, or pointers, those
/// to numbers to numbers of the same size.
template <typename A, typename B>
constexpr bool are_alike() {
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    using TargetA = std::remove_pointer_t<A>;
    using TargetB = std::remove_pointer_t<B>;
    if constexpr (std::is_pointer_v<TargetA> || std::is_arithmetic_v<TargetA>)
      return are_alike<TargetA, TargetB>();
    else
      return !std::is_pointer_v<TargetB> && !std::is_arithmetic_v<TargetB>;
  } else {
    return !std::is_pointer_v<A> && !std::is_pointer_v<B> && sizeof(A) == sizeof(B) &&
           std::is_floating_point_v<A> == std::is_floating_point_v<B>;
  }
}

template <typename R1, typename... A1, typename R2, typename... A2>
constexpr bool callable(R1 (*)(A1...), R2 (*)(A2...)) {
  if constexpr (sizeof...(A1) != sizeof...(A2)) {
    return false;
  } else {
    return are_alike<R1, R2>() && (are_alike<A1, A2>() && ...);
  }
}
#define SAME_CALL(ours, theirs) static_assert(callable(decltype(Functions::ours){}, decltype(&theirs){}), #theirs)

#if ULPSCOPE_CHECK == 1
static_assert(sizeof(Address) == sizeof(CUdeviceptr) && std::is_unsigned_v<CUdeviceptr>);
static_assert(sizeof(Result) == sizeof(CUresult) && sizeof(DeviceAttribute) == sizeof(CUdevice_attribute));
SAME(kSuccess, CUDA_SUCCESS);
SAME(kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
SAME(kNoDevice, CUDA_ERROR_NO_DEVICE);
SAME(DeviceAttribute::kMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(DeviceAttribute::kComputeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(DeviceAttribute::kComputeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(kMaxDynamicSharedMemory, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(kNonBlockingStream, CU_STREAM_NON_BLOCKING);
SAME(kEventWithoutTime, CU_EVENT_DISABLE_TIMING);
SAME(kNotCapturing, CU_STREAM_CAPTURE_STATUS_NONE);
SAME(kCaptureThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(BoxElement::kFloat16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
SAME(BoxElement::kBFloat16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
SAME(kWordsInOrder, CU_TENSOR_MAP_INTERLEAVE_NONE);
SAME(kSwizzle128, CU_TENSOR_MAP_SWIZZLE_128B);
SAME(kPromote256, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
SAME(kZerosOutside, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) && alignof(TensorMap) >= alignof(CUtensorMap));
SAME(kProgrammaticSerialization, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME(sizeof(LaunchAttribute), sizeof(CUlaunchAttribute));
SAME(offsetof(LaunchAttribute, value), offsetof(CUlaunchAttribute, value));
SAME(sizeof(LaunchConfig), sizeof(CUlaunchConfig));
SAME(offsetof(LaunchConfig, block), offsetof(CUlaunchConfig, blockDimX));
SAME(offsetof(LaunchConfig, shared), offsetof(CUlaunchConfig, sharedMemBytes));
SAME(offsetof(LaunchConfig, stream), offsetof(CUlaunchConfig, hStream));
SAME(offsetof(LaunchConfig, attributes), offsetof(CUlaunchConfig, attrs));
SAME(offsetof(LaunchConfig, count), offsetof(CUlaunchConfig, numAttrs));

SAME_CALL(init, cuInit);
SAME_CALL(get_error_string, cuGetErrorString);
SAME_CALL(get_error_name, cuGetErrorName);
SAME_CALL(driver_version, cuDriverGetVersion);
SAME_CALL(device_get, cuDeviceGet);
SAME_CALL(device_count, cuDeviceGetCount);
SAME_CALL(device_name, cuDeviceGetName);
SAME_CALL(device_attribute, cuDeviceGetAttribute);
SAME_CALL(primary_context_retain, cuDevicePrimaryCtxRetain);
SAME_CALL(context_set_current, cuCtxSetCurrent);
SAME_CALL(memory_info, cuMemGetInfo_v2);
SAME_CALL(memory_allocate, cuMemAlloc_v2);
SAME_CALL(memory_free, cuMemFree_v2);
SAME_CALL(copy_to_device, cuMemcpyHtoDAsync_v2);
SAME_CALL(copy_to_host, cuMemcpyDtoHAsync_v2);
SAME_CALL(copy_on_device, cuMemcpyDtoDAsync_v2);
SAME_CALL(set_bytes, cuMemsetD8Async);
SAME_CALL(module_load, cuModuleLoadData);
SAME_CALL(module_function, cuModuleGetFunction);
SAME_CALL(function_set_attribute, cuFuncSetAttribute);
SAME_CALL(launch, cuLaunchKernelEx);
SAME_CALL(encode_boxes, cuTensorMapEncodeTiled);
SAME_CALL(stream_create, cuStreamCreate);
SAME_CALL(stream_synchronize, cuStreamSynchronize);
SAME_CALL(stream_wait_event, cuStreamWaitEvent);
SAME_CALL(stream_is_capturing, cuStreamIsCapturing);
SAME_CALL(stream_begin_capture, cuStreamBeginCapture_v2);
SAME_CALL(stream_end_capture, cuStreamEndCapture);
SAME_CALL(graph_instantiate, cuGraphInstantiateWithFlags);
SAME_CALL(graph_launch, cuGraphLaunch);
SAME_CALL(graph_destroy, cuGraphDestroy);
SAME_CALL(graph_exec_destroy, cuGraphExecDestroy);
SAME_CALL(event_create, cuEventCreate);
SAME_CALL(event_destroy, cuEventDestroy_v2);
SAME_CALL(event_record, cuEventRecord);
SAME_CALL(event_synchronize, cuEventSynchronize);
SAME_CALL(event_elapsed, cuEventElapsedTime);

#elif ULPSCOPE_CHECK == 2
SAME(kDone, NVRTC_SUCCESS);
SAME_CALL(version, nvrtcVersion);
SAME_CALL(error_string, nvrtcGetErrorString);
SAME_CALL(create, nvrtcCreateProgram);
SAME_CALL(destroy, nvrtcDestroyProgram);
SAME_CALL(compile, nvrtcCompileProgram);
SAME_CALL(cubin_size, nvrtcGetCUBINSize);
SAME_CALL(cubin, nvrtcGetCUBIN);
SAME_CALL(log_size, nvrtcGetProgramLogSize);
SAME_CALL(log, nvrtcGetProgramLog);

#elif ULPSCOPE_CHECK == 3
SAME(kReal32F, CUDA_R_32F);
SAME(kReal64F, CUDA_R_64F);
SAME(kReal16F, CUDA_R_16F);
SAME(kReal8I, CUDA_R_8I);
SAME(kReal32I, CUDA_R_32I);
SAME(kReal16BF, CUDA_R_16BF);
SAME(kReal8FE4M3, CUDA_R_8F_E4M3);
SAME(kCompute32F, CUBLAS_COMPUTE_32F);
SAME(kCompute64F, CUBLAS_COMPUTE_64F);
SAME(kCompute32I, CUBLAS_COMPUTE_32I);
SAME(kComputeTF32, CUBLAS_COMPUTE_32F_FAST_TF32);
SAME(kTransA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(kTransB, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(kEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(kBiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(kFastAccumulation, CUBLASLT_MATMUL_DESC_FAST_ACCUM);
SAME(kBatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
SAME(kBatchStride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
SAME(kMaxWorkspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(kReductionSchemes, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME(kAlignmentA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(kAlignmentA + 1, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(kAlignmentA + 2, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(kAlignmentA + 3, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME(kEpilogueNone, CUBLASLT_EPILOGUE_DEFAULT);
SAME(kEpilogueRelu, CUBLASLT_EPILOGUE_RELU);
SAME(kEpilogueBias, CUBLASLT_EPILOGUE_BIAS);
SAME(kEpilogueRelu | kEpilogueBias, CUBLASLT_EPILOGUE_RELU_BIAS);
SAME(kReduceInComputeType, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
SAME(kNeverReduce, CUBLASLT_REDUCTION_SCHEME_NONE);
// No transposition is 0, a transposed operand 1.
SAME(0, CUBLAS_OP_N);
SAME(1, CUBLAS_OP_T);
SAME(0, CUBLAS_STATUS_SUCCESS);

static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(HeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t));
SAME(offsetof(HeuristicResult, algorithm), offsetof(cublasLtMatmulHeuristicResult_t, algo));
SAME(offsetof(HeuristicResult, workspace), offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
SAME(offsetof(HeuristicResult, state), offsetof(cublasLtMatmulHeuristicResult_t, state));
SAME(offsetof(HeuristicResult, waves), offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));

SAME_CALL(create, cublasLtCreate);
SAME_CALL(destroy, cublasLtDestroy);
SAME_CALL(version, cublasLtGetVersion);
SAME_CALL(matmul, cublasLtMatmul);
SAME_CALL(descriptor_create, cublasLtMatmulDescCreate);
SAME_CALL(descriptor_destroy, cublasLtMatmulDescDestroy);
SAME_CALL(descriptor_set, cublasLtMatmulDescSetAttribute);
SAME_CALL(layout_create, cublasLtMatrixLayoutCreate);
SAME_CALL(layout_destroy, cublasLtMatrixLayoutDestroy);
SAME_CALL(layout_set, cublasLtMatrixLayoutSetAttribute);
SAME_CALL(preference_create, cublasLtMatmulPreferenceCreate);
SAME_CALL(preference_destroy, cublasLtMatmulPreferenceDestroy);
SAME_CALL(preference_set, cublasLtMatmulPreferenceSetAttribute);
SAME_CALL(heuristic, cublasLtMatmulAlgoGetHeuristic);
SAME_CALL(algorithm_check, cublasLtMatmulAlgoCheck);
#else
#error "ULPSCOPE_CHECK says which header"
#endif

}  // namespace
