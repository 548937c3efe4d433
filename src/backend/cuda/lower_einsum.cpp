// Sums of products over indices as one product of matrices: of indices that both operands and the result have (the
// batch), that the first and the result have (rows), the second and the result (columns), and both alone (those summed
// over). Einsum of two tensors, and MatMul where each operand is repeated along a dimension of the other.
#include <algorithm>

#include "backend/cuda/layers.h"
#include "ops/contraction/einsum_form.h"

namespace ulpscope::cuda {
namespace {

using Indices = std::vector<std::size_t>;

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

/// Batches as dimensions of their own, and rows, columns and sums: MatMul of operands of two dimensions or more.
std::optional<ops::EinsumForm> form_of_matmul(const Shape& a, const Shape& b, const Shape& result) {
  if (a.size() < 2 || b.size() < 2 || result.size() < 2) return std::nullopt;
  ops::EinsumForm form{result, result.size(), {}};
  const std::size_t rows = result.size() - 2, columns = result.size() - 1, sums = result.size();
  form.sizes.push_back(a.back());
  const auto axes = [&](const Shape& shape, std::size_t first, std::size_t second) {
    std::vector<std::size_t> indices;
    for (std::size_t axis = 0; axis + 2 < shape.size(); ++axis) indices.push_back(result.size() - shape.size() + axis);
    indices.insert(indices.end(), {first, second});
    return indices;
  };
  form.axes = {axes(a, rows, sums), axes(b, sums, columns)};
  return form;
}

std::int64_t size_of(const Indices& indices, const std::vector<std::int64_t>& sizes) {
  std::int64_t count = 1;
  for (const std::size_t index : indices) count *= sizes[index];
  return count;
}

}  // namespace

/// A product of indexed operands, without its result, whose strides are those of its dimensions.
struct Layers::IndexedProduct {
  ProductStep step;
  std::vector<std::int64_t> strides;
};

/// cuBLASLt takes strides, so operands are read where they lie wherever each group of indices has one stride; otherwise
/// they are copied, matrix by matrix. Nothing where the operands differ in type or the library has no such product.
std::optional<Layers::IndexedProduct> Layers::indexed_product(const ops::EinsumForm& form, const Operand& first,
                                                              const Operand& second, DataType result) {
  const std::vector<Shape> shapes{shape(first.tensor), shape(second.tensor)};
  const auto roles = ops::roles_of(form, shapes);
  const DataType type = type_of(first.rounding);
  if (!roles || type_of(second.rounding) != type || (result != type && result != DataType::kFloat32))
    return std::nullopt;
  const auto read = [&](const Operand& operand, std::size_t i, const Indices& rows, const Indices& columns) {
    const std::vector<std::size_t>& axes = form.axes[i];
    const auto matrix = [&](const View& view) {
      std::vector<std::int64_t> strides(form.sizes.size(), 0);
      for (std::size_t axis = 0; axis < axes.size(); ++axis)
        if (shapes[i][axis] != 1) strides[axes[axis]] = view.strides[axis];
      return matrix_of(form.sizes, strides, roles->batch, rows, columns);
    };
    View view = memory_.read_as(operand, type);
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
    view = memory_.read_as(operand, type, std::move(strides));
    auto found = matrix(view);
    return found ? std::optional(Matrix{view, *found}) : std::nullopt;
  };
  MatrixProductSpec spec{.m = size_of(roles->rows, form.sizes),
                         .n = size_of(roles->columns, form.sizes),
                         .k = size_of(roles->sums, form.sizes),
                         .batch = size_of(roles->batch, form.sizes)};
  if (spec.m * spec.n * spec.k * spec.batch == 0) return std::nullopt;
  const auto a = read(first, 0, roles->rows, roles->sums), b = read(second, 1, roles->sums, roles->columns);
  if (!a || !b) return std::nullopt;
  spec.operands = type;
  spec.result = result;
  spec.tf32 = first.rounding == Rounding::kTF32;
  spec.a = a->operand;
  spec.b = b->operand;
  spec.d = {spec.n, 1, spec.batch > 1 ? spec.m * spec.n : 0};
  spec.alignment = std::min(alignment_of(a->view), alignment_of(b->view));
  if (!target_.has_product(spec)) return std::nullopt;
  IndexedProduct product{.strides = std::vector<std::int64_t>(form.results, 0)};
  std::int64_t count = 1;
  for (const Indices* group : {&roles->columns, &roles->rows, &roles->batch})
    for (std::size_t k = group->size(); k-- > 0; count *= form.sizes[(*group)[k]]) product.strides[(*group)[k]] = count;
  product.step.spec = spec;
  product.step.a = pointer(a->view);
  product.step.b = pointer(b->view);
  return product;
}

bool Layers::lower_einsum(const LayerKernel& kernel) {
  const auto shapes = float_shapes(spec_, kernel);
  const auto form = shapes ? ops::einsum_form(layer(kernel.layer), *shapes) : std::nullopt;
  const Store& store = kernel.outputs[0];
  if (!form || kernel.operands.size() != 2 || kernel.accumulator ||
      !is_exact(memory_.stored_type(store), store.rounding))
    return false;
  const DataType type = store.exact ? DataType::kFloat32 : memory_.stored_type(store);
  auto product = indexed_product(*form, kernel.operands[0], kernel.operands[1], type);
  if (!product) return false;
  const auto exact = memory_.define_exact(store, product->strides);
  const View result = memory_.define(store, product->strides);
  product->step.d = pointer(exact ? *exact : result);
  steps_.add(std::move(product->step));
  if (exact) steps_.add_copy(*exact, result, shape(store.tensor));
  return true;
}

/// Where cuBLASLt has no batches for it.
bool Layers::lower_repeated(const ProductKernel& kernel) {
  const auto matrices = ops::matrix_form(layer(kernel.layer));
  const Operand &a = kernel.operands[0], &b = kernel.operands[1];
  if (!matrices || !matrices->plain || kernel.elements || kernel.accumulator || b.is_encoded()) return false;
  const Shape& domain = kernel.epilogue.domain;
  const auto form = form_of_matmul(shape(a.tensor), shape(b.tensor), domain);
  auto product = form ? indexed_product(*form, a, b, DataType::kFloat32) : std::nullopt;
  if (!product) return false;
  ProductResults results;
  results.view = steps_.new_view(DataType::kFloat32, domain, product->strides);
  product->step.d = pointer(results.view);
  steps_.add(std::move(product->step));
  epilogues_.lower(kernel, results);
  return true;
}

}  // namespace ulpscope::cuda
