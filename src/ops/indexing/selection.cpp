// Elements that their values choose.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <numeric>

#include "core/division.h"
#include "core/parallel.h"
#include "core/vector_clones.h"
#include "ops/adjoint_values.h"
#include "ops/movement.h"
#include "ulpscope/tensor.h"

namespace ulpscope::ops {
namespace {

template <typename T>
std::uint64_t key_of(T value) noexcept {
  if constexpr (std::is_floating_point_v<T>) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    constexpr Bits kSign = Bits{1} << (8 * sizeof(T) - 1);
    if (value != value) return ~std::uint64_t{0};
    const Bits bits = std::bit_cast<Bits>(value == 0 ? T{0} : value);
    return (bits & kSign) != 0 ? static_cast<Bits>(~bits) : static_cast<Bits>(bits | kSign);
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(value)) ^ std::uint64_t{1} << 63;
  } else {
    return value;
  }
}

/// Writes the keys of elements begin, begin + step, ...: a < b has a smaller key, equal elements (0 and -0) the same
/// one. NaNs are equal to each other and larger than numbers. REQUIRES: numbers or booleans.
void sort_keys(const KernelContext& ctx, const Tensor& tensor, std::int64_t begin, std::int64_t step,
               std::int64_t count, std::uint64_t* keys) {
  with_type(AllTypes{}, ctx, tensor.type(), [&]<typename T>(T) {
    const T* values = tensor.data<T>();
    for (std::int64_t i = 0; i < count; ++i) keys[i] = key_of(values[begin + i * step]);
  });
}

/// The shape of input 0 around the attribute `axis`; where that is absent, as one axis.
struct Slices {
  bool along_axis = false;
  std::size_t axis = 0;
  Around extents{1, 0, 1};

  explicit Slices(const KernelContext& ctx) : along_axis(ctx.attributes().has("axis")) {
    const Tensor& in = ctx.input(0);
    extents.size = in.size();
    if (!along_axis) return;
    axis = axis_of(ctx, 0);
    extents = around(in.shape(), axis);
  }
  /// Of what is left when `count` slices are.
  Shape shape(const Tensor& in, std::int64_t count) const {
    if (!along_axis) return {count};
    Shape result = in.shape();
    result[axis] = count;
    return result;
  }
};

/// The shape is that of the slices which the kernel finds.
void infer_slices(InferContext& ctx) {
  if (ctx.attributes().has("axis")) axis_of(ctx, 0);
}

void run_compress(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  const auto condition = ctx.input(1).values<bool>();
  const Slices slices(ctx);
  const auto [outer, count, inner] = slices.extents;
  std::vector<std::int64_t> kept;
  for (std::size_t i = 0; i < condition.size(); ++i) {
    if (!condition[i]) continue;
    if (static_cast<std::int64_t>(i) >= count) ctx.fail("the condition chooses index {} of {}", i, count);
    kept.push_back(static_cast<std::int64_t>(i));
  }
  Tensor out(in.type(), slices.shape(in, static_cast<std::int64_t>(kept.size())));
  const std::size_t bytes = static_cast<std::size_t>(inner) * size_of(in.type());
  std::int64_t to = 0;
  for (std::int64_t o = 0; o < outer && bytes != 0; ++o)
    for (std::int64_t index : kept)
      std::memcpy(element(out, inner * to++), element(in, (o * count + index) * inner), bytes);
  ctx.set_output(0, std::move(out));
}

void run_non_zero(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  std::vector<std::int64_t> found;
  with_type(AllTypes{}, ctx, in.type(), [&]<typename T>(T) {
    const T* values = in.data<T>();
    for (std::int64_t i = 0; i < in.size(); ++i)
      if (values[i] != T{0}) found.push_back(i);
  });
  const std::int64_t count = static_cast<std::int64_t>(found.size());
  Tensor out(DataType::kInt64, {in.rank(), count});
  const std::vector<std::int64_t> strides = strides_of(in.shape());
  std::int64_t* row = out.data<std::int64_t>();
  for (std::size_t d = 0; d < strides.size(); ++d)
    for (std::int64_t at : found) *row++ = at / strides[d] % in.shape()[d];
  ctx.set_output(0, std::move(out));
}

template <typename Context>
std::int64_t new_axis(const Context& ctx) {
  const std::int64_t rank = static_cast<std::int64_t>(shape_of(ctx, 0).size());
  return normalize_axis(ctx, ctx.attributes().integer("axis", -1), rank + 1);
}

