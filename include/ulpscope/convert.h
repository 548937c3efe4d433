// The strongly typed file of an assignment of precisions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ulpscope/answer.h"
#include "ulpscope/criterion.h"
#include "ulpscope/data_type.h"
#include "ulpscope/export.h"
#include "ulpscope/model.h"
#include "ulpscope/onnx_engine.h"

namespace ulpscope {

struct ConvertOptions {
  /// Of a search with this model: its kept layers and repairs. One that keeps all layers gives the model as it is, with
  /// a warning; without an answer, nothing to lower is Error(kUnsupported).
  std::optional<AnswerFile> answer;
  /// Layers that stay in float32: names of layers or ONNX nodes, operators ("Softmax"), or patterns of these.
  std::vector<std::string> keep;
  /// Lower these alone, and keep all others; named in the same way. Not with an answer.
  std::vector<std::string> lower;
  /// "LAYER:TYPE": float32, float16, bfloat16 or int8; layers named in the same way.
  std::vector<std::string> layer_precisions;
  /// Types of network inputs and outputs: float32, float16 or bfloat16. Others keep theirs.
  std::map<std::string, DataType> io_types;
  /// Neighbors of kept layers may stay in float32, too, where that saves more time as casts than it costs, if the
  /// outputs stay within `criterion` (empty: that of the answer) of `golden`, one per sample (empty: of the model in
  /// fp32).
  bool relax = false;
  CriterionOptions criterion;
  std::vector<TensorsByName> golden;
  /// Biases of int8 products take the mean error of their outputs on the samples, if that brings the outputs of the
  /// model nearer to those in float32. The new model computes other values than the old one in float32 then.
  bool bias_correction = false;
  /// Run the new model against the old one before it is written.
  bool verify = true;
  /// Let onnx.checker and ONNX Runtime look at it, too, where they are installed.
  bool python_checks = true;
  /// Called before everything that takes long; may throw to interrupt.
  std::function<void()> interrupt;
};

struct ConvertedModel {
  /// Layers with float arithmetic, in network order.
  struct ConvertedLayer {
    std::string name, op;
    Precision precision = Precision::kFP32;
  };
  std::vector<ConvertedLayer> layers;
  /// Layers that stay in fp32 although a lower precision was asked for.
  struct KeptBack {
    std::string layer, op, reason;
  };
  std::vector<KeptBack> kept_back;
  int lowered = 0;          ///< Layers that compute in a narrow type.
  int casts = 0;            ///< Cast nodes that were added.
  std::uint64_t bytes = 0;  ///< Of the file and its external data.
  int checked = 0;          ///< Runs of the file that gave the bits of the assignment.
  /// Of the outputs, against the model in float32 as it was: `value` is rel-l2, `used` the same. Nothing without
  /// `verify`.
  std::optional<Judgement> error;
  int corrected_biases = 0;  ///< Those that `bias_correction` changed,
  /// and the error without that. Nothing if it was not asked for.
  std::optional<Judgement> uncorrected_error;
  /// The same choice for other tools, as the content of files: words for --layer-precisions, one per line; a network
  /// postprocess script for TensorRT up to 10; nodes_to_exclude of ModelOpt AutoCast and node_block_list of
  /// onnxconverter-common as JSON.
  std::string layer_precisions, postprocess_script, exclusions;
  /// That of the options, with the layers that `relax` raised.
  std::optional<AnswerFile> answer;
};

/// Writes the typed model to `path` (and `path`.data for more than 2 GB), which is replaced as a whole, and only after
/// the file was imported again and gave, strongly typed, bit for bit the outputs of the assignment on two of the
/// samples (inputs by name; at least one, the first decides the shapes), one of each other set of shapes, and all where
/// these do not run each body that any of them runs. Throws Error: kInvalidArgument for names, types and samples that
/// do not fit, and an answer of another model; kUnsupported when nothing can be lowered or for precisions that a file
/// cannot say; kInvalidFile when onnx.checker or ONNX Runtime refuse it; kIo. InternalError when the file computes
/// other bits.
ULPSCOPE_API ConvertedModel convert(const Model& model, const std::filesystem::path& path,
                                    std::span<const TensorsByName> samples, const ConvertOptions& options = {});

struct RepairOptions {
  /// Its repairs are done, as they are, instead of those that the samples need: the model that exports of the answer
  /// which set precisions alone are for.
  std::optional<AnswerFile> answer;
  bool verify = true;         ///< Run the new model against the old one before it is written.
  bool python_checks = true;  ///< Let onnx.checker and ONNX Runtime look at it, too, where they are installed.
  /// Called before everything that takes long; may throw to interrupt.
  std::function<void()> interrupt;
};

struct RepairedModel {
  std::vector<Repair> repairs;  ///< All that was done, with reasons.
  /// Tensors that stay beyond float16, with the layers that keep them there: one sentence each.
  std::vector<std::string> beyond;
  int constants = 0, inserted = 0;  ///< Changed constants, and layers that were added.
};

/// Writes a float32 model with the same outputs whose tensors fit into float16: constants beyond it are clamped, and
/// regions of the network hold their values times powers of two. The ranges are those of the samples (inputs by name,
/// at least one), on which the outputs keep every bit wherever no constant was clamped. The precisions that the model
/// is loaded for do not count. Throws Error as `convert`.
ULPSCOPE_API RepairedModel repair(const Model& model, const std::filesystem::path& path,
                                  std::span<const TensorsByName> samples, const RepairOptions& options = {});

/// The same choice as an engine of ulpscope, for `ulpscope run`. Throws Error: as `convert`; kBuild when a layer's
/// precision cannot be obeyed.
ULPSCOPE_API void convert_to_engine(const Model& model, const std::filesystem::path& path,
                                    const ConvertOptions& options = {});

/// The same, ready to run: bit for bit what `ulpscope run` computes with the words of the answer. Throws as
/// convert_to_engine.
ULPSCOPE_API OnnxEngine build_engine(const Model& model, const ConvertOptions& options = {});

}  // namespace ulpscope
