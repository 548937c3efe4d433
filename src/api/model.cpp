#include "ulpscope/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/loaded_model.h"
#include "backend/backend.h"
#include "compare/data_loader.h"
#include "core/file.h"
#include "core/messages.h"
#include "core/parallel.h"
#include "engine/option_names.h"
#include "engine/target_formats.h"
#include "graph/layer_choice.h"
#include "onnx/external_data.h"
#include "onnx/import.h"
#include "precision/criterion_options.h"
#include "precision/fingerprint.h"
#include "precision/repair.h"
#include "runners/foreign_operators.h"
#include "runtime/default_target.h"

namespace ulpscope {
namespace {

/// The options, for a model whose network was read.
void apply(const ModelOptions& options, LoadedModel& model) {
  Network& network = *model.network;
  BuildOptions& build = model.build;
  for (const Precision precision : options.precisions)
    build.enabled.set(precision_from_name(name_of(precision), "[model] precisions", is_lower));
  build.enabled = with_smaller_blocks(build.enabled);
  build.fusion = fusion_from_name(options.fusion, "[model] fusion");
  build.accumulation = accumulation_from_name(options.accumulation, "[model] accumulation");
  build.attention = attention_from_name(options.attention, "[model] attention");
  build.backend = find_backend(options.backend).name();
  build.target = options.target.empty() ? default_target(build.backend) : options.target;
  if (!options.target.empty()) refuse_lacking_formats(options.target, build.enabled, "[model] target");
  build.threads = checked_threads(options.threads, "[model] threads");
  build.memory_limit = options.memory_limit;
  build.assume_lowest = !options.cost_model;
  build.constraints = ConstraintMode::kObey;
  build.scale_choice.mx = mx_scale_rule_from_name(options.mx_scale_rule, "[model] mx_scale_rule");
  set_dynamic_scale_rule(network, build.scale_choice.mx);
  if (!options.weight_scales.empty()) {
    model.weight_scales = weight_scales_from_name(options.weight_scales, "[model] weight_scales");
    check_weight_scales(*model.weight_scales, build.enabled, "[model] weight_scales");
    // By activations, once these are measured.
    if (model.weight_scales != WeightScales::kActivations) build.scale_choice.weights = *model.weight_scales;
  }
  model.external_data = options.external_data_dir;
  model.record.clamp_constants = options.clamp_constants;
  model.clamps = clamp_constants(network, options.clamp_constants);
  std::vector<std::string> words;
  for (const auto& [name, type] : options.layer_precisions) words.push_back(name + ":" + type);
  for (const auto& [id, request] :
       find_layer_precisions(network, words, {.where = "[model] layer_precisions", .accepts = is_any}))
    network.layer(id).precision = request;
}

}  // namespace

Model Model::from_file(const std::filesystem::path& path, const ModelOptions& options) {
  auto loaded = std::make_shared<LoadedModel>();
  loaded->name = path.string();
  loaded->path = path;
  loaded->start = std::make_shared<EarlyStart>(find_backend(options.backend));
  loaded->network = import_onnx(path, registry_with_onnxruntime(), {.external_data_dir = options.external_data_dir});
  apply(options, *loaded);
  return Model(std::move(loaded));
}

Model Model::from_bytes(std::span<const std::byte> bytes, const ModelOptions& options, const std::string& name) {
  auto loaded = std::make_shared<LoadedModel>();
  loaded->name = name;
  loaded->bytes.assign(bytes.begin(), bytes.end());
  loaded->start = std::make_shared<EarlyStart>(find_backend(options.backend));
  loaded->network =
      import_onnx(loaded->bytes, name, registry_with_onnxruntime(), {.external_data_dir = options.external_data_dir});
  apply(options, *loaded);
  return Model(std::move(loaded));
}

void Model::set_scales(std::map<std::string, float> scales) { loaded_->build.scales = std::move(scales); }
const std::map<std::string, float>& Model::scales() const noexcept { return loaded_->build.scales; }

ScriptHost& LoadedModel::scripts() {
  if (!host) host = std::make_shared<ScriptHost>(ScriptHost::Callbacks{});
  return *host;
}

std::string LoadedModel::external_hash() const {
  // What was read from memory may have weights in files, too: they are not told apart.
  if (path.empty() || path.extension() == ".py") return {};
  std::string hashes;
  for (const std::filesystem::path& each : external_data_files(file_at(path), external_data))
    hashes += hash_of_file(*file_at(std::filesystem::weakly_canonical(std::filesystem::absolute(each))));
  return hashes.empty() ? hashes : hash_of_text(hashes);
}

std::string LoadedModel::hash() const { return path.empty() ? hash_of_bytes(bytes) : hash_of_file(*file_at(path)); }

std::shared_ptr<const MappedFile> LoadedModel::file_at(const std::filesystem::path& name) const {
  if (network == nullptr) return MappedFile::open(name);  // What is asked about the file comes before it is read.
  const auto read = std::ranges::find(network->files, name, [](const auto& file) { return file->path(); });
  return read != network->files.end() ? *read : MappedFile::open(name);
}

void warn_of_replaced_files(const Network& network, std::string_view what) {
  for (const auto& file : network.files)
    if (file->is_replaced())
      log_warning("{}: the file was replaced or removed while it was in use; {} is of what it held before",
                  file->path().string(), what);
}

void LoadedModel::with_bytes(const std::function<void(std::span<const std::byte>)>& use) const {
  if (path.empty()) return use(bytes);
  use(file_at(path)->bytes());
}

std::vector<std::string> LoadedModel::output_names() const {
  std::vector<std::string> names;
  for (const TensorId id : network->outputs) names.push_back(network->tensor(id).name);
  return names;
}

std::vector<TensorMap> fitted_samples(const Network& network, std::span<const TensorsByName> samples) {
  const std::vector<InputBinding> bindings = input_bindings(network);
  std::vector<TensorMap> result;
  for (const TensorsByName& sample : samples) {
    TensorMap tensors;
    for (const auto& [name, tensor] : sample) tensors.push_back({name, tensor});
    warn_of_kept_defaults(tensors, network);
    check_present(tensors, bindings, fmt::format("sample {}", result.size()));
    result.push_back(adapt_inputs(tensors, bindings));
  }
  return result;
}

std::vector<TensorMap> ordered_outputs(const Network& network, std::span<const TensorsByName> outputs) {
  std::vector<TensorMap> result;
  for (const TensorsByName& each : outputs) {
    TensorMap& tensors = result.emplace_back();
    for (const TensorId id : network.outputs)
      if (const auto found = each.find(network.tensor(id).name); found != each.end())
        tensors.push_back({found->first, found->second});
  }
  return result;
}

std::shared_ptr<const Specialization> specialize_for(const Network& network, const TensorMap& sample) {
  std::vector<Shape> shapes;
  for (TensorId id : network.inputs) {
    const Tensor* found = find_tensor(sample, network.tensor(id).name);
    shapes.push_back(found == nullptr ? Shape{} : found->shape());
  }
  return specialize(network, shapes);
}

namespace {

[[noreturn]] void refuse_answer(const LoadedModel& model, const std::string& where, const std::string& difference) {
  throw invalid_argument("{}: expected an answer for '{}', got one for another model: {}", where, model.name,
                         difference);
}

}  // namespace

void take_scale_choice(const AnswerFile& answer, const std::string& where, BuildOptions& build) {
  build.scale_choice = {};
  if (!answer.weight_scales.empty())
    build.scale_choice.weights = weight_scales_from_name(answer.weight_scales, where + ": weight_scales");
  if (!answer.mx_scale_rule.empty())
    build.scale_choice.mx = mx_scale_rule_from_name(answer.mx_scale_rule, where + ": mx_scale_rule");
  build.mean_squares = answer.mean_squares;
}

void check_answer_model(const LoadedModel& model, const AnswerFile& answer, const std::string& where) {
  if (const std::string hash = model.hash(); answer.model_hash != hash)
    refuse_answer(model, where,
                  fmt::format("it was found for '{}' with the hash {}, but the model has the hash {}", answer.model,
                              answer.model_hash, hash));
  if (answer.external_hash.empty()) return;
  if (const std::string hash = model.external_hash(); answer.external_hash != hash)
    throw invalid_argument(
        "{}: the external weights of '{}' are not those that it was found for: expected the hash {}, got {}; search "
        "again with these weights",
        where, answer.model, answer.external_hash, hash.empty() ? "no external data" : hash);
}

void request_kept_layers(const LoadedModel& model, const Network& network, const AnswerFile& answer,
                         const std::string& where, Requests& requested) {
  // What layers asked for while it was searched, the formats that the search chose for them among it.
  for (const auto& [name, type] : answer.build.layer_precisions)
    if (const LayerId id = network.find_layer(name);
        id != kNone && !requested[id] &&
        std::ranges::find(answer.answer.kept, name, &KeptLayer::name) == answer.answer.kept.end())
      requested[id] = request_named(type);
  for (const KeptLayer& kept : answer.answer.kept) {
    const LayerId id = network.find_layer(kept.name);
    if (id == kNone)
      refuse_answer(model, where, fmt::format("it keeps the layer '{}', which the model does not have", kept.name));
    auto& request = requested[id];
    if (request == Precision::kFP32) continue;  // more is kept than the answer needs
    if (request && *request != kept.precision)
      throw invalid_argument("[options] layer '{}': --answer keeps it in {}, but --layer-precisions says {}", kept.name,
                             form_of(kept.precision).request(), request->name());
    request = kept.precision;
  }
}

CriterionOptions criterion_of(const AnswerFile& answer, const std::string& where) {
  const auto options = read_criterion_words(answer.criterion_options);
  if (answer.criterion_options.empty() || !options)
    throw invalid_argument(
        "{}: the answer does not say its tolerance ({}) as options; try --metric and --threshold, or --rtol and --atol",
        where, answer.answer.criterion);
  return *options;
}

}  // namespace ulpscope
