#include "convert/selection.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "convert/lowerable.h"
#include "core/parallel.h"
#include "engine/fusion.h"
#include "formats/stored_elements.h"

namespace ulpscope {
namespace {

/// A limit of Clip; nothing: absent. NaN: not known.
std::optional<float> limit(const Specialization& spec, const Layer& layer, std::size_t input, const char* attribute) {
  if (layer.input(input) != kNone) {
    const Tensor& value = spec.value(layer.inputs[input]);
    if (!value || value.size() != 1 || value.type() != DataType::kFloat32) return std::nanf("");
    return value.data<float>()[0];
  }
  if (layer.attributes.has(attribute)) return layer.attributes.real(attribute, 0);
  return std::nullopt;
}

/// round(f(x)) has the bits of f(round(x)) for every x, signs of zeros included. For Clip that holds where x cannot
/// vanish beyond a limit of zero that has the other sign.
bool commutes_with_rounding(const Specialization& spec, const Layer& layer) {
  const Function op = layer.op->function;
  if (op == Function::kRelu || op == Function::kAbs || op == Function::kNeg) return true;
  if (op != Function::kClip) return false;
  const auto low = limit(spec, layer, 1, "min"), high = limit(spec, layer, 2, "max");
  if (!low || !high || std::isnan(*low) || std::isnan(*high)) return false;
  return !(*low == 0.0F && std::signbit(*low)) && *high != 0.0F;
}

/// One level: what differs between the groups of the assignment and those with the other types.
class Conflicts {
 public:
  Conflicts(const Specialization& spec, const Assignment& before, const Assignment& after, Fusion level)
      : spec_(spec),
        network_(*spec.network),
        before_(before),
        after_(after),
        old_(fuse(spec, before, level)),
        new_(fuse(spec, after, level)),
        moved_(network_.layers.size(), 0) {
    for (LayerId l : moved_.ids()) moved_[l] = before.precision[l] != after.precision[l];
  }

  void collect(IdMap<LayerId, char>& conflicting) const {
    for (TensorId id : network_.tensors.ids()) {
      const LayerId producer = network_.tensor(id).producer;
      if (producer == kNone || spec_.is_constant(id)) continue;
      if (before_.storage[id] == DataType::kFloat32 && after_.storage[id] == DataType::kFloat32) continue;
      for (LayerId reader : spec_.consumers[id]) {
        if (joined(old_, producer, reader) == joined(new_, producer, reader)) continue;
        if (is_rounded(id) || is_rounded_later(reader)) continue;
        if (moved_[producer]) conflicting[producer] = 1;
        if (moved_[reader]) conflicting[reader] = 1;
        // Groups that came out otherwise, some layers away.
        if (!moved_[producer] && !moved_[reader])
          for (LayerId l : moved_.ids()) conflicting[l] |= moved_[l];
      }
    }
  }

 private:
  /// The reader takes what the producer computed before it is rounded.
  static bool joined(const Grouping& grouping, LayerId producer, LayerId reader) {
    const int group = grouping.group_of[producer];
    return group != kNone && group == grouping.group_of[reader];
  }
  bool ever_joined(LayerId producer, LayerId reader) const {
    return producer != kNone && (joined(old_, producer, reader) || joined(new_, producer, reader));
  }

  /// Rounding it changes nothing: it is a choice among values that are rounded when they are read.
  bool is_rounded(TensorId id) const {
    const LayerId producer = network_.tensor(id).producer;
    if (producer == kNone || !selects(network_.layer(producer))) return false;
    const auto& inputs = network_.layer(producer).inputs;
    return std::ranges::all_of(present(inputs), [&](TensorId input) {
      return spec_.is_constant(input) || !ever_joined(network_.tensor(input).producer, producer) || is_rounded(input);
    });
  }

  /// What it reads may as well be rounded behind it, where everybody takes it rounded.
  bool is_rounded_later(LayerId id) const {
    const Layer& layer = network_.layer(id);
    if (!moved_[id] || !commutes_with_rounding(spec_, layer)) return false;
    const auto& readers = spec_.consumers[layer.outputs[0]];
    return std::ranges::all_of(readers,
                               [&](LayerId reader) { return !ever_joined(id, reader) || is_rounded_later(reader); });
  }

