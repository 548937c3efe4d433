// main() of the test programs.
#include <gmock/gmock.h>

#include <cstdio>

#include "core/instruction_set.h"
#include "ulpscope/error.h"

namespace {
constexpr int kSkipped = 77;  // SKIP_RETURN_CODE of tests/CMakeLists.txt.
}

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  try {
    ulpscope::check_instruction_set();
  } catch (const ulpscope::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.code() == ulpscope::ErrorCode::kUnsupported ? kSkipped : 1;
  }
  return RUN_ALL_TESTS();
}
