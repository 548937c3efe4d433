#include "precision/predictor.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <thread>

#include "core/parallel.h"
#include "engine/assign.h"
#include "graph/adjoint.h"
#include "ops/registry.h"
#include "precision/local_errors.h"
#include "runtime/by_shapes.h"
#include "ulpscope/error.h"

namespace ulpscope {

double predicted_use(double amplitude, Sensitivity sensitivity) noexcept {
  return sensitivity == Sensitivity::kOneMinusCos ? amplitude * amplitude : amplitude;
}

double amplitude_of(double used, Sensitivity sensitivity) noexcept {
  return sensitivity == Sensitivity::kOneMinusCos ? std::sqrt(used) : used;
}

namespace {

/// Stands for an error that is not finite: beyond every value that float32 sums can lose, and far from overflow.
constexpr double kStandIn = 1e20;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
class RandomSigns {
 public:
  explicit RandomSigns(std::uint64_t seed) : state_(seed) {}
  double next() {
    if (left_ == 0) {
      state_ += 0x9e3779b97f4a7c15u;
      bits_ = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9u;
      bits_ = (bits_ ^ (bits_ >> 27)) * 0x94d049bb133111ebu;
      bits_ ^= bits_ >> 31;
      left_ = 64;
    }
    const bool bit = (bits_ & 1u) != 0;
    bits_ >>= 1;
    --left_;
    return bit ? 1.0 : -1.0;
  }

