#include "precision/cancellation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "precision/broadcast_indices.h"
#include "precision/local_errors.h"

namespace ulpscope {
namespace {

/// From which share of its operands' rounding errors a difference has lost its digits.
constexpr double kLost = 4;
/// How far a function may be behind the difference, and how far back its operands' own layers are looked for.
constexpr int kLayersBehind = 6, kLayersAhead = 3;
constexpr std::size_t kMostLayers = 16;

/// A difference, and what it becomes on its way: factor * difference + offset.
struct Way {
  SingularCancellation found;
  TensorId argument = kNone;  ///< What the function reads; none where elements change places on the way.
  double factor = 1;
  std::vector<LayerId> layers;
};

bool is_singular(const Specialization& spec, const Layer& layer, TensorId argument) {
  switch (layer.op->function) {
    case Function::kSqrt:
    case Function::kReciprocal:
    case Function::kLog:
      return true;
    case Function::kDiv:
      return layer.input(1) == argument;
    case Function::kPow: {
      if (layer.input(0) != argument || layer.input(1) == kNone || !spec.is_constant(layer.input(1))) return false;
      const Tensor power = spec.value(layer.input(1)).cast(DataType::kFloat32);
      return power.size() > 0 && power.values<float>()[0] < 1;
    }
    default:
      return false;
  }
}

double unit_roundoff(Precision precision) {
  switch (precision) {
    case Precision::kFP16:
    case Precision::kTF32:
      return 0x1p-11;
    case Precision::kBF16:
      return 0x1p-8;
    default:
      return 0;  // Integers have scales of their own.
  }
}

class Finder {
 public:
  Finder(Trials& trials, const Assignment& low, const std::vector<LayerId>& candidates)
      : trials_(trials),
        spec_(trials.specialization()),
        network_(trials.network()),
        low_(low),
        candidates_(candidates.begin(), candidates.end()) {}

  std::vector<SingularCancellation> find(std::size_t samples) {
    std::vector<Way> ways;
    for (const auto& [id, layer] : network_.layers.items())
      if (is_difference(id, layer))
        if (auto way = way_to_singular(id)) ways.push_back(std::move(*way));
    if (ways.empty()) return {};
    measure(ways, samples);
    std::vector<SingularCancellation> result;
    for (Way& way : ways) {
      const double unit = unit_roundoff(low_.precision[way.found.difference]);
      if (!(way.found.loss * unit * kLost > 1)) continue;
      way.found.digits = 1 - std::log2(unit);
      way.found.layers = layers_of(way);
      result.push_back(std::move(way.found));
    }
    return result;
  }

 private:
  bool is_constant(TensorId id) const { return id == kNone || spec_->is_constant(id); }

  bool is_difference(LayerId id, const Layer& layer) const {
    return (layer.op->function == Function::kAdd || layer.op->function == Function::kSub) && candidates_.contains(id) &&
           unit_roundoff(low_.precision[id]) > 0 && !is_constant(layer.input(0)) && !is_constant(layer.input(1)) &&
           layer.input(0) != layer.input(1);
  }

  std::optional<double> scalar(TensorId id) const {
    if (id == kNone || !spec_->is_constant(id) || spec_->value(id).size() != 1) return std::nullopt;
    return spec_->value(id).cast(DataType::kFloat32).values<float>()[0];
  }

  /// Breadth first, through layers that keep what is near 0 near 0 or move it by a constant.
  std::optional<Way> way_to_singular(LayerId difference) const {
    Way start;
    start.found.difference = difference;
    start.argument = network_.layer(difference).outputs[0];
    std::deque<std::pair<TensorId, Way>> open{{start.argument, start}};
    while (!open.empty()) {
      auto [tensor, way] = std::move(open.front());
      open.pop_front();
      for (LayerId reader : spec_->consumers[tensor]) {
        Way next = way;
        next.layers.push_back(reader);
        if (is_singular(*spec_, network_.layer(reader), tensor)) {
          next.found.singular = reader;
          return next;
        }
        if (std::ssize(next.layers) < kLayersBehind && passes_on(network_.layer(reader), tensor, next))
          open.emplace_back(network_.layer(reader).outputs[0], std::move(next));
      }
    }
    return std::nullopt;
  }

  bool passes_on(const Layer& layer, TensorId tensor, Way& way) const {
    const bool first = layer.input(0) == tensor;
    const std::optional<double> constant = scalar(layer.input(first ? 1 : 0));
    if (layer.op->moves_values) {
      way.argument = kNone;
      return first;
    }
    switch (layer.op->function) {
      case Function::kAbs:
      case Function::kNeg:
      case Function::kRelu:
      case Function::kIdentity:
      case Function::kClip:
      case Function::kMax:
        break;
      case Function::kAdd:
      case Function::kSub:
        if (!constant) return false;
        break;
      case Function::kMul:
        if (!constant) return false;
        way.factor *= std::fabs(*constant);
        break;
      case Function::kDiv:
        if (!constant || !first) return false;
        way.factor /= std::fabs(*constant);
        break;
      default:
        return false;
    }
    if (way.argument != kNone) way.argument = layer.outputs[0];
    return true;
  }

