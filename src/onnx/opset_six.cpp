#include "onnx/opset_six.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "core/messages.h"
#include "onnx/functions.h"

namespace ulpscope::onnx_model {
namespace {

constexpr std::array<std::string_view, 11> kAligned{"Add", "Sub", "Mul",  "Div",     "Pow",  "And",
                                                    "Or",  "Xor", "Less", "Greater", "Equal"};
/// Their first output has the rank of their first input.
constexpr std::array<std::string_view, 49> kKeepRank{"Abs",
                                                     "AveragePool",
                                                     "BatchNormalization",
                                                     "Cast",
                                                     "Ceil",
                                                     "Clip",
                                                     "Concat",
                                                     "Conv",
                                                     "ConvTranspose",
                                                     "DepthToSpace",
                                                     "Dropout",
                                                     "Elu",
                                                     "Exp",
                                                     "Floor",
                                                     "GlobalAveragePool",
                                                     "GlobalLpPool",
                                                     "GlobalMaxPool",
                                                     "HardSigmoid",
                                                     "Hardmax",
                                                     "Identity",
                                                     "InstanceNormalization",
                                                     "LRN",
                                                     "LeakyRelu",
                                                     "Log",
                                                     "LogSoftmax",
                                                     "LpNormalization",
                                                     "LpPool",
                                                     "Max",
                                                     "MaxPool",
                                                     "Mean",
                                                     "Min",
                                                     "Neg",
                                                     "Not",
                                                     "PRelu",
                                                     "Pad",
                                                     "Reciprocal",
                                                     "Relu",
                                                     "Selu",
                                                     "Sigmoid",
                                                     "Slice",
                                                     "Softmax",
                                                     "Softplus",
                                                     "Softsign",
                                                     "SpaceToDepth",
                                                     "Sqrt",
                                                     "Sum",
                                                     "Tanh",
                                                     "Tile",
                                                     "Transpose"};

bool is_aligned(std::string_view op) { return std::ranges::find(kAligned, op) != kAligned.end(); }

std::int64_t integer_of(const onnx::NodeProto& node, std::string_view name, std::int64_t otherwise) {
  const auto* found = find_attribute(node, name);
  return found == nullptr ? otherwise : found->i();
}

onnx::AttributeProto& add_attribute(onnx::NodeProto& node, const char* name, onnx::AttributeProto::AttributeType type) {
  onnx::AttributeProto& made = *node.add_attribute();
  made.set_name(name);
  made.set_type(type);
  return made;
}

void drop(onnx::NodeProto& node, std::string_view name) {
  for (int a = node.attribute_size(); a-- > 0;)
    if (node.attribute(a).name() == name) node.mutable_attribute()->DeleteSubrange(a, 1);
}

/// One graph; bodies know the ranks of the graph around them.
class Raiser {
 public:
  using Ranks = std::map<std::string, int>;

  Raiser(const std::string& source, std::int64_t opset, Ranks outer)
      : source_(source), opset_(opset), ranks_(std::move(outer)) {}

  void run(onnx::GraphProto& graph) {
    for (const auto* infos : {&graph.value_info(), &graph.output(), &graph.input()})
      for (const auto& info : *infos)
        if (info.type().tensor_type().has_shape()) ranks_[info.name()] = info.type().tensor_type().shape().dim_size();
    for (const auto& tensor : graph.initializer()) {
      ranks_[tensor.name()] = tensor.dims_size();
      if (tensor.dims_size() == 1) lengths_[tensor.name()] = static_cast<int>(tensor.dims(0));
    }
    google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
    nodes.Swap(graph.mutable_node());
    for (auto& node : nodes) {
      for (auto& attribute : *node.mutable_attribute())
        if (attribute.has_g()) Raiser(source_, opset_, ranks_).run(*attribute.mutable_g());
      if (domain_of(node.domain()).empty()) {
        raise_form(node, graph);
        raise(node, graph);
      }
      graph.add_node()->Swap(&node);
    }
  }

