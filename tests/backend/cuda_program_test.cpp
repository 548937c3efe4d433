// The source of programs, run on this processor and compared with what programs mean.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "backend/cuda_elements.h"
#include "backend/cuda_programs.h"
#include "backend/cuda_shim.h"
#include "backend/seeds.h"

namespace ulpscope::cuda {
namespace {

using shim::GuardedBuffer;
using testing_programs::evaluate;
using testing_programs::offsets_of;
using testing_programs::ProgramMaker;
using testing_programs::Style;

/// An operand in memory: some bytes before element 0 (negative strides), some behind.
struct Operand {
  Operand(const Shape& domain, const std::vector<std::int64_t>& strides, DataType type, int alignment,
          unsigned char fill)
      : offsets(offsets_of(domain, strides)), element(size_of(type)) {
    const auto [low, high] = std::minmax_element(offsets.begin(), offsets.end());
    first = (static_cast<std::size_t>(-*low) * element + 15) / 16 * 16;
    buffer = std::make_unique<GuardedBuffer>(first + static_cast<std::size_t>(*high + 1) * element,
                                             static_cast<std::size_t>(alignment), fill);
  }
  unsigned char* at(std::size_t i) const { return zero() + offsets[i] * static_cast<std::int64_t>(element); }
  unsigned char* zero() const { return buffer->data() + first; }
  std::vector<std::int64_t> offsets;
  std::size_t element, first;
  std::unique_ptr<GuardedBuffer> buffer;
};

double random_value(std::mt19937& random, Style style, DataType type) {
  if (type == DataType::kBool) return static_cast<double>(random() % 2);
  if (!is_floating(type) || style == Style::kIntegers) {
    const int value = static_cast<int>(random() % 17) - 8;
    return std::string_view(name_of(type)).starts_with("u") ? std::abs(value) : value;
  }
  if (style == Style::kSmooth) return static_cast<double>(random() % 20001) / 5000.0 - 2;
  static constexpr double kSpecial[] = {INFINITY, -INFINITY, NAN, 0.0, -0.0, 1e-40, -1e-45, 65504, 65520, 3.4e38, 1e-7};
  if (random() % 40 == 0) return kSpecial[random() % std::size(kSpecial)];
  return std::ldexp(static_cast<double>(random() % 20001) / 10000.0 - 1, static_cast<int>(random() % 12) - 6);
}

double rounded(double value, Rounding rounding) {
  return static_cast<double>(round_value(static_cast<float>(value), rounding));
}

/// What an output's element reads as when it has been stored.
double stored(const ProgramOutput& out, double value) {
  value = rounded(value, out.rounding);
  if (out.quantization)
    return testing_programs::quantized(value, out.quantization->scale, out.quantization->is_unsigned());
  unsigned char bytes[8];
  elements::write(out.type, bytes, value);
  return elements::read(out.type, bytes);
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// Runs a kernel on random operands and compares; true if all is well.
bool agrees(const shim::Kernels& kernels, std::size_t number, const ProgramSpec& spec, Style style, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::unique_ptr<Operand>> operands;
  std::vector<std::vector<double>> loads;
  std::vector<void*> arguments;
  for (const ProgramInput& in : spec.inputs) {
    operands.push_back(std::make_unique<Operand>(spec.domain, in.strides, in.type, in.alignment, 0));
    const Operand& operand = *operands.back();
    std::vector<double> values;
    for (std::size_t i = 0; i < operand.offsets.size(); ++i)
      elements::write(in.type, operand.at(i), random_value(random, style, in.type));
    for (std::size_t i = 0; i < operand.offsets.size(); ++i)
      values.push_back(rounded(elements::read(in.type, operand.at(i)), in.rounding));
    loads.push_back(std::move(values));
    arguments.push_back(operand.zero());
  }
  constexpr unsigned char kUntouched = 0xa5;
  for (const ProgramOutput& out : spec.outputs) {
    operands.push_back(std::make_unique<Operand>(spec.domain, out.strides, out.type, out.alignment, kUntouched));
    arguments.push_back(operands.back()->zero());
  }
  if (const std::string failure = kernels.run(number, arguments); !failure.empty()) {
    ADD_FAILURE() << failure;
    return false;
  }
  const auto registers = evaluate(spec, loads, style == Style::kSmooth);
  for (std::size_t o = 0; o < spec.outputs.size(); ++o) {
    const ProgramOutput& out = spec.outputs[o];
    const Operand& operand = *operands[spec.inputs.size() + o];
    std::vector<bool> written(operand.buffer->size());
    for (std::size_t i = 0; i < operand.offsets.size(); ++i) {
      const double got = elements::read(out.type, operand.at(i)), value = registers[out.source][i];
      const double expected = stored(out, value);
      std::fill_n(written.begin() + (operand.at(i) - operand.buffer->data()), operand.element, true);
      const double tolerance =
          out.quantization
              ? 1
              : 2e-5 + std::fabs(expected) *
                           (out.type == DataType::kFloat32 && out.rounding == Rounding::kNone ? 2e-5 : 0.02);
      if (same(got, expected) || (style == Style::kSmooth && std::fabs(got - expected) <= tolerance)) continue;
      ADD_FAILURE() << fmt::format("output {} ({}), element {}: expected {}, got {}", o, name_of(out.type), i, expected,
                                   got);
      return false;
    }
    for (std::size_t i = 0; i < written.size(); ++i)
      if (!written[i] && operand.buffer->data()[i] != kUntouched) {
        ADD_FAILURE() << fmt::format("output {}: byte {} is none of its own", o, i);
        return false;
      }
  }
  return true;
}

std::string described(const ProgramSpec& spec, const KernelSource& source) {
  std::string text = fmt::format("domain {}, row dims {}\n", to_string(spec.domain), spec.row_dims);
  for (const ProgramInput& in : spec.inputs)
    text += fmt::format("in {} {} alignment {}\n", name_of(in.type), to_string(in.strides), in.alignment);
  for (const ProgramOutput& out : spec.outputs)
    text += fmt::format("out r{} {} {}\n", out.source, name_of(out.type), to_string(out.strides));
  return text + fmt::format("grid {}, block {}\n", source.grid[0], source.block) +
         source.source.substr(prelude().size());
}

/// Compiles all, runs all.
void compare(const std::vector<ProgramSpec>& specs, Style style, unsigned seed) {
  const std::string compiler = shim::compiler();
  if (compiler.empty()) GTEST_SKIP() << "no C++ compiler: neither $CXX nor c++";
  std::vector<KernelSource> sources;
  for (const ProgramSpec& spec : specs) sources.push_back(program_source(spec));
  const shim::Kernels kernels(sources, compiler);
  ASSERT_EQ(kernels.error(), "");
  for (std::size_t i = 0; i < specs.size(); ++i)
    ASSERT_TRUE(agrees(kernels, i, specs[i], style, seed + static_cast<unsigned>(i)))
        << "program " << i << " of seed " << seed << "\n"
        << described(specs[i], sources[i]);
}

void sweep(Style style, int count) {
  const unsigned seed = sweeps::seed();
  SCOPED_TRACE(fmt::format("ULPSCOPE_TEST_SEED={}", seed));
  std::vector<ProgramSpec> specs;
  for (int i = 0; i < count; ++i) specs.push_back(ProgramMaker(seed + static_cast<unsigned>(i), style).make());
  compare(specs, style, seed);
}

TEST(CudaProgramSource, RandomProgramsOfIntegersAreExact) { sweep(Style::kIntegers, 90); }
TEST(CudaProgramSource, RandomProgramsOfSingleOperationsAgreeInEveryBit) { sweep(Style::kBits, 60); }
TEST(CudaProgramSource, RandomProgramsOfFunctionsAgree) { sweep(Style::kSmooth, 60); }

/// Every pointwise instruction of the table, alone.
TEST(CudaProgramSource, InstructionsAreRightToAFewUlps) {
  const std::string compiler = shim::compiler();
  if (compiler.empty()) GTEST_SKIP() << "no C++ compiler: neither $CXX nor c++";
  using I = Instruction;
  std::vector<float> points{0.0f,   -0.0f,   1.0f,  -1.0f,  INFINITY, -INFINITY, NAN,
                            1e-40f, -1e-40f, 3e38f, -3e38f, 0.5f,     2.5f};
  for (float x = 1e-6f; x < 120; x *= 1.37f) points.insert(points.end(), {x, -x});
  std::vector<I> instructions;
  for (int f = static_cast<int>(I::kNeg); f <= static_cast<int>(I::kPRelu); ++f)
    instructions.push_back(static_cast<I>(f));
  const auto n = static_cast<std::int64_t>(points.size());
  std::vector<ProgramSpec> specs;
  std::vector<KernelSource> sources;
  for (I instruction : instructions) {
    ProgramSpec spec;
    spec.domain = {n, n};
    spec.inputs = {{.strides = {n, 1}, .alignment = 4}, {.strides = {n, 1}, .alignment = 4}};
    const Register a = spec.program.load(0), b = spec.program.load(1);
    const Register r = spec.program.apply(instruction, a, is_binary_instruction(instruction) ? b : -1, 0.25f, 1.0f);
    spec.outputs = {{.source = r, .strides = {n, 1}, .alignment = 4}};
    sources.push_back(program_source(spec));
    specs.push_back(std::move(spec));
  }
  const shim::Kernels kernels(sources, compiler);
  ASSERT_EQ(kernels.error(), "");
  std::vector<float> a, b, out(points.size() * points.size());
  for (float x : points)
    for (float y : points) a.push_back(x), b.push_back(y);
  for (std::size_t k = 0; k < specs.size(); ++k) {
    ASSERT_EQ(kernels.run(k, {a.data(), b.data(), out.data()}), "");
    const Program::Value& v = specs[k].program.values.back();
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double x = static_cast<double>(a[i]), expected = testing_programs::meaning(v, x, static_cast<double>(b[i]));
      const double nearest = static_cast<double>(static_cast<float>(expected)), got = static_cast<double>(out[i]);
      if (same(nearest, got) &&
          (nearest != 0 || std::signbit(nearest) == std::signbit(got) || v.instruction == I::kCelu))
        continue;
      // A few units of the result or of the larger terms it is made of; below the smallest normal number 0 will do.
      const double terms = is_unary_instruction(v.instruction) || v.b < 0 ? std::min(std::fabs(x), 8.0) * 0x1p-23 : 0;
      EXPECT_LE(std::fabs(got - expected), std::fabs(expected) * 0x1p-20 + terms + 1.2e-38)
          << "instruction " << static_cast<int>(v.instruction) << " of " << a[i] << " and " << b[i] << ": expected "
          << expected << ", got " << got;
      if (HasFailure()) return;
    }
  }
}

/// Divisions by a constant take another way than those by operands; every bit is that of the division, the sign of zero
/// included. Below 2^-100 the last one may differ.
TEST(CudaProgramSource, DivisionsByConstantsAreCorrectlyRounded) {
  const std::string compiler = shim::compiler();
  if (compiler.empty()) GTEST_SKIP() << "no C++ compiler: neither $CXX nor c++";
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  std::vector<float> divisors{1.41421354f, 3.0f,  -3.0f, 6.0f,  0x1.fffffep0f, 0x1.000002p0f, 8.0f,
                              -0.125f,     1e-5f, 1e6f,  1e-9f, 1e9f,          0.0f,          INFINITY};
  while (divisors.size() < 40)
    divisors.push_back(
        std::ldexp(1.0f + static_cast<float>(random() % (1 << 23)) * 0x1p-23f, static_cast<int>(random() % 41) - 20) *
        (random() % 2 == 0 ? 1.0f : -1.0f));
  std::vector<float> numbers{0.0f, -0.0f, INFINITY, -INFINITY, NAN, 3.4e38f, -3.4e38f, 1e-40f, -1e-40f};
  while (numbers.size() < 20000) numbers.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  const auto n = static_cast<std::int64_t>(numbers.size());
  std::vector<KernelSource> sources;
  for (float divisor : divisors) {
    ProgramSpec spec;
    spec.domain = {n};
    spec.inputs = {{.strides = {1}, .alignment = 4}};
    Program& p = spec.program;
    const Register x = p.load(0);
    spec.outputs = {{.source = p.apply(Instruction::kDiv, x, p.constant(divisor)), .strides = {1}, .alignment = 4}};
    sources.push_back(program_source(spec));
  }
  const shim::Kernels kernels(sources, compiler);
  ASSERT_EQ(kernels.error(), "");
  std::vector<float> out(numbers.size());
  for (std::size_t k = 0; k < divisors.size(); ++k) {
    ASSERT_EQ(kernels.run(k, {numbers.data(), out.data()}), "");
    for (std::size_t i = 0; i < out.size(); ++i) {
      const float want = numbers[i] / divisors[k];
      const bool same_bits = std::bit_cast<std::uint32_t>(want) == std::bit_cast<std::uint32_t>(out[i]);
      const bool tiny = std::fabs(want) < 0x1p-100f || std::fabs(numbers[i]) < 0x1p-100f;
      if (same_bits || (std::isnan(want) && std::isnan(out[i]))) continue;
      ASSERT_TRUE(tiny && out[i] >= std::nextafter(want, -INFINITY) && out[i] <= std::nextafter(want, INFINITY))
          << fmt::format("{:a} / {:a}: expected {:a}, got {:a}", numbers[i], divisors[k], want, out[i]);
    }
  }
}

/// All numbers of one binade, by divisors for which two instructions do, and by such for which they are wrong once in
/// 2^23.
TEST(CudaProgramSource, DivisionsByConstantsAreCorrectlyRoundedForAllMantissas) {
  const std::string compiler = shim::compiler();
  if (compiler.empty()) GTEST_SKIP() << "no C++ compiler: neither $CXX nor c++";
  std::vector<float> numbers(std::size_t{1} << 23), out(numbers.size());
  for (std::uint32_t i = 0; i < numbers.size(); ++i) numbers[i] = std::bit_cast<float>(0x3f800000u + i);
  const std::vector<float> divisors{1.41421354f, 3.0f, 1.73205078f, 0.7f};
  std::vector<KernelSource> sources;
  for (float divisor : divisors) {
    ProgramSpec spec;
    spec.domain = {static_cast<std::int64_t>(numbers.size())};
    spec.inputs = {{.strides = {1}, .alignment = 4}};
    Program& p = spec.program;
    const Register x = p.load(0);
    spec.outputs = {{.source = p.apply(Instruction::kDiv, x, p.constant(divisor)), .strides = {1}, .alignment = 4}};
    sources.push_back(program_source(spec));
  }
  EXPECT_NE(sources[0].source.find("= multiplied("), std::string::npos);
  EXPECT_EQ(sources[2].source.find("= multiplied("), std::string::npos);
  const shim::Kernels kernels(sources, compiler);
  ASSERT_EQ(kernels.error(), "");
  for (std::size_t k = 0; k < divisors.size(); ++k) {
    ASSERT_EQ(kernels.run(k, {numbers.data(), out.data()}), "");
    for (std::size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(out[i], numbers[i] / divisors[k]) << fmt::format("{:a} / {:a}", numbers[i], divisors[k]);
  }
}

/// 1 + erf(x), as GELU has it, is computed by less: to one unit of the last place of the sum or of erf.
TEST(CudaProgramSource, SumsWithErfAreRightToOneUlp) {
  const std::string compiler = shim::compiler();
  if (compiler.empty()) GTEST_SKIP() << "no C++ compiler: neither $CXX nor c++";
  std::vector<float> numbers{0.0f, -0.0f, INFINITY, -INFINITY, NAN};
  for (std::uint32_t bits = 0x30000000u; bits < 0x41800000u; bits += 4999)
    for (float sign : {1.0f, -1.0f}) numbers.push_back(sign * std::bit_cast<float>(bits));
  const auto n = static_cast<std::int64_t>(numbers.size());
  const std::vector<float> terms{1.0f, -1.0f, 2.5f};
  std::vector<KernelSource> sources;
  for (float term : terms) {
    ProgramSpec spec;
    spec.domain = {n};
    spec.inputs = {{.strides = {1}, .alignment = 4}};
    Program& p = spec.program;
    const Register erf = p.apply(Instruction::kErf, p.load(0)), c = p.constant(term);
    const Register sum = term > 1 ? p.apply(Instruction::kAdd, c, erf) : p.apply(Instruction::kAdd, erf, c);
    spec.outputs = {{.source = sum, .strides = {1}, .alignment = 4}};
    sources.push_back(program_source(spec));
  }
  const shim::Kernels kernels(sources, compiler);
  ASSERT_EQ(kernels.error(), "");
  std::vector<float> out(numbers.size());
  for (std::size_t k = 0; k < terms.size(); ++k) {
    ASSERT_EQ(kernels.run(k, {numbers.data(), out.data()}), "");
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double want = static_cast<double>(terms[k]) + std::erf(static_cast<double>(numbers[i]));
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(out[i]));
        continue;
      }
      // Where little of 1 is left, one unit of erf is much to GELU: it is erf rounded, and next to nothing more.
      const bool tail = terms[k] == 1.0f && numbers[i] < -2.0f;
      const double limit = tail ? 0x1p-25 + 0x1p-28 : std::fabs(want) >= 2 ? 0x1p-22 : 0x1p-23;
      ASSERT_LE(std::fabs(static_cast<double>(out[i]) - want), limit)
          << fmt::format("{} + erf({:a})", terms[k], numbers[i]);
    }
  }
}

