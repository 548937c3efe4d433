// The state of a search, and what its phases (search_phases.h) do again and again: try sets, say where they are, and
// look at the limits.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "precision/cancellation.h"
#include "precision/objective.h"
#include "precision/prediction_scale.h"
#include "precision/search.h"
#include "precision/search_space.h"
#include "precision/stage_watch.h"

namespace ulpscope {

/// A limit of the options ended the search.
struct LimitReached {
  std::string what;
};

/// Without Options::margin, the share of the tolerance that is searched at is between these.
inline constexpr double kWidestMargin = 0.5, kNarrowestMargin = 0.03;
/// The margin covers so many standard deviations of the logarithm of an error over samples.
inline constexpr double kSpreadMargin = 2.5;

/// Shares of the tolerance that differ by less than this factor say nothing about what a repair is worth.
inline constexpr double kRepairNoise = 1.05;

/// How many layers at the head of the order are raised.
using Count = std::size_t;

/// What samples give under one assignment.
struct TrialResult {
  Judgement judgement;             ///< Of all samples.
  std::vector<Judgement> each;     ///< Of each by itself, where other processes judged; else
  std::vector<TensorMap> outputs;  ///< what was judged.
};

/// The samples: those of the search, behind them those of validation, and last the untouched ones.
struct SearchSamples {
  explicit SearchSamples(const SearchData& data);

  std::size_t held_out() const { return all - searched; }
  std::size_t untouched() const { return held_out() - validated; }
  /// Those of a trial: the first, and how many.
  std::pair<std::size_t, std::size_t> of(TrialKind kind) const;
  std::span<const TensorMap> golden_of(std::size_t first, std::size_t count) const;

  std::size_t all, searched, validated;
  int joined = 0;                ///< Of those of the search, those that were held out before,
  bool validation_used = false;  ///< A set failed on samples of validation.
  bool margin_is_open = true;    ///< The first trial that shows how far apart samples are will choose the margin.
  std::vector<std::pair<std::size_t, std::size_t>> moves;  ///< Of those that joined.
  std::vector<TensorMap> golden, held_out_golden;          ///< The latter are computed when they are needed.
};

/// The network of a search after some repairs, and what is chosen there.
struct RepairedNetwork {
  std::shared_ptr<const Network> network;
  std::map<std::string, float> scales;  ///< int8, with the repairs.
  RepairSteps steps;                    ///< That made it of the network of the search.
  std::unique_ptr<SearchSpace> space;
};

/// What repairs are judged by, and what is kept whatever they do; the answer has the repairs.
struct RepairEvidence {
  std::vector<std::string> words;     ///< Trial::repairs, of those that changed the network.
  std::optional<TrialResult> low;     ///< With everything in the lowest precisions, until that is a trial.
  std::optional<SearchData> doubled;  ///< Samples of twice the magnitude, with their golden outputs.
  std::vector<SingularCancellation> cancellations;  ///< Whose layers are kept.
};

/// What is known of the candidates, one by one.
struct LayerEvidence {
  /// The effect that a search reckons with; infinite where the samples are too far apart.
  double weight(std::size_t candidate) const;
  /// A layer that the samples are too far apart about is in its lowest precision: no such set passes.
  bool is_bold(const Levels& levels) const;

  std::vector<LayerEffect> effects;
  std::vector<char> measured;
  std::vector<std::vector<std::size_t>> groups;  ///< Candidates without derivative that were measured together.
  std::vector<std::size_t> order;                ///< Candidates, the most important first.
  PredictionScale scale;                         ///< From trials of heads of the order, or of points of the curve.
};

/// What is predicted of formats, per candidate and level.
struct FormatEvidence {
  /// Over `samples` of the search: sums of the squared effects, as amplitudes.
  std::vector<std::vector<double>> squares;
  std::size_t samples = 0;
  std::vector<Answer::Bits::Point> curve;  ///< For the answer.
};

/// What the search has come to.
struct Verdict {
  /// The samples that the best set passes.
  enum class Proof : std::uint8_t { kSearched, kValidated, kUntouched };
  enum class Failure : std::uint8_t {
    kNone,
    kNotReachable,     ///< Everything is raised, and that does not pass.
    kFailsValidation,  ///< Nothing passes these samples,
    kFailsUntouched,   ///< or the best set does not pass those.
    kNothingProven,    ///< The search ended before any set passed: everything is raised.
  };

  bool holds() const { return proof != Proof::kSearched; }

  std::optional<Levels> best;
  /// The part of the best set that accuracy needs: it passes on the samples of the search, and the rest saves time.
  /// Nothing where accuracy needs all of it, or where that was not looked for.
  std::optional<Levels> enough;
  Proof proof = Proof::kSearched;
  Failure failure = Failure::kNone;
  Judgement last_held_out;
  std::string ended;  ///< By which limit or interruption, for people.
  bool interrupted = false;
};

struct SearchState {
  SearchState(const SearchData& data, const Criterion& criterion, const SearchTask& options, Journal& journal,
              const SearchObserver& observer);

  SearchSpace& space() const { return *current.space; }
  const ObjectiveRule& rule() const { return rule_of(options.objective); }
  /// Whether this share of the tolerance is at most `most`; where there is no tolerance, whether it is finite.
  bool is_within(double share, double most) const;
  /// Tells the observer.
  void show(Stage stage, int done = 0, int all = 0);
  bool is_late(double share = 1) const;
  /// Throws LimitReached.
  void check_time() const;
  /// The same, after the observer was told and could interrupt. `counted`: before a trial that counts against
  /// --max-trials.
  void check_limits(bool counted = false);

  /// A script that an interruption ends has not failed: the search shall hand over what it has.
  Judgement judge(std::span<const TensorMap> golden, std::span<const TensorMap> outputs);
  TrialResult run(SearchSpace& in, const Assignment& assignment, std::size_t first, std::size_t count, bool keep);
  /// From the journal, or run. Valid until the next one.
  const Trial& trial_of(SearchSpace& in, const std::vector<std::string>& repairs, const Levels& levels, TrialKind kind);
  /// The share of the tolerance that the worst output and sample use. A set is tried once on the same samples, whatever
  /// the trials were for.
  double used(const Levels& levels, TrialKind kind);
  bool passes(const Levels& levels, TrialKind kind);
  /// The same of a set whose share is predicted: corrects later predictions by what is measured, and notes the best set
  /// until one holds.
  bool passes(const Levels& levels, double predicted);
  /// Trials that may come next, the likelier ones first: workers without other work begin them.
  void expect(const std::vector<std::pair<Levels, TrialKind>>& trials);
  bool better(const Levels& a, const Levels& b) const { return better(a, b, rule()); }
  bool better(const Levels& a, const Levels& b, const ObjectiveRule& by) const;

  const SearchData& data;
  const Criterion& criterion;
  const SearchTask& options;
  Journal& journal;
  const SearchObserver& observer;
  StageWatch watch;
  Stage stage = Stage::kNone;  ///< What the observer is told next.
  SearchSamples samples;
  RepairedNetwork current;
  RepairEvidence repairs;
  LayerEvidence layers;
  FormatEvidence formats;
  Verdict verdict;
  /// Measured shares of the tolerance, by kind of samples and raised layers.
  std::map<std::pair<TrialKind, RaisedLayers::Marks>, double> done;
  Answer answer;  ///< Repairs, trials, sets and curve so far, their number, and the margin; report() adds the rest.
};

}  // namespace ulpscope
