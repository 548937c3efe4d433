// `convert --relax`: neighbours of kept layers raised where that saves casts, if the outputs stay within the tolerance.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "args/criterion.h"
#include "args/option_table.h"
#include "engine/options.h"
#include "engine/specialization.h"
#include "precision/answer_json.h"
#include "runners/script_host.h"

namespace ulpscope::cli {

struct RelaxArgs {
  bool relax = false;
  std::optional<std::string> golden, save_answer;
  CriterionArgs criterion;
  ComparisonArgs comparison;

  void declare(OptionTable& table);
  /// Options that mean nothing without --relax or --answer. Throws Error.
  void check(bool has_answer) const;
  /// The tolerance and golden results of the answer, where the command line names none. Throws Error when neither does.
  void complete_from(const AnswerFile* answer);
};

/// The layers to raise, in network order; empty, with the reason in the log, where no casts are saved or the completed
/// assignment does not meet the tolerance. `requested`: what the assignment was made from; layers with an entry stay as
/// they are. Golden outputs are those of the network in float32 unless --golden names others.
/// Throws Error for golden results and criteria that do not fit.
std::vector<LayerId> find_layers_to_raise(const RelaxArgs& args, const std::shared_ptr<const Network>& network,
                                          const BuildOptions& build, const std::vector<TensorMap>& samples,
                                          ScriptHost& host, const Specialization& spec,
                                          const std::vector<std::optional<DataType>>& requested);

/// The answer with these layers among those that are kept.
void add_raised_layers(const Network& network, const std::vector<LayerId>& raised, AnswerFile& file);

}  // namespace ulpscope::cli