void infer_one_hot(InferContext& ctx) {
  ctx.set_type(0, ctx.type(2));
  Shape shape = ctx.shape(0);
  const std::int64_t axis = new_axis(ctx);
  if (num_elements(ctx.shape(2)) != 2) ctx.fail("expected two values (off, on), got shape {}", to_string(ctx.shape(2)));
  const Tensor& given = ctx.value(1);
  if (given.size() != 1) ctx.fail("expected one element as depth, got {}", given.size());
  const std::int64_t depth = given.cast(DataType::kInt64).data<std::int64_t>()[0];
  if (depth < 0) ctx.fail("expected a depth that is not negative, got {}", depth);
  shape.insert(shape.begin() + axis, depth);
  ctx.set_shape(0, std::move(shape));
}

void run_one_hot(KernelContext& ctx) {
  Tensor& out = ctx.output(0);
  const Tensor& values = ctx.input(2);
  fill_elements(out.type(), out.raw(), out.size(), values.raw());
  const auto [outer, depth, inner] = around(out.shape(), static_cast<std::size_t>(new_axis(ctx)));
  const Tensor indices = ctx.input(0).cast(DataType::kInt64);
  const std::size_t bytes = size_of(out.type());
  const std::int64_t* index = indices.data<std::int64_t>();
  for (std::int64_t i = 0; i < indices.size(); ++i) {
    const std::int64_t at = index[i] < 0 ? index[i] + depth : index[i];
    if (at < 0 || at >= depth) continue;
    std::memcpy(element(out, (i / inner * depth + at) * inner + i % inner), element(values, 1), bytes);
  }
}

void infer_top_k(InferContext& ctx) {
  ctx.set_type(1, DataType::kInt64);
  Shape shape = ctx.shape(0);
  const std::size_t axis = axis_of(ctx, -1);
  const std::int64_t k = ctx.has_input(1) ? single_integer(ctx, 1) : ctx.attributes().required_integer("k");
  if (k < 0 || k > shape[axis]) ctx.fail("cannot take {} of the {} elements along axis {}", k, shape[axis], axis);
  shape[axis] = k;
  ctx.set_shape(0, shape);
  ctx.set_shape(1, std::move(shape));
}

/// The keys of numbers in 32 bits, with `flip` in the order from the largest to the smallest.
ULPSCOPE_VECTOR_CLONES void short_keys(const float* values, std::int64_t count, std::uint32_t flip,
                                       std::uint32_t* keys) {
  constexpr std::uint32_t kSign = 0x80000000;
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, values + i, sizeof bits);
    bits = values[i] == 0 ? 0 : bits;
    const std::uint32_t key = (bits & kSign) != 0 ? ~bits : bits | kSign;
    keys[i] = (values[i] != values[i] ? ~std::uint32_t{0} : key) ^ flip;
  }
}

constexpr std::int64_t kScan = 64;
/// Whether one of kScan keys is less.
ULPSCOPE_VECTOR_CLONES bool any_below(const std::uint32_t* keys, std::uint32_t limit) {
  std::uint32_t found = 0;
  for (std::int64_t i = 0; i < kScan; ++i) found |= static_cast<std::uint32_t>(keys[i] < limit);
  return found != 0;
}

/// The first k of the keys in their order, equal ones in that of their places.
class FewKeys {
 public:
  using Key = std::pair<std::uint32_t, std::int64_t>;

  FewKeys(std::int64_t size, std::int64_t k) : size_(size), keys_(static_cast<std::size_t>(round_up(size, kScan))) {
    chosen_.resize(static_cast<std::size_t>(k));
  }
  std::uint32_t* keys() { return keys_.data(); }

  const std::vector<Key>& choose() {
    const auto k = static_cast<std::int64_t>(chosen_.size());
    std::fill(keys_.begin() + size_, keys_.end(), ~std::uint32_t{0});  // Not below any.
    for (std::int64_t i = 0; i < k; ++i) chosen_[i] = {keys_[i], i};
    std::ranges::make_heap(chosen_);
    for (std::int64_t from = k / kScan * kScan; from < size_; from += kScan) {
      if (!any_below(keys_.data() + from, chosen_[0].first)) continue;
      for (std::int64_t i = std::max(from, k); i < std::min(from + kScan, size_); ++i) {
        if (keys_[i] >= chosen_[0].first) continue;
        std::ranges::pop_heap(chosen_);
        chosen_.back() = {keys_[i], i};
        std::ranges::push_heap(chosen_);
      }
    }
    std::ranges::sort(chosen_);
    return chosen_;
  }

 private:
  const std::int64_t size_;
  std::vector<std::uint32_t> keys_;
  std::vector<Key> chosen_;
};

