// Scripts that tests write into a folder of their own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "runners/worker.h"
#include "ulpscope/error.h"

namespace ulpscope {

class ScriptTest : public ::testing::Test {
 protected:
  ScriptTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ulpscope-script-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~ScriptTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  /// Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& content) const {
    const std::filesystem::path path = folder_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path.string();
  }

  /// Options whose output lands in `out_` and `err_`.
  WorkerOptions options() {
    WorkerOptions result = default_worker_options();
    result.output = [this](bool is_stderr, std::string_view text) { (is_stderr ? err_ : out_).append(text); };
    return result;
  }

  /// The Error that the function throws; fails the test if it throws none.
  static Error error_of(const std::function<void()>& function) {
    try {
      function();
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "no Error was thrown";
    return {ErrorCode::kInvalidArgument, ""};
  }

  std::filesystem::path folder_;
  std::string out_, err_;
};

}  // namespace ulpscope
