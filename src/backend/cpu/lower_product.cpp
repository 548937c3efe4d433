// Matrix products and convolutions.
#include <fmt/format.h>

#include <algorithm>

#include "backend/cpu/lowering.h"
#include "backend/cpu/reorder.h"
#include "backend/reference_kernel.h"
#include "core/parallel.h"
#include "engine/scale_shift.h"
#include "ops/forms.h"
#include "ops/window.h"

namespace ulpscope::cpu {
namespace {

struct ProductShape {
  MatMulSpec spec;
  bool ok = false;
};

/// MatMul of two shapes as one product of matrices, with batches only where they are needed.
ProductShape matmul_shape(Shape a, Shape b) {
  ProductShape result;
  if (a.size() < 2 || b.size() < 2) return result;
  MatMulSpec& spec = result.spec;
  spec.m = a[a.size() - 2];
  spec.k = a.back();
  spec.n = b.back();
  const bool b_is_matrix = std::all_of(b.begin(), b.end() - 2, [](std::int64_t d) { return d == 1; });
  if (b_is_matrix) {
    // The rows of all batches are rows of one matrix.
    for (std::size_t d = 0; d + 2 < a.size(); ++d) spec.m *= a[d];
    result.ok = true;
    return result;
  }
  const std::size_t rank = std::max(a.size(), b.size()) - 2;
  for (Shape* s : {&a, &b})
    while (s->size() < rank + 2) s->insert(s->begin(), 1);
  spec.batch_a.assign(a.begin(), a.end() - 2);
  spec.batch_b.assign(b.begin(), b.end() - 2);
  if (spec.batch_a == spec.batch_b) {
    const std::int64_t count = num_elements(spec.batch_a);
    spec.batch_a = spec.batch_b = {count};
  }
  result.ok = rank <= 4 || spec.batch_a.size() == 1;
  return result;
}

ProductShape gemm_shape(const ops::MatrixForm& form, const Shape& a, const Shape& output) {
  ProductShape result{{.m = output[0],
                       .n = output[1],
                       .k = form.transpose_a ? a[0] : a[1],
                       .transpose_a = form.transpose_a,
                       .transpose_b = form.transpose_b},
                      true};
  return result;
}

/// The instruction behind `value` that is its only use, when nothing stores `value`: it may ride on what computes it.
const Program::Value* only_use(const ProgramKernel& epilogue, Register value, Register* user) {
  for (const auto& output : epilogue.outputs)
    if (output.source == value) return nullptr;
  const Program::Value* found = nullptr;
  for (std::size_t r = 0; r < epilogue.program.values.size(); ++r) {
    const Program::Value& v = epilogue.program.values[r];
    if (v.kind != Program::Kind::kResult || (v.a != value && v.b != value)) continue;
    if (found != nullptr || v.a == v.b) return nullptr;
    found = &v;
    *user = static_cast<Register>(r);
  }
  return found;
}

/// The load that an Add adds to `value`; null: something else is added.
const Load* addend(const ProgramKernel& epilogue, const Program::Value& add, Register value) {
  if (add.instruction != Instruction::kAdd) return nullptr;
  const Program::Value& other = epilogue.program.values[add.a == value ? add.b : add.a];
  if (other.kind != Program::Kind::kLoad) return nullptr;
  const Load& load = epilogue.loads[other.load];
  return load.source == Load::Source::kTensor ? &load : nullptr;
}

}  // namespace

void Lowering::lower(const ProductKernel& kernel) {
  const bool empty = num_elements(kernel.epilogue.domain) == 0;
  if (empty || !(lower_matrices(kernel) || lower_convolution(kernel))) lower_reference_product(kernel);
}

bool Lowering::lower_matrices(const ProductKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const auto form = ops::matrix_form(l);
  if (!form) return false;
  const Operand &a = kernel.operands[0], &b = kernel.operands[1];
  const Operand c = kernel.operands.size() > 2 && form->beta != 0.0f ? kernel.operands[2] : Operand{};
  ProductShape product = form->plain ? matmul_shape(shape(a.tensor), shape(b.tensor))
                                     : gemm_shape(*form, shape(a.tensor), kernel.epilogue.domain);
  if (!product.ok || product.spec.k == 0) return false;
  MatMulSpec& spec = product.spec;
  Results results;
  results.scaling.last = true;
  std::vector<int> inputs{kernel.integers ? read_integers(a, Layout::kDense, false, kernel.layer)
                                          : read(a, Layout::kDense, kernel.layer)};
  constexpr std::int64_t kLong = 2048;  // oneDNN splits sums of a transposed `a` from here on over threads.
  if (spec.transpose_a && (spec.m == 1 || spec.k >= kLong)) {
    if (spec.m > 1) {
      const int transposed = new_float_slot(shape(a.tensor));
      add_step(make_reorder_kernel({1, spec.k, spec.m}, Layout::kChannelsLast, Rounding::kNone), {inputs[0]},
               {transposed}, kernel.layer);
      inputs[0] = transposed;
    }
    spec.transpose_a = false;
  }
  if (!spec_.is_constant(b.tensor)) {
    inputs.push_back(kernel.integers ? read_integers(b, Layout::kDense, false, kernel.layer)
                                     : read(b, Layout::kDense, kernel.layer));
    if (kernel.integers) results.scaling.scale = Tensor::of<float>({1}, {a.quantization.scale * b.quantization.scale});
  } else if (kernel.integers) {
    const std::string key = integer_weights_key(kernel.layer, b.tensor);
    const auto weights = integer_weights(l, constant({b.tensor, Rounding::kNone, b.first}), key, false);
    spec.constant_b = [weights] { return weights->integers; };
    spec.key_b = key + "|int8";
    results.scaling.scale = product_scales(a.quantization, weights->scales, spec.key_b);
  } else {
    spec.constant_b = constant_source(b);
    spec.key_b =
        fmt::format("{}|{}|{}", constant_key(b.tensor), static_cast<int>(b.first), static_cast<int>(b.rounding));
  }
  // The first addition of a constant vector along n rides on the product.
  const auto as_bias = [&](const Operand& candidate, Tensor& bias) {
    if (candidate.tensor == kNone || !spec_.is_constant(candidate.tensor)) return false;
    const Tensor& value = spec_.value(candidate.tensor);
    if (value.size() != spec.n || value.shape().empty() || value.shape().back() != spec.n ||
        value.type() != DataType::kFloat32)
      return false;
    bias = constant(candidate).reshaped({spec.n});
    return true;
  };
  const bool scaled_c = form->alpha != 1.0f || form->beta != 1.0f;
  const bool c_rides = !scaled_c && as_bias(c, kernel.integers ? results.scaling.bias : spec.bias);
  const bool c_left = c.tensor != kNone && !c_rides;
  if (!kernel.integers && c.tensor == kNone && form->alpha == 1.0f) {
    Register user = -1;
    if (const Program::Value* next = only_use(kernel.epilogue, results.done, &user))
      if (const Load* load = addend(kernel.epilogue, *next, results.done);
          load != nullptr && as_bias(load->operand, spec.bias))
        results.done = user;
  }
  if (kernel.integers) {
    std::optional<Quantization> computed_b;
    if (!spec_.is_constant(b.tensor)) computed_b = b.quantization;
    const std::vector<std::int64_t> cuts = exact_slices(spec, a.quantization, computed_b);
    std::vector<std::unique_ptr<Kernel>> kernels;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      if (cuts.size() > 2) {
        spec.k_begin = cuts[i];
        spec.k_end = cuts[i + 1];
      }
      kernels.push_back(make_matmul_kernel(spec, object_cache()));
    }
    results.slot = add_integer_parts(std::move(kernels), inputs, kernel.epilogue.domain, kernel.layer);
  } else {
    results.slot = new_float_slot(kernel.epilogue.domain);
    add_step(make_matmul_kernel(spec, object_cache()), std::move(inputs), {results.slot}, kernel.layer);
  }
  if (c_left || form->alpha != 1.0f) add_addend(kernel, *form, c_left ? c : Operand{}, results);
  lower_epilogue(kernel, results);
  return true;
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
  add_step(program.finish(), std::move(inputs), {results.slot}, kernel.layer);
  results.scaling = {};
}

