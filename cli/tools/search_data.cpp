#include "tools/search_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compare/data_loader.h"
#include "compare/json_files.h"
#include "precision/fingerprint.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

constexpr int kGeneratedSamples = 4;
/// Every so many samples one is held out, where nothing else is.
constexpr std::size_t kHoldOutEvery = 4;

std::vector<TensorMap> load_held_out(const std::vector<std::string>& paths, const Network& network) {
  std::vector<InputBinding> bindings;
  for (const TensorId id : network.inputs) {
    const TensorInfo& info = network.tensor(id);
    bindings.push_back({info.name, info.type, info.shape.value_or(Shape{})});
  }
  std::vector<TensorMap> result;
  for (const std::string& path : paths) {
    log_info("Loading held-out input data from " + path);
    for (const TensorMap& sample : load_inputs(path)) result.push_back(adapt_inputs(sample, bindings));
  }
  if (result.empty())
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("[data] --hold-out {}: expected inputs of at least one iteration, got none",
                            fmt::join(paths, " ")));
  return result;
}

/// Moves every fourth element of `all` to the result.
std::vector<TensorMap> take_every_fourth(std::vector<TensorMap>& all) {
  std::vector<TensorMap> kept, taken;
  for (std::size_t i = 0; i < all.size(); ++i)
    (i % kHoldOutEvery == kHoldOutEvery - 1 ? taken : kept).push_back(std::move(all[i]));
  all = std::move(kept);
  return taken;
}

/// Golden results for the samples, and for the held-out ones if there are as many more.
void add_golden(const std::string& path, GoldenResults golden, std::size_t num_own, SearchData& data) {
  const std::size_t count = golden.iterations.size(), with_held_out = num_own + data.held_out.size();
  if (count != num_own && count != with_held_out)
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("[golden] '{}': expected results of {} iteration(s), one per sample{}, got {}; try saving "
                    "them again with the same inputs",
                    path, num_own,
                    with_held_out == num_own ? "" : fmt::format(" (or {} with the held-out ones)", with_held_out),
                    count));
  data.golden = std::move(golden.iterations);
  if (count == num_own) return;
  data.held_out_golden.assign(std::make_move_iterator(data.golden.begin() + static_cast<std::ptrdiff_t>(num_own)),
                              std::make_move_iterator(data.golden.end()));
  data.golden.resize(num_own);
}

std::string layer_names(const Network& network, const std::vector<LayerId>& layers) {
  std::vector<std::string> names;
  for (const LayerId id : layers) names.push_back(network.layer(id).name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string hash_of_scales(const std::map<std::string, float>& scales) {
  std::string text;
  for (const auto& [name, scale] : scales) text += fmt::format("{}={} ", name, scale);
  return scales.empty() ? std::string() : hash_of_text(text);
}

}  // namespace

SearchData make_search_data(const PrecisionOptions& options, const SearchArgs& args, PrecisionSetup& setup) {
  SearchData data;
  data.network = setup.network;
  data.weights = setup.weights;
  data.samples = make_samples(options, setup, kGeneratedSamples);
  if (options.data.generates())
    log_warning(
        "The samples are random numbers, since no inputs were given. The answer holds for such numbers and says little "
        "about real data; try --load-inputs or --data-loader-script");
  const std::size_t num_own = data.samples.size();
  const bool split = args.hold_out.empty() && !args.no_hold_out && num_own >= kHoldOutEvery;
  if (!args.hold_out.empty()) data.held_out = load_held_out(args.hold_out, *setup.network);
  if (options.golden) add_golden(*options.golden, std::move(*setup.golden), num_own, data);
  if (split) {
    data.held_out = take_every_fourth(data.samples);
    data.held_out_golden = take_every_fourth(data.golden);
  }
  if (data.held_out.empty())
    log_warning(fmt::format(
        "No sample is held out{}: nothing will show whether the answer holds on other data; try more samples "
        "or --hold-out FILE",
        args.no_hold_out ? "" : fmt::format(", since there are fewer than {}", kHoldOutEvery)));
  else
    log_info(fmt::format("Searching on {} sample(s), checking the answer on {} held-out one(s){}", data.samples.size(),
                         data.held_out.size(), split ? " (every fourth; --hold-out FILE names others)" : ""));
  return data;
}

Fingerprint make_fingerprint(const PrecisionOptions& options, const CriterionArgs& criterion_args,
                             const SearchData& data, const Criterion& criterion, const SearchOptions& search) {
  const BuildOptions& build = search.build;
  std::string enabled;
  for (const auto& [on, name] : {std::pair{build.tf32, "tf32"},
                                 {build.fp16, "fp16"},
                                 {build.bf16, "bf16"},
                                 {build.fp8, "fp8"},
                                 {build.int8, "int8"}})
    if (on) enabled += fmt::format("{}{}", enabled.empty() ? "" : " ", name);
  std::vector<std::string_view> ladder;
  for (const Precision precision : search.ladder) ladder.push_back(name_of(precision));
  constexpr const char* kFusion[] = {"none", "pointwise", "full"};
  const auto yes_or_no = [](bool value) { return std::string(value ? "yes" : "no"); };
  Fingerprint result = {
      {"program", ULPSCOPE_VERSION},
      {"model", hash_of_file(options.model.path())},
      {"network", hash_of_network(*data.network)},
      {"samples", hash_of_samples(data.samples)},
      {"held-out samples", hash_of_samples(data.held_out)},
      {"golden results", hash_of_samples(data.golden)},
      {"golden results of held-out samples", hash_of_samples(data.held_out_golden)},
      {"criterion", criterion.description()},
      {"--error-quantile", fmt::format("{}", fmt::join(options.comparison.error_quantile, " "))},
      {"--infinities-compare-equal", yes_or_no(search.infinities_equal)},
      {"precisions", enabled},
      {"--precision", fmt::format("{}", fmt::join(ladder, " "))},
      {"--fusion", kFusion[static_cast<std::size_t>(build.fusion)]},
      {"--target", build.target},
      {"--cost-model", yes_or_no(!build.assume_lowest)},
      {"--objective", search.objective == Objective::kCheapest ? "cheapest" : "smallest"},
      {"--margin", fmt::format("{}", search.margin)},
      {"--no-repair", yes_or_no(!search.repair)},
      {"--keep", layer_names(*data.network, search.keep)},
      {"--lower", layer_names(*data.network, search.lower)},
      {"int8 scales", hash_of_scales(build.scales)},
  };
  if (criterion_args.metric_script)
    result.emplace_back("metric script", hash_of_file(ScriptName::parse(*criterion_args.metric_script, "metric").path));
  return result;
}

}  // namespace ulpscope::cli
