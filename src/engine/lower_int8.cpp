// Operands of int8 layers, and products of integers: they are held in float32, where every sum of magnitude up to 2^24
// is exact; longer sums are cut into pieces.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/cpu/op_kernel.h"
#include "backend/cpu/reorder.h"
#include "core/parallel.h"
#include "formats/rounding.h"
#include "engine/int8.h"
#include "engine/plan_builder.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

constexpr double kExact = 0x1p24;

double largest_of(const Quantisation& q) { return q.is_unsigned ? 255 : 128; }

cpu::QuantiseSpec spec_of(const Quantisation& q, bool dequantise) {
  return {q.scale, q.is_unsigned ? 0.0f : -128.0f, q.is_unsigned ? 255.0f : 127.0f, dequantise};
}

}  // namespace

void PlanBuilder::find_int8_layers() {
  integers_.assign(network_.layers.size(), 0);
  for (std::size_t l = 0; l < network_.layers.size(); ++l) {
    if (spec_.folded[l]) continue;
    const LayerId id = static_cast<LayerId>(l);
    if (precision(id) == Precision::kINT8) {
      const std::vector<TensorId> inputs = quantised_inputs(spec_, id);
      integers_[l] = has_int8_form(spec_, id) &&
                     std::ranges::all_of(inputs, [&](TensorId input) { return quantisation_of(input).scale > 0; });
    } else if (layer(id).op->kind == OpKind::kContraction) {
      integers_[l] = is_integer_product(spec_, id);
    }
  }
}

Quantisation PlanBuilder::quantisation_of(TensorId id) const {
  if (const auto found = dequantised(spec_, id)) return *found;
  return {assignment_.scale.empty() ? 0.0f : assignment_.scale[static_cast<std::size_t>(id)], false};
}

int PlanBuilder::read_quantised(TensorId id, Layout layout, bool dequantise, LayerId reader) {
  const auto key = std::make_tuple(id, layout, dequantise);
  if (const auto found = quantised_.find(key); found != quantised_.end()) return found->second;
  const Home& home = home_[static_cast<std::size_t>(id)];
  if (home.slot < 0) throw InternalError(fmt::format("'{}' is read before it is computed", network_.tensor(id).name));
  int source = home.slot;
  const int slot = new_slot(DataType::kFloat32, spec_.shape(id));
  if (layout != home.layout) {
    add_step(cpu::make_reorder_kernel(shape(id), layout, Rounding::kNone), {source}, {slot}, reader);
    source = slot;
  }
  add_step(cpu::make_quantise_kernel(spec_of(quantisation_of(id), dequantise)), {source}, {slot}, reader);
  return quantised_[key] = slot;
}

TensorId PlanBuilder::quantised_source(LayerId dequantize) const {
  const Layer& l = layer(dequantize);
  if (l.op->name != "DequantizeLinear" || !dequantised(spec_, l.outputs[0])) return kNone;
  const LayerId producer = network_.tensor(l.inputs[0]).producer;
  if (producer == kNone || layer(producer).op->name != "QuantizeLinear") return kNone;
  const Layer& q = layer(producer);
  if (q.inputs[0] == kNone || spec_.is_constant(q.inputs[0]) || spec_.type(q.inputs[0]) != DataType::kFloat32 ||
      !spec_.shape(q.inputs[0]) || q.inputs[1] == kNone || !spec_.is_constant(q.inputs[1]))
    return kNone;
  const Tensor &a = spec_.value(q.inputs[1]), &b = spec_.value(l.inputs[1]);
  if (a.type() != DataType::kFloat32 || a.size() != 1 || a.data<float>()[0] != b.data<float>()[0]) return kNone;
  if (q.inputs.size() > 2 && q.inputs[2] != kNone) {
    if (!spec_.is_constant(q.inputs[2])) return kNone;
    const Tensor& zero = spec_.value(q.inputs[2]);
    const auto* bytes = static_cast<const unsigned char*>(zero.raw());
    if (std::any_of(bytes, bytes + zero.bytes(), [](unsigned char byte) { return byte != 0; })) return kNone;
  }
  const Home& home = home_[static_cast<std::size_t>(q.inputs[0])];
  if (home.slot < 0 || plan_.slots_[static_cast<std::size_t>(home.slot)].dynamic) return kNone;
  return q.inputs[0];
}

