#include <fmt/format.h>

#include <array>

#include "backend/cuda/element_source.h"
#include "backend/cuda/movement_source.h"
#include "backend/cuda/moving.h"

namespace ulpscope::cuda {

KernelSource cumulative_source(const StridedTensor& in, const StridedTensor& out, const ops::CumulativeForm& form,
                               Rounding load, Rounding store) {
  constexpr int kThreads = 64, kAhead = 8;  // Elements that are loaded before they are added.
  const auto axis = static_cast<std::size_t>(form.axis);
  Dimensions lines;
  for (std::size_t d = 0; d < out.shape.size(); ++d)
    if (d != axis) lines.push_back({out.shape[d], {in.strides[d], out.strides[d]}});
  lines = canonical(std::move(lines), {1, 0});
  const bool wide = needs_wide(dimensions_of(out.shape, {&in.strides, &out.strides}));
  const std::int64_t length = out.shape[axis], count = count_of(lines);
  const auto start = [&](std::size_t operand, std::int64_t stride) {
    const std::int64_t first = form.reverse ? (length - 1) * stride : 0;
    return fmt::format("(i64)({}) + {}ll", offset_code(lines, operand, "x", wide), first);
  };
  const std::int64_t step_in = form.reverse ? -in.strides[axis] : in.strides[axis];
  const std::int64_t step_out = form.reverse ? -out.strides[axis] : out.strides[axis];
  const ProgramOutput stored{.type = out.type, .rounding = store};
  const std::string store_total =
      store_code(stored, "p1", fmt::format("to + (i64)(i + k) * {}ll", step_out), stored_code(stored, "total"));
  const std::string add = form.product ? "total = total * x[k];" : "total = total + x[k];";
  const std::string text =
      prelude() + moving_header(2, kThreads) +
      fmt::format("const {0} q = ({0})blockIdx.x * {1}u + threadIdx.x;\nif (q >= {2}) return;\n", wide ? "i64" : "u32",
                  kThreads, literal(count, wide)) +
      coordinate_code(lines, "q", "x", 1, wide) +
      fmt::format(
          "const i64 from = {0}, to = {1};\nfloat total = {2};\nfor (int i = 0; i < {3}; i += {4}) {{\nfloat x[{4}];\n"
          "#pragma unroll\nfor (int k = 0; k < {4}; ++k) x[k] = i + k < {3} ? {5} : 0.0f;\n"
          "#pragma unroll\nfor (int k = 0; k < {4}; ++k) if (i + k < {3}) {{\n{6}\n{7};\n}}\n}}\n}}\n",
          start(0, in.strides[axis]), start(1, out.strides[axis]), form.product ? "1.0f" : "0.0f", length, kAhead,
          load_code(in.type, load, "p0", fmt::format("from + (i64)(i + k) * {}ll", step_in)),
          form.exclusive ? store_total + ";" : add, form.exclusive ? add.substr(0, add.size() - 1) : store_total);
  KernelSource source{text};
  source.block = kThreads;
  source.grid[0] = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  return source;
}

namespace {

/// Of `a` and `b`, in the order of Predicate.
constexpr std::array<const char*, 14> kPredicates{"a == b",
                                                  "a > b",
                                                  "a >= b",
                                                  "a < b",
                                                  "a <= b",
                                                  "a != 0 && b != 0",
                                                  "a != 0 || b != 0",
                                                  "(a != 0) != (b != 0)",
                                                  "a == 0",
                                                  "a != a",
                                                  "a - a != 0 && a == a",
                                                  "a - a != 0 && a > 0",
                                                  "a - a != 0 && a < 0",
                                                  "false"};

}  // namespace

KernelSource predicate_source(std::span<const StridedTensor> inputs, std::span<const Rounding> load,
                              const StridedTensor& out, ops::Predicate predicate) {
  std::vector<const std::vector<std::int64_t>*> strides;
  MovedOperands moved;
  std::vector<std::size_t> rank{inputs.size()};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    strides.push_back(&inputs[i].strides);
    moved.operands.push_back({inputs[i].type, true});
    rank.push_back(i);
  }
  strides.push_back(&out.strides);
  moved.operands.push_back({out.type, false});
  moved.dims = canonical(dimensions_of(out.shape, strides), rank);
  return moving_kernel(moved, 1, [&](int, const auto& at) {
    std::string text;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::string code = type_code(inputs[i].type == DataType::kBool ? DataType::kUInt8 : inputs[i].type);
      // float32 holds every value of the other floats.
      const std::string element = fmt::format("*(const {}*)({})", code, at(i, 0));
      const std::string number = fmt::format("convert<float, {}>({})", code, element);
      text += is_floating(inputs[i].type)
                  ? fmt::format("const float {} = {};\n", "ab"[i], rounded_code(load[i], number, inputs[i].type))
                  : fmt::format("const {} {} = {};\n", code, "ab"[i], element);
    }
    return text + fmt::format("*(u8*)({}) = ({}) ? 1 : 0;\n", at(inputs.size(), 0),
                              kPredicates[static_cast<std::size_t>(predicate)]);
  });
}

}  // namespace ulpscope::cuda
