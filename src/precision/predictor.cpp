#include "precision/predictor.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <ranges>
#include <thread>

#include "compare/metrics.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "precision/error_products.h"
#include "runtime/by_shapes.h"
#include "runtime/memory_limit.h"

namespace ulpscope {

namespace {
bool is_of_squares(Sensitivity sensitivity) noexcept {
  return sensitivity == Sensitivity::kOneMinusCos || sensitivity == Sensitivity::kDivergence;
}
}  // namespace

double effect_beyond(const LayerEffect& effect, double deviations) noexcept {
  constexpr double kFurthest = 10;
  return effect.effect * std::min(std::exp(deviations * effect.spread), kFurthest);
}

double predicted_use(double amplitude, Sensitivity sensitivity) noexcept {
  return is_of_squares(sensitivity) ? amplitude * amplitude : amplitude;
}

double amplitude_of(double used, Sensitivity sensitivity) noexcept {
  return is_of_squares(sensitivity) ? std::sqrt(used) : used;
}

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
class RandomSigns {
 public:
  explicit RandomSigns(std::uint64_t seed) : state_(seed) {}
  /// From 0 to 1, below it.
  double uniform() { return static_cast<double>(word() >> 11) * 0x1p-53; }
  double next() {
    if (left_ == 0) {
      bits_ = word();
      left_ = 64;
    }
    const bool bit = (bits_ & 1u) != 0;
    bits_ >>= 1;
    --left_;
    return bit ? 1.0 : -1.0;
  }

 private:
  std::uint64_t word() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t bits = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    return bits ^ (bits >> 31);
  }

  std::uint64_t state_, bits_ = 0;
  int left_ = 0;
};

/// How many standard deviations the largest of n normal values is likely to have.
double expected_maximum(std::int64_t n) {
  return std::sqrt(2.0 * std::log(2.0 * static_cast<double>(std::max<std::int64_t>(n, 1))));
}

/// Of rows of logits y, each the gradient of the logarithm of the probability of a label that is drawn from these: its
/// square times the error's is twice the divergence to second order (the Fisher information). Of rows of probabilities
/// themselves, signs over the roots of these.
void project_divergence(const Tensor& golden, double threshold, RandomSigns& signs, float* v) {
  const std::span<const float> y = golden.values<float>();
  const auto row = golden.shape().empty() ? std::size_t{1} : static_cast<std::size_t>(golden.shape().back());
  const std::size_t rows = row == 0 ? 0 : y.size() / row;
  const bool are_probabilities = rows_are_probabilities(golden);
  const double scale = 1 / std::sqrt(2 * threshold * static_cast<double>(std::max<std::size_t>(rows, 1)));
  std::vector<double> p(row);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::span<const float> of = y.subspan(r * row, row);
    float* to = v + r * row;
    if (are_probabilities) {
      for (std::size_t i = 0; i < row; ++i)
        to[i] = static_cast<float>(signs.next() * scale / std::sqrt(std::max<double>(of[i], 1e-12)));
      continue;
    }
    const double largest = *std::ranges::max_element(of);
    double sum = 0;
    for (std::size_t i = 0; i < row; ++i) sum += p[i] = std::isfinite(largest) ? std::exp(of[i] - largest) : 1;
    double left = signs.uniform() * sum;
    std::size_t label = 0;
    while (label + 1 < row && !(left < p[label])) left -= p[label++];
    for (std::size_t i = 0; i < row; ++i) to[i] = static_cast<float>(scale * ((i == label ? 1.0 : 0.0) - p[i] / sum));
  }
}

