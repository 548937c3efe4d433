// A model, from its file to its outputs, in the precision that is asked for.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ulpscope/bound_run.h"
#include "ulpscope/data_type.h"
#include "ulpscope/device_tensor.h"
#include "ulpscope/export.h"
#include "ulpscope/precision.h"
#include "ulpscope/shape.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

class Model;
struct ConvertOptions;

/// How a model is to be run. Names are those of the command line.
struct EngineOptions {
  /// What layers compute in: fp32, tf32, fp16 or bf16. Layers that have no form in it stay in fp32.
  Precision precision = Precision::kFP32;
  /// Layers that differ, named as for --layer-precisions: "float32", "float16", "int8", "fp8", "int4-64",
  /// "nvfp4-weights", ... They are obeyed, or the build fails. Scales of blocks are those of the largest weights.
  std::map<std::string, std::string> layer_precisions;
  /// Of tensors that layers in int8, fp8 and nvfp4 read, by name: threshold / 127, as in calibration caches.
  std::map<std::string, float> scales;
  /// Which neighbors become one group, in which nothing is rounded: "none", "pointwise" or "full".
  std::string fusion = "full";
  /// What products of fp16 and bf16 are added up in: "fp32", or as a Hopper GPU does ("hopper", "hopper-fast").
  std::string accumulation = "fp32";
  /// What the second product of an attention in one group reads: "normalized", its probabilities, or "flash", as flash
  /// attention does: exponentials, whose sum the results are divided by (docs/numerics.md).
  std::string attention = "normalized";
  /// Threads; 0: one per core. Results do not depend on it.
  int threads = 0;
  /// Who computes: "cpu", "cuda" (an NVIDIA GPU of sm_80 or later; docs/gpu.md) or "plain".
  std::string backend = "cpu";
  /// Bytes of tensors and prepared weights that are held at a time, as far as one layer allows; 0: no limit. Weights
  /// give way and are prepared again: slower, with the same results.
  std::size_t memory_limit = 0;
};

/// An input or output.
struct TensorSpec {
  std::string name;
  DataType type;
  std::optional<Shape> shape;  ///< Nothing: not even the rank is known; -1: a dynamic dimension.
};

/// What became of a layer.
struct LayerSummary {
  std::string name;
  std::string op;
  std::string precision;  ///< "fp32", "tf32", "fp16", "bf16"; the type of its output if it does not compute in floats.
  std::string reason;     ///< Why this precision.
  std::vector<std::string> nodes;  ///< The ONNX nodes that it came from.
};

/// An engine built from an ONNX model; the precisions of a GPU are emulated exactly (docs/numerics.md). Movable handle;
/// copies share the engine. `run` may be called from several threads.
class ULPSCOPE_API OnnxEngine {
 public:
  /// Throws Error: kNotFound, kIo, kInvalidFile, kUnsupported for the file; kInvalidArgument for an option or a layer
  /// that does not exist; kBuild when a layer precision cannot be obeyed.
  static OnnxEngine from_file(const std::filesystem::path& path, const EngineOptions& options = {});
  /// The same from a serialized model, which may be freed afterwards. External data is looked for in the working
  /// directory.
  static OnnxEngine from_bytes(std::span<const std::byte> model, const EngineOptions& options = {});

  const std::vector<TensorSpec>& inputs() const noexcept;
  const std::vector<TensorSpec>& outputs() const noexcept;
  /// Initializers that are inputs of the graph, too: those that a run may be given other values for (by name).
  const std::vector<TensorSpec>& defaults() const noexcept;
  std::vector<LayerSummary> layers() const;

  /// One inference; both in the order of `inputs()` and `outputs()`, of exactly those types. The outputs own their
  /// bytes. Throws Error(kInvalidArgument) naming the input that does not fit.
  std::vector<Tensor> run(std::span<const Tensor> inputs) const;
  /// One inference by name; values of `defaults()` may be among the inputs. The first run that gives other ones than
  /// those before prepares an engine for it. Throws Error(kInvalidArgument) also for a missing or unknown name.
  std::map<std::string, Tensor> run(const std::map<std::string, Tensor>& inputs) const;

  /// The number of the CUDA device that it computes on; nothing: the CPU.
  std::optional<int> device() const;
  /// The same between tensors of that device, without a copy: inputs there (or on the CPU, from where they are copied),
  /// outputs in memory of the engine's. `stream`: a CUstream, null is CUDA's default one: the run begins when what it
  /// has is done, and what it gets behind the run begins when that is done; nobody waits. Throws as run(), and for
  /// tensors of another device.
  std::map<std::string, DeviceTensor> run_on_device(const std::map<std::string, DeviceTensor>& inputs,
                                                    void* stream = nullptr) const;
  /// Such runs between fixed tensors, again and again. `outputs`: all of them, on the engine's device, sharing memory
  /// with nothing; empty: the engine makes them. Keeps all tensors. Where the engine cannot tell the shapes of the
  /// outputs beforehand, and on the CPU, it runs once on `stream`.
  BoundRun bind(const std::map<std::string, DeviceTensor>& inputs,
                const std::map<std::string, DeviceTensor>& outputs = {}, void* stream = nullptr) const;

  /// Microseconds of one run on the device for inputs of these shapes, which are there already: the least of several.
  /// Nothing for backends without a clock of their own, and where the CPU computes in between.
  std::optional<double> device_microseconds(std::span<const Shape> shapes) const;

  struct Impl;

 private:
  friend OnnxEngine build_engine(const Model& model, const ConvertOptions& options);
  explicit OnnxEngine(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace ulpscope
