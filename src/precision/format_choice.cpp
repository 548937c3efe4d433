#include "precision/format_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "core/messages.h"
#include "precision/predictor.h"
#include "precision/trials.h"

namespace ulpscope {
namespace {

/// The squares of effects, by layer and format.
using Squares = std::map<LayerId, std::map<Precision, double>>;

/// Those that are enabled; int4 in blocks of 64 stands in for larger ones where these do not fit.
std::vector<Precision> formats_of(PrecisionSet enabled) {
  std::vector<Precision> formats = enabled.members();
  std::erase_if(formats, [&](Precision p) {
    return is_float(p) || (p == Precision::kINT4Block64 && enabled.has(Precision::kINT4));
  });
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

/// Of the layers that lack the format, notes the float that they run in.
void add_effects(const SearchData& data, const Criterion& criterion, const SearchTask& task, Precision format,
                 std::vector<TensorMap>& golden, Squares& squares, std::map<LayerId, Precision>& floats) {
  Trials trials(data.network, with_one_format(task.build, format), data.samples, data.weights);
  Requests requested = own_requests(*data.network);
  for (const LayerId id : task.keep) requested[id] = task.ladder.back();
  const Assignment low = trials.assign(requested);
  std::vector<LayerId> candidates = search_candidates(*trials.specialization(), low, task);
  if (form_of(format).products_only)
    for (const LayerId id : data.network->all_layer_ids())
      if (is_float(low.precision[id])) floats.emplace(id, low.precision[id]);
  std::erase_if(candidates, [&](LayerId id) { return is_float(low.precision[id]); });
  if (candidates.empty()) return;
  if (golden.empty()) golden = trials.run(trials.full_precision(), /*keep=*/false);
  for (const LayerEffect& each : predict_effects(trials, low, candidates, criterion, golden, task.predictor))
    squares[each.layer][low.precision[each.layer]] = each.effect * each.effect;
}

/// Beside a format of products, one that other layers have, too, is a choice for products alone: a Mul, a pool or a
/// depthwise convolution in int8 errs much, and saves little where its neighbors are floats.
std::vector<LayerId> take_out_others(const SearchTask& task, const std::map<LayerId, Precision>& floats,
                                     Squares& squares) {
  std::vector<LayerId> others;
  for (const auto& [id, effects] : squares) {
    const bool has_form_of_products =
        std::ranges::any_of(effects, [](const auto& each) { return form_of(each.first).products_only; });
    if (!has_form_of_products && floats.contains(id) && std::ranges::find(task.lower, id) == task.lower.end())
      others.push_back(id);
  }
  for (const LayerId id : others) squares.erase(id);
  return others;
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
  Squares squares;
  std::vector<TensorMap> golden = data.golden;
  std::map<LayerId, Precision> floats;
  for (const Precision format : formats) add_effects(data, criterion, task, format, golden, squares, floats);
  const std::vector<LayerId> others = take_out_others(task, floats, squares);
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
  for (const LayerId id : others) result[id] = floats.at(id);
  if (!others.empty())
    log_info(
        "{} layer(s) that are no products of these formats stay floats: beside them, int8 is for such products alone "
        "(--lower NAME... lowers others, too)",
        others.size());
  return result;
}

}  // namespace ulpscope
