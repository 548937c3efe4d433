#include "backend/cuda/element_source.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "backend/cuda/program_source.h"
#include "core/messages.h"

namespace ulpscope::cuda {

std::string type_code(DataType type) {
  using T = DataType;
  constexpr std::pair<T, std::string_view> kCodes[] = {
      {T::kFloat32, "float"}, {T::kFloat16, "f16"}, {T::kBFloat16, "bf16"}, {T::kFloat8E4M3, "e4m3"},
      {T::kInt8, "i8"},       {T::kUInt8, "u8"},    {T::kInt16, "i16"},     {T::kUInt16, "u16"},
      {T::kInt32, "i32"},     {T::kUInt32, "u32"},  {T::kInt64, "i64"},     {T::kUInt64, "u64"},
      {T::kBool, "boolean"}};
  for (const auto& [known, code] : kCodes)
    if (known == type) return std::string(code);
  throw unsupported(
      "[build] backend 'cuda': expected elements of a float, integer or bool type, got {}; try the backend 'cpu'",
      name_of(type));
}

std::string literal(float value) {
  if (std::isfinite(value)) return fmt::format("{:a}f", value);
  return fmt::format("__uint_as_float({:#x}u)", std::bit_cast<std::uint32_t>(value));
}

std::string literal(std::int64_t value, bool wide) {
  return wide ? fmt::format("{}ll", value) : fmt::format("{}u", static_cast<std::uint32_t>(value));
}

std::string rounded_code(Rounding rounding, const std::string& value, DataType type) {
  switch (rounding) {
    case Rounding::kNone:
      return value;
    case Rounding::kF16:
      return type == DataType::kFloat16 ? value : fmt::format("round_f16({})", value);
    case Rounding::kBF16:
      return type == DataType::kBFloat16 ? value : fmt::format("round_bf16({})", value);
    case Rounding::kTF32:
      return type == DataType::kFloat16 || type == DataType::kBFloat16 ? value : fmt::format("round_tf32({})", value);
  }
  throw unsupported("[build] backend 'cuda': expected rounding to fp16, bf16 or tf32, got {}{}; try the backend 'cpu'",
                    format_of(format_of(rounding)).name, saturates(rounding) ? " with saturation" : "");
}

std::string sum_of_strides(std::span<const std::int64_t> strides, std::span<const std::string> index) {
  std::string sum;
  for (std::size_t i = 0; i < strides.size(); ++i)
    if (strides[i] != 0) sum += fmt::format("{}{}ll * ({})", sum.empty() ? "" : " + ", strides[i], index[i]);
  return sum.empty() ? "0ll" : sum;
}

std::string load_code(DataType type, Rounding rounding, const std::string& pointer, const std::string& offset) {
  const std::string value =
      fmt::format("load_one<{}>({} + (i64)({}) * {})", type_code(type), pointer, offset, size_of(type));
  return rounded_code(rounding, value, type);
}

std::string stored_code(const ProgramOutput& output, const std::string& value) {
  if (!output.quantization) {
    const bool exact = output.type == DataType::kFloat16 || output.type == DataType::kBFloat16;
    const bool same = output.rounding == rounding_of(output.type);
    return exact && same ? value : rounded_code(output.rounding, value);
  }
  const Quantization& q = *output.quantization;
  const std::string element = quotient_code(rounded_code(output.rounding, value), q.scale);
  if (q.is_integer())
    return fmt::format("to_integer({}, {})", element, q.is_unsigned() ? "0.0f, 255.0f" : "-128.0f, 127.0f");
  return output.type == DataType::kFloat8E4M3 ? element : fmt::format("round_e4m3({})", element);
}

std::string store_code(const ProgramOutput& output, const std::string& pointer, const std::string& offset,
                       const std::string& value) {
  return fmt::format("store_one<{}>({} + (i64)({}) * {}, {});", type_code(output.type), pointer, offset,
                     size_of(output.type), stored_code(output, value));
}

std::vector<std::string> element_expressions(const Program& program, std::span<const ProgramInput> inputs,
                                             std::span<const std::string> pointers, std::span<const std::string> given,
                                             std::span<const std::string> index,
                                             const std::function<std::string(Register)>& name) {
  std::vector<std::string> expressions;
  for (std::size_t r = 0; r < program.values.size(); ++r) {
    const Program::Value& v = program.values[r];
    if (v.kind == Program::Kind::kConstant) {
      expressions.push_back(literal(v.constant));
    } else if (v.kind == Program::Kind::kResult) {
      expressions.push_back(instruction_code(program, static_cast<Register>(r), name));
    } else if (pointers[v.load].empty()) {
      expressions.push_back(given[v.load]);
    } else {
      const std::string offset = sum_of_strides(inputs[v.load].strides, index);
      expressions.push_back(load_code(inputs[v.load].type, inputs[v.load].rounding, pointers[v.load], offset));
    }
  }
  return expressions;
}

std::string element_code(const Program& program, std::span<const ProgramInput> inputs,
                         std::span<const std::string> pointers, std::span<const std::string> given,
                         std::span<const std::string> index, const std::string& prefix) {
  const auto name = [&](Register r) { return fmt::format("{}{}", prefix, r); };
  std::string text;
  Register r = 0;
  for (const std::string& value : element_expressions(program, inputs, pointers, given, index, name))
    text += fmt::format("const float {} = {};\n", name(r++), value);
  return text;
}

}  // namespace ulpscope::cuda
