// One search as it goes: what search_precisions() runs, step by step.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "precision/cancellation.h"
#include "precision/memory_watch.h"
#include "precision/prediction_scale.h"
#include "precision/remote_samples.h"
#include "precision/repair.h"
#include "precision/search.h"
#include "precision/search_space.h"
#include "precision/trade_off.h"

namespace ulpscope {

/// A limit of the options, or the user, ended the search.
struct LimitReached {
  std::string what;
};

/// Without Options::margin, the share of the tolerance that is searched at is between these.
inline constexpr double kWidestMargin = 0.5, kNarrowestMargin = 0.03;

/// Uses of the tolerance that differ by less say nothing about what a repair is worth.
inline constexpr double kRepairNoise = 1.05;

/// Uses of the tolerance beyond this say little about those near it: a cosine saturates.
inline constexpr double kNear = 2;

/// What samples give under one assignment.
struct TrialResult {
  Judgement judgement;             ///< Of all samples.
  std::vector<Judgement> each;     ///< Of each by itself, where other processes judged; else
  std::vector<TensorMap> outputs;  ///< what was judged.
};

/// The network of a search after some repairs, and what is chosen there.
struct RepairedNetwork {
  std::shared_ptr<const Network> network;
  std::map<std::string, float> scales;  ///< int8, with the repairs.
  RepairSteps steps;                    ///< That made it of the network of the search.
  std::unique_ptr<SearchSpace> space;
};

/// How many layers at the head of the order are raised.
using Count = std::size_t;

/// Prepares (golden outputs, repairs: search_repairs.cpp), predicts (search_prediction.cpp) and tries (search.cpp,
/// search_fastest.cpp), checks (search_held_out.cpp, search_worth.cpp), and reports (search_sets.cpp,
/// search_answer.cpp).
class Search {
 public:
  Search(const SearchData& data, const Criterion& criterion, const SearchTask& options, Journal& journal,
         const SearchObserver& observer)
      : data_(data),
        criterion_(criterion),
        options_(options),
        journal_(journal),
        observer_(observer),
        validated_(data.held_out.size() < 2 ? data.held_out.size() : data.held_out.size() / 2) {}

  Answer run();

 private:
  using Clock = std::chrono::steady_clock;

  std::vector<TensorMap> all_samples() const;
  void prepare();
  void repair();
  void repair_constants();
  void scale_regions();
  Assignment in_fp16(SearchSpace& space) const { return space.assignment(space.raised_to(Precision::kFP16)); }
  double low_use();
  void forget_low_use();
  std::size_t range_memory();
  void equalize();
  using IsHarmless = std::function<bool(SearchSpace&, std::span<const Repair>)>;
  void accept_repairs(std::span<const Repair> found, const IsHarmless& is_harmless);
  bool accept(std::span<const Repair> chosen, const IsHarmless& is_harmless);
  RepairedNetwork with_repairs(const Network& network, std::map<std::string, float> scales, RepairSteps steps,
                               std::span<const Repair> more) const;
  std::vector<TensorMap> exact_outputs(SearchSpace& space, std::size_t count);
  double use_on_doubled(SearchSpace& space, const Assignment& assignment);
  bool bears_doubled(double used, double doubled, double doubled_before) const;
  void drop_useless_repairs();
  bool drop_useless(const std::vector<std::size_t>& group, double used_with);
  bool try_without(const std::vector<std::size_t>& group, double used_with);
  RepairedNetwork with_only(std::span<const Repair> repairs) const;
  Levels best_in(const SearchSpace& space) const;
  void go_on_with(RepairedNetwork repaired);
  void go_on_without(RepairedNetwork repaired, std::vector<Repair> repairs);
  void forget_repairs();
  void keep_cancellations();
  void choose();
  void predict();
  std::vector<LayerEffect> predict(const Assignment& low, std::size_t first = 0, std::size_t count = SIZE_MAX);
  void add_effects(const std::vector<LayerEffect>& more);
  void measure_incomplete();
  void measure_groups(std::size_t sample);
  void take_measured(const std::vector<std::size_t>& group, double use);
  void test_harmless_overflows();
  void test_overflows(std::span<const std::size_t> candidates);
  void check_golden_values(std::span<const TensorMap> golden, const char* what) const;
  void order();
  bool lowest_suffices();
  void find();
  bool faster_than_lowest(Levels& levels);
  void find_fastest();
  std::vector<std::vector<double>> squared_effects();
  double predicted_use_of(const TradeOffPoint& point) const;
  bool point_passes(const TradeOffPoint& point);
  std::optional<TradeOffPoint> search_curve(const std::vector<TradeOffPoint>& curve);
  TradeOffPoint polish(TradeOff& trade_off, const std::vector<TradeOffPoint>& curve, TradeOffPoint point);
  Count predicted_count(Count count, double slack = 1.0) const;
  void extend_for_held_out(Count count);
  void fall_back();
  void adopt(const Levels& levels);
  Levels prefix_bisection(bool reverse);
  Levels segment_search();
  void shrink();
  void lower_rungs();
  void verify_best();
  void finish(Answer& answer);
  void add_cancellations(Answer& answer) const;
  void warn_of_launches() const;
  void warn_of_unmeasured_groups() const;
  std::string sentence(const Answer& answer, const std::string& ended) const;

