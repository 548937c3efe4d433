#include "engine/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <numeric>

#include "core/memory.h"
#include "engine/plan_builder.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t bytes_of(const Slot& slot) {
  const std::size_t bytes = static_cast<std::size_t>(num_elements(slot.shape)) * size_of(slot.type);
  return (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

int root_of(const std::vector<Slot>& slots, int slot) {
  while (slots[static_cast<std::size_t>(slot)].alias >= 0) slot = slots[static_cast<std::size_t>(slot)].alias;
  return slot;
}

}  // namespace

Plan::Plan(std::shared_ptr<const Specialization> spec, const Assignment& assignment, Grouping grouping,
           WeightCache& weights, std::span<const cpu::GraphFunction> subgraphs)
    : spec_(std::move(spec)), grouping_(std::move(grouping)) {
  PlanBuilder(*this, assignment, weights, subgraphs).build();
  place_slots();
  choose_kept_values();
}

bool Plan::is_fresh_output(int slot) const {
  const Slot& s = slots_[static_cast<std::size_t>(slot)];
  return !s.dynamic && !s.constant && s.alias < 0 && std::ranges::find(input_slots_, slot) == input_slots_.end() &&
         std::ranges::count(output_slots_, slot) == 1;
}

/// Offsets by decreasing size, each at the lowest place that is free for the whole life of the slot (Pisarchyk and Lee,
/// "Efficient Memory Management for Deep Neural Net Inference", 2020, greedy by size).
void Plan::place_slots() {
  const int end = static_cast<int>(steps_.size());
  const auto touch = [&](int slot, int step) {
    if (slot < 0) return;
    Slot& s = slots_[static_cast<std::size_t>(root_of(slots_, slot))];
    s.first = s.first < 0 ? step : std::min(s.first, step);
    s.last = std::max(s.last, step);
  };
  for (int slot : input_slots_) touch(slot, 0);
  for (int i = 0; i < end; ++i) {
    for (int slot : steps_[static_cast<std::size_t>(i)].inputs) touch(slot, i);
    for (int slot : steps_[static_cast<std::size_t>(i)].outputs) touch(slot, i);
  }
  for (int slot : output_slots_) touch(slot, end);
  fresh_.assign(slots_.size(), 0);
  for (int slot : output_slots_) fresh_[static_cast<std::size_t>(slot)] = is_fresh_output(slot);
  std::vector<int> order;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& s = slots_[i];
    const bool bound_by_caller =
        std::find(input_slots_.begin(), input_slots_.end(), static_cast<int>(i)) != input_slots_.end();
    if (!s.dynamic && !s.constant && s.alias < 0 && s.first >= 0 && !bound_by_caller && !fresh_[i])
      order.push_back(static_cast<int>(i));
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return bytes_of(slots_[static_cast<std::size_t>(a)]) > bytes_of(slots_[static_cast<std::size_t>(b)]);
  });
  std::vector<int> placed;  // By offset.
  for (int index : order) {
    Slot& slot = slots_[static_cast<std::size_t>(index)];
    const std::size_t size = bytes_of(slot);
    std::size_t offset = 0;
    for (int other_index : placed) {
      const Slot& other = slots_[static_cast<std::size_t>(other_index)];
      if (other.last < slot.first || slot.last < other.first) continue;
      if (offset + size <= other.offset) break;
      offset = std::max(offset, other.offset + bytes_of(other));
    }
    slot.offset = offset;
    arena_bytes_ = std::max(arena_bytes_, offset + size);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), index,
                                   [&](int a, int b) {
                                     return slots_[static_cast<std::size_t>(a)].offset <
                                            slots_[static_cast<std::size_t>(b)].offset;
                                   }),
                  index);
  }
  if (arena_bytes_ > machine_memory())
    throw Error(
        ErrorCode::kBuild,
        fmt::format(
            "[build] network '{}': its activations take {} at a time, this machine has {} of memory; try smaller "
            "inputs or fewer outputs",
            spec_->network->name, to_size_string(arena_bytes_), to_size_string(machine_memory())));
}

