// Matrix products and convolutions.
#include <fmt/format.h>

#include <utility>

#include "backend/cpu/choices.h"
#include "backend/cpu/integer_product.h"
#include "backend/cpu/layer_kernels.h"
#include "backend/cpu/lowering.h"
#include "backend/cpu/product.h"
#include "backend/product_form.h"
#include "backend/reference_kernel.h"
#include "core/parallel.h"
#include "engine/constant_inputs.h"
#include "graph/deferred_fold.h"
#include "ops/forms.h"
#include "ops/window.h"
#include "ulpscope/error.h"

namespace ulpscope::cpu {

namespace {

PreparedSource prepared_anew(const std::string&, std::function<PreparedObject()> make) {
  return [make = std::move(make)] { return make().object; };
}

}  // namespace

void Lowering::lower(const ProductKernel& kernel) {
  const bool empty = num_elements(kernel.epilogue.domain) == 0;
  if (kernel.accumulator && !empty) return lower_accumulated(kernel);
  if (empty || !(lower_matrices(kernel) || lower_convolution(kernel))) lower_reference_product(kernel);
}

/// The first factor; turned where oneDNN would split the sums of a transposed one over threads.
int Lowering::read_first(const ProductKernel& kernel, IntegerForm form, MatMulSpec& spec) {
  const Operand& a = kernel.operands[0];
  const int read_as_it_lies =
      kernel.elements ? read_elements(a, Layout::kDense, form, kernel.layer) : read(a, Layout::kDense, kernel.layer);
  constexpr std::int64_t kLong = 2048;  // oneDNN splits sums from here on.
  if (!spec.transpose_a || (spec.m > 1 && spec.k < kLong)) return read_as_it_lies;
  spec.transpose_a = false;
  if (spec.m == 1) return read_as_it_lies;
  const int transposed = new_float_slot(shape(a.tensor));
  add_step(make_reorder_kernel({1, spec.k, spec.m}, Layout::kChannelsLast, Rounding::kNone), {read_as_it_lies},
           {transposed}, kernel.layer);
  return transposed;
}

/// The second factor: one more input, or a constant of the product. Of elements also what their sums are scaled by.
void Lowering::read_second(const ProductKernel& kernel, bool bytes, MatMulSpec& spec, Results& results,
                           std::vector<int>& inputs) {
  const Operand &a = kernel.operands[0], &b = kernel.operands[1];
  if (!spec_.is_constant(b.tensor)) {
    inputs.push_back(kernel.elements ? read_elements(b, Layout::kDense, IntegerForm::kFloats, kernel.layer)
                                     : read(b, Layout::kDense, kernel.layer));
    if (kernel.elements && a.encoding->granularity != Granularity::kBlock)
      results.scaling.scale = Tensor::of<float>({1}, {a.outer_scale() * b.outer_scale()});
  } else if (kernel.elements) {
    const std::string key = constants_.element_weights_key(kernel.layer, b);
    const auto weights =
        constants_.element_weights(layer(kernel.layer), b, constant({b.tensor, Rounding::kNone, b.first}), key, false);
    spec.constant_b = [weights] { return weights->elements.in_memory(); };
    spec.key_b = key + "|elements";
    set_scales(kernel, *weights, spec.key_b, results.scaling);
    if (!bytes) return;
    spec.type_a = a.quantization().is_unsigned() ? DataType::kUInt8 : DataType::kInt8;
    spec.type_b = DataType::kInt8;
    spec.constant_b = [weights] { return weights->elements.cast(DataType::kInt8); };
    spec.key_b += "|bytes";
  } else {
    spec.constant_b = constants_.weights(kernel);
    spec.key_b = constants_.weights_key(kernel);
  }
}

/// What sums of elements are multiplied by: of float elements, the scales per channel before that of the activation.
void Lowering::set_scales(const ProductKernel& kernel, const PreparedConstants::ElementWeights& weights,
                          const std::string& key, Scaling& scaling) {
  const Operand& x = kernel.operands[0];
  if (x.encoding->granularity == Granularity::kBlock) return;
  const bool apart = !kernel.sums_bytes() && weights.scales.size() > 1;
  scaling.scale = apart ? weights.scales : constants_.product_scales(x, weights.scales, key);
  if (apart) scaling.second = x.scale;
}

/// Lets the first addition of a constant vector along n ride on the product: `c`, else that of the epilogue. True: `c`
/// is added with that.
bool Lowering::fold_bias(const ProductKernel& kernel, const ops::MatrixForm& form, const Operand& c, MatMulSpec& spec,
                         Results& results) {
  const auto as_bias = [&](const Operand& candidate, Tensor& bias) {
    if (candidate.tensor == kNone || !spec_.is_constant(candidate.tensor)) return false;
    const Tensor& value = spec_.value(candidate.tensor);
    if (value.size() != spec.n || value.shape().empty() || value.shape().back() != spec.n ||
        value.type() != DataType::kFloat32)
      return false;
    bias = constant(candidate).reshaped({spec.n});
    return true;
  };
  if (form.alpha != 1.0f) return false;
  if (c.tensor != kNone) return form.beta == 1.0f && as_bias(c, kernel.elements ? results.scaling.bias : spec.bias);
  Register user = -1;
  const Program::Value* next = kernel.elements ? nullptr : only_use(kernel.epilogue, results.done, &user);
  const Load* load = next == nullptr ? nullptr : addend(kernel.epilogue, *next, results.done);
  if (load != nullptr && as_bias(load->operand, spec.bias)) results.done = user;
  return false;
}

/// Products of integers held as floats: as many along k as keep every partial sum exact.
std::vector<std::unique_ptr<Kernel>> Lowering::exact_products(const ProductKernel& kernel, MatMulSpec spec) {
  const Operand &a = kernel.operands[0], &b = kernel.operands[1];
  std::optional<Quantization> computed_b;
  if (!spec_.is_constant(b.tensor)) computed_b = b.quantization();
  const std::vector<std::int64_t> cuts = exact_slices(spec, a.quantization(), computed_b);
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    if (cuts.size() > 2) {
      spec.k_begin = cuts[i];
      spec.k_end = cuts[i + 1];
    }
    kernels.push_back(make_matmul_kernel(spec, object_cache()));
  }
  return kernels;
}