/// A vector v such that <v, d> has, over its random signs, the root mean square of the share of the tolerance that an
/// error d of this output uses (as an amplitude).
Tensor projection(const Tensor& golden, const std::string& output, const Criterion& criterion, RandomSigns& signs) {
  Tensor result(DataType::kFloat32, golden.shape());
  float* v = result.data<float>();
  const Tensor values = golden.type() == DataType::kFloat32 ? golden : golden.cast(DataType::kFloat32);
  const float* y = values.data<float>();
  const std::int64_t n = golden.size();
  double squares = 0, largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double value = std::isfinite(y[i]) ? y[i] : 0.0;
    squares += value * value;
    largest = std::max(largest, std::abs(value));
  }
  const double norm = squares > 0 ? std::sqrt(squares) : 1.0,
               count = std::sqrt(static_cast<double>(std::max<std::int64_t>(n, 1)));
  const double threshold = std::max(criterion.threshold(output), 1e-30);
  switch (criterion.sensitivity()) {
    case Sensitivity::kRelativeL2:
      for (std::int64_t i = 0; i < n; ++i) v[i] = static_cast<float>(signs.next() / (norm * threshold));
      break;
    case Sensitivity::kRelativeMax: {
      const double scale = expected_maximum(n) / (count * (largest > 0 ? largest : 1.0) * threshold);
      for (std::int64_t i = 0; i < n; ++i) v[i] = static_cast<float>(signs.next() * scale);
      break;
    }
    case Sensitivity::kOneMinusCos: {
      // 1 - cos is |d'|^2 / (2 |y|^2) with d' the part of d that is orthogonal to y.
      std::vector<double> s(static_cast<std::size_t>(n));
      double along = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        s[i] = signs.next();
        along += s[i] * (std::isfinite(y[i]) ? y[i] : 0.0) / norm;
      }
      const double scale = 1.0 / (norm * std::sqrt(2.0 * threshold));
      for (std::int64_t i = 0; i < n; ++i) {
        const double unit = (std::isfinite(y[i]) ? y[i] : 0.0) / norm;
        v[i] = static_cast<float>((s[i] - along * unit) * scale);
      }
      break;
    }
    case Sensitivity::kDivergence:
      project_divergence(values, threshold, signs, v);
      break;
    case Sensitivity::kElementwise: {
      const double atol = criterion.atol(output), rtol = criterion.rtol(output);
      const double scale = expected_maximum(n) / count;
      for (std::int64_t i = 0; i < n; ++i) {
        const double tolerance = std::max({atol, rtol * std::abs(static_cast<double>(y[i])), 1e-30});
        v[i] = static_cast<float>(signs.next() * scale / tolerance);
      }
      break;
    }
  }
  return result;
}

/// Of each sample, the sum over the layers whose effects are usual in size on all of them: `shared`. What is not would
/// make the level of a sample its own.
std::vector<double> levels_of(const std::vector<std::vector<double>>& mean_squares, std::vector<char>& shared) {
  std::vector<double> level;
  shared.assign(mean_squares.front().size(), 1);
  for (const std::vector<double>& sample : mean_squares)
    for (std::size_t i = 0; i < shared.size(); ++i) shared[i] &= sample[i] < 1 ? 1 : 0;
  for (const std::vector<double>& sample : mean_squares) {
    double& sum = level.emplace_back(0);
    for (std::size_t i = 0; i < shared.size(); ++i) sum += shared[i] ? sample[i] : 0;
  }
  return level;
}

/// LayerEffect::spread of each layer. The logarithm of a mean of K squared normal values has a variance of about
/// 2 / K + 2 / K^2, a quarter of that as an amplitude. Only what is beyond the 99.9th percentile of what n samples show
/// of this noise (chi squared; Wilson and Hilferty, "The distribution of chi-square", 1931) is a spread.
std::vector<double> spreads_of(const std::vector<std::vector<double>>& mean_squares, int projections) {
  constexpr std::size_t kFewest = 4;
  constexpr double kQuantile = 3.09;
  const std::size_t samples = mean_squares.size(), layers = samples == 0 ? 0 : mean_squares.front().size();
  std::vector<double> spreads(layers, 0.0);
  if (samples < kFewest) return spreads;
  std::vector<char> shared;
  const std::vector<double> level = levels_of(mean_squares, shared);
  if (!std::ranges::all_of(level, [](double each) { return each > 0; })) return spreads;
  const double k = projections, noise = (2 / k + 2 / (k * k)) / 4, freedom = static_cast<double>(samples - 1);
  const double part = 2 / (9 * freedom), most = noise * std::pow(1 - part + kQuantile * std::sqrt(part), 3);
  for (std::size_t i = 0; i < layers; ++i) {
    double sum = 0, squares = 0;
    for (std::size_t s = 0; s < samples; ++s) {
      const double log = std::log(mean_squares[s][i] / level[s]) / 2;
      sum += log;
      squares += log * log;
    }
    const double variance = (squares - sum * sum / static_cast<double>(samples)) / freedom;
    if (std::isfinite(variance) && variance > most) spreads[i] = std::sqrt(variance - noise);
  }
  return spreads;
}