/// TopK of a few of each row of float32.
void run_few_of_rows(const Tensor& in, std::int64_t rows, std::int64_t size, std::int64_t k, bool largest,
                     float* values, std::int64_t* indices) {
  parallel_for(rows, std::max<std::int64_t>(1, (1 << 14) / size), [&](std::int64_t begin, std::int64_t end) {
    FewKeys few(size, k);
    for (std::int64_t row = begin; row < end; ++row) {
      const float* from = in.data<float>() + row * size;
      short_keys(from, size, largest ? ~std::uint32_t{0} : 0, few.keys());
      std::int64_t to = row * k;
      for (const auto& [key, index] : few.choose()) {
        if (values != nullptr) values[to] = from[index];
        if (indices != nullptr) indices[to] = index;
        ++to;
      }
    }
  });
}

void run_top_k(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  const auto [outer, size, inner] = around(in.shape(), axis_of(ctx, -1));
  const std::int64_t k = ctx.has_input(1) ? single_integer(ctx, 1) : ctx.attributes().required_integer("k");
  const std::uint64_t flip = ctx.attributes().integer("largest", 1) != 0 ? ~std::uint64_t{0} : 0;
  const std::size_t bytes = size_of(in.type());
  Tensor* values = ctx.has_output(0) ? &ctx.output(0) : nullptr;
  std::int64_t* indices = ctx.has_output(1) ? ctx.output(1).data<std::int64_t>() : nullptr;
  if (inner == 1 && in.type() == DataType::kFloat32 && k > 0 && k <= size / 8)
    return run_few_of_rows(in, outer, size, k, flip != 0, values != nullptr ? values->data<float>() : nullptr, indices);
  parallel_for(outer * inner, std::max<std::int64_t>(1, (1 << 12) / std::max<std::int64_t>(1, size)),
               [&](std::int64_t begin, std::int64_t end) {
                 std::vector<std::uint64_t> keys(static_cast<std::size_t>(size));
                 std::vector<std::pair<std::uint64_t, std::int64_t>> order(static_cast<std::size_t>(size));
                 for (std::int64_t line = begin; line < end; ++line) {
                   const std::int64_t from = line / inner * size * inner + line % inner;
                   const std::int64_t to = line / inner * k * inner + line % inner;
                   sort_keys(ctx, in, from, inner, size, keys.data());
                   const auto fill = [&](std::int64_t first, std::int64_t last) {
                     for (std::int64_t i = first; i < last; ++i) order[i] = {keys[i] ^ flip, i};
                   };
                   const auto chosen = order.begin() + k;
                   // Of a few, most others are told by a comparison. Selecting is linear in `size` for any k.
                   if (k > 0 && k <= size / 8) {
                     fill(0, k);
                     std::make_heap(order.begin(), chosen);
                     for (std::int64_t i = k; i < size; ++i) {
                       if ((keys[i] ^ flip) >= order[0].first) continue;
                       std::pop_heap(order.begin(), chosen);
                       order[k - 1] = {keys[i] ^ flip, i};
                       std::push_heap(order.begin(), chosen);
                     }
                   } else {
                     fill(0, size);
                     if (k < size) std::nth_element(order.begin(), chosen, order.end());
                   }
                   std::sort(order.begin(), chosen);
                   for (std::int64_t i = 0; i < k; ++i) {
                     const std::int64_t index = order[static_cast<std::size_t>(i)].second;
                     if (values != nullptr)
                       std::memcpy(element(*values, to + i * inner), element(in, from + index * inner), bytes);
                     if (indices != nullptr) indices[to + i * inner] = index;
                   }
                 }
               });
}

void adjoint_top_k(AdjointContext& ctx) {
  if (ctx.gradient(0) == kNone) return;
  const std::size_t axis = axis_of(ctx, -1);
  const std::vector<TensorId> again = ctx.add_multiple(
      "TopK", std::array{ctx.input(0), ctx.integers({ctx.output_shape(0)[axis]})}, 2,
      {{"axis", static_cast<std::int64_t>(axis)}, {"largest", ctx.attributes().integer("largest", 1)}});
  ctx.set(0, scatter_add(gradient(ctx), again[1], ctx.input_shape(0), axis).id);
}

/// Groups of equal rows of keys, each with its rows in rising order; groups in the order of the output.
std::vector<std::vector<std::int64_t>> groups_of_rows(const std::vector<std::uint64_t>& keys, std::int64_t count,
                                                      std::int64_t width, bool sorted) {
  const auto order = [&](std::int64_t a, std::int64_t b) {
    for (std::int64_t i = 0; i < width; ++i) {
      const std::uint64_t x = keys[static_cast<std::size_t>(a * width + i)],
                          y = keys[static_cast<std::size_t>(b * width + i)];
      if (x != y) return x < y ? -1 : 1;
    }
    return 0;
  };
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  std::ranges::stable_sort(indices, [&](std::int64_t a, std::int64_t b) { return order(a, b) < 0; });
  std::vector<std::vector<std::int64_t>> groups;
  for (std::int64_t row : indices) {
    if (groups.empty() || order(groups.back().front(), row) != 0) groups.emplace_back();
    groups.back().push_back(row);
  }
  if (!sorted) std::ranges::sort(groups, [](const auto& a, const auto& b) { return a.front() < b.front(); });
  return groups;
}