bool PlanBuilder::lower_quantisation(LayerId id) {
  const Layer& l = layer(id);
  if (l.op->name == "QuantizeLinear") {
    // No integers are stored where only such pairs read them.
    const TensorId output = l.outputs[0];
    const auto& readers = spec_.consumers[static_cast<std::size_t>(output)];
    return !spec_.output[static_cast<std::size_t>(output)] && !readers.empty() &&
           std::ranges::all_of(readers, [&](LayerId reader) { return quantised_source(reader) != kNone; });
  }
  const TensorId source = quantised_source(id);
  if (source == kNone) return false;
  const Home home = home_[static_cast<std::size_t>(source)];
  const TensorId output = l.outputs[0];
  const int slot = define(output, home.layout);
  add_step(cpu::make_quantise_kernel(spec_of(*dequantised(spec_, output), true)), {home.slot}, {slot}, id);
  return true;
}

Tensor PlanBuilder::quantised_constant(LayerId id, std::size_t index) {
  const Layer& l = layer(id);
  const TensorId tensor = l.inputs[index];
  const Tensor value = constant(tensor, Layout::kDense, Rounding::kNone);
  if (l.op->kind == OpKind::kContraction) {
    const std::string key = integer_weights_key(id, tensor);
    const auto weights = integer_weights(l, value, key, false);
    return weights_.get(key + "|int8 and back", [&] {
      Tensor result(DataType::kFloat32, value.shape());
      for (std::int64_t i = 0; i < result.size(); ++i)
        result.data<float>()[i] =
            weights->integers.data<float>()[i] * weights->scales.data<float>()[weight_channel(l, value.shape(), i)];
      return result;
    });
  }
  // Integers times one scale already.
  if (dequantised_weights(spec_, tensor, 0, 1)) return value;
  return weights_.get(fmt::format("{}|int8 and back", constant_key(tensor)), [&] {
    float largest = 0;
    for (float v : value.values<float>()) largest = std::max(largest, std::fabs(v));
    const float scale = symmetric_scale(largest);
    Tensor result(DataType::kFloat32, value.shape());
    quantise_array(value.data<float>(), result.data<float>(), static_cast<std::size_t>(value.size()), scale, -127.0f,
                   127.0f, true);
    return result;
  });
}

int PlanBuilder::read_operand(LayerId id, std::size_t index, Layout layout) {
  const Layer& l = layer(id);
  const TensorId tensor = l.inputs[index];
  if (!computes_in_int8(id) || index > 1) return read(tensor, layout, load_rounding(l, id, index), id);
  if (spec_.is_constant(tensor)) return constant_slot(quantised_constant(id, index));
  return read_quantised(tensor, layout, true, id);
}

std::int64_t PlanBuilder::weight_channel(const Layer& l, const Shape& weights, std::int64_t element) const {
  const std::size_t axis = weight_channel_axis(spec_, l);
  std::int64_t inner = 1;
  for (std::size_t d = axis + 1; d < weights.size(); ++d) inner *= weights[d];
  const std::int64_t channel = element / inner % weights[axis];
  if (l.op->name != "ConvTranspose") return channel;
  const std::int64_t groups = l.attributes.integer("group", 1);
  return element / (inner * weights[axis]) / (weights[0] / groups) * weights[1] + channel;
}

std::string PlanBuilder::integer_weights_key(LayerId id, TensorId tensor) const {
  const Layer& l = layer(id);
  const std::size_t axis = weight_channel_axis(spec_, l);
  // Scales that the file has are the layer's.
  if (dequantised_weights(spec_, l.inputs[1], axis, output_channels(spec_, l)))
    return fmt::format("{}{}|{}", weights_.scope(), id, constant_key(tensor));
  return fmt::format("{}|{} axis {} groups {}", constant_key(tensor), l.op->name, axis,
                     l.attributes.integer("group", 1));
}

