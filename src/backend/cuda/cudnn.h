// What is used of cuDNN 9's backend API, declared here: its headers are not needed to build, nor the library to start.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "backend/cuda/library.h"

namespace ulpscope::cuda::cudnn {

// The values are those of cudnn_graph.h; tests/backend/cuda_cudnn_declarations.cpp compares.

using Handle = struct OpaqueHandle*;
using RawDescriptor = void*;

constexpr int kSuccess = 0;
/// Statuses from here to kNotSupported + 999: well-formed, but there is no engine for it.
constexpr int kNotSupported = 3000;

enum class ElementType : int { kFloat = 0, kHalf = 2, kInt8 = 3, kInt32 = 4, kBFloat16 = 9 };

enum class DescriptorType : int {
  kPointwise = 0,
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kEngineHeuristics = 4,
  kExecutionPlan = 5,
  kKnobChoice = 7,
  kConvolutionForward = 10,
  kPointwiseOperation = 13,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kDeviceProperties = 38,
};

/// The types of attributes.
enum class FieldType : int {
  kHandle = 0,
  kElementType = 1,
  kBoolean = 2,
  kInt64 = 3,
  kFloat = 4,
  kDouble = 5,
  kVoidPointer = 6,
  kConvolutionMode = 7,
  kHeuristicsMode = 8,
  kKnobType = 9,
  kNumericalNote = 11,
  kPointwiseMode = 14,
  kDescriptor = 15,
  kChar = 24,
};

/// The attributes of descriptors.
enum class Field : int {
  kPointwiseMode = 0,
  kPointwisePrecision = 1,
  kPointwiseSwishBeta = 8,
  kConvolutionComputeType = 100,
  kConvolutionMode = 101,
  kConvolutionDilations = 102,
  kConvolutionStrides = 103,
  kConvolutionPostPaddings = 104,
  kConvolutionPrePaddings = 105,
  kConvolutionSpatialDims = 106,
  kHeuristicsMode = 200,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kHeuristicsDevice = 204,
  kConfigEngine = 300,
  kConfigKnobChoices = 302,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspaceSize = 402,
  kPlanDevice = 407,
  kKnobType = 600,
  kKnobValue = 601,
  kForwardAlpha = 700,
  kForwardBeta = 701,
  kForwardConvolution = 702,
  kForwardWeights = 703,
  kForwardX = 704,
  kForwardY = 705,
  kPointwiseDescriptor = 750,
  kPointwiseX = 751,
  kPointwiseB = 752,
  kPointwiseY = 753,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorElementType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kTensorIsVirtual = 907,
  kVariantPackIds = 1000,
  kVariantPackPointers = 1001,
  kVariantPackWorkspace = 1003,
  kEngineGraph = 1300,
  kEngineIndex = 1301,
  kEngineNumericalNotes = 1303,
  kEngineDevice = 1307,
  kDeviceJson = 2702,
};

enum class PointwiseMode : int {
  kAdd = 0,
  kIdentity = 21,
  kRelu = 100,
  kTanh = 101,
  kSigmoid = 102,
  kGelu = 104,  ///< With erf.
  kSwish = 106,
};
enum class ConvolutionMode : int { kCrossCorrelation = 1 };
enum class HeuristicsMode : int { kB = 1, kFallback = 2, kA = 3 };

/// The one that is looked for.
enum class NumericalNote : int { kTensorCore = 0 };
/// More than any version has, for lists that cuDNN fills.
constexpr std::int64_t kNumericalNotes = 32, kKnobs = 64;

/// cuDNN's functions; the library stays open.
struct Functions {
  Library library{{"libcudnn.so.9"}, "nvidia-cudnn-cu13"};
  std::size_t (*version)() = library.function("cudnnGetVersion");
  const char* (*error_string)(int status) = library.function("cudnnGetErrorString");
  void (*last_error_string)(char* message, std::size_t size) = library.function("cudnnGetLastErrorString");
  int (*create)(Handle*) = library.function("cudnnCreate");
  int (*destroy)(Handle) = library.function("cudnnDestroy");
  int (*set_stream)(Handle, void* stream) = library.function("cudnnSetStream");
  int (*create_descriptor)(DescriptorType, RawDescriptor*) = library.function("cudnnBackendCreateDescriptor");
  int (*destroy_descriptor)(RawDescriptor) = library.function("cudnnBackendDestroyDescriptor");
  int (*finalize)(RawDescriptor) = library.function("cudnnBackendFinalize");
  int (*set_attribute)(RawDescriptor, Field, FieldType, std::int64_t count,
                       const void* elements) = library.function("cudnnBackendSetAttribute");
  int (*get_attribute)(RawDescriptor, Field, FieldType, std::int64_t requested, std::int64_t* count,
                       void* elements) = library.function("cudnnBackendGetAttribute");
  int (*execute)(Handle, RawDescriptor plan, RawDescriptor variant_pack) = library.function("cudnnBackendExecute");
};

/// Opens the library when it is called first. Throws Error(kUnsupported) when cuDNN 9 is missing.
const Functions& functions();

/// Throws Error(kUnsupported) for what cuDNN does not support, Error(kBuild) for every other failure, with its words:
/// "cuDNN could not <what>: ...".
void check(int status, std::string_view what);

/// A backend descriptor; owns it. Every function throws as `check`, naming the descriptor.
class Descriptor {
 public:
  Descriptor() = default;  ///< Holds nothing.
  /// `name`: for messages; has to outlive the descriptor.
  Descriptor(DescriptorType type, const char* name);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;

  RawDescriptor get() const noexcept { return raw_; }

  void set(Field field, FieldType type, std::int64_t count, const void* elements);
  void set(Field field, std::int64_t value) { set(field, FieldType::kInt64, 1, &value); }
  void set(Field field, std::span<const std::int64_t> values) {
    set(field, FieldType::kInt64, static_cast<std::int64_t>(values.size()), values.data());
  }
  void set(Field field, ElementType value) { set(field, FieldType::kElementType, 1, &value); }
  void set(Field field, const Descriptor& value) { set(field, FieldType::kDescriptor, 1, &value.raw_); }
  void set(Field field, std::span<const RawDescriptor> values) {
    set(field, FieldType::kDescriptor, static_cast<std::int64_t>(values.size()), values.data());
  }
  void finalize();

  /// Fills `elements`, room for `room` of them; returns how many there are (more than `room` possibly).
  std::int64_t read(Field field, FieldType type, std::int64_t room, void* elements) const;
  std::int64_t read_int64(Field field) const;
  /// The first `room` of a list of descriptors.
  std::vector<Descriptor> read_descriptors(Field field, DescriptorType type, const char* name, std::int64_t room) const;

 private:
  RawDescriptor raw_ = nullptr;
  const char* name_ = "";
};

}  // namespace ulpscope::cuda::cudnn
