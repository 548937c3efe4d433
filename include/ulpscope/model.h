// A model that precisions are searched for: its file, and what it may be lowered to.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ulpscope/export.h"
#include "ulpscope/precision.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// Inputs or outputs of one inference, by name.
using TensorsByName = std::map<std::string, Tensor>;

struct AnswerFile;

/// Names are those of the command line.
struct ModelOptions {
  /// What layers may be lowered to; int8 needs scales (see calibrate.h). fp32 is always allowed.
  std::vector<Precision> precisions{Precision::kFP16};
  /// Layers of a given precision, named as for --layer-precisions: "float32", "float16", "bfloat16", "int8". They are
  /// obeyed.
  std::map<std::string, std::string> layer_precisions;
  /// Constants whose magnitudes are limited: "NAME" (to 32752, half of the largest fp16) or "NAME:LIMIT".
  std::vector<std::string> clamp_constants;
  /// What the scales of weights in int4 and nvfp4 are made for: "amax", "least-squares" or "activations"
  /// (docs/numerics.md). Empty: activations once measure_activations() knows them, as in a search; else amax.
  std::string weight_scales;
  /// How the scales of mxfp8 and mxfp4 are rounded to powers of two: "ceil", or "ocp", down.
  std::string mx_scale_rule = "ceil";
  /// Which neighbors become one group, in which nothing is rounded: "none", "pointwise" or "full".
  std::string fusion = "full";
  /// What products of fp8, fp16 and bf16 are added up in: "fp32", or as a Hopper GPU does ("hopper"; "hopper-fast":
  /// with cuBLASLt's fast accumulation), which is slow (docs/numerics.md).
  std::string accumulation = "fp32";
  /// What the second product of an attention in one group reads: "normalized", its probabilities, or "flash", as flash
  /// attention does: exponentials, whose sum the results are divided by (docs/numerics.md).
  std::string attention = "normalized";
  /// The GPU whose costs are estimated: "l4", "h100" or another of data/targets, or a file of measure_target() or of
  /// that form, whose name ends in .json. Empty: the GPU of the backend "cuda", else "l4".
  std::string target;
  /// Who computes: "cpu", "cuda" (an NVIDIA GPU of sm_80 or later; docs/gpu.md) or "plain".
  std::string backend = "cpu";
  /// Layers that nothing is said about may stay in a higher precision where that costs less on the target; else they
  /// take the lowest allowed one.
  bool cost_model = false;
  /// Threads; 0: one per core. Results do not depend on it.
  int threads = 0;
  /// Bytes of tensors and prepared weights that are held at a time by what is done with the model (search, convert,
  /// calibrate, verify, build_engine), as far as one layer of one sample allows; 0: no limit. Weights give way and are
  /// prepared again: slower, with the same results. What cannot be held is a warning that says what took how much.
  std::size_t memory_limit = 0;
  /// Where external data lies; empty: beside the file, or in the working directory.
  std::filesystem::path external_data_dir;
};

/// How the model of an answer is to be read, so that `convert`, `verify` and build_engine() make the network that the
/// answer is about. Scales and repairs are those of the answer. Throws Error(kUnsupported) for an answer about a
/// network that the program changed before it searched (outputs that were marked, scripts).
ULPSCOPE_API ModelOptions options_for(const AnswerFile& answer);

struct LoadedModel;

/// A handle; copies share the model. Not thread-safe: one function works on a model at a time.
class ULPSCOPE_API Model {
 public:
  /// Throws Error: kNotFound, kIo, kInvalidFile, kUnsupported for the file; kInvalidArgument for an option, and for a
  /// layer or constant that does not exist.
  static Model from_file(const std::filesystem::path& path, const ModelOptions& options = {});
  /// The same from a serialized model, of which a copy is kept. `name` stands for the file in messages and answers.
  static Model from_bytes(std::span<const std::byte> bytes, const ModelOptions& options = {},
                          const std::string& name = "model.onnx");

  /// The int8 scale of each tensor, by name: real value = scale * integer. Replaces those of a calibration.
  void set_scales(std::map<std::string, float> scales);
  const std::map<std::string, float>& scales() const noexcept;

 private:
  friend struct ModelAccess;
  explicit Model(std::shared_ptr<LoadedModel> loaded) : loaded_(std::move(loaded)) {}
  std::shared_ptr<LoadedModel> loaded_;
};

}  // namespace ulpscope
