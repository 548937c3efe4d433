#include "ops/recurrent/form.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "graph/op.h"
#include "ops/fail.h"

namespace ulpscope::ops {

RecurrentSizes recurrent_sizes(const Layer& layer, const Shape& x, const Shape& w, const Shape& r, std::int64_t gates) {
  if (x.size() != 3 || w.size() != 3 || r.size() != 3)
    fail(layer, "expected X, W and R of rank 3, got shapes {}, {} and {}", to_string(x), to_string(w), to_string(r));
  RecurrentSizes s;
  s.batch_first = layer.attributes.integer("layout", 0) != 0;
  s.seq = x[s.batch_first ? 1 : 0];
  s.batch = x[s.batch_first ? 0 : 1];
  s.input = x[2];
  s.hidden = r[2];
  const std::string direction = layer.attributes.text("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    fail(layer, "expected 'direction' to be forward, reverse or bidirectional, got '{}'", direction);
  s.directions = direction == "bidirectional" ? 2 : 1;
  if (const std::int64_t hidden = layer.attributes.integer("hidden_size", s.hidden); hidden != s.hidden)
    fail(layer, "'hidden_size' is {}, but R has shape {}", hidden, to_string(r));
  if (w != Shape{s.directions, gates * s.hidden, s.input} || r != Shape{s.directions, gates * s.hidden, s.hidden})
    fail(layer, "W {} and R {} do not fit X {} with {} direction(s)", to_string(w), to_string(r), to_string(x),
         s.directions);
  return s;
}

bool is_recurrent(const Layer& layer) {
  return layer.op->function >= Function::kRnn && layer.op->function <= Function::kLstm;
}

namespace {

/// The activations are these, in every direction; exporters differ in the spelling.
bool has_activations(const Layer& layer, std::initializer_list<std::string_view> wanted) {
  const std::vector<std::string> names = layer.attributes.texts("activations");
  for (std::size_t i = 0; i < names.size(); ++i)
    if (!std::ranges::equal(names[i], std::data(wanted)[i % wanted.size()],
                            [](unsigned char a, unsigned char b) { return std::tolower(a) == b; }))
      return false;
  return true;
}

}  // namespace

std::optional<RecurrentForm> recurrent_form(const Layer& layer, const Shape& x, const Shape& w, const Shape& r) {
  RecurrentForm form;
  bool usual = false;
  switch (layer.op->function) {
    case Function::kRnn:
      form.relu = !layer.attributes.texts("activations").empty() && has_activations(layer, {"relu"});
      usual = form.relu || has_activations(layer, {"tanh"});
      break;
    case Function::kGru:
      form.cell = RecurrentCell::kGru;
      form.gates = 3;
      form.linear_before_reset = layer.attributes.integer("linear_before_reset", 0) != 0;
      usual = has_activations(layer, {"sigmoid", "tanh"});
      break;
    case Function::kLstm:
      form.cell = RecurrentCell::kLstm;
      form.gates = 4;
      form.input_forget = layer.attributes.integer("input_forget", 0) != 0;
      usual = has_activations(layer, {"sigmoid", "tanh", "tanh"});
      break;
    default:
      break;
  }
  if (!usual || layer.input(4) != kNone) return std::nullopt;
  form.sizes = recurrent_sizes(layer, x, w, r, form.gates);
  form.backward = layer.attributes.text("direction", "forward") == "reverse";
  form.clip = layer.attributes.real("clip", 0);
  return form;
}

RecurrentSizes dynamic_sizes(const Layer& layer, const Shape& x, Shape w, Shape r) {
  for (Shape* shape : {&w, &r})
    if (shape->size() == 3) std::swap((*shape)[1], (*shape)[2]);
  return recurrent_sizes(layer, x, w, r, 4);
}

bool is_dynamic_lstm(const Layer& layer) { return layer.op->name == "DynamicQuantizeLSTM"; }

std::optional<RecurrentForm> dynamic_form(const Layer& layer, const Shape& x, const Shape& w, const Shape& r) {
  if (!is_dynamic_lstm(layer) || !has_activations(layer, {"sigmoid", "tanh", "tanh"}) || layer.input(4) != kNone)
    return std::nullopt;
  RecurrentForm form;
  form.cell = RecurrentCell::kLstm;
  form.gates = 4;
  form.input_forget = layer.attributes.integer("input_forget", 0) != 0;
  form.sizes = dynamic_sizes(layer, x, w, r);
  form.backward = layer.attributes.text("direction", "forward") == "reverse";
  form.clip = layer.attributes.real("clip", 0);
  return form;
}

DynamicMatrix dynamic_matrix(const Tensor& bytes, const Tensor& scales, const Tensor& zeros) {
  const Shape& shape = bytes.shape();
  DynamicMatrix result{bytes.cast(DataType::kInt32), Tensor(DataType::kFloat32, {shape[0], shape[2]})};
  const auto at = [&](const Tensor& each, std::int64_t d, std::int64_t c) {
    return each.size() == shape[0] ? d : d * shape[2] + c;
  };
  const Tensor zero = zeros ? zeros.cast(DataType::kInt32) : Tensor();
  auto* to = result.centered.data<std::int32_t>();
  for (std::int64_t d = 0; d < shape[0]; ++d) {
    for (std::int64_t i = 0; i < shape[1] * shape[2] && zero; ++i)
      to[d * shape[1] * shape[2] + i] -= zero.data<std::int32_t>()[at(zero, d, i % shape[2])];
    for (std::int64_t c = 0; c < shape[2]; ++c)
      result.scales.data<float>()[d * shape[2] + c] = scales.data<float>()[at(scales, d, c)];
  }
  return result;
}

Tensor summed_biases(const Tensor& biases, const RecurrentForm& form) {
  const std::int64_t h = form.sizes.hidden, rows = form.gates * h;
  Tensor sums(DataType::kFloat32, {form.sizes.directions, rows});
  for (std::int64_t d = 0; d < form.sizes.directions; ++d)
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* of_input = biases.data<float>() + d * 2 * rows;
      const bool separate = form.linear_before_reset && i >= 2 * h;
      sums.data<float>()[d * rows + i] = separate ? of_input[i] : of_input[i] + of_input[rows + i];
    }
  return sums;
}

Tensor candidate_biases(const Tensor& biases, const RecurrentForm& form) {
  const std::int64_t h = form.sizes.hidden, all = 2 * form.gates * h;
  Tensor result(DataType::kFloat32, {form.sizes.directions, h});
  for (std::int64_t d = 0; d < form.sizes.directions; ++d)
    std::copy_n(biases.data<float>() + (d + 1) * all - h, h, result.data<float>() + d * h);
  return result;
}

}  // namespace ulpscope::ops
