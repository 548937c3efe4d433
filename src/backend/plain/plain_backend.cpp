#include "backend/plain/plain_backend.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "backend/plain/instructions.h"
#include "backend/reference_kernel.h"
#include "engine/scale_shift.h"
#include "ops/forms.h"

namespace ulpscope::plain {
namespace {

/// One run: every tensor by itself, dense.
class Run {
 public:
  Run(const Specialization& spec, const Schedule& schedule, const IdMap<LayerId, GraphFunction>& subgraphs)
      : spec_(spec), schedule_(schedule), subgraphs_(subgraphs), values_(spec.network->tensors.size()) {}

  std::vector<Tensor> run(std::span<const Tensor> inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) values_[spec_.network->inputs[i]] = inputs[i];
    for (const auto& group : schedule_.kernels)
      for (const KernelDescription& kernel : group) std::visit([&](const auto& described) { run(described); }, kernel);
    std::vector<Tensor> outputs;
    for (const Operand& output : schedule_.outputs) outputs.push_back(read(output).clone());
    return outputs;
  }

 private:
  const Layer& layer(LayerId id) const { return spec_.network->layer(id); }

  static Tensor rounded(const Tensor& tensor, Rounding rounding) {
    if (rounding == Rounding::kNone || tensor.type() != DataType::kFloat32) return tensor;
    Tensor result(tensor.type(), tensor.shape());
    round_array(tensor.data<float>(), result.data<float>(), static_cast<std::size_t>(tensor.size()), rounding);
    return result;
  }

  Tensor read(const Operand& operand) const {
    const Tensor& value = spec_.is_constant(operand.tensor) ? spec_.value(operand.tensor)
                          : operand.exact                   ? exact_.at(operand.tensor)
                                                            : values_[operand.tensor];
    return rounded(rounded(value, operand.first), operand.rounding);
  }

  void store(const Store& store, const Tensor& value) {
    if (store.tensor == kNone) return;
    if (store.exact) exact_[store.tensor] = value;
    values_[store.tensor] = rounded(value, store.rounding);
  }

  // --- Integers
  // --------------------------------------------------------------------------------------------------------

  /// The scales that the file has with a constant; absent: it brings its own.
  Tensor scales_in_file(const Layer& l, const Operand& operand) const {
    return l.op->kind == OpKind::kContraction
               ? dequantized_weights(spec_, operand.tensor, weight_channel_axis(spec_, l), output_channels(spec_, l))
               : dequantized_weights(spec_, operand.tensor, 0, 1);
  }

  /// The elements of a constant with these scales (absent: its own, which are set); `back`: times the scales again.
  Tensor elements(const Layer& l, const Operand& operand, const Tensor& value, Tensor& scales, bool back) const {
    const NumericFormat& format = format_of(operand.encoding->format);
    const ScaleLayout layout = l.op->kind == OpKind::kContraction ? weight_scales(spec_, l) : ScaleLayout();
    if (!scales) scales = own_scales(format, layout, value);
    Tensor result(DataType::kFloat32, value.shape());
    quantize(format, layout, value, scales, result.data<float>(), back);
    return result;
  }

  /// What a layer that runs by itself reads: rounded, or elements times their scale.
  Tensor read_operand(const Layer& l, const Operand& operand) const {
    if (!operand.is_encoded()) return read(operand);
    const Tensor value = read(operand.plain());
    if (operand.scales == ScaleSource::kCalibrated) return quantized(value, operand.quantization(), true);
    Tensor scales = scales_in_file(l, operand);
    return elements(l, operand, value, scales, true);
  }

  // --- Kernels
  // ---------------------------------------------------------------------------------------------------------

  /// The operator's reference kernel.
  std::vector<Tensor> evaluate(const Layer& l, LayerId id, const std::vector<Tensor>& inputs,
                               const std::vector<DataType>& types) const {
    std::vector<const Tensor*> in;
    for (const Tensor& input : inputs) in.push_back(input ? &input : nullptr);
    std::vector<Tensor> results(types.size());
    std::vector<Tensor*> out;
    for (std::size_t o = 0; o < types.size(); ++o)
      out.push_back(types[o] == DataType::kUndefined ? nullptr : &results[o]);
    make_reference_kernel(l, types, std::vector<Rounding>(types.size(), Rounding::kNone), false, subgraphs_[id])
        ->run(in, out);
    return results;
  }

