#include "annealing.h"

#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <random>

#include "engine/choose.h"
#include "precision/predictor.h"
#include "precision/trade_off.h"

namespace ulpscope::bench {
namespace {

/// Seconds of this process's processor since `start`: other load takes nothing from either side.
double since(std::clock_t start) { return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC; }

/// Sets of candidates that move together: each by itself, and those of each kernel.
std::vector<std::vector<std::size_t>> moves_of(const SearchSpace& space) {
  std::vector<std::vector<std::size_t>> moves;
  const Grouping grouping = fuse_uniformly(space.specialization(), space.options().build, space.low());
  std::vector<std::vector<std::size_t>> members(grouping.groups.size());
  for (std::size_t i = 0; i < space.candidates().size(); ++i) {
    moves.push_back({i});
    if (const int group = grouping.group_of[space.candidates()[i]]; group != kNone) members[group].push_back(i);
  }
  for (auto& each : members)
    if (each.size() > 1) moves.push_back(std::move(each));
  return moves;
}

/// The least time of what it sees below the limit.
double anneal(SearchSpace& space, const SquaredEffects& effects, double limit, double seconds) {
  const auto moves = moves_of(space);
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform(0, 1);
  Levels levels = space.highest();
  double time = space.time_us(levels), squares = 0, best = time;
  const double hot = 0.03 * time, cold = 1e-5 * time;
  const std::clock_t start = std::clock();
  for (double spent = 0; spent < seconds; spent = since(start)) {
    const double temperature = hot * std::pow(cold / hot, spent / seconds);
    Levels next = levels;
    double sum = squares;
    const std::size_t first = random() % moves.size(), count = 1 + random() % 3;
    const auto level = static_cast<std::uint8_t>(random() % (space.highest_level() + 1u));
    for (std::size_t m = first; m < std::min(first + count, moves.size()); ++m)
      for (const std::size_t i : moves[m]) {
        const std::uint8_t own = space.effective_level(i, level);
        sum += effects[i][own] - effects[i][next[i]];
        next[i] = own;
      }
    if (!(sum <= limit)) continue;
    const double next_time = space.time_us(next);
    if (next_time > time && uniform(random) >= std::exp((time - next_time) / temperature)) continue;
    levels = std::move(next);
    time = next_time;
    squares = std::max(0.0, sum);
    best = std::min(best, time);
  }
  return best;
}

}  // namespace

void anneal_case(const Case& which, const AnnealingOptions& options) {
  Loaded loaded = load(which, options.models, options.threads);
  loaded.options.build.fusion = Fusion::kFull;
  loaded.options.build.target = options.target;
  SearchSpace space(loaded.data.network, loaded.options, loaded.data.samples);
  Trials& trials = space.trials();
  const auto golden = trials.run(trials.full_precision(), false);
  const auto predicted =
      predict_effects(trials, space.low(), space.candidates(), *loaded.criterion, golden, loaded.options.predictor);
  SquaredEffects effects;
  for (const LayerEffect& each : predicted) {
    effects.emplace_back(space.highest_level() + 1u, each.effect * each.effect);
    effects.back().back() = 0;
  }
  const double amplitude = amplitude_of(options.margin, loaded.criterion->sensitivity()), limit = amplitude * amplitude;
  const std::clock_t start = std::clock();
  TradeOff trade_off(space, effects);
  const std::vector<TradeOffPoint> curve = trade_off.curve();
  std::size_t first = 0;
  while (curve[first].squares > limit) ++first;
  TradeOffPoint ours = trade_off.polish(curve[first], limit, 1000);
  if (first > 0)
    if (TradeOffPoint raised = trade_off.raise(curve[first - 1], limit, 1500); raised.time_us < ours.time_us)
      ours = std::move(raised);
  const double spent = since(start);
  const double theirs = anneal(space, effects, limit, options.seconds);
  fmt::print(
      "{} | {} | curve of {} points, its point {:.2f} us, polished {:.2f} us in {:.2f} s | annealing {:.2f} us in {:g} "
      "s "
      "| ratio {:.4f} | all low {:.2f}, all high {:.2f}\n",
      which.name, options.target, curve.size(), curve[first].time_us, ours.time_us, spent, theirs, options.seconds,
      ours.time_us / theirs, space.time_us(space.lowest()), space.time_us(space.highest()));
}

}  // namespace ulpscope::bench
