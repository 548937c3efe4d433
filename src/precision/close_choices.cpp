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

/// What rounding may move a value by, as a share of it; coarse elements err less in a sum than alone.
double step_of(Precision precision) {
  return is_float(precision) ? std::ldexp(0.5, -range_of(precision).mantissa_bits) : 0x1p-6;
}

constexpr double kMoves = 0.25;  ///< Of the logarithm of a probability.

std::span<const float> row_at(const ops::Rows& rows, std::int64_t row) {
  return {rows.tensor.data<float>() + row * rows.length, static_cast<std::size_t>(rows.length)};
}

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

std::optional<ops::Rows> CloseChoices::rows_of(const Choice& choice, const Tensor& values) const {
  const Layer& layer = spec_.network->layer(choice.layer);
  const auto axes_of = choice.softmax         ? layer.op->axes
                       : ops::is_top_k(layer) ? ops::axes_of_attribute<-1>
                                              : ops::axes_of_attribute<0>;
  const auto axes = axes_of(layer, values.rank(), nullptr);
  return axes ? std::optional(ops::to_rows(values, *axes)) : std::nullopt;
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
    const auto rows = rows_of(choice, values);
    for (std::int64_t row = 0; rows && row < rows->count; ++row) {
      const std::span<const float> x = row_at(*rows, row);
      const float most = std::accumulate(x.begin(), x.end(), -std::numeric_limits<float>::infinity(),
                                         [](float a, float b) { return std::max(a, b); });
      if (std::isfinite(most) && std::fabs(most) * step >= kMoves) found->second = 1;
    }
  }
}

bool CloseChoices::is_close(const Choice& choice, std::span<const float> x, std::span<const float> y) {
  if (std::ssize(x) <= choice.count || choice.count < 1) return false;
  double squares = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) return false;  // Has no order.
    if (const double d = static_cast<double>(y[i]) - x[i]; std::isfinite(d)) squares += d * d;
  }
  const double error = std::sqrt(squares / static_cast<double>(x.size()));
  if (error == 0 || (choice.softmax && error < kMoves)) return false;
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto next = order.begin() + choice.count;
  const auto value = [&](std::size_t i) { return choice.sign * x[i]; };
  std::ranges::nth_element(order, next, std::greater(), value);
  const std::size_t last = *std::ranges::min_element(order.begin(), next, std::less(), value);
  const double gap = choice.sign * (static_cast<double>(x[last]) - x[*next]);
  // Equal values that are rounded alike stay in the order of their places.
  if (gap == 0 && x[last] == y[last] && x[*next] == y[*next]) return false;
  return gap <= 2 * error;
}

void CloseChoices::count(const Choice& choice, const Tensor& exact, const Tensor& low, Found& found) const {
  if (exact.shape() != low.shape()) return;
  const auto x = rows_of(choice, exact), y = rows_of(choice, low);
  const std::int64_t before = found.close;
  for (std::int64_t row = 0; x && row < x->count; ++row, ++found.rows)
    found.close += is_close(choice, row_at(*x, row), row_at(*y, row)) ? 1 : 0;
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