  const Specialization& spec_;
  const Network& network_;
  const Assignment &before_, &after_;
  const Grouping old_, new_;
  IdMap<LayerId, char> moved_;
};

}  // namespace

bool selects(const Layer& layer) {
  if (!layer.op->domain.empty() || layer.op->exactness == Exactness::kRounds) return false;
  if (!layer.has_one_output()) return false;
  // Absent limits are the largest float32, which is not without effect on infinities.
  const auto has = [&](std::size_t i, const char* name) {
    return layer.attributes.has(name) || layer.input(i) != kNone;
  };
  return layer.op->function != Function::kClip || (has(1, "min") && has(2, "max"));
}

void drop_inexact_limits(const Layer& layer, std::vector<DataType>& types) {
  if (layer.op->function != Function::kClip || layer.opset >= 11) return;
  for (const char* name : {"min", "max"}) {
    const float value = layer.attributes.real(name, 0);
    std::erase_if(types, [&](DataType type) { return round_value(value, rounding_of(type)) != value; });
  }
}

bool holds(const Specialization& spec, TensorId id, DataType type) {
  const Tensor& value = spec.value(id);
  if (!value || value.type() != DataType::kFloat32) return false;
  const auto all_hold = [rounding = rounding_of(type)](std::span<const float> elements) {
    return std::ranges::all_of(elements, [rounding](float x) { return round_value(x, rounding) == x; });
  };
  if (!has_parts(value)) {
    const Tensor made = value.in_memory();
    return all_hold(made.values<float>());
  }
  // Mostly the first ones tell.
  std::vector<float> piece(static_cast<std::size_t>(std::min<std::int64_t>(value.size(), 1 << 14)));
  for (std::int64_t at = 0; at < value.size(); at += std::ssize(piece)) {
    const std::int64_t count = std::min<std::int64_t>(std::ssize(piece), value.size() - at);
    read_elements(value, at, count, piece.data());
    if (!all_hold(std::span(piece).first(static_cast<std::size_t>(count)))) return false;
  }
  return true;
}

bool goes_beyond_float16(const Tensor& value) {
  const Tensor values = has_parts(value) ? value : value.in_memory();
  std::atomic<bool> found = false;
  parallel_for(values.size(), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
    // Bits of magnitudes are ordered as the magnitudes are.
    constexpr std::int32_t kBeyond = std::bit_cast<std::int32_t>(65520.0F), kInfinity = 0x7f800000;
    constexpr std::int64_t kPiece = 1 << 13;
    alignas(64) float piece[kPiece];
    std::int32_t any = 0;  // GCC makes no vectors of a loop that gathers a bool.
    for (std::int64_t at = begin; at < end; at += kPiece) {
      const std::int64_t count = std::min(kPiece, end - at);
      read_elements(values, at, count, piece);
      for (const float v : std::span(piece).first(static_cast<std::size_t>(count))) {
        const std::int32_t magnitude = std::bit_cast<std::int32_t>(v) & 0x7fffffff;
        any |= (magnitude >= kBeyond) & (magnitude < kInfinity);
      }
    }
    if (any) found = true;
  });
  release_elements(values);
  return found;
}

std::vector<LayerId> fusion_conflicts(const Specialization& spec, const Assignment& assignment,
                                      const std::vector<std::pair<LayerId, DataType>>& moved) {
  if (moved.empty()) return {};
  Assignment after = assignment;
  for (const auto& [layer, type] : moved) after.precision[layer] = *precision_from_type(type);
  update_storage(*spec.network, spec.inferred, after);
  IdMap<LayerId, char> conflicting(spec.network->layers.size(), 0);
  for (Fusion level : {Fusion::kPointwise, Fusion::kFull})
    Conflicts(spec, assignment, after, level).collect(conflicting);
  std::vector<LayerId> result;
  for (LayerId l : conflicting.ids())
    if (conflicting[l]) result.push_back(l);
  return result;
}

}  // namespace ulpscope
