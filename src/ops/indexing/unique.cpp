// Unique, ai.onnx 11, 28: distinct elements (or slices of an axis), where each first stands, which one each element is,
// and how often. NaNs are equal to each other and larger than numbers.
#include <algorithm>
#include <numeric>

#include "ops/indexing/sort_keys.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

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
  std::stable_sort(indices.begin(), indices.end(), [&](std::int64_t a, std::int64_t b) { return order(a, b) < 0; });
  std::vector<std::vector<std::int64_t>> groups;
  for (std::int64_t row : indices) {
    if (groups.empty() || order(groups.back().front(), row) != 0) groups.emplace_back();
    groups.back().push_back(row);
  }
  if (!sorted)
    std::sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.front() < b.front(); });
  return groups;
}

void infer_unique(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  for (int i = 1; i < ctx.num_outputs(); ++i) ctx.set_type(i, DataType::kInt64);
  if (ctx.attributes().has("axis")) normalize_axis(ctx, ctx.attributes().required_integer("axis"), ctx.rank(0));
}

void run_unique(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  const bool along_axis = ctx.attributes().has("axis");
  // Seen as (outer, count, inner); the compared slices become rows of outer * inner elements.
  std::int64_t outer = 1, count = in.size(), inner = 1;
  std::size_t axis = 0;
  if (along_axis) {
    axis = static_cast<std::size_t>(normalize_axis(ctx, ctx.attributes().required_integer("axis"), in.rank()));
    outer = product(in.shape(), 0, axis);
    count = in.shape()[axis];
    inner = product(in.shape(), axis + 1, in.shape().size());
  }
  Tensor rows(in.type(), {count, outer, inner});
  copy_permuted(in, {outer, count, inner}, std::vector<std::int64_t>{1, 0, 2}, rows);
  std::vector<std::uint64_t> keys(static_cast<std::size_t>(rows.size()));
  sort_keys(rows, 0, 1, rows.size(), keys.data());
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
  Shape shape{found};
  if (along_axis) {
    shape = in.shape();
    shape[axis] = found;
  }
  Tensor values(in.type(), shape);
  copy_permuted(distinct, {found, outer, inner}, std::vector<std::int64_t>{1, 0, 2}, values);
  ctx.set_output(0, std::move(values));
  ctx.set_output(1, std::move(first));
  ctx.set_output(2, std::move(inverse));
  ctx.set_output(3, std::move(times));
}

}  // namespace

OpDef unique() {
  return {.name = "Unique",
          .since_version = 11,
          .outputs = {1, 4},
          .types = {kEverything},
          .precision = PrecisionRule::kMovement,
          .infer = infer_unique,
          .run = run_unique};
}

}  // namespace ulpscope::ops