 private:
  int rank(const std::string& name) const {
    const auto found = ranks_.find(name);
    return found == ranks_.end() ? -1 : found->second;
  }

  /// What changed up to opset 6, and Upsample: attributes that have other names, types or defaults, or are inputs.
  void raise_form(onnx::NodeProto& node, onnx::GraphProto& graph) {
    using Proto = onnx::AttributeProto;
    const std::string& op = node.op_type();
    drop(node, "consumed_inputs");
    if ((op == "Tile" && opset_ < 6 && node.input_size() > 2) || (op == "Split" && opset_ < 2 && node.input_size() > 1))
      throw unsupported("[import] {}: {} '{}' has a form of opset {} that is not supported; try onnx.version_converter",
                        source_, op, node_name(node), opset_);
    if (op == "Concat" && opset_ < 4 && find_attribute(node, "axis") == nullptr)
      add_attribute(node, "axis", Proto::INT).set_i(1);
    if (op == "Selu" && opset_ < 6) {
      if (find_attribute(node, "alpha") == nullptr) add_attribute(node, "alpha", Proto::FLOAT).set_f(1.6732F);
      if (find_attribute(node, "gamma") == nullptr) add_attribute(node, "gamma", Proto::FLOAT).set_f(1.0507F);
    }
    for (auto& attribute : *node.mutable_attribute()) {
      if (op == "Pad" && attribute.name() == "paddings") attribute.set_name("pads");
      if (op.ends_with("LpPool") && attribute.name() == "p" && attribute.type() == Proto::FLOAT) {
        attribute.set_type(Proto::INT);
        attribute.set_i(static_cast<std::int64_t>(attribute.f()));
      }
      if (onnx::TensorProto::DataType type{}; op == "Cast" && attribute.name() == "to" &&
                                              attribute.type() == Proto::STRING &&
                                              onnx::TensorProto::DataType_Parse(attribute.s(), &type)) {
        attribute.set_type(Proto::INT);
        attribute.set_i(type);
      }
    }
    if (const Proto* found = find_attribute(node, "shape"); op == "Reshape" && opset_ < 5 && found != nullptr) {
      onnx::TensorProto& made = *graph.add_initializer();
      made.set_name(unused_name(node, "shape"));
      made.set_data_type(onnx::TensorProto::INT64);
      made.add_dims(found->ints_size());
      made.mutable_int64_data()->CopyFrom(found->ints());
      ranks_[made.name()] = 1;
      lengths_[made.name()] = found->ints_size();
      node.add_input(made.name());
      drop(node, "shape");
    }
    if (const Proto* height = find_attribute(node, "height_scale"); op == "Upsample" && height != nullptr) {
      const Proto* width = find_attribute(node, "width_scale");
      const std::array scales{1.0F, 1.0F, height->f(), width == nullptr ? 1.0F : width->f()};
      Proto& made = add_attribute(node, "scales", Proto::FLOATS);
      for (float scale : scales) made.add_floats(scale);
      drop(node, "height_scale");
      drop(node, "width_scale");
    }
  }

  std::string unused_name(const onnx::NodeProto& node, std::string_view what) const {
    std::string name = fmt::format("{}_{}", node_name(node), what);
    while (ranks_.contains(name)) name += "_";
    return name;
  }

  void raise(onnx::NodeProto& node, onnx::GraphProto& graph) {
    const std::string& op = node.op_type();
    if ((op == "BatchNormalization" || op == "Dropout") && integer_of(node, "is_test", 0) == 0)
      throw unsupported("[import] {}: {} '{}' is in its form for training (is_test is 0); try an export for inference",
                        source_, op, node_name(node));
    if (is_aligned(op) && node.input_size() == 2 && integer_of(node, "broadcast", 0) != 0) align(node, graph);
    if (op == "PRelu" && node.input_size() == 2) {
      // One slope for each channel, which stands second, or a single one.
      const bool single = lengths_.contains(node.input(1)) && lengths_[node.input(1)] == 1;
      if (!single && rank(node.input(1)) != 0) {
        check_ranks(node);
        if (rank(node.input(1)) == 1 && rank(node.input(0)) > 2) stretch(node, graph, rank(node.input(0)) - 2);
      }
    }
    for (const std::string_view gone : {"broadcast", "is_test", "output_sequence"}) drop(node, gone);
    if (is_aligned(op)) drop(node, "axis");
    if (const int known = rank_of_output(node); known >= 0)
      for (const auto& output : node.output()) ranks_[output] = known;
  }