/// Not all of them: copies of everything cost more time than they save (minilm in int8: trials of 130 ms instead of 90,
/// 220 MB more). Of every stretch of steps, the values that are alive where the fewest bytes are.
void Plan::choose_kept_values() {
  constexpr std::size_t kStretches = 32;
  const std::size_t steps = steps_.size();
  std::vector<std::int64_t> alive(steps + 1, 0);  // After each step; as differences first.
  for (const Slot& slot : slots_) {
    if (slot.dynamic || slot.constant || slot.alias >= 0 || slot.first < 0) continue;
    alive[static_cast<std::size_t>(slot.first)] += static_cast<std::int64_t>(bytes_of(slot));
    alive[static_cast<std::size_t>(slot.last)] -= static_cast<std::int64_t>(bytes_of(slot));
  }
  std::partial_sum(alive.begin(), alive.end(), alive.begin());
  std::vector<char> chosen(steps, 0);
  for (std::size_t s = 0; s < kStretches; ++s) {
    const auto begin = alive.begin() + static_cast<std::ptrdiff_t>(s * steps / kStretches);
    const auto end = alive.begin() + static_cast<std::ptrdiff_t>((s + 1) * steps / kStretches);
    if (begin != end) chosen[static_cast<std::size_t>(std::min_element(begin, end) - alive.begin())] = 1;
  }
  std::vector<std::size_t> next(steps + 1, steps);  // The first chosen step from here on.
  for (std::size_t i = steps; i-- > 0;) next[i] = chosen[i] != 0 ? i : next[i + 1];
  for (StoredValue& value : values_)
    value.kept = static_cast<int>(next[static_cast<std::size_t>(value.step)]) <
                 slots_[static_cast<std::size_t>(value.slot)].last;
}

void Plan::bind() const {
  if (!bound_.empty()) return;
  void* bytes = allocate_elements(arena_bytes_);
  arena_ = std::shared_ptr<std::byte>(static_cast<std::byte*>(bytes), [](std::byte* p) { std::free(p); });
  bound_.resize(slots_.size());
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.constant)
      bound_[i] = slot.constant;
    else if (!slot.dynamic && slot.alias < 0 && slot.first >= 0 && !fresh_[i])
      bound_[i] = Tensor::borrow(slot.type, slot.shape, arena_.get() + slot.offset, arena_);
  }
}

std::vector<char> Plan::reuse(ActivationStore& store) const {
  std::vector<char> known(slots_.size(), 0), wanted(slots_.size(), 0), runs(steps_.size(), 0);
  for (const StoredValue& value : values_)
    if (const Tensor* tensor = store.find(value.key)) {
      bound_[static_cast<std::size_t>(value.slot)] = *tensor;
      known[static_cast<std::size_t>(value.slot)] = 1;
    }
  const auto want = [&](int slot) {
    for (; slot >= 0 && !known[static_cast<std::size_t>(slot)]; slot = slots_[static_cast<std::size_t>(slot)].alias)
      wanted[static_cast<std::size_t>(slot)] = 1;
  };
  for (int slot : output_slots_) want(slot);
  for (std::size_t i = steps_.size(); i-- > 0;) {
    runs[i] = std::ranges::any_of(steps_[i].outputs,
                                  [&](int slot) { return slot >= 0 && wanted[static_cast<std::size_t>(slot)]; });
    if (runs[i]) std::ranges::for_each(steps_[i].inputs, want);
  }
  return runs;
}

std::vector<Tensor> Plan::run(std::span<const Tensor> inputs, ActivationStore* store, bool keep) const {
  const std::lock_guard lock(mutex_);
  bind();
  for (std::size_t i = 0; i < input_slots_.size(); ++i)
    if (input_slots_[i] >= 0) bound_[static_cast<std::size_t>(input_slots_[i])] = inputs[i];
  std::vector<Tensor> own;
  std::vector<char> runs;
  if (store != nullptr) {
    own = bound_;
    runs = reuse(*store);
  }
  std::vector<char> handed_out(slots_.size(), 0);
  for (int slot : output_slots_) {
    const auto i = static_cast<std::size_t>(slot);
    if (!fresh_[i] || bound_[i]) continue;  // Not for a value that the store has.
    bound_[i] = Tensor(slots_[i].type, slots_[i].shape);
    handed_out[i] = 1;
  }
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].alias >= 0) bound_[i] = bound_[static_cast<std::size_t>(slots_[i].alias)].reshaped(slots_[i].shape);
  std::vector<const Tensor*> in;
  std::vector<Tensor*> out;
  auto value = values_.begin();
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    const bool run = store == nullptr || runs[i];
    if (run) {
      in.clear();
      out.clear();
      for (int slot : step.inputs) in.push_back(slot < 0 ? nullptr : &bound_[static_cast<std::size_t>(slot)]);
      for (int slot : step.outputs) out.push_back(slot < 0 ? nullptr : &bound_[static_cast<std::size_t>(slot)]);
      step.kernel->run(in, out);
    }
    for (; value != values_.end() && value->step == static_cast<int>(i); ++value)
      if (run && store != nullptr && keep && value->kept && !store->contains(value->key))
        store->put(value->key, bound_[static_cast<std::size_t>(value->slot)].clone());
  }
  std::vector<Tensor> results;
  for (int slot : output_slots_) {
    const auto i = static_cast<std::size_t>(slot);
    results.push_back(handed_out[i] ? bound_[i] : bound_[i].clone());
  }
  if (store != nullptr) bound_ = std::move(own);
  for (int slot : input_slots_)
    if (slot >= 0) bound_[static_cast<std::size_t>(slot)] = {};
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].dynamic || slots_[i].alias >= 0 || fresh_[i]) bound_[i] = {};
  return results;
}

}  // namespace ulpscope
