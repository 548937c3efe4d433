// An answer as a page.
#pragma once

#include <filesystem>
#include <string>

#include "ulpscope/answer.h"
#include "ulpscope/export.h"

namespace ulpscope {

struct ReportOptions {
  /// Where the page will be, for the commands that it shows.
  std::filesystem::path output = "report.html";
  /// A typed model that `convert` made of the answer: the page lists its casts. Empty: none.
  std::filesystem::path typed;
};

/// One HTML file that needs no network: the verdict, the error of all trials against their estimated time, the
/// sensitivity of every layer, why each kept layer is kept, and the commands that reproduce it. Needs Python with the
/// package plotly. Throws Error: kInvalidArgument for a typed model of another answer, kNotFound for Python or plotly,
/// and what reading the typed model throws.
ULPSCOPE_API std::string report(const AnswerFile& answer, const ReportOptions& options = {});

}  // namespace ulpscope