  void measure(std::vector<Way>& ways, std::size_t samples) {
    std::vector<TensorId> tensors;
    std::map<TensorId, std::size_t> index;
    const auto want = [&](TensorId id) {
      if (id != kNone && index.emplace(id, tensors.size()).second) tensors.push_back(id);
    };
    for (const Way& way : ways) {
      const Layer& layer = network_.layer(way.found.difference);
      for (TensorId id : {layer.input(0), layer.input(1), layer.outputs[0], way.argument}) want(id);
    }
    LocalErrors exact(network_, low_, {}, trials_.options(), trials_.weights());
    for (std::size_t s = 0; s < samples; ++s) {
      const std::vector<Tensor> values = exact.run(trials_.inputs(s), tensors).values;
      for (Way& way : ways) {
        const Layer& layer = network_.layer(way.found.difference);
        const Tensor& result = values[index.at(layer.outputs[0])];
        const Tensor* argument = way.argument == kNone ? nullptr : &values[index.at(way.argument)];
        if (argument != nullptr && argument->shape() != result.shape()) argument = nullptr;
        const double loss =
            loss_of(values[index.at(layer.input(0))], values[index.at(layer.input(1))],
                    argument != nullptr ? *argument : result, argument != nullptr ? way.factor : 1, result.shape());
        if (!(loss > way.found.loss)) continue;
        way.found.loss = loss;
        way.found.sample = s;
      }
    }
  }

  static double loss_of(const Tensor& a, const Tensor& b, const Tensor& result, double factor, const Shape& shape) {
    if (a.type() != DataType::kFloat32 || b.type() != DataType::kFloat32 || result.type() != DataType::kFloat32)
      return 0;
    const auto of_a = broadcast_indices(a.shape(), shape), of_b = broadcast_indices(b.shape(), shape);
    const float *pa = a.data<float>(), *pb = b.data<float>(), *y = result.data<float>();
    double most = 0;
    for (std::size_t i = 0; i < of_a.size(); ++i) {
      const double left = pa[of_a[i]], right = pb[of_b[i]], operands = factor * (std::fabs(left) + std::fabs(right));
      // Equal numbers of whatever type leave an exact 0 in any of them only where they are 0.
      if (operands > 0 && std::isfinite(operands)) most = std::max(most, operands / std::fabs(y[i]));
    }
    return most;
  }

  /// What the tensor is computed by, up to so many layers back.
  std::set<LayerId> back_from(TensorId tensor, int most) const {
    std::set<LayerId> result;
    std::deque<std::pair<TensorId, int>> open{{tensor, most}};
    while (!open.empty()) {
      const auto [id, left] = open.front();
      open.pop_front();
      const LayerId producer = is_constant(id) ? kNone : network_.tensor(id).producer;
      if (producer == kNone || left == 0 || !result.insert(producer).second) continue;
      const int cost = candidates_.contains(producer) ? 1 : 0;  // Movement costs nothing.
      for (TensorId input : present(network_.layer(producer).inputs)) open.emplace_back(input, left - cost);
    }
    return result;
  }

  /// What both operands come from is rounded alike for both, and does not matter.
  std::vector<LayerId> layers_of(const Way& way) const {
    const Layer& layer = network_.layer(way.found.difference);
    for (int depth = kLayersAhead;; --depth) {
      constexpr int kAll = 1 << 20;
      std::set<LayerId> chosen{way.found.difference};
      chosen.insert(way.layers.begin(), way.layers.end());
      for (std::size_t i : {0, 1}) {
        const std::set<LayerId> other = back_from(layer.input(1 - i), kAll);
        for (LayerId id : back_from(layer.input(i), depth))
          if (!other.contains(id)) chosen.insert(id);
      }
      std::erase_if(chosen, [&](LayerId id) { return !candidates_.contains(id); });
      if (chosen.size() <= kMostLayers || depth == 0) return {chosen.begin(), chosen.end()};
    }
  }

  Trials& trials_;
  const std::shared_ptr<const Specialization> spec_;
  const Network& network_;
  const Assignment& low_;
  const std::set<LayerId> candidates_;
};

}  // namespace

std::string text_of(const Network& network, const SingularCancellation& cancellation) {
  const Layer &difference = network.layer(cancellation.difference), &singular = network.layer(cancellation.singular);
  return fmt::format("'{}' ({}) loses {:.3g} of {:g} bits in sample {}, and '{}' ({}) reads what is left",
                     difference.name, difference.op->name, std::min(std::log2(cancellation.loss), cancellation.digits),
                     cancellation.digits, cancellation.sample, singular.name, singular.op->name);
}

std::vector<SingularCancellation> find_singular_cancellations(Trials& trials, const Assignment& low,
                                                              const std::vector<LayerId>& candidates,
                                                              std::size_t samples) {
  return Finder(trials, low, candidates).find(samples);
}

}  // namespace ulpscope
