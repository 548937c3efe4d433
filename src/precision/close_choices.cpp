#include "precision/close_choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>

#include "calibration/calibration.h"
#include "core/messages.h"
#include "engine/quantized_choices.h"
#include "ops/forms.h"
#include "precision/value_counts.h"

namespace ulpscope {
namespace {

/// A tensor as rows along an axis: body(first element, elements, their distance).
template <typename Body>
void for_rows(const Shape& shape, std::int64_t axis, const Body& body) {
  const auto at = static_cast<std::size_t>(axis);
  const std::int64_t n = shape[at];
  const auto product = [](auto begin, auto end) {
    return std::accumulate(begin, end, std::int64_t{1}, std::multiplies());
  };
  const std::int64_t inner = product(shape.begin() + axis + 1, shape.end());
  const std::int64_t outer = product(shape.begin(), shape.begin() + axis);
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < inner; ++i) body(o * n * inner + i, n, inner);
}

/// What rounding may move a value by, as a share of it; coarse elements err less in a sum than alone.
double step_of(Precision precision) {
  return is_float(precision) ? std::ldexp(0.5, -range_of(precision).mantissa_bits) : 0x1p-6;
}

constexpr double kMoves = 0.25;  ///< Of the logarithm of a probability.

}  // namespace

CloseChoices::CloseChoices(const Specialization& spec, const Assignment& chosen) : spec_(spec), chosen_(chosen) {
  for (const auto& [id, layer] : spec.network->layers.items()) {
    const TensorId input = layer.input(0);
    if (spec.folded[id] || input == kNone || spec.is_constant(input) || !is_floating(spec.type(input))) continue;
    Choice choice{id};
    if (layer.op->kind == OpKind::kSoftmax) {
      choice.softmax = true;
      large_[input] = 0;
    } else if (ops::is_top_k(layer)) {
      const TensorId count = layer.input(1);
      if (count != kNone && !spec.is_constant(count)) continue;
      choice.count = count == kNone ? layer.attributes.integer("k", 1)
                                    : spec.value(count).cast(DataType::kInt64).values<std::int64_t>()[0];
      if (layer.attributes.integer("largest", 1) == 0) choice.sign = -1;
    } else if (ops::is_arg_min(layer)) {
      choice.sign = -1;
    } else if (!ops::is_arg_max(layer)) {
      continue;
    }
    choices_.push_back(choice);
  }
}

TensorId CloseChoices::operand(const Choice& choice) const { return spec_.network->layer(choice.layer).inputs[0]; }

std::int64_t CloseChoices::axis_of(const Choice& choice, std::size_t rank) const {
  const Layer& layer = spec_.network->layer(choice.layer);
  const bool first = ops::is_arg_max(layer) || ops::is_arg_min(layer);
  const std::int64_t axis = layer.attributes.integer("axis", first ? 0 : -1);
  return axis < 0 ? axis + static_cast<std::int64_t>(rank) : axis;
}

void CloseChoices::add(TensorId tensor, const Tensor& given) {
  const auto found = large_.find(tensor);
  if (found == large_.end() || given.type() != DataType::kFloat32 || given.rank() == 0) return;
  const Tensor values = given.in_memory();
  const LayerId producer = spec_.network->tensor(tensor).producer;
  Precision lowest = Precision::kFP32;
  for (const Precision precision : chosen_.precision)
    if (step_of(precision) > step_of(lowest)) lowest = precision;
  const Precision own = producer == kNone ? lowest : chosen_.precision[producer];
  const double step = std::max(step_of(own), is_float(lowest) ? step_of(lowest) : 0.0);
  for (const Choice& choice : choices_) {
    if (!choice.softmax || operand(choice) != tensor) continue;
    for_rows(values.shape(), axis_of(choice, values.rank()), [&](std::int64_t at, std::int64_t n, std::int64_t by) {
      float most = -std::numeric_limits<float>::infinity();
      for (std::int64_t i = 0; i < n; ++i) most = std::max(most, values.data<float>()[at + i * by]);
      if (std::isfinite(most) && std::fabs(most) * step >= kMoves) found->second = 1;
    });
  }
}

void CloseChoices::count(const Choice& choice, const Tensor& exact, const Tensor& low, Found& found) const {
  if (exact.shape() != low.shape() || exact.rank() == 0) return;
  const float *x = exact.data<float>(), *y = low.data<float>();
  const std::int64_t before = found.close;
  std::vector<std::int64_t> order;
  for_rows(exact.shape(), axis_of(choice, exact.rank()), [&](std::int64_t at, std::int64_t n, std::int64_t by) {
    ++found.rows;
    if (n <= choice.count || choice.count < 1) return;
    double squares = 0;
    for (std::int64_t i = 0; i < n; ++i)
      if (std::isnan(x[at + i * by]))
        return;  // Has no order.
      else if (const double d = static_cast<double>(y[at + i * by]) - x[at + i * by]; std::isfinite(d))
        squares += d * d;
    const double error = std::sqrt(squares / static_cast<double>(n));
    if (error == 0 || (choice.softmax && error < kMoves)) return;
    order.resize(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), at);
    for (std::int64_t& i : order) i = at + (i - at) * by;
    const auto next = order.begin() + choice.count;
    std::ranges::nth_element(order, next, std::greater(), [&](std::int64_t i) { return choice.sign * x[i]; });
    const std::int64_t last =
        *std::ranges::min_element(order.begin(), next, std::less(), [&](std::int64_t i) { return choice.sign * x[i]; });
    const double gap = choice.sign * (static_cast<double>(x[last]) - x[*next]);
    // Equal values that are rounded alike stay in the order of their places.
    if (gap == 0 && x[last] == y[last] && x[*next] == y[*next]) return;
    if (gap <= 2 * error) ++found.close;
  });
  found.samples += found.close > before ? 1 : 0;
}

void CloseChoices::warn(Trials& trials) const {
  std::vector<Choice> choices;
  std::vector<TensorId> operands;
  for (const Choice& choice : choices_) {
    if (choice.softmax && large_.at(operand(choice)) == 0) continue;
    choices.push_back(choice);
    operands.push_back(operand(choice));
  }
  if (choices.empty()) return;
  const Network network = with_outputs(trials.network(), operands);
  Executable exact(network, trials.full_precision(), trials.options(), nullptr, trials.weights());
  Executable low(network, chosen_, trials.options(), nullptr, trials.weights());
  std::vector<Found> found(choices.size());
  for (std::size_t s = 0; s < trials.num_samples(); ++s) {
    const std::vector<Tensor> values = exact.run(trials.inputs(s)), rounded = low.run(trials.inputs(s));
    for (std::size_t c = 0; c < choices.size(); ++c)
      count(choices[c], values[c].cast(DataType::kFloat32).in_memory(), rounded[c].cast(DataType::kFloat32).in_memory(),
            found[c]);
  }
  std::vector<std::string> layers;
  for (std::size_t c = 0; c < choices.size(); ++c) {
    if (found[c].samples == 0) continue;
    const Layer& layer = network.layer(choices[c].layer);
    layers.push_back(fmt::format("'{}' ({}) in {} of {} samples, {} of {} choices", layer.name, layer.op->name,
                                 found[c].samples, trials.num_samples(), found[c].close, found[c].rows));
  }
  if (layers.empty()) return;
  log_warning(
      "[search] {} layer(s) choose between values that differ by less than rounding errors of the answer do: {}. "
      "Another program rounds in other places and may choose otherwise, and its outputs then err by more than the "
      "answer says; try verify with many samples there, or keep more of the layers ahead of these",
      layers.size(), first_names(layers));
}

}  // namespace ulpscope