 private:
  std::uint64_t state_, bits_ = 0;
  int left_ = 0;
};

/// How many standard deviations the largest of n normal values is likely to have.
double expected_maximum(std::int64_t n) {
  return std::sqrt(2.0 * std::log(2.0 * static_cast<double>(std::max<std::int64_t>(n, 1))));
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

/// What one local error is like.
struct ErrorKind {
  bool overflows = false;  ///< Some of it is not finite.
  bool exact = true;       ///< All of it is 0.
};

/// Replaces what is not finite by something very large, so that it counts exactly where the adjoint is not 0: an
/// attention score of -inf is harmless.
ErrorKind make_finite(Tensor& error, double stand_in) {
  float* d = error.data<float>();
  const std::int64_t n = error.size();
  std::uint32_t any = 0, most = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(d[i]) & 0x7fffffffu;
    any |= magnitude;
    most = std::max(most, magnitude);
  }
  ErrorKind kind;
  kind.exact = any == 0;
  kind.overflows = most >= 0x7f800000u;
  if (kind.overflows)
    for (std::int64_t i = 0; i < n; ++i)
      if (!std::isfinite(d[i])) d[i] = static_cast<float>(stand_in);
  return kind;
}

/// The adjoint network with the products of gradients and local errors as its outputs.
struct Products {
  AdjointNetwork adjoint;
  std::vector<TensorId> wanted;
  std::vector<int> product_of;  ///< Per wanted tensor: which output of the network has its partial sums; -1: none.
  std::unique_ptr<Executable> executable;
};

/// Moves the layers from `first` on to where the first of their inputs that a layer makes is made: gradients are met
/// while they are in the cache, often by the group that makes them, and die.
void place_behind_gradients(Network& network, LayerId first) {
  std::map<LayerId, std::vector<Layer>> behind;  // kNone: of the network's inputs.
  IdMap<TensorId, LayerId> place(network.tensors.size());
  for (LayerId l : network.layers.ids()) {
    Layer& layer = network.layers[l];
    const LayerId at = l < first ? l : place[layer.inputs.front()];
    for (TensorId output : present(layer.outputs)) place[output] = at;
    if (at != l) behind[at].push_back(std::move(layer));
  }
  IdMap<LayerId, Layer> ordered(std::move(behind[kNone]));
  for (LayerId l : first_ids<LayerId>(first.index())) {
    ordered.push_back(std::move(network.layers[l]));
    std::ranges::move(behind[l], std::back_inserter(ordered));
  }
  network.layers = std::move(ordered);
  network.rebuild_index();
}

std::unique_ptr<Products> make_products(const Trials& trials, const Specialization& spec,
                                        std::span<const TensorId> wanted, std::span<const TensorId> outputs) {
  auto made = std::make_unique<Products>();
  made->wanted.assign(wanted.begin(), wanted.end());
  made->adjoint = make_adjoint(trials.network(), spec.inferred, op_registry(), wanted, outputs);
  Network& network = made->adjoint.network;
  network.outputs.clear();
  const LayerId own(network.layers.size());
  const auto add = [&](std::string_view op, std::vector<TensorId> inputs, const std::string& name) {
    TensorInfo info;
    info.name = name;
    info.type = DataType::kFloat32;
    const TensorId output = network.add_tensor(std::move(info));
    Layer layer;
    layer.name = name;
    layer.op = op_registry().find("", op);
    layer.opset = AdjointContext::kAdjointOpset;
    layer.inputs = std::move(inputs);
    layer.outputs = {output};
    network.add_layer(std::move(layer));
    return output;
  };
  TensorId last_axis = kNone;
  for (std::size_t w = 0; w < wanted.size(); ++w) {
    const TensorId gradient = made->adjoint.gradients[w];
    made->product_of.push_back(-1);
    if (gradient == kNone) continue;
    TensorInfo info;
    info.name = fmt::format("local error {}", w);
    info.type = DataType::kFloat32;
    info.shape = *spec.shape(wanted[w]);
    const bool scalar = info.shape->empty();
    const TensorId error = network.add_tensor(std::move(info));
    network.inputs.push_back(error);
    TensorId product = add("Mul", {gradient, error}, fmt::format("product {}", w));
    if (!scalar) {
      if (last_axis == kNone) {
        TensorInfo axis;
        axis.name = "last axis";
        axis.type = DataType::kInt64;
        axis.shape = Shape{1};
        axis.value = Tensor::of<std::int64_t>({1}, {-1});
        last_axis = network.add_tensor(std::move(axis));
      }
      product = add("ReduceSum", {product, last_axis}, fmt::format("sum {}", w));
    }
    made->product_of.back() = static_cast<int>(network.outputs.size());
    network.outputs.push_back(product);
  }
  place_behind_gradients(network, own);
  network.check();
  BuildOptions options;
  options.threads = trials.options().threads;
  std::vector<Shape> shapes;
  for (TensorId input : network.inputs) shapes.push_back(*network.tensor(input).shape);
  const auto product_spec = specialize(network, shapes);
  made->executable = std::make_unique<Executable>(network, assign_precisions(*product_spec, options), options,
                                                  product_spec, trials.weights());
  return made;
}

/// Per layer, the root of the largest mean square over the samples. A few projections give each of these with a large
/// variance, and the largest of noisy numbers is too large; but layers that matter for one sample matter for the others
/// too. So three quarters come from all samples together, at the level of each. Against 64 projections a sample, this
/// makes of 6 what separate samples take 8 for, and of 5 what they take nearly 7 for (minilm, ocr_det; fp16, int8).
std::vector<double> worst_of_samples(const std::vector<std::vector<double>>& mean_squares) {
  constexpr double kShared = 0.75;
  const std::size_t samples = mean_squares.size(), layers = mean_squares.empty() ? 0 : mean_squares.front().size();
  // What is not usual in size would make the level of a sample its own.
  const auto usual = [](double square) { return square < 1; };
  std::vector<double> level(samples, 1.0), result(layers, 0.0);
  std::vector<char> shared(layers, 1);
  double all = 0;
  for (std::size_t i = 0; i < layers; ++i)
    for (std::size_t s = 0; s < samples; ++s) shared[i] &= usual(mean_squares[s][i]) ? 1 : 0;
  for (std::size_t s = 0; s < samples; ++s) {
    double sum = 0;
    for (std::size_t i = 0; i < layers; ++i) sum += shared[i] ? mean_squares[s][i] : 0;
    level[s] = sum;
    all += sum / static_cast<double>(samples);
  }
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

class Prediction {
 public:
  Prediction(Trials& trials, const Assignment& low, std::span<const LayerId> candidates, const Criterion& criterion,
             std::span<const TensorMap> golden, const PredictorOptions& options, std::size_t first)
      : trials_(trials),
        criterion_(criterion),
        golden_(golden),
        options_(options),
        first_(first),
        candidates_(candidates.begin(), candidates.end()),
        local_errors_(trials.network(), low, candidates, trials.options(), trials.weights()) {
    const Network& network = trials.network();
    for (std::size_t i = 0; i < candidates.size(); ++i) index_[candidates[i]] = i;
    for (TensorId id : network.outputs)
      if (is_floating(network.tensor(id).type) && criterion.judges(network.tensor(id).name)) outputs_.push_back(id);
    for (LayerId id : candidates)
      for (TensorId output : present(network.layer(id).outputs))
        if (is_floating(network.tensor(output).type)) wanted_.push_back(output);
  }

  /// `progress` is called by this thread alone.
  std::vector<SampleEffects> run(const std::function<void(int, int)>& progress) {
    std::vector<SampleEffects> result(golden_.size());
    const auto caller = std::this_thread::get_id();
    const int passes = static_cast<int>(golden_.size()) * (options_.projections + 1);
    std::atomic<int> done = 0;
    const auto pass_done = [&] {
      const int now = ++done;
      if (progress && std::this_thread::get_id() == caller) progress(now, passes);
    };
    ByShapes<Products> products;
    for (std::size_t s = 0; s < golden_.size(); ++s) products.expect(trials_.shapes_of(first_ + s));
    run_tasks(0, golden_.size(), share_threads(golden_.size(), bytes_of_sample(), trials_.working_memory()),
              [&](std::size_t s) {
                const auto shapes = trials_.shapes_of(first_ + s);
                const auto made = products.use(shapes, [&] {
                  return make_products(trials_, *trials_.specialization(first_ + s), wanted_, outputs_);
                });
                result[s] = effects_of(s, *made, pass_done);
              });
    return result;
  }

  /// One sample, by products that are kept for the next one of the same shapes.
  SampleEffects run_one(std::size_t sample, const TensorMap& golden, std::size_t number) {
    golden_ = {&golden, 1};
    first_ = sample;
    number_ = number;
    const auto shapes = trials_.shapes_of(sample);
    if (kept_ == nullptr || kept_shapes_ != shapes) {
      kept_.reset();
      kept_ = make_products(trials_, *trials_.specialization(sample), wanted_, outputs_);
      kept_shapes_ = shapes;
    }
    return effects_of(0, *kept_, [] {});
  }

 private:
  /// Of what the largest sample needs: errors, values of the network, gradients.
  std::size_t bytes_of_sample() {
    std::size_t result = 0;
    for (std::size_t s = 0; s < golden_.size(); ++s) {
      const auto spec = trials_.specialization(first_ + s);
      std::size_t bytes = 0;
      for (TensorId id : wanted_)
        if (spec->shape(id)) bytes += static_cast<std::size_t>(num_elements(*spec->shape(id))) * sizeof(float);
      result = std::max(result, 2 * bytes);
    }
    return result;
  }

  SampleEffects effects_of(std::size_t s, Products& made, const std::function<void()>& pass_done) {
    SampleEffects result;
    result.mean_squares.assign(candidates_.size(), 0.0);
    result.overflows = result.incomplete = std::vector<char>(candidates_.size(), 0);
    LocalErrors::Result local = local_errors_.run(trials_.inputs(first_ + s), made.adjoint.forward);
    pass_done();
    std::vector<Tensor> feeds = std::move(local.values);
    // Which outputs the adjoint starts from: all that have a known shape.
    std::vector<TensorId> seeded;
    for (std::size_t o = 0; o < outputs_.size(); ++o)
      if (made.adjoint.seeds[o] != kNone) seeded.push_back(outputs_[o]);
    const std::size_t first_seed = feeds.size();
    feeds.resize(first_seed + seeded.size());
    std::vector<ErrorKind> kinds(wanted_.size());
    parallel_for(static_cast<std::int64_t>(wanted_.size()), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto w = static_cast<std::size_t>(begin); w < static_cast<std::size_t>(end); ++w)
        kinds[w] = make_finite(local.errors[w].error, kStandIn);
    });
    for (std::size_t w = 0; w < wanted_.size(); ++w) {
      const std::size_t at = index_.at(local.errors[w].layer);
      result.overflows[at] |= kinds[w].overflows ? 1 : 0;
      result.incomplete[at] |= made.adjoint.incomplete[w];
      if (made.product_of[w] >= 0) feeds.push_back(local.errors[w].error);
    }
    // The projections go in turn over all outputs: their errors are independent, so squares add.
    for (int k = 0; k < options_.projections; ++k) {
      for (std::size_t o = 0; o < seeded.size(); ++o) feeds[first_seed + o] = seed(s, k, o, seeded[o]);
      const std::vector<Tensor> sums = made.executable->run(feeds);
      std::vector<double> dot(candidates_.size(), 0.0);
      for (std::size_t w = 0; w < wanted_.size(); ++w) {
        // No error is none, even where the gradient is infinite.
        if (made.product_of[w] < 0 || kinds[w].exact) continue;
        double total = 0;
        for (float value : sums[made.product_of[w]].values<float>()) total += value;
        dot[index_.at(local.errors[w].layer)] += total;
      }
      for (std::size_t i = 0; i < dot.size(); ++i) result.mean_squares[i] += dot[i] * dot[i] / options_.projections;
      pass_done();
    }
    return result;
  }

