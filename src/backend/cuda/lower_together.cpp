// Several products of one operand by constant matrices, with nothing behind them but a bias, are one product with more
// columns: the first one computes the others, too.
#include <algorithm>

#include "backend/cuda/lowering.h"

namespace ulpscope::cuda {
namespace {

/// The elements of all, one after the other.
Tensor joined(const std::vector<Tensor>& parts) {
  std::int64_t count = 0;
  for (const Tensor& part : parts) count += part.size();
  Tensor result(DataType::kFloat32, {count});
  float* out = result.data<float>();
  for (const Tensor& part : parts) out = std::copy_n(part.data<float>(), part.size(), out);
  return result;
}

/// One row of biases for all: zeros for products that have none.
Tensor joined_biases(const std::vector<Tensor>& biases, const std::vector<std::int64_t>& widths) {
  std::vector<Tensor> rows;
  for (std::size_t i = 0; i < biases.size(); ++i) rows.push_back(zero_padded(biases[i], {widths[i]}));
  return joined(rows);
}

}  // namespace

std::optional<Lowering::Member> Lowering::member_of(const ProductKernel& kernel, const ProductKernel& first) {
  const auto form = ops::matrix_form(layer(kernel.layer));
  if (!form || kernel.integers || lowered_.contains(&kernel) || form->alpha != 1.0f || form->beta != 1.0f) return {};
  const Operand &a = kernel.operands[0], &b = kernel.operands[1];
  if (a != first.operands[0] || b.rounding != first.operands[1].rounding) return {};
  if (spec_.is_constant(a.tensor) || !spec_.is_constant(b.tensor)) return {};
  if (num_elements(kernel.epilogue.domain) == 0) return {};
  const auto matrices = form->plain ? matmul_shape(shape(a.tensor), shape(b.tensor))
                                    : std::optional(gemm_shape(*form, shape(a.tensor), kernel.epilogue.domain));
  if (!matrices || !matrices->batch_a.empty() || matrices->transpose_a || matrices->k == 0 || matrices->n % 8 != 0)
    return {};
  Fold fold = fold_of(kernel, matrices->n, type_of(a.rounding),
                      kernel.operands.size() > 2 ? kernel.operands[2] : Operand{}, {});
  if (!fold.whole || fold.relu || fold.residual.tensor != kNone) return {};
  return Member{&kernel, *matrices, std::move(fold)};
}

std::vector<Lowering::Member> Lowering::members_with(const ProductKernel& first) {
  std::vector<Member> members;
  if (auto member = member_of(first, first)) members.push_back(std::move(*member));
  if (members.empty()) return members;
  for (const std::vector<KernelDescription>& kernels : schedule_.kernels)
    for (const KernelDescription& description : kernels)
      if (const auto* kernel = std::get_if<ProductKernel>(&description); kernel != nullptr && kernel != &first)
        if (auto member = member_of(*kernel, first)) members.push_back(std::move(*member));
  return members;
}

bool Lowering::lower_with_others(const ProductKernel& first) {
  const std::vector<Member> members = members_with(first);
  if (members.size() < 2) return false;
  const DataType type = type_of(first.operands[0].rounding);
  std::int64_t columns = 0;
  bool biased = false;
  std::string key = "together";
  std::vector<ConstantSource> parts;
  std::vector<Tensor> biases;
  std::vector<std::int64_t> widths;
  for (const Member& member : members) {
    columns += member.matrices.n;
    widths.push_back(member.matrices.n);
    const Weights weights = product_weights(*member.kernel, member.matrices);
    key += "|" + weights.key;
    parts.push_back(weights.values);
    const bool own = member.fold.bias.tensor != kNone;
    biases.push_back(own ? constants_.get(member.fold.bias) : Tensor());
    biased |= own;
  }
  const MatrixShape& shape_of_first = members[0].matrices;
  MatrixProductSpec spec{.m = shape_of_first.m, .n = columns, .k = shape_of_first.k};
  spec.operands = spec.result = type;
  spec.tf32 = first.operands[0].rounding == Rounding::kTF32;
  spec.bias = biased;
  spec.b = {1, spec.k, 0};
  spec.d = {columns, 1, 0};
  std::optional<Rows> rows = read_rows(first.operands[0], type);
  if (!rows) {
    // All rows dense: then their order is that of the indices.
    const Shape& own = shape(first.operands[0].tensor);
    const std::vector<std::int64_t> dense = ops::strides_of(own);
    const Shape leading(own.begin(), own.end() - 1);
    rows = Rows{read_as(first.operands[0], type, dense), {spec.k, 1, 0}, {leading, ops::strides_of(leading)}};
  }
  spec.a = rows->matrix;
  const View a = rows->view;
  spec.alignment = alignment_of(a);
  if (!target_.has_product(spec)) return false;
  ProductStep step;
  step.a = pointer(a);
  step.b = pointer(constant_memory(key, type, [parts] {
    std::vector<Tensor> made;
    for (const ConstantSource& part : parts) made.push_back(part());
    return joined(made);
  }));
  if (biased) {
    const Tensor bias = joined_biases(biases, widths);
    step.bias = pointer(constant_view(bias, content_key(bias), type));
  }
  const View whole = new_view(type, {spec.m, columns}, {columns, 1});
  step.d = pointer(whole);
  step.spec = spec;
  add(std::move(step));
  std::int64_t begin = 0;
  for (const Member& member : members) {
    const FineStrides order = results_of(*rows, member.matrices.n, columns);
    View part = whole;
    part.offset = begin;
    part.strides = order.strides;
    begin += member.matrices.n;
    place(member.kernel->epilogue.outputs[0].store.tensor, std::move(part), order.dims);
    lowered_.insert(member.kernel);
  }
  return true;
}

}  // namespace ulpscope::cuda
