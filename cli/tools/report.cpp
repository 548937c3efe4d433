#include "ulpscope/report.h"

#include <filesystem>

#include "core/file.h"
#include "core/messages.h"
#include "interrupt.h"
#include "runners/worker.h"
#include "tools/tool.h"
#include "ulpscope/error.h"

namespace ulpscope::cli {
namespace {

namespace fs = std::filesystem;

class ReportTool : public Tool {
 public:
  std::string description() const override {
    return "\n\n    ulpscope report model.fp16.answer.json -o report.html\n\n"
           "One HTML file that needs no network: the verdict, the whole network by depth, why each kept layer is kept, "
           "a\n"
           "graph of its neighborhood, the error of all trials against their estimated time, and the commands that "
           "reproduce\nit. With --compare two answers side by side.";
  }

  void declare(OptionTable& table) override {
    table.section("Answer", "what is shown.");
    table.positional("ANSWER", answer_, "The answer of `precision search` (.answer.json)", /*required=*/true);
    table.ours().value({"--typed"}, typed_, "FILE",
                       "A typed model that `convert` made of it: the page lists its casts");
    table.ours().value({"--compare"}, compare_, "ANSWER",
                       "Another answer for the same model: the page says what differs");
    table.section("Output", "the page.");
    table.value({"-o", "--output"}, output_, "FILE",
                "Where to write the page (default: ANSWER's name with .html, in the current folder)");
  }

  int run() override {
    const fs::path source(*answer_);
    const AnswerFile file = read_answer(source);
    const fs::path output = output_ ? fs::path(*output_) : default_output(source);
    check_output(output, source);
    if (compare_) check_output(output, *compare_);
    WorkerOptions worker = default_worker_options();
    worker.interrupted = interrupted;
    set_default_worker_options(worker);
    ReportOptions options{.output = output, .typed = typed_.value_or("")};
    if (compare_) options.compare = read_answer(*compare_);
    const std::string page = ulpscope::report(file, options);
    const WritingFile writing;
    write_file(output, page);
    log_info("Saving report to " + output.string());
    return 0;
  }

 private:
  /// "x.answer.json" becomes "x.html".
  static fs::path default_output(const fs::path& source) {
    std::string name = source.filename().string();
    for (const std::string_view ending : {".json", ".answer"})
      if (name.size() > ending.size() && name.ends_with(ending)) name.resize(name.size() - ending.size());
    return name + ".html";
  }

  /// Found out before Python starts.
  static void check_output(const fs::path& output, const fs::path& source) {
    std::error_code ignored;
    if (fs::equivalent(output, source, ignored))
      throw invalid_argument(
          "[report] '{}': expected another file for the page than the answer, got the same; try -o report.html",
          output.string());
    if (fs::is_directory(output, ignored))
      throw error_of(ErrorCode::kIo, "[report] '{}': expected a file to write, got a folder; try -o {}",
                     output.string(), (output / "report.html").string());
  }

  std::optional<std::string> answer_, typed_, compare_, output_;
};

}  // namespace

std::unique_ptr<Tool> make_report_tool() { return std::make_unique<ReportTool>(); }

}  // namespace ulpscope::cli
