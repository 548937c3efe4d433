// Rows of the normalizations, of the losses and of Det. Expected values: the definition, in double.
#include <functional>

#include "ops/op_rows.h"

namespace ulpscope::test::normalization_rows {
namespace {

using Indices = std::vector<std::int64_t>;
const Attribute one = std::int64_t{1};

double at(const Tensor& t, std::int64_t i) { return t.data<float>()[i]; }

struct Statistics {
  double mean = 0, variance = 0, mean_square = 0;
};

/// Of the elements i with same_group(i).
Statistics measure(const Tensor& x, const std::function<bool(std::int64_t)>& in_group) {
  Statistics s;
  double count = 0;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    if (!in_group(i)) continue;
    s.mean += at(x, i);
    s.mean_square += at(x, i) * at(x, i);
    count += 1;
  }
  s.mean /= count;
  s.mean_square /= count;
  for (std::int64_t i = 0; i < x.size(); ++i)
    if (in_group(i)) s.variance += (at(x, i) - s.mean) * (at(x, i) - s.mean) / count;
  return s;
}

using Group = std::function<std::int64_t(std::int64_t)>;

Statistics of_element(const Tensor& x, const Group& group, std::int64_t i) {
  return measure(x, [&](std::int64_t j) { return group(j) == group(i); });
}

/// (x - mean) / sqrt(variance + epsilon) * scale + shift, where group and parameter map an element's index.
Tensor standardized(const Tensor& x, const Group& group, double epsilon, const Tensor& scale, const Tensor& shift,
                    const Group& parameter) {
  return generated(x.shape(), [&](std::int64_t i) {
    const Statistics s = of_element(x, group, i);
    const double shifted = shift ? at(shift, parameter(i)) : 0.0;
    return (at(x, i) - s.mean) / std::sqrt(s.variance + epsilon) * at(scale, parameter(i)) + shifted;
  });
}

// (2, 4, 3): samples of 12 elements, channels of 3.
const Tensor x = spread({2, 4, 3}, -2, 5, 4);
const Tensor scale3 = f32({3}, {0.5F, -1, 2}), shift3 = f32({3}, {1, 0, -2});
const Tensor scale4 = f32({4}, {0.5F, -1, 2, 1.5F}), shift4 = f32({4}, {1, 0, -2, 0.25F});
const Group by_row = [](std::int64_t i) { return i / 3; };
const Group by_half_sample = [](std::int64_t i) { return i / 6; };
const Group by_sample = [](std::int64_t i) { return i / 12; };
const Group channel = [](std::int64_t i) { return i / 3 % 4; };
const Group column = [](std::int64_t i) { return i % 3; };
const Group in_sample = [](std::int64_t i) { return i % 12; };
constexpr double kEpsilon = 1e-5F;

Tensor row_means() {
  return generated({2, 4, 1}, [](std::int64_t i) { return of_element(x, by_row, i * 3).mean; });
}
Tensor row_inverses() {
  return generated({2, 4, 1},
                   [](std::int64_t i) { return 1 / std::sqrt(of_element(x, by_row, i * 3).variance + kEpsilon); });
}

Tensor rms(const Tensor& t, const Group& group, const Tensor& scale, const Group& parameter, double epsilon) {
  return generated(t.shape(), [&](std::int64_t i) {
    return at(t, i) / std::sqrt(of_element(t, group, i).mean_square + epsilon) * at(scale, parameter(i));
  });
}

const Tensor scale12 = spread({4, 3}, 0.5, 2, 9);
const Tensor bias3 = f32({3}, {0.1F, 0.2F, 0.3F});
const Tensor skip = spread({2, 4, 3}, -1, 1, 8);
const Tensor sum = mapped(x, skip, [](double a, double b) { return a + b; });

// Batch statistics of (2, 4, 3) per channel.
const Tensor mean4 = f32({4}, {0.1F, 0.2F, -0.3F, 1}), variance4 = f32({4}, {1, 0.5F, 2, 0.1F});
Tensor batch_inference() {
  return generated(x.shape(), [](std::int64_t i) {
    const std::int64_t c = channel(i);
    return (at(x, i) - at(mean4, c)) / std::sqrt(at(variance4, c) + kEpsilon) * at(scale4, c) + at(shift4, c);
  });
}
Tensor running(const Tensor& before, bool variance, double momentum) {
  return generated({4}, [&](std::int64_t c) {
    const Statistics s = of_element(x, channel, c * 3);
    return at(before, c) * momentum + (variance ? s.variance : s.mean) * (1 - momentum);
  });
}

Tensor local_response(double alpha, double beta, double bias) {  // size 3
  return generated(x.shape(), [&](std::int64_t i) {
    double squares = 0;
    for (std::int64_t c = channel(i) - 1; c <= channel(i) + 1; ++c)
      if (c >= 0 && c < 4) squares += std::pow(at(x, i + (c - channel(i)) * 3), 2);
    return at(x, i) / std::pow(bias + alpha / 3 * squares, beta);
  });
}

// Losses: three classes.
const Tensor logs = f32({2, 3}, {-1, -2, -3, -0.5F, -0.25F, -4});
const Tensor class_weights = f32({3}, {1, 2, 3});
const Tensor scores = spread({2, 3, 2}, -2, 2, 6);
Tensor log_probabilities() {
  return generated(scores.shape(), [](std::int64_t i) {
    double total = 0;
    for (std::int64_t c = 0; c < 3; ++c) total += std::exp(at(scores, i / 6 * 6 + c * 2 + i % 2));
    return at(scores, i) - std::log(total);
  });
}
Tensor cross_entropy(const Indices& targets) {
  const Tensor log = log_probabilities();
  return generated(
      {2, 2}, [&](std::int64_t i) { return -at(log, i / 2 * 6 + targets[static_cast<std::size_t>(i)] * 2 + i % 2); });
}
double mean_of(const Tensor& t) {
  return measure(t, [](std::int64_t) { return true; }).mean;
}

const AddRows rows({
    {"LayerNormalization",
     "last axis",
     17,
     {},
     {x, scale3, shift3},
     {standardized(x, by_row, kEpsilon, scale3, shift3, column), row_means(), row_inverses()}},
    {"LayerNormalization",
     "two axes without a bias",
     17,
     {{"axis", std::int64_t{-2}}, {"epsilon", 0.1F}},
     {x, scale12},
     {standardized(x, by_sample, double{0.1F}, scale12, Tensor(), in_sample)}},
    {"LayerNormalization",
     "float16",
     17,
     {},
     {f16({1, 2}, {-1, 3}), f16({2}, {1, 2}), f16({2}, {0, 1})},
     {f16({1, 2}, {-1, 3}), f32({1, 1}, {1})},
     1e-3},
    {"RMSNormalization", "last axis", 23, {}, {x, scale3}, {rms(x, by_row, scale3, column, kEpsilon)}},
    {"RMSNormalization",
     "two axes",
     23,
     {{"axis", one}},
     {x, scale12},
     {rms(x, by_sample, scale12, in_sample, kEpsilon)}},
    {"SimplifiedLayerNormalization", "last axis", 17, {}, {x, scale3}, {rms(x, by_row, scale3, column, kEpsilon)}},
    {"SkipLayerNormalization",
     "with bias and sum",
     1,
     {{"epsilon", 1e-5F}},
     {x, mapped(skip, [](double v) { return v - 0.5; }), scale3, shift3, f32({3}, {0.5F, 0.5F, 0.5F})},
     {standardized(sum, by_row, kEpsilon, scale3, shift3, column), Tensor(), Tensor(), sum},
     2e-6,
     "com.microsoft"},
    {"SkipSimplifiedLayerNormalization",
     "with the sum",
     1,
     {{"epsilon", 1e-5F}},
     {x, skip, scale3},
     {rms(sum, by_row, scale3, column, kEpsilon), Tensor(), Tensor(), sum},
     2e-6,
     "com.microsoft"},
    {"GroupNormalization",
     "per channel",
     21,
     {{"num_groups", std::int64_t{2}}},
     {x, scale4, shift4},
     {standardized(x, by_half_sample, kEpsilon, scale4, shift4, channel)}},
    {"GroupNormalization",
     "per group",
     18,
     {{"num_groups", std::int64_t{2}}},
     {x, f32({2}, {2, 3}), f32({2}, {1, -1})},
     {standardized(x, by_half_sample, kEpsilon, f32({2}, {2, 3}), f32({2}, {1, -1}),
                   [](std::int64_t i) { return i / 6 % 2; })}},
    {"InstanceNormalization",
     "no channels",
     22,
     {},
     {Tensor(DataType::kFloat32, {2, 0, 3}), Tensor(DataType::kFloat32, {0}), Tensor(DataType::kFloat32, {0})},
     {Tensor(DataType::kFloat32, {2, 0, 3})}},
    {"InstanceNormalization",
     "per channel",
     6,
     {{"epsilon", 0.01F}},
     {x, scale4, shift4},
     {standardized(x, by_row, double{0.01F}, scale4, shift4, channel)}},
    {"LpNormalization", "2-norm", 22, {}, {f32({2, 2}, {3, -4, 0, 0})}, {f32({2, 2}, {0.6F, -0.8F, 0, 0})}},
    {"LpNormalization",
     "1-norm of columns",
     1,
     {{"p", one}, {"axis", std::int64_t{0}}},
     {f32({2, 2}, {3, -4, 1, 4})},
     {f32({2, 2}, {0.75F, -0.5F, 0.25F, 0.5F})}},
    {"MeanVarianceNormalization",
     "axes",
     13,
     {{"axes", Indices{0, 2}}},
     {x},
     {standardized(x, channel, 0, f32({1}, {1}), Tensor(), [](std::int64_t) { return 0; })},
     2e-6},
    {"LRN",
     "size 3",
     13,
     {{"size", std::int64_t{3}}, {"alpha", 0.5F}, {"beta", 0.5F}, {"bias", 2.0F}},
     {x},
     {local_response(0.5, 0.5, 2)}},
    {"BatchNormalization", "inference", 15, {}, {x, scale4, shift4, mean4, variance4}, {batch_inference()}},
    {"BatchNormalization",
     "inference before opset 14",
     9,
     {},
     {x, scale4, shift4, mean4, variance4},
     {batch_inference()}},
    {"BatchNormalization",
     "training",
     15,
     {{"training_mode", one}, {"momentum", 0.75F}},
     {x, scale4, shift4, mean4, variance4},
     {standardized(x, channel, kEpsilon, scale4, shift4, channel), running(mean4, false, 0.75),
      running(variance4, true, 0.75)}},
    {"BatchNormalization",
     "one dimension",
     15,
     {},
     {f32({2}, {1, 3}), f32({1}, {2}), f32({1}, {1}), f32({1}, {1}), f32({1}, {4})},
     {f32({2}, {1, 3})},
     1e-5},
    {"NegativeLogLikelihoodLoss", "mean", 13, {}, {logs, i64({2}, {2, 1})}, {f32({}, {(3 + 0.25F) / 2})}},
    {"NegativeLogLikelihoodLoss",
     "weighted mean",
     22,
     {},
     {logs, i32({2}, {2, 1}), class_weights},
     {f32({}, {(9 + 0.5F) / 5})}},
    {"NegativeLogLikelihoodLoss",
     "ignores",
     12,
     {{"reduction", std::string("none")}, {"ignore_index", std::int64_t{-1}}},
     {logs, i64({2}, {-1, 0})},
     {f32({2}, {0, 0.5F})}},
    {"SoftmaxCrossEntropyLoss",
     "none",
     13,
     {{"reduction", std::string("none")}},
     {scores, i64({2, 2}, {0, 2, 1, 1})},
     {cross_entropy({0, 2, 1, 1}), log_probabilities()}},
    {"SoftmaxCrossEntropyLoss",
     "sum",
     12,
     {{"reduction", std::string("sum")}},
     {scores, i64({2, 2}, {0, 2, 1, 1})},
     {Tensor::scalar(static_cast<float>(4 * mean_of(cross_entropy({0, 2, 1, 1}))))}},
    {"Det", "one matrix", 22, {}, {f32({2, 2}, {0, 2, 3, 4})}, {f32({}, {-6})}},
    {"Det",
     "a batch",
     11,
     {},
     {f64({2, 3, 3}, {2, 0, 0, 0, 3, 0, 0, 0, 4, 1, 2, 3, 4, 5, 6, 7, 8, 9})},
     {f64({2}, {24, 0})},
     1e-14},
});

}  // namespace
}  // namespace ulpscope::test::normalization_rows
