#include "backend/cuda/movement_source.h"

#include <fmt/format.h>

#include "backend/cuda/element_source.h"
#include "backend/cuda/moving.h"

namespace ulpscope::cuda {
namespace {

constexpr int kTileThreads = 256;
constexpr std::int64_t kLeastTile = 16;  ///< Shorter dimensions waste too much of a tile.

/// Where the operand is contiguous; -1: nowhere.
int contiguous_dimension(const Dimensions& dims, std::size_t operand) {
  for (std::size_t d = dims.size(); d-- > 0;)
    if (dims[d].strides[operand] == 1) return static_cast<int>(d);
  return -1;
}

/// Tiles of dimension `a`, along which the input is contiguous, by the last dimension, along which the output is.
KernelSource transpose_source(Dimensions dims, std::size_t a, DataType in, DataType out) {
  const bool wide = needs_wide(dims);
  const Dimension from = dims[a], to = dims.back();
  dims.pop_back();
  dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(a));
  const int side = size_of(in) <= 2 ? 64 : 32, pad = size_of(in) == 1 ? 4 : size_of(in) == 2 ? 2 : 1;
  const std::int64_t across = (from.size + side - 1) / side, down = (to.size + side - 1) / side;
  const std::string a_size = literal(from.size, wide), b_size = literal(to.size, wide);
  const char* index = wide ? "i64" : "u32";
  KernelSource source;
  source.block = kTileThreads;
  source.grid[0] = static_cast<unsigned>(across * down * count_of(dims));
  source.source =
      prelude() + moving_header(2, kTileThreads) +
      fmt::format("__shared__ {} tile[{}][{}];\nconst u32 lane = threadIdx.x % {}, line = threadIdx.x / {};\n",
                  type_code(in), side, side + pad, side, side) +
      fmt::format(
          "{0} r = blockIdx.x;\nconst {0} a0 = r % {1} * {2};\nr /= {1};\nconst {0} b0 = r % {3} * {2};\nr /= {3};\n",
          index, literal(across, wide), side, literal(down, wide)) +
      coordinate_code(dims, "r", "x", 1, wide) +
      fmt::format("const {}* in = (const {}*)p0 + (i64)({})({});\n", type_code(in), type_code(in), wide ? "i64" : "i32",
                  offset_code(dims, 0, "x", wide)) +
      fmt::format("{}* out = ({}*)p1 + (i64)({})({});\n", type_code(out), type_code(out), wide ? "i64" : "i32",
                  offset_code(dims, 1, "x", wide)) +
      fmt::format(
          "#pragma unroll\nfor (u32 k = line; k < {0}; k += {1})\nif (a0 + lane < {2} && b0 + k < {3})\n"
          "tile[k][lane] = in[(i64)(a0 + lane) + (i64)(b0 + k) * {4}ll];\n__syncthreads();\n",
          side, kTileThreads / side, a_size, b_size, to.strides[0]) +
      fmt::format(
          "#pragma unroll\nfor (u32 k = line; k < {0}; k += {1})\nif (a0 + k < {2} && b0 + lane < {3})\n"
          "out[(i64)(a0 + k) * {4}ll + (i64)(b0 + lane)] = convert<{5}, {6}>(tile[lane][k]);\n}}\n",
          side, kTileThreads / side, a_size, b_size, from.strides[1], type_code(out), type_code(in));
  return source;
}

}  // namespace

KernelSource copy_source(const StridedTensor& in, const StridedTensor& out) {
  const bool same = in.type == out.type;
  const DataType in_type = same ? bits_type(in.type) : in.type, out_type = same ? in_type : out.type;
  const Dimensions dims = canonical(dimensions_of(out.shape, {&in.strides, &out.strides}), {1, 0});
  const int from = contiguous_dimension(dims, 0), to = contiguous_dimension(dims, 1);
  if (from >= 0 && to >= 0 && from != to && to + 1 == static_cast<int>(dims.size()) && dims[from].size >= kLeastTile &&
      dims[to].size >= kLeastTile)
    return transpose_source(dims, static_cast<std::size_t>(from), in_type, out_type);
  MovedOperands moved{dims, {{in_type, true}, {out_type, false}}};
  if (same && is_word_copy(moved))
    return moving_kernel(moved, 16 / static_cast<int>(size_of(in.type)), [&](int vector, const auto& at) {
      const std::size_t bytes = static_cast<std::size_t>(vector) * size_of(in.type);
      const std::string word = vector == 1 ? type_code(in_type) : fmt::format("Word<{}>::type", bytes);
      return fmt::format("*({0}*)({1}) = *(const {0}*)({2});\n", word, at(1, 0), at(0, 0));
    });
  const bool by_float = !same && has_float_path(in.type) && has_float_path(out.type) && is_floating(out.type);
  return moving_kernel(moved, by_float ? 8 : 1, [&](int vector, const auto& at) {
    if (vector == 1)
      return fmt::format("*({0}*)({1}) = convert<{0}, {2}>(*(const {2}*)({3}));\n", type_code(out_type), at(1, 0),
                         type_code(in_type), at(0, 0));
    return load_vector_code(moved, 0, vector, "x", at) + store_vector_code(moved, 1, vector, "x", at);
  });
}

