// The adjoint of a network: gradients of its outputs, projected on given vectors, with respect to its tensors. It is a
// network itself, of ordinary layers, so that the engine runs it as fast as any other.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/inference.h"
#include "graph/network.h"

namespace ulpscope {

/// A network that computes gradients, and how its tensors belong to those of the network that it was made from.
struct AdjointNetwork {
  Network network;
  /// The first inputs of `network`, in order: values of these tensors of the forward network, of their shapes; floats
  /// in `AdjointOptions::type`, integers and booleans in their own type.
  std::vector<TensorId> forward;
  /// The inputs after them: one vector per entry of `outputs`, of its shape and in `type`. kNone for an output that is
  /// not float, or whose shape is not known: it has no input, and what leads to it is incomplete.
  std::vector<TensorId> seeds;
  /// For each wanted tensor: the tensor of `network` that holds the gradient of sum over seeds of <seed, output> with
  /// respect to it, of its shape and in `type`. kNone: no path with a derivative leads from it to a seeded output, or
  /// it is not float, or known beforehand. Two wanted tensors may have the same one.
  std::vector<TensorId> gradients;
  /// For each wanted tensor: which output of `network` has its gradient; kNone where there is none.
  std::vector<int> output_of;
  /// Per wanted tensor: a path leads to an output through a layer that has no derivative (Round, LSTM, If), through an
  /// integer or a boolean, or into an input whose derivative nobody wrote: the gradient does not tell all.
  std::vector<char> incomplete;
};

struct AdjointOptions {
  /// kFloat32, or kFloat64 for tests.
  DataType type = DataType::kFloat32;
};

/// The gradients of `outputs` with respect to `wanted`, for the shapes of `inferred` (made for this network). Both are
/// tensors computed by layers, or network inputs; `outputs` need not be network outputs. Values known beforehand become
/// constants of the adjoint, sharing bytes where their type allows it. The result's outputs are the distinct gradients,
/// in the order of `wanted`. Every tensor of it has a type and a shape; it holds only what the gradients need.
/// Layers whose shapes are not known beforehand have no derivative.
AdjointNetwork make_adjoint(const Network& network, const InferredNetwork& inferred, const OpRegistry& ops,
                            std::span<const TensorId> wanted, std::span<const TensorId> outputs,
                            const AdjointOptions& options = {});

/// What `OpDef::adjoint` sees: one layer of the forward network, and the adjoint network that it writes to. Tensor ids
/// are those of the adjoint network. Layers are written in the semantics of opset `kAdjointOpset`.
class AdjointContext : public LayerContext {
 public:
  static constexpr int kAdjointOpset = 21;

  virtual ~AdjointContext() = default;

  int num_inputs() const { return static_cast<int>(layer().inputs.size()); }
  int num_outputs() const { return static_cast<int>(layer().outputs.size()); }
  bool has_input(int i) const { return layer().input(i) != kNone; }

  /// The forward value; asking for it makes it an input (or a constant) of the adjoint network.
  virtual TensorId input(int i) = 0;
  virtual TensorId output(int i) = 0;
  virtual const Shape& input_shape(int i) const = 0;
  virtual const Shape& output_shape(int i) const = 0;
  /// The elements of an input that is known beforehand, or null. Physical type.
  virtual const Tensor* input_value(int i) const = 0;
  /// The elements of an int32 or int64 input, as int64. Throws NotKnownYet when they are not known beforehand; so do
  /// input and output (the values) and their shapes. The driver catches it: the layer's inputs are incomplete.
  std::vector<std::int64_t> input_ints(int i) const;
  /// True when the gradient of this input is of use: it is float and not a constant, and something wanted is upstream.
  virtual bool wants(int i) const = 0;
  /// The gradient that arrives at an output; kNone: nothing does (at least one output has one).
  virtual TensorId gradient(int o) const = 0;
  /// The float type of all values of the adjoint network.
  virtual DataType type() const = 0;

  /// The shape of any tensor of the adjoint network.
  virtual const Shape& shape(TensorId id) const = 0;

  /// Writes a layer and returns its (first) output. A kNone among the inputs is an absent input.
  virtual TensorId add(std::string_view op, std::span<const TensorId> inputs,
                       std::initializer_list<std::pair<std::string_view, Attribute>> attributes = {}) = 0;
  TensorId add(std::string_view op, std::initializer_list<TensorId> inputs,
               std::initializer_list<std::pair<std::string_view, Attribute>> attributes = {}) {
    return add(op, std::span(inputs.begin(), inputs.size()), attributes);
  }
  /// The same for the first `num_outputs` outputs.
  virtual std::vector<TensorId> add_multiple(
      std::string_view op, std::span<const TensorId> inputs, int num_outputs,
      std::initializer_list<std::pair<std::string_view, Attribute>> attributes = {}) = 0;
  /// Floats are converted to `type()`; integers stay.
  virtual TensorId constant(const Tensor& value) = 0;
  virtual TensorId scalar(double value) = 0;
  virtual TensorId integers(std::vector<std::int64_t> values) = 0;

  TensorId multiply(TensorId a, TensorId b) { return add("Mul", {a, b}); }
  /// Sums over the dimensions along which `shape` was broadcast to `from`, so that the result has the shape `shape`.
  TensorId sum_to(TensorId value, const Shape& from, const Shape& shape);
  TensorId sum_to(TensorId value, const Shape& to) { return sum_to(value, Shape(shape(value)), to); }
  /// value * factor, broadcast to `to`: a multiplication, so that it is part of pointwise programs.
  TensorId broadcast_to(TensorId value, const Shape& to, double factor = 1);
  /// The same elements under another shape; no layer when it is the one they have.
  TensorId reshape(TensorId value, const Shape& to);

  /// The gradient of an input, of its shape. May be called once per input; not calling it means 0.
  virtual void set(int i, TensorId gradient) = 0;
  /// The input has a derivative that is not written: paths through it are incomplete.
  virtual void leave_out(int i) = 0;

 protected:
  AdjointContext() : LayerContext(nullptr, "adjoint", ErrorCode::kInvalidArgument) {}
};

}  // namespace ulpscope
