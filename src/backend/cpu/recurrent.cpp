#include "backend/cpu/recurrent.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "backend/cpu/integer_product.h"
#include "backend/cpu/program_kernels.h"
#include "core/division.h"
#include "core/parallel.h"
#include "core/vector_clones.h"
#include "formats/rounding.h"
#include "ops/quantization/quantization.h"

namespace ulpscope::cpu {
namespace {

using ops::RecurrentCell;

/// R of one direction as matrices [k, columns] in panels. A GRU that resets the state first has two: of its gates, and
/// of its candidate.
struct PackedForm {
  explicit PackedForm(const ops::RecurrentForm& form) : hidden(form.sizes.hidden), width(padded_gate(hidden)) {
    const std::int64_t panel = program_kernels().recurrent.panel;
    const bool two = form.cell == RecurrentCell::kGru && !form.linear_before_reset;
    first_gates = two ? 2 : form.gates;
    columns = round_up(first_gates * width, panel);
    candidate_columns = two ? round_up(width, panel) : 0;
  }
  std::int64_t size() const { return (columns + candidate_columns) * hidden; }

  std::int64_t hidden, width;
  std::int64_t first_gates;  ///< In the first matrix.
  std::int64_t columns, candidate_columns;
};

/// Columns [0, columns) of `out` are rows [first, first + gates) * hidden of `matrix`, which is [.., k].
void pack_gates(const float* matrix, std::int64_t first, std::int64_t gates, const PackedForm& form,
                std::int64_t columns, float* out) {
  const std::int64_t panel = program_kernels().recurrent.panel, k = form.hidden;
  std::fill_n(out, columns * k, 0.0f);
  for (std::int64_t g = 0; g < gates; ++g)
    for (std::int64_t i = 0; i < form.hidden; ++i) {
      const std::int64_t column = g * form.width + i;
      float* to = out + column / panel * panel * k + column % panel;
      const float* from = matrix + ((first + g) * form.hidden + i) * k;
      for (std::int64_t p = 0; p < k; ++p) to[p * panel] = from[p];
    }
}

PreparedObject pack_recurrent(const Tensor& values, const ops::RecurrentForm& form) {
  const PackedForm packed(form);
  Tensor result(DataType::kFloat32, {form.sizes.directions, packed.size()});
  for (std::int64_t d = 0; d < form.sizes.directions; ++d) {
    const float* from = values.data<float>() + d * form.gates * packed.hidden * packed.hidden;
    float* to = result.data<float>() + d * packed.size();
    pack_gates(from, 0, packed.first_gates, packed, packed.columns, to);
    if (packed.candidate_columns != 0)
      pack_gates(from, packed.first_gates, 1, packed, packed.candidate_columns, to + packed.columns * packed.hidden);
  }
  const std::size_t bytes = result.bytes();
  return {std::make_shared<Tensor>(std::move(result)), bytes};
}

/// R of one direction by dot products of bytes.
MatrixShape bytes_shape(const ops::RecurrentForm& form) {
  MatrixShape shape;
  shape.m = 1;
  shape.k = form.sizes.hidden;
  shape.n = form.gates * padded_gate(form.sizes.hidden);
  shape.transpose_b = true;
  return shape;
}

ULPSCOPE_VECTOR_CLONES void scale_row(const float* scales, float scale, std::int64_t count, float* sums) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] *= scale * scales[i];
}

class RecurrentKernel final : public Kernel {
 public:
  RecurrentKernel(RecurrentSpec spec, PreparedSource weights)
      : spec_(std::move(spec)), packed_(spec_.form), weights_(std::move(weights)) {}

  std::string name() const override { return "recurrence"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const ops::RecurrentSizes& s = spec_.form.sizes;
    const std::shared_ptr<const void> weights = weights_();
    // Sequences of one direction share what they read of the weights; any split gives the same bits.
    const std::int64_t share = (s.batch * s.directions + num_threads() - 1) / num_threads();
    const std::int64_t rows = std::min(s.batch, std::clamp<std::int64_t>(share, 4, 64));
    const std::int64_t blocks = (s.batch + rows - 1) / rows;
    parallel_each(s.directions * blocks, 1, [&](std::int64_t i) {
      const std::int64_t first = i % blocks * rows;
      const float* matrix =
          spec_.by_bytes ? nullptr
                         : static_cast<const Tensor*>(weights.get())->data<float>() + i / blocks * packed_.size();
      Block block{i / blocks, first,         std::min(rows, s.batch - first),
                  matrix,     weights.get(), s.directions * blocks == 1};
      run_block(block, inputs, outputs);
    });
  }

