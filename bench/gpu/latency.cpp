// What a network takes on the GPU: latency MODEL PRECISION FUSION [steps] [errors] [NAME=DIMxDIM...]
// Prints microseconds of one run of the device for the shapes of the file (dynamic dimensions: 1, or as given), with
// `steps` what every step takes by itself, with `errors` the relative L2 error of the first output, as computed and as
// the CPU predicts it, on random inputs (seed 1).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <span>

#include "backend/backend.h"
#include "engine/option_names.h"
#include "onnx/import.h"
#include "ops/registry.h"
#include "runtime/engine.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace {

using namespace ulpscope;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Shape shape_of(const std::string& text) {
  Shape shape;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('x', at), text.size());
    shape.push_back(std::stoll(text.substr(at, end - at)));
    at = end + 1;
  }
  return shape;
}

void print_steps(const Network& network, const Plan& plan) {
  std::vector<StepTime> steps = plan.step_times();
  double sum = 0;
  for (const StepTime& step : steps) sum += step.microseconds;
  fmt::print("{} steps, {:.1f} us one by one\n", steps.size(), sum);
  for (const StepTime& step : steps)
    fmt::print("{:9.2f}  {:40}  {}\n", step.microseconds, step.layer == kNone ? "-" : network.layer(step.layer).name,
               step.what);
}

/// Numbers from a normal distribution; integers from 0 to 99.
Tensor random_input(const Binding& binding, const Shape& shape, std::mt19937& generator) {
  Tensor result(DataType::kFloat32, shape);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> integers(0, 99);
  for (float& value : std::span(result.data<float>(), static_cast<std::size_t>(result.size())))
    value = is_floating(binding.type) ? normal(generator) : static_cast<float>(integers(generator));
  if (binding.type == DataType::kBool)
    for (float& value : std::span(result.data<float>(), static_cast<std::size_t>(result.size()))) value = 1;
  return result.cast(binding.type);
}

double relative_error(const Tensor& actual, const Tensor& exact) {
  const Tensor a = actual.cast(DataType::kFloat64), b = exact.cast(DataType::kFloat64);
  double difference = 0, norm = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double d = a.data<double>()[i] - b.data<double>()[i];
    difference += d * d;
    norm += b.data<double>()[i] * b.data<double>()[i];
  }
  return std::sqrt(difference / norm);
}

void print_errors(const std::shared_ptr<const Network>& network, BuildOptions options, const std::vector<Shape>& shapes,
                  Engine& engine) {
  std::mt19937 generator(1);
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    inputs.push_back(random_input(engine.inputs()[i], shapes[i], generator));
  const std::vector<Tensor> actual = engine.run(inputs), again = engine.run(inputs);
  options.backend = "cpu";
  const std::vector<Tensor> predicted = Engine::build(network, options)->run(inputs);
  options.tf32 = options.fp16 = options.bf16 = false;
  const std::vector<Tensor> exact = Engine::build(network, options)->run(inputs);
  for (std::size_t o = 0; o < exact.size(); ++o) {
    const double real = relative_error(actual[o], exact[o]), expected = relative_error(predicted[o], exact[o]);
    const bool same = std::memcmp(actual[o].raw(), again[o].raw(), actual[o].bytes()) == 0;
    fmt::print("output {}: error {:.6g}, predicted {:.6g}, ratio {:.4f}; distance {:.6g}; same bits again: {}\n",
               engine.outputs()[o].name, real, expected, real / expected, relative_error(actual[o], predicted[o]),
               same ? "yes" : "NO");
  }
}

int run(int argc, char** argv) {
  std::map<std::string, Shape> shapes;
  bool steps = false, errors = false;
  for (int i = 4; i < argc; ++i) {
    const std::string word = argv[i];
    if (const auto at = word.find('='); at != std::string::npos)
      shapes[word.substr(0, at)] = shape_of(word.substr(at + 1));
    else if (word == "errors")
      errors = true;
    else
      steps |= word == "steps";
  }
  set_log_sink([](LogLevel level, std::string_view text) {
    if (level >= LogLevel::kWarning) fmt::print(stderr, "{}\n", text);
  });
  BuildOptions options;
  options.backend = "cuda";
  options.assume_lowest = true;
  options.fusion = fusion_from_name(argv[3], "latency");
  if (std::strcmp(argv[2], "fp32") != 0) enable_precision(options, argv[2], "latency");
  auto begin = std::chrono::steady_clock::now();
  const std::shared_ptr<const Network> network = import_onnx(argv[1], op_registry());
  const auto engine = Engine::build(network, options);
  std::vector<Shape> inputs;
  for (const Binding& binding : engine->inputs()) {
    Shape shape = shapes.contains(binding.name) ? shapes[binding.name] : binding.shape;
    std::ranges::replace(shape, -1, 1);
    inputs.push_back(std::move(shape));
  }
  const double read = seconds_since(begin);
  begin = std::chrono::steady_clock::now();
  const std::optional<double> first = engine->device_microseconds(inputs);
  const double planned = seconds_since(begin);
  fmt::print("{} {} {}: {} us; read and assigned {:.2f} s, planned {:.2f} s\n", argv[1], argv[2], argv[3],
             first ? fmt::format("{:.1f}", *first) : "no time, the CPU takes part:", read, planned);
  if (steps) print_steps(*network, *engine->plan(inputs));
  if (errors) print_errors(network, options, inputs, *engine);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr,
               "usage: latency MODEL fp32|tf32|fp16|bf16 none|pointwise|full [steps] [errors] [NAME=DIMxDIM...]\n");
    return 2;
  }
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
