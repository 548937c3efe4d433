// The table of operator tests. Every file of this folder adds rows to it; op_rows_test.cpp runs them all, and fails for
// an operator that has none.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "graph/attributes.h"
#include "ulpscope/tensor.h"

namespace ulpscope::test {

/// One layer with its inputs and what must come out. Expected values come from a formula in double or from a
/// calculation by hand, never from the kernel.
struct Row {
  std::string op;     ///< ONNX's name.
  std::string label;  ///< What the row shows; unique per operator.
  int opset = 13;
  std::map<std::string, Attribute> attributes;
  std::vector<Tensor> inputs;    ///< Tensor(): absent. Those that OpDef::weights names are constants of the network.
  std::vector<Tensor> expected;  ///< Tensor(): nobody asks for this output. Types are the declared ones (float16, ...).
  double tolerance = 1e-6;  ///< |actual - expected| <= tolerance * (1 + |expected|); NaN and infinities must agree.
  std::string domain;
};

/// What GoogleTest prints of a row (its bytes otherwise, which differ from run to run).
inline void PrintTo(const Row& row, std::ostream* out) { *out << row.op << " " << row.label; }

const std::vector<Row>& all_rows();

/// `static const AddRows rows({...});` at namespace scope adds to the table.
struct AddRows {
  explicit AddRows(std::vector<Row> rows);
};

/// Runs one layer with its reference kernel; outputs are in physical types. Null domain: ai.onnx.
std::vector<Tensor> run_row(const Row& row);

inline Tensor f32(Shape shape, std::initializer_list<float> v) { return Tensor::of<float>(std::move(shape), v); }
inline Tensor f64(Shape shape, std::initializer_list<double> v) { return Tensor::of<double>(std::move(shape), v); }
inline Tensor f16(Shape shape, std::initializer_list<float> v) {
  return f32(std::move(shape), v).cast(DataType::kFloat16);
}
inline Tensor bf16(Shape shape, std::initializer_list<float> v) {
  return f32(std::move(shape), v).cast(DataType::kBFloat16);
}
inline Tensor i64(Shape shape, std::initializer_list<std::int64_t> v) {
  return Tensor::of<std::int64_t>(std::move(shape), v);
}
inline Tensor i32(Shape shape, std::initializer_list<std::int32_t> v) {
  return Tensor::of<std::int32_t>(std::move(shape), v);
}
inline Tensor i8(Shape shape, std::initializer_list<std::int8_t> v) {
  return Tensor::of<std::int8_t>(std::move(shape), v);
}
inline Tensor u8(Shape shape, std::initializer_list<std::uint8_t> v) {
  return Tensor::of<std::uint8_t>(std::move(shape), v);
}
inline Tensor b8(Shape shape, std::initializer_list<bool> v) { return Tensor::of<bool>(std::move(shape), v); }

/// Float32 values spread over [low, high] without a visible pattern; the same for the same arguments.
Tensor spread(const Shape& shape, double low, double high, std::uint32_t seed = 1);

/// function(x) for every element of a float32 tensor, computed in double and rounded once.
Tensor mapped(const Tensor& x, const std::function<double(double)>& function);
/// function(x, y), elementwise for equal shapes.
Tensor mapped(const Tensor& x, const Tensor& y, const std::function<double(double, double)>& function);
/// A float32 tensor from element index to value.
Tensor generated(const Shape& shape, const std::function<double(std::int64_t)>& function);

}  // namespace ulpscope::test