/// MatMul and Gemm: one product of oneDNN, on which the first addition of a vector along its columns rides; all else of
/// the epilogue is a program behind it. Integers are bytes where there are loops that multiply these, else floats that
/// hold them (exact_products).
bool Lowering::lower_matrices(const ProductKernel& kernel) {
  const auto form = ops::matrix_form(layer(kernel.layer));
  if (!form) return false;
  const Operand &a = kernel.operands[0], &b = kernel.operands[1], c = addend_of(kernel, *form);
  const auto matrices = matrix_shape(*form, shape(a.tensor), shape(b.tensor), kernel.epilogue.domain);
  if (!matrices || matrices->k == 0) return false;
  MatMulSpec spec{*matrices};
  Results results;
  results.scaling.last = true;
  // By instructions for integers, where there are some: the sums are the same.
  const bool bytes = kernel.sums_bytes() && !spec.transpose_a && !spec_.is_constant(a.tensor) &&
                     spec_.is_constant(b.tensor) && (multiplies_bytes(spec.k) || multiplies_integers(spec.k));
  std::vector<int> inputs{read_first(kernel, bytes ? IntegerForm::kBytes : IntegerForm::kFloats, spec)};
  read_second(kernel, bytes, spec, results, inputs);
  const bool c_rides = fold_bias(kernel, *form, c, spec, results);
  if (kernel.sums_bytes() && !bytes) {
    results.slot = add_integer_parts(exact_products(kernel, spec), inputs, kernel.epilogue.domain, kernel.layer);
  } else {
    results.slot = new_float_slot(kernel.epilogue.domain);
    const bool as_stored = spec.constant_b && !kernel.elements && !b.is_encoded();
    add_step(as_stored ? weighted_product(spec, b) : make_matmul_kernel(spec, object_cache()), std::move(inputs),
             {results.slot}, kernel.layer);
  }
  if (const bool c_left = c.tensor != kNone && !c_rides; c_left || form->alpha != 1.0f)
    add_addend(kernel, *form, c_left ? c : Operand{}, results);
  lower_epilogue(kernel, results);
  return true;
}

