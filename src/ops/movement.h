// Copies between strided layouts, for operators that only move elements. Elements are opaque words of 1, 2, 4 or 8
// bytes.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "graph/adjoint.h"
#include "ops/common.h"

namespace ulpscope::ops {

/// Calls function(Word{}) with the unsigned integer that has the size of an element of `type`.
template <typename Function>
void with_word(DataType type, Function&& function) {
  switch (size_of(type)) {
    case 1:
      return function(std::uint8_t{});
    case 2:
      return function(std::uint16_t{});
    case 4:
      return function(std::uint32_t{});
    case 8:
      return function(std::uint64_t{});
    default:
      throw InternalError(fmt::format("elements of type {} cannot be moved", name_of(type)));
  }
}

/// One element of any type as a word, without aliasing: `at` counts elements from `base`.
template <typename Word>
Word load_word(const void* base, std::int64_t at) noexcept {
  Word word;
  std::memcpy(&word, static_cast<const std::byte*>(base) + at * static_cast<std::int64_t>(sizeof(Word)), sizeof(Word));
  return word;
}

template <typename Word>
void store_word(void* base, std::int64_t at, Word word) noexcept {
  std::memcpy(static_cast<std::byte*>(base) + at * static_cast<std::int64_t>(sizeof(Word)), &word, sizeof(Word));
}

/// The address of element `at` of a tensor.
const std::byte* element(const Tensor& tensor, std::int64_t at) noexcept;
std::byte* element(Tensor& tensor, std::int64_t at) noexcept;

/// out[sum(i * out_strides)] = in[sum(i * in_strides)] for every index i of `shape`. Strides are in elements; those of
/// the input may be 0 or negative. The arrays do not overlap. Parallel.
void copy_strided(DataType type, const void* in, std::span<const std::int64_t> in_strides, void* out,
                  std::span<const std::int64_t> out_strides, const Shape& shape);

/// As above, into a dense row-major array.
void copy_strided(DataType type, const void* in, std::span<const std::int64_t> in_strides, void* out,
                  const Shape& shape);

/// memcpy, in parallel where it is large.
void copy_bytes(const void* in, void* out, std::size_t bytes);

/// Fills `count` elements with the one at `value`.
void fill_elements(DataType type, void* out, std::int64_t count, const void* value);

/// The kernel of operators whose output 0 has the bytes of input 0: Reshape, Squeeze, Identity, ...
void run_copy(KernelContext& ctx);

/// Transposes `in`, seen as `shape`, into the dense output: dimension d of the result is dimension perm[d].
void copy_permuted(const Tensor& in, const Shape& shape, std::span<const std::int64_t> perm, Tensor& out);

/// The permutation that undoes `perm`.
std::vector<std::int64_t> inverse_permutation(std::span<const std::int64_t> perm);

/// `index` in [-size, size) as one in [0, size); fails naming the range otherwise.
template <typename Context>
std::int64_t normalize_index(const Context& ctx, std::int64_t index, std::int64_t size) {
  if (index < -size || index >= size) {
    if (size == 0) ctx.fail("index {} points into a dimension without elements", index);
    ctx.fail("index {} is outside of [{}, {}]", index, -size, size - 1);
  }
  return index < 0 ? index + size : index;
}

/// Axes in [-rank, rank) as distinct ones in [0, rank), in the order given; fails otherwise.
template <typename Context>
std::vector<std::int64_t> normalize_axes(const Context& ctx, std::vector<std::int64_t> axes, std::int64_t rank) {
  std::vector<bool> seen(static_cast<std::size_t>(rank), false);
  for (std::int64_t& axis : axes) {
    axis = normalize_axis(ctx, axis, rank);
    if (seen[static_cast<std::size_t>(axis)]) ctx.fail("axis {} is listed twice", axis);
    seen[static_cast<std::size_t>(axis)] = true;
  }
  return axes;
}

inline const Shape& shape_of(const AdjointContext& ctx, int i) { return ctx.input_shape(i); }
inline const Shape& shape_of(const InferContext& ctx, int i) { return ctx.shape(i); }
inline const Shape& shape_of(const KernelContext& ctx, int i) { return ctx.input(i).shape(); }

/// The attribute `axis`, in [0, rank) of input 0; `absent`: what it is where it is absent. Fails as normalize_axis.
template <typename Context>
std::size_t axis_of(const Context& ctx, std::int64_t absent) {
  const auto rank = static_cast<std::int64_t>(shape_of(ctx, 0).size());
  return static_cast<std::size_t>(normalize_axis(ctx, ctx.attributes().integer("axis", absent), rank));
}

/// The one element of an integer input; fails when there are none or several.
template <typename Context>
std::int64_t single_integer(const Context& ctx, int i) {
  const std::vector<std::int64_t> values = ctx.input_ints(i);
  if (values.size() != 1) ctx.fail("expected one element as input {}, got {}", i, values.size());
  return values[0];
}

/// A parameter that older opsets have as the attribute `name` and newer ones as input `i`; nothing when it is absent.
template <typename Context>
std::optional<std::vector<std::int64_t>> attribute_or_input(const Context& ctx, std::string_view name, int i) {
  if (ctx.has_input(i)) return ctx.input_ints(i);
  if (ctx.attributes().has(name)) return ctx.attributes().required_ints(name);
  return std::nullopt;
}

}  // namespace ulpscope::ops
