#include "table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph/outputs.h"
#include "precision/repair.h"
#include "precision/search_space.h"
#include "precision/segment_search.h"
#include "precision/strategy.h"

namespace ulpscope::bench {
namespace {

/// Strategies choose among the same candidates, after the same repairs, and are judged alike.
class Comparison {
 public:
  Comparison(const Case& which, const std::filesystem::path& models, int threads, double margin)
      : loaded_(load(which, models, threads)), margin_(margin) {
    auto network = std::make_shared<Network>(*loaded_.data.network);
    SearchSpace original(network, loaded_.options, loaded_.data.samples);
    std::map<std::string, float> scales;
    apply_repairs(*network, scales, find_clamps(*original.trials().specialization(), original.low()));
    std::vector<TensorMap> all = loaded_.data.samples;
    all.insert(all.end(), loaded_.data.held_out.begin(), loaded_.data.held_out.end());
    space_ = std::make_unique<SearchSpace>(network, loaded_.options, all);
    golden_ = space_->trials().run(space_->trials().full_precision(), false);
  }

  int layers() const { return static_cast<int>(space_->candidates().size()); }
  std::size_t num_samples() const { return loaded_.data.samples.size(); }
  SearchSpace& space() { return *space_; }
  Loaded& loaded() { return loaded_; }

  Levels levels_of(const std::vector<int>& raised) const {
    Levels levels = space_->lowest();
    for (int i : raised) levels[i] = space_->highest_level();
    return levels;
  }

  bool right(const Levels& levels) {
    ++evaluations_;
    const auto outputs = space_->trials().run(space_->assignment(levels), 0, num_samples(), true);
    return loaded_.criterion->judge(std::span(golden_).first(num_samples()), outputs).passed(margin_);
  }

  Row row(const std::string& strategy, const std::optional<Levels>& answer) {
    Row result;
    result.strategy = strategy;
    result.evaluations = std::exchange(evaluations_, 0);
    result.found = answer.has_value();
    if (!answer) return result;
    result.kept = raised_count(*answer);
    result.cost_share = space_->cost_share(*answer);
    const std::size_t held_out = golden_.size() - num_samples();
    const auto outputs = space_->trials().run(space_->assignment(*answer), num_samples(), held_out, false);
    result.held_out = static_cast<int>(held_out);
    for (std::size_t s = 0; s < held_out; ++s)
      result.held_out_passed +=
          loaded_.criterion->judge(std::span(golden_).subspan(num_samples() + s, 1), std::span(outputs).subspan(s, 1))
              .passed();
    return result;
  }

  /// Candidates by how much the error of their output grows over that of the output before, everything low.
  std::vector<int> worst_first() {
    auto marked = std::make_shared<Network>(space_->trials().network());
    std::vector<std::string> names;
    for (LayerId id : space_->candidates()) names.push_back(marked->tensor(marked->layer(id).outputs[0]).name);
    mark_outputs(*marked, names);
    Trials trials(marked, loaded_.options.build, std::span(loaded_.data.samples).first(1));
    const auto exact = trials.run(trials.full_precision(), false);
    const auto low = trials.run(space_->low(), false);
    std::vector<double> errors;
    for (std::size_t o = 0; o < names.size(); ++o) {
      double largest = 0;
      const auto a = exact[0][o].tensor.values<float>(), b = low[0][o].tensor.values<float>();
      for (std::size_t i = 0; i < a.size(); ++i) {
        const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
        largest = std::isfinite(difference) ? std::max(largest, difference) : HUGE_VAL;
      }
      errors.push_back(largest);
    }
    ++evaluations_;
    return rank_by_error_growth(errors);
  }