/// Weights that the file has in a narrow type stay in it; those that are transposed first are packed as they are.
std::unique_ptr<Kernel> Lowering::weighted_product(MatMulSpec spec, const Operand& weights) {
  Tensor value = spec_.value(weights.tensor);
  const auto roundings = constants_.roundings(weights);
  if (const Tensor matrix = transposed_matrix(value)) {
    value = matrix;
    spec.transpose_b = !spec.transpose_b;
    spec.constant_b = constants_.source(matrix, roundings);
    spec.key_b += "|of its transpose";
  }
  if (auto made = make_narrow_matmul_kernel(spec, value, roundings.first, roundings.second)) return made;
  return make_matmul_kernel(spec, is_stored_narrow(value) ? ObjectCache(prepared_anew) : object_cache());
}

/// alpha times the results plus beta times c, in place.
void Lowering::add_addend(const ProductKernel& kernel, const ops::MatrixForm& form, const Operand& c,
                          Results& results) {
  const Shape& domain = kernel.epilogue.domain;
  ProgramBuilder program(domain);
  std::vector<int> inputs{results.slot};
  Register value = program.input({domain[1], 1}, Rounding::kNone);
  if (results.scaling.scale) value = compile_scaling(program, domain, Layout::kDense, inputs, value, results.scaling);
  if (form.alpha != 1.0f) value = program.apply(Instruction::kMul, value, program.constant(form.alpha));
  if (c.tensor != kNone) {
    ProgramKernel host;
    host.layers = {kernel.layer};
    host.domain = domain;
    Register addend = compile_load(host, {Load::Source::kTensor, c}, {Layout::kDense}, program, inputs);
    if (form.beta != 1.0f) addend = program.apply(Instruction::kMul, addend, program.constant(form.beta));
    value = program.apply(Instruction::kAdd, value, addend);
  }
  program.output(value, Rounding::kNone);
  if (!add_program(program, std::move(inputs), {results.slot}, kernel.layer))
    throw InternalError("an addend could not be expressed");
  results.scaling = {};
}

