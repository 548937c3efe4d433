#include "args/trt_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "args/value_checks.h"
#include "backend/backend.h"
#include "compare/name_values.h"
#include "core/file.h"
#include "core/messages.h"
#include "core/parallel.h"
#include "engine/option_names.h"
#include "engine/tactics.h"
#include "engine/target_formats.h"
#include "engine/timing_cache.h"
#include "runtime/default_target.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

constexpr char kNoMeaning[] = "means nothing to this engine";

void declare_ignored(OptionTable& table) {
  const auto flag = [&](std::string name, std::string help) -> Option& {
    return table.words({std::move(name)}, Arity::kNone, "", std::move(help)).ignore(kNoMeaning);
  };
  const auto value = [&](std::string name, std::string metavar, std::string help) -> Option& {
    return table.words({std::move(name)}, Arity::kOne, std::move(metavar), std::move(help)).ignore(kNoMeaning);
  };
  flag("--sparse-weights", "Optimize for sparse weights");
  flag("--version-compatible", "Engine for later releases too");
  flag("--exclude-lean-runtime", "For --version-compatible");
  value("--regression-cutoff", "C", "For IInt8LegacyCalibrator").ignore("the quantile alone decides: see --quantile");
  flag("--error-on-timing-cache-miss", "For --load-timing-cache");
  flag("--disable-compilation-cache", "Do not cache compiled code");
  table.words({"--tactic-sources"}, Arity::kAny, "NAME", "Libraries to take tactics from")
      .ignore(kNoMeaning)
      .verify(names_check({"cublas", "cublas_lt", "cudnn", "edge_mask_convolutions", "jit_convolutions"}));
  table.ours();  // Polygraphy's `run` lacks it.
  value("--engine-capability", "NAME", "Restrictions on the engine")
      .verify(names_check({"standard", "safety", "dla_standalone"}));
  flag("--trt-safety-restricted", "Check for the safety subset");
  flag("--refittable", "Engine whose weights can be replaced");
  flag("--strip-plan", "Engine without its weights");
  flag("--use-dla", "Run on the deep learning accelerator");
  flag("--allow-gpu-fallback", "For --use-dla");
  table.words({"--pool-limit", "--memory-pool-limit"}, Arity::kSome, "POOL:BYTES", "Memory limits")
      .ignore(kNoMeaning)
      .verify(pools_check({"workspace", "dla_managed_sram", "dla_local_dram", "dla_global_dram", "tactic_dram",
                           "tactic_shared_memory"}));
  table.ours();
  value("--workspace", "BYTES", "Memory limit").verify(bytes_check());
  table.words({"--preview-features"}, Arity::kAny, "NAME", "Preview features")
      .ignore(kNoMeaning)
      .verify(names_check({}));
  value("--builder-optimization-level", "N", "Time to spend on building").whole_numbers();
  value("--hardware-compatibility-level", "LEVEL", "GPUs that the engine runs on")
      .verify(names_check({"none", "ampere_plus", "same_compute_capability"}));
  value("--max-aux-streams", "N", "Auxiliary streams").whole_numbers();
  table.words({"--quantization-flags"}, Arity::kAny, "NAME", "Quantization flags")
      .ignore(kNoMeaning)
      .verify(names_check({"calibrate_before_fusion"}));
  value("--profiling-verbosity", "LEVEL", "Annotations in the engine")
      .verify(names_check({"none", "layer_names_only", "detailed"}));
  flag("--weight-streaming", "Engine whose weights are streamed");
  value("--runtime-platform", "NAME", "Platform that the engine runs on")
      .verify(names_check({"same_as_build", "windows_amd64"}));
  flag("--direct-io", "No reformats at inputs and outputs");
  value("--tiling-optimization-level", "LEVEL", "Time to spend on tiling")
      .verify(names_check({"none", "fast", "moderate", "full"}));
}

