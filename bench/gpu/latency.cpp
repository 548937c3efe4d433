// What a network takes on the GPU: latency MODEL PRECISION FUSION [steps] [NAME=DIMxDIM...]
// Prints microseconds of one run of the device for the shapes of the file (dynamic dimensions: 1, or as given), and
// with `steps` what every step takes by itself.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>

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

int run(int argc, char** argv) {
  std::map<std::string, Shape> shapes;
  bool steps = false;
  for (int i = 4; i < argc; ++i) {
    const std::string word = argv[i];
    if (const auto at = word.find('='); at != std::string::npos)
      shapes[word.substr(0, at)] = shape_of(word.substr(at + 1));
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
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: latency MODEL fp32|tf32|fp16|bf16 none|pointwise|full [steps] [NAME=DIMxDIM...]\n");
    return 2;
  }
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
