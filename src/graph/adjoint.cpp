#include "graph/adjoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/messages.h"
#include "graph/evaluate.h"
#include "ulpscope/error.h"

namespace ulpscope {

std::vector<std::int64_t> AdjointContext::input_ints(int i) const {
  const Tensor* value = input_value(i);
  if (value == nullptr) throw NotKnownYet{};
  const Tensor wide = value->cast(DataType::kInt64);
  return {wide.values<std::int64_t>().begin(), wide.values<std::int64_t>().end()};
}

TensorId AdjointContext::sum_to(TensorId value, const Shape& from, const Shape& to) {
  if (from == to) return value;
  std::vector<std::int64_t> axes;
  const std::size_t offset = from.size() - to.size();
  for (std::size_t d = 0; d < from.size(); ++d)
    if (d < offset || (to[d - offset] == 1 && from[d] != 1)) axes.push_back(static_cast<std::int64_t>(d));
  if (!axes.empty()) value = add("ReduceSum", {value, integers(axes)}, {{"keepdims", std::int64_t{1}}});
  return reshape(value, to);
}

TensorId AdjointContext::broadcast_to(TensorId value, const Shape& to, double factor) {
  const Shape from = shape(value);
  if (from == to) return factor == 1 ? value : multiply(value, scalar(factor));
  // Ones along the dimensions that grow: as few as possible, and of the full rank.
  Shape ones(to.size(), 1);
  const std::size_t offset = to.size() - from.size();
  for (std::size_t d = 0; d < to.size(); ++d)
    if (d < offset || from[d - offset] != to[d]) ones[d] = to[d];
  Tensor filled(DataType::kFloat64, ones);
  std::fill_n(filled.data<double>(), filled.size(), factor);
  return multiply(value, constant(filled));
}

TensorId AdjointContext::reshape(TensorId value, const Shape& to) {
  if (shape(value) == to) return value;
  return add("Reshape", {value, integers(to)}, {{"allowzero", std::int64_t{1}}});
}

namespace {

/// Walks the forward network from its end, and is the context of one layer after the other.
class Builder final : public AdjointContext {
 public:
  Builder(const Network& network, const InferredNetwork& inferred, const OpRegistry& ops, DataType type)
      : forward_(network),
        inferred_(inferred),
        ops_(ops),
        type_(type),
        useful_(network.tensors.size(), 0),
        reaches_(network.tensors.size(), 0),
        unclear_(network.tensors.size(), 0),
        gradients_(network.tensors.size(), kNone),
        values_(network.tensors.size(), kNone) {
    result_.network.name = network.name + " (adjoint)";
    result_.network.source = network.source;
  }

  AdjointNetwork run(std::span<const TensorId> wanted, std::span<const TensorId> outputs) {
    for (TensorId id : wanted) check_id(id);
    for (TensorId id : outputs) check_id(id);
    mark_useful(wanted);
    for (TensorId id : outputs) plant_seed(id);
    for (LayerId l : std::views::reverse(forward_.layers.ids())) visit(forward_.layers[l]);
    std::map<TensorId, int> numbers;
    for (TensorId id : wanted) {
      const TensorId gradient = useful_[id] != 0 ? as_output(gradients_[id]) : kNone;
      result_.gradients.push_back(gradient);
      result_.incomplete.push_back(unclear_[id]);
      if (gradient == kNone) {
        result_.output_of.push_back(kNone);
        continue;
      }
      const auto [found, added] = numbers.emplace(gradient, static_cast<int>(numbers.size()));
      if (added) result_.network.outputs.push_back(gradient);
      result_.output_of.push_back(found->second);
    }
    drop_unused();
    result_.network.check();
    return std::move(result_);
  }

  TensorId input(int i) override { return value_of(layer_->input(i)); }
  TensorId output(int o) override { return value_of(layer_->output(o)); }
  const Shape& input_shape(int i) const override { return forward_shape(layer_->input(i)); }
  const Shape& output_shape(int o) const override { return forward_shape(layer_->output(o)); }
  const Tensor* input_value(int i) const override {
    if (!has_input(i)) return nullptr;
    const Tensor& value = inferred_.values[layer_->input(i)];
    return value ? &value : nullptr;
  }
  bool wants(int i) const override { return has_input(i) && useful_[layer_->input(i)] != 0; }
  TensorId gradient(int o) const override { return o < num_outputs() ? arrived_[o] : kNone; }
  DataType type() const override { return type_; }
  const Shape& shape(TensorId id) const override { return *result_.network.tensor(id).shape; }

  TensorId add(std::string_view op, std::span<const TensorId> inputs,
               std::initializer_list<std::pair<std::string_view, Attribute>> attributes) override {
    return add_multiple(op, inputs, 1, attributes)[0];
  }

