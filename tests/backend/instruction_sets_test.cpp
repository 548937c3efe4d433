// What ULPSCOPE_ISA names is what kernels are made of. ctest runs it for every set.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/product.h"
#include "backend/cpu/program_kernels.h"
#include "core/instruction_set.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// A variable for the time of a test.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name), before_(variable(name)) { setenv(name, value, 1); }
  ~Setting() {
    if (before_.empty())
      unsetenv(name_);
    else
      setenv(name_, before_.c_str(), 1);
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
  std::string before_;
};

std::string refusal() {
  try {
    find_backend("cpu");
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(InstructionSets, OwnKernelsAreOfTheSetThatIsNamed) {
  const std::string named = variable("ULPSCOPE_ISA");
  EXPECT_EQ(cpu::program_kernels().name, named.empty() ? std::string(name_of(most_of_processor())) : named);
  EXPECT_EQ(name_of(instruction_set()), cpu::program_kernels().name);
}

TEST(InstructionSets, WhatIsNoSetIsRefused) {
  EXPECT_EQ(refusal(), "");
  {
    const Setting wrong("ULPSCOPE_ISA", "AVX2");
    EXPECT_EQ(refusal(), "[build] ULPSCOPE_ISA: expected baseline, avx2 or avx512, got 'AVX2'; try without it");
  }
  const Setting wrong("ONEDNN_MAX_CPU_ISA", "avx3");
  if (cpu::onednn_version().empty()) {
    EXPECT_EQ(refusal(), "");
    return;
  }
  EXPECT_NE(refusal().find("[build] ONEDNN_MAX_CPU_ISA: expected one of DEFAULT, SSE41, "), std::string::npos);
  EXPECT_NE(refusal().find("got 'avx3'"), std::string::npos);
}

TEST(InstructionSets, WhatTheProcessorLacksIsRefused) {
  const Setting most("ULPSCOPE_ISA", "avx512");
  EXPECT_EQ(refusal().empty(), most_of_processor() == InstructionSet::kAvx512) << refusal();
  if (refusal().empty()) return;
#if defined(__x86_64__)
  EXPECT_NE(refusal().find("expected instructions that this processor has, got 'avx512'"), std::string::npos);
#else
  EXPECT_NE(refusal().find("expected baseline, which is all that kernels are made of on "), std::string::npos);
#endif
}

}  // namespace
}  // namespace ulpscope
