#include "backend/prepared_constants.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/file.h"
#include "core/parallel.h"
#include "engine/element_forms.h"
#include "engine/int8.h"
#include "engine/scale_shift.h"
#include "formats/quantized_blocks.h"
#include "formats/rounding.h"
#include "formats/stored_elements.h"

namespace ulpscope {

void round_parallel(const float* in, float* out, std::int64_t count, Rounding rounding) {
  if (rounding == Rounding::kNone && in == out) return;
  constexpr std::int64_t kGrain = 1 << 15;
  parallel_for(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    round_array(in + begin, out + begin, static_cast<std::size_t>(end - begin), rounding);
  });
}

namespace {

Tensor rounded(const Tensor& value, Rounding first, Rounding last) {
  Tensor in = value.in_memory();
  if (first == Rounding::kNone && last == Rounding::kNone) return in;
  const bool own = value.source() != nullptr;  // Then it was made for this.
  Tensor result = own ? in : Tensor(value.type(), value.shape());
  round_parallel(in.data<float>(), result.data<float>(), value.size(), first);
  round_parallel(result.data<float>(), result.data<float>(), result.size(), last);
  if (!own) MappedFile::release(in.raw(), in.bytes());
  return result;
}

ScaleRules rules_of(const Operand& weights) {
  ScaleRules rules;
  if (weights.channel_weights != nullptr) rules.weights = weights.channel_weights->mean_squares;
  return rules;
}

/// Tells operands with the same values apart that are encoded in another way.
std::string encoding_key(const Operand& operand) {
  std::string key = to_string(*operand.encoding);
  if (operand.channel_weights == nullptr) return key;
  const std::vector<float>& squares = operand.channel_weights->mean_squares;
  const std::string_view bytes(reinterpret_cast<const char*>(squares.data()), squares.size() * sizeof(float));
  return key + fmt::format(" for {:016x}", std::hash<std::string_view>()(bytes));
}

/// The elements of constant weights of a product, made whenever they are to be packed.
class ElementsOfWeights final : public TensorSource {
 public:
  /// `scales`: of the tensor or of channels; of blocks none.
  ElementsOfWeights(ScaleLayout layout, Operand weights, Tensor values, Tensor scales)
      : layout_(std::move(layout)),
        weights_(std::move(weights)),
        values_(std::move(values)),
        scales_(std::move(scales)) {}

  Tensor make() const override {
    const Encoding& encoding = *weights_.encoding;
    const Tensor values = values_.in_memory();
    Tensor result;
    if (scales_) {
      result = Tensor(DataType::kFloat32, values.shape());
      quantize(format_of(encoding.format), layout_, values, scales_, result.data<float>(), false);
    } else {
      result = quantized_and_back(encoding, layout_, values, rules_of(weights_));
    }
    release_elements(values);
    return result;
  }

 private:
  const ScaleLayout layout_;
  const Operand weights_;
  const Tensor values_, scales_;
};

/// Numbers that are rounded in their place where nobody else has them, else in a copy.
class OwnValues {
 public:
  OwnValues(Tensor values, bool own) : values_(std::move(values)), own_(own) {}

  void quantize_and_back(const Encoding& encoding, const ScaleLayout& layout, const ScaleRules& rules,
                         ChosenScales* chosen = nullptr) {
    if (own_) return ulpscope::quantize_and_back(encoding, layout, values_, rules, chosen);
    Tensor made = quantized_and_back(encoding, layout, values_, rules, chosen);
    release_elements(values_);
    values_ = std::move(made);
    own_ = true;
  }
  Tensor take() { return std::move(values_); }

