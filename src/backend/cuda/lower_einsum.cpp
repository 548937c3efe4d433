// Einsum of two tensors as a product of matrices: of indices that both have and the result, too (the batch), that the
// first and the result have (rows), the second and the result (columns), and both alone (those summed over).
#include <algorithm>

#include "backend/cuda/layers.h"
#include "ops/contraction/einsum_form.h"

namespace ulpscope::cuda {
namespace {

using Indices = std::vector<std::size_t>;

struct Roles {
  Indices batch, rows, columns, sums;
};

/// Nothing where an index is summed over in one operand alone, or occurs twice in one.
std::optional<Roles> roles_of(const ops::EinsumForm& form) {
  if (form.axes.size() != 2) return std::nullopt;
  Roles roles;
  for (std::size_t index = 0; index < form.sizes.size(); ++index) {
    const auto a = std::ranges::count(form.axes[0], index), b = std::ranges::count(form.axes[1], index);
    if (a > 1 || b > 1) return std::nullopt;
    if (index >= form.results && (a == 0 || b == 0)) return std::nullopt;
    (index >= form.results ? roles.sums : a == 0 ? roles.columns : b == 0 ? roles.rows : roles.batch).push_back(index);
  }
  return roles;
}

/// One dimension in place of several, the last one the innermost.
struct Merged {
  std::int64_t size = 1, stride = 0;
};
std::optional<Merged> merged(const Indices& indices, const std::vector<std::int64_t>& sizes,
                             const std::vector<std::int64_t>& strides) {
  Merged all;
  for (std::size_t i = indices.size(); i-- > 0;) {
    const std::int64_t size = sizes[indices[i]], stride = strides[indices[i]];
    if (size == 1) continue;
    if (all.size == 1)
      all.stride = stride;
    else if (stride != all.stride * all.size)
      return std::nullopt;
    all.size *= size;
  }
  return all;
}

/// An operand as [batch, rows, columns].
struct Matrix {
  View view;
  MatrixOperand operand;
};

/// Where its strides over the indices are those of matrices with one stride of 1.
std::optional<MatrixOperand> matrix_of(const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides,
                                       const Indices& batch, const Indices& rows, const Indices& columns) {
  const auto b = merged(batch, sizes, strides), r = merged(rows, sizes, strides), c = merged(columns, sizes, strides);
  if (!b || !r || !c || (b->size > 1 && b->stride == 0)) return std::nullopt;
  MatrixOperand result{r->stride, c->stride, b->stride};
  if (r->size == 1) result.row_stride = c->stride == 1 ? c->size : 1;
  if (c->size == 1) result.column_stride = result.row_stride == 1 && r->size > 1 ? r->size : 1;
  const bool by_rows = result.column_stride == 1 && result.row_stride >= c->size;
  const bool by_columns = result.row_stride == 1 && result.column_stride >= r->size;
  return by_rows || by_columns ? std::optional(result) : std::nullopt;
}

}  // namespace

bool Layers::lower_einsum(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  std::vector<Shape> shapes;
  for (const Operand& operand : kernel.operands) {
    if (operand.tensor == kNone || operand.is_encoded() || !spec_.is_held_as_float(operand.tensor)) return false;
    shapes.push_back(shape(operand.tensor));
  }
  const auto form = ops::einsum_form(l, shapes);
  const Store& store = kernel.outputs[0];
  if (!form || store.exact || kernel.accumulator) return false;
  const auto roles = roles_of(*form);
  const DataType type = type_of(kernel.operands[0].rounding), result = memory_.stored_type(store);
  if (!roles || type_of(kernel.operands[1].rounding) != type || (result != type && result != DataType::kFloat32) ||
      !is_exact(result, store.rounding) || num_elements(shape(l.outputs[0])) == 0)
    return false;

  const auto read = [&](std::size_t i, const Indices& rows, const Indices& columns) {
    const std::vector<std::size_t>& axes = form->axes[i];
    const auto over_indices = [&](const std::vector<std::int64_t>& strides) {
      std::vector<std::int64_t> result(form->sizes.size(), 0);
      for (std::size_t axis = 0; axis < axes.size(); ++axis)
        if (shapes[i][axis] != 1) result[axes[axis]] = strides[axis];
      return result;
    };
    const auto matrix = [&](const View& view) {
      return matrix_of(form->sizes, over_indices(view.strides), roles->batch, rows, columns);
    };
    View view = memory_.read_as(kernel.operands[i], type);
    if (auto found = matrix(view)) return std::optional(Matrix{view, *found});
    // Side by side, in the order of the matrices.
    std::vector<std::int64_t> strides(axes.size(), 0);
    std::int64_t count = 1;
    for (const Indices* group : {&columns, &rows, &roles->batch})
      for (std::size_t k = group->size(); k-- > 0;) {
        const auto axis = static_cast<std::size_t>(std::ranges::find(axes, (*group)[k]) - axes.begin());
        strides[axis] = count;
        count *= shapes[i][axis];
      }
    view = memory_.read_as(kernel.operands[i], type, std::move(strides));
    auto found = matrix(view);
    return found ? std::optional(Matrix{view, *found}) : std::nullopt;
  };
  const auto size = [&](const Indices& indices) {
    std::int64_t count = 1;
    for (const std::size_t index : indices) count *= form->sizes[index];
    return count;
  };
  MatrixProductSpec spec{
      .m = size(roles->rows), .n = size(roles->columns), .k = size(roles->sums), .batch = size(roles->batch)};
  if (spec.k == 0) return false;
  const auto a = read(0, roles->rows, roles->sums), b = read(1, roles->sums, roles->columns);
  if (!a || !b) return false;
  spec.operands = type;
  spec.result = result;
  spec.tf32 = kernel.operands[0].rounding == Rounding::kTF32;
  spec.a = a->operand;
  spec.b = b->operand;
  spec.d = {spec.n, 1, spec.batch > 1 ? spec.m * spec.n : 0};
  spec.alignment = std::min(alignment_of(a->view), alignment_of(b->view));
  if (!target_.has_product(spec)) return false;
  std::vector<std::int64_t> strides(form->results, 0);
  std::int64_t count = 1;
  for (const Indices* group : {&roles->columns, &roles->rows, &roles->batch})
    for (std::size_t k = group->size(); k-- > 0; count *= form->sizes[(*group)[k]]) strides[(*group)[k]] = count;
  ProductStep step;
  step.spec = spec;
  step.a = pointer(a->view);
  step.b = pointer(b->view);
  step.d = pointer(memory_.define(store, std::move(strides)));
  steps_.add(std::move(step));
  return true;
}

}  // namespace ulpscope::cuda
