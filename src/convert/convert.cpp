#include "convert/convert.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "convert/bodies.h"
#include "convert/casts.h"
#include "convert/constants.h"
#include "convert/integer_export.h"
#include "convert/lowerable.h"
#include "convert/normalizations.h"
#include "convert/obstacles.h"
#include "convert/proof.h"
#include "convert/selection.h"
#include "core/file.h"
#include "core/messages.h"
#include "core/temporary_folder.h"
#include "engine/assign.h"
#include "engine/fixed_types.h"
#include "engine/specialization.h"
#include "graph/layer_choice.h"
#include "graph/name_match.h"
#include "onnx/import.h"
#include "onnx/type_support.h"
#include "runtime/executable.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

namespace fs = std::filesystem;

class Converter {
 public:
  Converter(const Specialization& spec, std::span<const std::byte> model, const Assignment& assignment,
            const std::vector<Repair>& repairs, const TypedModelOptions& options)
      : spec_(spec),
        network_(*spec.network),
        repairs_(repairs),
        options_(options),
        exporter_(model, network_, options.external_data_dir),
        frozen_(exporter_.frozen()),
        obstacles_(spec, frozen_),
        integers_(spec) {
    result_.assignment = assignment;
  }

  TypedModel run(const fs::path& path) {
    check_assignment();
    choose_opset();
    keep_what_cannot_be_lowered();
    cast_options();
    const Typing typing = place_casts(spec_, result_.assignment, casts_);
    changes_.typing = typing;
    for (const auto& [id, form] : coded_) result_.assignment.precision[id] = form;
    check_outputs();
    result_.prepared = prepare_normalizations(spec_, result_.assignment, options_.fusion, changes_, integers_);
    prepare_integers();
    store_as_the_file();
    std::ranges::copy(prepare_constants(spec_, repairs_, changes_), std::back_inserter(result_.prepared));
    prepare_bodies();
    describe();
    publish(path);
    return std::move(result_);
  }

 private:
  Precision precision(LayerId layer) const { return result_.assignment.precision[layer]; }

  void check_assignment() {
    bool narrow = false;
    std::size_t untyped = 0;
    for (const auto& [l, place] : obstacles_.places()) {
      const Layer& layer = place.layer();
      if (form_of(precision(l)).opset == 0) {
        result_.assignment.precision[l] = Precision::kFP32;
        ++untyped;
      }
      const bool declared_narrow = std::ranges::any_of(present(layer.outputs), [&](TensorId id) {
        return is_lowerable(place.spec->type(id)) && place.spec->type(id) != DataType::kFloat32;
      });
      if (!place.numeric() || !has_precision(layer)) continue;
      const bool lowered = is_narrow(precision(l)) || !is_float(precision(l));
      narrow |= lowered && !declared_narrow;
    }
    if (untyped > 0)
      log_warning(
          "[convert] {} layer(s) in tf32 are float32 in the file, for which ONNX has no other type: TensorRT takes "
          "tf32 for all products in float32 where its flag TF32 is set, and for none elsewhere",
          untyped);
    for (TensorId t : network_.tensors.ids())
      if (!result_.assignment.pinned.empty() && result_.assignment.pinned[t])
        throw unsupported(
            "[convert] tensor '{}': its type is requested apart from its layer's precision, which a typed file cannot "
            "say; try a precision for the layer instead",
            network_.tensors[t].name);
    if (!narrow && options_.lowers)
      throw unsupported("[convert] {}: expected layers to lower, got none{}", network_.source,
                        why_types_are_fixed(spec_).value_or("; all its float layers are kept"));
  }

  /// The layers that shall compute in a narrow type.
  template <typename Function>
  void for_each_lowered(Function&& function) const {
    for (const auto& [l, place] : obstacles_.places())
      if (is_narrow(precision(l)) && place.numeric() && has_precision(place.layer()))
        function(l, place.layer(), storage_of(precision(l)));
  }

