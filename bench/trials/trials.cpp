// What trials of one layer each take, with the activations of earlier trials and without:
//   trials_bench MODEL INPUTS.json COUNT [SEED] [backend=NAME]
// INPUTS as `--save-inputs` writes them, a sample each. Everything in float16, then COUNT times one layer, chosen by
// chance, in float32, in turns with and without sharing; one line with the mean times of a trial over all samples,
// planning included, and of a plan that is run again.
#include "precision/trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <random>
#include <string>

#include "compare/json_files.h"
#include "onnx/import.h"
#include "ops/registry.h"
#include "ulpscope/log.h"

namespace {

using namespace ulpscope;

double run_ms(Trials& trials, const Assignment& assignment, bool share, std::vector<TensorMap>& outputs) {
  const auto begin = std::chrono::steady_clock::now();
  outputs = trials.run(assignment, share);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

bool same_bits(const std::vector<TensorMap>& a, const std::vector<TensorMap>& b) {
  for (std::size_t s = 0; s < a.size(); ++s)
    for (std::size_t o = 0; o < a[s].size(); ++o)
      if (std::memcmp(a[s][o].tensor.raw(), b[s][o].tensor.raw(), a[s][o].tensor.bytes()) != 0) return false;
  return true;
}

void compare(int argc, char** argv) {
  const int count = std::stoi(argv[3]);
  BuildOptions options;
  options.enabled.set(Precision::kFP16);
  options.assume_lowest = true;
  options.constraints = ConstraintMode::kObey;
  std::uint32_t seed = 1;
  for (int i = 4; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("backend="))
      options.backend = word.substr(std::strlen("backend="));
    else
      seed = static_cast<std::uint32_t>(std::stoul(word));
  }
  const std::shared_ptr<const Network> network = import_onnx(argv[1], op_registry());
  const std::vector<TensorMap> samples = load_inputs(argv[2]);
  Trials sharing(network, options, samples), alone(network, options, samples, sharing.weights());
  std::vector<LayerId> layers;
  for (const LayerId id : network->layers.ids())
    if (network->layer(id).op->precision == PrecisionRule::kCompute) layers.push_back(id);
  std::mt19937 random(seed);
  std::vector<TensorMap> outputs, expected;
  double with = 0, without = 0, again = 0;
  bool same = true;
  // Tactics are measured and weights prepared before anything counts, in both precisions.
  for (const Assignment& known : {alone.full_precision(), alone.assign(Requests(network->layers.size()))}) {
    alone.run(known, false);
    sharing.run(known);
    again = run_ms(alone, known, false, outputs);
  }
  for (int trial = 0; trial < count; ++trial) {
    Requests requested(network->layers.size());
    requested[layers[random() % layers.size()]] = DataType::kFloat32;
    const Assignment assignment = alone.assign(requested);
    alone.run(assignment, false);  // Its kernels are compiled.
    with += run_ms(sharing, assignment, true, outputs) / count;
    without += run_ms(alone, assignment, false, expected) / count;
    same &= same_bits(outputs, expected);
  }
  fmt::print(
      "{}: {} trials of {} samples, seed {}: {:.2f} ms each with shared activations, {:.2f} without, ratio {:.2f}; "
      "all in float16 {:.2f}; same bits: {}\n",
      argv[1], count, samples.size(), seed, with, without, with / without, again, same ? "yes" : "NO");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: trials_bench MODEL INPUTS.json COUNT [SEED] [backend=NAME]\n");
    return 2;
  }
  try {
    set_log_sink([](LogLevel, std::string_view) {});
    compare(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
