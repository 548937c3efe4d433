// Convolutions: cuDNN with the steps of the epilogue that it takes, channels innermost; generated kernels for those of
// few channels per group.
#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/products.h"
#include "engine/constant_inputs.h"
#include "ops/movement.h"
#include "ops/window.h"

namespace ulpscope::cuda {
namespace {

using StepKind = ConvolutionStep::Kind;

std::optional<StepKind> kind_of(const Program::Value& value) {
  switch (value.instruction) {
    case Instruction::kRelu:
      return StepKind::kRelu;
    case Instruction::kSigmoid:
      return StepKind::kSigmoid;
    case Instruction::kTanh:
      return StepKind::kTanh;
    case Instruction::kGelu:
      return StepKind::kGelu;
    case Instruction::kSwish:
      return value.p == 1.0f ? std::optional(StepKind::kSwish) : std::nullopt;
    default:
      return std::nullopt;
  }
}

/// x * sigmoid(x), written as two instructions, as only use of x: the register of the product.
std::optional<Register> swish_of(const ProgramKernel& epilogue, Register x) {
  Register sigmoid = -1, product = -1;
  for (std::size_t r = 0; r < epilogue.program.values.size(); ++r) {
    const Program::Value& v = epilogue.program.values[r];
    if (v.kind != Program::Kind::kResult || (v.a != x && v.b != x)) continue;
    const auto self = static_cast<Register>(r);
    if (v.instruction == Instruction::kSigmoid && sigmoid < 0)
      sigmoid = self;
    else if (v.instruction == Instruction::kMul && product < 0 && sigmoid >= 0 && (v.a == sigmoid || v.b == sigmoid))
      product = self;
    else
      return std::nullopt;
  }
  if (product < 0) return std::nullopt;
  for (const auto& output : epilogue.outputs)
    if (output.source == x || output.source == sigmoid) return std::nullopt;
  Register user = -1;
  return only_use(epilogue, sigmoid, &user) != nullptr && user == product ? std::optional(product) : std::nullopt;
}

/// Weights [k, 1, r...] of a depthwise convolution with channels innermost, [r..., k].
Tensor taps_outermost(const Tensor& weights) {
  const std::int64_t k = weights.shape()[0], window = weights.size() / std::max<std::int64_t>(1, k);
  Tensor result(DataType::kFloat32, {window, k});
  ops::copy_permuted(weights, {k, window}, std::vector<std::int64_t>{1, 0}, result);
  return result;
}

/// What a transposed convolution multiplies by, as an ordinary one over the spread-out input: [c, k / groups, r...]
/// becomes [k, c / groups, r...], turned around.
Tensor as_ordinary(const Tensor& weights, std::int64_t groups) {
  const Shape& shape = weights.shape();
  const std::int64_t c = shape[0] / groups, k = shape[1],
                     window = num_elements(shape) / std::max<std::int64_t>(1, shape[0] * k);
  Shape result_shape = shape;
  result_shape[0] = k * groups;
  result_shape[1] = c;
  Tensor result(DataType::kFloat32, result_shape);
  const float* in = weights.data<float>();
  float* out = result.data<float>();
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t i = 0; i < c; ++i)
      for (std::int64_t o = 0; o < k; ++o)
        for (std::int64_t r = 0; r < window; ++r)
          out[((g * k + o) * c + i) * window + r] = in[((g * c + i) * k + o) * window + window - 1 - r];
  return result;
}

}  // namespace

Tensor channels_innermost(const Tensor& weights, std::int64_t padded) {
  const Shape& shape = weights.shape();
  const std::int64_t k = shape[0], c = shape[1], window = num_elements(shape) / std::max<std::int64_t>(1, k * c);
  Tensor turned(DataType::kFloat32, {k, window, c});
  const std::vector<std::int64_t> order{0, 2, 1};
  ops::copy_permuted(weights, {k, c, window}, order, turned);
  if (padded == c) return turned;
  Tensor result(DataType::kFloat32, {k, window, padded});
  std::fill_n(result.data<float>(), result.size(), 0.0f);
  for (std::int64_t row = 0; row < k * window; ++row)
    std::copy_n(turned.data<float>() + row * c, c, result.data<float>() + row * padded);
  return result;
}