  std::vector<TensorId> add_multiple(
      std::string_view op, std::span<const TensorId> inputs, int num_outputs,
      std::initializer_list<std::pair<std::string_view, Attribute>> attributes) override {
    Layer written;
    written.op = ops_.find("", op);
    if (written.op == nullptr) throw InternalError(fmt::format("an adjoint uses the unknown operator {}", op));
    const std::string& origin = layer_ != nullptr ? layer_->name : forward_.name;
    written.name = fmt::format("{}/adjoint {} {}", origin, result_.network.layers.size(), op);
    written.opset = kAdjointOpset;
    if (layer_ != nullptr) written.nodes = layer_->nodes;
    written.inputs.assign(inputs.begin(), inputs.end());
    for (const auto& [name, value] : attributes) written.attributes.set(std::string(name), value);
    written.outputs.resize(static_cast<std::size_t>(num_outputs), TensorId(0));  // wanted; which, is not known yet
    const std::vector<InferContext::Output> inferred = infer_outputs(written);
    for (std::size_t o = 0; o < inferred.size(); ++o)
      written.outputs[o] = new_tensor(fmt::format("{}:{}", written.name, o), inferred[o].type, *inferred[o].shape);
    std::vector<TensorId> outputs = written.outputs;
    result_.network.add_layer(std::move(written));
    return outputs;
  }

  TensorId constant(const Tensor& value) override {
    Tensor own = to_physical(value);
    if (is_floating(own.type()) && own.type() != type_) own = own.cast(type_);
    const TensorId id = new_tensor(fmt::format("constant {}", result_.network.tensors.size()), own.type(), own.shape());
    result_.network.tensor(id).value = std::move(own);
    return id;
  }
  TensorId scalar(double value) override {
    const auto [found, added] = scalars_.emplace(value, kNone);
    if (added) found->second = constant(Tensor::scalar(value));
    return found->second;
  }
  TensorId integers(std::vector<std::int64_t> values) override {
    const auto [found, added] = integers_.emplace(values, kNone);
    if (added)
      found->second = constant(
          Tensor::of<std::int64_t>({static_cast<std::int64_t>(values.size())}, std::span<const std::int64_t>(values)));
    return found->second;
  }

  void set(int i, TensorId gradient) override {
    if (shape(gradient) != input_shape(i))
      throw InternalError(fmt::format("the adjoint of {} gives a gradient of shape {} for input {} of shape {}",
                                      layer_->op->name, to_string(shape(gradient)), i, to_string(input_shape(i))));
    if (wants(i)) add_to(layer_->input(i), gradient);
  }
  void leave_out(int i) override {
    if (const TensorId id = layer_->input(i); id != kNone && !is_known(id)) unclear_[id] = 1;
  }

 private:
  void check_id(TensorId id) const {
    if (!forward_.tensors.contains(id))
      throw invalid_argument("[adjoint] network '{}': there is no tensor {}; it has {}", forward_.name, id.number(),
                             forward_.tensors.size());
  }
  bool is_float(TensorId id) const { return is_floating(inferred_.types[id]); }
  bool is_known(TensorId id) const { return static_cast<bool>(inferred_.values[id]); }

  const Shape& forward_shape(TensorId id) const {
    if (const auto& known = inferred_.shapes[id]) return *known;
    throw NotKnownYet{};
  }

  /// Gradients are of use for wanted tensors and for what is computed from them with a derivative.
  void mark_useful(std::span<const TensorId> wanted) {
    const auto can = [&](TensorId id) { return id != kNone && is_float(id) && !is_known(id); };
    for (TensorId id : wanted)
      if (can(id)) useful_[id] = 1;
    for (const Layer& l : forward_.layers) {
      if (l.op->adjoint == nullptr) continue;
      const bool any = std::ranges::any_of(present(l.inputs), [&](TensorId id) { return useful_[id] != 0; });
      if (!any) continue;
      for (TensorId id : l.outputs)
        if (can(id)) useful_[id] = 1;
    }
  }

  void plant_seed(TensorId id) {
    reaches_[id] = 1;
    if (!is_float(id) || !inferred_.shapes[id]) {
      unclear_[id] = 1;
      result_.seeds.push_back(kNone);
      return;
    }
    const std::string& name = forward_.tensor(id).name;
    const TensorId seed =
        new_tensor(fmt::format("seed {} of {}", result_.seeds.size(), name), type_, forward_shape(id));
    result_.seeds.push_back(seed);
    if (useful_[id] != 0) add_to(id, seed);
  }

  void visit(const Layer& l) {
    bool reaches = false, unclear = false, arrives = false, useful = false;
    for (TensorId id : present(l.outputs)) {
      if (is_known(id)) continue;
      reaches |= reaches_[id] != 0;
      unclear |= unclear_[id] != 0 || (reaches_[id] != 0 && !is_float(id));
      arrives |= gradients_[id] != kNone;
    }
    if (!reaches) return;
    for (TensorId id : present(l.inputs)) {
      if (is_known(id)) continue;
      reaches_[id] = 1;
      if (unclear || l.op->adjoint == nullptr || !is_float(id)) unclear_[id] = 1;
      useful |= useful_[id] != 0;
    }
    if (l.op->adjoint == nullptr || !arrives || !useful) return;
    layer_ = &l;
    arrived_.clear();
    for (TensorId id : l.outputs) arrived_.push_back(id == kNone ? kNone : gradients_[id]);
    try {
      l.op->adjoint(*this);
    } catch (const NotKnownYet&) {
      for (int i = 0; i < num_inputs(); ++i) leave_out(i);
    }
    layer_ = nullptr;
  }

