// Products of matrices: cuBLASLt with bias, residual and relu where these are all there is, else into float32 and a
// program for the rest; the CPU for forms that cuBLASLt does not take.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "backend/cuda/lowering.h"
#include "backend/reference_kernel.h"
#include "ops/movement.h"
#include "ulpscope/error.h"

namespace ulpscope::cuda {
namespace {

/// The type that a product of floats reads its operands in.
DataType operand_type(const ProductKernel& kernel) { return type_of(kernel.operands[0].rounding); }

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

}  // namespace

void Lowering::lower(const ProductKernel& kernel) {
  current_ = kernel.layer;
  if (lowered_.contains(&kernel)) return;
  if (num_elements(kernel.epilogue.domain) == 0) return define_empty(kernel.epilogue.outputs);
  if (const auto attention = attentions_.find(&kernel); attention != attentions_.end()) {
    if (lower_attention(attention->second)) return;
    lower_parts(attention->second);
    current_ = kernel.layer;
  }
  const auto form = ops::matrix_form(layer(kernel.layer));
  if (kernel.elements && form) {
    if (lower_integers(kernel, *form)) return;
  } else if (lower_with_others(kernel) || lower_matrices(kernel) || lower_patches(kernel) ||
             lower_transposed_patches(kernel) || lower_convolution(kernel)) {
    return;
  }
  lower_host_product(kernel);
}

namespace {

/// Rows or columns are contiguous.
bool is_matrix(std::int64_t rows, std::int64_t columns, std::int64_t row_stride, std::int64_t column_stride) {
  const bool by_rows = (column_stride == 1 || columns == 1) && (row_stride >= columns || rows == 1);
  const bool by_columns = (row_stride == 1 || rows == 1) && (column_stride >= rows || columns == 1);
  return by_rows || by_columns;
}

}  // namespace

/// `dims`: what MatMul reads (at least two dimensions), or the rows of several batches as one.
View Lowering::read_matrix(const Operand& operand, DataType type, const Shape& dims, MatrixOperand& matrix,
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
  View view = read_as(operand, type);
  if (!matrix_of(view)) {
    view = read_as(operand, type, ops::strides_of(own));
    if (!matrix_of(view)) throw InternalError("a dense tensor is no matrix");
  }
  return view;
}

std::optional<Lowering::Rows> Lowering::read_rows(const Operand& operand, DataType type) {
  if (operand.is_encoded() || spec_.is_constant(operand.tensor)) return std::nullopt;
  auto [view, dims] = fine_view(operand);
  const Shape& own = shape(operand.tensor);
  const auto fine = refined({dims, view.strides}, own);
  if (!fine || view.type != type || !is_exact(view.type, operand.rounding)) return std::nullopt;
  return rows_of(std::move(view), *fine, own.back());
}

std::optional<Lowering::Rows> Lowering::rows_of(View view, const FineStrides& fine, std::int64_t columns) {
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
  Rows result{std::move(view), {columns, 1, 0}, {{fine.dims.begin(), fine.dims.begin() + rows}, {}}};
  result.order.strides.resize(rows);
  std::int64_t count = 1;
  for (std::size_t i = rows; i-- > 0; count *= fine.dims[order[i]]) {
    if (i + 1 == rows) result.matrix.row_stride = fine.strides[order[i]];
    if (fine.strides[order[i]] != count * result.matrix.row_stride) return std::nullopt;
    result.order.strides[order[i]] = count;
  }
  return result.matrix.row_stride >= columns ? std::optional(std::move(result)) : std::nullopt;
}

FineStrides Lowering::results_of(const Rows& rows, std::int64_t n, std::int64_t columns) {
  FineStrides result = rows.order;
  for (std::int64_t& stride : result.strides) stride *= columns;
  result.dims.push_back(n);
  result.strides.push_back(1);
  return result;
}

/// The same with rows of zeros behind the others: so many columns of results.
Lowering::Weights Lowering::padded(const Weights& weights, std::int64_t columns) {
  Weights result = weights;
  result.key += fmt::format("|{} columns", columns);
  result.values = [values = weights.values, columns] {
    const Tensor own = values();
    return zero_padded(own, {columns, own.shape().back()});
  };
  return result;
}

/// Rows of `a` where they lie, also with gaps between them, and results likewise, if all that is left to do can follow
/// these strides; else no rows, and results without gaps.
Lowering::ResultLayout Lowering::layout_of_results(const ProductKernel& kernel, const ops::MatrixForm& form,
                                                   const MatrixShape& matrices, const MatrixProductSpec& spec) {
  const bool constant = spec_.is_constant(kernel.operands[1].tensor);
  const Shape& domain = kernel.epilogue.domain;
  ResultLayout dense{{}, {domain, ops::strides_of(domain)}, spec.n};
  if (!matrices.batch_a.empty() || matrices.transpose_a) return dense;
  auto rows = read_rows(kernel.operands[0], spec.operands);
  if (!rows) return dense;
  const std::int64_t columns = spec.m > 1 && constant ? padded_columns(spec.n) : spec.n;
  FineStrides order = results_of(*rows, spec.n, columns);
  if (const auto plain = reshaped_strides(order.dims, order.strides, domain))
    return {std::move(rows), {domain, *plain}, columns};
  // Results without strides over the domain have to be all that is left to do.
  const Fold fold = fold_of(kernel, spec.n, spec.operands, addend_of(kernel, form), {});
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
View Lowering::read_second(const ProductKernel& kernel, const MatrixShape& matrices, std::int64_t columns,
                           MatrixProductSpec& spec) {
  const Operand& b = kernel.operands[1];
  const DataType type = spec.operands;
  const std::int64_t batch = num_elements(matrices.batch_b);
  spec.b = {1, spec.k, 0};
  if (const auto adjacent = adjacent_columns(kernel); !adjacent.empty()) return column_weights(kernel, adjacent, type);
  if (spec_.is_constant(b.tensor)) {
    Weights weights = float_weights(b, matrices);
    if (columns != spec.n) weights = padded(weights, columns);
    spec.n = columns;
    const auto stored = columns == matrices.n ? stored_matrix(b, matrices, type) : std::nullopt;
    if (batch > 1) spec.b.batch_stride = spec.k * spec.n;
    return constant_memory(weights.key, type, weights.values,
                           stored ? std::span(&*stored, 1) : std::span<const StoredMatrix>());
  }
  const Shape dims = matrices.transpose_b ? Shape{spec.n, spec.k}
                     : batch > 1          ? Shape{spec.batch, spec.k, spec.n}
                                          : Shape{spec.k, spec.n};
  const View view = read_matrix(b, type, dims, spec.b, batch);
  if (matrices.transpose_b) std::swap(spec.b.row_stride, spec.b.column_stride);
  return view;
}

/// MatMul and Gemm by cuBLASLt. What the epilogue has beyond cuBLASLt's own is a program behind it, which may become
/// one kernel with the product (add_with_program).
bool Lowering::lower_matrices(const ProductKernel& kernel) {
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
  const View a_view = rows ? rows->view : read_matrix(a, type, a_shape, spec.a, batch_a);
  if (rows) spec.a = rows->matrix;
  if (matrices->transpose_a) std::swap(spec.a.row_stride, spec.a.column_stride);
  const View b_view = read_second(kernel, *matrices, columns, spec);
  spec.alignment = std::min(alignment_of(a_view), alignment_of(b_view));
  spec.d = {spec.n, 1, batch > 1 ? spec.m * spec.n : 0};
  Results results;
  results.channel = domain.size() - 1;
  results.alpha = form->alpha;
  results.beta = form->beta;
  results.addend = addend_of(kernel, *form);
  ProductStep step;
  step.a = pointer(a_view);
  step.b = pointer(b_view);
  fold_epilogue(kernel, spec, step, results, order);
  if (!target_.has_product(spec)) return false;
  step.spec = spec;
  if (results.view.buffer < 0) results.view = new_view(spec.result, domain, order.strides);
  made_.buffers[results.view.buffer].bytes += static_cast<std::size_t>(columns - matrices->n) * size_of(spec.result);
  step.d = pointer(results.view);
  if (auto program = epilogue_program(kernel, results))
    add_with_program(std::move(step), std::move(*program), order);
  else
    add(std::move(step));
  return true;
}

void Lowering::add_with_program(ProductStep product, ProgramAssembly program, const FineStrides& order) {
  ProductProgramStep both;
  both.spec = {product.spec, program.spec(), {}};
  // What a step along a dimension adds to the row of results, and so of `a`.
  for (std::size_t d = 0; d + 1 < order.strides.size(); ++d)
    both.spec.row_strides.push_back(order.strides[d] / product.spec.n);
  if (!target_.has_fused_products() || !has_fused_source(both.spec)) {
    add(std::move(product));
    add(std::move(program).finish());
    return;
  }
  both.product = std::move(product);
  both.program = std::move(program).finish();
  both.computes = fmt::format("{}, then {}", both.product.spec.text(), both.program.source->hash);
  add(std::move(both));
}

/// The constant operand b, [batch, n, k] in float32, and what names it.
Lowering::Weights Lowering::float_weights(const Operand& b, const MatrixShape& matrices) const {
  return {constant_key(b) + "|k innermost", k_innermost(constants_.source(b), matrices), {}};
}

std::optional<StoredMatrix> Lowering::stored_matrix(const Operand& b, const MatrixShape& matrices,
                                                    DataType type) const {
  const Tensor& value = spec_.value(b.tensor);
  const auto [first, last] = constants_.roundings(b);
  const bool as_type = last == Rounding::kNone || (last != Rounding::kTF32 && type_of(last) == type);
  if (value.type() != DataType::kFloat32 || value.size() != matrices.k * matrices.n || first != Rounding::kNone ||
      !as_type || (type != DataType::kFloat32 && type != DataType::kFloat16 && type != DataType::kBFloat16))
    return std::nullopt;
  if (matrices.transpose_b) return StoredMatrix{value, matrices.n, matrices.k, false};
  return StoredMatrix{value, matrices.k, matrices.n, true};
}

Lowering::Weights Lowering::integer_weights(const ProductKernel& kernel, const MatrixShape& matrices) const {
  const Operand& b = kernel.operands[1];
  const std::string key = constants_.integer_weights_key(kernel.layer, b.tensor);
  const auto weights =
      constants_.integer_weights(layer(kernel.layer), constants_.get({b.tensor, Rounding::kNone, b.first}), key, false);
  return {key + "|k innermost", k_innermost([weights] { return weights->integers; }, matrices),
          constants_.product_scales(kernel.operands[0].quantization(), weights->scales, key)};
}

/// How far bias, residual and relu, in this order, are the beginning of the epilogue.
Lowering::Fold Lowering::fold_of(const ProductKernel& kernel, std::int64_t n, DataType type,
                                 const Operand& addend_of_form, const std::vector<std::int64_t>& order) {
  const ProgramKernel& epilogue = kernel.epilogue;
  Fold fold;
  const auto as_bias = [&](const Operand& candidate) {
    if (candidate.tensor == kNone || !spec_.is_constant(candidate.tensor) || candidate.is_encoded()) return false;
    const Tensor& value = spec_.value(candidate.tensor);
    return value.size() == n && n > 1 && value.shape().back() == n && value.type() == DataType::kFloat32 &&
           type_of(candidate.rounding) == type;
  };
  if (addend_of_form.tensor != kNone) {
    if (!as_bias(addend_of_form)) return fold;
    fold.bias = addend_of_form;
  }
  Register user = -1;
  while (const Program::Value* next = fold.relu ? nullptr : only_use(epilogue, fold.done, &user)) {
    const Load* load = addend(epilogue, *next, fold.done);
    if (next->instruction == Instruction::kRelu) {
      fold.relu = true;
    } else if (load != nullptr && !load->per_channel && fold.bias.tensor == kNone && fold.residual.tensor == kNone &&
               as_bias(load->operand)) {
      fold.bias = load->operand;
    } else if (load != nullptr && !load->per_channel && fold.residual.tensor == kNone &&
               is_residual(load->operand, epilogue.domain, type, order)) {
      fold.residual = load->operand;
    } else {
      break;
    }
    fold.done = user;
  }
  if (epilogue.outputs.size() != 1) return fold;
  const auto& [source, store] = epilogue.outputs[0];
  fold.whole = source == fold.done && !store.exact && store.tensor != kNone && type_of(store.rounding) == type;
  return fold;
}

/// A tensor that lies as the results will, in their type.
bool Lowering::is_residual(const Operand& operand, const Shape& domain, DataType type,
                           const std::vector<std::int64_t>& order) {
  if (order.empty()) return false;
  if (spec_.is_constant(operand.tensor) || operand.is_encoded() || shape(operand.tensor) != domain) return false;
  const View view = device_view(operand);
  return view.type == type && is_exact(type, operand.rounding) && same_places(domain, view.strides, order);
}

/// Lets bias, residual and relu ride on the product when they, and one store, are all that is left to do.
void Lowering::fold_epilogue(const ProductKernel& kernel, MatrixProductSpec& spec, ProductStep& step, Results& results,
                             const FineStrides& order) {
  spec.result = DataType::kFloat32;
  if (results.alpha != 1.0f || results.beta != 1.0f) return;
  const std::int64_t n = kernel.epilogue.domain.back();
  // A residual has no elements beside the results that are wanted.
  const bool plain = order.dims == kernel.epilogue.domain && n == spec.n;
  const Fold fold =
      fold_of(kernel, n, spec.operands, results.addend, plain ? order.strides : std::vector<std::int64_t>{});
  if (!fold.whole) return;
  MatrixProductSpec folded = spec;
  folded.result = spec.operands;
  folded.bias = fold.bias.tensor != kNone;
  folded.residual = fold.residual.tensor != kNone;
  folded.relu = fold.relu;
  if (folded.residual) folded.alignment = std::min(folded.alignment, alignment_of(device_view(fold.residual)));
  if (!adds_bias_before_rounding(folded)) return;
  spec = folded;
  if (spec.bias && n == spec.n) step.bias = pointer(constant_view(fold.bias, spec.result));
  if (spec.bias && n != spec.n) {
    const Tensor wide = zero_padded(constants_.get(fold.bias), {spec.n});
    step.bias = pointer(constant_view(wide, content_key(wide), spec.result));
  }
  if (spec.residual) step.residual = pointer(device_view(fold.residual));
  results.addend = {};
  results.done = fold.done;
  results.view = new_view(spec.result, order.dims, order.strides);
  place(kernel.epilogue.outputs[0].store.tensor, results.view, order.dims);
}

Register Lowering::append_scaling(const Results& results, ProgramAssembly& assembly, Register value) {
  Program& program = assembly.program();
  const Shape& domain = assembly.domain();
  const auto operand = [&](const Tensor& tensor) {
    if (tensor.size() == 1) return program.constant(tensor.data<float>()[0]);
    std::vector<std::int64_t> strides(domain.size(), 0);
    strides[results.channel] = 1;
    return assembly.input(constant_view(tensor, content_key(tensor), DataType::kFloat32), strides, Rounding::kNone);
  };
  if (results.scale) value = program.apply(Instruction::kMul, value, operand(results.scale));
  if (results.bias) value = program.apply(Instruction::kAdd, value, operand(results.bias));
  if (results.alpha != 1.0f) value = program.apply(Instruction::kMul, value, program.constant(results.alpha));
  if (results.addend.tensor == kNone) return value;
  ProgramKernel host;
  host.layers = {current_};
  host.domain = domain;
  Register added = load(host, {Load::Source::kTensor, results.addend}, assembly);
  if (results.beta != 1.0f) added = program.apply(Instruction::kMul, added, program.constant(results.beta));
  return program.apply(Instruction::kAdd, value, added);
}

void Lowering::assemble_epilogue(const ProductKernel& kernel, const Results& results, Register raw,
                                 const std::vector<std::int64_t>& order, ProgramAssembly& assembly) {
  ProgramKernel rest = kernel.epilogue;
  if (rest.layers.empty()) rest.layers = {kernel.layer};
  std::vector<Register> registers(rest.program.values.size(), -1);
  registers[results.done] = append_scaling(results, assembly, raw);
  assemble(rest, assembly, registers);
  // A register that is a load itself is stored through a copy.
  for (const auto& output : rest.outputs)
    if (registers[output.source] == raw) registers[output.source] = assembly.program().apply(Instruction::kCopy, raw);
  store_outputs(rest, assembly, registers, order);
}

void Lowering::lower_epilogue(const ProductKernel& kernel, const Results& results) {
  if (auto program = epilogue_program(kernel, results)) add(std::move(*program).finish());
}

std::optional<ProgramAssembly> Lowering::epilogue_program(const ProductKernel& kernel, const Results& results) {
  const ProgramKernel& epilogue = kernel.epilogue;
  if (epilogue.outputs.empty()) return std::nullopt;
  if (epilogue.outputs.size() == 1 && epilogue.outputs[0].source == results.done) {
    const Store& store = epilogue.outputs[0].store;
    const Location& own = locations_[store.tensor];
    const int buffer = own.device ? own.device->buffer : own.fine ? own.fine->first.buffer : -1;
    if (buffer == results.view.buffer) return std::nullopt;  // Stored by the product itself.
    const bool plain = !results.scale && !results.bias && results.alpha == 1.0f && results.addend.tensor == kNone;
    if (plain && results.view.type == DataType::kFloat32 && alias(store, results.view)) return std::nullopt;
  }
  ProgramAssembly assembly(epilogue.domain, 0);
  const Register raw = assembly.input(results.view, results.view.strides, Rounding::kNone);
  assemble_epilogue(kernel, results, raw, results.view.strides, assembly);
  return assembly;
}

void Lowering::lower_host_product(const ProductKernel& kernel) {
  Layer l = layer(kernel.layer);
  std::vector<int> inputs;
  for (const Operand& operand : kernel.operands)
    inputs.push_back(operand.tensor == kNone ? -1
                     : operand.is_encoded()  ? host_integers(operand)
                                             : host_value(operand));
  if (kernel.normalization != kNone) {
    const Rounding rounding = kernel.operands[1].rounding;
    std::string key;
    l.inputs.resize(3, kNone);
    inputs.resize(3, -1);
    Tensor weights = constants_.convolution_weights(kernel, rounding, key)();
    if (kernel.elements)
      weights = constants_.weights_of_integers(
          l, weights, fmt::format("{}{}|{}", weights_.scope(), kernel.layer.number(), key), true);
    inputs[1] = host_constant(std::move(weights));
    inputs[2] = host_constant(constants_.convolution_bias(kernel, rounding, key));
  }
  host_layers_.insert(l.name);
  const int result = new_host(DataType::kFloat32, kernel.epilogue.domain);
  add(HostStep{make_reference_kernel(std::move(l), spec_.type(kernel.result), false), std::move(inputs), {result}});
  Results results;
  results.view = new_view(DataType::kFloat32, kernel.epilogue.domain, ops::strides_of(kernel.epilogue.domain));
  add(UploadStep{result, pointer(results.view)});
  lower_epilogue(kernel, results);
}

}  // namespace ulpscope::cuda
