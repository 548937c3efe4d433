// What a network takes on the GPU: gpu_latency MODEL PRECISION FUSION [flash] [steps] [errors] [NAME=DIMxDIM...]
// `flash`: with --attention flash. Prints microseconds of one run of the device for the shapes of the file (dynamic
// dimensions: 1, or as given), with `steps` what every step takes by itself, with `errors` the relative L2 error of
// every output, as computed and as the CPU predicts it, on four random inputs (seed 1).
//   gpu_latency MODEL assignments COUNT [SEED] [shares] [groups] [target=NAME] [backend=NAME] [NAME=DIMxDIM...]
// Estimated against measured times where half of the layers, chosen by chance, run in float16 and the others in
// float32; with `shares` a share that is chosen by chance, too. One line per assignment, then the rank correlation, the
// ratios, and what planning an assignment takes whose kernels, weights and tactics are known: each is planned again.
// Estimates are those of the target (h200, or a file of `ulpscope target measure`), casts included; on the backend cpu
// the measured times are the sums of the steps'. `groups` names the groups whose estimates are farthest from the sum of
// their steps.
//   gpu_latency MODEL estimates FUSION [target=NAME] [backend=none] [kinds] [rows] [NAME=DIMxDIM...]
// Estimated and measured times of all layers in fp32, in fp16 and in int8 (with made-up scales), each beside fp32: one
// line per precision, "fp16 measured 210.5 estimated 198.1"; "-" where nothing was measured: the CPU takes part, or
// backend=none. With `kinds` also what every kind of kernel takes of the estimate; with `rows` what bench/gpu's
// fit_networks.py reads, the whole and each kind of kernel inside of it, as lines that begin with {.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <random>
#include <span>

#include "backend/backend.h"
#include "engine/assign.h"
#include "engine/cost.h"
#include "engine/group_times.h"
#include "engine/option_names.h"
#include "graph/evaluate.h"
#include "onnx/import.h"
#include "ops/registry.h"
#include "runtime/engine.h"
#include "runtime/executable.h"
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

bool has_word(const char* word, int argc, char** argv) {
  return std::any_of(argv + 4, argv + argc, [&](const char* each) { return std::strcmp(each, word) == 0; });
}

void print_steps(const Network& network, const Plan& plan) {
  std::vector<StepTime> steps = plan.profile({});
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
  constexpr int kSamples = 4;
  options.backend = "cpu";
  const auto predictor = Engine::build(network, options);
  options.enabled = {};
  const auto reference = Engine::build(network, options);
  const std::size_t outputs = engine.outputs().size();
  // Root mean squares over the samples, per output.
  std::vector<double> real(outputs, 0), expected(outputs, 0), distance(outputs, 0);
  std::vector<char> same(outputs, 1);
  std::mt19937 generator(1);
  for (int sample = 0; sample < kSamples; ++sample) {
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < shapes.size(); ++i)
      inputs.push_back(random_input(engine.inputs()[i], shapes[i], generator));
    const std::vector<Tensor> actual = engine.run(inputs), again = engine.run(inputs);
    const std::vector<Tensor> predicted = predictor->run(inputs), exact = reference->run(inputs);
    for (std::size_t o = 0; o < outputs; ++o) {
      const auto add = [](double& sum, double value) { sum += value * value / kSamples; };
      add(real[o], relative_error(actual[o], exact[o]));
      add(expected[o], relative_error(predicted[o], exact[o]));
      add(distance[o], relative_error(actual[o], predicted[o]));
      if (std::memcmp(actual[o].raw(), again[o].raw(), actual[o].bytes()) != 0) same[o] = 0;
    }
  }
  for (std::size_t o = 0; o < outputs; ++o)
    fmt::print("output {}: error {:.6g}, predicted {:.6g}, ratio {:.4f}; distance {:.6g}; same bits again: {}\n",
               engine.outputs()[o].name, std::sqrt(real[o]), std::sqrt(expected[o]), std::sqrt(real[o] / expected[o]),
               std::sqrt(distance[o]), same[o] != 0 ? "yes" : "NO");
}

using NamedShapes = std::map<std::string, Shape>;

