// Operands of int8 layers, and products of integers: they are held in float32, where every sum of magnitude up to 2^24
// is exact; longer sums are cut into pieces.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/cpu/lowering.h"
#include "core/parallel.h"
#include "engine/int8.h"
#include "formats/rounding.h"
#include "ulpscope/error.h"

namespace ulpscope::cpu {
namespace {

constexpr double kExact = 0x1p24;

double largest_of(const Quantization& q) { return q.is_unsigned ? 255 : 128; }

}  // namespace

QuantizeSpec quantize_spec(const Quantization& q, bool dequantize) {
  return {q.scale, q.is_unsigned ? 0.0f : -128.0f, q.is_unsigned ? 255.0f : 127.0f, dequantize};
}

Tensor Lowering::weights_of_integers(const Layer& l, const Tensor& values, const std::string& key, bool rescaled) {
  const auto weights = integer_weights(l, values, key, rescaled);
  return weights_.get(key + "|int8 and back", [&] {
    Tensor result(DataType::kFloat32, values.shape());
    for (std::int64_t i = 0; i < result.size(); ++i)
      result.data<float>()[i] = weights->integers.data<float>()[i] *
                                weights->scales.data<float>()[weight_channel(spec_, l, values.shape(), i)];
    return result;
  });
}

Tensor Lowering::dequantized_constant(LayerId id, const Operand& operand) {
  const Layer& l = layer(id);
  const TensorId tensor = operand.tensor;
  const Tensor value = constant(operand);
  if (l.op->kind == OpKind::kContraction) return weights_of_integers(l, value, integer_weights_key(id, tensor), false);
  // Integers times one scale already.
  if (dequantized_weights(spec_, tensor, 0, 1)) return value;
  return weights_.get(fmt::format("{}|int8 and back", constant_key(tensor)), [&] {
    float largest = 0;
    for (float v : value.values<float>()) largest = std::max(largest, std::fabs(v));
    const float scale = symmetric_scale(largest);
    Tensor result(DataType::kFloat32, value.shape());
    quantize_array(value.data<float>(), result.data<float>(), static_cast<std::size_t>(value.size()), scale, -127.0f,
                   127.0f, true);
    return result;
  });
}

int Lowering::read_operand(LayerId id, const Operand& operand, Layout layout) {
  if (!operand.integers) return read(operand, layout, id);
  if (spec_.is_constant(operand.tensor)) return constant_slot(dequantized_constant(id, operand));
  return read_integers(operand, layout, true, id);
}

std::string Lowering::integer_weights_key(LayerId id, TensorId tensor) const {
  const Layer& l = layer(id);
  const std::size_t axis = weight_channel_axis(spec_, l);
  // Scales that the file has are the layer's.
  if (dequantized_weights(spec_, l.inputs[1], axis, output_channels(spec_, l)))
    return fmt::format("{}{}|{}", weights_.scope(), id.number(), constant_key(tensor));
  return fmt::format("{}|{} axis {} groups {}", constant_key(tensor), l.op->name, axis,
                     l.attributes.integer("group", 1));
}

std::shared_ptr<const Lowering::IntegerWeights> Lowering::integer_weights(const Layer& l, const Tensor& values,
                                                                          const std::string& key, bool rescaled) {
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
    const bool by_rows = run == 1 && along == channels && !ops::is_transposed_convolution(l);
    const auto for_rows = [&](const auto& body) {
      parallel_for(along, 256, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t begin = 0; begin < count; begin += along)
          body(first, begin + first, static_cast<std::size_t>(last - first));
      });
    };
    const auto for_runs = [&](const auto& body) {
      for (std::int64_t begin = 0; begin < count; begin += run * along) {
        const std::int64_t first = weight_channel(spec_, l, values.shape(), begin);
        for (std::int64_t c = 0; c < along; ++c) body(first + c, begin + c * run);
      }
    };
    float low = -128.0f;
    if (!rescaled) result->scales = dequantized_weights(spec_, l.inputs[1], weight_channel_axis(spec_, l), channels);
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
        quantize_columns(in + begin, out + begin, size, scales + channel, low, 127.0f);
      });
    else
      for_runs([&](std::int64_t channel, std::int64_t begin) {
        quantize_array(in + begin, out + begin, static_cast<std::size_t>(run), scales[channel], low, 127.0f, false);
      });
    return PreparedObject{result, result->integers.bytes() + result->scales.bytes()};
  }));
}

