// The phases of a search, functions over its state, in the order in which search.cpp runs them. A phase may end by
// LimitReached or SearchInterrupted; the state is whole then.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "precision/search_state.h"
#include "precision/trade_off.h"

namespace ulpscope {

// Ahead of the search (search_repairs.cpp): golden outputs, and what costs no precision.

void prepare(SearchState& search);
void repair(SearchState& search);
/// What everything in the lowest precisions gives by itself, from its trial ahead of all repairs, and at the end of a
/// search what the other samples say of it (search_lowest.cpp).
void note_lowest(SearchState& search, const Judgement& judgement);
void finish_lowest(SearchState& search);
/// Layers of differences without digits, ahead of functions that magnify what is left: they stay in the highest
/// precision, whatever the samples say of them. A margin of the user's says how safe it has to be.
void keep_cancellations(SearchState& search);

/// Nothing can be judged against NaN (golden_check.cpp). `first`: the sample that the first of them is of.
void check_golden_values(const SearchState& search, std::span<const TensorMap> golden, std::size_t first);
/// `from` after `more` repairs.
RepairedNetwork with_repairs(const SearchState& search, const RepairedNetwork& from, std::span<const Repair> more);
void go_on_with(SearchState& search, RepairedNetwork repaired);

// What is known of layers (search_prediction.cpp).

/// Fills in `search.layers` but for the order.
void predict(SearchState& search);
void order(SearchState& search);
/// Whether effects of layers are so alike that the order is off by some places: those of fp8 and formats of 4 bits,
/// where few layers are to stay high.
bool orders_closely(const SearchState& search);
/// By everything in these precisions, from `count` samples of the search, from `first` on, or as many as there are.
std::vector<LayerEffect> effects_of(SearchState& search, const Assignment& low, std::size_t first = 0,
                                    std::size_t count = SIZE_MAX);
/// What a sample says that joined the search.
void add_sample(SearchState& search, std::size_t sample);

// Sets that pass the samples of the search and of validation. A finder leaves the best one in the verdict, or why there
// is none.

/// Heads of the order (search_few.cpp).
void find_few(SearchState& search);
/// Takes layers out again, the least important first, in halving portions, while search and held-out samples pass.
void shrink(SearchState& search);
/// Where the ladder has rungs between: the kept layers as low as they can be.
void lower_rungs(SearchState& search);

/// Points of the curve of error against time (search_fastest.cpp).
void find_fastest(SearchState& search);
/// Where everything may be low, casts may still make something else faster by as much as layers have to save that stay
/// higher for time alone. False if that does not pass: then errors have to be weighed.
bool faster_than_lowest(SearchState& search, Levels& levels);
SquaredEffects squared_effects(SearchState& search);
void note_curve(SearchState& search, const std::vector<TradeOffPoint>& curve);

/// Choices of formats for weights (search_bits.cpp): as few bits as pass, or the least error within a budget.
void find_fewest_bits(SearchState& search);
void find_least_error(SearchState& search);
/// Of the constant weights of all candidates. REQUIRES: SearchTask::formats.
std::int64_t total_bits(const SearchSpace& space, const Levels& levels);
/// What the answer says of the bits of a choice.
void note_bits(SearchState& search, const Levels& levels);

// Samples that the search does not look at (search_held_out.cpp).

void compute_held_out_golden(SearchState& search);
/// On the samples of validation.
bool passes_held_out(SearchState& search, const Levels& levels);
/// On those that nothing was chosen by, one half after the other.
bool passes_untouched(SearchState& search, const Levels& levels);
/// The sample of validation that fails by most becomes one of those that are searched on, as long as another one stays
/// held out.
bool join_failing_sample(SearchState& search);
/// The half of the untouched samples that the best set failed on joins those of validation, as long as the other half
/// was not looked at; else the search has failed.
bool take_untouched(SearchState& search);
/// When the trials have run out: the best set may still be without its proof.
void verify_best(SearchState& search);
/// The figures of the samples that nothing was chosen by, for these levels: the untouched ones, and those of validation
/// as long as nothing failed on them, or where there is nothing else to tell.
void add_held_out(SearchState& search, const Levels& levels);

// What the search has come to.

/// Whether the repairs are of use to the best set: what it needs none of goes (search_worth.cpp).
void drop_useless_repairs(SearchState& search);
/// Without a trial: everything stays in the highest precision.
void forget_repairs(SearchState& search);
/// The best set of each objective among all that were tried, and the curve (search_sets.cpp).
void prove_sets(SearchState& search);
/// The rest of the answer (search_answer.cpp).
void report(SearchState& search);

}  // namespace ulpscope