NamedShapes named_shapes(int argc, char** argv) {
  NamedShapes shapes;
  for (int i = 4; i < argc; ++i) {
    const std::string word = argv[i];
    if (const auto at = word.find('=');
        at != std::string::npos && !word.starts_with("target=") && !word.starts_with("backend="))
      shapes[word.substr(0, at)] = shape_of(word.substr(at + 1));
  }
  return shapes;
}

std::vector<Shape> input_shapes(const Engine& engine, const NamedShapes& named) {
  std::vector<Shape> inputs;
  for (const Binding& binding : engine.inputs()) {
    const auto given = named.find(binding.name);
    Shape shape = given != named.end() ? given->second : binding.shape.value();
    std::ranges::replace(shape, -1, 1);
    inputs.push_back(std::move(shape));
  }
  return inputs;
}

BuildOptions cuda_options() {
  BuildOptions options;
  options.backend = "cuda";
  options.assume_lowest = true;
  return options;
}

void measure(int argc, char** argv) {
  BuildOptions options = cuda_options();
  options.fusion = fusion_from_name(argv[3], "latency");
  if (std::strcmp(argv[2], "fp32") != 0) options.enabled.set(precision_from_name(argv[2], "latency", is_lower));
  if (has_word("flash", argc, argv)) options.attention = AttentionRule::kFlash;
  auto begin = std::chrono::steady_clock::now();
  const std::shared_ptr<const Network> network = import_onnx(argv[1], op_registry());
  const auto engine = Engine::build(network, options);
  const std::vector<Shape> inputs = input_shapes(*engine, named_shapes(argc, argv));
  const double read = seconds_since(begin);
  begin = std::chrono::steady_clock::now();
  const std::optional<double> first = engine->device_microseconds(inputs);
  const double planned = seconds_since(begin);
  fmt::print("{} {} {}: {} us; read and assigned {:.2f} s, planned {:.2f} s\n", argv[1], argv[2], argv[3],
             first ? fmt::format("{:.1f}", *first) : "no time, the CPU takes part:", read, planned);
  if (has_word("steps", argc, argv)) print_steps(*network, *engine->plan(inputs));
  if (has_word("errors", argc, argv)) print_errors(network, options, inputs, *engine);
}

/// The place of every value among all, equal ones sharing the mean of their places.
std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<double> places;
  for (const double value : values) {
    const auto below = std::ranges::count_if(values, [&](double other) { return other < value; });
    places.push_back(static_cast<double>(below) + 0.5 * static_cast<double>(std::ranges::count(values, value) - 1));
  }
  return places;
}

/// Spearman's: the correlation of ranks. 0 where all of one side are equal.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = ranks(a), y = ranks(b);
  const double mean = 0.5 * static_cast<double>(x.size() - 1);
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

/// This share of the layers that compute asks for float32; the others take the lowest, float16.
void choose_precisions(Network& network, double share, std::mt19937& random) {
  std::vector<LayerId> computing;
  for (const LayerId id : network.layers.ids())
    if (!network.layer(id).op->moves_values) computing.push_back(id);
  std::ranges::shuffle(computing, random);
  for (std::size_t i = 0; i < computing.size(); ++i)
    network.layer(computing[i]).precision =
        static_cast<double>(i) < std::floor(share * static_cast<double>(computing.size())) ? DataType::kFloat32
                                                                                           : DataType::kFloat16;
}

/// What stands behind `name=` in the words; else `otherwise`.
std::string word_after(const std::string& name, int argc, char** argv, const std::string& otherwise) {
  for (int i = 4; i < argc; ++i)
    if (const std::string word = argv[i]; word.starts_with(name + "=")) return word.substr(name.size() + 1);
  return otherwise;
}

std::vector<Tensor> random_inputs(const Engine& engine, const std::vector<Shape>& shapes) {
  std::mt19937 random(1);
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < shapes.size(); ++i) inputs.push_back(random_input(engine.inputs()[i], shapes[i], random));
  return inputs;
}

