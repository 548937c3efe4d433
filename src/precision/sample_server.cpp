#include "precision/sample_server.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "core/instruction_set.h"
#include "core/messages.h"
#include "engine/assign.h"
#include "ops/registry.h"
#include "precision/criterion_options.h"
#include "precision/fingerprint.h"
#include "precision/repair.h"
#include "precision/sample_messages.h"
#include "runtime/plan_file.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

std::vector<std::string> output_names(const Network& network) {
  std::vector<std::string> names;
  for (const TensorId id : network.outputs) names.push_back(network.tensor(id).name);
  return names;
}

std::string key_of(const Tensor& bytes) { return {static_cast<const char*>(bytes.raw()), bytes.bytes()}; }

Value values_of(std::span<const TensorMap> list) {
  Value::Array result;
  for (const TensorMap& each : list) result.push_back(value_of(each));
  return result;
}

std::vector<LayerId> layers_from(const Value& value) {
  std::vector<LayerId> result;
  for (const std::int32_t number : value.tensor().values<std::int32_t>())
    result.push_back(LayerId(static_cast<std::size_t>(number)));
  return result;
}

}  // namespace

namespace {

TensorMap named_tensors(const std::map<std::string, Tensor>& tensors) {
  TensorMap result;
  for (const auto& [name, tensor] : tensors) result.push_back({name, tensor});
  return result;
}

}  // namespace

SampleSetup make_sample_setup(const SearchData& data, const SearchTask& task, const CriterionOptions& options,
                              const Criterion& criterion, const std::filesystem::path& file) {
  BuildOptions build = task.build;
  build.constraints = ConstraintMode::kObey;
  std::vector<Shape> shapes;
  for (const NamedTensor& each : data.samples.front()) shapes.push_back(each.tensor.shape());
  const Requests none(data.network->num_all_layers());
  write_plan_file(file, *data.network, assign_precisions(*specialize(*data.network, shapes), BuildOptions{}, &none),
                  build);
  std::vector<std::string> on_request;
  for (const Precision p : build.on_request.members()) on_request.emplace_back(name_of(p));
  SampleSetup setup;
  setup.judges = options.metric_script.empty() && !options.metric_function;
  std::vector<TensorMap> samples = data.samples;
  samples.insert(samples.end(), data.held_out.begin(), data.held_out.end());
  Value golden;
  if (!data.golden.empty()) {
    std::vector<TensorMap> all = data.golden;
    // Those of held-out samples may be missing: then they are the network's own.
    all.insert(all.end(), data.held_out_golden.begin(), data.held_out_golden.end());
    golden = values_of(all);
  }
  setup.bytes = to_bytes(Value::Map{
      {"network", hash_of_network(*data.network)},
      {"backend", build.backend},
      {"on_request", Value::of_strings(on_request)},
      {"scales", value_of(build.scales)},
      {"weight_scales", static_cast<int>(build.scale_choice.weights)},
      {"mx_scale_rule", static_cast<int>(build.scale_choice.mx)},
      {"mean_squares", value_of(named_tensors(build.mean_squares))},
      {"memory_limit", static_cast<std::int64_t>(task.memory_limit)},
      {"samples", values_of(samples)},
      {"golden", std::move(golden)},
      {"prediction", prediction_value(criterion, output_names(*data.network))},
      {"criterion", setup.judges ? Value::of_strings(criterion_words(options)) : Value()},
  });
  return setup;
}

ProcessIdentity process_identity() {
  std::vector<std::string> words;
#if defined(__x86_64__)
  words.emplace_back("x86-64");
  __builtin_cpu_init();
  const auto add = [&](bool has, const char* name) {
    if (has) words.emplace_back(name);
  };
  add(__builtin_cpu_supports("avx"), "avx");
  add(__builtin_cpu_supports("avx2"), "avx2");
  add(__builtin_cpu_supports("fma"), "fma");
  add(__builtin_cpu_supports("avx512f"), "avx512f");
  add(__builtin_cpu_supports("avx512bw"), "avx512bw");
  add(__builtin_cpu_supports("avx512vl"), "avx512vl");
  add(__builtin_cpu_supports("avx512vnni"), "avx512vnni");
  add(__builtin_cpu_supports("avx512bf16"), "avx512bf16");
  add(has_avx_vnni(), "avxvnni");
#elif defined(__aarch64__)
  words.emplace_back("aarch64");
#endif
  for (const char* name : {"ULPSCOPE_ISA", "ONEDNN_MAX_CPU_ISA"})
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0')
      words.push_back(fmt::format("{}={}", name, value));
  return {ULPSCOPE_VERSION, fmt::format("{}", fmt::join(words, " "))};
}