  Tensor seed(std::size_t s, int k, std::size_t o, TensorId output) const {
    const std::string& name = trials_.network().tensor(output).name;
    const auto golden_output = std::ranges::find_if(golden_[s], [&](const auto& t) { return t.name == name; });
    RandomSigns signs(options_.seed + 0x1000003u * (number_ + s + 1) + 0x10001u * static_cast<std::uint64_t>(k + 1) +
                      977u * o);
    return projection(golden_output->tensor, name, criterion_, signs);
  }

  Trials& trials_;
  const Criterion& criterion_;
  std::span<const TensorMap> golden_;
  const PredictorOptions options_;
  std::size_t first_, number_ = 0;  ///< Of golden_: its first sample, and that one's number among those predicted from.
  std::unique_ptr<Products> kept_;
  std::vector<Shape> kept_shapes_;
  const std::vector<LayerId> candidates_;
  std::map<LayerId, std::size_t> index_;
  std::vector<TensorId> outputs_, wanted_;
  LocalErrors local_errors_;
};

}  // namespace

SamplePredictor::SamplePredictor(Trials& trials, const Assignment& low, std::span<const LayerId> candidates,
                                 const Criterion& criterion, const PredictorOptions& options)
    : run_([prediction = std::make_shared<Prediction>(trials, low, candidates, criterion, std::span<const TensorMap>(),
                                                      options, 0)](std::size_t sample, const TensorMap& golden,
                                                                   std::size_t number) {
        return prediction->run_one(sample, golden, number);
      }) {}