/// By the clock of the device; on the CPU, of the steps.
std::optional<double> measured_us(Engine& engine, const std::vector<Shape>& shapes, bool on_cpu) {
  if (!on_cpu) return engine.device_microseconds(shapes);
  double sum = 0;
  for (const Engine::StepProfile& step : engine.profile(random_inputs(engine, shapes))) sum += step.microseconds;
  return sum;
}

/// Per group, its share of what the steps take by themselves, which is more than in one graph.
std::vector<double> group_shares(const Plan& plan) {
  std::vector<double> shares(plan.grouping().groups.size(), 0);
  double all = 0;
  for (const StepTime& step : plan.profile({})) {
    all += step.microseconds;
    if (step.layer == kNone) continue;
    if (const int group = plan.grouping().group_of[step.layer]; group >= 0) shares[group] += step.microseconds;
  }
  for (double& share : shares) share /= all;
  return shares;
}

void print_groups(Engine& engine, const std::vector<Shape>& shapes, const BuildOptions& options, double whole_us) {
  constexpr std::size_t kMost = 12;
  const auto plan = engine.plan(shapes);
  const Specialization& spec = plan->specialization();
  const Assignment assignment = assign_precisions(spec, options);
  const Grouping& grouping = plan->grouping();
  const std::vector<double> shares = group_shares(*plan);
  const std::vector<double> estimates = group_times_us(spec, grouping, assignment, find_target(options.target));
  std::multimap<double, std::string, std::greater<>> by_distance;
  for (std::size_t g = 0; g < shares.size(); ++g) {
    const double measured = shares[g] * whole_us;
    by_distance.emplace(std::abs(measured - estimates[g]),
                        fmt::format("{:9.1f} {:9.1f}  {} {}", estimates[g], measured,
                                    group_precision(spec, grouping.groups[g], assignment),
                                    kernel_text(spec, grouping.groups[g]).substr(0, 200)));
  }
  std::size_t shown = 0;
  for (const auto& [distance, text] : by_distance)
    if (shown++ < kMost) fmt::print("     {}\n", text);
}

/// Of a plan when all that it needs is known: the second one of an executable, for the constants that are its own. What
/// its first run takes longer than a later one counts, too.
double planning_ms(const std::shared_ptr<const Specialization>& spec, const Assignment& assignment,
                   const BuildOptions& options, const WeightCache& weights) {
  std::vector<Tensor> inputs;  // Zeros, which are in range wherever they are indices.
  for (std::size_t i = 0; i < spec->input_shapes.size(); ++i) {
    Tensor zeros(physical_type(spec->type(spec->network->inputs[i])), spec->input_shapes[i]);
    std::memset(zeros.raw(), 0, zeros.bytes());
    inputs.push_back(std::move(zeros));
  }
  Executable executable(*spec->network, assignment, options, spec, weights);
  executable.plan_for(spec->input_shapes)->run(inputs);
  const auto begin = std::chrono::steady_clock::now();
  const auto plan = executable.plan_for(spec->input_shapes, assignment, options.fusion);
  plan->run(inputs);
  const double with_first_run = seconds_since(begin);
  plan->run(inputs);  // Records.
  const auto again = std::chrono::steady_clock::now();
  plan->run(inputs);
  return 1e3 * (with_first_run - seconds_since(again));
}

