#include "ulpscope/search.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/loaded_model.h"
#include "api/search_checks.h"
#include "core/counted.h"
#include "core/messages.h"
#include "core/parallel.h"
#include "core/temporary_folder.h"
#include "engine/option_names.h"
#include "precision/criterion_options.h"
#include "precision/fingerprint.h"
#include "precision/format_choice.h"
#include "precision/lowest.h"
#include "precision/objective.h"
#include "precision/sample_pairs.h"
#include "precision/sample_server.h"
#include "precision/search.h"
#include "precision/search_estimate.h"
#include "precision/search_stage.h"
#include "precision/trials.h"
#include "runners/ray_workers.h"
#include "runtime/memory_limit.h"
#include "ulpscope/calibrate.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope {
namespace {

/// Every so many samples one is held out, where nothing else is.
constexpr std::size_t kHoldOutEvery = 4;

/// The least error within a budget is had by any metric; what has to hold is for the user to say.
bool needs_no_tolerance(const SearchOptions& options) {
  const CriterionOptions& criterion = options.criterion;
  return options.bits > 0 && criterion.threshold.empty() && criterion.atol.empty() && criterion.rtol.empty() &&
         criterion.metric_script.empty() && !criterion.metric_function;
}

/// Everything that a search works on.
struct Prepared {
  SearchTask task;
  SearchData data;
  std::unique_ptr<Criterion> criterion;
};

/// `keep` and `lower`, and what the network itself asks for.
void place_layers(const Network& network, const SearchOptions& options, SearchTask& task) {
  task.keep = find_layers(network, options.keep, "--keep");
  task.lower = find_layers(network, options.lower, "--lower");
  for (const LayerId id : task.keep)
    if (std::ranges::find(task.lower, id) != task.lower.end())
      throw invalid_argument(
          "[options] layer '{}': --keep and --lower contradict each other; expected it in one of them only",
          network.layer(id).name);
  const Requests own = own_requests(network);
  for (LayerId id : own.ids()) {
    const Layer& layer = network.layer(id);
    if (!layer.precision || !has_precision(layer)) continue;
    const bool kept = std::ranges::find(task.keep, id) != task.keep.end();
    const bool highest = layer.precision == task.ladder.back();
    if (kept && !highest)
      throw invalid_argument("[options] layer '{}': --keep and its requested precision {} contradict each other",
                             layer.name, layer.precision->name());
    if (!kept && !highest && std::ranges::find(task.lower, id) == task.lower.end()) task.lower.push_back(id);
  }
  std::ranges::sort(task.lower);
}

/// Moves every fourth element of `all` to the result.
std::vector<TensorMap> split_every_fourth(std::vector<TensorMap>& all) {
  std::vector<TensorMap> kept, split;
  for (std::size_t i = 0; i < all.size(); ++i)
    (i % kHoldOutEvery == kHoldOutEvery - 1 ? split : kept).push_back(std::move(all[i]));
  all = std::move(kept);
  return split;
}

SearchData make_data(const LoadedModel& model, std::span<const TensorsByName> samples, const SearchOptions& options) {
  SearchData data;
  data.network = model.network;
  data.weights = model.weights;
  data.samples = fitted_samples(*model.network, samples);
  data.held_out = fitted_samples(*model.network, options.held_out);
  data.golden = ordered_outputs(*model.network, options.golden);
  const std::size_t own = data.samples.size(), all = own + data.held_out.size();
  if (own == 0) throw invalid_argument("[data] expected inputs of at least one iteration, got none; try other samples");
  if (!data.golden.empty() && data.golden.size() != own && data.golden.size() != all)
    throw invalid_argument(
        "[golden] expected results of {}, one per sample{}, got {}; try saving them again with the same "
        "inputs",
        counted(static_cast<std::int64_t>(own), "iteration"),
        all == own ? "" : fmt::format(" (or {} with the held-out ones)", all), data.golden.size());
  if (data.golden.size() > own) {
    data.held_out_golden.assign(std::make_move_iterator(data.golden.begin() + static_cast<std::ptrdiff_t>(own)),
                                std::make_move_iterator(data.golden.end()));
    data.golden.resize(own);
  }
  const bool split = options.held_out.empty() && options.hold_out && own >= kHoldOutEvery;
  if (split) {
    data.held_out = split_every_fourth(data.samples);
    data.held_out_golden = split_every_fourth(data.golden);
  }
  if (data.held_out.empty())
    log_warning(
        "No sample is held out{}: nothing will show whether the answer holds on other data; try more samples or "
        "--hold-out FILE",
        options.hold_out ? fmt::format(", since there are fewer than {}", kHoldOutEvery) : "");
  else
    log_info("Searching on {}, checking the answer on {}{}", counted(std::ssize(data.samples), "sample"),
             counted(std::ssize(data.held_out), "held-out one"),
             split ? " (every fourth; --hold-out FILE names others)" : "");
  return data;
}

/// By the samples of the search, where nobody has measured or asked for other scales.
void measure_activations(const Model& model, const std::vector<TensorMap>& samples, const SearchOptions& options) {
  LoadedModel& loaded = ModelAccess::loaded(model);
  if (loaded.build.scale_choice.weights != WeightScales::kAmax || !have_chosen_scales(loaded.build.enabled)) return;
  if (options.progress) options.progress({.stage = std::string(text_of(Stage::kFloat32))});
  std::vector<TensorsByName> by_name;
  for (const TensorMap& sample : samples) {
    TensorsByName& each = by_name.emplace_back();
    for (const NamedTensor& input : sample) each.emplace(input.name, input.tensor);
  }
  Model handle = model;
  measure_activations(handle, by_name);
}

Prepared prepare(const Model& model, std::span<const TensorsByName> samples, const SearchOptions& options) {
  LoadedModel& loaded = ModelAccess::loaded(model);
  check_options(options);
  check_bits(options, loaded.build.enabled);
  set_num_threads(loaded.build.threads);
  Prepared result;
  static_cast<SearchStrategy&>(result.task) = options;
  result.task.build = loaded.build;
  // The search tells its trials.
  result.task.build.memory_limit = 0;
  if (result.task.memory_limit == 0) result.task.memory_limit = loaded.build.memory_limit;
  result.task.build.constraints = ConstraintMode::kObey;
  result.task.infinities_equal = options.criterion.infinities_equal;
  place_layers(*loaded.network, options, result.task);
  result.data = make_data(loaded, samples, options);
  measure_activations(model, result.data.samples, options);
  result.task.build.scale_choice = loaded.build.scale_choice;
  result.task.build.mean_squares = loaded.build.mean_squares;
  warn_of_small_limit(*loaded.network, result.task.memory_limit);
  result.criterion = make_criterion(options.criterion, loaded.scripts(), loaded.output_names());
  warn_of_weak_grounds(result.task, result.data);
  check_golden_shapes(result.data, *result.criterion, options.criterion.infinities_equal);
  return result;
}

void warn_of_other_golden(const Prepared& prepared, const SearchOptions& options) {
  if (prepared.data.golden.empty()) return;
  if (options.progress) options.progress({.stage = std::string(text_of(Stage::kFloat32))});
  Trials trials(prepared.data.network, prepared.task.build, prepared.data.samples);
  trials.set_workers(prepared.data.workers);
  const std::vector<TensorMap> outputs = trials.run(trials.full_precision(), /*keep=*/false);
  visit_pairs(*prepared.criterion, prepared.data.golden, outputs, [](const SamplePair& pair) {
    if (pair.golden.shape() != pair.candidate.shape())
      throw invalid_argument(
          "[golden] output '{}', sample {}: expected shape {}, which the model gives in float32, got {}; try golden "
          "outputs of these inputs",
          pair.output, pair.sample, to_string(pair.candidate.shape()), to_string(pair.golden.shape()));
  });
  const Judgement exact = prepared.criterion->judge(prepared.data.golden, outputs);
  if (!exact.passed(options.margin > 0 ? options.margin : 1))
    log_warning(
        "Even with every layer in float32 the outputs use {:.4g} of the tolerance against the golden results (worst "
        "output: '{}'); were these made from other inputs, or is the tolerance too small?",
        exact.used, exact.worst_output);
}

/// Layers that int8 does not suit, say, go to float32 although float16 is allowed for others, unless it is asked for.
void say_which_float_was_not_tried(const SearchTask& task, const Answer& answer) {
  const Precision highest = task.ladder.back();
  if (answer.kept.empty() || !task.build.enabled.has_elements() || task.ladder.size() > 1) return;
  for (const Precision each : {Precision::kFP16, Precision::kBF16})
    if (each != highest && task.build.enabled.has(each)) {
      const std::string words = fmt::format("{} {}", form_of(each).request(), form_of(highest).request());
      log_info("[search] Layers were raised to {0} alone; {1} is allowed, too: --precision {2} tries it for them first",
               name_of(highest), name_of(each), words);
      return;
    }
}

/// Null where the search needs no cluster.
std::shared_ptr<RayWorkers> connect(const LoadedModel& model, const SearchOptions& options) {
  if (options.ray_workers < 0 || (options.ray_workers > 0 && options.ray.empty()))
    throw invalid_argument("[search] ray_workers: expected 1 or more, with ray, got {}", options.ray_workers);
  if (options.ray.empty()) return nullptr;
  if (options.progress) options.progress({.stage = std::string(text_of(Stage::kConnecting))});
  const ProcessIdentity own = process_identity();
  return std::make_shared<RayWorkers>(RayOptions{.address = options.ray,
                                                 .workers = options.ray_workers,
                                                 .gpus = model.build.backend == "cuda",
                                                 .version = own.version,
                                                 .processor = own.processor});
}

void start_workers(Prepared& prepared, const SearchOptions& options, const std::shared_ptr<RayWorkers>& workers,
                   const std::filesystem::path& file) {
  const auto show = [&] {
    if (options.progress) options.progress({.stage = std::string(text_of(Stage::kStartingWorkers))});
  };
  show();
  SearchData& data = prepared.data;
  const SampleSetup setup = make_sample_setup(data, prepared.task, options.criterion, *prepared.criterion, file);
  workers->start(file, setup.bytes, data.samples.size() + data.held_out.size(), show);
  data.judged_there = setup.judges;
  data.workers = workers;
}

Journal open_journal(const Network& network, const SearchOptions& options, const Fingerprint& fingerprint) {
  std::vector<std::string> names;
  for (LayerId id : network.all_layer_ids())
    if (const Layer& layer = network.layer(id); has_precision(layer)) names.push_back(layer.name);
  for (const TensorId output : network.outputs) names.push_back(network.tensor(output).name);
  if (!options.resume) return Journal::create(options.journal, fingerprint, names);
  Journal journal = Journal::resume(options.journal, fingerprint, names);
  if (journal.resumed() > 0)
    log_info("Going on with {} of '{}'", counted(journal.resumed(), "finished trial"), options.journal.string());
  return journal;
}

/// Layers ask for the formats that were chosen for them, in a copy of the network.
void ask_for_formats(Prepared& prepared) {
  const auto formats = choose_formats(prepared.data, *prepared.criterion, prepared.task);
  if (formats.empty()) return;
  auto network = std::make_shared<Network>(*prepared.data.network);
  for (const auto& [id, format] : formats)
    if (!network->layer(id).precision) network->layer(id).precision = format;
  prepared.data.network = std::move(network);
}

/// Where bits count: layers ask for the format of the fewest, in a copy of the network, and may have the others.
void offer_formats(Prepared& prepared) {
  SearchTask& task = prepared.task;
  auto network = std::make_shared<Network>(*prepared.data.network);
  Trials trials(network, task.build, prepared.data.samples);
  const auto spec = trials.specialization();
  const DataType number = trials.assign(own_requests(*network)).int8_output;
  task.formats = weight_formats(*spec, task.build.enabled, task.ladder, number);
  for (const auto* fixed : {&task.keep, &task.lower})
    for (const LayerId id : *fixed) task.formats.erase(id);
  std::erase_if(task.formats, [&](const auto& each) { return network->layer(each.first).precision.has_value(); });
  if (task.formats.empty())
    throw invalid_argument(
        "[search] there is nothing to search: no product of the model has constant weights that one of the formats "
        "suits; try other formats, or fewer names in --keep and --lower");
  std::map<Precision, std::vector<std::string_view>> standing_in;
  for (const auto& [id, formats] : task.formats) {
    network->layer(id).precision = formats.front();
    for (const Precision each : formats)
      if (task.build.enabled.larger_blocks(each)) standing_in[each].push_back(network->layer(id).name);
  }
  for (const auto& [each, layers] : standing_in) {
    const LayerForm& larger = form_of(*form_of(each).stands_in_for);
    log_info("{} has blocks of {} in {} whose sums are no multiple of {}: {}{}", larger.name,
             form_of(each).weight.encoding->block, counted(std::ssize(layers), "layer"), larger.weight.encoding->block,
             layers.front(), layers.size() > 1 ? ", ..." : "");
  }
  prepared.data.network = network;
  const double weights = static_cast<double>(total_weights(*spec, task.formats)),
               least = static_cast<double>(fewest_bits(*spec, task.formats, number)) / weights;
  if (task.bits > 0 && task.bits < least) throw_small_budget(task.bits, least);
}

/// With what a budget of bits says by itself, and the usual tolerance.
SearchOptions completed(SearchOptions options, const BuildOptions& build) {
  if (options.bits != 0 && options.objective == Objective::kFastest) options.objective = Objective::kError;
  CriterionOptions& criterion = options.criterion;
  if (needs_no_tolerance(options)) {
    if (criterion.metric.empty()) criterion.metric = "rel-l2";
    // Of shares, 1 would leave no room.
    const auto kind = metric_from_name(criterion.metric);
    const bool is_share = kind == MetricKind::kTopK || kind == MetricKind::kIou;
    criterion.threshold = is_share ? 0.5 : 1.0;
  }
  if (options.objective == Objective::kError && options.margin == 0) options.margin = 1;
  criterion = with_usual_tolerance(std::move(criterion), build);
  return options;
}

/// `network`: the model's, with the formats that its layers ask for.
AnswerFile describe(const LoadedModel& model, const Network& network, const SearchOptions& options, Answer answer) {
  AnswerFile file;
  file.program = "ulpscope " ULPSCOPE_VERSION;
  file.model = model.name;
  file.model_hash = model.hash();
  file.external_hash = model.external_hash();
  file.precisions = enabled_precisions(model.build);
  file.fusion = name_of(model.build.fusion);
  file.accumulation = name_of(model.build.accumulation);
  file.attention = name_of(model.build.attention);
  file.criterion_options = criterion_words(options.criterion);
  file.scales = model.build.scales;
  if (model.build.enabled.needs_calibration()) file.calibration_cache = options.calibration_cache.string();
  if (have_chosen_scales(model.build.enabled)) file.weight_scales = name_of(model.build.scale_choice.weights);
  if (have_mx_scales(model.build.enabled)) file.mx_scale_rule = name_of(model.build.scale_choice.mx);
  if (model.build.scale_choice.weights == WeightScales::kActivations) file.mean_squares = model.build.mean_squares;
  file.build = model.record;
  file.build.assume_lowest = model.build.assume_lowest;
  for (const LayerId id : network.all_layer_ids())
    if (const Layer& layer = network.layer(id); layer.precision)
      file.build.layer_precisions.emplace_back(layer.name, layer.precision->name());
  file.answer = std::move(answer);
  file.path = options.answer_path;
  file.command = options.command;
  return file;
}

}  // namespace