/// The input with channels innermost, in the type of the product; `spec` says how it is spread out and padded.
View Convolutions::convolution_input(const ProductKernel& kernel, const ConvolutionSpec& spec,
                                     const std::vector<std::int64_t>& spread) {
  const Operand& x = kernel.operands[0];
  const Shape& own = shape(x.tensor);
  const std::vector<std::int64_t> wanted = channels_last_strides(own);
  const bool spreads = std::ranges::any_of(spread, [](std::int64_t s) { return s != 1; });
  if (!spreads && spec.input == own)
    return kernel.elements ? matrices_.read_elements(x, spec.operands, own, wanted)
                           : memory_.read_as(x, spec.operands, wanted);
  // Into zeros: more channels, or elements apart.
  const View from = kernel.elements                 ? matrices_.read_elements(x, spec.operands, own, wanted)
                    : x.rounding == Rounding::kTF32 ? memory_.read_as(x, DataType::kFloat32, wanted)
                                                    : memory_.device_view(x);
  const View to = steps_.new_view(spec.operands, spec.input, channels_last_strides(spec.input));
  steps_.add(ClearStep{pointer(to), static_cast<std::size_t>(num_elements(spec.input)) * size_of(spec.operands)});
  View places = to;
  for (std::size_t d = 0; d < spread.size(); ++d) places.strides[d + 2] *= spread[d];
  steps_.add_copy(from, places, own);
  return to;
}

Convolutions::Filters Convolutions::filters_of(const ProductKernel& kernel) const {
  const Rounding rounding = kernel.operands[1].rounding;
  Filters filters;
  filters.weights = constants_.convolution_weights(kernel, rounding, filters.key);
  filters.bias_key = filters.key;
  filters.bias = constants_.convolution_bias(kernel, rounding, filters.bias_key);
  return filters;
}

/// The window without steps. `spread`: how far apart the elements of a transposed one's input are put.
ConvolutionSpec Convolutions::convolution_spec(const ProductKernel& kernel, std::vector<std::int64_t>& spread) const {
  const Layer& l = layer(kernel.layer);
  const Shape &input = shape(l.inputs[0]), &kernel_shape = shape(l.inputs[1]);
  const bool transposed = ops::is_transposed_convolution(l);
  const ops::WindowGeometry g =
      transposed ? ops::conv_transpose_geometry(l, input, kernel_shape) : ops::conv_geometry(l, input, kernel_shape);
  ConvolutionSpec spec{.input = input,
                       .weights = kernel_shape,
                       .output = kernel.epilogue.domain,
                       .strides = g.strides,
                       .dilations = g.dilations,
                       .pads_begin = g.pads_begin,
                       .pads_end = g.pads_end,
                       .groups = g.groups};
  // Elements of fp8 are multiplied as float16, which holds them.
  spec.operands = !kernel.elements                                  ? type_of(kernel.operands[0].rounding)
                  : !kernel.sums_bytes()                            ? DataType::kFloat16
                  : kernel.operands[0].quantization().is_unsigned() ? DataType::kUInt8
                                                                    : DataType::kInt8;
  spec.tf32 = kernel.operands[0].rounding == Rounding::kTF32;
  spread.assign(input.size() - 2, 1);
  if (transposed) {
    // Elements that are `stride` apart, and zeros between them, under windows that are turned around.
    spread = g.strides;
    spec.weights[0] = kernel_shape[1] * g.groups;
    spec.weights[1] = kernel_shape[0] / g.groups;
    for (std::size_t d = 0; d < spread.size(); ++d) {
      const std::int64_t reach = (kernel_shape[d + 2] - 1) * g.dilations[d];
      spec.input[d + 2] = (input[d + 2] - 1) * spread[d] + 1;
      spec.strides[d] = 1;
      spec.pads_begin[d] = reach - g.pads_begin[d];
      spec.pads_end[d] = spec.output[d + 2] + reach - spec.input[d + 2] - spec.pads_begin[d];
    }
  }
  // Three channels of an image as four: rows of whole words.
  if (!kernel.elements && spec.groups == 1 && input[1] < 4 && spec.operands != DataType::kFloat32) {
    spec.input[1] = 4;
    spec.weights[1] = 4;
  }
  return spec;
}