 private:
  /// Some sequences, in one direction.
  struct Block {
    std::int64_t direction, first, rows;
    const float* weights;
    const void* bytes;  ///< Of all directions, by_bytes.
    bool alone;  ///< There is no other one: its products may have all threads.
  };

  static const float* data_of(const Tensor* tensor) { return tensor != nullptr ? tensor->data<float>() : nullptr; }

  /// From a state tensor, or zeros.
  void load_state(const Tensor* state, const Block& block, float* to) const {
    const std::int64_t h = packed_.hidden;
    std::fill_n(to, block.rows * packed_.width, 0.0f);
    if (state == nullptr) return;
    for (std::int64_t r = 0; r < block.rows; ++r)
      std::copy_n(state->data<float>() + spec_.form.sizes.state_at(block.direction, block.first + r), h,
                  to + r * packed_.width);
  }
  void save_state(const float* from, const Block& block, Tensor* state) const {
    if (state == nullptr) return;
    for (std::int64_t r = 0; r < block.rows; ++r)
      std::copy_n(from + r * packed_.width, packed_.hidden,
                  state->data<float>() + spec_.form.sizes.state_at(block.direction, block.first + r));
  }

  void run_block(const Block& block, std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const {
    const ops::RecurrentSizes& s = spec_.form.sizes;
    const auto output = [&](std::size_t i) { return i < outputs.size() ? outputs[i] : nullptr; };
    const auto input = [&](std::size_t i) { return i < inputs.size() ? inputs[i] : nullptr; };
    const bool has_cell = spec_.form.cell == RecurrentCell::kLstm;
    const std::int64_t state = block.rows * packed_.width;
    std::vector<float> memory(static_cast<std::size_t>(5 * state + block.rows * all_columns()));
    float *hidden = memory.data(), *next = hidden + state, *cell = next + state, *update = cell + state;
    float *integers = update + state, *sums = integers + state;
    load_state(input(1), block, hidden);
    if (has_cell) load_state(input(2), block, cell);
    const bool backward = spec_.form.backward || block.direction == 1;
    float* y = output(0) != nullptr ? output(0)->data<float>() : nullptr;
    for (std::int64_t i = 0; i < s.seq; ++i) {
      const std::int64_t t = backward ? s.seq - 1 - i : i;
      step(block, t, data_of(inputs[0]), {hidden, next, cell, update, integers, sums});
      std::swap(hidden, next);
      if (y == nullptr) continue;
      for (std::int64_t r = 0; r < block.rows; ++r)
        std::copy_n(hidden + r * packed_.width, packed_.hidden, y + s.y_at(t, block.direction, block.first + r));
    }
    save_state(hidden, block, output(1));
    if (has_cell) save_state(cell, block, output(2));
  }

  struct State {
    float *hidden, *next, *cell, *update, *integers, *sums;
  };

  std::int64_t all_columns() const { return packed_.columns + packed_.candidate_columns; }

  /// out = a R, or its part for the candidate, of the block's rows. Columns are shared out where they are worth it.
  void multiply(const Block& block, const float* a, const float* weights, std::int64_t columns, float* out) const {
    constexpr std::int64_t kWorthwhile = 48 << 10;  // Multiply-adds: a microsecond or two.
    const RecurrentKernels& kernels = program_kernels().recurrent;
    const std::int64_t k = packed_.hidden, panel = kernels.panel, panels = columns / panel;
    const std::int64_t pieces =
        block.alone ? std::clamp<std::int64_t>(block.rows * k * columns / kWorthwhile, 1, num_threads()) : 1;
    parallel_for(panels, divided_up(panels, pieces), [&](std::int64_t begin, std::int64_t end) {
      kernels.product(a, packed_.width, block.rows, weights + begin * panel * k, k, (end - begin) * panel,
                      out + begin * panel, columns);
    });
  }

  void multiply_quantized(const Block& block, const State& state) const {
    const std::int64_t w = packed_.width, sums = spec_.form.gates * w;
    std::vector<float> scales;
    for (std::int64_t r = 0; r < block.rows; ++r) {
      const std::span<const float> row(state.hidden + r * w, static_cast<std::size_t>(packed_.hidden));
      const ops::DynamicScale by = ops::dynamic_scale(row);
      const auto zero = static_cast<float>(by.zero);
      scales.push_back(by.scale);
      if (spec_.by_bytes)
        multiply_bytes(block, row, by, state.integers, state.sums + r * packed_.columns);
      else
        quantize_array(row.data(), state.integers + r * w, row.size(), by.scale, -zero, 255 - zero, false);
    }
    if (!spec_.by_bytes) multiply(block, state.integers, block.weights, packed_.columns, state.sums);
    for (std::int64_t r = 0; r < block.rows; ++r)
      scale_row(spec_.state_scales.data<float>() + block.direction * sums, scales[static_cast<std::size_t>(r)], sums,
                state.sums + r * packed_.columns);
  }

  /// `memory`: of padded_gate floats.
  void multiply_bytes(const Block& block, std::span<const float> row, const ops::DynamicScale& by, float* memory,
                      float* sums) const {
    const MatrixShape shape = bytes_shape(spec_.form);
    const std::int64_t stride = round_up(shape.k, 4);
    auto* const bytes = reinterpret_cast<std::uint8_t*>(memory);
    ops::quantize_dynamically(row, by, bytes);
    std::fill_n(bytes + shape.k, stride - shape.k, std::uint8_t{0});
    const ByteMatrix matrix = byte_matrix(block.bytes, shape, block.direction, by.zero);
    IntegerPart part{};
    part.a = reinterpret_cast<const std::int16_t*>(bytes);
    part.a_stride = part.k = stride / 2;
    part.b = matrix.b;
    part.start = matrix.start.data();
    part.out = sums;
    part.out_stride = part.columns = shape.n;
    part.rows = 1;
    part.bytes = true;
    program_kernels().product.multiply_integers(part);
  }

  void step(const Block& block, std::int64_t t, const float* from_input, const State& state) const {
    const RecurrentKernels& kernels = program_kernels().recurrent;
    const ops::RecurrentSizes& s = spec_.form.sizes;
    const std::int64_t w = packed_.width, gates = spec_.form.gates * w;
    float* candidates = state.sums + block.rows * packed_.columns;
    const auto row = [&](std::int64_t r) {
      return RecurrentRow{&spec_.form,
                          w,
                          from_input + (s.x_row(t, block.first + r) * s.directions + block.direction) * gates,
                          state.sums + r * packed_.columns,
                          spec_.bias ? spec_.bias.data<float>() + block.direction * w : nullptr,
                          spec_.peephole ? spec_.peephole.data<float>() + block.direction * 3 * w : nullptr,
                          state.hidden + r * w,
                          state.next + r * w,
                          state.cell + r * w,
                          state.update + r * w,
                          candidates + r * packed_.candidate_columns};
    };
    if (spec_.state_scales)
      multiply_quantized(block, state);
    else
      multiply(block, state.hidden, block.weights, packed_.columns, state.sums);
    if (packed_.candidate_columns != 0) {
      for (std::int64_t r = 0; r < block.rows; ++r) kernels.gru_gates(row(r));
      multiply(block, state.next, block.weights + packed_.columns * packed_.hidden, packed_.candidate_columns,
               candidates);
    }
    for (std::int64_t r = 0; r < block.rows; ++r) kernels.cell(row(r));
  }

  const RecurrentSpec spec_;
  const PackedForm packed_;
  const PreparedSource weights_;
};

}  // namespace