 private:
  Tensor values_;
  bool own_;
};

/// Quantizes with scales that are chosen once and `kept`: that takes much longer than all else, and they are small
/// beside what they make.
void by_kept_scales(const Encoding& encoding, const ScaleLayout& layout, OwnValues& values, ScaleRules rules,
                    const PreparedAccess& kept) {
  if (!kept || !chooses_scales(encoding)) return values.quantize_and_back(encoding, layout, rules);
  bool is_made = false;
  const auto chosen = std::static_pointer_cast<const ChosenScales>(kept([&] {
    auto made = std::make_shared<ChosenScales>();
    values.quantize_and_back(encoding, layout, rules, made.get());
    is_made = true;
    return PreparedObject{.object = made, .bytes = made->scales.bytes(), .costly = true};
  }));
  if (is_made) return;
  rules.second = chosen->second;
  rules.chosen = chosen->scales.values<float>();
  values.quantize_and_back(encoding, layout, rules);
}

/// Weights that are stored as elements, as numbers.
Tensor as_stored(const Specialization& spec, const Layer& l, const Operand& weights, OwnValues values,
                 const PreparedAccess& scales = {}) {
  const ScaleLayout layout = scale_layout(spec, l, 1, *weights.encoding);
  by_kept_scales(*weights.encoding, layout, values, rules_of(weights), scales);
  Tensor result = values.take();
  round_parallel(result.data<float>(), result.data<float>(), result.size(), weights.rounding);
  return result;
}

}  // namespace

Tensor PreparedConstants::get(const Operand& operand) const {
  const Tensor& value = spec_.value(operand.tensor);
  const auto [first, last] = roundings(operand);
  if (first == Rounding::kNone && last == Rounding::kNone) return value;
  return weights_.get(fmt::format("{}|{}|{}", key(operand.tensor), static_cast<int>(first), static_cast<int>(last)),
                      [&, first = first, last = last] { return rounded(value, first, last); });
}

std::string PreparedConstants::key(const Operand& operand) const {
  return fmt::format("{}|{}|{}", key(operand.tensor), static_cast<int>(operand.first),
                     static_cast<int>(operand.rounding));
}

std::string PreparedConstants::key(TensorId id) const {
  if (id == kNone) return "none";
  // What the file has is the same in every network that was made from it.
  const Tensor& value = spec_.value(id);
  return value && value.size() > 0 ? weights_.name_of(value) : fmt::format("{}{}", weights_.scope(), id.number());
}

bool PreparedConstants::file_holds(TensorId id, Rounding rounding) const {
  const TensorInfo& info = spec_.network->tensor(id);
  if (info.value) return is_exact(info.value.type(), rounding);
  if (info.producer == kNone) return false;
  const Layer& maker = layer(info.producer);
  const bool moves = maker.op->kind == OpKind::kMovement && maker.op->precision == PrecisionRule::kMovement;
  if (!moves || depends_on_elements(maker)) return false;
  return std::ranges::all_of(present(maker.inputs), [&](TensorId input) {
    return !is_floating(spec_.type(input)) || (spec_.type(input) == spec_.type(id) && file_holds(input, rounding));
  });
}

std::pair<Rounding, Rounding> PreparedConstants::roundings(const Operand& operand) const {
  const auto needed = [&](Rounding rounding) {
    const bool rounds = rounding != Rounding::kNone && spec_.value(operand.tensor).type() == DataType::kFloat32;
    return rounds && !file_holds(operand.tensor, rounding) ? rounding : Rounding::kNone;
  };
  return {needed(operand.first), needed(operand.rounding)};
}

std::function<void()> PreparedConstants::room_for(const Tensor& value) const {
  return weights_.room(static_cast<std::size_t>(value.size()) * sizeof(float));
}

ConstantSource PreparedConstants::source(const Operand& operand) const {
  return source(spec_.value(operand.tensor), roundings(operand));
}

ConstantSource PreparedConstants::source(const Tensor& value, std::pair<Rounding, Rounding> roundings) const {
  return [value, roundings, room = room_for(value)] {
    room();
    return rounded(value, roundings.first, roundings.second);
  };
}

ConstantSource PreparedConstants::weights(const ProductKernel& kernel) const {
  const Operand& operand = kernel.operands[1];
  if (!operand.is_encoded()) return source(operand);
  return
      [&spec = spec_, &l = layer(kernel.layer), operand, first = roundings(operand).first,
       scales = weights_.access(weights_key(kernel) + "|chosen scales"), room = room_for(spec_.value(operand.tensor))] {
        const Tensor& value = spec.value(operand.tensor);
        room();
        Tensor numbers = rounded(value, first, Rounding::kNone);
        const bool own = first != Rounding::kNone || value.source() != nullptr;  // Then they were made for this.
        numbers = as_stored(spec, l, operand, {std::move(numbers), own}, scales);
        room();  // Again: another thread may have held what could go, and packing takes as much as these numbers.
        return numbers;
      };
}