/// By cuDNN, with as much of the epilogue as it can take, where the library has the shape and is not slow on it; else
/// by a generated kernel. Weights are stored channels innermost, as tensor cores read them; what is left of the
/// epilogue is a kernel behind cuDNN's.
bool Convolutions::lower_convolution(const ProductKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const ProgramKernel& epilogue = kernel.epilogue;
  const Shape& input = shape(l.inputs[0]);
  if (!ops::is_convolution(l) || input.size() < 3 || input.size() > 5 || spec_.is_constant(l.inputs[0])) return false;
  const bool fp8 = kernel.elements && !kernel.sums_bytes(), bytes = kernel.sums_bytes();
  if (fp8) {
    if (!kernel.operands[0].is_of_e4m3() || !kernel.operands[1].is_of_e4m3()) return false;
    tell_how_fp8_adds_up(kernel, l, false, target_.is_hopper());
  }
  if (!has_constant_parameters(spec_, l)) return false;
  const bool transposed = ops::is_transposed_convolution(l);
  const Rounding rounding = kernel.operands[1].rounding;
  std::vector<std::int64_t> spread;
  ConvolutionSpec spec = convolution_spec(kernel, spread);
  // Where a transposed convolution leaves out results, generated kernels alone can begin inside of the input.
  const auto negative = [](std::int64_t pad) { return pad < 0; };
  bool by_cudnn = std::ranges::none_of(spec.pads_begin, negative) && std::ranges::none_of(spec.pads_end, negative);
  std::string key;
  ConstantSource values = constants_.convolution_weights(kernel, rounding, key);
  ProductResults results;
  results.channel = 1;
  if (kernel.elements) {
    const std::string own = fmt::format("{}{}|{}", weights_.scope(), kernel.layer.number(), key);
    const auto weights = constants_.element_weights(l, kernel.operands[1], weights_.get(key, values), own,
                                                    kernel.normalization != kNone);
    values = [weights] { return weights->elements.in_memory(); };
    const bool apart = fp8 && weights->scales.size() > 1;
    results.scale = apart ? weights->scales : constants_.product_scales(kernel.operands[0], weights->scales, own);
    if (apart) results.second = kernel.operands[0].scale;
    key = own + (fp8 ? "|fp8" : "|int8");
  }
  std::string bias_key = key;
  const Tensor bias = constants_.convolution_bias(kernel, kernel.elements ? Rounding::kNone : rounding, bias_key);
  results.bias = bias;
  ConvolveStep step;
  spec.stored = bytes ? DataType::kInt32 : DataType::kFloat32;
  // Of few channels per group, cuDNN has slow plans only once anything is done to the sums.
  by_cudnn &= spec.groups == 1 || spec.weights[1] >= 8;
  if (bytes) by_cudnn &= spec.operands == DataType::kInt8 && spec.weights[1] % kIntegerChannels == 0;
  const ConvolutionFold fold = by_cudnn ? fold_convolution(kernel, spec, step, bias, bias_key) : ConvolutionFold{};
  by_cudnn = by_cudnn && target_.has_convolution(spec);
  step.x = pointer(convolution_input(kernel, spec, spread));
  const bool depthwise = !by_cudnn && has_depthwise_source(spec);
  step.weights = pointer(
      steps_.constant_memory(fmt::format("{}|{}channels innermost {}{}", key, depthwise ? "taps outermost, " : "",
                                         spec.weights[1], transposed ? " turned" : ""),
                             bytes ? DataType::kInt8 : spec.operands,
                             [values, groups = spec.groups, transposed, depthwise, padded = spec.weights[1]] {
                               const Tensor ordinary = transposed ? as_ordinary(values(), groups) : values();
                               return depthwise ? taps_outermost(ordinary) : channels_innermost(ordinary, padded);
                             }));
  if (!by_cudnn) return generate_convolution(kernel, std::move(spec), std::move(step), std::move(results));
  results.view = fold.whole ? memory_.define(epilogue.outputs[0].store, channels_last_strides(epilogue.domain))
                            : steps_.new_view(spec.stored, epilogue.domain, channels_last_strides(epilogue.domain));
  results.done = fold.done;
  if (fold.biased) results.bias = {};
  step.y = pointer(results.view);
  step.spec = spec;
  steps_.add(std::move(step));
  epilogues_.lower(kernel, results);
  return true;
}