 private:
  Loaded loaded_;
  double margin_;
  std::unique_ptr<SearchSpace> space_;
  std::vector<TensorMap> golden_;
  std::int64_t evaluations_ = 0;
};

Row search_row(const std::string& name, Loaded& loaded, double margin, bool shrink, Objective objective) {
  loaded.options.margin = margin;
  loaded.options.shrink = shrink;
  loaded.options.objective = objective;
  Journal journal;
  const Answer answer = search_precisions(loaded.data, *loaded.criterion, loaded.options, journal);
  Row result;
  result.strategy = name;
  result.kept = answer.kept.size();
  result.evaluations = answer.evaluations;
  result.cost_share = answer.cost_share;
  result.found = answer.verdict == Answer::Verdict::kFound;
  result.held_out = answer.held_out_samples;
  result.held_out_passed = answer.held_out_passed;
  return result;
}

}  // namespace

std::vector<Row> compare_strategies(const Case& which, const std::filesystem::path& models, int threads,
                                    double margin) {
  Comparison comparison(which, models, threads, margin);
  const int n = comparison.layers();
  const TryLayers right = [&](const Attempt& attempt) {
    return comparison.right(comparison.levels_of(attempt.layers));
  };
  const auto levels_of = [&](const StrategyResult& result) {
    return result.layers ? std::optional(comparison.levels_of(*result.layers)) : std::nullopt;
  };
  std::vector<Row> rows;
  rows.push_back(
      comparison.row("bisect forward", levels_of(bisect_layers(n, Direction::kForward, BisectStart::kNone, right))));
  rows.push_back(
      comparison.row("bisect reverse", levels_of(bisect_layers(n, Direction::kReverse, BisectStart::kNone, right))));
  rows.push_back(comparison.row("linear", levels_of(add_layers(n, Direction::kForward, right))));
  rows.push_back(comparison.row("worst-first", levels_of(add_worst_layers(comparison.worst_first(), 5, right))));
  const auto segments = [&](const std::vector<char>& raised) {
    Levels levels = comparison.space().lowest();
    for (std::size_t i = 0; i < levels.size(); ++i)
      if (raised[i] != 0) levels[i] = comparison.space().highest_level();
    return levels;
  };
  const auto raised = search_segments(static_cast<std::size_t>(n), std::size_t{1} << 20,
                                      [&](const std::vector<char>& set) { return comparison.right(segments(set)); });
  rows.push_back(comparison.row("segment search", segments(raised)));
  Loaded& loaded = comparison.loaded();
  const std::string at = fmt::format(", margin {:g}", margin);
  rows.push_back(search_row("search" + at, loaded, margin, false, Objective::kSmallest));
  rows.push_back(search_row("search --shrink" + at, loaded, margin, true, Objective::kSmallest));
  rows.push_back(search_row("search, cheapest" + at, loaded, margin, false, Objective::kCheapest));
  if (margin > 0.5) {
    rows.push_back(search_row("search, margin 0.5", loaded, 0.5, false, Objective::kSmallest));
    rows.push_back(search_row("search --shrink, margin 0.5", loaded, 0.5, true, Objective::kSmallest));
    rows.push_back(search_row("search, cheapest, margin 0.5", loaded, 0.5, false, Objective::kCheapest));
  }
  return rows;
}

void print_table(const Case& which, const std::vector<Row>& rows) {
  fmt::print("\n{}\n\n| strategy | layers kept | evaluations | multiply-adds kept | held-out samples that pass |\n",
             which.name);
  fmt::print("|---|---|---|---|---|\n");
  const Row* search = nullptr;
  for (const Row& row : rows) {
    if (search == nullptr && row.strategy.starts_with("search,")) search = &row;
    if (row.found)
      fmt::print("| {} | {} | {} | {:.1f} % | {}/{} |\n", row.strategy, row.kept, row.evaluations, 100 * row.cost_share,
                 row.held_out_passed, row.held_out);
    else
      fmt::print("| {} | none | {} | | |\n", row.strategy, row.evaluations);
  }
  for (const Row& row : rows)
    if (search != nullptr && row.found && !row.strategy.starts_with("search") && row.kept < search->kept &&
        row.evaluations <= search->evaluations)
      fmt::print(
          "EXCEPTION: {} keeps {} layers in {} evaluations, the search {} in {}; {} of {} held-out samples pass\n",
          row.strategy, row.kept, row.evaluations, search->kept, search->evaluations, row.held_out_passed,
          row.held_out);
  std::fflush(stdout);
}

}  // namespace ulpscope::bench