/// Per layer, the root of the largest mean square over the samples. A few projections give each of these with a large
/// variance, and the largest of noisy numbers is too large; but layers that matter for one sample matter for the others
/// too. So three quarters come from all samples together, at the level of each. Against 64 projections a sample, this
/// makes of 6 what separate samples take 8 for, and of 5 what they take nearly 7 for (minilm, ocr_det; fp16, int8).
std::vector<double> worst_of_samples(const std::vector<std::vector<double>>& mean_squares) {
  constexpr double kShared = 0.75;
  const std::size_t samples = mean_squares.size(), layers = mean_squares.empty() ? 0 : mean_squares.front().size();
  std::vector<double> result(layers, 0.0);
  if (samples == 0) return result;
  std::vector<char> shared;
  const std::vector<double> level = levels_of(mean_squares, shared);
  double all = 0;
  for (const double sum : level) all += sum / static_cast<double>(samples);
  for (std::size_t i = 0; i < layers; ++i) {
    double together = 0, worst = 0;
    for (std::size_t s = 0; s < samples; ++s) together += mean_squares[s][i] / static_cast<double>(samples);
    for (std::size_t s = 0; s < samples; ++s) {
      const double own = mean_squares[s][i];
      const double square = shared[i] && all > 0 ? (1 - kShared) * own + kShared * together * level[s] / all : own;
      // NaN is the worst.
      if (!(square <= worst)) worst = square;
    }
    result[i] = std::sqrt(worst);
  }
  return result;
}

/// Float outputs that the criterion looks at.
std::vector<TensorId> judged_outputs(const Network& network, const Criterion& criterion) {
  std::vector<TensorId> outputs;
  for (TensorId id : network.outputs)
    if (is_floating(network.tensor(id).type) && criterion.judges(network.tensor(id).name)) outputs.push_back(id);
  return outputs;
}

class Prediction {
 public:
  Prediction(Trials& trials, const Assignment& low, std::span<const LayerId> candidates, const Criterion& criterion,
             std::span<const TensorMap> golden, const PredictorOptions& options, std::size_t first,
             std::vector<Precision> precisions = {}, ErrorProducts::Fold fold = ErrorProducts::Fold::kSum)
      : trials_(trials),
        low_(low),
        criterion_(criterion),
        golden_(golden),
        options_(options),
        first_(first),
        candidates_(candidates.begin(), candidates.end()),
        precisions_(std::move(precisions)),
        fold_(fold) {
    add_part(0, candidates_.size());
  }

  /// `progress` is called by this thread alone.
  std::vector<SampleEffects> run(const std::function<void(int, int)>& progress) {
    if (golden_.empty()) return {};
    std::vector<SampleEffects> result(golden_.size(), no_effects());
    const std::size_t bytes = split(largest_sample());
    const auto caller = std::this_thread::get_id();
    const int passes =
        static_cast<int>(golden_.size()) * (options_.projections + 1) * static_cast<int>(std::ssize(parts_));
    std::atomic<int> done = 0;
    const auto pass_done = [&] {
      const int now = ++done;
      if (progress && std::this_thread::get_id() == caller) progress(now, passes);
    };
    for (Part& part : parts_) {
      ByShapes<ErrorProducts> products;
      for (std::size_t s = 0; s < golden_.size(); ++s) products.expect(shapes_of(trials_.inputs(first_ + s)));
      run_tasks(0, golden_.size(), share_threads(golden_.size(), bytes, trials_.working_memory()), [&](std::size_t s) {
        const auto shapes = shapes_of(trials_.inputs(first_ + s));
        const auto made = products.use(shapes, [&] { return make(part, first_ + s); });
        add_effects(s, part, *made, pass_done, result[s]);
        give_back();
      });
      part.made.reset();
    }
    return result;
  }

  /// One sample, by products that are kept for the next one of the same shapes.
  SampleEffects run_one(std::size_t sample, const TensorMap& golden, std::size_t number) {
    golden_ = {&golden, 1};
    first_ = sample;
    number_ = number;
    if (!is_split_) split(sample);
    SampleEffects result = no_effects();
    for (Part& part : parts_) {
      part.made = make(part, sample);
      part.made_for = shapes_of(trials_.inputs(sample));
      add_effects(0, part, *part.made, [] {}, result);
      if (parts_.size() > 1) part.made.reset();
    }
    return result;
  }

 private:
  /// Candidates next to each other, whose errors are there together.
  struct Part {
    std::size_t begin = 0, end = 0;
    std::unique_ptr<ErrorProductsMaker> maker;
    std::shared_ptr<ErrorProducts> made;  ///< For samples of these shapes; null: not yet.
    std::vector<Shape> made_for;
  };

