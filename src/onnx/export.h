// A network's types, written into the ONNX file that it came from: the strongly typed model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/network.h"
#include "graph/typing.h"

namespace ulpscope {

struct TypedBody;

/// What changes, beside the casts. Everything else in the file stays: names, metadata, dynamic dimensions, texts;
/// functions whose opsets are not the model's, and bodies that `bodies` does not name.
struct TypedChanges {
  Typing typing;
  /// A constant of one layer alone, float32; written in the type in which the layer reads that input. `input` may be
  /// one more than the layer has.
  struct Parameter {
    LayerId layer;
    std::size_t input;
    Tensor value;
  };
  std::vector<Parameter> parameters;
  std::vector<std::pair<LayerId, float>> epsilons;
  /// An input that a layer reads as elements, zero point 0, through a DequantizeLinear that layers share.
  struct Quantized {
    LayerId layer;
    std::size_t input;
    /// Of a constant, in `type`; null: an activation, which gets a QuantizeLinear before it. Layers that have these
    /// elements in common share one initializer.
    Tensor elements;
    DataType type = DataType::kInt8;
    Tensor scales;                             ///< float32: one element and no dimension, or one per index of `axis`.
    DataType scale_type = DataType::kFloat32;  ///< In which scales are stored: numbers of it. uint8: codes of E8M0.
    std::optional<float> second;               ///< Multiplied into the scales by a DequantizeLinear of their own.
    std::int64_t axis = 0;                     ///< Of scales per channel, and of blocks.
    std::int64_t block = 0;                    ///< Elements of `axis` that share a scale; 0: all, or one.
    /// `axis` is the last but one, and as TensorRT's own exporters write such blocks they lie along the last of the
    /// file's tensor, with a Transpose behind it (and before the quantizer of an activation).
    bool turns = false;
    /// What the layer reads: a Cast to it stands behind where that is not what DequantizeLinear yields, float32 or,
    /// where scales have that type, float16 or bfloat16.
    DataType number = DataType::kFloat32;
  };
  std::vector<Quantized> quantized;
  /// Layers that compute in float32, and whose output a Cast stores in this type.
  std::vector<std::pair<LayerId, DataType>> stored;
  /// Layers of which an Identity hands out a copy, since they store what they compute: a Cast right behind a product of
  /// integers would be what the product stores, and layers behind a sum of dequantized values would join it.
  std::vector<LayerId> copied;
  /// A convolution and the BatchNormalization that went into its parameters: the node disappears.
  std::vector<std::pair<LayerId, LayerId>> absorbed;
  /// Of tensors that are constant without being in the file: what they are, physical types.
  IdMap<TensorId, Tensor> computed_constants;
  /// Constants whose elements in the network are not those of the file (clamped, for instance).
  std::vector<TensorId> replaced;
  /// The opset of ai.onnx; 0: as it is.
  int opset = 0;
  /// The number of dimensions, -1 where it is not known.
  IdMap<TensorId, int> ranks;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<TypedBody> bodies;
};

/// What changes in a graph that a layer runs. What goes in and comes out keeps the declared types: casts are inside.
/// `opset` and `metadata` are those of the network around it.
struct TypedBody {
  LayerId holder;
  std::string attribute;
  TypedChanges changes;
};

struct ExportReport {
  int casts = 0;            ///< Nodes inserted.
  int quantized = 0;        ///< Activations with a pair of QuantizeLinear and DequantizeLinear,
  int stored_weights = 0;   ///< and constants stored as elements.
  int source_casts = 0;     ///< Nodes that the file had.
  int removed = 0;          ///< Nodes that nobody needs any more.
  int initializers = 0;     ///< Written in another type, or new.
  std::uint64_t bytes = 0;  ///< Of the model and its external data.
  bool external = false;
  bool quantizers = false;  ///< There are nodes that quantize or dequantize.
};

/// The file that a network was imported from.
class TypedExporter {
 public:
  /// `bytes` and `network` outlive the exporter; the network is the one that import_onnx made of these bytes, or
  /// that with repairs: other constants, and layers without attributes between two of its layers.
  /// `folder`: where its external data lies. Throws Error(kInvalidFile).
  TypedExporter(std::span<const std::byte> bytes, const Network& network, std::filesystem::path folder);
  ~TypedExporter();

  /// True if a layer (of Network::num_all_layers) stands for no node of its graph, but for one inside of a model-local
  /// function. Such layers keep their types.
  IdMap<LayerId, char> frozen() const;
  int opset() const;
  /// A node that cannot be written for that opset ("Softmax 'x'"), or a reason; empty: the opset can be raised.
  /// `ranks`: TypedChanges::ranks.
  std::string blocks_opset(int opset, const IdMap<TensorId, int>& ranks) const;
  /// Calls of model-local functions that are written as their bodies, under the names that the network has.
  int inlined() const;

  /// Writes `<folder>/<name>`, and `<folder>/<name>.data` for more than 2 GB. Nothing is replaced atomically here.
  /// `limit`: the size of the model file above which weights go to external data. Throws Error(kIo),
  /// Error(kUnsupported).
  ExportReport write(const TypedChanges& changes, const std::filesystem::path& folder, const std::string& name,
                     std::optional<std::uint64_t> limit = std::nullopt) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ulpscope
