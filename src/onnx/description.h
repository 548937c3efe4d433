// What an ONNX file says, for people: its graph as it stands there, without inlining, sorting or inference.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "onnx/import.h"
#include "ulpscope/shape.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// A number, or the name of a dimension; -1 where the file says nothing.
using OnnxDimension = std::variant<std::int64_t, std::string>;

/// An input, output or intermediate value.
struct OnnxValue {
  std::string name;
  std::string type;  ///< ONNX's name of the element type in NumPy's spelling ("float32"); empty: not described.
  std::optional<std::vector<OnnxDimension>> shape;
};

/// Elements that are part of the file (or beside it).
struct OnnxConstant {
  std::string name;
  std::string type;
  Shape shape;
  Tensor value;  ///< None unless asked for, and none if the type is not read.
};

struct OnnxGraph;
using OnnxAttribute = std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>, std::vector<float>,
                                   std::vector<std::string>, OnnxConstant, std::shared_ptr<const OnnxGraph>>;

struct OnnxNode {
  std::string name, op, domain;
  std::vector<std::string> inputs, outputs;  ///< Empty names: absent.
  std::vector<std::pair<std::string, OnnxAttribute>> attributes;
};

struct OnnxGraph {
  std::string name, documentation;
  std::vector<OnnxValue> inputs;  ///< Without those that have an initializer.
  std::vector<OnnxValue> outputs;
  std::vector<OnnxValue> values;  ///< Intermediate ones that the file describes.
  std::vector<OnnxConstant> initializers;
  std::vector<OnnxNode> nodes;
};

struct OnnxDescription {
  std::vector<std::pair<std::string, std::int64_t>> opsets;  ///< Per domain, in the file's order; "" is ai.onnx.
  std::vector<std::pair<std::string, std::string>> metadata;
  OnnxGraph graph;
};

/// `weights`: read the elements of initializers and tensor attributes. Throws Error: kNotFound, kIo, kInvalidFile; for
/// weights also what external data can be.
OnnxDescription describe_onnx(const std::filesystem::path& path, bool weights, const ImportOptions& options = {});

/// The names of the inputs that the model gives no shape, so that they have any rank. `source` is used in messages.
std::vector<std::string> inputs_without_shape(std::span<const std::byte> model, const std::string& source);

}  // namespace ulpscope
