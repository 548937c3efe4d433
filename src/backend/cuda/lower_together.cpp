// Constant matrices that the same tensor is multiplied by lie one after the other in memory. Several products by
// neighbors, with nothing behind them but a bias, are one product with more columns: the first one computes the others,
// too.
#include <algorithm>
#include <numeric>
#include <utility>

#include "backend/cuda/products.h"

namespace ulpscope::cuda {
namespace {

/// The elements of all, one after the other.
Tensor joined(const std::vector<Tensor>& parts) {
  if (parts.size() == 1) return parts[0];
  std::int64_t count = 0;
  for (const Tensor& part : parts) count += part.size();
  Tensor result(DataType::kFloat32, {count});
  float* out = result.data<float>();
  for (const Tensor& part : parts) out = std::copy_n(part.data<float>(), part.size(), out);
  return result;
}

/// The same of what is made when it is asked for.
ConstantSource joined_of(std::vector<ConstantSource> parts) {
  return [parts = std::move(parts)] {
    std::vector<Tensor> made;
    for (const ConstantSource& part : parts) made.push_back(part());
    return joined(made);
  };
}

/// One row of biases for all: zeros for products that have none.
Tensor joined_biases(const std::vector<Tensor>& biases, const std::vector<std::int64_t>& widths) {
  std::vector<Tensor> rows;
  for (std::size_t i = 0; i < biases.size(); ++i) rows.push_back(zero_padded(biases[i], {widths[i]}));
  return joined(rows);
}

}  // namespace

std::optional<MatrixShape> Products::matrix_of_columns(const ProductKernel& kernel) const {
  const auto form = ops::matrix_form(layer(kernel.layer));
  const Operand &a = kernel.operands[0], &b = kernel.operands[1];
  if (!form || spec_.is_constant(a.tensor) || !spec_.is_constant(b.tensor)) return {};
  if (num_elements(kernel.epilogue.domain) == 0 || (b.is_encoded() && !kernel.elements)) return {};
  const auto matrices = matrix_shape(*form, shape(a.tensor), shape(b.tensor), kernel.epilogue.domain);
  // Multiples of 8 columns: each begins where the libraries take it.
  if (narrow_of(kernel)) return {};
  const bool has = matrices && matrices->batch_a.empty() && !matrices->transpose_a && matrices->k > 0;
  return has && matrices->n % 8 == 0 ? matrices : std::nullopt;
}

std::vector<Products::Columns> Products::adjacent_columns(const ProductKernel& kernel) const {
  if (kernel.elements || !matrix_of_columns(kernel)) return {};
  std::vector<Columns> result;
  const TensorId tensor = kernel.operands[0].tensor;
  const Rounding rounding = kernel.operands[1].rounding;
  for (const KernelDescription* reader : uses_[tensor].readers) {
    const auto* product = std::get_if<ProductKernel>(reader);
    if (product == nullptr || product->operands[0].tensor != tensor) continue;
    const auto matrices = matrix_of_columns(*product);
    if (!matrices) continue;
    // A matrix that is multiplied in two precisions is there once.
    const Operand& own = product->operands[1];
    const auto same = std::ranges::find_if(result, [&](const Columns& each) {
      const Operand& other = each.kernel->operands[1];
      return other.tensor == own.tensor && other.first == own.first && each.matrices.k == matrices->k &&
             each.matrices.n == matrices->n && each.matrices.transpose_b == matrices->transpose_b;
    });
    if (same == result.end())
      result.push_back({product, *matrices});
    else if (product == &kernel ||
             (same->kernel != &kernel && same->kernel->operands[1].rounding != rounding && own.rounding == rounding))
      *same = {product, *matrices};
  }
  return result;
}

View Products::column_weights(const ProductKernel& kernel, const std::vector<Columns>& adjacent, DataType type) {
  std::string key = "columns";
  std::vector<ConstantSource> parts;
  std::vector<StoredMatrix> stored;
  std::int64_t begin = 0, elements = 0;
  for (const Columns& columns : adjacent) {
    if (columns.kernel == &kernel) begin = elements;
    elements += columns.matrices.k * columns.matrices.n;
    const Operand& own = columns.kernel->operands[1];
    const Operand as_read{own.tensor, kernel.operands[1].rounding, own.first};
    MatrixWeights weights = matrices_.float_weights(as_read, columns.matrices);
    key += "|" + weights.key;
    parts.push_back(std::move(weights.values));
    if (auto matrix = matrices_.stored_matrix(as_read, columns.matrices, type)) stored.push_back(std::move(*matrix));
  }
  if (stored.size() != parts.size()) stored.clear();
  View view = steps_.constant_memory(key, type, joined_of(std::move(parts)), stored);
  view.offset = begin;
  return view;
}

std::optional<Products::Member> Products::member_of(const Columns& columns, const ProductKernel& first) {
  const ProductKernel& kernel = *columns.kernel;
  const auto form = ops::matrix_form(layer(kernel.layer));
  if (kernel.elements || lowered_.contains(&kernel) || form->alpha != 1.0f || form->beta != 1.0f) return {};
  if (kernel.operands[0] != first.operands[0] || kernel.operands[1].rounding != first.operands[1].rounding) return {};
  ProductFold fold = epilogues_.fold_of(kernel, columns.matrices.n, type_of(first.operands[0].rounding),
                                        kernel.operands.size() > 2 ? kernel.operands[2] : Operand{}, {});
  if (!fold.whole || fold.relu || fold.residual.tensor != kNone) return {};
  return Member{&kernel, columns.matrices, std::move(fold)};
}

/// One product for several that read the same rows (the projections of an attention): their columns are adjacent in one
/// matrix of weights, and each result is a view of the whole. Only for those whose epilogue is a bias at most, since
/// the columns of one product share all else.
bool Products::lower_with_others(const ProductKernel& first) {
  const std::vector<Columns> adjacent = adjacent_columns(first);
  std::vector<Member> members;
  for (auto each = std::ranges::find(adjacent, &first, &Columns::kernel); each != adjacent.end(); ++each) {
    auto member = member_of(*each, first);
    if (!member) break;
    members.push_back(std::move(*member));
  }
  if (members.size() < 2) return false;
  const DataType type = type_of(first.operands[0].rounding);
  std::int64_t columns = 0;
  bool biased = false;
  std::vector<Tensor> biases;
  std::vector<std::int64_t> widths;
  for (const Member& member : members) {
    columns += member.matrices.n;
    widths.push_back(member.matrices.n);
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
  std::optional<MatrixRows> rows = matrices_.read_rows(first.operands[0], type);
  if (!rows) {
    // All rows dense: then their order is that of the indices.
    const Shape& own = shape(first.operands[0].tensor);
    const std::vector<std::int64_t> dense = ops::strides_of(own);
    const Shape leading(own.begin(), own.end() - 1);
    rows = MatrixRows{
        memory_.read_as(first.operands[0], type, dense), {spec.k, 1, 0}, {leading, ops::strides_of(leading)}};
  }
  spec.a = rows->matrix;
  const View a = rows->view;
  spec.alignment = alignment_of(a);
  if (!adds_bias_before_rounding(spec) || !target_.has_product(spec)) return false;
  ProductStep step;
  step.a = pointer(a);
  step.b = pointer(column_weights(first, adjacent, type));
  if (biased) {
    const Tensor bias = joined_biases(biases, widths);
    step.bias = pointer(memory_.constant_view(bias, type));
  }
  const View whole = steps_.new_view(type, {spec.m, columns}, {columns, 1});
  step.d = pointer(whole);
  step.spec = spec;
  steps_.add(std::move(step));
  std::int64_t begin = 0;
  for (const Member& member : members) {
    const FineStrides order = Matrices::results_of(*rows, member.matrices.n, columns);
    View part = whole;
    part.offset = begin;
    part.strides = order.strides;
    begin += member.matrices.n;
    memory_.place(member.kernel->epilogue.outputs[0].store.tensor, std::move(part), order.dims);
    lowered_.insert(member.kernel);
  }
  return true;
}

std::optional<Products::ElementMember> Products::element_member(const ProductKernel& kernel, const ProductKernel& first,
                                                                std::int64_t k) const {
  const auto form = ops::matrix_form(layer(kernel.layer));
  if (!form || !kernel.elements || lowered_.contains(&kernel)) return {};
  if (form->transpose_a || form->alpha != 1.0f || form->beta != 1.0f) return {};
  const Operand &a = kernel.operands[0], &b = kernel.operands[1];
  if (a != first.operands[0] || kernel.accumulator != first.accumulator || !spec_.is_constant(b.tensor)) return {};
  if (b.encoding->format != first.operands[1].encoding->format || b.encoding->granularity == Granularity::kBlock)
    return {};
  const auto s = element_shape(*form, shape(a.tensor), shape(b.tensor));
  if (!s || !s->batch.empty() || s->k != k || s->n % 8 != 0 || num_elements(shape(b.tensor)) != k * s->n) return {};
  const Shape &domain = kernel.epilogue.domain, &of_others = first.epilogue.domain;
  if (!std::ranges::equal(domain.begin(), domain.end() - 1, of_others.begin(), of_others.end() - 1)) return {};
  // A bias, and what is left is stored, in a type that all share.
  const ProductFold fold = epilogues_.fold_of(kernel, s->n, DataType::kFloat32, addend_of(kernel, *form), {});
  const auto& outputs = kernel.epilogue.outputs;
  if (fold.relu || fold.residual.tensor != kNone || outputs.size() != 1 || outputs[0].source != fold.done) return {};
  const Store &store = outputs[0].store, &of_first = first.epilogue.outputs[0].store;
  if (store.exact || store.tensor == kNone || store.rounding != of_first.rounding) return {};
  if (!wanted_elements(*this, store).forms.empty()) return {};
  const MatrixShape matrices{.n = s->n, .k = k, .transpose_b = form->transpose_b};
  ElementMember member{&kernel, {}, s->n, {}};
  member.weights =
      kernel.sums_bytes() ? matrices_.integer_weights(kernel, matrices) : matrices_.element_weights(kernel, matrices);
  if (fold.bias.tensor != kNone) member.bias = constants_.get(fold.bias);
  return member;
}

/// The same for products of elements. Matrices have scales of their own: a factor per column.
bool Products::lower_elements_with_others(const ProductKernel& first, MatrixProductSpec spec) {
  if (!target_.has_fused_products() || spec.batch != 1 || first.epilogue.outputs.size() != 1) return false;
  std::vector<ElementMember> members;
  for (const KernelDescription* reader : uses_[first.operands[0].tensor].readers) {
    const auto* product = std::get_if<ProductKernel>(reader);
    if (product == nullptr || (members.empty() && product != &first)) continue;
    if (auto member = element_member(*product, first, spec.k)) members.push_back(std::move(*member));
  }
  if (members.size() < 2) return false;
  const bool channels = members[0].weights.scale.size() > 1;
  ProductResults results;
  results.channel = first.epilogue.domain.size() - 1;
  std::string key = "elements";
  std::vector<Tensor> scales, biases;
  std::vector<ConstantSource> parts;
  std::vector<std::int64_t> widths;
  for (const ElementMember& member : members) {
    if ((member.weights.scale.size() > 1) != channels) return false;
    const ElementScales own = scales_of(*member.kernel, member.weights.scale);
    Tensor scale(DataType::kFloat32, {member.n});
    for (std::int64_t i = 0; i < member.n; ++i) scale.data<float>()[i] = own.scale.data<float>()[channels ? i : 0];
    scales.push_back(std::move(scale));
    results.second = own.second;
    biases.push_back(member.bias);
    parts.push_back(member.weights.values);
    widths.push_back(member.n);
    key += "|" + member.weights.key;
  }
  spec.n = std::accumulate(widths.begin(), widths.end(), std::int64_t{0});
  spec.d.row_stride = spec.n;
  if (!target_.has_product(spec)) return false;
  results.scale = joined(scales);
  if (std::ranges::any_of(biases, [](const Tensor& bias) { return static_cast<bool>(bias); }))
    results.bias = joined_biases(biases, widths);
  const auto form = ops::matrix_form(layer(first.layer));
  const auto s = element_shape(*form, shape(first.operands[0].tensor), shape(first.operands[1].tensor));
  ProductStep step{.spec = spec};
  step.a = pointer(read_first(first, *form, *s, spec.operands, true));
  step.b = pointer(steps_.constant_memory(key, spec.operands, joined_of(std::move(parts))));
  Shape domain = first.epilogue.domain;
  domain.back() = spec.n;
  const FineStrides order{domain, ops::strides_of(domain)};
  results.view = steps_.new_view(spec.result, domain, order.strides);
  step.d = pointer(results.view);
  const Rounding rounding = first.epilogue.outputs[0].store.rounding;
  const View whole = steps_.new_view(type_of(rounding), domain, order.strides);
  ProgramAssembly assembly(domain, 0);
  const Register raw = assembly.input(results.view, order.strides, Rounding::kNone);
  assembly.output(epilogues_.append_scaling(results, assembly, raw), whole, order.strides, rounding);
  add_with_program(std::move(step), std::move(assembly), order);
  std::int64_t begin = 0;
  for (const ElementMember& member : members) {
    View part = whole;
    part.offset = begin;
    begin += member.n;
    memory_.place(member.kernel->epilogue.outputs[0].store.tensor, std::move(part), member.kernel->epilogue.domain);
    lowered_.insert(member.kernel);
  }
  return true;
}

}  // namespace ulpscope::cuda
