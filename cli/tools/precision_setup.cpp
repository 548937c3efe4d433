#include "tools/precision_setup.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "compare/json_files.h"
#include "compare/shape_match.h"
#include "core/messages.h"
#include "core/parallel.h"
#include "precision/criterion.h"
#include "tools/calibrate.h"
#include "tools/golden_judge.h"
#include "tools/network_setup.h"

namespace ulpscope::cli {
namespace {

void check_options(const PrecisionOptions& options) {
  options.model.check_exists();
  if (options.model.type() == ModelType::kEngine)
    throw unsupported(
        "[model] '{}': expected an ONNX model or a network script, got an engine, whose precisions are fixed; try the "
        "model that it was built from",
        *options.model.model);
  options.python.check();
  options.data.warn_of_unused();
  if (options.data.iterations && *options.data.iterations < 1)
    throw invalid_argument("[options] --iterations: expected 1 or more, got {}", *options.data.iterations);
  if (!options.comparison.load_outputs.empty())
    throw invalid_argument("[options] --load-outputs: expected the results to compare with as --golden FILE");
  if (options.config.real_tensorrt())
    throw unsupported(
        "[options] --trt-backend tensorrt: precisions are tried on ulpscope's engine; try --check with a command that "
        "runs TensorRT");
}

}  // namespace

PrecisionSetup make_precision_setup(const PrecisionOptions& options) {
  check_options(options);
  PrecisionSetup setup;
  setup.host = make_script_host(options.onnx, options.python);
  set_num_threads(options.config.num_threads());
  setup.model = load_network(options.network_args(), *setup.host);
  LoadedModel& loaded = ModelAccess::loaded(setup.model);
  BuildOptions& build = loaded.build;
  if (build.strongly_typed)
    throw unsupported(
        "[build] precisions of a strongly typed network are those of the file: there is nothing to try; try without "
        "--strongly-typed");
  if (build.enabled.empty())
    throw invalid_argument(
        "[options] Please enable at least one precision besides float32 (e.g. --int8, --fp16, --tf32)");
  if (options.config.constraints == "none")
    throw invalid_argument(
        "[options] --precision-constraints none: expected obey (the default) or prefer, since marked layers would have "
        "no effect");
  build.constraints = options.config.constraints == "prefer" ? ConstraintMode::kPrefer : ConstraintMode::kObey;
  build.assume_lowest = !options.cost_model;
  if (options.golden) setup.golden = load_golden(*options.golden, *loaded.network, options.needs_golden);
  add_scales(options.network_args(), *setup.host, setup.model);
  setup.network = loaded.network;
  setup.build = loaded.build;
  return setup;
}

std::vector<TensorMap> make_samples(const PrecisionOptions& options, PrecisionSetup& setup, int iterations) {
  const std::vector<InputBinding> bindings = input_bindings(*setup.network);
  std::vector<TensorMap> samples;
  auto shapes = profile_shapes(options.config, options.model);
  if (shapes.empty() && options.data.generates()) shapes = fitting_shapes(*setup.network, options.model);
  for (const TensorMap& loaded : make_inputs(options.model, options.data, *setup.host, bindings, shapes, iterations)) {
    warn_of_kept_defaults(loaded, *setup.network);
    samples.push_back(adapt_inputs(loaded, bindings));
  }
  check_any_inputs(samples.size(), options.data);
  return samples;
}

GoldenResults load_golden(const std::string& path, const Network& network,
                          const std::function<bool(const std::string&)>& needs) {
  log_info("Loading golden results from " + path);
  RunResults results = load_results(path);
  if (results.empty() || results.front().second.empty())
    throw invalid_file(
        "[golden] '{}': expected results of at least one iteration, got none; try saving them with ulpscope run MODEL "
        "--onnxrt --save-outputs {}",
        path, path);
  if (results.size() > 1)
    log_warning("'{}' has the results of {} runners; those of the first ({}) are the golden ones", path, results.size(),
                results.front().first);
  GoldenResults golden;
  golden.runner = results.front().first;
  IterationResult ours;
  ours.runner_name = "the network";
  for (const TensorId id : network.outputs) ours.outputs.push_back({network.tensor(id).name, Tensor{}});
  const auto names = [](const TensorMap& outputs) {
    std::vector<std::string> list;
    for (const NamedTensor& output : outputs) list.push_back(output.name);
    return list;
  };
  std::vector<std::pair<std::string, std::string>> pairs;
  std::vector<std::string> missing;
  const IterationResult& first = results.front().second.front();
  for (std::size_t o = 0; o < ours.outputs.size(); ++o) {
    const std::string& name = ours.outputs[o].name;
    std::optional<std::string> partner;
    if (first.find(name) != nullptr) {
      partner = name;
    } else if (network.outputs.size() == first.outputs.size()) {
      partner = pair_output(ours, o, first);
    }
    if (partner)
      pairs.emplace_back(name, *partner);
    else
      missing.push_back(name);
  }
  if (pairs.empty())
    throw invalid_argument("[golden] '{}': expected the outputs {} of the network, got {}; try results of this model",
                           path, python_list(names(ours.outputs)), python_list(names(first.outputs)));
  std::vector<std::string> needed;
  if (needs) std::ranges::copy_if(missing, std::back_inserter(needed), needs);
  if (!needed.empty())
    throw invalid_argument(
        "[golden] '{}': expected all outputs of the network that are judged, got {} without {}; try results of this "
        "model (`ulpscope run MODEL --onnxrt --save-outputs {}`), or --metric with a --threshold for each output that "
        "is there (NAME:X)",
        path, python_list(names(first.outputs)), python_list(needed), path);
  if (!missing.empty()) log_warning("'{}' lacks the outputs {}: they are not judged", path, python_list(missing));
  for (std::size_t i = 0; i < results.front().second.size(); ++i) {
    const IterationResult& iteration = results.front().second[i];
    TensorMap& outputs = golden.iterations.emplace_back();
    for (const auto& [name, partner] : pairs) {
      const Tensor* tensor = iteration.find(partner);
      if (tensor == nullptr)
        throw invalid_file(
            "[golden] '{}': iteration {} lacks the output '{}', which the first iteration has; try saving the results "
            "again",
            path, i, partner);
      outputs.push_back({name, *tensor});
    }
  }
  return golden;
}

void match_counts(std::vector<TensorMap>& samples, GoldenResults& golden) {
  const std::size_t count = std::min(samples.size(), golden.iterations.size());
  if (samples.size() != golden.iterations.size())
    log_warning("There are {} iteration(s) of inputs and {} of golden results: the first {} of both count",
                samples.size(), golden.iterations.size(), count);
  samples.resize(count);
  golden.iterations.resize(count);
}

void check_golden_results(Trials& trials, GoldenResults& golden, const PrecisionOptions& options,
                          std::span<const CompareFunction> functions) {
  const std::vector<TensorMap> exact = trials.run(trials.full_precision());
  const CompareOptions tolerances = options.comparison.options();
  for (std::size_t i = 0; i < golden.iterations.size(); ++i)
    for (NamedTensor& output : golden.iterations[i])
      for (const NamedTensor& own : exact[i]) {
        if (own.name != output.name) continue;
        if (options.comparison.no_shape_check) output.tensor = match_shape(output.tensor, own.tensor.shape());
        if (output.tensor.shape() != own.tensor.shape())
          throw invalid_argument(
              "[golden] output '{}', iteration {}: expected the shape {}, got {}; try results of this model with these "
              "inputs, or --no-shape-check",
              own.name, i, to_string(own.tensor.shape()), to_string(output.tensor.shape()));
      }
  // A script may judge what it likes.
  if (!options.comparison.script) {
    check_golden_of(golden.iterations, *make_tolerance_criterion(tolerances), tolerances.infinities_compare_equal);
  }
  const auto required = compare_with_golden(functions, options.comparison, golden, exact, false);
  if (all_passed(required)) return;
  std::vector<std::string> lines;
  for (const RequiredTolerances& each : required)
    if (!each.passed) lines.push_back(describe(each));
  log_warning(
      "Even with every layer in float32 the outputs do not match the golden results; were these made from other inputs "
      "(--load-inputs, --seed, --val-range), or are the tolerances too small?\n{}",
      fmt::join(lines, "\n"));
}

}  // namespace ulpscope::cli
