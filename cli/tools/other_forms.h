// What `convert` writes beside the model: its choice of precisions in the words of other tools.
#pragma once

#include <optional>
#include <string>

#include "args/option_table.h"
#include "ulpscope/answer.h"
#include "ulpscope/convert.h"

namespace ulpscope::cli {

class OtherForms {
 public:
  void declare(OptionTable& table);
  bool any() const { return saves() || print_commands_; }
  /// Says what they leave out. `answer`: whose choice it is; null: of nobody's.
  void save(const ConvertedModel& made, const AnswerFile* answer, const std::string& model,
            const std::string& output) const;

 private:
  bool saves() const { return layer_precisions_ || script_ || exclusions_; }

  std::optional<std::string> layer_precisions_, script_, exclusions_;  ///< Files.
  bool print_commands_ = false;
};

}  // namespace ulpscope::cli