std::string PreparedConstants::weights_key(const ProductKernel& kernel) const {
  const Operand& operand = kernel.operands[1];
  if (!operand.is_encoded()) return key(operand);
  return fmt::format("{}|{} as {}", key(operand), element_weights_key(kernel.layer, operand), encoding_key(operand));
}

std::string PreparedConstants::scale_shift_key(const Layer& l) const {
  std::string key = fmt::format("{} {}", l.outputs[0].number(), l.attributes.real("epsilon", 0));
  for (std::size_t i = 1; i < 5; ++i) key += fmt::format(",{}", this->key(l.inputs[i]));
  return key;
}

Tensor PreparedConstants::scale_or_shift(LayerId normalization, bool shift, Rounding rounding) const {
  const Layer& l = layer(normalization);
  return weights_.get(
      fmt::format("{}|{}|rounded {}", shift ? "shift" : "scale", scale_shift_key(l), static_cast<int>(rounding)), [&] {
        const ScaleAndShift prepared =
            rounding == Rounding::kNone ? scale_shift(spec_, l, rounding) : rounded_scale_shift(spec_, l, rounding);
        return shift ? prepared.shift : prepared.scale;
      });
}

ConstantSource PreparedConstants::convolution_weights(const ProductKernel& kernel, Rounding rounding,
                                                      std::string& key) const {
  const Layer& l = layer(kernel.layer);
  const Operand weights{kernel.operands[1].tensor, rounding, kernel.operands[1].first};
  key = "conv|" + this->key(weights);
  const bool coded = kernel.operands[1].is_encoded() && !kernel.elements;
  if (coded) key += fmt::format("|as {}", encoding_key(kernel.operands[1]));
  if (kernel.normalization == kNone) return coded ? this->weights(kernel) : source(weights);
  key += fmt::format("|bn {}", scale_shift_key(layer(kernel.normalization)));
  return [&spec = spec_, &l, operand = kernel.operands[1], coded,
          scale = scale_or_shift(kernel.normalization, false, Rounding::kNone), rounding] {
    Tensor result = scaled_weights(spec, l, scale);
    if (coded) return as_stored(spec, l, operand, {std::move(result), true});
    round_parallel(result.data<float>(), result.data<float>(), result.size(), rounding);
    return result;
  };
}

Tensor PreparedConstants::convolution_bias(const ProductKernel& kernel, Rounding rounding, std::string& key) const {
  const Layer& l = layer(kernel.layer);
  const Operand own = kernel.operands.size() > 2 ? kernel.operands[2] : Operand{};
  if (kernel.normalization == kNone) {
    if (own.tensor == kNone) return {};
    key += fmt::format("|bias {}", this->key(own.tensor));
    return get({own.tensor, rounding, own.first});
  }
  const std::string bias_key = fmt::format("bias|{}|bn {}|{}", this->key(own.tensor),
                                           scale_shift_key(layer(kernel.normalization)), static_cast<int>(rounding));
  return weights_.get(bias_key, [&] {
    Tensor result = scaled_bias(spec_, l,
                                {scale_or_shift(kernel.normalization, false, Rounding::kNone),
                                 scale_or_shift(kernel.normalization, true, Rounding::kNone)});
    round_parallel(result.data<float>(), result.data<float>(), result.size(), rounding);
    return result;
  });
}

std::pair<Tensor, Tensor> PreparedConstants::normalized_parameters(const ProductKernel& kernel) const {
  const Rounding rounding = kernel.operands[1].rounding;
  std::string key;
  const ConstantSource source = convolution_weights(kernel, rounding, key);
  Tensor weights = weights_.get(key, source);
  if (kernel.elements)
    weights = weights_of_elements(layer(kernel.layer), kernel.operands[1], weights,
                                  fmt::format("{}{}|{}", weights_.scope(), kernel.layer.number(), key), true);
  return {std::move(weights), convolution_bias(kernel, rounding, key)};
}

Tensor PreparedConstants::weights_of_elements(const Layer& l, const Operand& operand, const Tensor& values,
                                              const std::string& key, bool rescaled) const {
  const auto weights = element_weights(l, operand, values, key, rescaled);
  return weights_.get(key + "|elements and back", [&] {
    Tensor result = weights->elements.in_memory();
    const bool single = weights->scales.size() == 1;
    const ScaleLayout layout = single ? ScaleLayout() : weight_scales(spec_, l);
    for (std::int64_t i = 0; i < result.size(); ++i)
      result.data<float>()[i] *= weights->scales.data<float>()[layout.index(i)];
    return result;
  });
}