void compare_assignments(int argc, char** argv) {
  const int count = std::stoi(argv[3]);
  const bool has_seed = argc > 4 && std::isdigit(static_cast<unsigned char>(argv[4][0])) != 0;
  const auto seed = has_seed ? static_cast<std::uint32_t>(std::stoul(argv[4])) : std::random_device{}();
  fmt::print("{}: {} assignments, seed {}\n", argv[1], count, seed);
  std::mt19937 random(seed);
  BuildOptions options = cuda_options();
  options.enabled.set(Precision::kFP16);
  options.constraints = ConstraintMode::kPrefer;
  options.backend = word_after("backend", argc, argv, options.backend);
  options.target = word_after("target", argc, argv, options.target);
  const NamedShapes named = named_shapes(argc, argv);
  for (const auto& [name, shape] : named) options.typical_shapes[name] = shape;
  const std::shared_ptr<Network> network = import_onnx(argv[1], op_registry());
  const WeightCache weights;
  std::vector<double> estimated, measured, ratios, planning;
  for (int i = 0; i < count; ++i) {
    const double share = has_word("shares", argc, argv) ? std::uniform_real_distribution<double>()(random) : 0.5;
    choose_precisions(*network, share, random);
    const auto engine = Engine::build(network, options);
    const std::vector<Shape> shapes = input_shapes(*engine, named);
    const std::optional<double> time = measured_us(*engine, shapes, options.backend == "cpu");
    if (!time) throw Error(ErrorCode::kUnsupported, "[latency] the CPU takes part in this network: there is no time");
    const auto spec = specialize(*network, shapes);
    const Assignment assignment = assign_precisions(*spec, options);
    const double sum = TimeModel(*spec, options.fusion, find_target(options.target))(assignment);
    estimated.push_back(sum);
    measured.push_back(*time);
    ratios.push_back(*time / sum);
    planning.push_back(planning_ms(spec, assignment, options, weights));
    fmt::print("{:4} estimated {:9.1f} us, measured {:9.1f} us, ratio {:.3f}\n", i, sum, *time, ratios.back());
    if (has_word("groups", argc, argv) && options.backend != "cpu") print_groups(*engine, shapes, options, *time);
  }
  if (ratios.empty()) return;
  std::ranges::sort(ratios);
  std::ranges::sort(planning);
  fmt::print(
      "rank correlation {:.3f}; measured / estimated: median {:.3f}, {:.3f} to {:.3f}; "
      "planning a known assignment: median {:.2f} ms, {:.2f} to {:.2f}\n",
      rank_correlation(estimated, measured), ratios[ratios.size() / 2], ratios.front(), ratios.back(),
      planning[planning.size() / 2], planning.front(), planning.back());
}

/// By kind of kernel, the largest share first.
void print_kinds(const TimeModel& model, const Assignment& assignment) {
  if (model.target().kernels == nullptr) return;
  std::map<std::string, std::pair<double, int>> sums;
  for (const KernelWork& work : model.kernels(assignment)) {
    auto& [us, count] = sums[fmt::format("{} {}", name_of(work.kind), name_of(work.precision))];
    us += model.target().kernel_us(work);
    ++count;
  }
  for (const auto& [name, sum] : sums) fmt::print("    {:9.1f} us {:4} {}\n", sum.first, sum.second, name);
}

/// Sums of the terms of the kernels, by kind and precision.
using Sums = std::map<std::pair<KernelKind, Precision>, KernelTerms>;

void add(Sums& sums, const KernelWork& work) {
  KernelTerms& terms = sums[{work.kind, work.precision}];
  for (std::size_t i = 0; i < terms.size(); ++i) terms[i] += work.terms[i];
}

std::string json_of(const Sums& sums) {
  std::vector<std::string> kernels;
  for (const auto& [kind, terms] : sums)
    kernels.push_back(
        fmt::format("[\"{}\", \"{}\", {:.5g}]", name_of(kind.first), name_of(kind.second), fmt::join(terms, ", ")));
  return fmt::format("[{}]", fmt::join(kernels, ", "));
}

