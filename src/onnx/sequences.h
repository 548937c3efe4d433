// Sequences, maps and optionals of tensors, which networks do not have: they are followed while a graph is read.
// Private to src/onnx.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "onnx/functions.h"

namespace ulpscope::onnx_model {

/// What is known of the values of a graph.
struct KnownValues {
  /// The elements of a constant of integers; nothing for other values.
  std::function<std::optional<std::vector<std::int64_t>>(const std::string&)> integers;
  /// One dimension (negative: from the end) of a value, as declared; nothing where it is not.
  std::function<std::optional<std::int64_t>(const std::string&, std::int64_t axis)> dimension;
};

/// Replaces the nodes that make, change and read sequences by such on tensors, as far as the places of tensors in them
/// are known, and drops those that make maps.
class SequenceResolver {
 public:
  /// `copies` keeps the nodes that are made.
  SequenceResolver(const KnownValues& known, std::deque<onnx::NodeProto>& copies) : known_(known), copies_(copies) {}

  /// `nodes`: sorted. Throws Error(kUnsupported), starting with `where`, for what is not known while it is read.
  void run(std::vector<FlatNode>& nodes, const std::string& where);

  /// The tensors that a sequence has, or that go into a map or a sequence of maps; nothing for other values.
  std::optional<std::vector<std::string>> tensors_of(const std::string& value) const;

 private:
  using Tensors = std::vector<std::string>;

  void take(const FlatNode& node);
  bool replace(const FlatNode& node);
  bool map(const FlatNode& node);
  Tensors map_entry(const FlatNode& node, const onnx::GraphProto& body, std::size_t entry, Names names);
  bool split(const FlatNode& node);
  bool pass_on(const onnx::NodeProto& node);
  bool follow_optional(const FlatNode& node);
  bool concatenate(const FlatNode& node);
  std::optional<std::size_t> position(const onnx::NodeProto& node, int input, std::size_t size, bool may_be_end) const;
  const Tensors& read(const onnx::NodeProto& node) const;
  std::string constant(const FlatNode& like, const std::string& name, const std::vector<std::int64_t>& values);
  bool add_scalar(const FlatNode& node, onnx::TensorProto value);
  onnx::NodeProto& add(const FlatNode& like, const char* op, const Tensors& inputs, const Tensors& outputs);
  [[noreturn]] void fail(const onnx::NodeProto& node, const std::string& expected) const;

  const KnownValues& known_;
  std::deque<onnx::NodeProto>& copies_;
  std::string where_;
  std::unordered_map<std::string, Tensors> sequences_;
  std::unordered_map<std::string, Tensors> maps_;    ///< No tensor: an optional without an element.
  std::unordered_map<std::string, Tensors> wholes_;  ///< Of a sequence of parts: the tensor that they are of.
  std::vector<FlatNode> made_;
  std::size_t mapped_ = 0;  ///< Nodes that SequenceMap became.
};

}  // namespace ulpscope::onnx_model
