// Sources that are found by what they were generated from: always those that the generators give.
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <limits>
#include <thread>

#include "backend/cuda/generated_sources.h"
#include "backend/cuda/kernel_cache.h"
#include "backend/cuda_programs.h"
#include "backend/seeds.h"

namespace ulpscope::cuda {
namespace {

using testing_programs::ProgramMaker;
using testing_programs::Style;

void expect_same(const NamedSource& actual, const KernelSource& fresh, const std::string& what) {
  EXPECT_EQ(actual.source, fresh.source) << what;
  EXPECT_EQ(actual.grid, fresh.grid) << what;
  EXPECT_EQ(actual.block, fresh.block) << what;
  EXPECT_EQ(actual.shared, fresh.shared) << what;
  EXPECT_EQ(actual.hash, hash_of(fresh.source)) << what;
}

/// Programs, and each of them with one thing in it changed.
TEST(CudaGeneratedSources, ProgramsAreThoseOfTheGenerator) {
  const std::uint32_t seed = sweeps::seed();
  std::mt19937 random(seed);
  for (int i = 0; i < sweeps::count(100); ++i) {
    const std::string where = "program " + std::to_string(i);
    ProgramSpec spec = ProgramMaker(seed + static_cast<unsigned>(i), Style::kAny).make();
    const SharedSource first = shared_program(spec);
    expect_same(*first, program_source(spec), where);
    EXPECT_EQ(shared_program(spec), first) << where;
    const auto any = [&](auto& list) -> auto& { return list[random() % list.size()]; };
    const std::function<void()> changes[] = {
        [&] { any(spec.inputs).type = DataType::kBFloat16; },
        [&] { any(spec.inputs).alignment = 2; },
        [&] { any(spec.inputs).rounding = Rounding::kTF32; },
        [&] { any(spec.outputs).rounding = Rounding::kF16; },
        [&] { any(spec.outputs).alignment = 4; },
        [&] { spec.outputs.push_back(spec.outputs.back()); },
        [&] { any(spec.program.values).p += 1; },
        [&] { any(spec.program.values).constant += 1; },
        [&] {
          for (ProgramInput& input : spec.inputs)
            for (std::int64_t& stride : input.strides) stride *= 2;
        },
    };
    for (const auto& change : changes) {
      change();
      expect_same(*shared_program(spec), program_source(spec), where);
    }
  }
}

/// 0 and -0 are equal numbers and other texts; NaN is no number, and found all the same.
TEST(CudaGeneratedSources, ConstantsCountBitByBit) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const float constant : {0.0f, -0.0f, kNan, -kNan, std::numeric_limits<float>::infinity(), 0x1p-149f}) {
    ProgramSpec spec;
    spec.domain = {8};
    spec.inputs = {{.strides = {1}}};
    Program& p = spec.program;
    const Register x = p.load(0);
    spec.outputs = {{.source = p.apply(Instruction::kAdd, x, p.constant(constant)), .strides = {1}}};
    const SharedSource source = shared_program(spec);
    expect_same(*source, program_source(spec), std::to_string(constant));
    EXPECT_EQ(shared_program(spec), source) << constant;
  }
}

TEST(CudaGeneratedSources, CopiesAreThoseOfTheGenerator) {
  std::mt19937 random(sweeps::seed());
  const auto pick = [&](auto... values) {
    const std::common_type_t<decltype(values)...> list[] = {values...};
    return list[random() % sizeof...(values)];
  };
  for (int i = 0; i < sweeps::count(200); ++i) {
    const std::int64_t rows = pick(1, 3, 64), columns = pick(1, 5, 64);
    const StridedTensor in{pick(DataType::kFloat32, DataType::kFloat16), {rows, columns}, {columns, 1}};
    StridedTensor out = in;
    out.type = pick(DataType::kFloat32, DataType::kBFloat16);
    if (pick(0, 1) == 1) out.strides = {1, rows};
    expect_same(*shared_copy(in, out), copy_source(in, out), std::to_string(i));
    expect_same(*shared_copy(out, in), copy_source(out, in), std::to_string(i));
  }
}

TEST(CudaGeneratedSources, ThreadsGetTheSameSource) {
  const std::uint32_t seed = sweeps::seed();
  std::vector<ProgramSpec> specs;
  for (unsigned i = 0; i < 50; ++i) specs.push_back(ProgramMaker(seed + 1000 + i, Style::kAny).make());
  std::vector<SharedSource> found[3];
  std::vector<std::thread> threads;
  for (auto& mine : found)
    threads.emplace_back([&] {
      for (const ProgramSpec& spec : specs) mine.push_back(shared_program(spec));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found[0], found[1]);
  EXPECT_EQ(found[0], found[2]);
}

}  // namespace
}  // namespace ulpscope::cuda
