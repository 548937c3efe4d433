#include "backend/cuda/convolution_code.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/element_source.h"

namespace ulpscope::cuda {
namespace {

constexpr std::size_t kMostBytes = 16;

void constant(std::string& text, const char* name, std::int64_t value) {
  text += fmt::format("  constexpr {} {} = {};\n", value == static_cast<int>(value) ? "int" : "long long", name, value);
}

ConvolutionSpec with_three(ConvolutionSpec spec) {
  while (spec.strides.size() < 3) spec.add_dimension();
  return spec;
}

}  // namespace

ConvolutionCode::ConvolutionCode(const ConvolutionSpec& of, const Program& program, std::span<const ProgramInput> loads,
                                 std::span<const ProgramOutput> stores)
    : spec(with_three(of)), rank(of.strides.size()), epilogue(program), outputs(stores.begin(), stores.end()) {
  inputs.emplace_back().strides.assign(rank + 2, 0);
  inputs.insert(inputs.end(), loads.begin(), loads.end());
}

std::string ConvolutionCode::constants() const {
  std::string text;
  constant(text, "C", spec.input[1]);
  constant(text, "K", spec.output[1]);
  constant(text, "GROUPS", spec.groups);
  const char* const names[][8] = {
      {"ID", "OD", "RD", "SD", "DD", "PD"}, {"IH", "OH", "RH", "SH", "DH", "PH"}, {"IW", "OW", "RW", "SW", "DW", "PW"}};
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t values[] = {spec.input[i + 2], spec.output[i + 2], spec.weights[i + 2],
                                   spec.strides[i],   spec.dilations[i],  spec.pads_begin[i]};
    for (std::size_t j = 0; j < std::size(values); ++j) constant(text, names[i][j], values[j]);
  }
  // With room for the threads of a last block that have nothing to do.
  const bool narrow = num_elements(spec.output) / spec.output[1] < std::int64_t{1} << 31;
  text += fmt::format("  typedef {} Index;\n", narrow ? "unsigned" : "long long");
  text += fmt::format("  typedef {} Sum;\n", integers() ? "int" : "float");
  text += fmt::format("  const auto multiply_add = [](Sum a, Sum b, Sum c) {{ return {}; }};\n",
                      integers() ? "a * b + c" : "fmaf(a, b, c)");
  return text;
}

std::string ConvolutionCode::header(unsigned threads) const {
  std::string text = fmt::format(
      "extern \"C\" __global__ void __launch_bounds__({}) kernel(const unsigned char* x, const unsigned char* weights",
      threads);
  for (std::size_t i = 1; i < inputs.size(); ++i) text += fmt::format(", const unsigned char* in{}", i);
  for (std::size_t i = 0; i < outputs.size(); ++i) text += fmt::format(", unsigned char* out{}", i);
  return text + ") {\n  begin();\n";
}

std::string ConvolutionCode::operand(DataType type, const std::string& pointer, const std::string& offset) const {
  const Rounding rounding = spec.tf32 ? Rounding::kTF32 : Rounding::kNone;
  return fmt::format("(Sum)({})", load_code(type, rounding, pointer, offset));
}

std::string ConvolutionCode::operands(const std::string& name, DataType type, const std::string& pointer,
                                      const std::string& offset) const {
  const std::size_t size = size_of(type);
  return fmt::format(
      "float {0}_loaded[8];\nload<{1}, 8, {2}>({3} + ({4}) * {5}, {0}_loaded);\nSum {0}[8];\n#pragma unroll\n"
      "for (int e = 0; e < 8; ++e) {0}[e] = (Sum){6}({0}_loaded[e]);\n",
      name, type_code(type), std::min(kMostBytes, 8 * size), pointer, offset, size, spec.tf32 ? "round_tf32" : "");
}

std::vector<std::string> ConvolutionCode::index(const std::string& channel) const {
  std::vector<std::string> all{"(long long)n", fmt::format("(long long)({})", channel)};
  const char* const spatial[] = {"(long long)od", "(long long)oh", "(long long)ow"};
  all.insert(all.end(), spatial + 3 - rank, spatial + 3);
  return all;
}

std::string ConvolutionCode::element(const std::string& sum) const {
  std::vector<std::string> pointers{""}, given{fmt::format("(float)({})", sum)};
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    pointers.push_back(fmt::format("in{}", i));
    given.emplace_back();
  }
  std::string text = element_code(epilogue, inputs, pointers, given, index("k"), "r");
  for (std::size_t i = 0; i < outputs.size(); ++i)
    text += store_code(outputs[i], fmt::format("out{}", i), sum_of_strides(outputs[i].strides, index("k")),
                       fmt::format("r{}", outputs[i].source)) +
            "\n";
  return text;
}

VectorizedProgramSource ConvolutionCode::eight() const { return {epilogue, inputs, outputs, 1, index("k")}; }

}  // namespace ulpscope::cuda