AnswerFile search(const Model& model, std::span<const TensorsByName> samples, const SearchOptions& given) {
  const LoadedModel& loaded = ModelAccess::loaded(model);
  SearchOptions options = completed(given, loaded.build);
  // A cluster that does not answer is known before anything else is done.
  const std::shared_ptr<RayWorkers> workers = connect(loaded, options);
  Prepared prepared = prepare(model, samples, options);
  prepared.task.has_tolerance = !needs_no_tolerance(given);
  if (rule_of(options.objective).of_formats)
    offer_formats(prepared);
  else
    ask_for_formats(prepared);
  const SearchTask& task = prepared.task;
  Journal journal;
  std::optional<TemporaryFolder> folder;
  try {
    if (workers != nullptr) {
      folder.emplace(std::filesystem::temp_directory_path() / "ulpscope-ray-");
      start_workers(prepared, options, workers, folder->path() / "network.plan");
    }
    warn_of_other_golden(prepared, options);
  } catch (const SearchInterrupted& interrupted) {
    throw Error(ErrorCode::kInterrupted, interrupted.what());
  }
  if (!options.journal.empty())
    journal = open_journal(
        *loaded.network, options,
        fingerprint_of(task, prepared.data, options.criterion, *prepared.criterion, loaded.hash(), ULPSCOPE_VERSION));
  // The answer will have them; with them known, no `touch` ends the search.
  loaded.hash();
  loaded.external_hash();
  Answer answer = search_precisions(prepared.data, *prepared.criterion, task, journal, options.progress);
  for (const LayerId id : task.keep) {
    const Layer& layer = loaded.network->layer(id);
    if (std::ranges::find(answer.kept, layer.name, &KeptLayer::name) == answer.kept.end())
      answer.kept.push_back(kept_layer(layer, precision_in(layer, task.ladder.back()), ReasonKind::kRequested,
                                       "it was asked to be kept; no trial says whether it needs that"));
  }
  warn_of_replaced_files(*loaded.network, "the answer");
  say_which_float_was_not_tried(task, answer);
  AnswerFile file = describe(loaded, *prepared.data.network, options, std::move(answer));
  // A program warns when it knows the answer's place.
  if (file.command.empty())
    if (const std::string text = slower_text(file); !text.empty()) log_warning("[search] " + text);
  return file;
}

