#include "convert/relax.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "convert/casts.h"
#include "engine/assign.h"
#include "precision/search.h"
#include "precision/trials.h"
#include "ulpscope/log.h"

namespace ulpscope {

std::vector<LayerId> find_layers_to_raise(const std::shared_ptr<const Network>& network, const BuildOptions& build,
                                          const std::vector<TensorMap>& samples, const Specialization& spec,
                                          const LayerTypes& requested, const Criterion& criterion,
                                          std::vector<TensorMap> golden, bool infinities_equal) {
  const Assignment before = assign_precisions(spec, build, &requested);
  IdMap<LayerId, char> may_raise(network->layers.size());
  for (LayerId l : may_raise.ids()) may_raise[l] = !requested[l];
  const std::vector<LayerId> raised = raised_to_save_casts(spec, before, {}, may_raise, find_target(build.target));
  if (raised.empty()) {
    log_info("[convert] --relax: no layer saves more as casts in float32 than it costs there");
    return {};
  }
  auto completed = requested;
  std::vector<std::string> names;
  for (const LayerId id : raised) {
    completed[id] = DataType::kFloat32;
    names.push_back(network->layer(id).name);
  }
  const Assignment after = assign_precisions(spec, build, &completed);
  Trials trials(network, build, samples);
  if (golden.empty())
    golden = trials.run(trials.full_precision(), /*keep=*/false);
  else
    check_golden_of(golden, criterion, infinities_equal, std::ssize(samples));
  const Judgement judged = criterion.judge(golden, trials.run(after, /*keep=*/false));
  const std::string verdict = fmt::format("{:.4g} of the tolerance is used ({}, {} sample(s))", judged.used,
                                          criterion.description(), samples.size());
  if (!judged.passed()) {
    log_warning(fmt::format("[convert] --relax: with {} layer(s) raised, {}{}{}: they stay as they are", raised.size(),
                            verdict, judged.problem.empty() ? "" : ", ", judged.problem));
    return {};
  }
  log_info(fmt::format("[convert] --relax: {} layer(s) raised to float32, {} cast(s) instead of {}; {}: {}",
                       raised.size(), place_casts(spec, after, {}).casts, place_casts(spec, before, {}).casts, verdict,
                       fmt::join(names, ", ")));
  return raised;
}

void add_raised_layers(const Network& network, const std::vector<LayerId>& raised, AnswerFile& file) {
  std::vector<std::string> words;
  for (const LayerId id : raised) {
    const Layer& layer = network.layer(id);
    file.answer.kept.push_back(kept_layer(layer, Precision::kFP32, ReasonKind::kRequested,
                                          "raised by convert --relax, which saves casts beside its neighbors"));
    words.push_back(layer.name + ":float32");
  }
  if (words.empty()) return;
  file.answer.message += fmt::format("; {} more kept, which saves casts", words.size());
  auto& options = file.run_options;
  auto place = std::ranges::find(options, "--layer-precisions");
  if (place == options.end()) place = options.insert(options.end(), "--layer-precisions");
  options.insert(place + 1, words.begin(), words.end());
}

}  // namespace ulpscope