/// Null, with a warning, where there is nothing to take.
std::shared_ptr<const TimingCache> read_timing_cache(const std::string& path, const std::string& backend) {
  if (!find_backend(backend).measures()) {
    log_once(LogLevel::kWarning,
             "[options] --load-timing-cache has no effect: the backend '{}' measures no tactics, times come from the "
             "target's model",
             backend);
    return nullptr;
  }
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    log_once(LogLevel::kWarning, "[options] --load-timing-cache {}: there is no such file, tactics are measured", path);
    return nullptr;
  }
  try {
    TimingCache cache = timing_cache_from_json(read_file(path));
    cache.source = path;
    return std::make_shared<const TimingCache>(std::move(cache));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidFile) throw;
    log_once(LogLevel::kWarning, "[options] --load-timing-cache {} is ignored: {}", path, error.what());
    return nullptr;
  }
}

using NamedShapes = std::vector<std::pair<std::string, Shape>>;

Shape find_shape(const NamedShapes& shapes, const std::string& name) {
  const auto found = std::ranges::find(shapes, name, &std::pair<std::string, Shape>::first);
  return found == shapes.end() ? Shape{} : found->second;
}

/// As Polygraphy does: what is not given is taken from what is.
Profile profile_of(std::size_t number, const NamedShapes& min, const NamedShapes& opt, const NamedShapes& max,
                   const NamedShapes& given) {
  Profile profile;
  for (const auto* list : {&min, &opt, &max, &given}) {
    for (const auto& [name, shape] : *list) {
      const auto pick = [&input = name](std::initializer_list<const NamedShapes*> order) {
        for (const NamedShapes* candidates : order)
          if (const Shape found = find_shape(*candidates, input); !found.empty()) return found;
        return Shape{};
      };
      const Shape& least = profile.min[name] = pick({&min, &opt, &max, &given});
      const Shape& usual = profile.opt[name] = pick({&opt, &max, &min, &given});
      const Shape& most = profile.max[name] = pick({&max, &opt, &min, &given});
      for (std::size_t d = 0; d < least.size(); ++d)
        if (most.size() != least.size() || usual.size() != least.size() || least[d] > usual[d] || usual[d] > most[d])
          throw invalid_argument("[options] profile {} of input '{}': expected min <= opt <= max, got {}, {} and {}",
                                 number, name, to_option_string(least), to_option_string(usual),
                                 to_option_string(most));
    }
  }
  return profile;
}

}  // namespace

void TrtConfigArgs::declare_profiles(OptionTable& table) {
  table.repeated({"--trt-min-shapes"}, min_shapes, "NAME:[D0,D1,..]",
                 "Smallest input shapes; once per profile. Default: the shapes of the inputs");
  table.repeated({"--trt-opt-shapes"}, opt_shapes, "NAME:[D0,D1,..]", "Input shapes that the engine is tuned for");
  table.repeated({"--trt-max-shapes"}, max_shapes, "NAME:[D0,D1,..]", "Largest input shapes");
}

std::string TrtConfigArgs::backend_name() const {
  return std::string(find_backend(engine_backend.value_or("auto")).name());
}

void TrtConfigArgs::declare_backend(OptionTable& table) {
  table.ours()
      .value(
          {"--backend"}, engine_backend, "NAME",
          "What carries out the engine's kernels: cpu (default, also as auto), cuda, an NVIDIA GPU of sm_80 or later, "
          "or plain, the simplest code that follows the same descriptions")
      .choose({"auto", "cpu", "cuda", "plain"});
}

void TrtConfigArgs::declare_memory_limit(OptionTable& table) {
  table.ours().value({"--memory-limit"}, memory_limit, "BYTES",
                     "Hold at most so many bytes of weights, activations and outputs, as far as one step of one sample "
                     "allows (512M, 2G); less is slower. Results do not depend on it");
}

