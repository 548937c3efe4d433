// Graphs into networks. Private to src/onnx.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/network.h"
#include "onnx/functions.h"
#include "onnx/tensor_reader.h"
#include "ulpscope/error.h"

namespace ulpscope::onnx_model {

/// Throws Error(kUnsupported or kInvalidFile) unless the model's IR version and opsets are known. Returns the opsets.
Opsets check_versions(const onnx::ModelProto& model, const std::string& source);

class Importer {
 public:
  /// `wanted`: see ImportOptions::outputs.
  Importer(const ModelFile& file, const OpRegistry& ops, TensorReader& reader, std::vector<std::string> wanted);

  /// The whole model.
  std::shared_ptr<Network> run();

 private:
  /// A constant of some scope; the elements are read when it is first used, and shared from then on.
  struct Constant {
    const onnx::TensorProto* proto = nullptr;
    Tensor value;
  };
  /// The names that a graph and those around it define.
  struct Scope {
    const Scope* parent = nullptr;
    int depth = 0;
    std::unordered_map<std::string, std::shared_ptr<Constant>> constants;
    std::unordered_set<std::string> values;
    Network* network = nullptr;
    std::unordered_map<std::string, const onnx::ValueInfoProto*> declared;
    /// Constants that callers may give (DefaultValue), as declared among the inputs.
    std::vector<const onnx::ValueInfoProto*> defaults;
  };
  struct Replaced;
  struct Built {
    std::shared_ptr<Network> network;
    std::vector<std::string> captured;  ///< Values of the enclosing graph, for the trailing inputs.
  };

  Built import_graph(const onnx::GraphProto& graph, const Opsets& opsets, const Scope* parent);
  void define_inputs(const onnx::GraphProto& graph, Scope& scope);
  void define_initializers(const onnx::GraphProto& graph, Scope& scope);
  void add_defaults(Scope& scope, const std::unordered_set<std::string>& as_tensors);
  std::vector<std::string> resolve_free_values(const onnx::GraphProto& graph, Scope& scope);
  std::unordered_set<std::string> constants_read_as_tensors(const onnx::GraphProto& graph,
                                                            const std::vector<FlatNode>& nodes,
                                                            const Scope& scope) const;
  std::vector<std::string> follow_sequences(const onnx::GraphProto& graph, Scope& scope, std::vector<FlatNode>& nodes);
  void leave_out_others(const std::vector<std::string>& outputs, std::vector<FlatNode>& nodes);
  std::vector<std::string> leave_out_unknown(std::vector<FlatNode>& nodes) const;
  void add_node(const FlatNode& node, Scope& scope, const std::unordered_set<std::string>& as_tensors);
  void add_constant_node(const onnx::NodeProto& node, int opset, Scope& scope);
  void add_outputs(const std::vector<std::string>& names, const std::string& graph, Scope& scope,
                   const std::unordered_set<std::string>& as_tensors);
  TensorId use_value(const std::string& name, Scope& scope, const std::unordered_set<std::string>& as_tensors);
  TensorId define_value(const std::string& name, Scope& scope);
  Layer new_layer(const onnx::NodeProto& node, const OpDef& op, int opset);
  void add_attributes(const FlatNode& node, Layer& layer, Scope& scope,
                      const std::unordered_set<std::string>& as_tensors);
  Tensor constant_value(const onnx::NodeProto& node);
  const Tensor& elements(Constant& constant);
  void check_counts(const onnx::NodeProto& node, const OpDef& op, int opset) const;
  void describe(const onnx::ValueInfoProto& declared, TensorInfo& info, const std::string& what) const;
  std::string unique_layer_name(const std::string& wanted);
  const OpDef* find_op(const FlatNode& node) const;
  /// Or one that another program carries out.
  const OpDef* find_op_anywhere(const FlatNode& node) const;
  int opset_of(const FlatNode& node) const;
  [[noreturn]] void fail(ErrorCode code, const std::string& message) const;
  [[noreturn]] void report_unknown_operators() const;
  void warn_of_foreign_layers() const;

  const ModelFile& file_;
  const OpRegistry& ops_;
  TensorReader& reader_;
  std::vector<std::string> wanted_;
  Opsets opsets_;
  FunctionInliner functions_;
  std::deque<onnx::NodeProto> copies_;  ///< Of nodes that are not those of the file.
  std::unordered_set<std::string> layer_names_;
  int name_counter_ = 0;
  struct UnknownOperator {
    std::string name, domain, node;
    std::string full_name() const;
  };
  std::vector<UnknownOperator> unknown_, foreign_;
};

}  // namespace ulpscope::onnx_model
