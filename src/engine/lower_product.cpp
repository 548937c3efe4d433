// Matrix products and convolutions.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/op_kernel.h"
#include "core/parallel.h"
#include "engine/plan_builder.h"
#include "engine/scale_shift.h"
#include "ops/window.h"

namespace ulpscope {

bool PlanBuilder::lower_contraction(std::span<const LayerId> members) {
  const Layer& l = layer(members[0]);
  if (!spec_.shape(l.outputs[0]) || spec_.type(l.outputs[0]) == DataType::kFloat64 ||
      !is_floating(spec_.type(l.outputs[0])))
    return false;
  for (TensorId input : l.inputs)
    if (input != kNone &&
        (!spec_.shape(input) ||
         (!spec_.is_constant(input) &&
          plan_.slots_[static_cast<std::size_t>(home_[static_cast<std::size_t>(input)].slot)].dynamic)))
      return false;
  if (num_elements(shape(l.outputs[0])) == 0) return false;
  return lower_matmul(members) || lower_convolution(members);
}

bool PlanBuilder::only_read_by(TensorId id, LayerId reader) const {
  const auto& consumers = spec_.consumers[static_cast<std::size_t>(id)];
  return internal(id) && consumers.size() == 1 && consumers[0] == reader;
}

cpu::ObjectCache PlanBuilder::object_cache() {
  return [this](const std::string& key, const std::function<std::shared_ptr<const void>()>& make) {
    return weights_.get_object(fmt::format("{}|threads {}", key, num_threads()), make);
  };
}

namespace {

struct ProductShape {
  cpu::MatMulSpec spec;
  bool ok = false;
};

/// MatMul of two shapes as one product of matrices, with batches only where they are needed.
ProductShape matmul_shape(Shape a, Shape b) {
  ProductShape result;
  if (a.size() < 2 || b.size() < 2) return result;
  cpu::MatMulSpec& spec = result.spec;
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

}  // namespace

bool PlanBuilder::lower_matmul(std::span<const LayerId> members) {
  const LayerId id = members[0];
  const Layer& l = layer(id);
  const bool gemm = l.op->name == "Gemm";
  if (!gemm && l.op->name != "MatMul") return false;
  const TensorId a = l.inputs[0], b = l.inputs[1], output = l.outputs[0];
  ProductShape product = matmul_shape(shape(a), shape(b));
  if (gemm) {
    product.spec.transpose_a = l.attributes.integer("transA", 0) != 0;
    product.spec.transpose_b = l.attributes.integer("transB", 0) != 0;
    product.spec.m = shape(output)[0];
    product.spec.n = shape(output)[1];
    product.spec.k = product.spec.transpose_a ? shape(a)[0] : shape(a)[1];
    product.ok = true;
  }
  if (!product.ok || product.spec.k == 0) return false;
  cpu::MatMulSpec& spec = product.spec;
  const bool integers = computes_in_int8(id);
  ProductScaling scaling;
  std::optional<Quantisation> quantised_b;
  std::vector<int> inputs{integers ? read_quantised(a, Layout::kDense, false, id)
                                   : read(a, Layout::kDense, load_rounding(l, id, 0), id)};
  const Rounding rounding = load_rounding(l, id, 1);
  if (integers) {
    const Quantisation x = quantisation_of(a);
    scaling.last = true;
    if (spec_.is_constant(b)) {
      const std::string key = integer_weights_key(id, b);
      const auto weights = integer_weights(l, constant(b, Layout::kDense, Rounding::kNone), key, false);
      spec.constant_b = weights->integers;
      spec.key_b = key + "|int8";
      scaling.scale = product_scales(x, weights->scales, spec.key_b);
    } else {
      quantised_b = quantisation_of(b);
      inputs.push_back(read_quantised(b, Layout::kDense, false, id));
      scaling.scale = Tensor::of<float>({1}, {x.scale * quantised_b->scale});
    }
  } else if (spec_.is_constant(b)) {
    spec.constant_b = constant(b, Layout::kDense, rounding);
    spec.key_b = fmt::format("{}|{}", constant_key(b), static_cast<int>(rounding));
  } else {
    inputs.push_back(read(b, Layout::kDense, rounding, id));
  }
  std::span<const LayerId> epilogue = members.subspan(1);
  // The first addition of a vector along n rides on the product.
  Tensor& bias = integers ? scaling.bias : spec.bias;
  const auto as_bias = [&](TensorId candidate, Rounding how) {
    if (candidate == kNone || !spec_.is_constant(candidate)) return false;
    const Tensor& value = spec_.value(candidate);
    if (value.size() != spec.n || value.shape().empty() || value.shape().back() != spec.n ||
        value.type() != DataType::kFloat32)
      return false;
    bias = constant(candidate, Layout::kDense, how).reshaped({spec.n});
    return true;
  };
  const float alpha = gemm ? l.attributes.real("alpha", 1.0f) : 1.0f,
              beta = gemm ? l.attributes.real("beta", 1.0f) : 1.0f;
  const bool has_c = gemm && l.inputs.size() > 2 && l.inputs[2] != kNone && beta != 0.0f;
  bool c_done = !has_c;
  if (has_c && alpha == 1.0f && beta == 1.0f) c_done = as_bias(l.inputs[2], load_rounding(l, id, 2));
  if (!integers && !has_c && alpha == 1.0f && !epilogue.empty() && only_read_by(output, epilogue[0]) &&
      layer(epilogue[0]).op->name == "Add") {
    const Layer& add = layer(epilogue[0]);
    const std::size_t other = add.inputs[0] == output ? 1 : 0;
    if (add.inputs[1 - other] == output && as_bias(add.inputs[other], load_rounding(add, epilogue[0], other))) {
      const TensorId sum = add.outputs[0];
      std::unique_ptr<Kernel> kernel = cpu::make_matmul_kernel(spec, object_cache());
      const int slot = new_slot(DataType::kFloat32, spec_.shape(sum));
      add_step(std::move(kernel), std::move(inputs), {slot}, epilogue[0]);
      return lower_epilogue(epilogue.subspan(1), sum, slot, Layout::kDense);
    }
  }
  int slot;
  if (integers) {
    const std::vector<std::int64_t> cuts = exact_slices(spec, quantisation_of(a), quantised_b);
    std::vector<std::unique_ptr<Kernel>> kernels;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      if (cuts.size() > 2) {
        spec.k_begin = cuts[i];
        spec.k_end = cuts[i + 1];
      }
      kernels.push_back(cpu::make_matmul_kernel(spec, object_cache()));
    }
    slot = add_integer_parts(std::move(kernels), inputs, output, id);
    if (c_done && alpha == 1.0f) return lower_epilogue(epilogue, output, slot, Layout::kDense, &scaling);
  } else {
    slot = new_slot(DataType::kFloat32, spec_.shape(output));
    add_step(cpu::make_matmul_kernel(spec, object_cache()), std::move(inputs), {slot}, id);
  }
  if (!c_done || alpha != 1.0f) {
    ProgramDomain domain;
    domain.shape = shape(output);
    ProgramState state{domain, cpu::ProgramBuilder(domain.shape), {}, {slot}};
    int value = state.program.input({spec.n, 1}, Rounding::kNone);
    if (integers) value = append_scaling(state, value, scaling);
    if (alpha != 1.0f) value = state.program.apply(cpu::Instruction::kMul, value, state.program.constant(alpha));
    if (!c_done) {
      int c = program_operand(state, id, 2);
      if (beta != 1.0f) c = state.program.apply(cpu::Instruction::kMul, c, state.program.constant(beta));
      value = state.program.apply(cpu::Instruction::kAdd, value, c);
    }
    state.program.output(value, Rounding::kNone);
    add_step(state.program.finish(), std::move(state.inputs), {slot}, id);
  }
  return lower_epilogue(epilogue, output, slot, Layout::kDense);
}

Tensor PlanBuilder::convolution_weights(const Layer& l, const Layer* folded, Rounding rounding, std::string& key) {
  const TensorId w = l.inputs[1];
  if (folded == nullptr) {
    key = fmt::format("conv|{}|{}", constant_key(w), static_cast<int>(rounding));
    return constant(w, Layout::kDense, rounding);
  }
  key = fmt::format("conv|{}|bn {}|{}", constant_key(w), scale_shift_key(*folded), static_cast<int>(rounding));
  return weights_.get(key, [&] {
    Tensor result = scaled_weights(spec_, l, scale_of(*folded));
    cpu::round_parallel(result.data<float>(), result.data<float>(), result.size(), rounding);
    return result;
  });
}

Tensor PlanBuilder::convolution_bias(const Layer& l, const Layer* folded, Rounding rounding, std::int64_t channels,
                                     std::string& key) {
  const bool own = l.inputs.size() > 2 && l.inputs[2] != kNone;
  if (folded == nullptr) {
    if (!own) return {};
    key += fmt::format("|bias {}", constant_key(l.inputs[2]));
    return constant(l.inputs[2], Layout::kDense, rounding);
  }
  const std::string bias_key = fmt::format("bias|{}|bn {}|{}", constant_key(own ? l.inputs[2] : kNone),
                                           scale_shift_key(*folded), static_cast<int>(rounding));
  return weights_.get(bias_key, [&] {
    Tensor result = scaled_bias(spec_, l, {scale_of(*folded), shift_of(*folded)});
    cpu::round_parallel(result.data<float>(), result.data<float>(), channels, rounding);
    return result;
  });
}

const Layer* PlanBuilder::folded_normalization(std::span<const LayerId> members) const {
  const Layer& l = layer(members[0]);
  if ((l.op->name != "Conv" && l.op->name != "ConvTranspose") || members.size() < 2) return nullptr;
  for (std::size_t i = 1; i < l.inputs.size(); ++i)
    if (l.inputs[i] != kNone && spec_.value(l.inputs[i]).type() != DataType::kFloat32) return nullptr;
  // Weights that are integers in the file stay what they are.
  if (computes_in_int8(members[0]) &&
      dequantised_weights(spec_, l.inputs[1], weight_channel_axis(spec_, l), output_channels(spec_, l)))
    return nullptr;
  const Layer& next = layer(members[1]);
  return only_read_by(l.outputs[0], members[1]) && is_scale_shift(spec_, next) ? &next : nullptr;
}

namespace {

/// The reference kernel of a layer that has other operands than the network's.
class OwnLayerKernel final : public Kernel {
 public:
  OwnLayerKernel(Layer layer, DataType type, Rounding rounding)
      : layer_(std::move(layer)), kernel_(cpu::make_op_kernel(layer_, {type}, {rounding}, true, {})) {}
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    kernel_->run(inputs, outputs);
  }