/// Steps of the epilogue that cuDNN computes: all of them, or the bias alone.
Convolutions::ConvolutionFold Convolutions::fold_convolution(const ProductKernel& kernel, ConvolutionSpec& spec,
                                                             ConvolveStep& step, const Tensor& bias,
                                                             const std::string& bias_key) {
  const ProgramKernel& epilogue = kernel.epilogue;
  if (kernel.sums_bytes() || epilogue.outputs.empty()) return {};
  // cuDNN is slow at results in float32 to which nothing is done: a bias of zeros is better than none. That of a
  // product of elements is added behind their scales.
  const bool with_bias = bias && !kernel.elements;
  const DataType type = kernel.elements ? spec.operands : type_of(kernel.operands[1].rounding);
  const Tensor addends = zero_padded(with_bias ? bias : Tensor(), {spec.output[1]});
  const std::string addends_key = with_bias ? bias_key + "|bias" : fmt::format("zeros {}", spec.output[1]);
  ConvolutionSpec biased = spec;
  biased.steps = {{StepKind::kBias, type}};
  biased.stored = DataType::kFloat32;
  const auto only_bias = [&]() -> ConvolutionFold {
    step.steps = {pointer(memory_.constant_view(addends, addends_key, type))};
    if (type == DataType::kFloat32 || !target_.has_convolution(biased)) {
      step.steps.clear();
      return {};
    }
    spec = biased;
    return {0, false, !kernel.elements};
  };
  const auto& [source, store] = epilogue.outputs[0];
  if (kernel.elements || epilogue.outputs.size() != 1 || store.exact || store.tensor == kNone) return only_bias();
  ConvolutionSpec with = spec;
  with.stored = type_of(store.rounding);
  const auto add_bias = [&] {
    with.steps.push_back({StepKind::kBias, type});
    step.steps.push_back(pointer(memory_.constant_view(addends, addends_key, type)));
  };
  if (bias) add_bias();
  // In float32 what cuDNN has compiled beforehand is the bias and Relu. Anything else takes it 10 times as long (1x1
  // convolutions with a residual on an H200: 14 us become 210), Relu without a bias, too (3x3, 128 channels to 32 at
  // 384 x 384: 17 ms). Its functions have the digits of 16-bit results only (tanh: 9e-6 off).
  const bool relu_alone = type == DataType::kFloat32 && !spec.tf32, functions = with.stored != DataType::kFloat32;
  Register done = 0, user = -1;
  while (done != source) {
    if (const auto product = relu_alone || !functions ? std::nullopt : swish_of(epilogue, done)) {
      with.steps.push_back({StepKind::kSwish});
      step.steps.push_back({});
      done = *product;
      continue;
    }
    const Program::Value* next = only_use(epilogue, done, &user);
    if (next == nullptr) break;
    const auto kind = kind_of(*next);
    if (relu_alone && kind != StepKind::kRelu) break;
    if (kind && kind != StepKind::kRelu && !functions) break;
    if (kind) {
      if (relu_alone && with.steps.empty()) add_bias();
      with.steps.push_back({*kind});
      step.steps.push_back({});
    } else {
      const Load* load = computed_addend(spec_, epilogue, *next, done);
      if (load == nullptr) break;
      const View view = memory_.read_as(load->operand, memory_.device_view(load->operand).type,
                                        channels_last_strides(epilogue.domain));
      if (!is_exact(view.type, load->operand.rounding)) break;
      with.steps.push_back({StepKind::kResidual, view.type});
      step.steps.push_back(pointer(view));
    }
    done = user;
  }
  if (done != source || !target_.has_convolution(with)) return only_bias();
  spec = std::move(with);
  return {done, true, true};
}

/// The whole of it as one generated kernel.
bool Convolutions::generate_convolution(const ProductKernel& kernel, ConvolutionSpec spec, const ConvolveStep& step,
                                        const ProductResults& results) {
  spec.steps.clear();
  spec.stored = kernel.sums_bytes() ? DataType::kInt32 : DataType::kFloat32;
  const ProgramKernel& epilogue = kernel.epilogue;
  ProgramAssembly assembly(epilogue.domain, 0);
  // Load 0 is the sum; the kernel has it in a register.
  View sum{-1, spec.stored, 0, channels_last_strides(epilogue.domain)};
  const Register raw = assembly.input(sum, sum.strides, Rounding::kNone);
  epilogues_.assemble(kernel, results, raw, sum.strides, assembly);
  const ProgramSpec& program = assembly.spec();
  KernelStep made;
  made.source = shared_convolution(spec, program.program, std::span(program.inputs).subspan(1), program.outputs);
  made.reads = {step.x, step.weights};
  made.reads.insert(made.reads.end(), assembly.reads().begin() + 1, assembly.reads().end());
  made.writes = assembly.writes();
  steps_.add(std::move(made));
  return true;
}

}  // namespace ulpscope::cuda