/// Convolutions over one to three dimensions with constant parameters, channels last. False: those that there is no
/// fast kernel for, and all others, run in reference kernels.
bool Lowering::lower_convolution(const ProductKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const ProgramKernel& epilogue = kernel.epilogue;
  const Shape& input = shape(l.inputs[0]);
  if (!ops::is_convolution(l) || input.size() < 3 || input.size() > 5 || num_elements(input) == 0 ||
      !has_constant_parameters(spec_, l))
    return false;
  const bool transposed = ops::is_transposed_convolution(l);
  const ops::WindowGeometry g = transposed ? ops::conv_transpose_geometry(l, input, shape(l.inputs[1]))
                                           : ops::conv_geometry(l, input, shape(l.inputs[1]));
  ConvolutionSpec spec{.input = input,
                       .output = epilogue.domain,
                       .strides = g.strides,
                       .dilations = g.dilations,
                       .pads_begin = g.pads_begin,
                       .pads_end = g.pads_end,
                       .groups = g.groups,
                       .transposed = transposed};
  const Rounding rounding = kernel.operands[1].rounding;
  spec.kernel = shape(l.inputs[1]);
  spec.weights = constants_.convolution_weights(kernel, rounding, spec.key);
  if (input.size() == 5) return !kernel.elements && lower_deep_convolution(kernel, std::move(spec));
  if (kernel.elements) return lower_element_convolution(kernel, std::move(spec));
  if (lower_dequantized_convolution(kernel, spec)) return true;
  Results results;
  results.layout = Layout::kChannelsLast;
  (transposed ? results.scaling.bias : spec.bias) = constants_.convolution_bias(kernel, rounding, spec.key);
  std::vector<const Operand*> addends;
  // Residual additions and HardSwish ride on the convolution while nothing between them is stored, and at last Relu or
  // Clip where the kernel has them. Nothing rides on a transposed one: oneDNN applies it element by element there.
  Register user = -1, unbounded = -1;
  while (!transposed) {
    const Program::Value* next = only_use(epilogue, results.done, &user);
    if (next == nullptr) break;
    if (next->instruction == Instruction::kHardSwish) {
      spec.post_ops.push_back({PostOp::Kind::kHardSwish});
    } else if (next->instruction == Instruction::kRelu || next->instruction == Instruction::kClip) {
      const bool is_relu = next->instruction == Instruction::kRelu;
      spec.post_ops.push_back({is_relu ? PostOp::Kind::kRelu : PostOp::Kind::kClip, next->p, next->q});
      unbounded = std::exchange(results.done, user);
      break;
    } else {
      const Load* load = computed_addend(spec_, epilogue, *next, results.done);
      if (load == nullptr) break;
      spec.post_ops.push_back({PostOp::Kind::kAddTensor});
      addends.push_back(&load->operand);
    }
    results.done = user;
  }
  // Weights that the file has in a narrow type are widened for every run, where that is little work beside the product.
  constexpr std::int64_t kMuchWork = 1024;  // Places of an output map.
  const bool anew = is_stored_narrow(spec_.value(l.inputs[1])) && !kernel.operands[1].is_encoded() &&
                    num_elements(epilogue.domain) / epilogue.domain[1] >= kMuchWork;
  const ObjectCache cache = anew ? ObjectCache(prepared_anew) : object_cache();
  std::unique_ptr<Kernel> step = make_convolution_kernel(spec, cache);
  if (step == nullptr && are_bounded(spec.post_ops)) {
    spec.post_ops.pop_back();
    results.done = unbounded;
    step = make_convolution_kernel(spec, cache);
  }
  if (step == nullptr) return false;
  std::vector<int> inputs{read(kernel.operands[0], Layout::kChannelsLast, kernel.layer)};
  for (const Operand* operand : addends) inputs.push_back(read(*operand, Layout::kChannelsLast, kernel.layer));
  results.slot = new_float_slot(epilogue.domain);
  add_step(std::move(step), std::move(inputs), {results.slot}, kernel.layer);
  lower_epilogue(kernel, results);
  return true;
}

/// Over three dimensions: what it reads and leaves is dense, as it is around reference kernels.
bool Lowering::lower_deep_convolution(const ProductKernel& kernel, ConvolutionSpec spec) {
  if (!is_faster_as_patches(spec)) return false;
  Results results;
  (spec.transposed ? results.scaling.bias : spec.bias) =
      constants_.convolution_bias(kernel, kernel.operands[1].rounding, spec.key);
  std::unique_ptr<Kernel> step = make_patch_convolution_kernel(spec, object_cache());
  if (step == nullptr) return false;
  const int image = new_float_slot(spec.input);
  const int sums = new_float_slot(spec.output);
  results.slot = new_float_slot(spec.output);
  add_step(make_reorder_kernel(spec.input, Layout::kChannelsLast, Rounding::kNone),
           {read(kernel.operands[0], Layout::kDense, kernel.layer)}, {image}, kernel.layer);
  add_step(std::move(step), {image}, {sums}, kernel.layer);
  add_step(make_reorder_kernel(spec.output, Layout::kDense, Rounding::kNone), {sums}, {results.slot}, kernel.layer);
  lower_epilogue(kernel, results);
  return true;
}