 private:
  const Layer layer_;
  const std::unique_ptr<Kernel> kernel_;
};

}  // namespace

std::size_t PlanBuilder::lower_reference_contraction(std::span<const LayerId> members) {
  const LayerId id = members[0];
  const Layer* folded = computes_in_int8(id) ? nullptr : folded_normalization(members);
  if (folded == nullptr) {
    lower_single(id);
    return 1;
  }
  const Rounding rounding = load_rounding(layer(id), id, 1);
  std::string key;
  Tensor weights = convolution_weights(layer(id), folded, rounding, key);
  Tensor bias = convolution_bias(layer(id), folded, rounding, output_channels(spec_, layer(id)), key);
  const int x = read(layer(id).inputs[0], Layout::kDense, load_rounding(layer(id), id, 0), id);
  Layer convolution = layer(id);
  convolution.inputs.resize(3, kNone);
  const TensorId output = folded->outputs[0];
  auto kernel = std::make_shared<OwnLayerKernel>(std::move(convolution), spec_.type(output),
                                                 store_rounding(output, members.first(2)));
  const int slot = define(output, Layout::kDense);
  add_step(std::move(kernel), {x, constant_slot(std::move(weights)), constant_slot(std::move(bias))}, {slot},
           members[1]);
  settle(output, members.first(2));
  return 2;
}

