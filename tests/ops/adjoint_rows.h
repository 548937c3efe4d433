// The table of derivatives. adjoint_*_test.cpp add rows; adjoint_test.cpp checks each against finite differences, and
// fails for an operator that has an adjoint and no row.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/adjoint.h"
#include "graph/network.h"

namespace ulpscope::test {

/// One input of a layer under test.
struct AdjointInput {
  enum class Kind { kAbsent, kVaried, kConstant, kGiven } kind = Kind::kAbsent;
  Shape shape;
  double low = -1, high = 1;
  Tensor value;
};

/// A float64 network input in [low, high) whose gradient is checked.
inline AdjointInput vary(Shape shape, double low = -1, double high = 1) {
  return {AdjointInput::Kind::kVaried, std::move(shape), low, high, {}};
}
/// Known beforehand.
inline AdjointInput constant(Tensor value) { return {AdjointInput::Kind::kConstant, {}, 0, 0, std::move(value)}; }
inline AdjointInput constant(std::vector<std::int64_t> values) {
  return constant(
      Tensor::of<std::int64_t>({static_cast<std::int64_t>(values.size())}, std::span<const std::int64_t>(values)));
}
/// A network input without a gradient.
inline AdjointInput given(Tensor value) { return {AdjointInput::Kind::kGiven, {}, 0, 0, std::move(value)}; }
inline AdjointInput absent() { return {}; }

struct AdjointRow {
  std::string op, label;
  std::vector<AdjointInput> inputs;
  std::map<std::string, Attribute> attributes;
  int opset = 21;
  int outputs = 1;
  std::string domain;
};

struct AddAdjointRows {
  explicit AddAdjointRows(std::vector<AdjointRow> rows);
};

/// A row as a network of one layer.
struct RowNetwork {
  Network network;
  std::vector<AdjointInput> inputs;  ///< In the order of the network's.
  std::vector<TensorId> varied;
};
/// `varied`: the type of inputs whose gradients are checked.
RowNetwork network_of(const AdjointRow& row, DataType varied);

/// The gradients of `varied` inputs of a float64 network from its adjoint, against central differences. All outputs
/// that are float are seeded.
void check_gradients(const Network& network, const std::vector<Tensor>& inputs, const std::vector<TensorId>& varied,
                     double tolerance = 1e-6);

}  // namespace ulpscope::test
