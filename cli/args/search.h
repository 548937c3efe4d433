// What `precision search` takes beside the network, the inputs and the criterion.
#pragma once

#include <filesystem>

#include "args/trt_config.h"
#include "ulpscope/search.h"

namespace ulpscope::cli {

struct SearchArgs {
  std::vector<std::string> ladder, keep, lower, hold_out;
  bool no_hold_out = false;
  std::optional<std::string> objective;
  std::optional<double> margin, bits;
  bool shrink = false, no_repair = false, dry_run = false;
  std::optional<int> max_trials;
  std::optional<std::string> time_limit;
  std::optional<std::string> answer, journal, layer_precisions_file;
  bool no_journal = false, resume = false, force = false;
  std::optional<std::string> ray;
  std::optional<int> ray_workers;

  /// `config`: --memory-limit goes there.
  void declare(OptionTable& table, TrtConfigArgs& config);
  /// Without criterion, data and files. Throws Error for what makes no sense.
  SearchOptions options() const;

  /// --save-answer, or MODEL's name with the precisions ("m.fp16-int8.answer.json") in the working directory.
  std::filesystem::path answer_path(const std::filesystem::path& model,
                                    const std::vector<std::string>& precisions) const;
  /// --journal, or beside the answer: "x.answer.json" and "x.json" have "x.journal.jsonl". Empty with --no-journal.
  std::filesystem::path journal_path(const std::filesystem::path& model,
                                     const std::vector<std::string>& precisions) const;

 private:
  void declare_answer(OptionTable& table);
};

/// "30", "30s", "2m", "1.5h" as seconds. Throws Error that starts with the option's name.
double parse_duration(std::string_view option, const std::string& text);

}  // namespace ulpscope::cli