  /// The layers that the file has to have in a narrow type for what they move.
  template <typename Function>
  void for_each_rounding_movement(Function&& function) const {
    for (LayerId l : network_.layers.ids()) {
      const auto& outputs = network_.layers[l].outputs;
      const bool declared =
          std::ranges::any_of(present(outputs), [&](TensorId id) { return spec_.type(id) == DataType::kFloat32; });
      if (declared && may_round_what_it_moves(spec_, result_.assignment, l))
        function(l, network_.layers[l], stored_by_movement(spec_, result_.assignment, l));
    }
  }

  /// -1: not known.
  IdMap<TensorId, int> ranks() const {
    IdMap<TensorId, int> result;
    for (const auto& shape : spec_.inferred.shapes) result.push_back(shape ? static_cast<int>(shape->size()) : -1);
    return result;
  }

  void choose_opset() {
    if (exporter_.inlined() > 0)
      log_info(
          "[convert] {} call(s) of model-local functions are written as their bodies, so that their layers can have "
          "types of their own",
          exporter_.inlined());
    changes_.ranks = ranks();
    result_.opset_before = result_.opset_after = exporter_.opset();
    std::set<int> wanted;
    const auto want = [&](LayerId l, const Layer& layer, DataType type) {
      if (frozen_[l]) return;
      wanted.insert(onnx_accepts_since("", "Cast", result_.opset_before, type));
      wanted.insert(onnx_accepts_since(layer.op->domain, layer.op->name, result_.opset_before, type));
    };
    for_each_lowered(want);
    for_each_rounding_movement(want);
    for (const Precision p : result_.assignment.precision)
      if (!is_float(p)) wanted.insert(form_of(p).opset);
    for (int opset : wanted) {
      if (opset <= result_.opset_before || opset > kNewestOpset) continue;
      const std::string blocker = exporter_.blocks_opset(opset, changes_.ranks);
      if (!blocker.empty()) {
        log_warning(
            "[convert] opset {} would have more operators in the wanted types, but means something else for {}: the "
            "opset stays {}; try exporting the model with opset {}",
            opset, blocker, result_.opset_after, opset);
        break;
      }
      result_.opset_after = opset;
    }
    if (result_.opset_before > kNewestOpset)
      log_warning(
          "[convert] The model is of opset {}, and so is what is written: TensorRT's parser reads up to {}; try "
          "exporting the model with that",
          result_.opset_before, kNewestOpset);
    if (result_.opset_after != result_.opset_before) {
      changes_.opset = result_.opset_after;
      log_info("[convert] The opset is raised from {} to {}, which has the operators in the wanted types",
               result_.opset_before, result_.opset_after);
    }
    obstacles_.set_opset(result_.opset_after);
  }

  /// Says that the layer is in another type than asked for.
  void keep(LayerId id, std::string reason) {
    const Layer& layer = obstacles_.places().at(id).layer();
    result_.kept.push_back({layer.name, std::string(layer.op->name), std::move(reason)});
  }
  /// Says it of a layer that is in this precision instead, and why in its assignment, too.
  void keep_in(LayerId id, Precision precision, std::string reason) {
    result_.assignment.precision[id] = precision;
    if (!result_.assignment.reason.empty()) result_.assignment.reason[id] = reason;
    keep(id, std::move(reason));
  }

  std::string element_obstacle(LayerId id, const std::map<LayerId, LayerId>& multiplied) const {
    const auto in_weights = multiplied.find(id);
    return obstacles_.in_elements(id, result_.assignment, in_weights == multiplied.end() ? kNone : in_weights->second);
  }

  /// Layers that read elements, and that the file cannot have so, take what these store, if they can, and their bias
  /// with them.
  void keep_what_cannot_be_elements() {
    Assignment& assignment = result_.assignment;
    const std::map<LayerId, LayerId> multiplied = std::ranges::all_of(assignment.precision, is_float)
                                                      ? std::map<LayerId, LayerId>()
                                                      : normalizations_in_elements(spec_, assignment, options_.fusion);
    for (LayerId id : network_.layers.ids()) {
      if (is_of_weights(precision(id))) take_coded_weights(id, multiplied);
      if (!is_quantized(precision(id)) || spec_.product_of_bias(id) != kNone) continue;
      std::string reason = element_obstacle(id, multiplied);
      const LayerId bias = spec_.bias[id];
      if (reason.empty() && bias != kNone && is_quantized(precision(bias)) && frozen_[bias])
        reason = "its bias is inside of a model-local function, which stays as it is";
      if (reason.empty()) {
        ++result_.lowered;
        continue;
      }
      for (LayerId each : {id, bias}) {
        if (each == kNone || !is_quantized(precision(each))) continue;
        const DataType type = assignment.int8_output;
        const bool narrow = type != DataType::kFloat32 && obstacles_.in_type(each, type).empty();
        assignment.precision[each] = narrow ? *precision_from_type(type) : Precision::kFP32;
        if (!assignment.reason.empty()) assignment.reason[each] = reason;
      }
      keep(id, std::move(reason));
    }
  }