std::string Lowering::scale_shift_key(const Layer& l) const {
  std::string key = fmt::format("{} {}", l.outputs[0].number(), l.attributes.real("epsilon", 0));
  for (std::size_t i = 1; i < 5; ++i) key += "," + constant_key(l.inputs[i]);
  return key;
}

Tensor Lowering::scale_or_shift(LayerId normalization, bool shift, Rounding rounding) {
  const Layer& l = layer(normalization);
  return weights_.get(
      fmt::format("{}|{}|rounded {}", shift ? "shift" : "scale", scale_shift_key(l), static_cast<int>(rounding)), [&] {
        const ScaleShift prepared =
            rounding == Rounding::kNone ? scale_shift(spec_, l, rounding) : rounded_scale_shift(spec_, l, rounding);
        return shift ? prepared.shift : prepared.scale;
      });
}

ConstantSource Lowering::convolution_weights(const ProductKernel& kernel, Rounding rounding, std::string& key) {
  const Layer& l = layer(kernel.layer);
  const Operand weights{kernel.operands[1].tensor, rounding, kernel.operands[1].first};
  key = fmt::format("conv|{}|{}|{}", constant_key(weights.tensor), static_cast<int>(weights.first),
                    static_cast<int>(rounding));
  if (kernel.normalization == kNone) return constant_source(weights);
  key += fmt::format("|bn {}", scale_shift_key(layer(kernel.normalization)));
  return [&spec = spec_, &l, scale = scale_or_shift(kernel.normalization, false, Rounding::kNone), rounding] {
    Tensor result = scaled_weights(spec, l, scale);
    round_parallel(result.data<float>(), result.data<float>(), result.size(), rounding);
    return result;
  };
}

