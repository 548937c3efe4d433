// What If, Loop and Scan share.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ops/movement.h"

namespace ulpscope::ops {

/// The declared type of output `i` of a sub-graph; kUndefined when it is not known or there is no such output.
DataType subgraph_output_type(const Subgraph& graph, std::size_t i);

/// The formal inputs of a sub-graph: those of the ONNX graph, without captured values.
std::size_t formal_inputs(const Subgraph& graph);

/// The one element of a bool tensor.
bool single_bool(const KernelContext& ctx, const Tensor& tensor, std::string_view what);

/// Runs the sub-graph and checks how many outputs it has.
std::vector<Tensor> run_subgraph(const KernelContext& ctx, std::string_view attribute, std::span<const Tensor> inputs,
                                 std::size_t outputs);

/// The shape of output `i` of a sub-graph that never ran, for inputs of these shapes: as inferred, else as declared; 0
/// for dimensions that are not known.
Shape shape_without_run(const KernelContext& ctx, const Subgraph& graph, std::vector<Shape> inputs, std::size_t i);

/// Collects one output of each iteration and joins them along a new axis.
class Stack {
 public:
  /// Fails when the shapes differ from iteration to iteration.
  void push(const KernelContext& ctx, Tensor tensor);
  bool empty() const noexcept { return parts_.empty(); }
  /// The parts in order (or in reverse) along `axis` (negative: from the end of the result). Without parts, none of
  /// this shape and type.
  Tensor join(const KernelContext& ctx, std::int64_t axis, bool reversed, Shape shape, DataType type) const;

 private:
  std::vector<Tensor> parts_;
};

/// Entry `index` of `axis`, without that axis.
Tensor slice_at(const Tensor& tensor, std::size_t axis, std::int64_t index);

}  // namespace ulpscope::ops