std::int64_t padded_gate(std::int64_t hidden) { return round_up(hidden, program_kernels().recurrent.lanes); }

Tensor pad_gates(const Tensor& values, std::int64_t gates, std::int64_t hidden, std::int64_t width, std::int64_t row) {
  const std::int64_t matrices = values.size() / std::max<std::int64_t>(1, gates * hidden * row);
  Tensor result(DataType::kFloat32, {matrices * gates * width, row});
  std::fill_n(result.data<float>(), result.size(), 0.0f);
  for (std::int64_t g = 0; g < matrices * gates; ++g)
    std::copy_n(values.data<float>() + g * hidden * row, hidden * row, result.data<float>() + g * width * row);
  return result;
}

std::unique_ptr<Kernel> make_recurrent_kernel(RecurrentSpec spec, const ObjectCache& cache) {
  PreparedSource weights = cache(fmt::format("recurrent|{}|{}", spec.key, spec.form.linear_before_reset),
                                 [values = spec.recurrent, form = spec.form, by_bytes = spec.by_bytes] {
                                   return by_bytes ? pack_bytes(values(), bytes_shape(form), form.sizes.directions)
                                                   : pack_recurrent(values(), form);
                                 });
  return std::make_unique<RecurrentKernel>(std::move(spec), std::move(weights));
}

}  // namespace ulpscope::cpu
