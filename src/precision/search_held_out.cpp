// Samples that a search does not look at: those of validation, by which it corrects itself, and the untouched ones,
// which only judge.
#include <fmt/format.h>

#include <algorithm>

#include "precision/search_process.h"
#include "ulpscope/log.h"

namespace ulpscope {

std::pair<std::size_t, std::size_t> Search::samples_of(std::string_view kind) const {
  const std::size_t first_share = (untouched() + 1) / 2;
  if (kind == "hold-out") return {searched_, validated_};
  if (kind == "untouched") return {searched_ + validated_, first_share};
  if (kind == "untouched-rest") return {searched_ + validated_ + first_share, untouched() - first_share};
  return {0, searched_};
}

void Search::compute_held_out_golden() {
  if (!held_out_golden_.empty()) return;
  Trials exact(data_.network, options_.build, data_.held_out, space_->trials().weights());
  exact.set_memory_limit(options_.memory_limit);
  if (space_->trials().remote() != nullptr) exact.set_workers(data_.workers, {}, data_.samples.size());
  held_out_golden_ = exact.run(exact.full_precision(), 0, exact.num_samples(), false, [&] { check_limits(false); });
  check_golden_values(held_out_golden_, " of the held-out samples");
}

/// On the samples of validation.
bool Search::passes_held_out(const Levels& levels) {
  if (validated_ == 0) return true;
  const std::string stage = stage_;
  show("checking held-out samples");
  const auto begin = Clock::now();
  compute_held_out_golden();
  const bool passed = used(levels, "hold-out") <= 1.0;
  validation_used_ |= !passed;
  held_out_seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
  stage_ = stage;
  return passed;
}

/// On those that nothing was chosen by, one half after the other.
bool Search::passes_untouched(const Levels& levels) {
  if (untouched() == 0) return true;
  show("checking untouched samples");
  const auto begin = Clock::now();
  compute_held_out_golden();
  expect({{levels, "untouched-rest"}});
  const bool passed = used(levels, "untouched") <= 1.0 && (untouched() == 1 || used(levels, "untouched-rest") <= 1.0);
  held_out_seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
  return passed;
}

/// The half of the untouched samples that the best set failed on joins those of validation, as long as the other half
/// was not looked at; else the search has failed.
bool Search::take_untouched() {
  const std::size_t share = (untouched() + 1) / 2;
  if (untouched() == share || used(*best_, "untouched") <= 1.0) {
    fails_untouched_ = true;
    return false;
  }
  last_held_out_.worst_sample += static_cast<int>(validated_);
  validated_ += share;
  validation_used_ = true;
  if (!join_failing_sample()) forget_best();
  return true;
}

/// The samples have become others.
void Search::forget_best() {
  done_.clear();
  best_.reset();
  best_holds_ = false;
}

/// The sample of validation that fails by most becomes one of those that are searched on, as long as another one stays
/// held out.
bool Search::join_failing_sample() {
  if (last_held_out_.worst_sample < 0 || held_out() < 2) return false;
  const auto at = static_cast<std::size_t>(last_held_out_.worst_sample);
  // Golden results of elsewhere may be out of reach.
  Trials& trials = space_->trials();
  if (!data_.held_out_golden.empty() &&
      !judge({&held_out_golden_[at], 1}, trials.run(trials.full_precision(), searched_ + at, 1, false)).passed(margin_))
    return false;
  log_info(fmt::format("Held-out sample {} fails ({:.4g} of the tolerance at '{}'): it joins the search", at,
                       last_held_out_.used, last_held_out_.worst_output));
  moves_.emplace_back(searched_ + at, searched_);
  trials.move_sample(searched_ + at, searched_);
  golden_.push_back(std::move(held_out_golden_[at]));
  held_out_golden_.erase(held_out_golden_.begin() + static_cast<std::ptrdiff_t>(at));
  ++searched_;
  --validated_;
  ++joined_;
  forget_best();
  if (effects_.empty()) return true;
  add_effects(predict(space_->low(), searched_ - 1));
  measure_groups(searched_ - 1);
  order();
  return true;
}

/// A set that passes here need not pass elsewhere: more layers are raised, in growing steps, until it does; then as few
/// of these as bisection finds.
void Search::extend_for_held_out(Count count) {
  const Count all = order_.size();
  const auto holds = [&](Count heads) { return head_passes(heads) && passes_held_out(head(heads)); };
  if (!passes_held_out(head(count)) && join_failing_sample()) return find();
  Count step = 1, fails = count;
  while (!holds(count)) {
    if (count == all) {
      fails_held_out_ = true;
      return;
    }
    fails = count;
    count = std::min(all, count + step);
    step *= 2;
  }
  best_ = head(count);
  best_holds_ = true;
  while (count > fails && count - fails > 1) {
    const Count middle = fails + (count - fails) / 2;
    if (!holds(middle)) {
      fails = middle;
      continue;
    }
    count = middle;
    best_ = head(count);
  }
}

/// When the trials have run out: the best set may still be without its proof.
void Search::verify_best() {
  if (!best_ || untouched_holds_) return;
  try {
    best_holds_ = best_holds_ || passes_held_out(*best_);
    untouched_holds_ = best_holds_ && passes_untouched(*best_);
    fails_untouched_ = best_holds_ && !untouched_holds_;
  } catch (const LimitReached&) {  // Of time: it stays unproven.
  } catch (const SearchInterrupted&) {
  }
}

/// The figures of the samples that nothing was chosen by, for these levels: the untouched ones, and those of validation
/// as long as nothing failed on them, or where there is nothing else to tell.
void Search::add_held_out(Answer& answer, const Levels& levels) const {
  answer.validation_samples = validation_used_ ? static_cast<int>(validated_) : 0;
  const bool validation_counts = !validation_used_ || untouched() == 0 || fails_held_out_;
  const std::size_t left_out = validation_counts ? 0 : validated_;
  answer.held_out_samples = static_cast<int>(held_out() - left_out);
  Judgement all;
  int judged = 0, passed = 0;
  const auto raised = space_->names(levels);
  for (const char* kind : {"hold-out", "untouched", "untouched-rest"}) {
    if (kind == std::string_view("hold-out") && !validation_counts) continue;
    const Trial* trial = journal_.find(kind, raised, repair_words_, joined_, static_cast<int>(validated_));
    if (trial == nullptr) continue;
    Judgement judgement = trial->judgement;
    const auto [first, count] = samples_of(kind);
    const int before = static_cast<int>(first - searched_ - left_out);
    judged += static_cast<int>(count);
    passed += judgement.passed() ? static_cast<int>(count) : std::max(0, trial->samples_passed);
    if (judgement.worst_sample >= 0) judgement.worst_sample += before;
    for (auto& output : judgement.outputs) {
      if (output.sample >= 0) output.sample += before;
      const auto same = std::ranges::find(all.outputs, output.output, &Judgement::OutputError::output);
      if (same == all.outputs.end())
        all.outputs.push_back(output);
      else if (output.used > same->used)
        *same = output;
    }
    if (judged == static_cast<int>(count) || judgement.used > all.used) {
      judgement.outputs = std::move(all.outputs);
      all = std::move(judgement);
    }
  }
  if (judged == 0) return;
  answer.held_out_samples = judged;
  answer.held_out = std::move(all);
  answer.held_out_passed = passed;
}

}  // namespace ulpscope
