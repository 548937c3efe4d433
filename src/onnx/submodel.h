// Parts of the graph of an ONNX file, written as models of their own.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ulpscope/tensor.h"

namespace ulpscope {

/// The top graph of a file. Its nodes are those of the file without Constant nodes, in an order of computation; what
/// nodes run (bodies of If, Loop and Scan, functions) stays theirs.
class ModelParts {
 public:
  /// `bytes` outlive it; `source` is used in messages. Throws Error(kInvalidFile).
  ModelParts(std::span<const std::byte> bytes, const std::string& source);
  ~ModelParts();

  /// A node by the names of the values that it reads (those that its bodies take from around them, too) and computes;
  /// constants of the file and absent values are left out.
  struct Node {
    std::string name, op;
    std::vector<std::string> inputs, outputs;
  };
  const std::vector<Node>& nodes() const noexcept;
  /// Of the graph, without those that are constants.
  const std::vector<std::string>& inputs() const noexcept;
  const std::vector<std::string>& outputs() const noexcept;

  /// What computes some values from others.
  struct Part {
    std::vector<std::size_t> nodes;            ///< In the order of nodes().
    std::vector<std::string> inputs, outputs;  ///< Those of the wanted ones that are needed, and that are computed.
    std::vector<std::string> frozen;           ///< Read as well, and computed from none of the inputs.
  };
  /// With `constant_nodes`, nodes that compute from constants alone are nodes of the part where it needs them; else
  /// what they give is frozen.
  Part between(std::span<const std::string> inputs, std::span<const std::string> outputs,
               bool constant_nodes = false) const;

  struct Known {
    /// The value of a tensor: for types and shapes of inputs and outputs, for what is frozen, and for constants that
    /// the file has elsewhere. Null where nobody knows it.
    std::function<Tensor(const std::string& name)> value;
    /// What is known of a shape, whatever the values of the inputs are; -1 for a dimension of which nothing is.
    std::function<std::optional<Shape>(const std::string& name)> shape;
  };
  /// Writes the part as a model of the same opsets, names and functions. Inputs have the shapes of their values, but
  /// for those of the file itself, which stay as they are declared unless `fixed`; outputs that the file does not
  /// declare have what is known of their shapes. Throws Error(kIo), and Error(kUnsupported) for a value that nobody
  /// knows.
  void write(const Part& part, const Known& known, bool fixed, const std::filesystem::path& path) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ulpscope
