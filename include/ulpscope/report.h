// An answer as a page.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "ulpscope/answer.h"
#include "ulpscope/export.h"

namespace ulpscope {

struct ReportOptions {
  /// Where the page will be, for the commands that it shows.
  std::filesystem::path output = "report.html";
  /// A typed model that `convert` made of the answer: the page lists its casts. Empty: none.
  std::filesystem::path typed;
  /// Another answer for the same network, to be held against this one.
  std::optional<AnswerFile> compare{};
};

/// One HTML file that needs no network: the verdict, the network by depth, why each kept layer is kept, the error of
/// all trials against their estimated time, and the commands that reproduce it. Throws Error: kInvalidArgument for a
/// typed model of another answer, kNotFound without Python, and what reading the typed model throws.
ULPSCOPE_API std::string report(const AnswerFile& answer, const ReportOptions& options = {});

}  // namespace ulpscope
