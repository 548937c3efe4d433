// Products of matrices: cuBLASLt with bias, residual and relu where these are all there is, else into float32 and a
// program for the rest.
#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/products.h"

namespace ulpscope::cuda {
namespace {

/// The type that a product of floats reads its operands in.
DataType operand_type(const ProductKernel& kernel) { return type_of(kernel.operands[0].rounding); }

}  // namespace

bool Products::lower(const ProductKernel& kernel) {
  const auto form = ops::matrix_form(layer(kernel.layer));
  if (!form) return false;
  if (kernel.elements) return kernel.sums_bytes() ? lower_integers(kernel, *form) : lower_fp8(kernel, *form);
  return lower_narrow(kernel) || lower_with_others(kernel) || lower_matrices(kernel);
}

/// Rows of `a` where they lie, also with gaps between them, and results likewise, if all that is left to do can follow
/// these strides; else no rows, and results without gaps.
Products::ResultLayout Products::layout_of_results(const ProductKernel& kernel, const ops::MatrixForm& form,
                                                   const MatrixShape& matrices, const MatrixProductSpec& spec) {
  const bool constant = spec_.is_constant(kernel.operands[1].tensor);
  const Shape& domain = kernel.epilogue.domain;
  ResultLayout dense{{}, {domain, ops::strides_of(domain)}, spec.n};
  if (!matrices.batch_a.empty() || matrices.transpose_a) return dense;
  auto rows = matrices_.read_rows(kernel.operands[0], spec.operands);
  if (!rows) return dense;
  const std::int64_t columns = spec.m > 1 && constant ? padded_columns(spec.n) : spec.n;
  FineStrides order = Matrices::results_of(*rows, spec.n, columns);
  if (const auto plain = reshaped_strides(order.dims, order.strides, domain))
    return {std::move(rows), {domain, *plain}, columns};
  // Results without strides over the domain have to be all that is left to do.
  const ProductFold fold = epilogues_.fold_of(kernel, spec.n, spec.operands, addend_of(kernel, form), {});
  MatrixProductSpec biased = spec;
  biased.result = spec.operands;
  biased.a = rows->matrix;
  biased.b = {1, spec.k, 0};
  biased.d = {columns, 1, 0};
  biased.bias = fold.bias.tensor != kNone;
  biased.alignment = alignment_of(rows->view);
  const bool whole = form.alpha == 1.0f && form.beta == 1.0f && fold.whole &&
                     (!biased.bias || (constant && adds_bias_before_rounding(biased)));
  return whole ? ResultLayout{std::move(rows), std::move(order), columns} : dense;
}

/// The second operand: beside others in memory, or constant with so many columns, or a tensor as it lies.
View Products::read_second(const ProductKernel& kernel, const MatrixShape& matrices, std::int64_t columns,
                           MatrixProductSpec& spec) {
  const Operand& b = kernel.operands[1];
  const DataType type = spec.operands;
  const std::int64_t batch = num_elements(matrices.batch_b);
  spec.b = {1, spec.k, 0};
  if (const auto adjacent = adjacent_columns(kernel); !adjacent.empty()) return column_weights(kernel, adjacent, type);
  if (spec_.is_constant(b.tensor)) {
    MatrixWeights weights = matrices_.float_weights(kernel, matrices);
    if (columns != spec.n) weights = Matrices::padded(weights, columns);
    spec.n = columns;
    const auto stored = columns == matrices.n ? matrices_.stored_matrix(b, matrices, type) : std::nullopt;
    if (batch > 1) spec.b.batch_stride = spec.k * spec.n;
    return steps_.constant_memory(weights.key, type, weights.values,
                                  stored ? std::span(&*stored, 1) : std::span<const StoredMatrix>());
  }
  const Shape dims = matrices.transpose_b ? Shape{spec.n, spec.k}
                     : batch > 1          ? Shape{spec.batch, spec.k, spec.n}
                                          : Shape{spec.k, spec.n};
  const View view = matrices_.read_matrix(b, type, dims, spec.b, batch);
  if (matrices.transpose_b) std::swap(spec.b.row_stride, spec.b.column_stride);
  return view;
}

/// MatMul and Gemm by cuBLASLt. What the epilogue has beyond cuBLASLt's own is a program behind it, which may become
/// one kernel with the product (add_with_program).
bool Products::lower_matrices(const ProductKernel& kernel) {
  const auto form = ops::matrix_form(layer(kernel.layer));
  if (!form) return false;
  const Operand &a = kernel.operands[0], &b = kernel.operands[1];
  const DataType type = operand_type(kernel);
  const Shape& domain = kernel.epilogue.domain;
  const auto matrices = matrix_shape(*form, shape(a.tensor), shape(b.tensor), domain);
  if (!matrices || matrices->k == 0) return false;
  // One matrix for all of the others' batches has a stride of 0.
  const std::int64_t batch_a = num_elements(matrices->batch_a), batch_b = num_elements(matrices->batch_b);
  if (matrices->batch_a != matrices->batch_b && batch_a != 1 && batch_b != 1) return false;
  const std::int64_t batch = std::max(batch_a, batch_b);
  MatrixProductSpec spec{.m = matrices->m, .n = matrices->n, .k = matrices->k, .batch = batch};
  spec.operands = type;
  spec.tf32 = a.rounding == Rounding::kTF32;
  const auto [rows, order, columns] = layout_of_results(kernel, *form, *matrices, spec);
  const Shape a_shape = matrices->transpose_a ? Shape{spec.k, spec.m}
                        : batch_a > 1         ? Shape{batch, spec.m, spec.k}
                                              : Shape{spec.m, spec.k};
  const View a_view = rows ? rows->view : matrices_.read_matrix(a, type, a_shape, spec.a, batch_a);
  if (rows) spec.a = rows->matrix;
  if (matrices->transpose_a) std::swap(spec.a.row_stride, spec.a.column_stride);
  const View b_view = read_second(kernel, *matrices, columns, spec);
  spec.alignment = std::min(alignment_of(a_view), alignment_of(b_view));
  spec.d = {spec.n, 1, batch > 1 ? spec.m * spec.n : 0};
  ProductResults results = results_of(kernel, *form);
  ProductStep step;
  step.a = pointer(a_view);
  step.b = pointer(b_view);
  fold_epilogue(kernel, spec, step, results, order);
  if (!target_.has_product(spec)) return false;
  step.spec = spec;
  if (results.view.buffer < 0) results.view = steps_.new_view(spec.result, domain, order.strides);
  steps_.extend(results.view, columns - matrices->n);
  step.d = pointer(results.view);
  add_with_epilogue(std::move(step), kernel, results, order);
  return true;
}

ProductResults Products::results_of(const ProductKernel& kernel, const ops::MatrixForm& form) const {
  ProductResults results;
  results.channel = kernel.epilogue.domain.size() - 1;
  results.alpha = form.alpha;
  results.beta = form.beta;
  results.addend = addend_of(kernel, form);
  return results;
}

void Products::add_with_epilogue(ProductStep product, const ProductKernel& kernel, const ProductResults& results,
                                 const FineStrides& order) {
  if (auto program = epilogues_.program_of(kernel, results))
    add_with_program(std::move(product), std::move(*program), order);
  else
    steps_.add(std::move(product));
}

void Products::add_with_program(ProductStep product, ProgramAssembly program, const FineStrides& order) {
  ProductProgramStep both;
  both.spec = {product.spec, program.spec(), {}};
  // What a step along a dimension adds to the row of results, and so of `a`.
  for (std::size_t d = 0; d + 1 < order.strides.size(); ++d)
    both.spec.row_strides.push_back(order.strides[d] / product.spec.n);
  if (!target_.has_fused_products() || !has_fused_source(both.spec)) {
    steps_.add(std::move(product));
    steps_.add(std::move(program).finish());
    return;
  }
  both.product = std::move(product);
  both.program = std::move(program).finish();
  both.computes = fmt::format("{}, then {}", both.product.spec.text(), both.program.source->hash);
  steps_.add(std::move(both));
}

/// Lets bias, residual and relu ride on the product when they, and one store, are all that is left to do.
void Products::fold_epilogue(const ProductKernel& kernel, MatrixProductSpec& spec, ProductStep& step,
                             ProductResults& results, const FineStrides& order) {
  spec.result = DataType::kFloat32;
  if (results.alpha != 1.0f || results.beta != 1.0f) return;
  const std::int64_t n = kernel.epilogue.domain.back();
  // A residual has no elements beside the results that are wanted.
  const bool plain = order.dims == kernel.epilogue.domain && n == spec.n;
  const ProductFold fold =
      epilogues_.fold_of(kernel, n, spec.operands, results.addend, plain ? order.strides : std::vector<std::int64_t>{});
  if (!fold.whole) return;
  MatrixProductSpec folded = spec;
  folded.result = spec.operands;
  folded.bias = fold.bias.tensor != kNone;
  folded.residual = fold.residual.tensor != kNone;
  folded.relu = fold.relu;
  if (folded.residual) folded.alignment = std::min(folded.alignment, alignment_of(memory_.device_view(fold.residual)));
  if (!adds_bias_before_rounding(folded)) return;
  spec = folded;
  if (spec.bias && n == spec.n) step.bias = pointer(memory_.constant_view(fold.bias, spec.result));
  if (spec.bias && n != spec.n) {
    const Tensor wide = zero_padded(constants_.get(fold.bias), {spec.n});
    step.bias = pointer(memory_.constant_view(wide, spec.result));
  }
  if (spec.residual) step.residual = pointer(memory_.device_view(fold.residual));
  results.addend = {};
  results.done = fold.done;
  results.view = steps_.new_view(spec.result, order.dims, order.strides);
  memory_.place(kernel.epilogue.outputs[0].store.tensor, results.view, order.dims);
}

}  // namespace ulpscope::cuda
