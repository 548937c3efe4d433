// Products of matrices of 8-bit integers, exact in int32: cuBLASLt where it takes the sizes, else a convolution with
// one tap, whose generated kernel takes all sizes, and unsigned operands. Batches are groups of that convolution.
#include <limits>

#include "backend/cuda/products.h"

namespace ulpscope::cuda {
namespace {

/// [batch..., m, k] by [batch..., k, n]; where all batches share one matrix b, their rows are rows of one matrix a.
struct IntegerShape {
  Shape batch;
  std::int64_t m = 1, n = 1, k = 1;
  std::int64_t batches() const { return num_elements(batch); }
};

std::optional<IntegerShape> integer_shape(const ops::MatrixForm& form, Shape a, Shape b) {
  if (a.size() < 2 || b.size() < 2) return std::nullopt;
  IntegerShape s;
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

/// cuBLASLt where it multiplies such bytes (signed, in fours), a generated kernel elsewhere: sums are exact in both.
/// Both want k innermost, whatever the layout of the operands is: quantizing writes them so.
bool Products::lower_integers(const ProductKernel& kernel, const ops::MatrixForm& form) {
  const Operand &a = kernel.operands[0], &b = kernel.operands[1];
  const bool constant = spec_.is_constant(b.tensor), unsigned_b = !constant && b.quantization().is_unsigned();
  const Shape &a_shape = shape(a.tensor), &b_shape = shape(b.tensor);
  const auto s = integer_shape(form, a_shape, b_shape);
  if (spec_.is_constant(a.tensor) || !s || !fits(s->k, a.quantization(), unsigned_b)) return false;
  const std::int64_t m = s->m, n = s->n, k = s->k, batches = s->batches();
  if (constant && num_elements(b_shape) != batches * k * n) return false;
  MatrixProductSpec spec{.m = m, .n = n, .k = k, .batch = batches};
  spec.operands = DataType::kInt8;
  spec.result = DataType::kInt32;
  spec.a = {k, 1, batches > 1 ? m * k : 0};
  spec.b = {1, k, batches > 1 ? k * n : 0};
  spec.d = {n, 1, batches > 1 ? m * n : 0};
  const bool by_library =
      k % 4 == 0 && n % 4 == 0 && !a.quantization().is_unsigned() && !unsigned_b && target_.has_product(spec);

  // k is innermost on both sides. The generated kernel takes the rows of all batches side by side.
  const auto turned = [](std::vector<std::int64_t> strides) {
    std::swap(strides[strides.size() - 1], strides[strides.size() - 2]);
    return strides;
  };
  View a_view, b_view;
  if (s->batch.empty()) {
    const Shape transposed{m, k};
    a_view = matrices_.read_integers(a, a_shape,
                                     form.transpose_a ? turned(ops::strides_of(transposed)) : ops::strides_of(a_shape));
  } else {
    Shape domain = s->batch;
    domain.insert(domain.end(), {m, k});
    a_view = matrices_.read_integers(a, domain,
                                     matrix_strides(s->batch, by_library ? m * k : k, by_library ? k : batches * k, 1));
  }
  ProductResults results;
  results.channel = kernel.epilogue.domain.size() - 1;
  if (constant) {
    const MatrixWeights weights = matrices_.integer_weights(kernel, {.n = n, .k = k, .transpose_b = form.transpose_b});
    results.scale = weights.scale;
    b_view = steps_.constant_memory(weights.key, DataType::kInt8, weights.values);
  } else {
    Shape domain = b_shape;
    if (!s->batch.empty()) {
      domain = s->batch;
      domain.insert(domain.end(), {k, n});
    }
    const Shape outer(domain.begin(), domain.end() - 2);
    b_view = matrices_.read_integers(b, domain,
                                     matrix_strides(outer, k * n, form.transpose_b ? k : 1, form.transpose_b ? 1 : k));
    results.scale = Tensor::of<float>({1}, {a.quantization().scale * b.quantization().scale});
  }
  results.alpha = form.alpha;
  results.beta = form.beta;
  results.addend = addend_of(kernel, form);
  if (by_library) {
    results.view = steps_.new_view(spec.result, kernel.epilogue.domain, ops::strides_of(kernel.epilogue.domain));
    ProductStep step{.spec = spec};
    step.a = pointer(a_view), step.b = pointer(b_view), step.d = pointer(results.view);
    steps_.add(std::move(step));
  } else {
    results.view = integer_sums(a_view, b_view, m, n, k, batches);
    results.view.strides =
        s->batch.empty() ? ops::strides_of(kernel.epilogue.domain) : matrix_strides(s->batch, n, batches * n, 1);
  }
  epilogues_.lower(kernel, results);
  return true;
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