SearchPlan plan_search(const Model& model, std::span<const TensorsByName> samples, const SearchOptions& given) {
  const SearchOptions options = completed(given, ModelAccess::loaded(model).build);
  Prepared prepared = prepare(model, samples, options);
  prepared.task.has_tolerance = !needs_no_tolerance(given);
  if (rule_of(options.objective).of_formats) offer_formats(prepared);
  const auto& [task, data, criterion] = prepared;
  Trials trials(data.network, task.build, data.samples);
  Requests requested = own_requests(*data.network);
  for (const LayerId id : task.keep) requested[id] = task.ladder.back();
  const Assignment low = trials.assign(requested);
  SearchPlan plan;
  for (const LayerId id : search_candidates(*trials.specialization(), low, task)) {
    const Layer& layer = data.network->layer(id);
    plan.candidates.push_back({layer.name, std::string(layer.op->name), low.precision[id]});
  }
  plan.layers = data.network->layers.size();
  plan.samples = data.samples.size();
  plan.held_out = data.held_out.size();
  plan.criterion = criterion->description();
  if (plan.candidates.empty()) return plan;
  const SearchEstimate estimate = estimate_search(data, *criterion, task, trials, low);
  plan.forward_seconds = estimate.forward_seconds;
  plan.search_seconds = estimate.search_seconds;
  return plan;
}

}  // namespace ulpscope