Tensor Lowering::product_scales(const Quantization& x, const Tensor& weights, const std::string& key) {
  return weights_.get(fmt::format("{}|times {:08x}", key, std::bit_cast<std::uint32_t>(x.scale)), [&] {
    Tensor result(DataType::kFloat32, weights.shape());
    for (std::int64_t c = 0; c < weights.size(); ++c) result.data<float>()[c] = x.scale * weights.data<float>()[c];
    return result;
  });
}

std::vector<std::int64_t> Lowering::exact_slices(const MatMulSpec& spec, const Quantization& a,
                                                 const std::optional<Quantization>& b) {
  std::vector<std::int64_t> cuts{0};
  const double largest_b = b ? largest_of(*b) : 128;
  const auto whole = static_cast<std::int64_t>(kExact / (largest_of(a) * largest_b));
  if (b || spec.k <= whole) {
    for (std::int64_t k = whole; k < spec.k; k += whole) cuts.push_back(k);
  } else {
    const auto found = std::static_pointer_cast<const std::vector<std::int64_t>>(
        weights_.get_object(fmt::format("{}|slices {}", spec.key_b, largest_of(a)), [&] {
          auto result = std::make_shared<std::vector<std::int64_t>>(cuts);
          const Tensor weights = spec.constant_b();
          const std::int64_t matrices = weights.size() / (spec.k * spec.n);
          const float* values = weights.data<float>();
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
          return PreparedObject{std::move(result)};
        }));
    cuts = *found;
  }
  cuts.push_back(spec.k);
  return cuts;
}

std::vector<Tensor> Lowering::exact_parts(const Layer& l, const Tensor& integers, const Quantization& x,
                                          const std::string& key) {
  const auto found = std::static_pointer_cast<const std::vector<Tensor>>(
      weights_.get_object(fmt::format("{}|parts {}", key, largest_of(x)), [&] {
        const std::int64_t count = integers.size();
        std::vector<double> sums(static_cast<std::size_t>(output_channels(spec_, l)), 0.0);
        std::vector<std::size_t> part_of(static_cast<std::size_t>(count)), current(sums.size(), 0);
        for (std::int64_t i = 0; i < count; ++i) {
          const auto c = static_cast<std::size_t>(weight_channel(spec_, l, integers.shape(), i));
          const double magnitude = std::fabs(static_cast<double>(integers.data<float>()[i])) * largest_of(x);
          if (sums[c] + magnitude > kExact) {
            ++current[c];
            sums[c] = 0;
          }
          sums[c] += magnitude;
          part_of[i] = current[c];
        }
        const std::size_t parts = *std::ranges::max_element(current) + 1;
        auto result = std::make_shared<std::vector<Tensor>>();
        if (parts == 1) result->push_back(integers);
        for (std::size_t p = 0; parts > 1 && p < parts; ++p) {
          Tensor part(DataType::kFloat32, integers.shape());
          for (std::int64_t i = 0; i < count; ++i)
            part.data<float>()[i] = part_of[i] == p ? integers.data<float>()[i] : 0.0f;
          result->push_back(std::move(part));
        }
        return PreparedObject{std::move(result), parts * integers.bytes()};
      }));
  return *found;
}

int Lowering::add_integer_parts(std::vector<std::unique_ptr<Kernel>> kernels, const std::vector<int>& inputs,
                                const Shape& shape, LayerId id) {
  std::vector<int> parts;
  for (auto& kernel : kernels) {
    parts.push_back(new_float_slot(shape));
    add_step(std::move(kernel), inputs, {parts.back()}, id);
  }
  if (parts.size() == 1) return parts[0];
  const int sum = new_float_slot(shape);
  add_step(make_integer_sum_kernel(), std::move(parts), {sum}, id);
  return sum;
}

}  // namespace ulpscope::cpu