void TrtConfigArgs::declare_builder(OptionTable& table) {
  table.value({"--save-tactics", "--save-tactic-replay"}, save_tactics, "FILE", "Write the chosen tactics (JSON)")
      .exclude("--load-tactics");
  table.value({"--load-tactics", "--load-tactic-replay"}, load_tactics, "FILE", "Take the tactics of this file")
      .exclude("--save-tactics");
  table.value({"--save-timing-cache"}, save_timing_cache, "FILE",
              "Add the estimated times of the engine's groups to this file (JSON), and what --backend cuda measured");
  table.ours().value({"--timing-cache"}, save_timing_cache, "FILE", "Older form of --save-timing-cache");
  table.value({"--load-timing-cache"}, load_timing_cache, "FILE",
              "Measured times of tactics, for --backend cuda: what is in this file is not measured again. A file that "
              "is missing, or of something else, is ignored with a warning");
  table.value({"--trt-config-script"}, config_script, "FILE.py[:FUNC]",
              "Python function `load_config(builder, network)` "
              "that makes the configuration; the other options of this group are ignored then, but for our own");
  table.value({"--trt-config-postprocess-script", "--trt-cpps"}, config_postprocess_script, "FILE.py[:FUNC]",
              "Python function `postprocess_config(builder, network, config)` that edits the configuration");
  table.ours();
  table.words({"--trt-config-func-name"}, Arity::kOne, "FUNC", "Older form of --trt-config-script FILE.py:FUNC")
      .names_function_of("--trt-config-script");
  declare_ignored(table);
}

void TrtConfigArgs::declare_elements(OptionTable& table) {
  for (const LayerForm& form : layer_forms()) {
    // The others are said by --weights-only and --block-size.
    if (form.is_float() || form.flag().find(' ') != std::string::npos) continue;
    const bool blocks = form.weight.encoding->granularity == Granularity::kBlock;
    if (blocks) table.ours();  // Builders of TensorRT have no flag for them.
    table.flag({form.flag()}, allow(form.precision),
               fmt::format("Allow {}{}", blocks ? form.name : form.request(),
                           form.is_of_weights() ? ", for constant weights of matrix products"
                           : form.products_only ? ", for products: see docs/numerics.md for which"
                                                : ""));
  }
  table.ours().flag({"--weights-only"}, weights_only,
                    "--int8, --fp8, --mxfp8, --nvfp4 and --mxfp4 are for constant weights alone; activations have the "
                    "next higher float that is allowed");
  table.ours().value({"--block-size"}, block_size, "N",
                     "Weights that share a scale with --int4: 128 (default; 64 where a sum is no multiple), 64 or 32, "
                     "which TensorRT does not have");
  table.ours().list({"--formats"}, formats, "NAME",
                    "Allow these by the names that answers have, where no flag says it: int4-64, int8-weights, "
                    "nvfp4-weights, ...");
  table.ours().value(
      {"--weight-scales"}, weight_scales, "RULE",
      "What the scales of weights in int4 and nvfp4 are made for: amax, the largest weight of a block; "
      "least-squares, the least error of the block; activations, the same with each error times the mean "
      "square of what the weight is multiplied by on the calibration inputs (default where there are "
      "inputs, else amax); or an answer (FILE.json): as there");
  table.ours()
      .value({"--mx-scale-rule"}, mx_scale_rule, "RULE",
             "How the scales of mxfp8 and mxfp4 become powers of two: ceil, up (default), or ocp, down, so that large "
             "values may saturate")
      .choose({"ceil", "ocp"});
  table.ours().list({"--calibration-inputs"}, calibration_inputs, "FILE",
                    "Files of inputs that ranges and mean squares of activations come from (default: the inputs, or "
                    "the samples of the search)");
}