/// Indices are data and a kernel cannot raise an error: one that is out of range reads element 0 and gives 0. Elements
/// behind the axis move in vectors.
KernelSource gather_source(const StridedTensor& data, const StridedTensor& indices, const StridedTensor& out,
                           std::int64_t axis) {
  // The dimensions of the output: data's before the axis, those of the indices, data's behind the axis.
  Dimensions dims;
  const std::size_t before = static_cast<std::size_t>(axis), between = indices.shape.size();
  for (std::size_t d = 0; d < out.shape.size(); ++d) {
    const bool is_index = d >= before && d < before + between;
    const std::size_t in_data = d < before ? d : d - between + 1;
    dims.push_back(
        {out.shape[d],
         {is_index ? 0 : data.strides[in_data], is_index ? indices.strides[d - before] : 0, out.strides[d]}});
  }
  const std::int64_t step = data.strides[before], size = data.shape[before];
  dims = canonical(std::move(dims), {2, 0, 1});
  const bool same = data.type == out.type;
  const DataType data_type = same ? bits_type(data.type) : data.type, out_type = same ? data_type : out.type;
  MovedOperands moved{dims, {{data_type, false}, {indices.type, true}, {out_type, false}}};
  // Where a gathered element lies moves the alignment, too.
  moved.operands[0].extra_stride = step;
  const bool by_float = has_float_path(data.type) && has_float_path(out.type) && is_floating(out.type);
  const int vector = same ? 16 / static_cast<int>(size_of(out.type)) : by_float ? 8 : 1;
  return moving_kernel(moved, vector, [&](int v, const auto& at) {
    std::string text = fmt::format(
        "i64 index = (i64)*(const {}*)({});\nindex += index < 0 ? {}ll : 0ll;\n"
        "const bool inside = index >= 0 && index < {}ll;\nconst i64 moved = inside ? index * {}ll : 0ll;\n",
        type_code(indices.type), at(1, 0), size, size, step);
    const std::string from = fmt::format("({}) + moved * {}", at(0, 0), size_of(data.type));
    if (v == 1)
      return text + fmt::format(
                        "{0} x = convert<{0}, {1}>(*(const {1}*)({2}));\nif (!inside) x = {0}();\n"
                        "*({0}*)({3}) = x;\n",
                        type_code(out_type), type_code(data_type), from, at(2, 0));
    if (same) {
      const std::string word = fmt::format("Word<{}>::type", v * static_cast<int>(size_of(out.type)));
      return text + fmt::format("{0} x = *(const {0}*)({1});\nif (!inside) x = {0}();\n*({0}*)({2}) = x;\n", word, from,
                                at(2, 0));
    }
    return text + load_vector_code(moved, 0, v, "x", [&](std::size_t, int) { return from; }) +
           fmt::format("#pragma unroll\nfor (int e = 0; e < {}; ++e) x[e] = inside ? x[e] : 0.0f;\n", v) +
           store_vector_code(moved, 2, v, "x", at);
  });
}

KernelSource where_source(const StridedTensor& condition, const StridedTensor& x, const StridedTensor& y,
                          const StridedTensor& out) {
  const Dimensions dims =
      canonical(dimensions_of(out.shape, {&condition.strides, &x.strides, &y.strides, &out.strides}), {3, 1, 2, 0});
  const bool same = x.type == out.type && y.type == out.type;
  const DataType x_type = same ? bits_type(x.type) : x.type, y_type = same ? x_type : y.type,
                 out_type = same ? x_type : out.type;
  const bool by_float = is_floating(out.type) && has_float_path(x.type) && has_float_path(y.type);
  const MovedOperands moved =
      by_float ? MovedOperands{dims, {{condition.type, true}, {x.type, true}, {y.type, true}, {out.type, false}}}
               : MovedOperands{dims, {{condition.type, true}, {x_type, true}, {y_type, true}, {out_type, false}}};
  return moving_kernel(moved, by_float ? 8 : 1, [&](int v, const auto& at) {
    if (v == 1)
      return fmt::format(
          "*({0}*)({1}) = (*(const u8*)({2}) != 0) ? convert<{0}, {3}>(*(const {3}*)({4})) : "
          "convert<{0}, {5}>(*(const {5}*)({6}));\n",
          type_code(moved.operands[3].type), at(3, 0), at(0, 0), type_code(moved.operands[1].type), at(1, 0),
          type_code(moved.operands[2].type), at(2, 0));
    return load_vector_code(moved, 0, v, "c", at) + load_vector_code(moved, 1, v, "x", at) +
           load_vector_code(moved, 2, v, "y", at) +
           fmt::format("#pragma unroll\nfor (int e = 0; e < {}; ++e) x[e] = c[e] != 0.0f ? x[e] : y[e];\n", v) +
           store_vector_code(moved, 3, v, "x", at);
  });
}

}  // namespace ulpscope::cuda