bool PlanBuilder::lower_convolution(std::span<const LayerId> members) {
  const LayerId id = members[0];
  const Layer& l = layer(id);
  const bool transposed = l.op->name == "ConvTranspose";
  if (!transposed && l.op->name != "Conv") return false;
  const Shape& input = shape(l.inputs[0]);
  if (input.size() < 3 || input.size() > 4 || !spec_.is_constant(l.inputs[1])) return false;
  if (l.inputs.size() > 2 && l.inputs[2] != kNone && !spec_.is_constant(l.inputs[2])) return false;
  const TensorId output = l.outputs[0];
  std::span<const LayerId> epilogue = members.subspan(1);
  TensorId result = output;
  const bool integers = computes_in_int8(id);
  const Layer* folded = folded_normalization(members);
  if (folded != nullptr) {
    result = folded->outputs[0];
    epilogue = epilogue.subspan(1);
  }
  const ops::WindowGeometry g = transposed ? ops::conv_transpose_geometry(l, input, shape(l.inputs[1]))
                                           : ops::conv_geometry(l, input, shape(l.inputs[1]));
  cpu::ConvolutionSpec spec;
  spec.input = input;
  spec.output = shape(output);
  spec.strides = g.strides;
  spec.dilations = g.dilations;
  spec.pads_begin = g.pads_begin;
  spec.pads_end = g.pads_end;
  spec.groups = g.groups;
  spec.transposed = transposed;
  const Rounding rounding = integers ? Rounding::kNone : load_rounding(l, id, 1);
  spec.weights = convolution_weights(l, folded, rounding, spec.key);
  if (integers) return lower_integer_convolution(id, std::move(spec), folded, epilogue);
  // Not for oneDNN to add where it is transposed: some of its kernels add it once for every position of the stride.
  ProductScaling scaling;
  (transposed ? scaling.bias : spec.bias) = convolution_bias(l, folded, rounding, spec.output[1], spec.key);
  std::vector<int> inputs{read(l.inputs[0], Layout::kChannelsLast, load_rounding(l, id, 0), id)};
  // Residual additions and HardSwish ride on the convolution while nothing between them is stored. Relu and Clip do
  // not: oneDNN's make a number of NaN. Nothing rides on a transposed one: oneDNN applies it element by element there.
  while (!transposed && !epilogue.empty() && only_read_by(result, epilogue[0])) {
    const Layer& next = layer(epilogue[0]);
    cpu::PostOp op{};
    if (next.op->name == "HardSwish")
      op.kind = cpu::PostOp::Kind::kHardSwish;
    else if (next.op->name == "Add") {
      const std::size_t other = next.inputs[0] == result ? 1 : 0;
      const TensorId operand = next.inputs[other];
      if (next.inputs[1 - other] != result || operand == result || spec_.is_constant(operand) ||
          shape(operand) != shape(result))
        break;
      op.kind = cpu::PostOp::Kind::kAddTensor;
      inputs.push_back(read(operand, Layout::kChannelsLast, load_rounding(next, epilogue[0], other), epilogue[0]));
    } else
      break;
    spec.post_ops.push_back(op);
    result = next.outputs[0];
    epilogue = epilogue.subspan(1);
  }
  std::unique_ptr<Kernel> kernel = cpu::make_convolution_kernel(spec, object_cache());
  if (kernel == nullptr) return false;
  const int slot = new_slot(DataType::kFloat32, spec_.shape(result));
  add_step(std::move(kernel), std::move(inputs), {slot}, id);
  return lower_epilogue(epilogue, result, slot, Layout::kChannelsLast, scaling.bias ? &scaling : nullptr);
}

