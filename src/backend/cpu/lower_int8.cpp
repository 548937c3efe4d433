// Operands of layers that read elements, and products of integers: they are held in float32, where every sum of
// magnitude up to 2^24 is exact; longer sums are cut into pieces.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/lowering.h"
#include "core/parallel.h"
#include "engine/int8.h"
#include "formats/rounding.h"

namespace ulpscope::cpu {
namespace {

constexpr double kExact = 0x1p24;

double largest_of(const Quantization& q) { return q.is_unsigned() ? 255 : 128; }

}  // namespace

int Lowering::read_operand(LayerId id, const Operand& operand, Layout layout) {
  if (!operand.is_encoded()) return read(operand, layout, id);
  if (spec_.is_constant(operand.tensor)) return constant_slot(constants_.dequantized(id, operand));
  return read_elements(operand, layout, IntegerForm::kDequantized, id);
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

std::vector<Tensor> Lowering::exact_parts(const Layer& l, const Tensor& weights, const Quantization& x,
                                          const std::string& key) {
  const auto found = std::static_pointer_cast<const std::vector<Tensor>>(
      weights_.get_object(fmt::format("{}|parts {}", key, largest_of(x)), [&] {
        const Tensor integers = weights.in_memory();
        const std::int64_t count = integers.size();
        std::vector<double> sums(static_cast<std::size_t>(output_channels(spec_, l)), 0.0);
        std::vector<std::size_t> part_of(static_cast<std::size_t>(count)), current(sums.size(), 0);
        const ScaleLayout layout = weight_scales(spec_, l);
        for (std::int64_t i = 0; i < count; ++i) {
          const auto c = static_cast<std::size_t>(layout.index(i));
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
        if (parts == 1) result->push_back(weights);
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
