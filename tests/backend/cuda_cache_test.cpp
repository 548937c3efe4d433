// What the backend keeps on the disk, and how it opens libraries. Needs no GPU; what compiles is skipped without NVRTC.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/kernel_cache.h"
#include "backend/cuda/library.h"
#include "backend/cuda/nvrtc.h"
#include "backend/cuda/tactics.h"
#include "core/file.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cuda {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kKernel = "extern \"C\" __global__ void kernel(float* y) { y[threadIdx.x] = 1.0f; }\n";

/// A variable of the environment, put back at the end.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { old_.empty() ? ::unsetenv(name_) : ::setenv(name_, old_.c_str(), 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* const name_;
  std::string old_;
};

class CudaCache : public testing::Test {
 protected:
  CudaCache() {
    std::string pattern = (fs::temp_directory_path() / "ulpscope_cache_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    variable_.emplace("ULPSCOPE_CACHE", folder_.string());
    set_log_sink([this](LogLevel level, std::string_view text) {
      if (level >= LogLevel::kWarning) warnings_.emplace_back(text);
    });
  }
  ~CudaCache() override {
    set_log_sink({});
    fs::remove_all(folder_);
  }

  std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) all.push_back(entry.path());
    return all;
  }

  fs::path folder_;
  std::optional<Variable> variable_;
  std::vector<std::string> warnings_;
};

/// What may stand in a file instead of what was put there.
std::vector<std::string> damaged(const std::string& whole) {
  std::vector<std::string> all{"",
                               "\n",
                               "not ours",
                               std::string(4096, '\0'),
                               "\x7f"
                               "ELF\x02\x01\x01",
                               whole + "x"};
  for (std::size_t length = 0; length < whole.size(); length += 1 + length / 8) all.push_back(whole.substr(0, length));
  for (std::size_t at = 0; at < whole.size(); at += 1 + at / 8) {
    all.push_back(whole);
    all.back()[at] = static_cast<char>(all.back()[at] ^ 1);
  }
  return all;
}

TEST_F(CudaCache, GivesWhatWasPut) {
  EXPECT_EQ(get_cached("a"), "");
  const std::string bytes("\0binary\n\xff", 9);
  put_cached("a", bytes);
  EXPECT_EQ(get_cached("a"), bytes);
  put_cached("a", "another");
  EXPECT_EQ(get_cached("a"), "another");
  EXPECT_EQ(get_cached("b"), "");
}