  void run(const LayerKernel& kernel) {
    const Layer& l = layer(kernel.layer);
    std::vector<Tensor> inputs;
    std::vector<DataType> types;
    for (const Operand& operand : kernel.operands)
      inputs.push_back(operand.tensor == kNone ? Tensor() : read_operand(l, operand));
    for (const Store& output : kernel.outputs)
      types.push_back(output.tensor == kNone ? DataType::kUndefined : spec_.type(output.tensor));
    const std::vector<Tensor> results = evaluate(l, kernel.layer, inputs, types);
    for (std::size_t o = 0; o < results.size(); ++o) store(kernel.outputs[o], results[o]);
  }

  void run(const ProductKernel& kernel) {
    const Layer& l = layer(kernel.layer);
    Layer own = l;
    std::vector<Tensor> inputs;
    for (const Operand& operand : kernel.operands) {
      const bool as_it_is = operand.is_encoded() || kernel.normalization != kNone;
      inputs.push_back(operand.tensor == kNone ? Tensor() : read(as_it_is ? operand.plain() : operand));
    }
    if (kernel.normalization != kNone) {
      inputs[0] = rounded(inputs[0], kernel.operands[0].rounding);
      const ScaleAndShift channels = scale_shift(spec_, layer(kernel.normalization), Rounding::kNone);
      own.inputs.resize(3, kNone);
      inputs.resize(3);
      inputs[1] = rounded(scaled_weights(spec_, l, channels.scale), kernel.operands[1].rounding);
      inputs[2] = rounded(scaled_bias(spec_, l, channels), kernel.operands[1].rounding);
    }
    Tensor scale, bias;
    if (kernel.elements) {
      scale = to_integers(kernel, inputs);
      if (inputs.size() > 2) bias = inputs[2];
      inputs.resize(2);
      own.inputs.resize(2);
      own.attributes.set("alpha", 1.0f);
    }
    for (Tensor& input : inputs)
      if (input) input = input.cast(DataType::kFloat64);
    Tensor result = evaluate(own, kernel.layer, inputs, {DataType::kFloat64})[0].cast(DataType::kFloat32);
    if (scale) apply_scale(kernel, scale, bias, result);
    run(kernel.epilogue, &result);
  }

  /// Operands 0 and 1 become integers; gives what makes real numbers of their products, one per channel or for all.
  Tensor to_integers(const ProductKernel& kernel, std::vector<Tensor>& inputs) const {
    const Layer& l = layer(kernel.layer);
    const Operand& weights = kernel.operands[1];
    const Quantization x = kernel.operands[0].quantization();
    inputs[0] = quantized(inputs[0], x, false);
    if (weights.scales == ScaleSource::kCalibrated) {
      inputs[1] = quantized(inputs[1], weights.quantization(), false);
      return Tensor::of<float>({1}, {x.scale * weights.scale});
    }
    // With a BatchNormalization multiplied in, the values are no longer those of the file.
    Tensor scales;
    if (kernel.normalization == kNone) scales = scales_in_file(l, weights);
    inputs[1] = elements(l, weights, inputs[1], scales, false);
    scales = scales.clone();
    for (std::int64_t c = 0; c < scales.size(); ++c) scales.data<float>()[c] *= x.scale;
    return scales;
  }

  void apply_scale(const ProductKernel& kernel, const Tensor& scale, const Tensor& bias, Tensor& result) const {
    const Shape& shape = result.shape();
    const auto form = ops::matrix_form(layer(kernel.layer)).value_or(ops::MatrixForm{});
    const std::size_t axis = ops::is_convolution(layer(kernel.layer)) ? 1 : shape.size() - 1;
    std::vector<float> addend;
    if (bias) addend = broadcast(bias, shape, axis == 1 && bias.shape().size() == 1 && shape.size() > 2);
    const std::int64_t inner = num_elements(Shape(shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, shape.end()));
    for (std::int64_t i = 0; i < result.size(); ++i) {
      const std::int64_t channel = i / inner % shape[axis];
      float& value = result.data<float>()[i];
      value *= scale.data<float>()[scale.size() == 1 ? 0 : channel];
      value *= form.alpha;
      if (bias) value += form.beta * addend[i];
    }
  }