void infer_unique(InferContext& ctx) {
  for (int i = 1; i < ctx.num_outputs(); ++i) ctx.set_type(i, DataType::kInt64);
  infer_slices(ctx);
}

void run_unique(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  // Seen as (outer, count, inner); the compared slices become rows of outer * inner elements.
  const Slices slices(ctx);
  const auto [outer, count, inner] = slices.extents;
  Tensor rows(in.type(), {count, outer, inner});
  copy_permuted(in, {outer, count, inner}, std::vector<std::int64_t>{1, 0, 2}, rows);
  std::vector<std::uint64_t> keys(static_cast<std::size_t>(rows.size()));
  sort_keys(ctx, rows, 0, 1, rows.size(), keys.data());
  const auto groups = groups_of_rows(keys, count, outer * inner, ctx.attributes().integer("sorted", 1) != 0);

  const std::int64_t found = static_cast<std::int64_t>(groups.size());
  Tensor distinct(in.type(), {found, outer, inner}), first(DataType::kInt64, {found}),
      inverse(DataType::kInt64, {count}), times(DataType::kInt64, {found});
  const std::size_t row_bytes = static_cast<std::size_t>(outer * inner) * size_of(in.type());
  for (std::int64_t g = 0; g < found; ++g) {
    const std::vector<std::int64_t>& group = groups[static_cast<std::size_t>(g)];
    if (row_bytes != 0)
      std::memcpy(element(distinct, g * outer * inner), element(rows, group[0] * outer * inner), row_bytes);
    first.data<std::int64_t>()[g] = group[0];
    times.data<std::int64_t>()[g] = static_cast<std::int64_t>(group.size());
    for (std::int64_t row : group) inverse.data<std::int64_t>()[row] = g;
  }
  Tensor values(in.type(), slices.shape(in, found));
  copy_permuted(distinct, {found, outer, inner}, std::vector<std::int64_t>{1, 0, 2}, values);
  ctx.set_output(0, std::move(values));
  ctx.set_output(1, std::move(first));
  ctx.set_output(2, std::move(inverse));
  ctx.set_output(3, std::move(times));
}

}  // namespace

OpTable selection() {
  return {
      // Compress, ai.onnx 9, 11, 28: the slices of an axis (or the elements) for which a condition is true.
      make_op({.name = "Compress",
               .since_version = 9,
               .inputs = {2, 2},
               .types = {kEverything, kBooleans},
               .precision = PrecisionRule::kMovement,
               .selects = 0b10,
               .moves_values = true},
              infer_slices, run_compress),
      // NonZero, ai.onnx 9, 13: the coordinates of the elements that are not zero, one row per dimension.
      fixed_op(
          {.name = "NonZero", .since_version = 9, .types = {kEverything}},
          [](InferContext& ctx) { ctx.set_type(0, DataType::kInt64); }, run_non_zero),
      // OneHot, ai.onnx 9, 11 (negative indices count from the end), 28: rows that are off_value but for one element.
      // An index out of range gives a row that is off everywhere.
      fixed_op({.name = "OneHot",
                .since_version = 9,
                .inputs = {3, 3},
                .types = {kNumbers, kNumbers, kEverything},
                .weights = 0b10,
                .selects = 0b1},
               infer_one_hot, run_one_hot),
      // TopK, ai.onnx 1 (k: attribute), 10 (k: input), 11 (largest, sorted), 24: the k largest or smallest elements
      // along an axis and their indices. Always sorted; of equal elements the one with the lower index comes first; NaN
      // is the largest.
      make_op({.name = "TopK",
               .inputs = {1, 2},
               .outputs = {1, 2},
               .types = {kNumbers, kIndices},
               .precision = PrecisionRule::kMovement,
               .weights = 0b10,
               .compares = true},
              infer_top_k, run_top_k, adjoint_top_k),
      // Unique, ai.onnx 11, 28: distinct elements (or slices of an axis), where each first stands, which one each
      // element is, and how often. NaNs are equal to each other and larger than numbers.
      make_op({.name = "Unique",
               .since_version = 11,
               .outputs = {1, 4},
               .types = {kEverything},
               .precision = PrecisionRule::kMovement,
               .compares = true},
              infer_unique, run_unique),
  };
}

}  // namespace ulpscope::ops