TEST_F(CudaCache, IgnoresDamagedFiles) {
  put_cached("a", "the content");
  for (const std::string& content : damaged(read_file(folder_ / "a"))) {
    write_file(folder_ / "a", content);
    EXPECT_EQ(get_cached("a"), "") << content;
  }
  put_cached("a", "anew");
  EXPECT_EQ(get_cached("a"), "anew");
  fs::create_directory(folder_ / "folder");
  EXPECT_EQ(get_cached("folder"), "");
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(CudaCache, MakesDamagedCodeAnew) {
  std::string code;
  try {
    code = cached_code(kKernel, "sm_90");
  } catch (const Error& missing) {
    GTEST_SKIP() << missing.what();
  }
  ASSERT_EQ(files().size(), 1u);
  const fs::path file = files()[0];
  const std::string whole = read_file(file);
  for (const std::string& content : {std::string("not ours"), whole.substr(0, whole.size() / 2), code}) {
    write_file(file, content);
    EXPECT_EQ(cached_code(kKernel, "sm_90"), code);
    EXPECT_EQ(read_file(file), whole);
  }
  // Another architecture and another source have files of their own.
  EXPECT_NE(cached_code(kKernel, "sm_80"), code);
  EXPECT_NE(cached_code(std::string(kKernel) + "// other\n", "sm_90"), "");
  EXPECT_EQ(files().size(), 3u);
}

TEST_F(CudaCache, GoesOnWhereNothingCanBeKept) {
  write_file(folder_ / "file", "a file, no folder");
  const Variable variable("ULPSCOPE_CACHE", (folder_ / "file" / "below").string());
  put_cached("a", "text");
  put_cached("b", "text");
  EXPECT_EQ(get_cached("a"), "");
  // Once in a process; another test may have been told.
  EXPECT_LE(warnings_.size(), 1u);
  for (const std::string& warning : warnings_) EXPECT_THAT(warning, HasSubstr("are not kept"));
  TacticCache tactics("gpu");
  tactics.put("product", {"a0", 1.5});
  EXPECT_NO_THROW(tactics.save());
  EXPECT_TRUE(tactics.find("product"));
  try {
    EXPECT_FALSE(cached_code(kKernel, "sm_90").empty());
  } catch (const Error& missing) {
    EXPECT_EQ(missing.code(), ErrorCode::kUnsupported) << missing.what();
  }
}

TEST_F(CudaCache, HasNoFolderWithoutAHome) {
  const Variable own("ULPSCOPE_CACHE", "");
  ::unsetenv("ULPSCOPE_CACHE");
  const Variable xdg("XDG_CACHE_HOME", folder_.string());
  EXPECT_EQ(cache_folder(), folder_ / "ulpscope");
  const Variable no_xdg("XDG_CACHE_HOME", ""), home("HOME", folder_.string());
  EXPECT_EQ(cache_folder(), folder_ / ".cache" / "ulpscope");
  const Variable no_home("HOME", "");
  EXPECT_EQ(cache_folder(), "");
  put_cached("a", "text");
  EXPECT_EQ(get_cached("a"), "");
}

TEST_F(CudaCache, TacticsComeBack) {
  const std::string key = "product 1x2x3 batch 1 float16->float16 a 3,1,0 b 2,1,0 d 2,1,0 bias aligned 16";
  {
    TacticCache tactics("NVIDIA H200-driver13000/1");
    EXPECT_FALSE(tactics.find(key));
    tactics.put(key, {"00ff", 4.25});
    tactics.put(key, {"engine 39 knobs 2=1,17=3", 3.125});
    tactics.save();
  }
  ASSERT_EQ(files().size(), 1u);
  EXPECT_EQ(files()[0].filename(), "tactics-NVIDIA_H200_driver13000_1.txt");
  const TacticCache again("NVIDIA H200-driver13000/1"), other("NVIDIA H200-driver13010/1");
  ASSERT_TRUE(again.find(key));
  EXPECT_EQ(again.find(key)->algorithm, "engine 39 knobs 2=1,17=3");
  EXPECT_EQ(again.find(key)->microseconds, 3.125);
  EXPECT_FALSE(other.find(key));
}

TEST_F(CudaCache, TacticsTravelInTimingCaches) {
  TimingCache file;
  {
    TacticCache here("NVIDIA H200-driver13000");
    here.put("product", {"00ff", 4.0625});
    here.put("convolution", {"engine 4", 2});
    file = timing_cache_from_json(to_json(here.measured()));
  }
  const fs::path elsewhere = folder_ / "elsewhere";
  const Variable variable("ULPSCOPE_CACHE", elsewhere.string());
  TacticCache there("NVIDIA H200-driver13000");
  there.put("product", {"ffff", 1});
  there.put("another", {"a", 1});
  there.take(file);
  EXPECT_EQ(there.find("product"), (MeasuredTactic{"00ff", 4.0625}));
  EXPECT_EQ(there.find("convolution"), (MeasuredTactic{"engine 4", 2}));
  EXPECT_TRUE(there.find("another"));
  there.save();
  EXPECT_TRUE(TacticCache("NVIDIA H200-driver13000").find("convolution"));
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(CudaCache, TacticsOfOtherDevicesStayAway) {
  TacticCache a100("NVIDIA A100");
  a100.put("product", {"00ff", 4});
  TacticCache h200("NVIDIA H200");
  TimingCache file = a100.measured();
  file.source = "a100.cache";
  h200.take(file);
  EXPECT_FALSE(h200.find("product"));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], testing::AllOf(HasSubstr("'NVIDIA H200'"), HasSubstr("'NVIDIA A100'"),
                                           HasSubstr("a100.cache is ignored")));
  h200.save();
  EXPECT_TRUE(files().empty());
}

TEST_F(CudaCache, TacticsOfSeveralAreMerged) {
  TacticCache a("gpu"), b("gpu");
  a.put("one", {"a1", 1});
  b.put("two", {"b2", 2});
  b.put("three", {"b3", 3});
  a.save();
  b.save();
  const TacticCache all("gpu");
  for (const char* key : {"one", "two", "three"}) EXPECT_TRUE(all.find(key)) << key;
}

TEST_F(CudaCache, BadTacticsAreIgnored) {
  { TacticCache("gpu").put("x", {}); }
  TacticCache first("gpu");
  first.put("good", {"a", 1});
  first.save();
  const fs::path file = files().at(0);
  for (const std::string& content : damaged(read_file(file))) {
    write_file(file, content);
    EXPECT_FALSE(TacticCache("gpu").find("good")) << content;
  }
  // Lines that are no tactics, in a file that is whole.
  put_cached(file.filename().string(), "\n\t\nno tabs\none\ttab\ngood\ta\t1\nno time\tb\t\n");
  const TacticCache read("gpu");
  ASSERT_TRUE(read.find("good"));
  EXPECT_EQ(read.find("good")->algorithm, "a");
  EXPECT_FALSE(read.find("no tabs"));
  EXPECT_FALSE(read.find("one"));
}

