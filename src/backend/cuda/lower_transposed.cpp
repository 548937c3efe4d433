// Transposed convolutions whose windows lie side by side, as upsampling has them: each position of the input, its
// channels as a row, times the weights of all elements of the window and all output channels.
#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/products.h"
#include "engine/constant_inputs.h"
#include "ops/movement.h"
#include "ops/window.h"

namespace ulpscope::cuda {
namespace {

/// Weights [c, k, r...] as [r..., k, c]: the columns of the product, c innermost, with zeros behind them.
Tensor window_outermost(const Tensor& weights, std::int64_t columns) {
  const std::int64_t c = weights.shape()[0], k = weights.shape()[1], window = weights.size() / (c * k);
  Tensor turned(DataType::kFloat32, {window, k, c});
  const std::vector<std::int64_t> order{2, 1, 0};
  ops::copy_permuted(weights, {c, k, window}, order, turned);
  return zero_padded(turned, {columns, c});
}

/// A bias for each of the columns.
Tensor repeated(const Tensor& bias, std::int64_t times, std::int64_t columns) {
  Tensor result = zero_padded({}, {columns});
  for (std::int64_t i = 0; i < times; ++i)
    std::copy_n(bias.data<float>(), bias.size(), result.data<float>() + i * bias.size());
  return result;
}

bool lie_side_by_side(const ops::WindowGeometry& g) {
  for (std::size_t d = 0; d < g.rank(); ++d)
    if (g.strides[d] != g.kernel[d] || g.dilations[d] != 1 || g.pads_begin[d] != 0 ||
        g.output[d] != g.input[d] * g.kernel[d])
      return false;
  return true;
}

/// Where the product puts the elements of (n, k, o...): over n, k, and per spatial dimension positions of the input,
/// then elements of the window. `rows`: the row of each index over n and the spatial dimensions of the input.
FineStrides scattered(const FineStrides& rows, const ops::WindowGeometry& g, std::int64_t columns) {
  FineStrides result;
  std::size_t f = 0;
  const auto positions = [&](std::int64_t size) {
    for (std::int64_t product = 1; product < size; product *= rows.dims[f++]) {
      result.dims.push_back(rows.dims[f]);
      result.strides.push_back(rows.strides[f] * columns);
    }
  };
  const auto column = [&](std::int64_t size, std::int64_t stride) {
    result.dims.push_back(size);
    result.strides.push_back(stride);
  };
  positions(g.batch);
  column(g.out_channels, 1);
  std::int64_t stride = num_elements(g.kernel) * g.out_channels;
  for (std::size_t d = 0; d < g.rank(); ++d) {
    positions(g.input[d]);
    column(g.kernel[d], stride /= g.kernel[d]);
  }
  return result;
}

}  // namespace

std::optional<MatrixRows> Convolutions::read_positions(const Operand& operand, DataType type) {
  auto [view, dims] = memory_.fine_view(operand);
  if (view.type != type || !is_exact(type, operand.rounding)) return std::nullopt;
  const Shape& own = shape(operand.tensor);
  const auto fine = refined({dims, view.strides}, own);
  if (!fine) return std::nullopt;
  std::vector<std::int64_t> last{0};
  for (std::size_t d = 2; d < own.size(); ++d) last.push_back(static_cast<std::int64_t>(d));
  last.push_back(1);
  return Matrices::rows_of(std::move(view), permuted(*fine, own, last), own[1]);
}

/// Whether bias and Relu ride on the product, and are then all there is: sets what `spec` has of them.
bool Convolutions::fold_positions(const ProductKernel& kernel, bool biased, MatrixProductSpec& spec) const {
  const auto& outputs = kernel.epilogue.outputs;
  Register done = 0, user = -1;
  if (const Program::Value* next = only_use(kernel.epilogue, 0, &user); next && next->instruction == Instruction::kRelu)
    done = user;
  const bool one =
      outputs.size() == 1 && outputs[0].source == done && !outputs[0].store.exact && outputs[0].store.tensor != kNone;
  spec.result = one ? type_of(outputs[0].store.rounding) : DataType::kFloat32;
  spec.bias = biased;
  const bool bare = done == 0 && !biased;
  const bool whole = one && is_exact(spec.result, outputs[0].store.rounding) && adds_bias_before_rounding(spec) &&
                     (spec.result == spec.operands || (bare && spec.result == DataType::kFloat32));
  spec.bias &= whole;
  if (!whole) spec.result = DataType::kFloat32;
  spec.relu = whole && done != 0;
  return whole;
}

/// No result gets a second addend, so that there is nothing to add up: the product writes every result where it
/// belongs, without the zeros between elements that an ordinary convolution would have to read.
bool Convolutions::lower_transposed_patches(const ProductKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const ProgramKernel& epilogue = kernel.epilogue;
  if (!ops::is_transposed_convolution(l) || kernel.elements) return false;
  if (spec_.is_constant(l.inputs[0]) || !has_constant_parameters(spec_, l)) return false;
  const Operand& x = kernel.operands[0];
  const Shape& input = shape(x.tensor);
  const ops::WindowGeometry g = ops::conv_transpose_geometry(l, input, shape(l.inputs[1]));
  const std::int64_t window = num_elements(g.kernel);
  if (g.groups != 1 || window == 1 || g.in_channels == 0 || !lie_side_by_side(g)) return false;
  const std::int64_t wanted = window * g.out_channels, columns = padded_columns(wanted);
  MatrixProductSpec spec{.m = g.batch * num_elements(g.input), .n = columns, .k = g.in_channels};
  spec.operands = type_of(x.rounding);
  spec.tf32 = x.rounding == Rounding::kTF32;
  spec.b = {1, spec.k, 0};
  spec.d = {columns, 1, 0};
  const Filters filters = filters_of(kernel);
  ProductResults results;
  results.channel = 1;
  results.bias = filters.bias;
  auto rows = read_positions(x, spec.operands);
  spec.a = rows ? rows->matrix : MatrixOperand{spec.k, 1, 0};
  if (rows) spec.alignment = alignment_of(rows->view);
  const bool whole = fold_positions(kernel, static_cast<bool>(results.bias), spec);
  if (!target_.has_product(spec)) return false;
  if (!rows) {
    Shape positions{input[0]};
    positions.insert(positions.end(), input.begin() + 2, input.end());
    const auto order = refined({positions, ops::strides_of(positions)}, positions);
    rows = MatrixRows{memory_.read_as(x, spec.operands, channels_last_strides(input)), spec.a, *order};
  }
  ProductStep step;
  step.a = pointer(rows->view);
  step.b = pointer(
      steps_.constant_memory(fmt::format("{}|window outermost {}", filters.key, columns), spec.operands,
                             [weights = filters.weights, columns] { return window_outermost(weights(), columns); }));
  if (spec.bias)
    step.bias =
        pointer(memory_.constant_view(repeated(results.bias, window, columns),
                                      fmt::format("{}|bias {} of {}", filters.bias_key, window, columns), spec.result));
  const FineStrides fine = scattered(rows->order, g, columns);
  results.view = steps_.new_view(spec.result, fine.dims, fine.strides);
  steps_.extend(results.view, columns - wanted);
  step.d = pointer(results.view);
  step.spec = spec;
  steps_.add(std::move(step));
  const std::vector<std::int64_t> order = channels_last_strides(epilogue.domain);
  if (whole) {
    memory_.place(epilogue.outputs[0].store.tensor, results.view, fine.dims, order);
  } else if (!epilogue.outputs.empty()) {
    ProgramAssembly assembly(epilogue.domain, 0);
    const Register raw = assembly.input(results.view, order, Rounding::kNone);
    epilogues_.assemble(kernel, results, raw, order, assembly);
    assembly.refine(fine);
    steps_.add(std::move(assembly).finish());
  }
  return true;
}

}  // namespace ulpscope::cuda