std::vector<LayerEffect> combine_effects(std::span<const LayerId> candidates, std::vector<SampleEffects> samples) {
  std::vector<LayerEffect> effects;
  for (LayerId id : candidates) effects.push_back({id, 0, false, false});
  std::vector<std::vector<double>> mean_squares;  // [sample][candidate]
  for (SampleEffects& each : samples) {
    for (std::size_t i = 0; i < effects.size(); ++i) {
      effects[i].overflows |= each.overflows[i] != 0;
      effects[i].incomplete |= each.incomplete[i] != 0;
    }
    mean_squares.push_back(std::move(each.mean_squares));
  }
  const std::vector<double> scores = worst_of_samples(mean_squares);
  for (std::size_t i = 0; i < effects.size(); ++i) {
    double score = scores[i];
    // A gradient that overflows says nothing about the size of the effect.
    if (!std::isfinite(score) && !effects[i].overflows) effects[i].incomplete = true;
    if (!std::isfinite(score) || (effects[i].overflows && score > 1)) score = kInfinity;
    effects[i].effect = score;
  }
  return effects;
}

std::vector<LayerEffect> predict_effects(Trials& trials, const Assignment& low, std::span<const LayerId> candidates,
                                         const Criterion& criterion, std::span<const TensorMap> golden,
                                         const PredictorOptions& options, std::size_t first,
                                         const std::function<void(int, int)>& progress) {
  return combine_effects(candidates,
                         Prediction(trials, low, candidates, criterion, golden, options, first).run(progress));
}

}  // namespace ulpscope
