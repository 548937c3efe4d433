#include "ops/recurrent/recurrent.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "ops/type_rules.h"

namespace ulpscope::ops {
namespace {

struct KnownActivation {
  std::string_view name;  // In lower case: exporters differ in the spelling.
  Activation::Kind kind;
  double alpha, beta;  // Defaults of the corresponding ONNX operators.
  int parameters;      // How many values it takes from activation_alpha and activation_beta.
};

using Kind = Activation::Kind;
constexpr KnownActivation kActivations[] = {
    {"relu", Kind::kRelu, 0, 0, 0},
    {"tanh", Kind::kTanh, 0, 0, 0},
    {"sigmoid", Kind::kSigmoid, 0, 0, 0},
    {"affine", Kind::kAffine, 1, 0, 2},
    {"leakyrelu", Kind::kLeakyRelu, 0.01f, 0, 1},
    {"thresholdedrelu", Kind::kThresholdedRelu, 1, 0, 1},
    {"scaledtanh", Kind::kScaledTanh, 1, 1, 2},
    {"hardsigmoid", Kind::kHardSigmoid, 0.2f, 0.5f, 2},
    {"elu", Kind::kElu, 1, 0, 1},
    {"softsign", Kind::kSoftsign, 0, 0, 0},
    {"softplus", Kind::kSoftplus, 0, 0, 0},
};

}  // namespace

Shape RecurrentSizes::sequence_shape() const {
  return batch_first ? Shape{batch, seq, directions, hidden} : Shape{seq, directions, batch, hidden};
}

Shape RecurrentSizes::state_shape() const {
  return batch_first ? Shape{batch, directions, hidden} : Shape{directions, batch, hidden};
}

std::int64_t RecurrentSizes::x_row(std::int64_t t, std::int64_t n) const noexcept {
  return batch_first ? n * seq + t : t * batch + n;
}

std::int64_t RecurrentSizes::y_at(std::int64_t t, std::int64_t d, std::int64_t n) const noexcept {
  return (batch_first ? (n * seq + t) * directions + d : (t * directions + d) * batch + n) * hidden;
}

std::int64_t RecurrentSizes::state_at(std::int64_t d, std::int64_t n) const noexcept {
  return (batch_first ? n * directions + d : d * batch + n) * hidden;
}

RecurrentSizes recurrent_sizes(const Layer& layer, const Shape& x, const Shape& w, const Shape& r, std::int64_t gates) {
  if (x.size() != 3 || w.size() != 3 || r.size() != 3)
    fail(layer, fmt::format("expected X, W and R of rank 3, got shapes {}, {} and {}", to_string(x), to_string(w),
                            to_string(r)));
  RecurrentSizes s;
  s.batch_first = layer.attributes.integer("layout", 0) != 0;
  s.seq = x[s.batch_first ? 1 : 0];
  s.batch = x[s.batch_first ? 0 : 1];
  s.input = x[2];
  s.hidden = r[2];
  const std::string direction = layer.attributes.text("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    fail(layer, fmt::format("expected 'direction' to be forward, reverse or bidirectional, got '{}'", direction));
  s.directions = direction == "bidirectional" ? 2 : 1;
  if (const std::int64_t hidden = layer.attributes.integer("hidden_size", s.hidden); hidden != s.hidden)
    fail(layer, fmt::format("'hidden_size' is {}, but R has shape {}", hidden, to_string(r)));
  if (w != Shape{s.directions, gates * s.hidden, s.input} || r != Shape{s.directions, gates * s.hidden, s.hidden})
    fail(layer, fmt::format("W {} and R {} do not fit X {} with {} direction(s)", to_string(w), to_string(r),
                            to_string(x), s.directions));
  return s;
}

void infer_recurrent(InferContext& ctx, std::int64_t gates, int states) {
  for (int i = 0; i <= states; ++i) ctx.set_type(i, ctx.type(0));
  require_type_of_first(ctx, {1, 2, 3, 5, 6, 7});
  const RecurrentSizes s = recurrent_sizes(ctx.layer(), ctx.shape(0), ctx.shape(1), ctx.shape(2), gates);
  if (ctx.has_input(3) && ctx.shape(3) != Shape{s.directions, 2 * gates * s.hidden})
    ctx.fail(fmt::format("expected B of shape {}, got {}", to_string({s.directions, 2 * gates * s.hidden}),
                         to_string(ctx.shape(3))));
  for (int i = 5; i < 5 + states; ++i)
    if (ctx.has_input(i) && ctx.shape(i) != s.state_shape())
      ctx.fail(fmt::format("expected an initial state of shape {}, got {}", to_string(s.state_shape()),
                           to_string(ctx.shape(i))));
  ctx.set_shape(0, s.sequence_shape());
  for (int i = 1; i <= states; ++i) ctx.set_shape(i, s.state_shape());
}

template <typename T>
T Activation::operator()(T x) const {
  const T a = static_cast<T>(alpha), b = static_cast<T>(beta), one{1};
  switch (kind) {
    case Kind::kRelu:
      return std::max(T{}, x);
    case Kind::kTanh:
      return std::tanh(x);
    case Kind::kSigmoid:
      return one / (one + std::exp(-x));
    case Kind::kAffine:
      return a * x + b;
    case Kind::kLeakyRelu:
      return x >= 0 ? x : a * x;
    case Kind::kThresholdedRelu:
      return x >= a ? x : T{};
    case Kind::kScaledTanh:
      return a * std::tanh(b * x);
    case Kind::kHardSigmoid:
      return std::clamp(a * x + b, T{}, one);
    case Kind::kElu:
      return x >= 0 ? x : a * std::expm1(x);
    case Kind::kSoftsign:
      return x / (one + std::abs(x));
    case Kind::kSoftplus:
      return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
  }
  return x;
}
template float Activation::operator()(float) const;
template double Activation::operator()(double) const;

std::vector<Activation> activations_of(const Layer& layer, const std::vector<std::string>& defaults,
                                       std::int64_t directions) {
  std::vector<std::string> names = layer.attributes.texts("activations");
  if (names.empty())
    for (std::int64_t d = 0; d < directions; ++d) names.insert(names.end(), defaults.begin(), defaults.end());
  if (names.size() == defaults.size() && directions == 2) names.insert(names.end(), names.begin(), names.end());
  if (names.size() != defaults.size() * static_cast<std::size_t>(directions))
    fail(layer, fmt::format("expected {} activations, got {}", defaults.size() * static_cast<std::size_t>(directions),
                            names.size()));
  const auto alphas = layer.attributes.reals("activation_alpha"), betas = layer.attributes.reals("activation_beta");
  // Values are consumed in the order of the functions that take any.
  std::size_t next_alpha = 0, next_beta = 0;
  std::vector<Activation> result;
  for (const std::string& name : names) {
    std::string lower = name;
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    const auto* known = std::find_if(std::begin(kActivations), std::end(kActivations),
                                     [&](const KnownActivation& k) { return k.name == lower; });
    if (known == std::end(kActivations)) fail(layer, fmt::format("unknown activation '{}'", name));
    Activation activation{known->kind, known->alpha, known->beta};
    if (known->parameters >= 1 && next_alpha < alphas.size()) activation.alpha = alphas[next_alpha++];
    if (known->parameters >= 2 && next_beta < betas.size()) activation.beta = betas[next_beta++];
    result.push_back(activation);
  }
  return result;
}

std::vector<std::int64_t> sequence_lengths(const KernelContext& ctx, const RecurrentSizes& s) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(s.batch), s.seq);
  if (!ctx.has_input(4)) return lengths;
  lengths = ctx.integers(4);
  if (static_cast<std::int64_t>(lengths.size()) != s.batch)
    ctx.fail(fmt::format("expected {} sequence lengths, got {}", s.batch, lengths.size()));
  for (std::int64_t length : lengths)
    if (length < 0 || length > s.seq) ctx.fail(fmt::format("sequence length {} is outside of [0, {}]", length, s.seq));
  return lengths;
}

}  // namespace ulpscope::ops
