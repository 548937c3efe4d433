// Operands of products as matrices, where they lie or copied, as floats or integers; constants with k innermost.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "backend/cuda/products.h"
#include "ops/movement.h"
#include "ulpscope/error.h"

namespace ulpscope::cuda {
namespace {

/// The values of a constant operand as matrices [n, k].
ConstantSource k_innermost(const ConstantSource& values, const MatrixShape& matrices) {
  return [values, k = matrices.k, n = matrices.n, transposed = matrices.transpose_b] {
    const Tensor value = values();
    const std::int64_t count = value.size() / (k * n);
    if (transposed) return value.reshaped({count, n, k});
    Tensor turned(DataType::kFloat32, {count, n, k});
    const std::vector<std::int64_t> order{0, 2, 1};
    ops::copy_permuted(value, {count, k, n}, order, turned);
    return turned;
  };
}

/// Rows or columns are contiguous.
bool is_matrix(std::int64_t rows, std::int64_t columns, std::int64_t row_stride, std::int64_t column_stride) {
  const bool by_rows = (column_stride == 1 || columns == 1) && (row_stride >= columns || rows == 1);
  const bool by_columns = (row_stride == 1 || rows == 1) && (column_stride >= rows || columns == 1);
  return by_rows || by_columns;
}

}  // namespace

Tensor zero_padded(const Tensor& values, const Shape& shape) {
  Tensor result(DataType::kFloat32, shape);
  float* const end = result.data<float>() + result.size();
  std::fill(values ? std::copy_n(values.data<float>(), values.size(), result.data<float>()) : result.data<float>(), end,
            0.0f);
  return result;
}

View Matrices::read_elements(const Operand& operand, DataType type, const Shape& domain,
                             std::vector<std::int64_t> strides) {
  const Quantization& q = operand.quantization();
  const auto [found, is_new] =
      memory_.elements().try_emplace({operand.tensor, operand.exact, q.scale, q.elements, type, domain, strides});
  if (!is_new) return found->second;
  const View from = memory_.device_view(operand.plain());
  const View to = steps_.new_view(type, domain, std::move(strides));
  ProgramAssembly assembly(domain, 0);
  const Register value =
      assembly.input(from, broadcast_strides(shape(operand.tensor), from.strides, domain), Rounding::kNone);
  assembly.output(assembly.program().apply(Instruction::kCopy, value), to, to.strides, Rounding::kNone, q);
  steps_.add(std::move(assembly).finish());
  return found->second = to;
}

/// `dims`: what MatMul reads (at least two dimensions), or the rows of several batches as one.
View Matrices::read_matrix(const Operand& operand, DataType type, const Shape& dims, MatrixOperand& matrix,
                           std::int64_t batch) {
  const Shape& own = shape(operand.tensor);
  const std::size_t rank = dims.size();
  const auto matrix_of = [&](const View& view) {
    const auto strides = reshaped_strides(own, view.strides, dims);
    if (!strides) return false;
    const std::vector<std::int64_t>& s = *strides;
    if (!is_matrix(dims[rank - 2], dims[rank - 1], s[rank - 2], s[rank - 1])) return false;
    matrix.row_stride = s[rank - 2];
    matrix.column_stride = dims[rank - 1] == 1 && matrix.row_stride != 1 ? 1 : s[rank - 1];
    matrix.batch_stride = rank > 2 && batch > 1 ? s[0] : 0;
    return true;
  };
  View view = memory_.read_as(operand, type);
  if (!matrix_of(view)) {
    view = memory_.read_as(operand, type, ops::strides_of(own));
    if (!matrix_of(view)) throw InternalError("a dense tensor is no matrix");
  }
  return view;
}

std::optional<MatrixRows> Matrices::read_rows(const Operand& operand, DataType type) {
  if (operand.is_encoded() || spec_.is_constant(operand.tensor)) return std::nullopt;
  auto [view, dims] = memory_.fine_view(operand);
  const Shape& own = shape(operand.tensor);
  const auto fine = refined({dims, view.strides}, own);
  if (!fine || view.type != type || !is_exact(view.type, operand.rounding)) return std::nullopt;
  return rows_of(std::move(view), *fine, own.back());
}

std::optional<MatrixRows> Matrices::rows_of(View view, const FineStrides& fine, std::int64_t columns) {
  // The columns, side by side.
  std::size_t rows = fine.dims.size();
  for (std::int64_t product = 1; product < columns; product *= fine.dims[rows]) {
    --rows;
    if (fine.strides[rows] != product) return std::nullopt;
  }
  // The rows, as they lie in memory, at one stride.
  std::vector<std::size_t> order(rows);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return fine.strides[a] > fine.strides[b]; });
  MatrixRows result{std::move(view), {columns, 1, 0}, {{fine.dims.begin(), fine.dims.begin() + rows}, {}}};
  result.order.strides.resize(rows);
  std::int64_t count = 1;
  for (std::size_t i = rows; i-- > 0; count *= fine.dims[order[i]]) {
    if (i + 1 == rows) result.matrix.row_stride = fine.strides[order[i]];
    if (fine.strides[order[i]] != count * result.matrix.row_stride) return std::nullopt;
    result.order.strides[order[i]] = count;
  }
  return result.matrix.row_stride >= columns ? std::optional(std::move(result)) : std::nullopt;
}