void TrtConfigArgs::declare(OptionTable& table, const std::string& default_constraints) {
  table.section("TensorRT Builder Configuration", "what the engine is built for.");
  declare_profiles(table);
  for (const LayerForm& form : layer_forms())
    if (form.is_float() && form.precision != Precision::kFP32)
      table.flag({form.flag()}, allow(form.precision),
                 fmt::format("Allow {}{}", form.request(),
                             form.precision == Precision::kFP16
                                 ? ". What takes less time on the target is taken: see --assume-lowest"
                                 : ""));
  declare_elements(table);
  table
      .value(
          {"--precision-constraints"}, constraints, "MODE",
          "Whether requested layer precisions hold. none: "
          "they have no effect; prefer: where possible, with a warning where not; obey: or the build fails. Default: " +
              default_constraints)
      .choose({"prefer", "obey", "none"});
  table.ours()
      .flag({"--obey-precision-constraints"}, obey, "Older form of --precision-constraints obey")
      .exclude("--precision-constraints");
  table.ours()
      .flag({"--strict-types"}, strict, "Older form of --precision-constraints obey")
      .exclude("--precision-constraints");
  table.value({"--calibration-cache"}, calibration_cache, "FILE",
              "Scales for int8. Read if the file is there and not empty; else made by calibration with the inputs, and "
              "written");
  table.value({"--calib-base-cls", "--calibration-base-class"}, calib_base_cls, "NAME",
              "How int8 is calibrated: IInt8EntropyCalibrator2 (default; short: entropy), IInt8EntropyCalibrator, "
              "IInt8MinMaxCalibrator (max) or IInt8LegacyCalibrator (percentile)");
  table.value({"--quantile"}, quantile, "Q",
              "For IInt8LegacyCalibrator: the quantile of the magnitudes that is the largest (default: 0.99999)");
  declare_builder(table);

  table.section("Ulpscope Engine", "what ulpscope has beyond TensorRT.");
  table.ours()
      .value({"--fusion"}, fusion, "LEVEL",
             "Which neighboring layers of one precision become one group, in which nothing is rounded (default: full)")
      .choose({"none", "pointwise", "full"});
  declare_accumulation(table);
  declare_attention(table);
  table.ours().flag({"--assume-lowest"}, assume_lowest,
                    "Skip the costs: layers without a constraint take the lowest allowed precision");
  declare_backend(table);
  table.ours().value({"--target"}, target, "GPU",
                     "The GPU whose costs decide: l4, t4, orin, rtx4090, l40s, a100, h100, h200 or b200 (default: the "
                     "GPU of --backend cuda, else l4), or a file of `target measure` (FILE.json); for `precision "
                     "search` also measured: this machine, on --backend, measured with the model before the search");
  table.ours().value({"--threads"}, threads, "N", "Threads (default: one per core). Results do not depend on it");
  table.ours()
      .value({"--trt-backend"}, backend, "NAME",
             "What --trt means: ulpscope (default), or the real tensorrt, through its Python package")
      .choose({"ulpscope", "tensorrt"});
}

void TrtConfigArgs::declare_accumulation(OptionTable& table) {
  table.ours()
      .value(
          {"--accumulation"}, accumulation, "HOW",
          "What products of fp8, fp16 and bf16 are added up in: fp32 (default), or bit for bit as a Hopper GPU does, "
          "which is slow: hopper, or hopper-fast with the fast accumulation of fp8")
      .choose({"fp32", "hopper", "hopper-fast"});
}

void TrtConfigArgs::declare_attention(OptionTable& table) {
  table.ours()
      .value({"--attention"}, attention, "HOW",
             "What the second product of an attention in one group reads, rounded to its type: normalized (default), "
             "its probabilities; or as flash attention on GPUs does: flash, exponentials, by the sum of which the "
             "results are divided")
      .choose({"normalized", "flash"});
}

std::size_t TrtConfigArgs::memory_bytes() const {
  return memory_limit ? parse_byte_count("--memory-limit", *memory_limit, 1) : 0;
}

int TrtConfigArgs::num_threads() const { return checked_threads(threads.value_or(0), "[options] --threads"); }

PrecisionSet TrtConfigArgs::precisions() const { return with_smaller_blocks(named_precisions()); }

