// What the backend declares of NVIDIA's libraries, against their headers where there are any.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "backend/cuda/library.h"

namespace ulpscope::cuda {
namespace {

namespace fs = std::filesystem;
const fs::path kSource = ULPSCOPE_SOURCE_DIR;

std::string text_of_file(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The folders of headers beside the folders in which libraries are looked for.
std::vector<fs::path> header_folders() {
  std::vector<fs::path> folders{"/usr/local/cuda/include"};
  for (const fs::path& libraries : library_folders())
    for (const fs::path& prefix : {libraries.parent_path(), libraries.parent_path().parent_path()})
      folders.push_back(prefix / "include");
  std::erase_if(folders, [](const fs::path& folder) {
    std::error_code none;
    return !fs::is_directory(folder, none);
  });
  return folders;
}

struct Declared {
  const char* name;
  const char* header;
  int check;           ///< ULPSCOPE_CHECK of cuda_declarations.cpp.
  const char* source;  ///< Declares the functions, and gets them from the library.
};

class CudaDeclarations : public ::testing::TestWithParam<Declared> {};

TEST_P(CudaDeclarations, AreThoseOfTheHeader) {
  if (std::system("c++ --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no compiler c++";
  std::string includes;
  bool found = false;
  for (const fs::path& folder : header_folders()) {
    includes += fmt::format(" -I'{}'", folder.string());
    found |= fs::exists(folder / GetParam().header);
  }
  if (!found)
    GTEST_SKIP() << "no " << GetParam().header << " in /usr/local/cuda/include or beside pip's nvidia packages";
  const std::string command =
      fmt::format("c++ -std=c++20 -fsyntax-only -DULPSCOPE_CHECK={0} -I'{1}/src' -I'{1}/include'{2} '{1}/{3}'",
                  GetParam().check, kSource.string(), includes, "tests/backend/cuda_declarations.cpp");
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

/// The pairs of the checks, "function cuFunction", are those of the library.
TEST_P(CudaDeclarations, CoverEveryFunctionThatIsOpened) {
  const auto pairs = [](const std::string& text, const char* pattern, std::size_t member, std::size_t function) {
    std::set<std::string> found;
    const std::regex expression(pattern);
    for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end; ++match)
      found.insert((*match)[member].str() + " " + (*match)[function].str());
    return found;
  };
  const std::string checks = text_of_file(kSource / "tests/backend/cuda_declarations.cpp");
  const std::size_t begin =
      checks.find(fmt::format("\n{} ULPSCOPE_CHECK == {}\n", GetParam().check == 1 ? "#if" : "#elif", GetParam().check),
                  checks.find("#define SAME_CALL"));
  ASSERT_NE(begin, std::string::npos);
  const std::string section = checks.substr(begin, checks.find("\n#el", begin + 1) - begin);
  const auto opened = pairs(text_of_file(kSource / "src/backend/cuda" / GetParam().source),
                            R"re(\(\*(\w+)\)\([^;]*? = library\.function\("(\w+)"\);)re", 1, 2);
  EXPECT_FALSE(opened.empty());
  EXPECT_EQ(pairs(section, R"re(\nSAME_CALL\((\w+), (\w+)\))re", 1, 2), opened);
}

INSTANTIATE_TEST_SUITE_P(Of, CudaDeclarations,
                         ::testing::Values(Declared{"Driver", "cuda.h", 1, "driver.h"},
                                           Declared{"Nvrtc", "nvrtc.h", 2, "nvrtc_api.h"},
                                           Declared{"CublasLt", "cublasLt.h", 3, "cublas_lt_api.h"}),
                         [](const auto& declared) { return declared.param.name; });

}  // namespace
}  // namespace ulpscope::cuda
