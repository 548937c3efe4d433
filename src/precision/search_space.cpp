#include "precision/search_space.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "engine/assign.h"
#include "engine/cost.h"
#include "engine/target.h"
#include "graph/layer_choice.h"
#include "ulpscope/error.h"

namespace ulpscope {
std::size_t raised_count(const Levels& levels) noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(levels, [](std::uint8_t level) { return level != 0; }));
}

std::vector<LayerId> search_candidates(const Specialization& spec, const Assignment& low, const SearchTask& options) {
  IdMap<LayerId, char> fixed(spec.network->num_all_layers(), 0);
  for (const auto* list : {&options.keep, &options.lower})
    for (LayerId id : *list) fixed[id] = 1;
  std::vector<LayerId> result;
  for (const LayerPlace& place : all_layers(spec)) {
    const LayerId l = place.id;
    if (!options.formats.empty() && !options.formats.contains(l)) continue;
    if (fixed[l] || place.folded() || !place.numeric() || !has_precision(place.layer())) continue;
    // Golden results have it in the file's type, too.
    if (narrow_type_in_file(*place.spec, place.inside) != DataType::kUndefined) continue;
    // The bias of an int8 product is part of it.
    if (is_quantized(low.precision[l]) && place.spec->product_of_bias(place.inside) != kNone) continue;
    if (low.precision[l] != precision_in(place.layer(), options.ladder.back())) result.push_back(l);
  }
  return result;
}

SearchSpace::SearchSpace(std::shared_ptr<const Network> network, const SearchTask& options,
                         std::span<const TensorMap> samples, const WeightCache& weights)
    : options_(options), network_(std::move(network)) {
  BuildOptions build = options_.build;
  build.constraints = ConstraintMode::kObey;
  trials_ = std::make_unique<Trials>(network_, build, samples, weights);
  auto names = std::make_shared<std::vector<std::string>>();
  for (LayerId id : network_->all_layer_ids()) names->push_back(network_->layer(id).name);
  layer_names_ = std::move(names);
  trials_->set_memory_limit(options_.memory_limit);
  low_ = assignment({});
  const auto spec = spec_ = trials_->specialization();
  time_.emplace(*spec, options_.build.fusion, find_target(options_.build.target));
  candidates_ = search_candidates(*spec, low_, options_);
  std::map<LayerId, LayerPlace> places;
  for (const LayerPlace& place : all_layers(*spec)) places.emplace(place.id, place);
  for (LayerId id : candidates_) {
    const LayerPlace& place = places.at(id);
    const LayerWork work = work_of(*place.spec, place.layer());  // In a body, of one trip.
    multiply_adds_.push_back(work.multiply_adds);
    cost_.push_back(multiply_adds_.back() + work.activation_elements + 1);
    all_multiply_adds_ += multiply_adds_.back();
  }
  biases_.assign(candidates_.size(), kNone);
  for (LayerId bias : network_->layers.ids()) {
    if (!is_quantized(low_.precision[bias]) || spec->folded[bias]) continue;
    const auto product = std::ranges::find(candidates_, spec->product_of_bias(bias));
    if (product != candidates_.end()) biases_[product - candidates_.begin()] = bias;
  }
  const Assignment high = assignment(highest());
  for (LayerId bias : biases_) bias_alone_.push_back(bias == kNone ? Precision::kFP32 : high.precision[bias]);
}

std::uint8_t SearchSpace::highest_level() const noexcept {
  std::size_t levels = options_.ladder.size();
  for (const auto& [id, formats] : options_.formats) levels = std::max(levels, formats.size() - 1);
  return static_cast<std::uint8_t>(levels);
}

bool SearchSpace::raise_biases() {
  if (biases_raised_ || std::ranges::all_of(biases_, [](LayerId id) { return id == kNone; })) return false;
  return biases_raised_ = true;
}

double SearchSpace::highest_time_us() {
  const bool raised = std::exchange(biases_raised_, true);
  const double time = time_us(highest());
  biases_raised_ = raised;
  return time;
}

