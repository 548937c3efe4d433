// What an answer of `precision search` says about how its model is loaded.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "args/trt_config.h"
#include "tools/run_options.h"
#include "ulpscope/answer.h"

namespace ulpscope::cli {

/// Which of the sets of an answer is meant: that of the search unless one is named.
struct AnswerSetArgs {
  std::optional<std::string> objective;
  std::optional<int> trial;

  void declare(OptionTable& table);
};

/// Behind the model, ANSWER is --answer ANSWER. Throws UsageError for both.
void take_answer(const std::vector<std::string>& words, std::optional<std::string>& path);

/// The answer of --answer with the set that is meant. Throws Error for both, and as read_answer, with_set and
/// with_trial.
AnswerFile read_answer_set(const std::string& path, const AnswerSetArgs& set);

/// Enables the types that the answer lowers layers to, and its fusion unless one is given. Throws Error for a type that
/// the options ask for and the answer does not hold for.
void load_as(const AnswerFile& answer, TrtConfigArgs& config);

/// Sets the options that --answer stands for: its words of `run`, with the repairs and scales of the file. Layer
/// precisions that are given beside it win. Throws Error: no such file, no answer, one of another model, an engine.
void apply_answer(RunOptions& options);

}  // namespace ulpscope::cli