  /// While casts are placed, the layer is what it reads beside its weights.
  void take_coded_weights(LayerId id, const std::map<LayerId, LayerId>& multiplied) {
    Assignment& assignment = result_.assignment;
    const DataType type = assignment.int8_output;
    const Precision form = precision(id);
    std::string reason = element_obstacle(id, multiplied);
    const std::string narrow = type == DataType::kFloat32 ? std::string() : obstacles_.in_type(id, type);
    assignment.precision[id] = narrow.empty() ? *precision_from_type(type) : Precision::kFP32;
    if (reason.empty()) reason = narrow;
    if (reason.empty()) {
      coded_[id] = form;
      if (type == DataType::kFloat32) ++result_.lowered;  // Those in a narrow type are counted as such.
      return;
    }
    keep_in(id, precision(id), std::move(reason));
  }

  /// Whatever the layer reads as data has this type without being rounded.
  bool holds_operands(const Layer& layer, DataType type) const {
    for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
      const TensorId id = layer.inputs[i];
      if (id == kNone || layer.op->is_parameter(i) || !is_lowerable(spec_.type(id))) continue;
      const bool held = spec_.is_constant(id) ? holds(spec_, id, type) : result_.assignment.storage[id] == type;
      if (!held) return false;
    }
    return true;
  }

  void keep_what_moves_in_no_narrow_type() {
    update_storage(network_, spec_.inferred, result_.assignment);
    for_each_rounding_movement([&](LayerId l, const Layer& layer, DataType type) {
      std::string reason = obstacles_.in_type(l, type);
      if (reason.empty() && combines_elements(layer) && !holds_operands(layer, type))
        reason = fmt::format("it combines elements that {} does not hold", name_of(type));
      if (reason.empty()) return;
      for (TensorId output : present(layer.outputs))
        if (spec_.type(output) == DataType::kFloat32) result_.assignment.asked[output] = DataType::kFloat32;
      keep(l, std::move(reason));
    });
  }

  void keep_what_cannot_be_lowered() {
    Assignment& assignment = result_.assignment;
    keep_what_cannot_be_elements();
    for_each_lowered([&](LayerId l, const Layer& layer, DataType type) {
      std::string reason = obstacles_.in_type(l, type);
      // What the file has in a narrow type stays as it is.
      const Specialization& spec = *obstacles_.places().at(l).spec;
      if (std::ranges::any_of(present(layer.outputs), [&](TensorId id) { return spec.type(id) == type; })) return;
      if (reason.empty()) {
        ++result_.lowered;
        return;
      }
      const DataType own = obstacles_.narrow_type_in_file(l);
      keep_in(l, own == DataType::kUndefined ? Precision::kFP32 : *precision_from_type(own), std::move(reason));
    });
    keep_what_moves_in_no_narrow_type();
    if (result_.kept.empty()) return;
    if (result_.lowered == 0)
      throw unsupported(
          "[convert] {}: no layer can be lowered; layer '{}' ({}): {}; try another type, or a newer opset",
          network_.source, result_.kept.front().layer, result_.kept.front().op, result_.kept.front().reason);
    update_storage(network_, spec_.inferred, assignment);
    std::map<std::string, std::vector<std::string>> by_reason;
    for (const auto& kept : result_.kept) by_reason[kept.reason].push_back(kept.layer);
    for (const auto& [reason, layers] : by_reason)
      log_warning(
          "[convert] {} layer(s) stay in higher precision, since {}: {}", layers.size(), reason,
          fmt::join(layers.begin(),
                    layers.begin() + std::min<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(layers.size()), 8), ", "));
  }

  void cast_options() {
    for (LayerId l : network_.layers.ids()) casts_.frozen.push_back(frozen_[l]);
    casts_.expressible = [this](LayerId id, DataType type) { return obstacles_.in_type(id, type).empty(); };
    casts_.fixed_shapes = obstacles_.fixed_shapes();
    for (const auto& [id, type] : find_io_types(network_, options_.io_types)) {
      const std::string& name = network_.tensor(id).name;
      const bool input = std::ranges::find(network_.inputs, id) != network_.inputs.end();
      if (type != spec_.type(id) &&
          (network_.tensor(id).producer == kNone ? network_.is_output(id) : spec_.is_constant(id)))
        throw unsupported("[convert] --io-types: '{}' is an output that nothing computes; its type cannot be changed",
                          name);
      if (input && type != DataType::kFloat32 && !onnx_accepts("", "Cast", result_.opset_after, type))
        throw unsupported("[convert] --io-types: opset {} has no {}", result_.opset_after, name_of(type));
    }
    const auto types_of = [&](const std::vector<TensorId>& ids) {
      std::vector<DataType> result;
      for (TensorId id : ids) {
        const auto found = options_.io_types.find(network_.tensor(id).name);
        result.push_back(found == options_.io_types.end() ? DataType::kUndefined : found->second);
      }
      return result;
    };
    casts_.inputs = types_of(network_.inputs);
    casts_.outputs = types_of(network_.outputs);
  }

  void check_outputs() const {
    for (std::size_t o = 0; o < network_.outputs.size(); ++o) {
      const TensorId id = network_.outputs[o];
      if (network_.tensor(id).producer == kNone && changes_.typing.written[id] != changes_.typing.outputs[o] &&
          is_lowerable(changes_.typing.written[id]))
        throw unsupported("[convert] '{}' is an input and an output; both need one type", network_.tensor(id).name);
    }
  }

  /// A Cast stores what the file has in a narrow type and float32 layers compute.
  void store_as_the_file() {
    for (LayerId id : network_.layers.ids())
      if (const DataType type = stored_by_file(spec_, result_.assignment, id);
          type != DataType::kUndefined && !frozen_[id])
        changes_.stored.emplace_back(id, type);
  }

  void prepare_integers() {
    const Readings readings = find_element_readers(spec_, result_.assignment);
    for (LayerId id : network_.layers.ids()) {
      if (is_typed_with_integers(result_.assignment, readings, id))
        integers_.add(result_.assignment, readings, id, changes_);
      else if (is_narrow(precision(id)) && network_.layers[id].op->kind == OpKind::kPointwise && !frozen_[id] &&
               readings[id] == Reading::kDequantized)
        changes_.copied.push_back(id);  // It stands alone, and what it reads comes out of a Cast: followers would join.
    }
    for (const auto& [id, form] : coded_)
      integers_.add_weights(result_.assignment, form, changes_.typing.reads[id][1].type, id, changes_);
    if (integers_.constants() > 0)
      result_.prepared.push_back(
          fmt::format("{} constant(s) are quantized, {} per output channel, as the engine quantizes them",
                      integers_.constants(), integers_.per_channel()));
    if (integers_.smallest_scales() > 0)
      result_.prepared.push_back(
          fmt::format("{} of {} scales of blocks would be rounded to 0, and are the smallest that E4M3 has instead",
                      integers_.smallest_scales(), integers_.block_scales()));
  }

  void prepare_bodies() {
    changes_.bodies = type_bodies(spec_, result_.assignment,
                                  {.fusion = options_.fusion, .frozen = frozen_, .expressible = casts_.expressible},
                                  result_.prepared);
  }

  void describe() {
    std::map<std::string, int> counts;
    std::vector<std::string> high;
    for (const auto& [l, place] : obstacles_.places()) {
      if (!place.numeric() || !has_precision(place.layer())) continue;
      ++counts[std::string(name_of(precision(l)))];
      if (precision(l) == Precision::kFP32) high.push_back(place.layer().name);
    }
    std::string text;
    for (const auto& [name, count] : counts) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name);
    changes_.metadata.emplace_back("ulpscope.version", options_.version);
    if (!options_.source.empty()) changes_.metadata.emplace_back("ulpscope.source", options_.source);
    changes_.metadata.emplace_back("ulpscope.precisions", text);
    if (counts.size() > 1 && high.size() <= 1000)
      changes_.metadata.emplace_back("ulpscope.kept_in_fp32", fmt::format("{}", fmt::join(high, "\n")));
    if (!options_.raised.empty())
      changes_.metadata.emplace_back("ulpscope.raised_to_save_time",
                                     fmt::format("{}", fmt::join(options_.raised, "\n")));
    if (!result_.prepared.empty())
      changes_.metadata.emplace_back("ulpscope.prepared", fmt::format("{}", fmt::join(result_.prepared, "\n")));
    log_info("[convert] Layers: {}", text);
    for (const std::string& line : result_.prepared) log_info("[convert] " + line);
    if (changes_.typing.moved.empty()) return;
    std::vector<std::string> names;
    for (const auto& [layer, type] : changes_.typing.moved)
      names.push_back(fmt::format("{} ({})", network_.layer(layer).name, name_of(type)));
    log_info(
        "[convert] {} layer(s) that choose among rounded values have another type in the file than asked for, with the "
        "same bits and fewer casts",
        names.size());
    log_verbose("[convert] They are: {}", fmt::join(names, ", "));
    if (names.size() <= 1000)
      changes_.metadata.emplace_back("ulpscope.other_type_same_bits", fmt::format("{}", fmt::join(names, "\n")));
  }

  void check_sources() const {
    for (const auto& file : network_.files) file->check_unchanged();
  }

  void publish(fs::path path) {
    if (path.filename().empty() || fs::is_directory(path))
      throw invalid_argument("[convert] -o: expected a file, got the folder '{}'", path.string());
    std::error_code ignored;
    if (fs::is_other(path, ignored))
      throw invalid_argument("[convert] -o: expected a file, got the device or pipe '{}'", path.string());
    // A symbolic link keeps pointing where it points: the file behind it is replaced.
    if (fs::is_regular_file(path, ignored)) path = fs::canonical(path);
    const std::string name = path.filename().string();
    const TemporaryFolder scratch((path.has_parent_path() ? path.parent_path() : fs::path(".")) / ("." + name + "."));
    try {
      result_.file = exporter_.write(
          changes_, scratch.path(), name,
          options_.largest_model_file == 0 ? std::nullopt : std::optional<std::uint64_t>(options_.largest_model_file));
      if (options_.verify)
        result_.checked = prove_equal_bits(network_, result_.assignment, scratch.path() / name, options_,
                                           !absorbs_any(changes_), result_.outputs);
      if (!options_.io_types.empty()) result_.outputs.clear();  // Inputs were rounded first.
    } catch (...) {
      check_sources();  // Whatever went wrong then has its reason there.
      throw;
    }
    check_sources();
    if (options_.interrupt) options_.interrupt();
    if (options_.check) options_.check(scratch.path() / name, result_.file);
    std::error_code failed;
    const fs::path data = path.string() + ".data";
    if (result_.file.external) fs::rename(scratch.path() / (name + ".data"), data, failed);
    if (!failed) fs::rename(scratch.path() / name, path, failed);
    if (failed) throw error_of(ErrorCode::kIo, "[convert] {}: cannot replace it: {}", path.string(), failed.message());
  }

  const Specialization& spec_;
  const Network& network_;
  const std::vector<Repair>& repairs_;
  const TypedModelOptions& options_;
  TypedExporter exporter_;
  IdMap<LayerId, char> frozen_;
  Obstacles obstacles_;
  IntegerExport integers_;
  std::map<LayerId, Precision> coded_;  ///< Layers whose weights alone are stored as elements.
  CastOptions casts_;
  TypedChanges changes_;
  TypedModel result_;
};

}  // namespace

TypedModel write_typed_model(const Specialization& spec, std::span<const std::byte> model, const Assignment& assignment,
                             const std::vector<Repair>& repairs, const TypedModelOptions& options,
                             const fs::path& path) {
  return Converter(spec, model, assignment, repairs, options).run(path);
}

}  // namespace ulpscope
