// What ONEDNN_MAX_CPU_ISA names is what oneDNN's kernels are made of. ctest runs it for every set.
#include <gtest/gtest.h>

#include <cstdlib>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "core/instruction_set.h"

namespace ulpscope {
namespace {

TEST(InstructionSets, OneDnnTakesNoMoreThanTheSetThatIsNamed) {
  const char* value = std::getenv("ONEDNN_MAX_CPU_ISA");
  const std::string named = value == nullptr ? "" : value;
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  if (named == "SSE41") EXPECT_EQ(isa, dnnl::cpu_isa::sse41);
  if (named == "AVX2" && most_of_processor() >= InstructionSet::kAvx2) EXPECT_EQ(isa, dnnl::cpu_isa::avx2);
  if (named == "AVX512_CORE" && most_of_processor() >= InstructionSet::kAvx512)
    EXPECT_EQ(isa, dnnl::cpu_isa::avx512_core);
}

}  // namespace
}  // namespace ulpscope