FineStrides Matrices::results_of(const MatrixRows& rows, std::int64_t n, std::int64_t columns) {
  FineStrides result = rows.order;
  for (std::int64_t& stride : result.strides) stride *= columns;
  result.dims.push_back(n);
  result.strides.push_back(1);
  return result;
}

/// The same with rows of zeros behind the others: so many columns of results.
MatrixWeights Matrices::padded(const MatrixWeights& weights, std::int64_t columns) {
  MatrixWeights result = weights;
  result.key += fmt::format("|{} columns", columns);
  result.values = [values = weights.values, columns] {
    const Tensor own = values();
    return zero_padded(own, {columns, own.shape().back()});
  };
  return result;
}

/// The constant operand b, [batch, n, k] in float32, and what names it.
MatrixWeights Matrices::float_weights(const Operand& b, const MatrixShape& matrices) const {
  return {constants_.key(b) + "|k innermost", k_innermost(constants_.source(b), matrices), {}};
}

MatrixWeights Matrices::float_weights(const ProductKernel& kernel, const MatrixShape& matrices) const {
  return {constants_.weights_key(kernel) + "|k innermost", k_innermost(constants_.weights(kernel), matrices), {}};
}

std::optional<StoredMatrix> Matrices::stored_matrix(const Operand& b, const MatrixShape& matrices,
                                                    DataType type) const {
  if (b.is_encoded()) return std::nullopt;
  const Tensor& value = spec_.value(b.tensor);
  const auto [first, last] = constants_.roundings(b);
  const bool as_type = last == Rounding::kNone || (last != Rounding::kTF32 && type_of(last) == type);
  if (value.type() != DataType::kFloat32 || value.size() != matrices.k * matrices.n || first != Rounding::kNone ||
      !as_type || (type != DataType::kFloat32 && type != DataType::kFloat16 && type != DataType::kBFloat16))
    return std::nullopt;
  if (matrices.transpose_b) return StoredMatrix{value, matrices.n, matrices.k, false};
  return StoredMatrix{value, matrices.k, matrices.n, true};
}

MatrixWeights Matrices::integer_weights(const ProductKernel& kernel, const MatrixShape& matrices) const {
  MatrixWeights weights = element_weights(kernel, matrices);
  weights.scale = constants_.product_scales(kernel.operands[0], weights.scale,
                                            constants_.element_weights_key(kernel.layer, kernel.operands[1]));
  return weights;
}

MatrixWeights Matrices::element_weights(const ProductKernel& kernel, const MatrixShape& matrices) const {
  const Operand& b = kernel.operands[1];
  const std::string key = constants_.element_weights_key(kernel.layer, b);
  const auto weights = constants_.element_weights(layer(kernel.layer), b,
                                                  constants_.get({b.tensor, Rounding::kNone, b.first}), key, false);
  return {key + "|k innermost", k_innermost([weights] { return weights->elements.in_memory(); }, matrices),
          weights->scales};
}

}  // namespace ulpscope::cuda