bool PlanBuilder::lower_integer_convolution(LayerId id, cpu::ConvolutionSpec spec, const Layer* folded,
                                            std::span<const LayerId> epilogue) {
  const Layer& l = layer(id);
  const Quantisation x = quantisation_of(l.inputs[0]);
  // Scales and integers depend on how the layer uses its weights, too.
  const std::string key = fmt::format("{}{}|{}", weights_.scope(), id, spec.key);
  const auto weights = integer_weights(l, spec.weights, key, folded != nullptr);
  const std::vector<Tensor> parts = exact_parts(l, weights->integers, x, key);
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    spec.weights = parts[i];
    spec.key = fmt::format("{}|int8 {} of {}", key, i, parts.size());
    kernels.push_back(cpu::make_convolution_kernel(spec, object_cache()));
    if (kernels.back() == nullptr) return false;
  }
  const int input = read_quantised(l.inputs[0], Layout::kChannelsLast, false, id);
  const TensorId result = folded != nullptr ? folded->outputs[0] : l.outputs[0];
  const int slot = add_integer_parts(std::move(kernels), {input}, result, id);
  ProductScaling scaling;
  scaling.scale = product_scales(x, weights->scales, key);
  scaling.bias = convolution_bias(l, folded, Rounding::kNone, spec.output[1], spec.key);
  return lower_epilogue(epilogue, result, slot, Layout::kChannelsLast, &scaling);
}

}  // namespace ulpscope