  /// At once: where many layers read parts of one tensor, the gradients of all parts are not there together.
  void add_to(TensorId id, TensorId gradient) {
    TensorId& sum = gradients_[id];
    sum = sum == kNone ? gradient : AdjointContext::add("Add", {sum, gradient});
  }

  /// Outputs are computed by layers.
  TensorId as_output(TensorId id) {
    if (id == kNone || result_.network.tensor(id).producer != kNone) return id;
    const auto [found, added] = copies_.emplace(id, kNone);
    if (added) found->second = AdjointContext::add("Identity", {id});
    return found->second;
  }

  /// The value of a tensor of the forward network.
  TensorId value_of(TensorId id) {
    TensorId& known = values_[id];
    if (known != kNone) return known;
    if (is_known(id)) return known = constant(inferred_.values[id]);
    const DataType type = is_float(id) ? type_ : physical_type(inferred_.types[id]);
    const std::string& name = forward_.tensor(id).name;
    known = new_tensor("value of " + (name.empty() ? fmt::format("tensor {}", id.number()) : name), type,
                       forward_shape(id));
    return known;
  }

  TensorId new_tensor(std::string name, DataType type, Shape shape) {
    TensorInfo info;
    info.name = std::move(name);
    info.type = type;
    info.dim_names.assign(shape.size(), "");
    info.shape = std::move(shape);
    return result_.network.add_tensor(std::move(info));
  }

  std::vector<InferContext::Output> infer_outputs(const Layer& written) const {
    std::vector<InferContext::Input> inputs(written.inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (written.inputs[i] == kNone) continue;
      const TensorInfo& info = result_.network.tensor(written.inputs[i]);
      inputs[i] = {true, info.type, &*info.shape, info.value ? &info.value : nullptr};
    }
    std::vector<InferContext::Output> outputs = infer_layer(written, inputs);
    for (const InferContext::Output& output : outputs)
      if (output.type == DataType::kUndefined || !output.shape)
        throw InternalError(fmt::format("the shape of '{}' is open", written.name));
    return outputs;
  }

  /// Adjoints may write more than the wanted gradients need.
  void drop_unused() {
    Network& network = result_.network;
    IdMap<TensorId, char> used(network.tensors.size(), 0);
    for (TensorId id : network.outputs) used[id] = 1;
    std::vector<Layer> kept;
    for (LayerId l : std::views::reverse(network.layers.ids())) {
      Layer& layer = network.layers[l];
      if (std::ranges::none_of(layer.outputs, [&](TensorId id) { return used[id] != 0; })) continue;
      for (TensorId id : present(layer.inputs)) used[id] = 1;
      kept.push_back(std::move(layer));
    }
    std::ranges::reverse(kept);
    network.layers = IdMap<LayerId, Layer>(std::move(kept));
    network.rebuild_index();
    for (TensorId id : values_.ids()) {
      const TensorId value = values_[id];
      if (value == kNone || used[value] == 0 || network.tensor(value).value) continue;
      result_.forward.push_back(id);
      network.inputs.push_back(value);
    }
    for (TensorId id : result_.seeds)
      if (id != kNone) network.inputs.push_back(id);
    for (TensorId id : network.tensors.ids())
      if (used[id] == 0 && network.tensors[id].value) network.tensors[id].value = {};
  }

  const Network& forward_;
  const InferredNetwork& inferred_;
  const OpRegistry& ops_;
  const DataType type_;
  AdjointNetwork result_;
  IdMap<TensorId, char> useful_;         ///< Per forward tensor: a gradient of it leads to a wanted one.
  IdMap<TensorId, char> reaches_;        ///< Per forward tensor: it influences an output.
  IdMap<TensorId, char> unclear_;        ///< Per forward tensor: also on a path without a derivative.
  IdMap<TensorId, TensorId> gradients_;  ///< Per forward tensor: the sum of those that arrived so far, or kNone.
  IdMap<TensorId, TensorId> values_;     ///< Per forward tensor: the adjoint's tensor with its value.
  std::map<double, TensorId> scalars_;
  std::map<std::vector<std::int64_t>, TensorId> integers_;
  std::map<TensorId, TensorId> copies_;
  std::vector<TensorId> arrived_;
};

}  // namespace

AdjointNetwork make_adjoint(const Network& network, const InferredNetwork& inferred, const OpRegistry& ops,
                            std::span<const TensorId> wanted, std::span<const TensorId> outputs,
                            const AdjointOptions& options) {
  if (options.type != DataType::kFloat32 && options.type != DataType::kFloat64)
    throw invalid_argument("[adjoint] network '{}': expected type float32 or float64, got {}", network.name,
                           name_of(options.type));
  return Builder(network, inferred, ops, options.type).run(wanted, outputs);
}

}  // namespace ulpscope