  /// The dimensions of the second operand are those of the first from `axis` on: those behind them become 1.
  void align(onnx::NodeProto& node, onnx::GraphProto& graph) {
    if (find_attribute(node, "axis") == nullptr) return;
    check_ranks(node);
    const int first = rank(node.input(0)), second = rank(node.input(1));
    std::int64_t axis = integer_of(node, "axis", 0);
    if (axis < 0) axis += first;
    if (const std::int64_t behind = first - axis - second; second > 0 && behind > 0)
      stretch(node, graph, static_cast<int>(behind));
  }

  void check_ranks(const onnx::NodeProto& node) const {
    if (rank(node.input(0)) < 0 || rank(node.input(1)) < 0)
      throw unsupported(
          "[import] {}: {} '{}' aligns its operands as opsets before 7 do, and their ranks are not known; try "
          "onnx.version_converter",
          source_, node.op_type(), node_name(node));
  }

  /// Puts so many dimensions of 1 behind the others of the second operand.
  void stretch(onnx::NodeProto& node, onnx::GraphProto& graph, int count) {
    const int own = rank(node.input(1));
    onnx::NodeProto& made = *graph.add_node();
    made.set_op_type("Unsqueeze");
    made.set_name(fmt::format("{}_operand", node_name(node)));
    made.add_input(node.input(1));
    const std::string name = unused_name(node, "operand");
    made.add_output(name);
    ranks_[name] = own + count;
    onnx::AttributeProto& axes = add_attribute(made, "axes", onnx::AttributeProto::INTS);
    for (int k = 0; k < count; ++k) axes.add_ints(own + k);
    node.set_input(1, name);
  }

  int rank_of_output(const onnx::NodeProto& node) const {
    const std::string& op = node.op_type();
    const int first = node.input_size() > 0 ? rank(node.input(0)) : -1;
    const auto axes = [&] {
      const auto* found = find_attribute(node, "axes");
      return found == nullptr ? 0 : found->ints_size();
    };
    if (is_aligned(op) || std::ranges::find(kKeepRank, op) != kKeepRank.end()) return first;
    if (op == "Gemm" || op == "Flatten") return 2;
    if (op == "MatMul" && node.input_size() == 2) return first < 0 ? -1 : std::max(first, rank(node.input(1)));
    if (op == "Unsqueeze" && first >= 0) return first + axes();
    if (op == "Squeeze" && first >= 0 && axes() > 0) return first - axes();
    if (op.starts_with("Reduce") && integer_of(node, "keepdims", 1) != 0) return first;
    if (op == "Split") return first;
    if (op == "Reshape" && node.input_size() == 2 && lengths_.contains(node.input(1)))
      return lengths_.at(node.input(1));
    if (const auto* value = op == "Constant" ? find_attribute(node, "value") : nullptr) return value->t().dims_size();
    return -1;
  }

  const std::string& source_;
  const std::int64_t opset_;
  Ranks ranks_;
  Ranks lengths_;  ///< Of lists that are initializers.
};

}  // namespace

void raise_opset_six(ModelFile& file) {
  for (auto& import : *file.proto.mutable_opset_import()) {
    if (!domain_of(import.domain()).empty() || import.version() < 1 || import.version() > 6) continue;
    const std::int64_t opset = import.version();
    import.set_version(7);
    Raiser(file.source, opset, {}).run(*file.proto.mutable_graph());
  }
}

}  // namespace ulpscope::onnx_model