LayerId SearchSpace::raised_bias(const Levels& levels, std::size_t candidate) const {
  const LayerId bias = biases_[candidate];
  const bool raised =
      biases_raised_ && bias != kNone && levels[candidate] != 0 &&
      precision_in(network_->layer(bias), precision(candidate, levels[candidate])) != bias_alone_[candidate];
  return raised ? bias : kNone;
}

std::size_t SearchSpace::layer_count() const {
  const auto biases = std::ranges::count_if(biases_, [](LayerId id) { return id != kNone; });
  return candidates_.size() + (biases_raised_ ? static_cast<std::size_t>(biases) : 0);
}

Assignment SearchSpace::assignment(const Levels& levels) {
  // Layers that ask for something in the network itself keep it, unless the search decides.
  Requests requested = own_requests(*network_);
  for (LayerId id : options_.keep) requested[id] = options_.ladder.back();
  for (std::size_t i = 0; i < levels.size(); ++i) {
    if (levels[i] != 0) requested[candidates_[i]] = precision(i, levels[i]);
    if (const LayerId bias = raised_bias(levels, i); bias != kNone) requested[bias] = precision(i, levels[i]);
  }
  return trials_->assign(requested);
}

Precision SearchSpace::precision(std::size_t candidate, std::uint8_t level) const {
  const LayerId id = candidates_[candidate];
  if (const auto found = options_.formats.find(id); found != options_.formats.end())
    return found->second[std::min<std::size_t>(level, found->second.size() - 1)];
  return level == 0 ? low_.precision[id] : precision_in(network_->layer(id), options_.ladder[level - 1]);
}

std::uint8_t SearchSpace::effective_level(std::size_t candidate, std::uint8_t level) const {
  std::uint8_t lowest = 0;
  while (precision(candidate, lowest) != precision(candidate, level)) ++lowest;
  return lowest;
}

Levels SearchSpace::raised_to(Precision rung) const {
  Levels levels = lowest();
  const auto found = std::ranges::find(options_.ladder, rung);
  if (found == options_.ladder.end()) return levels;
  const auto level = static_cast<std::uint8_t>(found - options_.ladder.begin() + 1);
  for (std::size_t i = 0; i < levels.size(); ++i) levels[i] = effective_level(i, level);
  return levels;
}

RaisedLayers SearchSpace::names(const Levels& levels) const {
  RaisedLayers::Marks marks(layer_names_->size(), 0);
  for (std::size_t i = 0; i < levels.size(); ++i)
    for (const LayerId id : {levels[i] != 0 ? candidates_[i] : kNone, raised_bias(levels, i)})
      if (id != kNone)
        marks[id.index()] = RaisedLayers::mark_of(precision_in(network_->layer(id), precision(i, levels[i])));
  return {layer_names_, std::move(marks)};
}

std::optional<Levels> SearchSpace::levels_of(const RaisedLayers& raised) const {
  std::unordered_map<std::string_view, std::uint8_t> marks;
  for (std::size_t i = 0; i < raised.marks().size(); ++i)
    if (raised.marks()[i] != 0) marks.emplace((*raised.table())[i], raised.marks()[i]);
  Levels levels = lowest();
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const auto found = marks.find(network_->layer(candidates_[i]).name);
    if (found == marks.end()) continue;
    do {
      ++levels[i];
    } while (levels[i] < highest_level() && RaisedLayers::mark_of(precision(i, levels[i])) != found->second);
  }
  if (names(levels) != raised) return std::nullopt;
  return levels;
}

double SearchSpace::cost_share(const Levels& levels) const {
  double raised = 0;
  for (std::size_t i = 0; i < levels.size(); ++i)
    if (levels[i] != 0) raised += multiply_adds_[i];
  return all_multiply_adds_ > 0 ? raised / all_multiply_adds_ : 0;
}

}  // namespace ulpscope