std::shared_ptr<const PlanBuilder::IntegerWeights> PlanBuilder::integer_weights(const Layer& l, const Tensor& values,
                                                                                const std::string& key, bool folded) {
  return std::static_pointer_cast<const IntegerWeights>(weights_.get_object(key + "|int8", [&] {
    auto result = std::make_shared<IntegerWeights>();
    const std::int64_t channels = output_channels(spec_, l), count = values.size();
    const float* in = values.data<float>();
    // Runs of elements of one channel, in order.
    const std::size_t axis = weight_channel_axis(spec_, l);
    std::int64_t run = 1;
    for (std::size_t d = axis + 1; d < values.shape().size(); ++d) run *= values.shape()[d];
    const std::int64_t along = values.shape()[axis];
    // The columns of a matrix: whole rows at a time, since every run is one element. In parallel over blocks of
    // columns.
    const bool by_rows = run == 1 && along == channels && l.op->name != "ConvTranspose";
    const auto for_rows = [&](const auto& body) {
      parallel_for(along, 256, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t begin = 0; begin < count; begin += along)
          body(first, begin + first, static_cast<std::size_t>(last - first));
      });
    };
    const auto for_runs = [&](const auto& body) {
      for (std::int64_t begin = 0; begin < count; begin += run * along) {
        const std::int64_t first = weight_channel(l, values.shape(), begin);
        for (std::int64_t c = 0; c < along; ++c) body(first + c, begin + c * run);
      }
    };
    float low = -128.0f;
    if (!folded) result->scales = dequantised_weights(spec_, l.inputs[1], weight_channel_axis(spec_, l), channels);
    if (!result->scales) {
      low = -127.0f;
      result->scales = Tensor(DataType::kFloat32, {channels});
      float* scales = result->scales.data<float>();
      std::fill_n(scales, channels, 0.0f);
      if (by_rows)
        for_rows([&](std::int64_t channel, std::int64_t begin, std::size_t size) {
          max_magnitudes(in + begin, scales + channel, size);
        });
      else
        for_runs([&](std::int64_t channel, std::int64_t begin) {
          float largest = scales[channel];
          for (std::int64_t i = begin; i < begin + run; ++i) largest = std::max(largest, std::fabs(in[i]));
          scales[channel] = largest;
        });
      for (std::int64_t c = 0; c < channels; ++c) scales[c] = symmetric_scale(scales[c]);
    }
    result->integers = Tensor(DataType::kFloat32, values.shape());
    float* out = result->integers.data<float>();
    const float* scales = result->scales.data<float>();
    if (by_rows)
      for_rows([&](std::int64_t channel, std::int64_t begin, std::size_t size) {
        quantise_columns(in + begin, out + begin, size, scales + channel, low, 127.0f);
      });
    else
      for_runs([&](std::int64_t channel, std::int64_t begin) {
        quantise_array(in + begin, out + begin, static_cast<std::size_t>(run), scales[channel], low, 127.0f, false);
      });
    return std::static_pointer_cast<const void>(std::shared_ptr<const IntegerWeights>(std::move(result)));
  }));
}

Tensor PlanBuilder::product_scales(const Quantisation& x, const Tensor& weights, const std::string& key) {
  return weights_.get(fmt::format("{}|times {:08x}", key, std::bit_cast<std::uint32_t>(x.scale)), [&] {
    Tensor result(DataType::kFloat32, weights.shape());
    for (std::int64_t c = 0; c < weights.size(); ++c) result.data<float>()[c] = x.scale * weights.data<float>()[c];
    return result;
  });
}

