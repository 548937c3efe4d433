// Compiled by CudnnDeclarations against NVIDIA's headers, never linked: what src/backend/cuda/cudnn.h says is what they
// say.
#include <cudnn.h>

#include "backend/cuda/cudnn.h"

namespace {

using namespace ulpscope::cuda::cudnn;

#define SAME(ours, theirs) static_assert(static_cast<long>(ours) == static_cast<long>(theirs), #theirs)

SAME(kSuccess, CUDNN_STATUS_SUCCESS);
SAME(kNotSupported, CUDNN_STATUS_NOT_SUPPORTED);
SAME(ElementType::kFloat, CUDNN_DATA_FLOAT);
SAME(ElementType::kHalf, CUDNN_DATA_HALF);
SAME(ElementType::kInt8, CUDNN_DATA_INT8);
SAME(ElementType::kInt32, CUDNN_DATA_INT32);
SAME(ElementType::kBFloat16, CUDNN_DATA_BFLOAT16);

SAME(DescriptorType::kPointwise, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
SAME(DescriptorType::kConvolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
SAME(DescriptorType::kEngine, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
SAME(DescriptorType::kEngineConfig, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
SAME(DescriptorType::kEngineHeuristics, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
SAME(DescriptorType::kExecutionPlan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
SAME(DescriptorType::kKnobChoice, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
SAME(DescriptorType::kConvolutionForward, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
SAME(DescriptorType::kPointwiseOperation, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
SAME(DescriptorType::kOperationGraph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
SAME(DescriptorType::kVariantPack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
SAME(DescriptorType::kTensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
SAME(DescriptorType::kDeviceProperties, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);

SAME(FieldType::kHandle, CUDNN_TYPE_HANDLE);
SAME(FieldType::kElementType, CUDNN_TYPE_DATA_TYPE);
SAME(FieldType::kBoolean, CUDNN_TYPE_BOOLEAN);
SAME(FieldType::kInt64, CUDNN_TYPE_INT64);
SAME(FieldType::kFloat, CUDNN_TYPE_FLOAT);
SAME(FieldType::kDouble, CUDNN_TYPE_DOUBLE);
SAME(FieldType::kVoidPointer, CUDNN_TYPE_VOID_PTR);
SAME(FieldType::kConvolutionMode, CUDNN_TYPE_CONVOLUTION_MODE);
SAME(FieldType::kHeuristicsMode, CUDNN_TYPE_HEUR_MODE);
SAME(FieldType::kKnobType, CUDNN_TYPE_KNOB_TYPE);
SAME(FieldType::kNumericalNote, CUDNN_TYPE_NUMERICAL_NOTE);
SAME(FieldType::kPointwiseMode, CUDNN_TYPE_POINTWISE_MODE);
SAME(FieldType::kDescriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR);
SAME(FieldType::kChar, CUDNN_TYPE_CHAR);

SAME(Field::kPointwiseMode, CUDNN_ATTR_POINTWISE_MODE);
SAME(Field::kPointwisePrecision, CUDNN_ATTR_POINTWISE_MATH_PREC);
SAME(Field::kPointwiseSwishBeta, CUDNN_ATTR_POINTWISE_SWISH_BETA);
SAME(Field::kConvolutionComputeType, CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
SAME(Field::kConvolutionMode, CUDNN_ATTR_CONVOLUTION_CONV_MODE);
SAME(Field::kConvolutionDilations, CUDNN_ATTR_CONVOLUTION_DILATIONS);
SAME(Field::kConvolutionStrides, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
SAME(Field::kConvolutionPostPaddings, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
SAME(Field::kConvolutionPrePaddings, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
SAME(Field::kConvolutionSpatialDims, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
SAME(Field::kHeuristicsMode, CUDNN_ATTR_ENGINEHEUR_MODE);
SAME(Field::kHeuristicsGraph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
SAME(Field::kHeuristicsResults, CUDNN_ATTR_ENGINEHEUR_RESULTS);
SAME(Field::kHeuristicsDevice, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
SAME(Field::kConfigEngine, CUDNN_ATTR_ENGINECFG_ENGINE);
SAME(Field::kConfigKnobChoices, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
SAME(Field::kPlanHandle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
SAME(Field::kPlanConfig, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
SAME(Field::kPlanWorkspaceSize, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
SAME(Field::kPlanDevice, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
SAME(Field::kKnobType, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE);
SAME(Field::kKnobValue, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
SAME(Field::kForwardAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA);
SAME(Field::kForwardBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
SAME(Field::kForwardConvolution, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
SAME(Field::kForwardWeights, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
SAME(Field::kForwardX, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
SAME(Field::kForwardY, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
SAME(Field::kPointwiseDescriptor, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
SAME(Field::kPointwiseX, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
SAME(Field::kPointwiseB, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
SAME(Field::kPointwiseY, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
SAME(Field::kGraphHandle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
SAME(Field::kGraphOperations, CUDNN_ATTR_OPERATIONGRAPH_OPS);
SAME(Field::kTensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
SAME(Field::kTensorElementType, CUDNN_ATTR_TENSOR_DATA_TYPE);
SAME(Field::kTensorDimensions, CUDNN_ATTR_TENSOR_DIMENSIONS);
SAME(Field::kTensorStrides, CUDNN_ATTR_TENSOR_STRIDES);
SAME(Field::kTensorId, CUDNN_ATTR_TENSOR_UNIQUE_ID);
SAME(Field::kTensorIsVirtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
SAME(Field::kVariantPackIds, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
SAME(Field::kVariantPackPointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
SAME(Field::kVariantPackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
SAME(Field::kEngineGraph, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
SAME(Field::kEngineIndex, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
SAME(Field::kEngineNumericalNotes, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
SAME(Field::kEngineDevice, CUDNN_ATTR_ENGINE_DEVICEPROP);
SAME(Field::kDeviceJson, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);

SAME(PointwiseMode::kAdd, CUDNN_POINTWISE_ADD);
SAME(PointwiseMode::kIdentity, CUDNN_POINTWISE_IDENTITY);
SAME(PointwiseMode::kRelu, CUDNN_POINTWISE_RELU_FWD);
SAME(PointwiseMode::kTanh, CUDNN_POINTWISE_TANH_FWD);
SAME(PointwiseMode::kSigmoid, CUDNN_POINTWISE_SIGMOID_FWD);
SAME(PointwiseMode::kGelu, CUDNN_POINTWISE_GELU_FWD);
SAME(PointwiseMode::kSwish, CUDNN_POINTWISE_SWISH_FWD);
SAME(ConvolutionMode::kCrossCorrelation, CUDNN_CROSS_CORRELATION);
SAME(HeuristicsMode::kB, CUDNN_HEUR_MODE_B);
SAME(HeuristicsMode::kFallback, CUDNN_HEUR_MODE_FALLBACK);
SAME(HeuristicsMode::kA, CUDNN_HEUR_MODE_A);

SAME(NumericalNote::kTensorCore, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
static_assert(CUDNN_NUMERICAL_NOTE_TYPE_COUNT <= kNumericalNotes && CUDNN_KNOB_TYPE_COUNTS <= kKnobs);

/// Results and parameters of the same sizes and kinds: integers (and enumerations) or pointers.
template <typename A, typename B>
constexpr bool alike = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;
template <typename R1, typename... A1, typename R2, typename... A2>
constexpr bool callable(R1 (*)(A1...), R2 (*)(A2...)) {
  if constexpr (sizeof...(A1) != sizeof...(A2)) {
    return false;
  } else if constexpr (std::is_void_v<R1> || std::is_void_v<R2>) {
    return std::is_same_v<R1, R2> && (alike<A1, A2> && ...);
  } else {
    return alike<R1, R2> && (alike<A1, A2> && ...);
  }
}
#define SAME_CALL(ours, theirs) static_assert(callable(decltype(Functions::ours){}, decltype(&theirs){}), #theirs)

SAME_CALL(version, cudnnGetVersion);
SAME_CALL(error_string, cudnnGetErrorString);
SAME_CALL(last_error_string, cudnnGetLastErrorString);
SAME_CALL(create, cudnnCreate);
SAME_CALL(destroy, cudnnDestroy);
SAME_CALL(set_stream, cudnnSetStream);
SAME_CALL(create_descriptor, cudnnBackendCreateDescriptor);
SAME_CALL(destroy_descriptor, cudnnBackendDestroyDescriptor);
SAME_CALL(finalize, cudnnBackendFinalize);
SAME_CALL(set_attribute, cudnnBackendSetAttribute);
SAME_CALL(get_attribute, cudnnBackendGetAttribute);
SAME_CALL(execute, cudnnBackendExecute);
static_assert(sizeof(RawDescriptor) == sizeof(cudnnBackendDescriptor_t));
static_assert(sizeof(bool) == 1 && sizeof(ElementType) == sizeof(cudnnDataType_t));

}  // namespace