PrecisionSet TrtConfigArgs::named_precisions() const {
  PrecisionSet result;
  for (const LayerForm& form : layer_forms())
    if (allowed[static_cast<std::size_t>(form.precision)])
      result.set(weights_only ? weights_alone(form.precision) : form.precision);
  for (const std::string& name : formats)
    result.set(
        precision_from_name(name, "[options] --formats", [](const LayerForm& form) { return !form.is_float(); }));
  if (weights_only && !result.has_elements())
    throw invalid_argument(
        "[options] --weights-only: expected a format for weights beside it; try --int4, --int8, --fp8, --nvfp4, "
        "--mxfp8 or --mxfp4");
  if (!block_size) return result;
  if (!result.has(Precision::kINT4))
    throw invalid_argument(
        "[options] --block-size: expected --int4 beside it; the other formats have blocks of a fixed size");
  result.set(Precision::kINT4, false);
  const std::optional<Precision> chosen = int4_in_blocks(*block_size);
  if (!chosen) throw invalid_argument("[options] --block-size: expected 128, 64 or 32, got {}", *block_size);
  if (*block_size == 32)
    log_once(LogLevel::kWarning,
             "[options] --block-size 32: TensorRT has int4 blocks of 64 and 128; ONNX Runtime runs these");
  result.set(*chosen);
  return result;
}

BuildOptions TrtConfigArgs::build_options(const ModelArgs& model) const {
  BuildOptions options;
  options.enabled = precisions();
  if (constraints == "prefer") options.constraints = ConstraintMode::kPrefer;
  if (constraints == "obey" || obey || strict) options.constraints = ConstraintMode::kObey;
  if (fusion) options.fusion = fusion_from_name(*fusion, "[options] --fusion");
  if (accumulation) options.accumulation = accumulation_from_name(*accumulation, "[options] --accumulation");
  if (attention) options.attention = attention_from_name(*attention, "[options] --attention");
  options.backend = backend_name();
  options.assume_lowest = assume_lowest;
  options.strongly_typed = strongly_typed;
  if (mx_scale_rule) {
    if (!have_mx_scales(options.enabled) && !strongly_typed && !config_script && !config_postprocess_script)
      throw invalid_argument(
          "[options] --mx-scale-rule: expected --mxfp8 or --mxfp4 beside it; other formats have no such scales");
    options.scale_choice.mx = mx_scale_rule_from_name(*mx_scale_rule, "[options] --mx-scale-rule");
  }
  options.target = target ? *target : default_target(options.backend);
  if (target) refuse_lacking_formats(*target, options.enabled, "[options] --target");
  options.threads = num_threads();
  options.memory_limit = memory_bytes();
  if (calibration_cache && !precisions().needs_calibration() && !config_script && !config_postprocess_script)
    throw invalid_argument(
        "[options] --calibration-cache: expected --int8 too; a cache of scales has no effect without it");

  const std::size_t count = std::max({min_shapes.size(), opt_shapes.size(), max_shapes.size()});
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = [i](const Repeated& all, const char* option) {
      return i < all.size() ? parse_shapes(option, all[i]) : NamedShapes{};
    };
    options.profiles.push_back(profile_of(i, at(min_shapes, "--trt-min-shapes"), at(opt_shapes, "--trt-opt-shapes"),
                                          at(max_shapes, "--trt-max-shapes"), model.shapes()));
  }
  if (load_tactics) {
    const std::string json = read_file(*load_tactics);
    if (json.empty())
      throw invalid_file(
          "[tactics] '{}': expected a tactic replay (JSON), got an empty file; try writing it again with "
          "--save-tactics",
          *load_tactics);
    options.tactic_replay = std::make_shared<const TacticReplay>(tactics_from_json(json));
  }
  if (load_timing_cache) options.timing_cache = read_timing_cache(*load_timing_cache, backend_name());
  return options;
}

}  // namespace ulpscope::cli