Tensor Lowering::convolution_bias(const ProductKernel& kernel, Rounding rounding, std::string& key) {
  const Layer& l = layer(kernel.layer);
  const Operand own = kernel.operands.size() > 2 ? kernel.operands[2] : Operand{};
  if (kernel.normalization == kNone) {
    if (own.tensor == kNone) return {};
    key += fmt::format("|bias {}", constant_key(own.tensor));
    return constant({own.tensor, rounding, own.first});
  }
  const std::string bias_key = fmt::format("bias|{}|bn {}|{}", constant_key(own.tensor),
                                           scale_shift_key(layer(kernel.normalization)), static_cast<int>(rounding));
  return weights_.get(bias_key, [&] {
    Tensor result = scaled_bias(spec_, l,
                                {scale_or_shift(kernel.normalization, false, Rounding::kNone),
                                 scale_or_shift(kernel.normalization, true, Rounding::kNone)});
    round_parallel(result.data<float>(), result.data<float>(), result.size(), rounding);
    return result;
  });
}

bool Lowering::lower_convolution(const ProductKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const ProgramKernel& epilogue = kernel.epilogue;
  const Shape& input = shape(l.inputs[0]);
  if (!ops::is_convolution(l) || input.size() < 3 || input.size() > 4) return false;
  for (std::size_t i = 1; i < l.inputs.size(); ++i)
    if (l.inputs[i] != kNone && !spec_.is_constant(l.inputs[i])) return false;
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
  spec.weights = convolution_weights(kernel, rounding, spec.key);
  if (kernel.integers) return lower_integer_convolution(kernel, std::move(spec));
  Results results;
  results.layout = Layout::kChannelsLast;
  (transposed ? results.scaling.bias : spec.bias) = convolution_bias(kernel, rounding, spec.key);
  std::vector<const Operand*> addends;
  // Residual additions and HardSwish ride on the convolution while nothing between them is stored. Relu and Clip do
  // not: oneDNN's make a number of NaN. Nothing rides on a transposed one: oneDNN applies it element by element there.
  Register user = -1;
  while (!transposed) {
    const Program::Value* next = only_use(epilogue, results.done, &user);
    if (next == nullptr) break;
    if (next->instruction == Instruction::kHardSwish) {
      spec.post_ops.push_back({PostOp::Kind::kHardSwish});
    } else {
      const Load* load = addend(epilogue, *next, results.done);
      if (load == nullptr || load->per_channel || load->operand.integers || spec_.is_constant(load->operand.tensor) ||
          shape(load->operand.tensor) != epilogue.domain)
        break;
      spec.post_ops.push_back({PostOp::Kind::kAddTensor});
      addends.push_back(&load->operand);
    }
    results.done = user;
  }
  std::unique_ptr<Kernel> step = make_convolution_kernel(spec, object_cache());
  if (step == nullptr) return false;
  std::vector<int> inputs{read(kernel.operands[0], Layout::kChannelsLast, kernel.layer)};
  for (const Operand* operand : addends) inputs.push_back(read(*operand, Layout::kChannelsLast, kernel.layer));
  results.slot = new_float_slot(epilogue.domain);
  add_step(std::move(step), std::move(inputs), {results.slot}, kernel.layer);
  lower_epilogue(kernel, results);
  return true;
}

