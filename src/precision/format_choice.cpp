#include "precision/format_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <type_traits>
#include <utility>

#include "core/messages.h"
#include "precision/predictor.h"
#include "precision/trials.h"

namespace ulpscope {
namespace {

/// The squares of effects, by layer and format.
using Squares = std::map<LayerId, std::map<Precision, double>>;

/// Those that are enabled, each with what stands in for it.
std::vector<Precision> formats_of(PrecisionSet enabled) {
  std::vector<Precision> formats = enabled.members();
  std::erase_if(formats, [&](Precision p) { return is_float(p) || enabled.larger_blocks(p); });
  return formats;
}

BuildOptions with_one_format(const BuildOptions& options, Precision format) {
  BuildOptions result = options;
  for (const Precision each : options.enabled.members())
    if (!is_float(each)) result.enabled.set(each, false);
  result.enabled.set(format);
  result.enabled = with_smaller_blocks(result.enabled);
  return result;
}

/// What layers may choose among.
struct Offers {
  std::vector<std::vector<LayerIn>> layers;  ///< Per format: what a search by it alone might raise, as it is there.
  std::map<LayerId, Precision> floats;       ///< Those without a choice, in the floats that they stay in.
};

/// Beside a format of products, one that other layers have, too, is a choice for products alone: a Mul, a pool or a
/// depthwise convolution in int8 errs much, and saves little where its neighbors are floats.
Offers offers_of(const SearchData& data, const SearchTask& task, const Requests& requested,
                 const std::vector<Precision>& formats) {
  Offers offers;
  std::set<LayerId> products;
  std::map<LayerId, Precision> alone;  // What lacks such a format runs in.
  for (const Precision format : formats) {
    Trials trials(data.network, with_one_format(task.build, format), data.samples, data.weights);
    const Assignment low = trials.assign(requested);
    std::vector<LayerIn>& layers = offers.layers.emplace_back();
    for (const LayerId id : search_candidates(*trials.specialization(), low, task))
      if (!is_float(low.precision[id])) layers.push_back({id, low.precision[id]});
    if (!form_of(format).products_only) continue;
    for (const LayerIn& each : layers) products.insert(each.layer);
    for (const LayerId id : data.network->all_layer_ids())
      if (is_float(low.precision[id])) alone.emplace(id, low.precision[id]);
  }
  const auto has_no_choice = [&](const LayerIn& each) {
    return !products.contains(each.layer) && alone.contains(each.layer) &&
           std::ranges::find(task.lower, each.layer) == task.lower.end();
  };
  for (std::vector<LayerIn>& layers : offers.layers) {
    for (const LayerIn& each : layers)
      if (has_no_choice(each)) offers.floats[each.layer] = alone.at(each.layer);
    std::erase_if(layers, has_no_choice);
  }
  return offers;
}

/// The part of a sample's effects that is of the layers from number `begin` on.
SampleEffects part_of(const SampleEffects& all, std::size_t begin, std::size_t count) {
  const auto part = [&](const auto& values) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin);
    return std::decay_t<decltype(values)>(first, first + static_cast<std::ptrdiff_t>(count));
  };
  return {part(all.mean_squares), part(all.overflows), part(all.incomplete)};
}

/// The formats share the exact values and the gradients of each sample; what samples say together is of each by itself.
Squares find_squares(const SearchData& data, const Criterion& criterion, const SearchTask& task,
                     const Requests& requested, const Offers& offers) {
  std::vector<LayerIn> all;
  for (const std::vector<LayerIn>& layers : offers.layers) all.insert(all.end(), layers.begin(), layers.end());
  Squares squares;
  if (all.empty()) return squares;
  Trials trials(data.network, task.build, data.samples, data.weights);
  std::vector<TensorMap> golden = data.golden;
  if (golden.empty()) golden = trials.run(trials.full_precision(), /*keep=*/false);
  const std::vector<SampleEffects> samples =
      effects_of_samples(trials, trials.assign(requested), all, criterion, golden, task.predictor);
  std::size_t begin = 0;
  for (const std::vector<LayerIn>& layers : offers.layers) {
    const std::size_t count = layers.size();
    if (count == 0) continue;
    std::vector<LayerId> candidates;
    for (std::size_t i = begin; i < begin + count; ++i) candidates.push_back(all[i].layer);
    std::vector<SampleEffects> parts;
    for (const SampleEffects& each : samples) parts.push_back(part_of(each, begin, count));
    const std::vector<LayerEffect> effects = combine_effects(candidates, std::move(parts), task.predictor.projections);
    for (std::size_t i = 0; i < count; ++i)
      squares[effects[i].layer][all[begin + i].precision] = effects[i].effect * effects[i].effect;
    begin += count;
  }
  return squares;
}

/// Of all layers of a group together; a format that one of them lacks is none of the group's.
std::map<Precision, double> sums_of(const std::vector<LayerId>& group, const Squares& squares) {
  std::map<Precision, double> sums = squares.at(group.front());
  for (std::size_t i = 1; i < group.size(); ++i) {
    const auto& more = squares.at(group[i]);
    std::erase_if(sums, [&](const auto& each) { return !more.contains(each.first); });
    for (auto& [format, sum] : sums) sum += more.at(format);
  }
  return sums;
}

Precision best_of(const std::map<Precision, double>& sums) {
  const auto bytes = [](Precision p) { return form_of(p).bytes(form_of(p).weight); };
  const auto better = [&](const auto& a, const auto& b) {
    return std::pair(a.second, bytes(a.first)) < std::pair(b.second, bytes(b.first));
  };
  return std::min_element(sums.begin(), sums.end(), better)->first;
}

}  // namespace

std::map<LayerId, Precision> choose_formats(const SearchData& data, const Criterion& criterion,
                                            const SearchTask& task) {
  const std::vector<Precision> formats = formats_of(task.build.enabled);
  if (formats.size() < 2) return {};
  Requests requested = own_requests(*data.network);
  for (const LayerId id : task.keep) requested[id] = task.ladder.back();
  const Offers offers = offers_of(data, task, requested, formats);
  const Squares squares = find_squares(data, criterion, task, requested, offers);
  std::map<TensorId, std::vector<LayerId>> readers;
  for (const auto& [id, effects] : squares)
    if (data.network->layer(id).op->kind == OpKind::kContraction)
      readers[data.network->layer(id).inputs[0]].push_back(id);
  std::map<LayerId, Precision> result;
  for (const auto& [tensor, group] : readers)
    if (const auto sums = sums_of(group, squares); !sums.empty())
      for (const LayerId id : group) result[id] = best_of(sums);
  std::map<std::string_view, std::size_t> counts;
  for (const auto& [id, effects] : squares) {
    if (!result.contains(id)) result[id] = best_of(effects);
    ++counts[name_of(result[id])];
  }
  std::string text;
  for (const auto& [name, count] : counts) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name);
  log_info("Of the formats, each layer takes the one that is predicted to err least: {}", text);
  result.insert(offers.floats.begin(), offers.floats.end());
  if (!offers.floats.empty())
    log_info(
        "{} layer(s) that are no products of these formats stay floats: beside them, int8 is for such products alone "
        "(--lower NAME... lowers others, too)",
        offers.floats.size());
  return result;
}

}  // namespace ulpscope
