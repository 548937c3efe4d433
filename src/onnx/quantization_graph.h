// A graph of an ONNX file with its quantizers, without import: constants, shapes that the file tells, who makes what.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "onnx/functions.h"
#include "onnx/tensor_reader.h"
#include "ulpscope/shape.h"

namespace ulpscope::onnx_model {

enum class Role : std::uint8_t {
  kNone,
  kQuantize,      ///< QuantizeLinear of any domain, TRT_FP8QuantizeLinear, TRT_INT4QuantizeLinear.
  kDequantize,    ///< The way back.
  kFp4Dynamic,    ///< TRT_FP4DynamicQuantize
  kMxDynamic,     ///< TRT_MXFP8DynamicQuantize
  kMxDequantize,  ///< TRT_MXFP8DequantizeLinear
  kDynamic,       ///< DynamicQuantizeLinear
  kMatMulNBits,
};
Role role_of(const onnx::NodeProto& node);

/// Anywhere in the graph and its bodies.
bool has_quantizers(const onnx::GraphProto& graph);

class QuantizationGraph {
 public:
  /// `outer`: the graph around a body, or null. All have to live as long as this.
  QuantizationGraph(const onnx::GraphProto& graph, TensorReader& reader, const QuantizationGraph* outer);

  const onnx::GraphProto& proto() const noexcept { return graph_; }
  TensorReader& reader() const noexcept { return reader_; }

  /// An initializer or the value of a Constant node; null for others.
  const onnx::TensorProto* constant(const std::string& name) const;
  /// The elements of a constant; none for others, and for external data that is ignored.
  Tensor elements(const std::string& name) const;
  const onnx::NodeProto* producer(const std::string& name) const;
  /// All dimensions as the file tells them: of constants, inputs, described values, and what keeps the shape of these.
  std::optional<Shape> shape(const std::string& name) const;
  /// It follows from constants alone, or a dynamic quantizer made it.
  bool is_settled(const std::string& name) const;
  /// The node that makes a tensor, behind layers that only move its elements.
  const onnx::NodeProto* behind_movement(const std::string& name) const;
  /// ONNX's number of the narrow type of a quantizer; 0: not known.
  int quantized_type(const onnx::NodeProto& node) const;
  /// Per scale of a dequantizer of blocks, 1 where all codes of the block are 0; empty where one cannot tell.
  std::vector<char> empty_blocks(const onnx::NodeProto& node) const;
  /// Two nodes with scales quantize, or have quantized, to the same type by the same scales.
  bool same_quantizer(const onnx::NodeProto& a, const onnx::NodeProto& b) const;

 private:
  const onnx::GraphProto& graph_;
  TensorReader& reader_;
  const QuantizationGraph* outer_;
  std::map<std::string, const onnx::TensorProto*> constants_;
  std::map<std::string, const onnx::NodeProto*> producers_;
  std::map<std::string, Shape> shapes_;
  std::map<std::string, int> types_;
  std::set<std::string> settled_;
};

}  // namespace ulpscope::onnx_model