  const Trial& trial_of(SearchSpace& space, const std::vector<std::string>& repairs, const Levels& levels,
                        const std::string& kind);
  /// Of the tolerance, by the worst output and sample. `kind` as in Trial.
  double used(const Levels& levels, const std::string& kind);
  bool passes(const Levels& levels, const std::string& kind);
  bool head_passes(Count count);
  bool passes_held_out(const Levels& levels);
  bool passes_untouched(const Levels& levels);
  bool take_untouched();
  void forget_best();
  void compute_held_out_golden();
  Levels head(Count count) const;
  Levels lowered(std::span<const std::size_t> candidates) const;
  bool better(const Levels& a, const Levels& b) const { return better(a, b, options_.objective); }
  bool better(const Levels& a, const Levels& b, Objective objective) const;
  void prove_sets();
  void note_curve(const std::vector<TradeOffPoint>& curve);
  void add_held_out(Answer& answer, const Levels& levels) const;
  void check_limits(bool limited);
  Judgement judge(std::span<const TensorMap> golden, std::span<const TensorMap> outputs);
  std::span<const TensorMap> golden_of(std::size_t first, std::size_t count) const;
  TrialResult run_trial(SearchSpace& space, const Assignment& assignment, std::size_t first, std::size_t count,
                        bool keep);
  /// Trials that may come next, as levels and kind, the likelier ones first: workers without other work begin them.
  void expect(const std::vector<std::pair<Levels, const char*>>& trials);
  void show(const std::string& stage, int done = 0, int all = 0);
  void begin_stage(const std::string& stage);
  bool is_late(double share = 1) const {
    return options_.time_limit > 0 && elapsed() + options_.time_spent >= share * options_.time_limit;
  }
  void check_time() const;
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  std::size_t held_out() const { return data_.samples.size() + data_.held_out.size() - searched_; }
  std::size_t untouched() const { return held_out() - validated_; }
  bool has_held_out() const { return held_out() > 0; }
  /// Those of a trial: the first, and how many.
  std::pair<std::size_t, std::size_t> samples_of(std::string_view kind) const;
  double tail_effect(Count count) const;
  std::vector<Judgement> judge_each(const TrialResult& result, std::size_t first);
  void set_margin(const Trial& trial);
  bool join_failing_sample();

  const SearchData& data_;
  const Criterion& criterion_;
  SearchTask options_;
  Journal& journal_;
  const SearchObserver& observer_;
  const Clock::time_point start_ = Clock::now();

  std::shared_ptr<const Network> network_;
  std::unique_ptr<SearchSpace> space_;
  std::vector<TensorMap> golden_, held_out_golden_;
  std::vector<Repair> repairs_;
  std::vector<std::string> repair_words_;                   ///< Trial::repairs, of those that changed the network.
  RepairSteps repair_steps_;                                ///< That made network_.
  std::vector<std::pair<std::size_t, std::size_t>> moves_;  ///< Of samples that joined.
  std::optional<SearchData> doubled_;                ///< Samples of twice the magnitude, with their golden outputs.
  int repair_trials_ = 0;                            ///< Spent on whether repairs are of use.
  std::optional<double> low_use_;                    ///< low_use() of this network,
  std::optional<TrialResult> low_result_;            ///< and the rest, until the trial of the same.
  std::vector<SingularCancellation> cancellations_;  ///< Whose layers are kept,
  std::vector<std::string> kept_cancellations_;      ///< by name.
  std::map<std::string, float> scales_;              ///< int8, with the repairs.
  std::vector<LayerEffect> effects_;                 ///< Per candidate.
  std::vector<char> measured_;
  std::vector<std::vector<std::size_t>> groups_;  ///< Candidates without derivative that were measured together.
  std::vector<std::size_t> order_;                ///< Candidates, the most important first.
  PredictionScale scale_;                         ///< From trials of heads of the order, or of points of the curve.
  double margin_ = options_.margin > 0 ? options_.margin : kWidestMargin;
  bool margin_is_open_ = options_.margin <= 0;   ///< It comes from the first trial that can tell.
  std::size_t searched_ = data_.samples.size();  ///< Samples of the search; the held-out ones are behind them,
  std::size_t validated_;                        ///< first those of validation.
  int joined_ = 0;                               ///< Of the samples of the search, those that were held out before.
  bool validation_used_ = false;                 ///< A set failed on samples of validation.
  std::optional<Levels> best_;
  bool best_holds_ = false;       ///< It passes the held-out samples as well.
  bool untouched_holds_ = false;  ///< And the untouched ones.
  bool interrupted_ = false;
  bool nothing_proven_ = false;  ///< The search ended before any set passed: everything is raised.
  bool unreachable_ = false, fails_held_out_ = false, fails_untouched_ = false;
  Judgement last_held_out_;
  std::vector<Trial> trials_;
  /// Of the tolerance, by kind of samples and raised layers.
  std::map<std::pair<std::string, RaisedLayers::Marks>, double> done_;
  std::vector<Answer::ProvenSet> sets_;
  std::vector<Answer::CurvePoint> curve_;
  std::int64_t evaluations_ = 0, held_out_evaluations_ = 0;
  std::string stage_;
  MemoryWatch memory_{options_.memory_limit};
  std::string timed_stage_;  ///< The last of begin_stage(), and when.
  double stage_begin_ = 0;
  double held_out_seconds_ = 0;
};

}  // namespace ulpscope