  void add_part(std::size_t begin, std::size_t end) {
    Part& part = parts_.emplace_back();
    part.begin = begin;
    part.end = end;
    const bool own = !precisions_.empty();
    part.maker = std::make_unique<ErrorProductsMaker>(
        trials_, low_, std::span(candidates_).subspan(begin, end - begin),
        judged_outputs(trials_.network(), criterion_), fold_,
        own ? std::span(precisions_).subspan(begin, end - begin) : std::span<const Precision>());
  }

  std::shared_ptr<ErrorProducts> make(Part& part, std::size_t sample) {
    if (part.made != nullptr && part.made_for == shapes_of(trials_.inputs(sample))) return part.made;
    part.made.reset();
    return part.maker->make(sample);
  }

  std::size_t largest_sample() const {
    const auto elements = [&](std::size_t s) {
      std::int64_t sum = 0;
      for (const Tensor& tensor : trials_.inputs(s)) sum += tensor.size();
      return sum;
    };
    return *std::ranges::max_element(std::views::iota(first_, first_ + golden_.size()), {}, elements);
  }

  /// Where the errors of all candidates do not fit within a memory limit, some of them at a time: the sample is run
  /// again for each part. The bytes that it takes.
  std::size_t split(std::size_t sample) {
    constexpr std::size_t kMostParts = 8;
    is_split_ = true;
    Part& whole = parts_.front();
    whole.made = make(whole, sample);
    whole.made_for = shapes_of(trials_.inputs(sample));
    const ErrorProducts::Bytes bytes = whole.made->bytes();
    const std::size_t limit = trials_.memory_limit(), budget = limit / 2;
    if (limit == 0 || bytes.all() <= budget) return bytes.all();
    const std::size_t room = std::max(budget - std::min(budget, bytes.other), bytes.errors / kMostParts + 1);
    const std::size_t count = std::clamp<std::size_t>((bytes.errors + room - 1) / room, 1, candidates_.size());
    parts_.clear();
    for (std::size_t i = 0; i < count; ++i)
      add_part(i * candidates_.size() / count, (i + 1) * candidates_.size() / count);
    const std::size_t needed = bytes.other + bytes.errors / count;
    warn_beyond_limit(limit, needed + trials_.sample_bytes(),
                      fmt::format("the prediction from one sample (values that gradients need: {}, errors: {}) and the "
                                  "inputs and outputs of all take",
                                  to_size_string(bytes.other), to_size_string(bytes.errors / count)),
                      "smaller inputs");
    return needed;
  }

  /// Weights and errors in several formats are tensors of all sizes, whose places others hardly fit into.
  void give_back() const {
    if (!precisions_.empty()) give_back_freed_memory();
  }

  SampleEffects no_effects() const {
    SampleEffects none;
    none.mean_squares.assign(candidates_.size(), 0.0);
    none.overflows.assign(candidates_.size(), 0);
    for (const LayerId id : candidates_)  // Inside of a body there is no adjoint.
      none.incomplete.push_back(trials_.network().layers.contains(id) ? 0 : 1);
    return none;
  }

  void add_effects(std::size_t s, const Part& part, ErrorProducts& products, const std::function<void()>& pass_done,
                   SampleEffects& result) {
    const std::vector<CandidateOutput>& places = part.maker->candidate_outputs();
    ErrorProducts::Sample sample = products.start(trials_.inputs(first_ + s));
    give_back();
    pass_done();
    // The projections go in turn over all outputs: their errors are independent, so squares add.
    std::vector<Tensor> seeds(products.seeded().size());
    for (int k = 0; k < options_.projections; ++k) {
      for (std::size_t o = 0; o < seeds.size(); ++o) seeds[o] = seed(s, k, o, products.seeded()[o]);
      const std::vector<double> of_tensor = products.project(sample, seeds);
      std::vector<double> dot(part.end - part.begin, 0.0);
      for (std::size_t w = 0; w < places.size(); ++w) dot[places[w].candidate] += of_tensor[w];
      for (std::size_t i = 0; i < dot.size(); ++i)
        result.mean_squares[part.begin + i] +=
            (fold_ == ErrorProducts::Fold::kSum ? dot[i] * dot[i] : dot[i]) / options_.projections;
      pass_done();
    }
    for (std::size_t w = 0; w < places.size(); ++w) {
      const std::size_t candidate = part.begin + places[w].candidate;
      result.overflows[candidate] |= sample.kinds[w].overflows ? 1 : 0;
      result.incomplete[candidate] |= products.incomplete(w) ? 1 : 0;
    }
  }

