#include "ulpscope/convert.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "api/loaded_model.h"
#include "api/onnx_engine_impl.h"
#include "api/write_model.h"
#include "convert/convert.h"
#include "convert/precision_forms.h"
#include "convert/relax.h"
#include "core/messages.h"
#include "core/parallel.h"
#include "engine/assign.h"
#include "engine/quantized_choices.h"
#include "graph/layer_choice.h"
#include "precision/bias_correction.h"
#include "precision/criterion_options.h"
#include "precision/repair.h"
#include "precision/trials.h"
#include "runtime/engine.h"
#include "runtime/memory_limit.h"

namespace ulpscope {
namespace {

/// The network with the repairs of an answer, and what its layers are asked for.
struct Choice {
  std::shared_ptr<Network> network;
  BuildOptions build;
  std::vector<Repair> repairs;  ///< All that were done.
  Requests requested;
};

Choice make_choice(const LoadedModel& model, const ConvertOptions& options) {
  Choice choice{std::make_shared<Network>(*model.network), model.build, model.clamps, {}};
  set_num_threads(choice.build.threads);
  choice.build.constraints = ConstraintMode::kObey;
  if (!options.answer && model.weight_scales == WeightScales::kActivations &&
      choice.build.scale_choice.weights != WeightScales::kActivations)
    throw invalid_argument(
        "[convert] --weight-scales activations: expected samples to measure activations on, got none; try "
        "--calibration-inputs, or --weight-scales least-squares");
  const std::string where = options.answer ? fmt::format("[convert] --answer {}", options.answer->path.string()) : "";
  if (options.answer) {
    check_answer_model(model, *options.answer, where);
    if (!options.lower.empty())
      throw invalid_argument(
          "[options] --answer and --lower: the answer says what is lowered; try --keep to keep more");
    if (choice.build.scales.empty()) choice.build.scales = options.answer->scales;
    take_scale_choice(*options.answer, where, choice.build);
    const auto& repairs = options.answer->answer.repairs;
    apply_repairs(*choice.network, choice.build.scales, repairs);
    choice.repairs.insert(choice.repairs.end(), repairs.begin(), repairs.end());
  }
  choice.requested = requested_types(*choice.network, options.keep, options.lower, options.layer_precisions);
  for (LayerId l : choice.requested.ids())
    if (!choice.requested[l]) choice.requested[l] = choice.network->layer(l).precision;
  if (!options.answer) return choice;
  request_kept_layers(model, *choice.network, *options.answer, where, choice.requested);
  return choice;
}

/// Raises layers that are faster so, in the choice and in the answer. Returns their names.
std::vector<std::string> relax(LoadedModel& model, const ConvertOptions& options, const std::vector<TensorMap>& samples,
                               Choice& choice, std::optional<AnswerFile>& answer) {
  if (!options.lower.empty())
    throw invalid_argument(
        "[options] --relax and --lower contradict each other: what --lower names shall be low; try --keep");
  CriterionOptions tolerance = options.criterion;
  if (criterion_words(tolerance).empty()) {
    if (!options.answer)
      throw invalid_argument(
          "[options] --relax: expected a tolerance that the outputs must stay within, got none; try --answer "
          "ANSWER.json, or --metric rel-l2 --threshold 0.01");
    tolerance = criterion_of(*options.answer, "[options] --relax");
  }
  const auto criterion = make_criterion(tolerance, model.scripts(), model.output_names());
  const Relaxation relaxed =
      relax_precisions(choice.network, choice.build, samples, choice.requested, *criterion,
                       ordered_outputs(*choice.network, options.golden), tolerance.infinities_equal);
  std::vector<std::string> names;
  for (const LayerId id : relaxed.raised) {
    choice.requested[id] = Precision::kFP32;
    names.push_back(choice.network->layer(id).name);
  }
  if (answer) add_raised_layers(*choice.network, relaxed, *answer);
  return names;
}

/// Throws where formats of elements alone are allowed and no product has one: who reads that nothing is lowered looks
/// for what kept it.
void check_formats(const Specialization& spec, const Choice& choice, const QuantizedChoices& quantized,
                   const Assignment& assignment) {
  if (std::ranges::any_of(assignment.precision, [](Precision p) { return p != Precision::kFP32; })) return;
  for (const auto& [l, layer] : choice.network->layers.items()) {
    if (!is_product(layer.op->function) || choice.requested[l]) continue;
    for (const Precision p : choice.build.enabled.members()) {
      if (is_float(p)) continue;
      if (const std::string reason = quantized.refusal(spec, l, p); !reason.empty())
        throw Error(
            ErrorCode::kUnsupported,
            fmt::format("[convert] {}: expected layers to lower, got none; layer '{}' ({}) has no {}, since {}; try "
                        "--fp16 or --bf16 beside it, or another format",
                        choice.network->source, layer.name, layer.op->name, name_of(p), reason));
    }
  }
}

TypedModel write(const LoadedModel& model, const Choice& choice, const Specialization& spec,
                 std::vector<TensorMap> samples, std::vector<std::string> raised, const ConvertOptions& options,
                 const std::filesystem::path& path) {
  const QuantizedChoices quantized(spec, choice.build);
  if (options.answer)
    quantized.warn(spec, {});
  else
    quantized.log_fallbacks(spec);
  const Assignment assignment = assign_precisions(spec, choice.build, &choice.requested, &quantized);
  if (!options.answer) check_formats(spec, choice, quantized, assignment);
  TypedModelOptions typed;
  typed.fusion = choice.build.fusion;
  typed.io_types = options.io_types;
  typed.samples = std::move(samples);
  typed.verify = options.verify;
  typed.lowers = !options.answer;
  typed.memory_limit = choice.build.memory_limit;
  typed.raised = std::move(raised);
  typed.interrupt = options.interrupt;
  return write_checked_model(model, spec, assignment, choice.repairs, std::move(typed), options.python_checks, path);
}

std::shared_ptr<Engine> make_engine(const LoadedModel& model, const ConvertOptions& options) {
  Choice choice = make_choice(model, options);
  Network& network = *choice.network;
  for (const auto& [id, type] : find_io_types(network, options.io_types)) network.tensor(id).type = type;
  set_requests(network, choice.requested);
  // Some forms are not for products of one row, which open sizes would give.
  if (options.answer && choice.build.typical_shapes.empty())
    choice.build.typical_shapes = options.answer->answer.input_shapes;
  return Engine::build(choice.network, choice.build);
}

/// What the model computes in float32.
std::vector<TensorMap> exact_outputs(const LoadedModel& model, const BuildOptions& build,
                                     const std::vector<TensorMap>& samples, const std::function<void()>& interrupt) {
  Trials exact(model.network, build, samples);
  return exact.run(exact.full_precision(), 0, samples.size(), /*keep=*/false, interrupt);
}

/// What the types cost: rel-l2 of the outputs. `outputs`: what the assignment gives, where that is known.
Judgement error_against(const std::vector<TensorMap>& golden, const Choice& choice, const Assignment& assignment,
                        const std::vector<TensorMap>& samples, const std::function<void()>& interrupt,
                        std::vector<TensorMap> outputs = {}) {
  if (outputs.size() != samples.size())
    outputs =
        Trials(choice.network, choice.build, samples).run(assignment, 0, samples.size(), /*keep=*/false, interrupt);
  Judgement error =
      make_metric_criterion(MetricKind::kRelativeL2, 1.0, {}, /*infinities_equal=*/true)->judge(golden, outputs);
  if (!has_elements(golden)) {
    error.problem = "no output has any element";
    error.used = error.value = std::numeric_limits<double>::quiet_NaN();
  }
  return error;
}

/// The choice with the biases of its int8 products corrected by the mean errors on these samples.
std::pair<Choice, BiasCorrections> with_corrected_biases(const Choice& choice, const std::vector<TensorMap>& samples) {
  Choice corrected = choice;
  corrected.network = std::make_shared<Network>(*choice.network);
  const auto spec = specialize_for(*corrected.network, samples.front());
  const Assignment assignment = assign_precisions(*spec, choice.build, &choice.requested);
  BiasCorrections made = correct_biases(*corrected.network, *spec, assignment, choice.build, samples);
  return {std::move(corrected), std::move(made)};
}

/// Every other sample, from `first` on.
std::vector<TensorMap> every_other(const std::vector<TensorMap>& samples, std::size_t first) {
  std::vector<TensorMap> result;
  for (std::size_t i = first; i < samples.size(); i += 2) result.push_back(samples[i]);
  return result;
}

/// Corrects the biases of int8 products, in a copy of the network, if the error falls by that, also on samples that
/// the correction does not come from; sets the errors of the result.
void correct_biases_of(const LoadedModel& model, const ConvertOptions& options, const std::vector<TensorMap>& samples,
                       Choice& choice, ConvertedModel& result) {
  if (!choice.build.enabled.has_quantized())
    throw invalid_argument(
        "[options] --bias-correction: expected layers in int8, got none; try --int8, or an answer with int8");
  const auto error_of = [&](const Choice& each, const std::vector<TensorMap>& of) {
    const auto spec = specialize_for(*each.network, of.front());
    return error_against(exact_outputs(model, choice.build, of, options.interrupt), each,
                         assign_precisions(*spec, choice.build, &choice.requested), of, options.interrupt);
  };
  auto [corrected, made] = with_corrected_biases(choice, samples);
  result.uncorrected_error = error_of(choice, samples);
  result.error = made.done.empty() ? result.uncorrected_error : error_of(corrected, samples);
  const double before = result.uncorrected_error->value, after = result.error->value;
  double elsewhere = after;
  if (after < before && samples.size() > 1)
    for (const std::size_t half : {0, 1})
      elsewhere = std::max(elsewhere, error_of(with_corrected_biases(choice, every_other(samples, half)).first,
                                               every_other(samples, 1 - half))
                                          .value);
  const std::string without =
      made.without_bias > 0 ? fmt::format("; {} int8 product(s) have no bias", made.without_bias) : "";
  if (!(elsewhere < before)) {
    log_info("[convert] No bias is corrected: rel-l2 would be {:.3g} instead of {:.3g}{}{}", elsewhere, before,
             elsewhere > after ? " on samples that the correction does not come from" : "", without);
    result.error = result.uncorrected_error;
    return;
  }
  const std::string text = fmt::format(
      "the biases of {} int8 product(s) take the mean error of their outputs, so that in float32 this file computes "
      "other values than the model: rel-l2 {:.3g} instead of {:.3g}{}",
      made.done.size(), after, before, without);
  corrected.repairs.push_back({"", CorrectBiases{}, text});
  result.corrected_biases = static_cast<int>(made.done.size());
  choice = std::move(corrected);
}

/// What was written where no layer is lower than in the file, and why.
std::string nothing_lowered_text(const std::optional<AnswerFile>& file) {
  const std::string text = fmt::format("[convert] The {} every layer in float32: what is written is the model as it is",
                                       file ? "answer keeps" : "options keep");
  if (!file) return text;
  const Answer& answer = file->answer;
  if (!file->set_options.empty()) return text + fmt::format(" ({})", answer.message);
  const auto for_time = std::ranges::count_if(
      answer.kept, [](const KeptLayer& layer) { return layer.reason.kind == ReasonKind::kFaster; });
  if (answer.verdict == Answer::Verdict::kNotReachable) return text + ", since no set was found that passes";
  if (answer.verdict != Answer::Verdict::kFound) return text + ", since no set with lower layers was proven";
  if (for_time == 0)
    return text + fmt::format(
                      "; {} stay for the tolerance ({}, searched at {:.3g} of it): "
                      "a wider one, or --margin 1 in the search, may leave layers to lower",
                      answer.kept.size(), answer.criterion, answer.margin);
  return text + fmt::format(
                    "; {} of these {} stay for time alone (estimated {:.4g} us on {}, {:.4g} with everything low); a "
                    "search with --objective smallest keeps only what the tolerance asks for",
                    for_time, answer.kept.size(), answer.time_us, answer.target, answer.time_low_us);
}

}  // namespace

ConvertedModel convert(const Model& model, const std::filesystem::path& path, std::span<const TensorsByName> samples,
                       const ConvertOptions& options) {
  LoadedModel& loaded = ModelAccess::loaded(model);
  if (samples.empty())
    throw invalid_argument("[convert] expected inputs to check the model with, got none; try other samples");
  loaded.weights = WeightCache();  // What others prepared gives way: weights in one form at a time.
  begin_limited(*loaded.network, loaded.build.memory_limit);
  Choice choice = make_choice(loaded, options);
  std::vector<TensorMap> fitted = fitted_samples(*choice.network, samples);
  ConvertedModel result;
  result.answer = options.answer;
  std::vector<std::string> raised;
  if (options.relax) raised = relax(loaded, options, fitted, choice, result.answer);
  if (options.bias_correction) correct_biases_of(loaded, options, fitted, choice, result);
  const Network& network = *choice.network;
  const auto spec = specialize_for(network, fitted.front());
  if (options.interrupt) options.interrupt();
  const TypedModel made = write(loaded, choice, *spec, fitted, std::move(raised), options, path);

  const Assignment& assignment = made.assignment;
  for (const LayerPlace& place : all_layers(*spec))
    if (place.numeric() && has_precision(place.layer()))
      result.layers.push_back(
          {place.layer().name, std::string(place.layer().op->name), assignment.precision[place.id]});
  result.kept_back = made.kept;
  result.lowered = made.lowered;
  if (made.lowered == 0) log_warning(nothing_lowered_text(options.answer));
  result.casts = static_cast<int>(made.file.casts);
  result.bytes = static_cast<std::uint64_t>(made.file.bytes);
  result.checked = made.checked;
  if (!options.verify)
    result.error.reset();
  else if (!result.error)
    result.error = error_against(exact_outputs(loaded, choice.build, fitted, options.interrupt), choice, assignment,
                                 fitted, options.interrupt, made.outputs);
  const BuildOptions& build = choice.build;
  end_limited(build.memory_limit,
              "the inputs of all samples, the outputs that are compared, and what a run of either model holds took",
              "fewer or smaller samples");
  std::string flags;
  for (const Precision p : build.enabled.members())
    if (const LayerForm& form = form_of(p); form.is_weakly_typed())
      flags += fmt::format(" {}{}", form.flag(), form.type == DataType::kInt8 ? " --calibration-cache CACHE" : "");
  result.layer_precisions = layer_precisions_form(*spec, assignment);
  result.postprocess_script = postprocess_script(*spec, assignment, choice.requested, flags);
  result.exclusions = exclusions(*spec, assignment);
  return result;
}

void convert_to_engine(const Model& model, const std::filesystem::path& path, const ConvertOptions& options) {
  const auto engine = make_engine(ModelAccess::loaded(model), options);
  if (options.interrupt) options.interrupt();
  engine->save(path);
  log_info("Saving engine to {}", path.string());
}

OnnxEngine build_engine(const Model& model, const ConvertOptions& options) {
  return OnnxEngine(std::make_shared<OnnxEngine::Impl>(make_engine(ModelAccess::loaded(model), options)));
}

}  // namespace ulpscope
