// An assignment of precisions as a file: the strongly typed model that computes the same bits.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "compare/tensor_map.h"
#include "engine/options.h"
#include "engine/specialization.h"
#include "graph/assignment.h"
#include "onnx/export.h"
#include "ulpscope/answer.h"
#include "ulpscope/convert.h"

namespace ulpscope {

struct TypedModelOptions {
  /// The level that the results are the same at. A BatchNormalization that this level multiplies into the convolution
  /// before it is written as multiplied in; a model without such pairs computes the same bits at every level.
  Fusion fusion = Fusion::kFull;
  /// Types of network inputs and outputs, by name; others keep theirs.
  std::map<std::string, DataType> io_types;
  /// Inputs that the file is checked with, by name; at least one. Shapes are those of the first.
  std::vector<TensorMap> samples;
  bool verify = true;
  std::size_t memory_limit = 0;  ///< As BuildOptions has it, for the runs that check the file.
  bool lowers = true;  ///< Throw kUnsupported where no layer is lowered; else repairs alone may be written.
  /// Where external data of the model lies; empty: the working directory.
  std::filesystem::path external_data_dir;
  /// Looks at the finished file before it takes the place of another one; throws Error to refuse it.
  std::function<void(const std::filesystem::path& file, const ExportReport& report)> check;
  /// Called before everything that takes long; may throw to interrupt.
  std::function<void()> interrupt;
  /// Layers that were raised only to save casts, for the metadata.
  std::vector<std::string> raised;
  /// What tells the model from others, such as the hash of its file, for the metadata; empty: nothing is written.
  std::string source;
  /// The version of the program, for the metadata.
  std::string version;
  /// Above this many bytes, weights go to external data; 0: near 2 GB.
  std::uint64_t largest_model_file = 0;
};

struct TypedModel {
  /// The assignment that the file computes: the one asked for, with layers in fp32 that the file cannot have lower.
  Assignment assignment;
  ExportReport file;
  /// Layers that stay in fp32 although a lower precision was asked for.
  std::vector<ConvertedModel::KeptBack> kept;
  std::vector<std::string> prepared;  ///< One sentence for each kind of prepared constants.
  int lowered = 0;                    ///< Layers that compute in a narrow type.
  int opset_before = 0, opset_after = 0;
  int checked = 0;  ///< Runs of the file that gave the bits of the assignment.
  /// What the assignment gives for the samples, if the file was checked and io_types are those of the network.
  std::vector<TensorMap> outputs;
};

/// Writes the typed model to `path` (and `path`.data for more than 2 GB), which is replaced as a whole and only after
/// the file was imported again and gave, strongly typed, bit for bit the outputs of the assignment (convert/proof.h).
/// `spec` is that of `network` for the first sample's shapes, `model` the file that the network was imported from;
/// what `repairs` changed is changed in the network. Logs what it does.
/// Throws Error: kInvalidArgument for unknown names and types in io_types, kUnsupported when nothing can be lowered or
/// for precisions that a file cannot say, kIo; InternalError when the file computes other bits.
TypedModel write_typed_model(const Specialization& spec, std::span<const std::byte> model, const Assignment& assignment,
                             const std::vector<Repair>& repairs, const TypedModelOptions& options,
                             const std::filesystem::path& path);

/// The types of network inputs and outputs that options name. Throws Error(kInvalidArgument) for what is no input or
/// output, and for other changes than between float32, float16 and bfloat16.
std::vector<std::pair<TensorId, DataType>> find_io_types(const Network& network,
                                                         const std::map<std::string, DataType>& io_types);

}  // namespace ulpscope