Tensor PreparedConstants::dequantized(LayerId id, const Operand& operand) const {
  const Layer& l = layer(id);
  const Tensor value = get({operand.tensor, Rounding::kNone, operand.first});
  if (l.op->kind == OpKind::kContraction) {
    const std::string key = element_weights_key(id, operand);
    if (operand.encoding->granularity != Granularity::kBlock && operand.rounding == Rounding::kNone)
      return weights_of_elements(l, operand, value, key, false);
    return weights_.get(fmt::format("{}|as stored, rounded {}", key, static_cast<int>(operand.rounding)),
                        [&] { return as_stored(spec_, l, operand, {value, false}); });
  }
  // Integers times one scale already.
  if (dequantized_weights(spec_, operand.tensor, 0, 1)) return value;
  return weights_.get(fmt::format("{}|elements and back", key(operand.tensor)), [&] {
    const NumericFormat& format = format_of(operand.encoding->format);
    Tensor result(DataType::kFloat32, value.shape());
    quantize(format, {}, value, own_scales(format, {}, value), result.data<float>(), true);
    return result;
  });
}

std::string PreparedConstants::element_weights_key(LayerId id, const Operand& weights) const {
  const Layer& l = layer(id);
  const std::size_t axis = weight_channel_axis(spec_, l);
  const std::string encoding = encoding_key(weights);
  // Scales that the file has are the layer's.
  if (dequantized_weights(spec_, l.inputs[1], axis, output_channels(spec_, l)))
    return fmt::format("{}{}|{}|{}", weights_.scope(), id.number(), key(weights.tensor), encoding);
  return fmt::format("{}|{} axis {} groups {}|{}", key(weights.tensor), l.op->name, axis,
                     l.attributes.integer("group", 1), encoding);
}

std::shared_ptr<const PreparedConstants::ElementWeights> PreparedConstants::element_weights(
    const Layer& l, const Operand& weights, const Tensor& values, const std::string& key, bool rescaled) const {
  return std::static_pointer_cast<const ElementWeights>(weights_.get_object(key + "|elements", [&] {
    const Encoding& encoding = *weights.encoding;
    const ScaleLayout layout = scale_layout(spec_, l, 1, encoding);
    Tensor scales;
    if (!rescaled && encoding.granularity == Granularity::kTensor)
      scales = dequantized_weights(spec_, l.inputs[1], 0, 1);
    if (!rescaled && encoding.granularity == Granularity::kChannel)
      scales = dequantized_weights(spec_, l.inputs[1], weight_channel_axis(spec_, l), output_channels(spec_, l));
    if (!scales && encoding.granularity != Granularity::kBlock) {
      scales = own_scales(format_of(encoding.format), layout, values.in_memory());
      release_elements(values);
    }
    auto result = std::make_shared<ElementWeights>();
    result->elements = Tensor::deferred(DataType::kFloat32, values.shape(),
                                        std::make_shared<ElementsOfWeights>(layout, weights, values, scales));
    result->scales = scales ? scales : Tensor::of<float>({1}, {1.0f});
    return PreparedObject{result, result->scales.bytes()};
  }));
}

Tensor PreparedConstants::product_scales(const Operand& x, const Tensor& weights, const std::string& key) const {
  if (x.encoding->granularity == Granularity::kBlock) return weights;
  return weights_.get(fmt::format("{}|times {:08x}", key, std::bit_cast<std::uint32_t>(x.scale)), [&] {
    Tensor result(DataType::kFloat32, weights.shape());
    for (std::int64_t c = 0; c < weights.size(); ++c) result.data<float>()[c] = x.scale * weights.data<float>()[c];
    return result;
  });
}

Tensor PreparedConstants::of_load(const Load& load, LayerId reader) const {
  if (load.source != Load::Source::kTensor)
    return scale_or_shift(load.normalization, load.source == Load::Source::kShift, load.operand.rounding);
  if (!spec_.is_constant(load.operand.tensor)) return {};
  return load.operand.is_encoded() ? dequantized(reader, load.operand) : get(load.operand);
}

}  // namespace ulpscope