SampleServer::SampleServer(const std::filesystem::path& network, const Tensor& setup, int threads)
    : host_(ScriptHost::Callbacks{}) {
  PlanFile plan = read_plan_file(network, op_registry());
  const Value told = from_bytes(setup);
  if (const std::string hash = hash_of_network(*plan.network); hash != told["network"].text())
    throw invalid_file(
        "[workers] '{}': expected the network with the hash {}, got one with {}; try another folder for the files of "
        "workers",
        network.string(), told["network"].text(), hash);
  network_ = plan.network;
  build_ = plan.options;
  build_.backend = told["backend"].text();
  for (const std::string& name : told["on_request"].strings())
    if (const auto precision = precision_named(name)) build_.on_request.set(*precision);
  build_.scales = scales_from(told["scales"]);
  build_.scale_choice = {static_cast<WeightScales>(told["weight_scales"].integer()),
                         static_cast<MxScaleRule>(told["mx_scale_rule"].integer())};
  for (auto& [name, squares] : tensors_from(told["mean_squares"])) build_.mean_squares.emplace(name, squares);
  build_.threads = threads;
  memory_limit_ = static_cast<std::size_t>(told["memory_limit"].integer());
  for (const Value& each : told["samples"].array()) samples_.push_back(tensors_from(each));
  if (!told["golden"].is_null())
    for (const Value& each : told["golden"].array()) golden_.emplace(golden_.size(), tensors_from(each));
  prediction_ = criterion_from(told["prediction"]);
  if (!told["criterion"].is_null()) {
    const auto options = read_criterion_words(told["criterion"].strings());
    if (!options) throw Error(ErrorCode::kScript, "[workers] expected a criterion that this version knows");
    judge_ = make_criterion(*options, host_, output_names(*network_));
  }
  states_.push_back(std::make_unique<State>());
  base().key = key_of(to_bytes(Value::Array{}));
  base().trials = std::make_unique<Trials>(network_, build_, samples_);
  base().trials->set_memory_limit(memory_limit_);
  exact_ = base().trials->full_precision();
}

SampleServer::~SampleServer() = default;

SampleServer::State& SampleServer::state_of(const Tensor& repairs) {
  const std::string key = key_of(repairs);
  const auto found = std::ranges::find(states_, key, &State::key);
  if (found != states_.end()) return **found;
  auto network = std::make_shared<Network>(*network_);
  BuildOptions build = build_;
  const Value steps = from_bytes(repairs);
  for (const Value& step : steps.array()) apply_repairs(*network, build.scales, repairs_from(step));
  auto state = std::make_unique<State>();
  state->key = key;
  state->trials = std::make_unique<Trials>(std::move(network), build, samples_, base().trials->weights());
  state->trials->set_memory_limit(memory_limit_);
  states_.resize(1);
  states_.push_back(std::move(state));
  return *states_.back();
}

const TensorMap& SampleServer::golden(std::size_t sample) {
  const auto found = golden_.find(sample);
  if (found != golden_.end()) return found->second;
  return golden_.emplace(sample, std::move(base().trials->run(*exact_, sample, 1, false).front())).first->second;
}

Value SampleServer::effects(State& state, const Value& task, const Assignment& low, std::size_t sample) {
  const TensorMap& exact = golden(sample);
  std::string wanted =
      key_of(to_bytes(Value::Array{task["assignment"], task["layers"], task["projections"], task["seed"]}));
  if (state.predictor == nullptr || state.predicted != wanted) {
    PredictorOptions options;
    options.projections = static_cast<int>(task["projections"].integer());
    options.seed = static_cast<std::uint64_t>(task["seed"].integer());
    state.predictor.reset();
    state.predictor =
        std::make_unique<SamplePredictor>(*state.trials, low, layers_from(task["layers"]), *prediction_, options);
    state.predicted = std::move(wanted);
  }
  return value_of(state.predictor->run(sample, exact, static_cast<std::size_t>(task["number"].integer())));
}

Value SampleServer::answer(const Value& task) {
  const std::string& kind = task["do"].text();
  State& state = state_of(task["network"].tensor());
  Assignment assignment = assignment_from(task["assignment"]);
  state.trials->add_scale_choice(assignment);
  const auto sample = static_cast<std::size_t>(task["sample"].integer());
  if (sample >= samples_.size() || assignment.precision.size() != state.trials->network().num_all_layers())
    throw Error(ErrorCode::kScript, "[workers] expected a task of this search, got one of another");
  if (kind == "effects") return Value::Map{{"effects", effects(state, task, assignment, sample)}};
  const bool keep = task["keep"].boolean();
  if (kind == "judge" && judge_ != nullptr) {
    const TensorMap& exact = golden(sample);
    const std::vector<TensorMap> outputs = state.trials->run(assignment, sample, 1, keep);
    return Value::Map{{"judgement", value_of(judge_->judge({&exact, 1}, outputs))}};
  }
  if (kind != "outputs") throw error_of(ErrorCode::kScript, "[workers] there is no task '{}'", kind);
  // Golden outputs come this way first.
  if (&state == &base() && assignment.precision == exact_->precision && assignment.storage == exact_->storage &&
      !golden_.contains(sample))
    return Value::Map{{"outputs", value_of(golden(sample))}};
  return Value::Map{{"outputs", value_of(state.trials->run(assignment, sample, 1, keep).front())}};
}

Tensor SampleServer::run(const Tensor& task) {
  try {
    return to_bytes(answer(from_bytes(task)));
  } catch (const Error& error) {
    return to_bytes(value_of_error(error));
  }
}

}  // namespace ulpscope