std::vector<std::int64_t> PlanBuilder::exact_slices(const cpu::MatMulSpec& spec, const Quantisation& a,
                                                    const std::optional<Quantisation>& b) {
  std::vector<std::int64_t> cuts{0};
  const double largest_b = b ? largest_of(*b) : 128;
  const auto whole = static_cast<std::int64_t>(kExact / (largest_of(a) * largest_b));
  if (b || spec.k <= whole) {
    for (std::int64_t k = whole; k < spec.k; k += whole) cuts.push_back(k);
  } else {
    const auto found = std::static_pointer_cast<const std::vector<std::int64_t>>(
        weights_.get_object(fmt::format("{}|slices {}", spec.key_b, largest_of(a)), [&] {
          auto result = std::make_shared<std::vector<std::int64_t>>(cuts);
          const std::int64_t matrices = spec.constant_b.size() / (spec.k * spec.n);
          const float* values = spec.constant_b.data<float>();
          std::vector<double> sums(static_cast<std::size_t>(matrices * spec.n), 0.0);
          const bool plain = matrices == 1 && !spec.transpose_b;
          const auto row = [&](std::int64_t k, std::int64_t column) {
            if (plain) return static_cast<double>(std::fabs(values[k * spec.n + column]));
            const std::int64_t matrix = column / spec.n, n = column % spec.n;
            return std::fabs(static_cast<double>(
                values[matrix * spec.k * spec.n + (spec.transpose_b ? n * spec.k + k : k * spec.n + n)]));
          };
          for (std::int64_t k = 0; k < spec.k; ++k) {
            bool full = false;
            for (std::size_t c = 0; c < sums.size(); ++c) {
              sums[c] += row(k, static_cast<std::int64_t>(c));
              full |= sums[c] * largest_of(a) > kExact;
            }
            if (!full) continue;
            result->push_back(k);
            for (std::size_t c = 0; c < sums.size(); ++c) sums[c] = row(k, static_cast<std::int64_t>(c));
          }
          return std::static_pointer_cast<const void>(
              std::shared_ptr<const std::vector<std::int64_t>>(std::move(result)));
        }));
    cuts = *found;
  }
  cuts.push_back(spec.k);
  return cuts;
}

std::vector<Tensor> PlanBuilder::exact_parts(const Layer& l, const Tensor& integers, const Quantisation& x,
                                             const std::string& key) {
  const auto found = std::static_pointer_cast<const std::vector<Tensor>>(
      weights_.get_object(fmt::format("{}|parts {}", key, largest_of(x)), [&] {
        const std::int64_t count = integers.size();
        std::vector<double> sums(static_cast<std::size_t>(output_channels(spec_, l)), 0.0);
        std::vector<std::size_t> part_of(static_cast<std::size_t>(count)), current(sums.size(), 0);
        for (std::int64_t i = 0; i < count; ++i) {
          const auto c = static_cast<std::size_t>(weight_channel(l, integers.shape(), i));
          const double magnitude = std::fabs(static_cast<double>(integers.data<float>()[i])) * largest_of(x);
          if (sums[c] + magnitude > kExact) {
            ++current[c];
            sums[c] = 0;
          }
          sums[c] += magnitude;
          part_of[static_cast<std::size_t>(i)] = current[c];
        }
        const std::size_t parts = *std::max_element(current.begin(), current.end()) + 1;
        auto result = std::make_shared<std::vector<Tensor>>();
        if (parts == 1) result->push_back(integers);
        for (std::size_t p = 0; parts > 1 && p < parts; ++p) {
          Tensor part(DataType::kFloat32, integers.shape());
          for (std::int64_t i = 0; i < count; ++i)
            part.data<float>()[i] = part_of[static_cast<std::size_t>(i)] == p ? integers.data<float>()[i] : 0.0f;
          result->push_back(std::move(part));
        }
        return std::static_pointer_cast<const void>(std::shared_ptr<const std::vector<Tensor>>(std::move(result)));
      }));
  return *found;
}

int PlanBuilder::add_integer_parts(std::vector<std::unique_ptr<Kernel>> kernels, const std::vector<int>& inputs,
                                   TensorId output, LayerId id) {
  std::vector<int> parts;
  for (auto& kernel : kernels) {
    parts.push_back(new_slot(DataType::kFloat32, spec_.shape(output)));
    add_step(std::move(kernel), inputs, {parts.back()}, id);
  }
  if (parts.size() == 1) return parts[0];
  const int sum = new_slot(DataType::kFloat32, spec_.shape(output));
  add_step(cpu::make_integer_sum_kernel(), std::move(parts), {sum}, id);
  return sum;
}

}  // namespace ulpscope
