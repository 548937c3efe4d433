// The words that run an answer, as options of a model.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "ulpscope/answer.h"
#include "ulpscope/error.h"
#include "ulpscope/model.h"

namespace ulpscope {
namespace {

struct Option {
  std::string name;
  std::vector<std::string> values;
};

std::vector<Option> options_of(const std::vector<std::string>& words) {
  std::vector<Option> options;
  for (const std::string& word : words) {
    if (word.starts_with("--"))
      options.push_back({word, {}});
    else if (!options.empty())
      options.back().values.push_back(word);
  }
  return options;
}

/// What a model is read with; what repairs and kept layers of the answer say comes from there.
class OptionReader {
 public:
  explicit OptionReader(const AnswerFile& file) : file_(file) {
    result_.precisions = file.precisions;
    result_.fusion = file.fusion;
    result_.cost_model = true;
    for (const KeptLayer& layer : file.answer.kept) kept_.insert(layer.name);
    for (const Repair& repair : file.answer.repairs)
      if (const auto* clamp = std::get_if<Clamp>(&repair.change))
        clamps_.insert(fmt::format("{}:{}", repair.name, clamp->limit));
  }

  ModelOptions read() {
    for (const Option& option : options_of(file_.run_options)) apply_option(option);
    return result_;
  }

 private:
  void apply_option(const Option& option) {
    static const std::set<std::string> kReadFromAnswer = {"--trt",     "--tf32",
                                                          "--fp16",    "--bf16",
                                                          "--fp8",     "--int8",
                                                          "--fusion",  "--precision-constraints",
                                                          "--repairs", "--calibration-cache"};
    if (kReadFromAnswer.contains(option.name)) return;
    if (option.name == "--assume-lowest") {
      result_.cost_model = false;
    } else if (option.name == "--target" && option.values.size() == 1) {
      result_.target = option.values.front();
    } else if (option.name == "--external-data-dir" && option.values.size() == 1) {
      result_.external_data_dir = option.values.front();
    } else if (option.name == "--clamp-constants") {
      for (const std::string& word : option.values)
        if (!clamps_.contains(word)) result_.clamp_constants.push_back(word);
    } else if (option.name == "--layer-precisions") {
      for (const std::string& word : option.values) {
        const std::size_t colon = word.rfind(':');
        const std::string name = word.substr(0, colon);
        if (colon != std::string::npos && !kept_.contains(name))
          result_.layer_precisions[name] = word.substr(colon + 1);
      }
    } else {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("[answer] '{}': expected an answer about the network of a file, got one that {} {} "
                              "changed; try the program: ulpscope run {}",
                              file_.path.string(), option.name, fmt::join(option.values, " "), file_.model));
    }
  }

  const AnswerFile& file_;
  ModelOptions result_;
  std::set<std::string> kept_, clamps_;
};

}  // namespace

ModelOptions options_for(const AnswerFile& answer) { return OptionReader(answer).read(); }

}  // namespace ulpscope