TEST(CudaProgramSource, ErfIsRightToTwoUlps) {
  const std::string compiler = shim::compiler();
  if (compiler.empty()) GTEST_SKIP() << "no C++ compiler: neither $CXX nor c++";
  std::vector<float> numbers{0.0f, -0.0f, INFINITY, -INFINITY, NAN};
  for (std::uint32_t bits = 0; bits < 0x7f800000u; bits += 29989) {
    numbers.push_back(std::bit_cast<float>(bits));
    numbers.push_back(-numbers.back());
  }
  for (float x = 0.9f; x < 1.1f; x = std::nextafter(x, 2.0f) + 1e-6f) numbers.push_back(x);
  const auto n = static_cast<std::int64_t>(numbers.size());
  ProgramSpec spec;
  spec.domain = {n};
  spec.inputs = {{.strides = {1}, .alignment = 4}};
  const Register x = spec.program.load(0);
  spec.outputs = {{.source = spec.program.apply(Instruction::kErf, x), .strides = {1}, .alignment = 4}};
  const shim::Kernels kernels({program_source(spec)}, compiler);
  ASSERT_EQ(kernels.error(), "");
  std::vector<float> out(numbers.size());
  ASSERT_EQ(kernels.run(0, {numbers.data(), out.data()}), "");
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double want = std::erf(static_cast<double>(numbers[i]));
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(out[i]));
      continue;
    }
    const double unit = want == 0 ? 0 : std::ldexp(1.0, std::max(std::ilogb(want), -126) - 23);
    ASSERT_LE(std::fabs(static_cast<double>(out[i]) - want), 2 * unit) << fmt::format("erf({:a})", numbers[i]);
    ASSERT_EQ(std::signbit(out[i]), std::signbit(numbers[i]));
  }
}

}  // namespace
}  // namespace ulpscope::cuda