  Tensor seed(std::size_t s, int k, std::size_t o, TensorId output) const {
    const std::string& name = trials_.network().tensor(output).name;
    RandomSigns signs(options_.seed + 0x1000003u * (number_ + s + 1) + 0x10001u * static_cast<std::uint64_t>(k + 1) +
                      977u * o);
    return projection(*find_tensor(golden_[s], name), name, criterion_, signs);
  }

  Trials& trials_;
  const Assignment low_;
  const Criterion& criterion_;
  std::span<const TensorMap> golden_;
  const PredictorOptions options_;
  std::size_t first_, number_ = 0;  ///< Of golden_: its first sample, and that one's number among those predicted from.
  const std::vector<LayerId> candidates_;
  const std::vector<Precision> precisions_;  ///< Per candidate; empty: those of `low_`.
  const ErrorProducts::Fold fold_;
  std::vector<Part> parts_;
  bool is_split_ = false;
};

std::vector<LayerId> layers_of(std::span<const LayerIn> layers) {
  std::vector<LayerId> ids;
  for (const LayerIn& each : layers) ids.push_back(each.layer);
  return ids;
}

std::vector<Precision> precisions_of(std::span<const LayerIn> layers) {
  std::vector<Precision> precisions;
  for (const LayerIn& each : layers) precisions.push_back(each.precision);
  return precisions;
}

}  // namespace

SamplePredictor::SamplePredictor(Trials& trials, const Assignment& low, std::span<const LayerId> candidates,
                                 const Criterion& criterion, const PredictorOptions& options)
    : run_([prediction = std::make_shared<Prediction>(trials, low, candidates, criterion, std::span<const TensorMap>(),
                                                      options, 0)](std::size_t sample, const TensorMap& golden,
                                                                   std::size_t number) {
        return prediction->run_one(sample, golden, number);
      }) {}

std::vector<LayerEffect> combine_effects(std::span<const LayerId> candidates, std::vector<SampleEffects> samples,
                                         int projections) {
  std::vector<LayerEffect> effects;
  for (LayerId id : candidates) effects.push_back({.layer = id});
  std::vector<std::vector<double>> mean_squares;  // [sample][candidate]
  for (SampleEffects& each : samples) {
    for (std::size_t i = 0; i < effects.size(); ++i) {
      effects[i].overflows |= each.overflows[i] != 0;
      effects[i].incomplete |= each.incomplete[i] != 0;
    }
    mean_squares.push_back(std::move(each.mean_squares));
  }
  const std::vector<double> scores = worst_of_samples(mean_squares), spreads = spreads_of(mean_squares, projections);
  for (std::size_t i = 0; i < effects.size(); ++i) {
    double score = scores[i];
    // A gradient that overflows says nothing about the size of the effect.
    if (!std::isfinite(score) && !effects[i].overflows) effects[i].incomplete = true;
    if (!std::isfinite(score) || (effects[i].overflows && score > 1)) score = kInfinity;
    effects[i].effect = score;
    if (i < spreads.size()) effects[i].spread = spreads[i];
  }
  return effects;
}

std::vector<std::vector<double>> predict_squares(Trials& trials, const Assignment& low, std::span<const LayerIn> layers,
                                                 const Criterion& criterion, std::span<const TensorMap> golden,
                                                 const PredictorOptions& options, std::size_t first,
                                                 const std::function<void(int, int)>& progress) {
  Prediction prediction(trials, low, layers_of(layers), criterion, golden, options, first, precisions_of(layers),
                        ErrorProducts::Fold::kChannelSquares);
  std::vector<std::vector<double>> result;
  for (SampleEffects& sample : prediction.run(progress)) result.push_back(std::move(sample.mean_squares));
  return result;
}

std::vector<SampleEffects> effects_of_samples(Trials& trials, const Assignment& low, std::span<const LayerIn> layers,
                                              const Criterion& criterion, std::span<const TensorMap> golden,
                                              const PredictorOptions& options) {
  return Prediction(trials, low, layers_of(layers), criterion, golden, options, 0, precisions_of(layers)).run({});
}

std::vector<LayerEffect> predict_effects(Trials& trials, const Assignment& low, std::span<const LayerId> candidates,
                                         const Criterion& criterion, std::span<const TensorMap> golden,
                                         const PredictorOptions& options, std::size_t first,
                                         const std::function<void(int, int)>& progress) {
  return combine_effects(candidates,
                         Prediction(trials, low, candidates, criterion, golden, options, first).run(progress),
                         options.projections);
}

}  // namespace ulpscope
