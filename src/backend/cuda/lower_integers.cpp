// Products of matrices of 8-bit integers, exact in int32: cuBLASLt where it takes the sizes, else a convolution with
// one tap, whose generated kernel takes all sizes, and unsigned operands. Batches are groups of that convolution.
#include <limits>

#include "backend/cuda/products.h"

namespace ulpscope::cuda {
namespace {

/// Strides of [batch..., rows, columns] with batches one behind the other at `apart`.
std::vector<std::int64_t> matrix_strides(const Shape& batch, std::int64_t apart, std::int64_t row,
                                         std::int64_t column) {
  std::vector<std::int64_t> strides = ops::strides_of(batch);
  for (std::int64_t& stride : strides) stride *= apart;
  strides.push_back(row);
  strides.push_back(column);
  return strides;
}

/// Sums of k products fit into int32, whatever the integers are.
bool fits(std::int64_t k, const Quantization& a, bool b_is_unsigned) {
  const std::int64_t largest = (a.is_unsigned() ? 255 : 128) * (b_is_unsigned ? 255 : 128);
  return k > 0 && k <= std::numeric_limits<std::int32_t>::max() / largest;
}

}  // namespace

std::optional<ElementShape> element_shape(const ops::MatrixForm& form, Shape a, Shape b) {
  if (a.size() < 2 || b.size() < 2) return std::nullopt;
  ElementShape s;
  if (form.transpose_a) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (form.transpose_b) std::swap(b[b.size() - 1], b[b.size() - 2]);
  s.m = a[a.size() - 2], s.k = a.back(), s.n = b.back();
  a.resize(a.size() - 2);
  b.resize(b.size() - 2);
  if (num_elements(b) == 1) {
    s.m *= num_elements(a);
    return s;
  }
  const std::size_t rank = std::max(a.size(), b.size());
  for (Shape* dims : {&a, &b}) dims->insert(dims->begin(), rank - dims->size(), 1);
  for (std::size_t d = 0; d < rank; ++d) s.batch.push_back(a[d] == 1 ? b[d] : a[d]);
  return s;
}

MatrixProductSpec element_product(const ElementShape& s, DataType operands, DataType result) {
  MatrixProductSpec spec{.m = s.m, .n = s.n, .k = s.k, .batch = s.batches()};
  spec.operands = operands;
  spec.result = result;
  spec.a = {s.k, 1, spec.batch > 1 ? s.m * s.k : 0};
  spec.b = {1, s.k, spec.batch > 1 ? s.k * s.n : 0};
  spec.d = {s.n, 1, spec.batch > 1 ? s.m * s.n : 0};
  return spec;
}

ElementScales scales_of(const ProductKernel& kernel, const Tensor& weights) {
  const Operand &a = kernel.operands[0], &b = kernel.operands[1];
  const auto one = [](float factor) { return Tensor::of<float>({1}, {factor}); };
  if (kernel.sums_bytes()) return {weights ? weights : one(a.quantization().scale * b.quantization().scale)};
  if (weights && weights.size() > 1) return {weights, a.scale};
  return {one(a.scale * (weights ? weights.data<float>()[0] : b.scale))};
}

/// cuBLASLt where it multiplies such bytes (signed, in fours), a generated kernel elsewhere: sums are exact in both.
/// Both want k innermost, whatever the layout of the operands is: quantizing writes them so.
bool Products::lower_integers(const ProductKernel& kernel, const ops::MatrixForm& form) {
  const Operand &a = kernel.operands[0], &b = kernel.operands[1];
  const bool constant = spec_.is_constant(b.tensor), unsigned_b = !constant && b.quantization().is_unsigned();
  const Shape &a_shape = shape(a.tensor), &b_shape = shape(b.tensor);
  const auto s = element_shape(form, a_shape, b_shape);
  if (spec_.is_constant(a.tensor) || !s || !fits(s->k, a.quantization(), unsigned_b)) return false;
  const std::int64_t m = s->m, n = s->n, k = s->k, batches = s->batches();
  if (constant && num_elements(b_shape) != batches * k * n) return false;
  const MatrixProductSpec spec = element_product(*s, DataType::kInt8, DataType::kInt32);
  const bool by_library =
      k % 4 == 0 && n % 4 == 0 && !a.quantization().is_unsigned() && !unsigned_b && target_.has_product(spec);

  if (by_library && constant && lower_elements_with_others(kernel, spec)) return true;
  const MatrixWeights weights =
      constant ? matrices_.integer_weights(kernel, {.n = n, .k = k, .transpose_b = form.transpose_b}) : MatrixWeights();
  const auto type_of_bytes = [](bool is_unsigned) { return is_unsigned ? DataType::kUInt8 : DataType::kInt8; };
  const ElementViews views =
      read_both(kernel, form, *s, weights, {type_of_bytes(a.quantization().is_unsigned()), type_of_bytes(unsigned_b)},
                by_library);
  const View &a_view = views.a, &b_view = views.b;
  ProductResults results = results_of(kernel, form);
  results.scale = scales_of(kernel, weights.scale).scale;
  const Shape& domain = kernel.epilogue.domain;
  if (by_library) {
    const FineStrides order{domain, ops::strides_of(domain)};
    results.view = steps_.new_view(spec.result, domain, order.strides);
    ProductStep step{.spec = spec};
    step.a = pointer(a_view), step.b = pointer(b_view), step.d = pointer(results.view);
    add_with_epilogue(std::move(step), kernel, results, order);
    return true;
  }
  results.view = integer_sums(a_view, b_view, m, n, k, batches);
  results.view.strides = s->batch.empty() ? ops::strides_of(domain) : matrix_strides(s->batch, n, batches * n, 1);
  epilogues_.lower(kernel, results);
  return true;
}

/// With k innermost, whatever the layout of the operand is: quantizing writes it so. The generated kernel takes the
/// rows of all batches side by side.
View Products::read_first(const ProductKernel& kernel, const ops::MatrixForm& form, const ElementShape& s,
                          DataType type, bool by_library) {
  const Operand& a = kernel.operands[0];
  const Shape& a_shape = shape(a.tensor);
  if (s.batch.empty()) {
    const std::vector<std::int64_t> dense = ops::strides_of(a_shape);
    return matrices_.read_elements(a, type, a_shape, form.transpose_a ? std::vector<std::int64_t>{1, s.k} : dense);
  }
  Shape domain = s.batch;
  domain.insert(domain.end(), {s.m, s.k});
  return matrices_.read_elements(
      a, type, domain, matrix_strides(s.batch, by_library ? s.m * s.k : s.k, by_library ? s.k : s.batches() * s.k, 1));
}

/// Both with k innermost.
Products::ElementViews Products::read_both(const ProductKernel& kernel, const ops::MatrixForm& form,
                                           const ElementShape& s, const MatrixWeights& weights,
                                           std::pair<DataType, DataType> types, bool by_library) {
  const Operand& b = kernel.operands[1];
  const Shape& b_shape = shape(b.tensor);
  ElementViews views{read_first(kernel, form, s, types.first, by_library), {}};
  if (spec_.is_constant(b.tensor)) {
    views.b = steps_.constant_memory(weights.key, types.second, weights.values);
    return views;
  }
  Shape domain = b_shape;
  if (!s.batch.empty()) {
    domain = s.batch;
    domain.insert(domain.end(), {s.k, s.n});
  }
  const Shape outer(domain.begin(), domain.end() - 2);
  views.b =
      matrices_.read_elements(b, types.second, domain,
                              matrix_strides(outer, s.k * s.n, form.transpose_b ? s.k : 1, form.transpose_b ? 1 : s.k));
  return views;
}

/// a, [m, batches, k], by b, [batches, n, k]: the float32 next to each sum, [m, batches, n].
View Products::integer_sums(const View& a, const View& b, std::int64_t m, std::int64_t n, std::int64_t k,
                            std::int64_t batches) {
  ConvolutionSpec spec{.input = {1, batches * k, m},
                       .weights = {batches * n, k, 1},
                       .output = {1, batches * n, m},
                       .strides = {1},
                       .dilations = {1},
                       .pads_begin = {0},
                       .pads_end = {0},
                       .groups = batches,
                       .operands = a.type,
                       .unsigned_weights = b.type == DataType::kUInt8};
  const View sums = steps_.new_view(DataType::kFloat32, spec.output, channels_last_strides(spec.output));
  Program program;
  const ProgramOutput output{.source = program.apply(Instruction::kCopy, program.load(0)), .strides = sums.strides};
  steps_.add(KernelStep{
      shared_convolution(spec, program, {}, std::span(&output, 1)), {pointer(a), pointer(b)}, {pointer(sums)}});
  return sums;
}

}  // namespace ulpscope::cuda
