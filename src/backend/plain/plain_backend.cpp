#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>

#include "backend/backends.h"
#include "backend/reference_kernel.h"
#include "engine/element_forms.h"
#include "engine/int8.h"
#include "engine/scale_shift.h"
#include "formats/quantized.h"
#include "formats/rounding.h"
#include "graph/program.h"
#include "ops/forms.h"

namespace ulpscope::plain {
namespace {

using I = Instruction;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }
/// NaN wins.
double smaller(double a, double b) { return a < b || std::isnan(a) ? a : b; }
double larger(double a, double b) { return a > b || std::isnan(a) ? a : b; }
double clamp(double x, double low, double high) { return smaller(larger(x, low), high); }

double quantize(float x, float scale, bool is_unsigned) {
  float result;
  const Quantization by = to_bytes(scale, is_unsigned);
  quantize_array(&x, &result, 1, scale, by.lowest(), by.largest(), true);
  return static_cast<double>(result);
}

double value_of(const Program::Value& v, double x, double y) {
  const auto p = static_cast<double>(v.p), q = static_cast<double>(v.q);
  switch (v.instruction) {
#define ULPSCOPE_UNARY(instruction, name, reference, ...) \
  case I::instruction:                                    \
    return reference;
#define ULPSCOPE_BINARY ULPSCOPE_UNARY
#include "graph/instructions.def"
    default:
      return quantize(static_cast<float>(x), v.p, v.q != 0.0f);
  }
}

/// The nearest float32 of the instruction computed in float64. `b`: of binary instructions only.
float apply(const Program::Value& v, float a, float b) {
  return static_cast<float>(value_of(v, static_cast<double>(a), static_cast<double>(b)));
}

/// The nearest float32 of a row reduction computed in float64.
float reduce(Instruction instruction, std::span<const float> row) {
  const double infinity = std::numeric_limits<double>::infinity();
  double result = instruction == I::kReduceMax ? -infinity : instruction == I::kReduceMin ? infinity : 0;
  for (float value : row) {
    const auto x = static_cast<double>(value);
    switch (instruction) {
      case I::kReduceMax:
        result = larger(result, x);
        break;
      case I::kReduceMin:
        result = smaller(result, x);
        break;
      case I::kReduceSumSquare:
        result += x * x;
        break;
      case I::kReduceL1:
        result += std::fabs(x);
        break;
      default:
        result += x;  // kReduceSum, kReduceMean
    }
  }
  const auto count = static_cast<double>(std::max<std::size_t>(row.size(), 1));
  return static_cast<float>(instruction == I::kReduceMean ? result / count : result);
}

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
                          : operand.row_sums                ? row_sums_.at(operand.tensor)
                                                            : values_[operand.tensor];
    return rounded(rounded(value, operand.first), operand.rounding);
  }

  void store(const Store& store, const Tensor& value) {
    if (store.tensor == kNone) return;
    if (store.row_sums) {
      row_sums_[store.tensor] = value;
      return;
    }
    if (store.exact) exact_[store.tensor] = value;
    values_[store.tensor] = rounded(value, store.rounding);
  }

  // --- Elements
  // --------------------------------------------------------------------------------------------------------

  /// The scales that the file has with a constant; absent: it brings its own.
  Tensor scales_in_file(const Layer& l, const Operand& operand) const {
    const bool per_channel =
        l.op->kind == OpKind::kContraction && operand.encoding->granularity != Granularity::kTensor;
    return per_channel
               ? dequantized_weights(spec_, operand.tensor, weight_channel_axis(spec_, l), output_channels(spec_, l))
               : dequantized_weights(spec_, operand.tensor, 0, 1);
  }

  /// The elements of a constant as products sum them, with these scales behind the sum (absent: its own, which are
  /// set); `back`: times all scales, the numbers that they stand for.
  Tensor elements(const Layer& l, const Operand& operand, const Tensor& value, Tensor& scales, bool back) const {
    const Encoding& encoding = *operand.encoding;
    const ScaleLayout layout = l.op->kind == OpKind::kContraction ? scale_layout(spec_, l, 1, encoding) : ScaleLayout();
    if (!scales) {
      const Quantized made = quantize(encoding, layout, value);
      scales = outer_scales(encoding, made);
      return back ? dequantized(made, layout) : summed_elements(encoding, made, layout);
    }
    Tensor result(DataType::kFloat32, value.shape());
    quantize(format_of(encoding.format), layout, value, scales, result.data<float>(), back);
    return result;
  }

  /// An activation as elements; `back`: times its scale again.
  static Tensor activation(const Operand& operand, const Tensor& value, bool back) {
    const Encoding& encoding = *operand.encoding;
    if (operand.is_of_bytes()) return quantized(value, operand.quantization(), back);
    Tensor result(DataType::kFloat32, value.shape());
    const ScaleLayout layout =
        encoding.granularity == Granularity::kBlock ? ScaleLayout(encoding, value.shape()) : ScaleLayout();
    quantize_activation(encoding, layout, value, operand.scale, result.data<float>(), back);
    return result;
  }

  /// What a layer that runs by itself reads: rounded, or elements times their scale.
  Tensor read_operand(const Layer& l, const Operand& operand) const {
    if (!operand.is_encoded()) return read(operand);
    const Tensor value = read(operand.plain());
    if (!spec_.is_constant(operand.tensor)) return activation(operand, value, true);
    Tensor scales = scales_in_file(l, operand);
    return rounded(elements(l, operand, value, scales, true), operand.rounding);
  }

  // --- Kernels
  // ---------------------------------------------------------------------------------------------------------

  /// The operator's reference kernel.
  std::vector<Tensor> evaluate(const Layer& l, LayerId id, const std::vector<Tensor>& inputs,
                               const std::vector<DataType>& types,
                               const std::optional<Accumulator>& accumulator) const {
    std::vector<const Tensor*> in;
    for (const Tensor& input : inputs) in.push_back(input ? &input : nullptr);
    std::vector<Tensor> results(types.size());
    std::vector<Tensor*> out;
    for (std::size_t o = 0; o < types.size(); ++o)
      out.push_back(types[o] == DataType::kUndefined ? nullptr : &results[o]);
    make_reference_kernel(l, types, std::vector<Rounding>(types.size(), Rounding::kNone), false, subgraphs_[id],
                          accumulator)
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
    const std::vector<Tensor> results = evaluate(l, kernel.layer, inputs, types, kernel.accumulator);
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
      inputs[1] = scaled_weights(spec_, l, channels.scale);
      if (!kernel.operands[1].is_encoded()) inputs[1] = rounded(inputs[1], kernel.operands[1].rounding);
      inputs[2] = rounded(scaled_bias(spec_, l, channels), kernel.operands[1].rounding);
    }
    Tensor scale, bias;
    if (!kernel.elements && kernel.operands[1].is_encoded()) {
      Tensor own;
      inputs[1] = rounded(elements(l, kernel.operands[1], inputs[1], own, true), kernel.operands[1].rounding);
    }
    if (kernel.elements) {
      scale = to_elements(kernel, inputs);
      if (inputs.size() > 2) bias = inputs[2];
      inputs.resize(2);
      own.inputs.resize(2);
      own.attributes.set("alpha", 1.0f);
    }
    const DataType type = kernel.accumulator ? DataType::kFloat32 : DataType::kFloat64;
    for (Tensor& input : inputs)
      if (input) input = input.cast(type);
    Tensor result = evaluate(own, kernel.layer, inputs, {type}, kernel.accumulator)[0].cast(DataType::kFloat32);
    if (scale) apply_scale(kernel, scale, bias, result);
    run(kernel.epilogue, &result);
  }

  /// Operands 0 and 1 become elements; gives what makes real numbers of their products, one per channel or for all.
  /// Of float elements with a scale per channel without that of the activation, which comes behind it.
  Tensor to_elements(const ProductKernel& kernel, std::vector<Tensor>& inputs) const {
    const Layer& l = layer(kernel.layer);
    const Operand &x = kernel.operands[0], &weights = kernel.operands[1];
    inputs[0] = activation(x, inputs[0], false);
    if (!spec_.is_constant(weights.tensor)) {
      inputs[1] = activation(weights, inputs[1], false);
      return Tensor::of<float>({1}, {x.outer_scale() * weights.outer_scale()});
    }
    // With a BatchNormalization multiplied in, the values are no longer those of the file.
    Tensor scales;
    if (kernel.normalization == kNone && weights.encoding->granularity != Granularity::kBlock)
      scales = scales_in_file(l, weights);
    inputs[1] = elements(l, weights, inputs[1], scales, false);
    scales = scales.clone();
    if (!scaled_twice(kernel, scales))
      for (std::int64_t c = 0; c < scales.size(); ++c) scales.data<float>()[c] *= x.outer_scale();
    return scales;
  }

  static bool scaled_twice(const ProductKernel& kernel, const Tensor& scales) {
    return !kernel.sums_bytes() && scales.size() > 1 && kernel.operands[0].encoding->granularity != Granularity::kBlock;
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
      if (scaled_twice(kernel, scale)) value *= kernel.operands[0].scale;
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
      const Shape shape = shape_of(spec_, output.store);
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
  IdMap<TensorId, Tensor> values_;       ///< As stored.
  std::map<TensorId, Tensor> exact_;     ///< See Store::exact.
  std::map<TensorId, Tensor> row_sums_;  ///< See Store::row_sums.
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