  /// Every register over the whole domain; a value per row is repeated along it.
  void run(const ProgramKernel& kernel, const Tensor* result = nullptr) {
    const std::int64_t count = num_elements(kernel.domain);
    const std::int64_t row = num_elements(Shape(kernel.domain.end() - kernel.row_dims, kernel.domain.end()));
    std::vector<std::vector<float>> registers;
    for (const Program::Value& v : kernel.program.values) {
      std::vector<float> out(static_cast<std::size_t>(count), v.constant);
      const auto operand = [&](Register r) -> const std::vector<float>& { return registers[r]; };
      if (v.kind == Program::Kind::kLoad) {
        out = load(kernel, kernel.loads[v.load], result);
      } else if (v.kind == Program::Kind::kResult && is_row_instruction(v.instruction)) {
        for (std::int64_t begin = 0; begin < count; begin += row)
          std::fill_n(out.begin() + begin, row,
                      reduce(v.instruction, {operand(v.a).data() + begin, static_cast<std::size_t>(row)}));
      } else if (v.kind == Program::Kind::kResult) {
        for (std::size_t i = 0; i < out.size(); ++i)
          out[i] = apply(v, operand(v.a)[i], v.b < 0 ? 0.0f : operand(v.b)[i]);
      }
      registers.push_back(std::move(out));
    }
    for (const auto& output : kernel.outputs) {
      const Shape& shape = *spec_.shape(output.store.tensor);
      const std::int64_t step = num_elements(shape) == count ? 1 : row;
      Tensor value(DataType::kFloat32, shape);
      for (std::int64_t i = 0; i < value.size(); ++i) value.data<float>()[i] = registers[output.source][i * step];
      store(output.store, value);
    }
  }

  /// The operand, broadcast to the domain.
  std::vector<float> load(const ProgramKernel& kernel, const Load& load, const Tensor* result) const {
    Tensor value;
    if (load.source == Load::Source::kResult) {
      value = *result;
    } else if (load.source == Load::Source::kTensor) {
      value = read_operand(layer(kernel.layers[0]), load.operand);
    } else {
      const ScaleAndShift channels = load.operand.rounding == Rounding::kNone
                                         ? scale_shift(spec_, layer(load.normalization), Rounding::kNone)
                                         : rounded_scale_shift(spec_, layer(load.normalization), load.operand.rounding);
      value = load.source == Load::Source::kShift ? channels.shift : channels.scale;
    }
    return broadcast(value, kernel.domain, load.per_channel);
  }

  static std::vector<float> broadcast(const Tensor& value, const Shape& domain, bool per_channel) {
    Shape shape = value.shape();
    if (per_channel) {
      shape.assign(domain.size(), 1);
      shape[1] = value.size();
    }
    shape.insert(shape.begin(), domain.size() - shape.size(), 1);
    std::vector<float> out(static_cast<std::size_t>(num_elements(domain)));
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::int64_t rest = static_cast<std::int64_t>(i), offset = 0, stride = 1;
      for (std::size_t d = domain.size(); d-- > 0; rest /= domain[d], stride *= shape[d])
        if (shape[d] != 1) offset += rest % domain[d] * stride;
      out[i] = value.data<float>()[offset];
    }
    return out;
  }

  const Specialization& spec_;
  const Schedule& schedule_;
  const IdMap<LayerId, GraphFunction>& subgraphs_;
  IdMap<TensorId, Tensor> values_;    ///< As stored.
  std::map<TensorId, Tensor> exact_;  ///< See Store::exact.
};

class PlainPlan final : public Plan {
 public:
  PlainPlan(std::shared_ptr<const Specialization> spec, Schedule schedule,
            const IdMap<LayerId, GraphFunction>& subgraphs)
      : Plan(std::move(spec), std::move(schedule)), subgraphs_(subgraphs) {}

  std::vector<Tensor> run(std::span<const Tensor> inputs, ActivationStore*, bool) const override {
    return Run(*spec_, schedule_, subgraphs_).run(inputs);
  }

  std::size_t arena_bytes() const noexcept override {
    std::size_t bytes = 0;
    for (TensorId id : spec_->network->tensors.ids())
      if (const auto& shape = spec_->inferred.shapes[id]; shape && !spec_->inferred.values[id])
        bytes += static_cast<std::size_t>(num_elements(*shape)) * size_of(physical_type(spec_->inferred.types[id]));
    return bytes;
  }

 private:
  const IdMap<LayerId, GraphFunction> subgraphs_;
};

class PlainBackend final : public Backend {
 public:
  std::string_view name() const noexcept override { return "plain"; }
  std::shared_ptr<const Plan> plan(std::shared_ptr<const Specialization> spec, Schedule schedule, WeightCache&,
                                   const IdMap<LayerId, GraphFunction>& subgraphs, const TacticReplay*) const override {
    return std::make_shared<const PlainPlan>(std::move(spec), std::move(schedule), subgraphs);
  }
};

}  // namespace

const Backend& plain_backend() {
  static const PlainBackend backend;
  return backend;
}

}  // namespace ulpscope::plain
