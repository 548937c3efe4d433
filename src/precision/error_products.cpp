#include "precision/error_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "backend/backend.h"
#include "core/parallel.h"
#include "engine/assign.h"
#include "graph/adjoint.h"
#include "ops/forms.h"
#include "ops/layer_writer.h"
#include "ops/registry.h"

namespace ulpscope {
namespace {

/// Stands for an error that is not finite: beyond every value that float32 sums can lose, and far from overflow.
constexpr float kStandIn = 1e20f;

/// Replaces what is not finite by something very large, so that it counts exactly where the adjoint is not 0: an
/// attention score of -inf is harmless.
ErrorProducts::Kind make_finite(Tensor& error) {
  float* d = error.data<float>();
  const std::int64_t n = error.size();
  std::uint32_t any = 0, most = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(d[i]) & 0x7fffffffu;
    any |= magnitude;
    most = std::max(most, magnitude);
  }
  const ErrorProducts::Kind kind{most >= 0x7f800000u, any == 0};
  if (kind.overflows)
    for (std::int64_t i = 0; i < n; ++i)
      if (!std::isfinite(d[i])) d[i] = kStandIn;
  return kind;
}

/// Along the last dimension, by the writer's `sum` or `sum_magnitudes`; a scalar stays what it is.
using RowSum = TensorId (LayerWriter::*)(TensorId, TensorId, std::string);
TensorId row_sums(LayerWriter& writer, RowSum sum, TensorId of, const Shape& shape, std::string name) {
  if (shape.empty()) return of;
  return (writer.*sum)(of, writer.initializer("last axis", Tensor::of<std::int64_t>({1}, {-1})), std::move(name));
}

/// The dimension of the output channels, which each have weights of their own.
std::size_t channel_axis(const Specialization& spec, const Images& images, TensorId output) {
  const LayerId producer = spec.network->tensor(output).producer;
  const auto slides = [&](const Layer& layer) {
    return ops::is_convolution(layer) || ops::is_transposed_convolution(layer);
  };
  const std::size_t rank = spec.shape(output)->size();
  const bool is_second = images[output] || (producer != kNone && slides(spec.network->layer(producer)));
  return is_second && rank > 1 ? 1 : rank - 1;
}

/// Along all dimensions but `axis`.
TensorId sums_beside(LayerWriter& writer, std::size_t axis, TensorId of, std::size_t rank, std::string name) {
  std::vector<std::int64_t> others;
  for (std::size_t i = 0; i < rank; ++i)
    if (i != axis) others.push_back(static_cast<std::int64_t>(i));
  if (others.empty()) return of;
  const TensorId axes = writer.initializer(fmt::format("axes but {} of {}", axis, rank),
                                           Tensor::of<std::int64_t>({std::ssize(others)}, others));
  return writer.sum(of, axes, std::move(name));
}

/// Moves the layers from `first` on to where the first of their inputs that a layer makes is made: gradients are met
/// while they are in the cache, often by the group that makes them, and die.
void place_behind_inputs(Network& network, LayerId first) {
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

std::vector<Shape> input_shapes(const Network& network) {
  std::vector<Shape> shapes;
  for (TensorId input : network.inputs) shapes.push_back(*network.tensor(input).shape);
  return shapes;
}

double sum_of(std::span<const float> values) { return std::accumulate(values.begin(), values.end(), 0.0); }

/// The adjoint network with the products of gradients and local errors as its outputs, beside LocalErrors.
class ProductsOfTwo final : public ErrorProducts {
 public:
  ProductsOfTwo(Trials& trials, const Specialization& spec, LocalErrors& local, std::span<const CandidateOutput> places,
                std::span<const TensorId> outputs, Fold fold)
      : ErrorProducts(fold), local_(local) {
    images_ = images_of(spec);
    adjoint_ = adjoint_for(spec, places, outputs);
    Network& network = adjoint_.network;
    network.outputs.clear();
    const LayerId own(network.layers.size());
    LayerWriter writer(network, AdjointContext::kAdjointOpset);
    take_images(writer);
    for (std::size_t w = 0; w < places.size(); ++w) {
      TensorId gradient = adjoint_.gradients[w];
      product_of_.push_back(-1);
      if (gradient == kNone) continue;
      Shape shape = *spec.shape(places[w].tensor);
      if (is_image(places[w].tensor)) {
        gradient = writer.channels_last(gradient);
        shape = channels_last(shape);
      }
      const TensorId error = writer.input(fmt::format("local error {}", w), shape);
      const TensorId product = writer.multiply(gradient, error, fmt::format("product {}", w));
      product_of_.back() = static_cast<int>(network.outputs.size());
      const std::size_t rank = shape.size();
      const std::size_t axis = is_image(places[w].tensor) ? rank - 1 : channel_axis(spec, images_, places[w].tensor);
      std::string name = fmt::format("sum {}", w);
      network.outputs.push_back(fold == Fold::kSum
                                    ? row_sums(writer, &LayerWriter::sum, product, shape, std::move(name))
                                    : sums_beside(writer, axis, product, rank, std::move(name)));
    }
    place_behind_inputs(network, own);
    network.check();
    BuildOptions options;
    options.threads = trials.options().threads;
    const auto product_spec = specialize(network, input_shapes(network));
    executable_ = std::make_unique<Executable>(network, assign_precisions(*product_spec, options), options,
                                               product_spec, trials.weights());
    count_bytes(spec, places);
  }

  Bytes bytes() const override { return bytes_; }

  Sample start(std::span<const Tensor> inputs) override {
    LocalErrors::Result local = local_.run(inputs, adjoint_.forward, images_);
    Sample sample{std::vector<Kind>(local.errors.size()), std::move(local.values), nullptr};
    parallel_each(local.errors.size(), [&](std::size_t w) { sample.kinds[w] = make_finite(local.errors[w].error); });
    for (Tensor& value : sample.feeds)  // The adjoint has floats in float32.
      if (value.type() == DataType::kFloat64) value = value.cast(DataType::kFloat32);
    sample.feeds.resize(sample.feeds.size() + seeded().size());
    for (std::size_t w = 0; w < local.errors.size(); ++w)
      if (product_of_[w] >= 0) sample.feeds.push_back(std::move(local.errors[w].error));
    return sample;
  }

  std::vector<double> project(Sample& sample, std::span<const Tensor> seeds) override {
    std::ranges::copy(seeds, sample.feeds.begin() + static_cast<std::ptrdiff_t>(adjoint_.forward.size()));
    const std::vector<Tensor> sums = executable_->run(sample.feeds);
    std::vector<double> result(product_of_.size(), 0.0);
    for (std::size_t w = 0; w < result.size(); ++w)  // No error is none, even where the gradient is infinite.
      if (product_of_[w] >= 0 && !sample.kinds[w].exact) result[w] = folded(sums[product_of_[w]].values<float>());
    return result;
  }

 private:
  static Shape channels_last(const Shape& shape) { return {shape[0], shape[2], shape[3], shape[1]}; }
  bool is_image(TensorId id) const { return !images_.empty() && images_[id]; }

  /// The adjoint reads forward values that are images as [n, h, w, c].
  void take_images(LayerWriter& writer) {
    Network& network = adjoint_.network;
    const std::size_t layers = network.layers.size(), inputs = network.inputs.size();
    std::map<TensorId, TensorId> turned;
    for (std::size_t i = 0; i < adjoint_.forward.size(); ++i) {
      const TensorId input = network.inputs[i];
      if (!is_image(adjoint_.forward[i])) continue;
      const TensorInfo info = network.tensor(input);
      const TensorId image = writer.input(info.name + " as it lies", channels_last(*info.shape), info.type);
      network.inputs[i] = image;
      turned[input] = writer.transpose(image, {0, 3, 1, 2});
      network.tensor(turned[input]).type = info.type;  // A comparison of images has bools.
    }
    network.inputs.resize(inputs);
    for (const LayerId l : first_ids<LayerId>(layers))
      for (TensorId& input : network.layers[l].inputs)
        if (const auto found = turned.find(input); found != turned.end()) input = found->second;
    for (TensorId& gradient : adjoint_.gradients)
      if (const auto found = turned.find(gradient); found != turned.end()) gradient = found->second;
  }

  void count_bytes(const Specialization& spec, std::span<const CandidateOutput> places) {
    const auto size = [&](TensorId id) {
      const auto& shape = spec.shape(id);
      return shape ? static_cast<std::size_t>(num_elements(*shape)) * sizeof(float) : 0;
    };
    for (const CandidateOutput& place : places) bytes_.errors += size(place.tensor);
    for (const TensorId id : adjoint_.forward) bytes_.other += size(id);
    bytes_.other += std::max(local_.activation_bytes(spec.input_shapes, adjoint_.forward, images_),
                             executable_->arena_bytes(input_shapes(adjoint_.network)));
  }

  Bytes bytes_;
  LocalErrors& local_;
  Images images_;  ///< That the two networks hand on as they lie; none where it is empty.
  AdjointNetwork adjoint_;
  std::vector<int> product_of_;  ///< Per place: which output of the network has its partial sums; -1: none.
  std::unique_ptr<Executable> executable_;
};

/// Whether every twin stores in another type than the layers around it, and so is a group by itself at every level of
/// fusion.
bool is_apart(const Assignment& low, std::span<const LayerId> candidates) {
  return std::ranges::all_of(candidates,
                             [&](LayerId id) { return storage_of(low.precision[id]) != DataType::kFloat32; });
}

/// The network with its twins, the adjoint and the products as one network, whose outputs are the row sums of all
/// products and of the magnitudes of all errors.
class ProductsInOne final : public ErrorProducts {
 public:
  using MakeOther = std::function<std::shared_ptr<ErrorProducts>()>;

  /// `other` makes what a sample is left to when its errors are not numbers.
  ProductsInOne(Trials& trials, const Specialization& spec, const Assignment& low, std::span<const LayerId> candidates,
                std::span<const Precision> precisions, std::span<const CandidateOutput> places,
                std::span<const TensorId> outputs, Fold fold, MakeOther other)
      : ErrorProducts(fold),
        twins_(with_twins(trials.network(), low, candidates, precisions)),
        make_other_(std::move(other)) {
    Network& network = twins_.network;
    const LayerId first_twin(trials.network().layers.size());
    const std::vector<TensorId> gradients = append(adjoint_for(spec, places, outputs));
    const std::vector<LayerId> sums = add_sums(spec, places, gradients);
    place_behind_gradients(first_twin, candidates, places, gradients, sums);
    network.check();
    BuildOptions options = trials.options();
    options.fusion = precisions.empty() && is_apart(low, candidates) ? Fusion::kFull : Fusion::kNone;
    std::vector<Shape> shapes;
    for (TensorId input : network.inputs)
      shapes.push_back(input.index() < trials.network().tensors.size() ? *spec.shape(input)
                                                                       : *network.tensor(input).shape);
    const auto whole = specialize(network, shapes);
    twins_.finish(whole->inferred);
    executable_ = std::make_unique<Executable>(network, twins_.assignment, options, whole, trials.weights());
  }

  Sample start(std::span<const Tensor> inputs) override {
    return {std::vector<Kind>(rows_.size()), {inputs.begin(), inputs.end()}, nullptr};
  }

  std::vector<double> project(Sample& sample, std::span<const Tensor> seeds) override {
    if (sample.instead != nullptr) return sample.instead->project(sample, seeds);
    std::vector<Tensor> feeds = sample.feeds;
    feeds.insert(feeds.end(), seeds.begin(), seeds.end());
    const std::vector<Tensor> made = executable_->run(feeds);
    const auto magnitudes = made[0].values<float>();
    const auto products = made.size() > 1 ? made[1].values<float>() : std::span<const float>();
    std::vector<double> result(rows_.size(), 0.0);
    std::size_t magnitude = 0, product = 0;
    for (std::size_t w = 0; w < rows_.size(); ++w) {
      const double size = sum_of(magnitudes.subspan(magnitude, rows_[w].count));
      magnitude += rows_[w].count;
      if (std::isnan(size)) return take_other(sample, seeds);
      sample.kinds[w] = {!std::isfinite(size), size == 0};
      if (!rows_[w].has_product) continue;
      if (size != 0) result[w] = folded(products.subspan(product, rows_[w].products));
      product += rows_[w].products;
    }
    return result;
  }

 private:
  /// Of one place.
  struct Rows {
    std::size_t count = 0, products = 0;  ///< Sums of magnitudes, of products.
    bool has_product = false;
  };

  /// Appends an adjoint to the network of its forward values; returns the gradients there.
  std::vector<TensorId> append(const AdjointNetwork& adjoint) {
    Network& network = twins_.network;
    LayerWriter writer(network, AdjointContext::kAdjointOpset);
    IdMap<TensorId, TensorId> there(adjoint.network.tensors.size());
    for (std::size_t i = 0; i < adjoint.network.inputs.size(); ++i) {
      const TensorId input = adjoint.network.inputs[i];
      const TensorInfo& info = adjoint.network.tensor(input);
      if (i >= adjoint.forward.size()) {
        there[input] = writer.input(fmt::format("seed {}", i), *info.shape, info.type);
        continue;
      }
      there[input] = adjoint.forward[i];
      if (network.tensor(adjoint.forward[i]).type != info.type)
        there[input] = writer.widen(adjoint.forward[i], fmt::format("forward {}", i));
    }
    for (const TensorId id : adjoint.network.tensors.ids()) {
      if (there[id] != kNone) continue;
      TensorInfo info = adjoint.network.tensor(id);
      info.name = network.free_name("adjoint of " + info.name);
      info.producer = kNone;
      there[id] = network.add_tensor(std::move(info));
    }
    for (Layer layer : adjoint.network.layers) {
      layer.name = network.free_name("adjoint of " + layer.name);
      for (std::vector<TensorId>* ids : {&layer.inputs, &layer.outputs})
        for (TensorId& id : *ids)
          if (id != kNone) id = there[id];
      network.add_layer(std::move(layer));
    }
    std::vector<TensorId> gradients;
    for (const TensorId id : adjoint.gradients) gradients.push_back(id == kNone ? kNone : there[id]);
    return gradients;
  }

  /// Per place, the first of its layers; last, the first of those that are none's.
  std::vector<LayerId> add_sums(const Specialization& spec, std::span<const CandidateOutput> places,
                                std::span<const TensorId> gradients) {
    Network& network = twins_.network;
    LayerWriter writer(network, AdjointContext::kAdjointOpset);
    const TensorId low = writer.initializer("least error", Tensor::scalar(-kStandIn)),
                   high = writer.initializer("largest error", Tensor::scalar(kStandIn)),
                   flat = writer.initializer("flat", Tensor::of<std::int64_t>({1}, {-1}));
    const std::vector<TensorId> errors = std::move(network.outputs);
    std::vector<TensorId> magnitudes, products;
    std::vector<LayerId> firsts;
    const Images images = images_of(spec);
    const auto name_of = [&](std::string_view word, std::size_t number, TensorId of) {
      return fmt::format("{} {} of {}", word, number, network.tensor(of).name);
    };
    for (std::size_t w = 0; w < places.size(); ++w) {
      firsts.emplace_back(network.layers.size());
      const Shape& shape = *spec.shape(places[w].tensor);
      const std::int64_t row = shape.empty() ? 1 : shape.back();
      const std::size_t rank = shape.size(), axis = rank == 0 ? 0 : channel_axis(spec, images, places[w].tensor),
                        count = row == 0 ? 0 : static_cast<std::size_t>(num_elements(shape) / row);
      const bool by_rows = fold() == Fold::kSum || rank == 0;
      rows_.push_back({count, by_rows ? count : static_cast<std::size_t>(shape[axis]), gradients[w] != kNone});
      TensorId error = errors[w];
      if (network.tensor(error).type != DataType::kFloat32) error = writer.widen(error, fmt::format("error {}", w));
      magnitudes.push_back(row_sums(writer, &LayerWriter::sum_magnitudes, error, shape,
                                    name_of("magnitudes", magnitudes.size(), error)));
      if (gradients[w] == kNone) continue;
      const TensorId finite = writer.clip(error, low, high, fmt::format("finite error {}", w)),
                     of = writer.multiply(gradients[w], finite, fmt::format("product {}", w));
      std::string name = name_of("sum", products.size(), of);
      products.push_back(by_rows ? row_sums(writer, &LayerWriter::sum, of, shape, std::move(name))
                                 : sums_beside(writer, axis, of, rank, std::move(name)));
    }
    firsts.emplace_back(network.layers.size());
    network.outputs.clear();
    // Behind all sums: what reads one of a place's would keep the others from being computed with it.
    for (const auto& [parts, name] : {std::pair{&magnitudes, "magnitudes"}, {&products, "products"}}) {
      for (TensorId& part : *parts) part = writer.reshape(part, flat, network.tensor(part).name + " in a row");
      if (!parts->empty()) network.outputs.push_back(writer.concat(*parts, 0, name));
    }
    return firsts;
  }

  /// Moves twins, differences and sums to where the gradient of their place is made: errors are met by the group that
  /// makes them, often that of the gradient, too, and are never stored. `sums`: of add_sums().
  void place_behind_gradients(LayerId first_twin, std::span<const LayerId> candidates,
                              std::span<const CandidateOutput> places, std::span<const TensorId> gradients,
                              std::span<const LayerId> sums) {
    Network& network = twins_.network;
    IdMap<LayerId, Precision>& precision = twins_.assignment.precision;
    precision.resize(network.layers.size(), Precision::kFP32);
    const auto maker_of = [&](std::size_t w) {
      return gradients[w] == kNone ? kNone : network.tensor(gradients[w]).producer;
    };
    std::map<LayerId, std::vector<LayerId>> behind;  // kNone: of the original network.
    std::size_t next = first_twin.index();
    for (std::size_t candidate = 0, w = 0; candidate < candidates.size(); ++candidate) {
      if (candidates[candidate] >= first_twin) continue;  // It is inside of a body, and has no twin.
      std::size_t end = w;
      LayerId earliest = kNone;
      for (; end < places.size() && places[end].candidate == candidate; ++end)
        if (const LayerId maker = maker_of(end); maker != kNone && (earliest == kNone || maker < earliest))
          earliest = maker;
      behind[earliest].emplace_back(next++);  // The twin,
      for (; w < end; ++w) {
        std::vector<LayerId>& there = behind[maker_of(w) == kNone ? earliest : maker_of(w)];
        there.emplace_back(next++);  // and its difference.
        for (std::size_t l = sums[w].index(); l < sums[w + 1].index(); ++l) there.emplace_back(l);
      }
    }
    std::vector<LayerId> order;
    const auto add = [&](std::size_t from, std::size_t to) {
      for (std::size_t l = from; l < to; ++l) {
        order.emplace_back(l);
        if (const auto found = behind.find(LayerId(l)); found != behind.end())
          order.insert(order.end(), found->second.begin(), found->second.end());
      }
    };
    add(0, first_twin.index());
    order.insert(order.end(), behind[kNone].begin(), behind[kNone].end());
    add(next, sums.front().index());  // The adjoint.
    add(sums.back().index(), network.layers.size());
    std::vector<Layer> layers;
    IdMap<LayerId, Precision> precisions;
    for (const LayerId l : order) {
      layers.push_back(std::move(network.layers[l]));
      precisions.push_back(precision[l]);
    }
    network.layers = IdMap<LayerId, Layer>(std::move(layers));
    precision = std::move(precisions);
    network.rebuild_index();
  }

  std::vector<double> take_other(Sample& sample, std::span<const Tensor> seeds) {
    const std::shared_ptr<ErrorProducts> other = make_other_();
    sample = other->start(sample.feeds);
    sample.instead = other;
    return other->project(sample, seeds);
  }

  TwinNetwork twins_;
  std::vector<Rows> rows_;
  const MakeOther make_other_;
  std::unique_ptr<Executable> executable_;
};

}  // namespace

double ErrorProducts::folded(std::span<const float> sums) const {
  return fold_ == Fold::kSum ? sum_of(sums) : squares_of_channels(sums);
}

double squares_of_channels(std::span<const float> sums) {
  constexpr std::size_t kMost = 256, kStep = 4;
  double squares = 0;
  int widths = 0;
  for (std::size_t width = 1; width <= kMost; width *= kStep) {
    for (std::size_t begin = 0; begin < sums.size(); begin += width) {
      const double sum = sum_of(sums.subspan(begin, std::min(width, sums.size() - begin)));
      squares += sum * sum;
    }
    ++widths;
    if (width >= sums.size()) break;  // That was the sum of all.
  }
  return squares / widths;
}

AdjointNetwork ErrorProducts::adjoint_for(const Specialization& spec, std::span<const CandidateOutput> places,
                                          std::span<const TensorId> outputs) {
  std::vector<TensorId> wanted;
  for (const CandidateOutput& place : places) wanted.push_back(place.tensor);
  AdjointNetwork adjoint = make_adjoint(*spec.network, spec.inferred, op_registry(), wanted, outputs);
  incomplete_ = adjoint.incomplete;
  for (std::size_t o = 0; o < outputs.size(); ++o)
    if (adjoint.seeds[o] != kNone) seeded_.push_back(outputs[o]);
  return adjoint;
}

ErrorProductsMaker::ErrorProductsMaker(Trials& trials, const Assignment& low, std::span<const LayerId> candidates,
                                       std::vector<TensorId> outputs, ErrorProducts::Fold fold,
                                       std::span<const Precision> precisions)
    : trials_(trials),
      low_(low),
      candidates_(candidates.begin(), candidates.end()),
      precisions_(precisions.begin(), precisions.end()),
      outputs_(std::move(outputs)),
      candidate_outputs_(ulpscope::candidate_outputs(trials.network(), candidates)),
      fold_(fold),
      in_one_by_default_(find_backend(trials.options().backend).has_own_memory()),
      local_errors_(trials.network(), low, candidates, trials.options(), trials.weights(),
                    LocalErrors::Yield::kElements, precisions) {}

std::shared_ptr<ErrorProducts> ErrorProductsMaker::make(std::size_t sample, bool in_one) {
  const auto spec = trials_.specialization(sample);
  const auto of_two = [this, spec] {
    return std::make_shared<ProductsOfTwo>(trials_, *spec, local_errors_, candidate_outputs_, outputs_, fold_);
  };
  const auto is_open = [&](const CandidateOutput& place) { return !spec->shape(place.tensor); };
  if (!in_one || candidate_outputs_.empty() || std::ranges::any_of(candidate_outputs_, is_open)) return of_two();
  return std::make_shared<ProductsInOne>(trials_, *spec, low_, candidates_, precisions_, candidate_outputs_, outputs_,
                                         fold_, of_two);
}

}  // namespace ulpscope