/// Processes that write the same names: a reader sees what one of them wrote, whole, or nothing.
TEST_F(CudaCache, IsSharedByProcesses) {
  constexpr int kProcesses = 3, kTimes = 100;
  const auto content = [](int process) {
    return std::string(20000 + 7000 * static_cast<std::size_t>(process), 'a' + process);
  };
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int i = 0; i < kTimes; ++i) put_cached("shared", content(process));
      TacticCache tactics("gpu");
      for (int i = 0; i < kTimes; ++i) {
        tactics.put(fmt::format("{} {}", process, i), {"a", 1});
        tactics.save();
      }
      ::_exit(get_cached("shared").empty() ? 1 : 0);
    }
    children.push_back(child);
  }
  for (int i = 0; i < kTimes; ++i) {
    const std::string seen = get_cached("shared");
    bool known = seen.empty();
    for (int process = 0; process < kProcesses; ++process) known |= seen == content(process);
    EXPECT_TRUE(known) << seen.size() << " bytes";
  }
  for (pid_t child : children) {
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  // Nothing else is left behind; what the last one saved is there.
  EXPECT_EQ(files().size(), 2u);
  int kept = 0;
  const TacticCache tactics("gpu");
  for (int process = 0; process < kProcesses; ++process)
    kept += tactics.find(fmt::format("{} {}", process, kTimes - 1)).has_value();
  EXPECT_GE(kept, 1);
}

TEST(CudaLibrary, SaysWhatInstallsWhatIsMissing) {
  try {
    const Library library({"libulpscope_nothing.so.2", "libulpscope_nothing.so.1"}, "nvidia-nothing");
    FAIL() << "found " << library.path();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    for (const char* part : {"[build] backend 'cuda': libulpscope_nothing.so.2 is missing",
                             "pip install 'nvidia-nothing'", "pip install 'ulpscope[cuda]'", "ULPSCOPE_CUDA_LIBRARIES"})
      EXPECT_THAT(error.what(), HasSubstr(part));
    EXPECT_THAT(error.what(), testing::Not(HasSubstr("\n")));
  }
  try {
    const Library driver({"libulpscope_nothing.so.1"}, "");
    FAIL() << "found " << driver.path();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("no NVIDIA driver: libulpscope_nothing.so.1"));
    EXPECT_THAT(error.what(), HasSubstr("leave out --backend cuda"));
  }
}

TEST(CudaLibrary, SaysWhichFunctionIsMissing) {
  const Library library({"libm.so.6"}, "nvidia-nothing");
  void (*function)() = library.function("cos");
  EXPECT_NE(function, nullptr);
  try {
    library.function("no_such_function");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("libm.so.6 has no function no_such_function"));
  }
}

TEST_F(CudaCache, LibrariesAreLookedForBesideTheNamedFoldersAndPackages) {
  const fs::path own = folder_ / "own", site = folder_ / "site", venv = folder_ / "venv", path = folder_ / "path";
  const std::vector<fs::path> wanted{
      own,
      own / "nvidia" / "cublas" / "lib",
      site / "nvidia" / "cu13" / "lib",
      venv / "lib" / "python3.11" / "site-packages" / "nvidia" / "cudnn" / "lib",
      path / "lib" / "python3.12" / "dist-packages" / "nvidia" / "cuda_nvrtc" / "lib" / "x86_64",
  };
  for (const fs::path& each : wanted) fs::create_directories(each);
  fs::create_directories(path / "bin");
  write_file(path / "bin" / "python3", std::string_view());
  const Variable named("ULPSCOPE_CUDA_LIBRARIES", fmt::format(":{}/nowhere::{}", folder_.string(), own.string()));
  const Variable python("PYTHONPATH", site.string()), environment("VIRTUAL_ENV", venv.string());
  const Variable programs("PATH", fmt::format("/nowhere:{}", (path / "bin").string()));
  std::vector<fs::path> found = library_folders();
  std::erase_if(found, [&](const fs::path& each) { return !each.string().starts_with(folder_.string()); });
  EXPECT_EQ(found.size(), wanted.size() + 1) << "lib and lib/x86_64 of one package";
  std::size_t at = 0;
  for (const fs::path& each : wanted) {
    const auto place = std::find(found.begin(), found.end(), each);
    ASSERT_NE(place, found.end()) << each;
    EXPECT_GE(static_cast<std::size_t>(place - found.begin()), at) << each << " comes before what goes before it";
    at = static_cast<std::size_t>(place - found.begin());
  }
}

}  // namespace
}  // namespace ulpscope::cuda