/// One for the whole and one for each kind of kernel, whose steps are scaled to `whole_us` as in print_groups().
void print_rows(const std::string& name, Engine& engine, const std::vector<Shape>& shapes, const TimeModel& model,
                const Assignment& assignment, double whole_us) {
  Sums whole;
  double uncached_us = 0;
  for (const KernelWork& work : model.kernels(assignment)) {
    add(whole, work);
    uncached_us += model.target().uncached_us(work);
  }
  const double uncached_mb = uncached_us * model.target().bandwidth_gb_per_s / 1e3;
  fmt::print("{{\"of\": \"{}\", \"us\": {:.5g}, \"whole\": true, \"kernels\": {}, \"uncached_mb\": {:.5g}}}\n", name,
             whole_us, json_of(whole), uncached_mb);
  const auto plan = engine.plan(shapes);
  const Specialization& spec = plan->specialization();
  const Grouping& grouping = plan->grouping();
  const std::vector<int> together = count_together(spec, grouping, &assignment);
  const std::vector<double> shares = group_shares(*plan);
  std::map<std::pair<KernelKind, Precision>, std::pair<double, double>> sums;
  for (std::size_t g = 0; g < shares.size(); ++g) {
    const auto work = kernel_work(spec, grouping.groups[g], assignment, together[g]);
    if (!work) continue;
    auto& [share, uncached] = sums[{work->kind, work->precision}];
    share += shares[g];
    uncached += model.target().uncached_us(*work);
  }
  for (const auto& [kind, sum] : sums) {
    const auto [share, uncached] = sum;
    if (share == 0) continue;
    fmt::print("{{\"of\": \"{}\", \"us\": {:.5g}, \"share\": {:.5g}, \"whole_us\": {:.5g}, \"kernels\": {}{}}}\n", name,
               share * whole_us, share, whole_us, json_of({{kind, whole[kind]}}),
               uncached > 0
                   ? fmt::format(", \"uncached_mb\": {:.5g}", uncached * model.target().bandwidth_gb_per_s / 1e3)
                   : "");
  }
}

void compare_uniform(int argc, char** argv) {
  const std::shared_ptr<const Network> network = import_onnx(argv[1], op_registry());
  const bool measures = word_after("backend", argc, argv, "cuda") != "none";
  for (const Precision precision : {Precision::kFP32, Precision::kFP16, Precision::kINT8}) {
    BuildOptions options = cuda_options();
    options.fusion = fusion_from_name(argv[3], "latency");
    options.target = word_after("target", argc, argv, options.target);
    if (!measures) options.backend = "cpu";
    if (precision != Precision::kFP32) options.enabled.set(precision);
    constexpr float kScale = 0.05f;
    for (const TensorInfo& tensor : network->tensors)
      if (is_floating(tensor.type) && precision == Precision::kINT8) options.scales[tensor.name] = kScale;
    const NamedShapes named = named_shapes(argc, argv);
    for (const auto& [name, shape] : named) options.typical_shapes[name] = shape;
    const auto engine = Engine::build(network, options);
    const std::vector<Shape> shapes = input_shapes(*engine, named);
    const auto spec = specialize(*network, shapes);
    const Assignment assignment = assign_precisions(*spec, options);
    const TimeModel model(*spec, options.fusion, find_target(options.target));
    const std::optional<double> time = measures ? engine->device_microseconds(shapes) : std::nullopt;
    fmt::print("{} measured {} estimated {:.1f}\n", name_of(precision), time ? fmt::format("{:.1f}", *time) : "-",
               model(assignment));
    std::fflush(stdout);
    if (has_word("kinds", argc, argv)) print_kinds(model, assignment);
    if (time && has_word("rows", argc, argv))
      print_rows(fmt::format("{} {}", network->name, name_of(precision)), *engine, shapes, model, assignment, *time);
    if (measures && has_word("steps", argc, argv)) print_steps(*network, *engine->plan(shapes));
  }
}

void run(int argc, char** argv) {
  const bool estimates = std::strcmp(argv[2], "estimates") == 0;
  const bool assignments = std::strcmp(argv[2], "assignments") == 0;
  // Assignments by chance ask layers for what they do not have, which warns.
  set_log_sink([least = assignments || estimates ? LogLevel::kError : LogLevel::kWarning](LogLevel level,
                                                                                          std::string_view text) {
    if (level >= least) fmt::print(stderr, "{}\n", text);
  });
  if (estimates) return compare_uniform(argc, argv);
  assignments ? compare_assignments(argc, argv) : measure(argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(
        stderr,
        "usage: gpu_latency MODEL fp32|tf32|fp16|bf16 none|pointwise|full [flash] [steps] [errors] "
        "[NAME=DIMxDIM...]\n"
        "       gpu_latency MODEL assignments COUNT [SEED] [shares] [groups] [target=NAME] [backend=NAME] "
        "[NAME=DIMxDIM...]\n"
        "       gpu_latency MODEL estimates none|pointwise|full [target=NAME] [backend=none] [kinds] [rows] [steps] "
        "[NAME=DIMxDIM...]\n");
    return 2;
  }
  try {
    run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