/// By instructions for bytes, or where the processor has none by those for pairs of 16 bits, where these are faster
/// than floats. Nothing where sums could overflow.
SumsMaker Lowering::byte_convolution(ConvolutionSpec spec, const Quantization& x, const Tensor& integers,
                                     const std::string& key) {
  const std::int64_t products = num_elements(spec.kernel) / spec.kernel[0];
  if (spec.transposed) return {};
  if (is_depthwise(spec)) {
    if (!is_faster_on_bytes(spec) || !multiplies_centered_integers(products)) return {};
    spec.weights = [integers] { return integers.cast(DataType::kInt16); };
    return [spec, is_signed = !x.is_unsigned()](const Requantization& form) {
      return make_depthwise_bytes_kernel(spec, form, is_signed);
    };
  }
  const bool own = multiplies_bytes_with_zeros(products), bytes = multiplies_bytes(products) && own;
  const bool pairs = spec.groups == 1 && multiplies_integers(products) && is_faster_in_pairs(spec);
  if (!bytes && !pairs) return {};
  spec.type = x.is_unsigned() ? DataType::kUInt8 : DataType::kInt8;
  spec.weights = [integers] { return integers.cast(DataType::kInt8); };
  spec.key = key + "|bytes";
  return [spec, own, bytes, cache = object_cache()](const Requantization& form) -> std::unique_ptr<Kernel> {
    if (bytes && form.type == DataType::kFloat32) {
      if (auto made = make_convolution_kernel(spec, cache)) return made;
    } else if (bytes && (spec.groups != 1 || (multiplies_in_tiles() && is_faster_in_tiles(spec)))) {
      return nullptr;
    }
    return own ? make_byte_convolution_kernel(spec, cache, form) : make_integer_convolution_kernel(spec, cache, form);
  };
}

/// Scales and elements depend on how the layer uses its weights, too.
std::string Lowering::element_key(const ProductKernel& kernel, const std::string& weights) const {
  return fmt::format("{}{}|{}", weights_.scope(), kernel.layer.number(), weights);
}

bool Lowering::lower_element_convolution(const ProductKernel& kernel, ConvolutionSpec spec) {
  const Layer& l = layer(kernel.layer);
  const Operand& x = kernel.operands[0];
  const std::string key = element_key(kernel, spec.key);
  const auto weights = constants_.element_weights(l, kernel.operands[1], weights_.get(spec.key, spec.weights), key,
                                                  kernel.normalization != kNone);
  Results results;
  results.layout = Layout::kChannelsLast;
  const Shape& domain = kernel.epilogue.domain;
  if (SumsMaker make =
          kernel.sums_bytes() ? byte_convolution(spec, x.quantization(), weights->elements, key) : SumsMaker()) {
    const int input = read_elements(x, Layout::kChannelsLast, IntegerForm::kBytes, kernel.layer);
    results.slot = add_sums(std::move(make), {input}, domain, kernel.layer);
  } else {
    const std::vector<Tensor> parts = kernel.sums_bytes() ? exact_parts(l, weights->elements, x.quantization(), key)
                                                          : std::vector<Tensor>{weights->elements};
    std::vector<std::unique_ptr<Kernel>> kernels;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      spec.weights = [part = parts[i]] { return part.in_memory(); };
      spec.key = fmt::format("{}|elements {} of {}", key, i, parts.size());
      kernels.push_back(make_convolution_kernel(spec, object_cache()));
      if (kernels.back() == nullptr) return false;
    }
    const int input = read_elements(x, Layout::kChannelsLast, IntegerForm::kFloats, kernel.layer);
    results.slot = add_integer_parts(std::move(kernels), {input}, domain, kernel.layer);
  }
  set_scales(kernel, *weights, key, results.scaling);
  results.scaling.bias = constants_.convolution_bias(kernel, Rounding::kNone, spec.key);
  lower_epilogue(kernel, results);
  return true;
}

void Lowering::lower_reference_product(const ProductKernel& kernel) {
  Layer l = layer(kernel.layer);
  std::vector<int> inputs;
  for (const Operand& operand : kernel.operands)
    inputs.push_back(operand.tensor == kNone ? -1 : read_operand(kernel.layer, operand, Layout::kDense));
  if (kernel.normalization != kNone) {
    l.inputs.resize(3, kNone);
    inputs.resize(3, -1);
    auto [weights, bias] = constants_.normalized_parameters(kernel);
    inputs[1] = constant_slot(std::move(weights));
    inputs[2] = constant_slot(std::move(bias));
  }
  Results results;
  results.slot = new_float_slot(kernel.epilogue.domain);
  auto reference = make_reference_kernel(std::move(l), spec_.type(kernel.result), true, kernel.accumulator);
  add_step(make_nbits_kernel(layer(kernel.layer), std::move(reference), Rounding::kNone), std::move(inputs),
           {results.slot}, kernel.layer);
  lower_epilogue(kernel, results);
}

}  // namespace ulpscope::cpu
