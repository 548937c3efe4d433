#include "backend/cuda/eight_code.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/element_source.h"
#include "formats/rounding.h"

namespace ulpscope::cuda {
namespace {

constexpr int kEight = 8, kMostWord = 16;

bool is_plain(DataType type, Rounding rounding) {
  if (type != DataType::kFloat16 && type != DataType::kBFloat16 && type != DataType::kFloat32) return false;
  return rounding == Rounding::kNone || rounding == rounding_of(type);
}

}  // namespace

VectorizedProgramSource::VectorizedProgramSource(const Program& program, std::vector<ProgramInput> inputs,
                                                 std::vector<ProgramOutput> outputs, std::size_t along,
                                                 std::vector<std::string> index)
    : program_(program),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      along_(along),
      index_(std::move(index)),
      each_(index_) {
  each_[along_] = fmt::format("({} + e)", index_[along_]);
}

int VectorizedProgramSource::word_of(DataType type) {
  return std::min(kMostWord, kEight * static_cast<int>(size_of(type)));
}

/// Eight elements are aligned words.
bool VectorizedProgramSource::is_vector(DataType type, const std::vector<std::int64_t>& strides, int alignment) const {
  if (strides[along_] != 1 || alignment % word_of(type) != 0) return false;
  for (std::size_t i = 0; i < strides.size(); ++i)
    if (i != along_ && strides[i] % kEight != 0) return false;
  return true;
}

bool VectorizedProgramSource::loads_eight(const ProgramInput& input) const {
  return is_plain(input.type, input.rounding) && is_vector(input.type, input.strides, input.alignment);
}

bool VectorizedProgramSource::moves_along_only(const ProgramInput& input) const {
  for (std::size_t i = 0; i < input.strides.size(); ++i)
    if (i != along_ && input.strides[i] != 0) return false;
  return true;
}

std::string VectorizedProgramSource::load_eight(std::size_t load) const {
  const ProgramInput& input = inputs_[load];
  return fmt::format("float eight{0}[8];\nload<{1}, 8, 16>(in{0} + ({2}) * {3}, eight{0});\n", load,
                     type_code(input.type), sum_of_strides(input.strides, index_), size_of(input.type));
}

std::string VectorizedProgramSource::loads() const {
  std::string text;
  for (std::size_t i = 1; i < inputs_.size(); ++i)
    if (loads_eight(inputs_[i]) && moves_along_only(inputs_[i])) text += load_eight(i);
  return text;
}

namespace {

// One instruction after the other, each for all eight: what does not wait for each other stands side by side.
constexpr const char* kEachOfEight = "#pragma unroll\nfor (int e = 0; e < 8; ++e) ";
std::string register_code(Register r) { return fmt::format("r{}[e]", r); }

}  // namespace

std::string VectorizedProgramSource::code(const std::string& given) const {
  std::string text;
  std::vector<std::string> pointers{""}, values{given};
  for (std::size_t i = 1; i < inputs_.size(); ++i) {
    const bool vector = loads_eight(inputs_[i]);
    if (vector && !moves_along_only(inputs_[i])) text += load_eight(i);
    pointers.push_back(vector ? "" : fmt::format("in{}", i));
    values.push_back(vector ? fmt::format("eight{}[e]", i) : "");
  }
  Register r = 0;
  for (const std::string& value : element_expressions(program_, inputs_, pointers, values, each_, register_code)) {
    text += fmt::format("float r{0}[8];\n{1}r{0}[e] = {2};\n", r, kEachOfEight, value);
    ++r;
  }
  return text;
}

std::string VectorizedProgramSource::stores() const {
  std::string text;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const ProgramOutput& output = outputs_[i];
    const std::string pointer = fmt::format("out{}", i);
    if (is_vector(output.type, output.strides, output.alignment)) {
      const std::string stored = stored_code(output, register_code(output.source));
      text += fmt::format("float s{0}[8];\n{1}s{0}[e] = {2};\n", i, kEachOfEight, stored);
      text += fmt::format("store<{}, 8, {}>({} + ({}) * {}, s{});\n", type_code(output.type), word_of(output.type),
                          pointer, sum_of_strides(output.strides, index_), size_of(output.type), i);
    } else {
      text += kEachOfEight +
              store_code(output, pointer, sum_of_strides(output.strides, each_), register_code(output.source)) + "\n";
    }
  }
  return text;
}

}  // namespace ulpscope::cuda
