// Einsum of two tensors as products of matrices, and Softmax over other than last dimensions.
#include <algorithm>

#include "backend/cpu/layer_kernels.h"
#include "backend/cpu/lowering.h"
#include "ops/common.h"
#include "ops/contraction/einsum_form.h"

namespace ulpscope::cpu {
namespace {

using Indices = std::vector<std::size_t>;
using Strides = std::vector<std::int64_t>;

Indices joined(std::initializer_list<const Indices*> parts) {
  Indices all;
  for (const Indices* part : parts) all.insert(all.end(), part->begin(), part->end());
  return all;
}

Shape sizes_of(const Indices& indices, const Shape& sizes) {
  Shape result;
  for (const std::size_t index : indices) result.push_back(sizes[index]);
  return result;
}

/// Per index: the strides of a dense tensor whose dimensions are these indices.
Strides dense_strides(const Indices& indices, const Shape& sizes) {
  Strides strides(sizes.size(), 0);
  std::int64_t count = 1;
  for (std::size_t i = indices.size(); i-- > 0; count *= sizes[indices[i]]) strides[indices[i]] = count;
  return strides;
}

/// The same places, whatever dimensions of one element say.
bool are_same(const Strides& a, const Strides& b, const Shape& sizes) {
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] != 1 && a[i] != b[i]) return false;
  return true;
}

}  // namespace

/// A slot with the elements of `slot` in the order of these indices; `strides`: per index, where they are.
int Lowering::arranged(int slot, const std::vector<std::int64_t>& strides, const std::vector<std::size_t>& order,
                       const Shape& sizes, LayerId id) {
  Strides from;
  for (const std::size_t index : order) from.push_back(strides[index]);
  Shape to = sizes_of(order, sizes);
  const int target = new_float_slot(to);
  add_step(make_arranging_kernel(std::move(from), std::move(to)), {slot}, {target}, id);
  return target;
}

/// An Einsum of two operands is a batch of matrix products once its indices are sorted into batch, rows, columns and
/// sums. An operand is rearranged only where it lies neither so nor transposed, the result only where the equation asks
/// for another order. Other equations are left to the operator's own loops.
bool Lowering::lower_einsum(const LayerKernel& kernel) {
  const auto floats = float_shapes(spec_, kernel);
  if (!floats || floats->size() != 2 || kernel.accumulator) return false;
  const std::vector<Shape>& shapes = *floats;
  const auto form = ops::einsum_form(layer(kernel.layer), shapes);
  auto roles = form ? ops::roles_of(*form, shapes) : std::nullopt;
  if (!roles || num_elements(form->sizes) == 0) return false;
  // Which of both has the rows, so that results lie as they are wanted.
  std::size_t first = 0;
  if (!roles->rows.empty() && !roles->columns.empty() && roles->rows.back() > roles->columns.back()) {
    first = 1;
    std::swap(roles->rows, roles->columns);
  }
  const Shape& sizes = form->sizes;
  MatMulSpec product;
  product.m = num_elements(sizes_of(roles->rows, sizes));
  product.n = num_elements(sizes_of(roles->columns, sizes));
  product.k = num_elements(sizes_of(roles->sums, sizes));
  if (!roles->batch.empty()) product.batch_a = product.batch_b = {num_elements(sizes_of(roles->batch, sizes))};
  const auto read_matrices = [&](std::size_t i, const Indices& rows, const Indices& columns, bool& transposed) {
    const Strides dense = ops::strides_of(shapes[i]);
    Strides strides(sizes.size(), 0);
    for (std::size_t axis = 0; axis < dense.size(); ++axis)
      if (shapes[i][axis] != 1) strides[form->axes[i][axis]] = dense[axis];
    const int slot = read_operand(kernel.layer, kernel.operands[i], Layout::kDense);
    const Indices order = joined({&roles->batch, &rows, &columns});
    transposed = are_same(strides, dense_strides(joined({&roles->batch, &columns, &rows}), sizes), sizes);
    if (are_same(strides, dense_strides(order, sizes), sizes))
      transposed = false;
    else if (!transposed)
      return arranged(slot, strides, order, sizes, kernel.layer);
    return slot;
  };
  const int a = read_matrices(first, roles->rows, roles->sums, product.transpose_a);
  const int b = read_matrices(1 - first, roles->sums, roles->columns, product.transpose_b);
  const Indices order = joined({&roles->batch, &roles->rows, &roles->columns});
  const Strides made = dense_strides(order, sizes);
  Indices wanted(form->results);
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = i;
  const TensorId result = layer(kernel.layer).outputs[0];
  const bool direct = are_same(made, dense_strides(wanted, sizes), sizes);
  const int target = direct ? define(result, Layout::kDense) : new_float_slot(sizes_of(order, sizes));
  add_step(make_matmul_kernel(product, object_cache()), {a, b}, {target}, kernel.layer);
  int slot = target;
  if (!direct) {
    slot = define(result, Layout::kDense);
    Strides from;
    for (const std::size_t index : wanted) from.push_back(made[index]);
    add_step(make_arranging_kernel(std::move(from), sizes_of(wanted, sizes)), {target}, {slot}, kernel.layer);
  }
  store(slot, kernel.outputs[0], kernel.layer);
  return true;
}

bool Lowering::lower_softmax(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const Function function = l.op->function;
  if (function != Function::kSoftmax && function != Function::kLogSoftmax) return false;
  const TensorId in = l.inputs[0], out = l.outputs[0];
  const Shape& input = shape(in);
  const auto axes = l.op->axes(l, static_cast<std::int64_t>(input.size()), nullptr);
  if (!axes || axes->empty() || !spec_.is_held_as_float(in) || num_elements(input) == 0) return false;
  const auto first = static_cast<std::size_t>(axes->front()), last = static_cast<std::size_t>(axes->back());
  if (last - first + 1 != axes->size()) return false;
  const auto size = [&](std::size_t begin, std::size_t end) { return ops::product(input, begin, end); };
  const int source = read_operand(kernel.layer, kernel.operands[0], Layout::kDense);
  const int target = define(out, Layout::kDense);
  add_step(make_column_softmax_kernel(size(0, first), size(first, last + 1), size(last + 1, input.size()),
                                      function == Function::kLogSoftmax),
           {source}, {target}, kernel.layer);
  store(target, kernel.outputs[0], kernel.layer);
  return true;
}

}  // namespace ulpscope::cpu
