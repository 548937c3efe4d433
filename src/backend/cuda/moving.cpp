#include "backend/cuda/moving.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "backend/cuda/element_source.h"
#include "graph/op_traits.h"

namespace ulpscope::cuda {
namespace {

constexpr int kMovingThreads = 256;

/// Bytes of the words in which vectors of this operand are read; 0: it stays.
int moving_word(const MovedOperands& moved, std::size_t operand, int vector) {
  if (moved.dims.empty() || moved.dims.back().strides[operand] == 0) return 0;
  return std::min(16, vector * static_cast<int>(size_of(moved.operands[operand].type)));
}

/// Whether vectors of this many elements begin at multiples of their words, if element 0 does.
bool vector_fits(const MovedOperands& moved, int vector) {
  const Dimension& last = moved.dims.back();
  if (last.size % vector != 0) return false;
  for (std::size_t i = 0; i < moved.operands.size(); ++i) {
    const MovedOperand& operand = moved.operands[i];
    const std::int64_t bytes = static_cast<std::int64_t>(size_of(operand.type));
    if (last.strides[i] == 0 && operand.may_stay) continue;
    if (last.strides[i] != 1) return false;
    const int word = moving_word(moved, i, vector);
    if (operand.extra_stride * bytes % word != 0) return false;
    for (std::size_t d = 0; d + 1 < moved.dims.size(); ++d)
      if (moved.dims[d].strides[i] * bytes % word != 0) return false;
  }
  return true;
}

/// One thread's vector: coordinates of vector `q`, then the body.
std::string one_vector(const MovedOperands& moved, int vector, bool wide, const MovingBody& body) {
  const ElementAddress at = [&](std::size_t operand, int element) {
    std::string offset = offset_code(moved.dims, operand, "x", wide);
    if (element != 0) offset += fmt::format(" + {}", literal(element, wide));
    return fmt::format("p{} + (i64)({})({}) * {}", operand, wide ? "i64" : "i32", offset,
                       size_of(moved.operands[operand].type));
  };
  return coordinate_code(moved.dims, "q", "x", vector, wide) + body(vector, at);
}

std::string single_elements(const MovedOperands& moved, int vector, bool wide, const MovingBody& body) {
  // The threads are those of the vectors: each takes the elements of one, a grid apart.
  const std::string count = literal(count_of(moved.dims), wide), step = literal(count_of(moved.dims) / vector, wide);
  const char* index = wide ? "i64" : "u32";
  return fmt::format("for ({0} first = q; first < {1}; first += {2}) {{\nconst {0} q = first;\n", index, count, step) +
         one_vector(moved, 1, wide, body) + "}\n";
}

}  // namespace

bool needs_wide(const Dimensions& dims) {
  std::int64_t reach = count_of(dims);
  const std::size_t operands = dims.empty() ? 0 : dims[0].strides.size();
  for (std::size_t i = 0; i < operands; ++i) reach = std::max(reach, reach_of(dims, i));
  return reach >= (std::int64_t{1} << 30);
}

DataType bits_type(DataType type) {
  for (const DataType bits : {DataType::kUInt8, DataType::kUInt16, DataType::kUInt32, DataType::kUInt64})
    if (size_of(bits) == size_of(type)) return bits;
  return type;  // Strings, of which type_code() says that no kernel has them.
}

bool has_float_path(DataType type) {
  using T = DataType;
  return TypeSet{T::kFloat32, T::kFloat16, T::kBFloat16, T::kInt8, T::kUInt8, T::kInt16, T::kUInt16, T::kBool}.has(
      type);
}

bool is_word_copy(const MovedOperands& moved) {
  return !moved.dims.empty() && moved.dims.back().strides.front() == 1 && moved.dims.back().strides.back() == 1;
}

std::string moving_header(std::size_t operands, int threads) {
  std::string parameters;
  for (std::size_t i = 0; i + 1 < operands; ++i) parameters += fmt::format("const u8* p{}, ", i);
  return fmt::format("\nextern \"C\" __global__ void __launch_bounds__({}) kernel({}u8* p{}) {{\nbegin();\n", threads,
                     parameters, operands - 1);
}

KernelSource moving_kernel(const MovedOperands& moved, int most, const MovingBody& body) {
  const bool wide = needs_wide(moved.dims);
  const std::int64_t count = count_of(moved.dims);
  int vector = moved.dims.empty() ? 1 : most;
  while (vector > 1 && !vector_fits(moved, vector)) vector /= 2;
  const std::int64_t threads = count / vector;
  const char* index = wide ? "i64" : "u32";
  std::string text = prelude() + moving_header(moved.operands.size(), kMovingThreads) +
                     fmt::format("const {0} q = ({0})blockIdx.x * {1}u + threadIdx.x;\nif (q >= {2}) return;\n", index,
                                 kMovingThreads, literal(threads, wide));
  if (vector == 1) {
    text += one_vector(moved, 1, wide, body);
  } else {
    std::string aligned;
    for (std::size_t i = 0; i < moved.operands.size(); ++i)
      if (const int word = moving_word(moved, i, vector); word > 1)
        aligned += fmt::format("{}(u64)p{} % {} == 0", aligned.empty() ? "" : " && ", i, word);
    text += fmt::format("if ({}) {{\n", aligned.empty() ? "true" : aligned) + one_vector(moved, vector, wide, body) +
            "} else {\n" + single_elements(moved, vector, wide, body) + "}\n";
  }
  KernelSource source{text + "}\n"};
  source.block = kMovingThreads;
  source.grid[0] = static_cast<unsigned>((threads + kMovingThreads - 1) / kMovingThreads);
  return source;
}

std::string load_vector_code(const MovedOperands& moved, std::size_t operand, int vector, const std::string& name,
                             const ElementAddress& at) {
  const std::string type = type_code(moved.operands[operand].type);
  const int word = moving_word(moved, operand, vector);
  if (word == 0)
    return fmt::format(
        "float {0}[{1}];\n{0}[0] = load_one<{2}>({3});\n#pragma unroll\nfor (int e = 1; e < {1}; ++e) "
        "{0}[e] = {0}[0];\n",
        name, vector, type, at(operand, 0));
  return fmt::format("float {}[{}];\nload<{}, {}, {}>({}, {});\n", name, vector, type, vector, word, at(operand, 0),
                     name);
}

std::string store_vector_code(const MovedOperands& moved, std::size_t operand, int vector, const std::string& name,
                              const ElementAddress& at) {
  return fmt::format("store<{}, {}, {}>({}, {});\n", type_code(moved.operands[operand].type), vector,
                     moving_word(moved, operand, vector), at(operand, 0), name);
}

}  // namespace ulpscope::cuda
