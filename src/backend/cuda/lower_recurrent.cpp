// LSTM, GRU and RNN: W x of all times as one product, then a generated kernel per time step.
#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/layers.h"
#include "backend/recurrent_layer.h"

namespace ulpscope::cuda {
namespace {

using Input = RecurrentInput;

/// States of a layer in one buffer, all zeros at first.
enum Slot : std::int64_t { kHidden, kNextHidden, kCell, kUpdate = kCell, kScaled, kSlots };

}  // namespace

struct Layers::Recurrence {
  View sums;                 ///< As input_sums() made it,
  std::int64_t columns = 0;  ///< with so many columns.
  std::vector<Pointer> parameters;
  View weights, y;          ///< No `y`: nobody reads it.
  std::vector<View> slots;  ///< States, per Slot.
};

View Layers::input_sums(const LayerKernel& kernel, const ops::RecurrentForm& form, std::int64_t& columns) {
  const ops::RecurrentSizes& s = form.sizes;
  const Operand &x = kernel.operands[Input::kX], &w = kernel.operands[Input::kW];
  const DataType type = type_of(x.rounding);
  const std::int64_t wanted = s.directions * form.gates * s.hidden;
  columns = (wanted + 7) / 8 * 8;
  MatrixWeights weights{constants_.key(w), constants_.source(w), {}};
  if (columns != wanted) weights = Matrices::padded(weights, columns);
  MatrixProductSpec spec{.m = s.seq * s.batch, .n = columns, .k = s.input};
  spec.operands = type;
  spec.result = DataType::kFloat32;
  spec.tf32 = x.rounding == Rounding::kTF32;
  const View a = matrices_.read_matrix(x, type, {spec.m, spec.k}, spec.a, 1),
             b = steps_.constant_memory(weights.key, type, weights.values);
  spec.b = {1, spec.k, 0};
  spec.d = {columns, 1, 0};
  spec.alignment = std::min(alignment_of(a), alignment_of(b));
  if (!target_.has_product(spec)) return {};
  const View sums = steps_.new_view(DataType::kFloat32, {spec.m, columns}, {columns, 1});
  ProductStep step;
  step.spec = spec;
  step.a = pointer(a);
  step.b = pointer(b);
  step.d = pointer(sums);
  steps_.add(std::move(step));
  return sums;
}

/// What all time steps read beside the weights: biases and peepholes.
std::vector<Pointer> Layers::recurrent_parameters(const LayerKernel& kernel, RecurrentStepSpec& step) {
  const Layer& l = layer(kernel.layer);
  std::vector<Pointer> parameters;
  if (l.input(Input::kB) != kNone) {
    step.biased = true;
    const Tensor biases = constants_.get(kernel.operands[Input::kB]);
    const auto add_bias = [&](const Tensor& bias) {
      parameters.push_back(pointer(memory_.constant_view(bias, DataType::kFloat32)));
    };
    add_bias(ops::summed_biases(biases, step.form));
    if (step.form.linear_before_reset) add_bias(ops::candidate_biases(biases, step.form));
  }
  if (l.input(Input::kPeephole) != kNone) {
    step.peepholes = true;
    parameters.push_back(pointer(memory_.constant_view(kernel.operands[Input::kPeephole], DataType::kFloat32)));
  }
  return parameters;
}

/// Rows of zeros behind each row of R, so that kernels read whole words.
View Layers::recurrent_weights(const Operand& r, const RecurrentStepSpec& step) {
  const std::int64_t hidden = step.form.sizes.hidden, width = recurrent_width(hidden);
  return steps_.constant_memory(fmt::format("{}|rows of {}", constants_.key(r), width), step.weights,
                                [source = constants_.source(r), hidden, width] {
                                  const Tensor own = source();
                                  const std::int64_t rows = own.size() / hidden;
                                  Tensor wide = zero_padded({}, {rows, width});
                                  for (std::int64_t i = 0; i < rows; ++i)
                                    std::copy_n(own.data<float>() + i * hidden, hidden, wide.data<float>() + i * width);
                                  return wide;
                                });
}

/// A kernel for every time step, two where a gate scales the state first, with both directions in it. States take turns
/// between two slots, since all blocks of a step read what the step before left.
void Layers::add_time_steps(const RecurrentStepSpec& step, const Recurrence& memory) {
  const ops::RecurrentForm& form = step.form;
  const ops::RecurrentSizes& s = form.sizes;
  std::vector<SharedSource> sources;
  for (KernelSource& source : recurrent_sources(step)) sources.push_back(shared(std::move(source)));
  const auto with = [](std::vector<Pointer> some, const std::vector<Pointer>& others) {
    some.insert(some.end(), others.begin(), others.end());
    return some;
  };
  const auto slot = [&](Slot i) { return pointer(memory.slots[i]); };
  for (std::int64_t i = 0; i < s.seq; ++i) {
    const Pointer hidden = slot(i % 2 == 0 ? kHidden : kNextHidden), next = slot(i % 2 == 0 ? kNextHidden : kHidden);
    std::vector<Pointer> from, to{next};
    if (form.cell == ops::RecurrentCell::kLstm) to.push_back(slot(kCell));
    for (std::int64_t d = 0; d < s.directions; ++d) {
      const std::int64_t t = d == 1 || form.backward ? s.seq - 1 - i : i;
      View part = memory.sums;
      part.offset = s.x_row(t, 0) * memory.columns + d * form.gates * s.hidden;
      from.push_back(pointer(part));
      if (memory.y.buffer < 0) continue;
      View step_of_y = memory.y;
      step_of_y.offset = t * memory.y.strides[s.batch_first ? 1 : 0] + d * memory.y.strides[s.batch_first ? 2 : 1];
      to.push_back(pointer(step_of_y));
    }
    from.push_back(pointer(memory.weights));
    if (sources.size() == 1) {
      steps_.add(KernelStep{sources[0], with(with(from, {hidden}), memory.parameters), to});
    } else {
      const std::vector<Pointer> made{slot(kUpdate), slot(kScaled)};
      steps_.add(KernelStep{sources[0], with(with(from, {hidden}), memory.parameters), made});
      steps_.add(KernelStep{sources[1], with(with(with(from, {made[1]}), memory.parameters), {hidden, made[0]}), to});
    }
  }
}

/// One product with all inputs ahead, then the time steps, then copies of the last states where these are wanted in
/// another type.
bool Layers::lower_recurrent(const LayerKernel& kernel) {
  const auto form = recurrent_layer(spec_, kernel);
  if (!form) return false;
  const ops::RecurrentSizes& s = form->sizes;
  const Operand &x = kernel.operands[Input::kX], &r = kernel.operands[Input::kR];
  // Blocks have three indices, the last of few bits.
  constexpr std::int64_t kMostSequences = 8 * 65535;
  if (x.is_encoded() || type_of(x.rounding) != type_of(r.rounding) || s.batch > kMostSequences) return false;
  for (const Store& store : kernel.outputs)
    if (store.exact || !is_exact(type_of(store.rounding), store.rounding)) return false;

  RecurrentStepSpec step{.form = *form, .weights = type_of(r.rounding)};
  Recurrence memory;
  memory.sums = input_sums(kernel, *form, memory.columns);
  if (memory.sums.buffer < 0) return false;
  step.sum_stride = s.batch_first ? s.seq * memory.columns : memory.columns;
  memory.parameters = recurrent_parameters(kernel, step);
  memory.weights = recurrent_weights(r, step);

  // States, in the order that kernels have them in.
  const std::int64_t width = recurrent_width(s.hidden), size = s.directions * s.batch * width;
  const View states = steps_.new_view(DataType::kFloat32, {kSlots, size}, {size, 1});
  for (std::int64_t i = 0; i < kSlots; ++i) {
    View view = states;
    view.offset = i * size;
    view.strides = s.batch_first ? std::vector{width, s.batch * width, std::int64_t{1}}
                                 : std::vector{s.batch * width, width, std::int64_t{1}};
    memory.slots.push_back(std::move(view));
  }
  steps_.add_clear(states);
  for (const auto& [input, to] : {std::pair{Input::kHidden, kHidden}, {Input::kCell, kCell}})
    if (kernel.operands.size() > input && kernel.operands[input].tensor != kNone)
      steps_.add_copy(memory_.read_as(kernel.operands[input], DataType::kFloat32), memory.slots[to], s.state_shape());

  if (!kernel.outputs.empty() && kernel.outputs[0].tensor != kNone) {
    // Y lies so that the directions of a time step are side by side, as what follows usually wants them.
    const std::int64_t row = s.directions * s.hidden;
    memory.y =
        memory_.define(kernel.outputs[0], s.batch_first ? std::vector{s.seq * row, row, s.hidden, std::int64_t{1}}
                                                        : std::vector{s.batch * row, s.hidden, row, std::int64_t{1}});
    step.y = {memory.y.type, kernel.outputs[0].rounding, memory.y.strides[s.batch_first ? 0 : 2]};
  }
  add_time_steps(step, memory);

  const Slot last[] = {s.seq % 2 == 0 ? kHidden : kNextHidden, kCell};
  for (std::size_t o = 1; o < kernel.outputs.size(); ++o) {
    const View& state = memory.slots[last[o - 1]];
    if (const Store& store = kernel.outputs[o]; store.tensor != kNone && !memory_.alias(store, state))
      steps_.add_copy(state, memory_.define(store, ops::strides_of(s.state_shape())), s.state_shape());
  }
  return true;
}

}  // namespace ulpscope::cuda
