// What a schedule is lowered to: steps on the device and on the host, and the memory that they work on.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "backend/activation_store.h"
#include "backend/arena.h"
#include "backend/cuda/convolution.h"
#include "backend/cuda/device.h"
#include "backend/cuda/generated_sources.h"
#include "backend/cuda/matrix_product.h"
#include "backend/kernel.h"
#include "graph/ids.h"

namespace ulpscope::cuda {

/// Device memory of a plan: part of the arena, a prepared constant, or the caller's.
struct Buffer {
  std::size_t bytes = 0;
  ArenaEntry place;                              ///< In the arena.
  std::shared_ptr<const DeviceMemory> constant;  ///< Of constants,
  ActivationKey name;                            ///< and what they are.
  int callers = -1;  ///< Which tensor of the caller: inputs of the network first, then outputs; -1: none.
  bool is_in_arena() const { return constant == nullptr && callers < 0; }
};

/// Where the tensors of callers are: inputs as they come, outputs as they go.
enum class Ends : std::uint8_t {
  kHost,    ///< Physical types.
  kDevice,  ///< Declared types, row-major, each aligned to 16 bytes.
};

/// An address within a buffer.
struct Pointer {
  int buffer = -1;  ///< -1: none; the address is 0.
  std::int64_t bytes = 0;
};

/// A generated kernel.
struct KernelStep {
  SharedSource source;
  std::vector<Pointer> reads, writes;  ///< Its arguments, in this order.
  Function function = nullptr;         ///< Set when it is compiled.
};

struct ProductStep {
  MatrixProductSpec spec;
  Pointer a, b, bias, residual, d;
  float factor = 1;                                       ///< As MatrixProductOperands::factor.
  std::shared_ptr<const MatrixLibrary::Product> product;  ///< Set when it is chosen.
};

/// A product and the program behind it: one kernel, or one after the other.
struct ProductProgramStep {
  FusedProductSpec spec;
  ProductStep product;
  KernelStep program;    ///< Reads the results of `product` first.
  std::string computes;  ///< Names both among tactics.
  /// Set when it is chosen: the one kernel, and its tile; else no function, and kApart.
  SharedProduct fused;
  Function function = nullptr;
  std::string algorithm;
  static constexpr std::string_view kApart = "apart";
};

struct ConvolveStep {
  ConvolutionSpec spec;
  Pointer x, weights, y;
  std::vector<Pointer> steps;                   ///< Per ConvolutionSpec::steps.
  std::shared_ptr<const ConvolutionPlan> plan;  ///< Set when it is chosen.
};

/// Sets all bytes of a buffer to 0.
struct ClearStep {
  Pointer to;
  std::size_t bytes = 0;
};

/// A tensor of the host, dense and of its physical type, to or from the device.
struct UploadStep {
  int host = -1;
  Pointer to;
};
struct DownloadStep {
  Pointer from;
  int host = -1;
};

/// A layer on the CPU, on tensors of the host.
struct HostStep {
  std::shared_ptr<const Kernel> kernel;
  std::vector<int> inputs, outputs;  ///< Of the host's values; -1: absent.
  std::string computes;              ///< Cache key of the computation: everything but its inputs.
};

struct Step {
  std::variant<KernelStep, ProductStep, ProductProgramStep, ConvolveStep, ClearStep, UploadStep, DownloadStep, HostStep>
      work;
  LayerId layer = kNone;  ///< For messages and reports.
  bool converts = false;  ///< It brings an operand of the layer into another type.
};

/// Neither work of the host nor a copy from or to it.
inline bool runs_on_device(const Step& step) {
  return !std::holds_alternative<HostStep>(step.work) && !std::holds_alternative<UploadStep>(step.work) &&
         !std::holds_alternative<DownloadStep>(step.work);
}

/// Calls `touch` with every pointer of a step, and whether the step writes there.
template <typename Touch>
void for_each_pointer(const Step& step, const Touch& touch) {
  const auto all = [&](std::span<const Pointer> pointers, bool writes) {
    for (const Pointer& pointer : pointers) touch(pointer, writes);
  };
  if (const auto* kernel = std::get_if<KernelStep>(&step.work)) {
    all(kernel->reads, false);
    all(kernel->writes, true);
  } else if (const auto* product = std::get_if<ProductStep>(&step.work)) {
    all(std::array{product->a, product->b, product->bias, product->residual}, false);
    touch(product->d, true);
  } else if (const auto* both = std::get_if<ProductProgramStep>(&step.work)) {
    all(std::array{both->product.a, both->product.b}, false);
    touch(both->product.d, true);
    all(both->program.reads, false);
    all(both->program.writes, true);
  } else if (const auto* convolution = std::get_if<ConvolveStep>(&step.work)) {
    all(std::array{convolution->x, convolution->weights}, false);
    all(convolution->steps, false);
    touch(convolution->y, true);
  } else if (const auto* clear = std::get_if<ClearStep>(&step.work)) {
    touch(clear->to, true);
  } else if (const auto* upload = std::get_if<UploadStep>(&step.work)) {
    touch(upload->to, true);
  } else if (const auto* download = std::get_if<DownloadStep>(&step.work)) {
    touch(download->from, false);
  }
}

/// A value on the host.
struct HostValue {
  Tensor constant;                       ///< Known beforehand; else
  int input = -1;                        ///< the network's input, or
  DataType type = DataType::kUndefined;  ///< made in the run: its physical type,
  Shape shape;                           ///< and its shape, where that is known beforehand.
};

struct Steps {
  std::vector<Buffer> buffers;
  std::vector<HostValue> host;
  std::vector<Step> steps;
  std::vector<int> outputs;  ///< Values of the host; none with Ends::kDevice.
};

}  // namespace ulpscope::cuda
