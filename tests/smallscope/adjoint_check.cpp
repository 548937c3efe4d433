// The adjoint that a search takes its predictions from, against finite differences, for networks that come in on stdin.
//
//   one network:  [u32 bytes of the model] [the model, in float64] [u32 inputs] and per input [u32 rank] [i64
//   dimensions]
//                 [f64 elements]; as the machine has them
//   the answer:   one line: right | undefined | no derivative | refused: MESSAGE | wrong: MESSAGE
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "graph/adjoint.h"
#include "graph/evaluate.h"
#include "graph/inference.h"
#include "onnx/import.h"
#include "ops/registry.h"
#include "ulpscope/error.h"

namespace {

using namespace ulpscope;

template <typename T>
bool read(T* values, std::size_t count) {
  return static_cast<bool>(
      std::cin.read(reinterpret_cast<char*>(values), static_cast<std::streamsize>(count * sizeof(T))));
}

Tensor read_tensor() {
  std::uint32_t rank = 0;
  read(&rank, 1);
  Shape shape(rank);
  read(shape.data(), rank);
  Tensor result(DataType::kFloat64, shape);
  read(result.data<double>(), static_cast<std::size_t>(result.size()));
  return result;
}

Tensor random_like(const Tensor& tensor, std::mt19937& generator) {
  Tensor result(DataType::kFloat64, tensor.shape());
  std::normal_distribution<double> distribution;
  for (std::int64_t i = 0; i < result.size(); ++i) result.data<double>()[i] = distribution(generator);
  return result;
}

double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) sum += a.data<double>()[i] * b.data<double>()[i];
  return sum;
}

/// A network and a point; which directions its inputs can move in.
class Check {
 public:
  Check(const Network& network, std::vector<Tensor> inputs) : network_(network), inputs_(std::move(inputs)) {}

  std::string run() {
    std::vector<Shape> shapes;
    for (const Tensor& input : inputs_) shapes.push_back(input.shape());
    const InferredNetwork inferred = infer(network_, shapes);
    const AdjointNetwork adjoint = make_adjoint(network_, inferred, op_registry(), network_.inputs, network_.outputs,
                                                {.type = DataType::kFloat64});
    const std::map<TensorId, Tensor> values = all_values();
    std::vector<Tensor> given;
    for (TensorId id : adjoint.forward) given.push_back(values.at(id));
    for (std::size_t o = 0; o < network_.outputs.size(); ++o) {
      const Tensor& output = values.at(network_.outputs[o]);
      seeds_.push_back(adjoint.seeds[o] == kNone ? Tensor() : random_like(output, generator_));
      if (seeds_.back()) given.push_back(seeds_.back());
    }
    const std::vector<Tensor> gradients = evaluate(adjoint.network, given);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const bool whole = !adjoint.incomplete[i];
      whole_.push_back(whole);
      gradients_.push_back(whole && adjoint.output_of[i] != kNone
                               ? gradients[static_cast<std::size_t>(adjoint.output_of[i])]
                               : Tensor());
      if (gradients_.back() && gradients_.back().shape() != inputs_[i].shape()) return "wrong: a gradient's shape";
    }
    if (std::ranges::none_of(whole_, [](bool whole) { return whole; })) return "no derivative";
    return compare();
  }

 private:
  std::map<TensorId, Tensor> all_values() const {
    Network network = network_;
    std::map<TensorId, Tensor> values;
    for (std::size_t i = 0; i < inputs_.size(); ++i) values[network.inputs[i]] = inputs_[i];
    network.outputs.clear();
    for (const Layer& layer : network.layers)
      for (TensorId id : layer.outputs)
        if (id != kNone) network.outputs.push_back(id);
    const std::vector<Tensor> outputs = evaluate(network, inputs_);
    for (std::size_t i = 0; i < outputs.size(); ++i) values[network.outputs[i]] = outputs[i];
    return values;
  }

  double projected(const std::vector<Tensor>& directions, double step) const {
    std::vector<Tensor> moved;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      moved.push_back(inputs_[i].clone());
      for (std::int64_t k = 0; whole_[i] && k < moved[i].size(); ++k)
        moved[i].data<double>()[k] += step * directions[i].data<double>()[k];
    }
    const std::vector<Tensor> outputs = evaluate(network_, moved);
    double sum = 0;
    for (std::size_t o = 0; o < outputs.size(); ++o)
      if (seeds_[o]) sum += dot(outputs[o], seeds_[o]);
    return sum;
  }

  /// In random directions. Where two steps say different things, the function has a corner there: the next one.
  std::string compare() {
    for (int attempt = 0; attempt < 6; ++attempt) {
      std::vector<Tensor> directions;
      for (const Tensor& input : inputs_) directions.push_back(random_like(input, generator_));
      double expected = 0, size = 1e-3;
      for (std::size_t i = 0; i < inputs_.size(); ++i) {
        if (!gradients_[i]) continue;
        expected += dot(gradients_[i], directions[i]);
        for (std::int64_t k = 0; k < gradients_[i].size(); ++k)
          size += std::abs(gradients_[i].data<double>()[k] * directions[i].data<double>()[k]);
      }
      const double wide = difference(directions, 4e-6), narrow = difference(directions, 1e-6);
      if (!std::isfinite(expected) || !std::isfinite(wide) || !std::isfinite(narrow)) return "undefined";
      const double allowed = 1e-5 * (size + std::abs(narrow)) + rounding(directions, 1e-6);
      if (std::abs(wide - narrow) > allowed) continue;
      if (std::abs(expected - narrow) <= 10 * allowed) return "right";
      return "wrong: " + std::to_string(expected) + " along a direction, by finite differences " +
             std::to_string(narrow);
    }
    return "undefined";
  }

  double difference(const std::vector<Tensor>& directions, double step) const {
    return (projected(directions, step) - projected(directions, -step)) / (2 * step);
  }

  /// What rounding in float64 may do to a difference quotient.
  double rounding(const std::vector<Tensor>& directions, double step) const {
    return 16 * std::numeric_limits<double>::epsilon() * std::abs(projected(directions, step)) / step;
  }

  const Network& network_;
  const std::vector<Tensor> inputs_;
  std::mt19937 generator_{27};
  std::vector<Tensor> seeds_, gradients_;
  std::vector<bool> whole_;
};

std::string answer(std::span<const std::byte> model, std::vector<Tensor> inputs) {
  try {
    const auto network = import_onnx(model, "model.onnx", op_registry());
    return Check(*network, std::move(inputs)).run();
  } catch (const std::exception& error) {
    std::string text = error.what();
    std::ranges::replace(text, '\n', ' ');
    return "refused: " + text;
  }
}

}  // namespace

int main() {
  std::uint32_t size = 0;
  while (read(&size, 1)) {
    std::vector<std::byte> model(size);
    read(model.data(), size);
    std::uint32_t count = 0;
    read(&count, 1);
    std::vector<Tensor> inputs;
    for (std::uint32_t i = 0; i < count; ++i) inputs.push_back(read_tensor());
    if (!std::cin) return 2;
    std::cout << answer(model, std::move(inputs)) << std::endl;
  }
}
