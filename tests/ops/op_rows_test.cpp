#include "ops/op_rows.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cstring>
#include <set>

#include "core/parallel.h"
#include "graph/evaluate.h"
#include "graph/inference.h"
#include "graph/network.h"
#include "ops/registry.h"
#include "ulpscope/error.h"

namespace ulpscope::test {
namespace {

std::vector<Row>& table() {
  static std::vector<Row> rows;
  return rows;
}

struct OneLayer {
  Network network;
  std::vector<Tensor> inputs;  ///< Of the network, in its order.
  std::vector<Shape> shapes;
};

OneLayer make_network(const Row& row) {
  OneLayer result;
  Layer layer;
  layer.name = "layer";
  layer.op = op_registry().find(row.domain, row.op);
  layer.opset = row.opset;
  if (layer.op == nullptr) throw std::runtime_error("no operator " + row.op);
  for (const auto& [name, value] : row.attributes) layer.attributes.set(name, value);
  for (std::size_t i = 0; i < row.inputs.size(); ++i) {
    if (!row.inputs[i]) {
      layer.inputs.push_back(kNone);
      continue;
    }
    TensorInfo info;
    info.name = "in" + std::to_string(i);
    info.type = row.inputs[i].type();
    info.shape = row.inputs[i].shape();
    const bool constant = i < 32 && ((layer.op->weights >> i) & 1u) != 0;
    if (constant) info.value = row.inputs[i];
    const TensorId id = result.network.add_tensor(std::move(info));
    layer.inputs.push_back(id);
    if (constant) continue;
    result.network.inputs.push_back(id);
    result.inputs.push_back(row.inputs[i]);
    result.shapes.push_back(row.inputs[i].shape());
  }
  for (std::size_t i = 0; i < row.expected.size(); ++i) {
    if (!row.expected[i]) {
      layer.outputs.push_back(kNone);
      continue;
    }
    TensorInfo info;
    info.name = "out" + std::to_string(i);
    const TensorId id = result.network.add_tensor(std::move(info));
    layer.outputs.push_back(id);
    result.network.outputs.push_back(id);
  }
  result.network.add_layer(std::move(layer));
  return result;
}

double as_double(const Tensor& tensor, std::int64_t i) {
  const Tensor wide = tensor.type() == DataType::kFloat64 ? tensor : tensor.cast(DataType::kFloat64);
  return wide.data<double>()[i];
}

void expect_close(const Tensor& actual, const Tensor& declared, double tolerance) {
  const Tensor expected = to_physical(declared);
  ASSERT_EQ(name_of(actual.type()), name_of(expected.type()));
  ASSERT_EQ(to_string(actual.shape()), to_string(expected.shape()));
  if (!is_floating(actual.type())) {
    for (std::int64_t i = 0; i < actual.size(); ++i) {
      const auto size = static_cast<std::int64_t>(size_of(actual.type()));
      const auto* a = static_cast<const char*>(actual.raw()) + i * size;
      const auto* e = static_cast<const char*>(expected.raw()) + i * size;
      EXPECT_EQ(std::memcmp(a, e, static_cast<std::size_t>(size)), 0)
          << "element " << i << ": expected " << as_double(expected, i) << ", got " << as_double(actual, i);
    }
    return;
  }
  const Tensor a = actual.cast(DataType::kFloat64), e = expected.cast(DataType::kFloat64);
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double x = a.data<double>()[i], y = e.data<double>()[i];
    const bool same = (std::isnan(x) && std::isnan(y)) || x == y || std::abs(x - y) <= tolerance * (1 + std::abs(y));
    EXPECT_TRUE(same) << "element " << i << ": expected " << y << ", got " << x;
  }
}

std::string test_name(const testing::TestParamInfo<Row>& info) {
  std::string name = info.param.op + "_" + std::to_string(info.param.opset) + "_" + info.param.label;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

class OpRows : public testing::TestWithParam<Row> {};

TEST_P(OpRows, ComputesWhatIsExpected) {
  const Row& row = GetParam();
  const std::vector<Tensor> outputs = run_row(row);
  std::size_t next = 0;
  for (std::size_t i = 0; i < row.expected.size(); ++i) {
    if (!row.expected[i]) continue;
    SCOPED_TRACE("output " + std::to_string(i));
    expect_close(outputs.at(next++), row.expected[i], row.tolerance);
  }
}

TEST_P(OpRows, InfersTypesWithoutShapes) {
  OneLayer one = make_network(GetParam());
  for (TensorId id : one.network.inputs) one.network.tensor(id).shape.reset();
  infer_types(one.network);
  std::size_t next = 0;
  for (const Tensor& expected : GetParam().expected) {
    if (!expected) continue;
    EXPECT_EQ(name_of(one.network.tensor(one.network.outputs[next++]).type), name_of(expected.type()));
  }
}

TEST_P(OpRows, InfersShapesThatTheKernelKeeps) {
  OneLayer one = make_network(GetParam());
  infer_types(one.network);  // as import does: bodies of control flow have types then
  const InferredNetwork inferred = infer(one.network, one.shapes);
  std::size_t next = 0;
  for (const Tensor& expected : GetParam().expected) {
    if (!expected) continue;
    const TensorId id = one.network.outputs[next++];
    EXPECT_EQ(name_of(inferred.types[id]), name_of(expected.type()));
    EXPECT_EQ(to_string(inferred.shapes[id].value_or(expected.shape())), to_string(expected.shape()));
  }
}

TEST_P(OpRows, DoesNotDependOnTheNumberOfThreads) {
  const int before = num_threads();
  set_num_threads(1);
  const std::vector<Tensor> one = run_row(GetParam());
  set_num_threads(3);
  const std::vector<Tensor> three = run_row(GetParam());
  set_num_threads(before);
  ASSERT_EQ(one.size(), three.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    ASSERT_EQ(one[i].bytes(), three[i].bytes());
    EXPECT_TRUE(one[i].bytes() == 0 || std::memcmp(one[i].raw(), three[i].raw(), one[i].bytes()) == 0)
        << "output " << i;
  }
}

// Either a layer runs, or it is refused before anything does, by name: never in the middle of a run.
TEST_P(OpRows, TakesOrRefusesEveryTypeOfEveryInput) {
  for (std::size_t i = 0; i < GetParam().inputs.size(); ++i) {
    if (!GetParam().inputs[i]) continue;
    for (int t = static_cast<int>(DataType::kFloat32); t <= static_cast<int>(DataType::kBool); ++t) {
      Row row = GetParam();
      row.inputs[i] = row.inputs[i].cast(static_cast<DataType>(t));
      SCOPED_TRACE("input " + std::to_string(i) + " as " + std::string(name_of(static_cast<DataType>(t))));
      try {
        OneLayer one = make_network(row);
        infer_types(one.network);
        infer(one.network, one.shapes);
        evaluate(one.network, one.inputs);
      } catch (const Error& error) {
        ASSERT_NE(error.place(), nullptr) << error.what();
        EXPECT_NE(error.place()->stage, "run") << error.what();
        EXPECT_EQ(error.place()->layer, "layer");
        EXPECT_EQ(error.place()->op, row.op);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, OpRows, testing::ValuesIn(all_rows()), test_name);

TEST(OpRowsTable, HasARowForEveryOperator) {
  std::set<std::string> tested;
  for (const Row& row : all_rows()) tested.insert(row.domain + "::" + row.op);
  for (const OpDef& op : op_registry().all()) {
    if (op.run == nullptr) continue;  // Constant
    EXPECT_TRUE(tested.count(std::string(op.domain) + "::" + std::string(op.name)) > 0)
        << op.name << " has no row in tests/ops";
  }
}

}  // namespace

const std::vector<Row>& all_rows() { return table(); }

AddRows::AddRows(std::vector<Row> rows) { table().insert(table().end(), rows.begin(), rows.end()); }

std::vector<Tensor> run_row(const Row& row) {
  OneLayer one = make_network(row);
  infer_types(one.network);
  return evaluate(one.network, one.inputs);
}

Tensor generated(const Shape& shape, const std::function<double(std::int64_t)>& function) {
  Tensor result(DataType::kFloat32, shape);
  for (std::int64_t i = 0; i < result.size(); ++i) result.data<float>()[i] = static_cast<float>(function(i));
  return result;
}

Tensor spread(const Shape& shape, double low, double high, std::uint32_t seed) {
  std::uint32_t state = seed * 2654435761u + 12345u;
  return generated(shape, [&](std::int64_t) {
    state = state * 1664525u + 1013904223u;
    return low + (high - low) * static_cast<double>(state >> 8) / 16777216.0;
  });
}

Tensor mapped(const Tensor& x, const std::function<double(double)>& function) {
  return generated(x.shape(), [&](std::int64_t i) { return function(x.data<float>()[i]); });
}

Tensor mapped(const Tensor& x, const Tensor& y, const std::function<double(double, double)>& function) {
  return generated(x.shape(), [&](std::int64_t i) { return function(x.data<float>()[i], y.data<float>()[i]); });
}

}  // namespace ulpscope::test