bool Lowering::lower_integer_convolution(const ProductKernel& kernel, ConvolutionSpec spec) {
  const Layer& l = layer(kernel.layer);
  const Quantization& x = kernel.operands[0].quantization;
  // Scales and integers depend on how the layer uses its weights, too.
  const std::string key = fmt::format("{}{}|{}", weights_.scope(), kernel.layer.number(), spec.key);
  const auto weights = integer_weights(l, weights_.get(spec.key, spec.weights), key, kernel.normalization != kNone);
  const std::vector<Tensor> parts = exact_parts(l, weights->integers, x, key);
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    spec.weights = [part = parts[i]] { return part; };
    spec.key = fmt::format("{}|int8 {} of {}", key, i, parts.size());
    kernels.push_back(make_convolution_kernel(spec, object_cache()));
    if (kernels.back() == nullptr) return false;
  }
  const int input = read_integers(kernel.operands[0], Layout::kChannelsLast, false, kernel.layer);
  Results results;
  results.layout = Layout::kChannelsLast;
  results.slot = add_integer_parts(std::move(kernels), {input}, kernel.epilogue.domain, kernel.layer);
  results.scaling.scale = product_scales(x, weights->scales, key);
  results.scaling.bias = convolution_bias(kernel, Rounding::kNone, spec.key);
  lower_epilogue(kernel, results);
  return true;
}

namespace {

/// The reference kernel of a layer that has other operands than the network's.
class OwnLayerKernel final : public Kernel {
 public:
  OwnLayerKernel(Layer layer, DataType type)
      : layer_(std::move(layer)), kernel_(make_reference_kernel(layer_, {type}, {Rounding::kNone}, true)) {}
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    kernel_->run(inputs, outputs);
  }

 private:
  const Layer layer_;
  const std::unique_ptr<Kernel> kernel_;
};

}  // namespace

void Lowering::lower_reference_product(const ProductKernel& kernel) {
  Layer l = layer(kernel.layer);
  std::vector<int> inputs;
  for (const Operand& operand : kernel.operands)
    inputs.push_back(operand.tensor == kNone ? -1 : read_operand(kernel.layer, operand, Layout::kDense));
  if (kernel.normalization != kNone) {
    const Rounding rounding = kernel.operands[1].rounding;
    std::string key;
    l.inputs.resize(3, kNone);
    inputs.resize(3, -1);
    const ConstantSource source = convolution_weights(kernel, rounding, key);
    Tensor weights = weights_.get(key, source);
    if (kernel.integers)
      weights =
          weights_of_integers(l, weights, fmt::format("{}{}|{}", weights_.scope(), kernel.layer.number(), key), true);
    inputs[1] = constant_slot(std::move(weights));
    inputs[2] = constant_slot(convolution_bias(kernel, rounding, key));
  }
  Results results;
  results.slot = new_float_slot(kernel.epilogue.domain);
  add_step(std::make_shared<OwnLayerKernel>(std::move(l), spec_.type(kernel.result)), std::move(inputs), {results.slot},
           kernel.layer);
  lower_epilogue(kernel, results);
}

}  // namespace ulpscope::cpu
