#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "backend/cuda/element_source.h"
#include "backend/cuda/movement_source.h"
#include "backend/cuda/moving.h"
#include "ops/common.h"

namespace ulpscope::cuda {
namespace {

bool is_all_zero_bits(const Tensor& element) {
  const auto* bytes = static_cast<const unsigned char*>(element.raw());
  return std::all_of(bytes, bytes + element.bytes(), [](unsigned char byte) { return byte == 0; });
}

/// The one element as `type`, which may be the unsigned integer of its size.
std::string fill_code(const Tensor& element, DataType type) {
  if (!is_floating(type)) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, element.raw(), element.bytes());
    return fmt::format("({})0x{:x}ull", type_code(type), bits);
  }
  return fmt::format("convert<{}, float>({})", type_code(type),
                     literal(element.cast(DataType::kFloat32).data<float>()[0]));
}

}  // namespace

/// Where an element comes from is looked up in a table per axis (-1: the fill), which the host makes from the operator
/// itself: one kernel serves all layers that place elements. Vectors where the last dimension moves as a whole.
KernelSource place_source(const StridedTensor& in, const StridedTensor& out, const std::vector<std::size_t>& axes,
                          const Tensor& fill) {
  // Operands: the input, a table per axis, the output.
  const std::size_t last = axes.size() + 1;
  Dimensions dims = dimensions_of(out.shape, {&in.strides});
  std::int64_t alignment = 0;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    const auto axis = std::ranges::find(axes, d);
    std::vector<std::int64_t>& strides = dims[d].strides;
    if (axis != axes.end()) alignment = std::gcd(alignment, std::exchange(strides[0], 0));
    strides.resize(last + 1, 0);
    if (axis != axes.end()) strides[static_cast<std::size_t>(axis - axes.begin()) + 1] = 1;
    strides[last] = out.strides[d];
  }
  const bool same = in.type == out.type, zero = is_all_zero_bits(fill);
  const DataType in_type = same ? bits_type(in.type) : in.type, out_type = same ? in_type : out.type;
  MovedOperands moved{canonical(std::move(dims), {last, 0}), {{in_type, false}}};
  moved.operands[0].extra_stride = alignment;
  moved.operands.resize(last, {DataType::kInt32, true});
  moved.operands.push_back({out_type, false});
  const bool by_float = !same && has_float_path(in.type) && has_float_path(out.type) && is_floating(out.type);
  const bool in_words = same && zero && !moved.dims.empty() && moved.dims.back().strides[0] == 1;
  const int vector = in_words ? 16 / static_cast<int>(size_of(out.type)) : by_float ? 8 : 1;
  return moving_kernel(moved, vector, [&](int v, const auto& at) {
    std::string text = "i64 moved = 0;\nbool inside = true;\n";
    for (std::size_t a = 0; a < axes.size(); ++a)
      text += fmt::format(
          "const int index{0} = *(const int*)({1});\ninside = inside && index{0} >= 0;\nmoved += index{0} * {2}ll;\n",
          a, at(a + 1, 0), in.strides[axes[a]]);
    text += "if (!inside) moved = 0;\n";
    const std::string from = fmt::format("({}) + moved * {}", at(0, 0), size_of(in.type));
    if (v == 1)
      return text + fmt::format("*({0}*)({1}) = inside ? convert<{0}, {2}>(*(const {2}*)({3})) : {4};\n",
                                type_code(out_type), at(last, 0), type_code(in_type), from, fill_code(fill, out_type));
    if (same) {
      const std::string word = fmt::format("Word<{}>::type", v * static_cast<int>(size_of(out.type)));
      return text + fmt::format("{0} x = *(const {0}*)({1});\nif (!inside) x = {0}();\n*({0}*)({2}) = x;\n", word, from,
                                at(last, 0));
    }
    return text + load_vector_code(moved, 0, v, "x", [&](std::size_t, int) { return from; }) +
           fmt::format("#pragma unroll\nfor (int e = 0; e < {}; ++e) x[e] = inside ? x[e] : {};\n", v,
                       literal(fill.cast(DataType::kFloat32).data<float>()[0])) +
           store_vector_code(moved, last, v, "x", at);
  });
}

KernelSource merge_source(const StridedTensor& a, const StridedTensor& b, const StridedTensor& out) {
  const bool same = a.type == out.type && b.type == out.type;
  const DataType out_type = same ? bits_type(out.type) : out.type;
  const std::string a_code = type_code(same ? out_type : a.type), b_code = type_code(same ? out_type : b.type);
  const std::vector<std::int64_t> places = ops::strides_of(out.shape), none(out.shape.size(), 0);
  const MovedOperands moved{canonical(dimensions_of(out.shape, {&places, &none, &none, &out.strides}), {3, 0}),
                            {{DataType::kInt64, false}, {a.type, true}, {b.type, true}, {out_type, false}}};
  return moving_kernel(moved, 1, [&](int, const auto& at) {
    return fmt::format(
        "const i64 place = *(const i64*)({0});\n{1} x = {1}();\n"
        "if (place >= {2}ll) x = convert<{1}, {4}>(((const {4}*)({6}))[place - {2}ll]);\n"
        "else if (place >= 0) x = convert<{1}, {3}>(((const {3}*)({5}))[place]);\n*({1}*)({7}) = x;\n",
        at(0, 0), type_code(out_type), num_elements(a.shape), a_code, b_code, at(1, 0), at(2, 0), at(3, 0));
  });
}

}  // namespace ulpscope::cuda
