#include "backend/cpu/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>

#include "backend/cpu/lowering.h"
#include "core/file.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/placed_team.h"
#include "ulpscope/error.h"

namespace ulpscope::cpu {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t bytes_of(const Slot& slot) {
  const std::size_t bytes = static_cast<std::size_t>(num_elements(slot.shape)) * size_of(slot.type);
  return (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

CpuPlan::CpuPlan(std::shared_ptr<const Specialization> spec, Schedule schedule, WeightCache& weights,
                 const IdMap<LayerId, GraphFunction>& subgraphs)
    : Plan(std::move(spec), std::move(schedule)),
      made_(lower(*spec_, schedule_, weights, subgraphs)),
      weights_(weights) {
  place_slots();
  place_results();
  choose_kept_values();
}

bool CpuPlan::is_fresh_output(int root) const {
  const Slot& s = made_.slots[root];
  return !s.dynamic && !s.constant && std::ranges::find(made_.inputs, root) == made_.inputs.end() &&
         std::ranges::count(made_.outputs, root, [&](int slot) { return root_of(made_.slots, slot); }) == 1;
}

DataType CpuPlan::narrow_type(TensorId output, int root) const {
  const Slot& slot = made_.slots[root];
  const auto reads = [&](int read) { return read >= 0 && root_of(made_.slots, read) == root; };
  const bool is_read =
      std::ranges::any_of(made_.steps, [&](const Step& step) { return std::ranges::any_of(step.inputs, reads); });
  return fresh_[root] && !is_read && spec_->type(output) == slot.narrow ? slot.narrow : slot.type;
}

void CpuPlan::place_slots() {
  const int end = static_cast<int>(made_.steps.size());
  const auto touch = [&](int slot, int step) {
    if (slot < 0) return;
    Slot& s = made_.slots[root_of(made_.slots, slot)];
    s.place.first = s.place.first < 0 ? step : std::min(s.place.first, step);
    s.place.last = std::max(s.place.last, step);
  };
  for (int slot : made_.inputs) touch(slot, 0);
  for (int i = 0; i < end; ++i) {
    for (int slot : made_.steps[i].inputs) touch(slot, i);
    for (int slot : made_.steps[i].outputs) touch(slot, i);
  }
  for (int slot : made_.outputs) touch(slot, end);
  fresh_.assign(made_.slots.size(), 0);
  for (int slot : made_.outputs) {
    const int root = root_of(made_.slots, slot);
    fresh_[root] = is_fresh_output(root);
  }
  std::vector<ArenaEntry> entries(made_.slots.size());
  for (std::size_t i = 0; i < made_.slots.size(); ++i) {
    const Slot& s = made_.slots[i];
    const bool bound_by_caller = std::ranges::find(made_.inputs, static_cast<int>(i)) != made_.inputs.end();
    if (!s.dynamic && !s.constant && s.alias < 0 && s.place.first >= 0 && !bound_by_caller && !fresh_[i])
      entries[i] = {bytes_of(s), s.place.first, s.place.last};
  }
  arena_bytes_ = place_in_arena(entries, kAlignment);
  for (std::size_t i = 0; i < made_.slots.size(); ++i) made_.slots[i].place.offset = entries[i].offset;
  if (arena_bytes_ > machine_memory())
    throw Error(
        ErrorCode::kBuild,
        fmt::format(
            "[build] network '{}': its activations take {} at a time, this machine has {} of memory; try smaller "
            "inputs or fewer outputs",
            spec_->network->name, to_size_string(arena_bytes_), to_size_string(machine_memory())));
}

void CpuPlan::place_results() {
  offsets_of_results_.assign(made_.slots.size(), 0);
  std::size_t count = 0, bytes = 0;
  for (int slot : made_.outputs) {
    const int root = root_of(made_.slots, slot);
    if (!fresh_[root]) continue;
    offsets_of_results_[root] = bytes;
    bytes += bytes_of(made_.slots[root]);
    ++count;
  }
  if (count >= kManyResults) bytes_of_results_ = bytes;
  for (std::size_t o = 0; o < made_.outputs.size(); ++o)
    narrow_types_.push_back(narrow_type(spec_->network->outputs[o], root_of(made_.slots, made_.outputs[o])));
}

/// Not all of them: copies of everything cost more time than they save (minilm in int8: trials of 130 ms instead of 90,
/// 220 MB more). Of every stretch of steps, the values that are alive where the fewest bytes are; of fewer stretches
/// where a store is small, since what gives way is what the next run would begin with.
void CpuPlan::choose_kept_values() {
  constexpr std::size_t kStretches = 32;
  const std::size_t steps = made_.steps.size();
  std::vector<std::int64_t> alive(steps + 1, 0);  // After each step; as differences first.
  for (const Slot& slot : made_.slots) {
    if (slot.dynamic || slot.constant || slot.alias >= 0 || slot.place.first < 0) continue;
    alive[slot.place.first] += static_cast<std::int64_t>(bytes_of(slot));
    alive[slot.place.last] -= static_cast<std::int64_t>(bytes_of(slot));
  }
  std::partial_sum(alive.begin(), alive.end(), alive.begin());
  std::vector<char> chosen(steps, 0);
  for (std::size_t s = 0; s < kStretches; ++s) {
    const auto begin = alive.begin() + static_cast<std::ptrdiff_t>(s * steps / kStretches);
    const auto end = alive.begin() + static_cast<std::ptrdiff_t>((s + 1) * steps / kStretches);
    if (begin != end) chosen[std::min_element(begin, end) - alive.begin()] = 1;
  }
  std::vector<int> passed(steps + 1, 0);  // How many chosen steps are ahead of this one.
  for (std::size_t i = 0; i < steps; ++i) passed[i + 1] = passed[i] + chosen[i];
  kept_bytes_.assign(static_cast<std::size_t>(passed[steps]), 0);
  for (StoredValue& value : made_.values) {
    const Slot& slot = made_.slots[value.slot];
    value.first = passed[value.step] + 1;
    value.last = slot.place.last < 0 ? 0 : passed[slot.place.last];
    for (std::size_t k = 0; k < kept_bytes_.size(); ++k)
      if (value.is_kept(static_cast<int>(k) + 1)) kept_bytes_[k] += bytes_of(slot);
  }
}

int CpuPlan::stretches_apart(std::size_t byte_limit) const noexcept {
  const auto fits = [&](std::size_t bytes) { return bytes <= byte_limit / 2; };
  const auto found = std::ranges::find_if(kept_bytes_, fits);
  return found == kept_bytes_.end() ? 0 : static_cast<int>(found - kept_bytes_.begin()) + 1;
}

CpuPlan::Workspace CpuPlan::take_workspace(std::byte* arena) const {
  Workspace taken;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      taken = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (taken.arena == arena) return taken;
  taken.arena = arena;
  taken.bound.resize(made_.slots.size());
  for (std::size_t i = 0; i < made_.slots.size(); ++i) {
    const Slot& slot = made_.slots[i];
    if (slot.constant)
      taken.bound[i] = slot.constant;
    else if (!slot.dynamic && slot.alias < 0 && slot.place.first >= 0 && !fresh_[i])
      taken.bound[i] = Tensor::borrow(slot.type, slot.shape, arena + slot.place.offset, nullptr);
  }
  return taken;
}

std::vector<char> CpuPlan::reuse(ActivationStore& store, std::vector<Tensor>& bound) const {
  std::vector<char> known(made_.slots.size(), 0), wanted(made_.slots.size(), 0), runs(made_.steps.size(), 0);
  for (const StoredValue& value : made_.values)
    if (const auto* tensor = store.find<Tensor>(value.key)) {
      bound[value.slot] = *tensor;
      known[value.slot] = 1;
    }
  const auto want = [&](int slot) {
    for (; slot >= 0 && !known[slot]; slot = made_.slots[slot].alias) wanted[slot] = 1;
  };
  for (int slot : made_.outputs) want(slot);
  for (std::size_t i = made_.steps.size(); i-- > 0;) {
    runs[i] = std::ranges::any_of(made_.steps[i].outputs, [&](int slot) { return slot >= 0 && wanted[slot]; });
    if (runs[i]) std::ranges::for_each(made_.steps[i].inputs, want);
  }
  return runs;
}

namespace {

void run_timed(const Kernel& kernel, std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs,
               StepTime& time) {
  const auto start = std::chrono::steady_clock::now();
  kernel.run(inputs, outputs);
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
  time.microseconds = std::min(time.microseconds, taken.count());
  time.bytes = 0;
  for (const Tensor* tensor : inputs) time.bytes += tensor != nullptr ? static_cast<double>(tensor->bytes()) : 0;
  for (const Tensor* tensor : outputs) time.bytes += tensor != nullptr ? static_cast<double>(tensor->bytes()) : 0;
}

/// Copies for a store. Those of one run share blocks with huge pages: clearing pages of 4 KiB takes longer than copying
/// into them. What a store drops goes back to the system with its neighbors, so blocks are small.
class KeptCopies {
 public:
  /// `bytes`: of all of them; 0: each has memory of its own.
  explicit KeptCopies(std::size_t bytes) : left_(bytes) {}

  Tensor copy(const Tensor& value) {
    constexpr std::size_t kBlock = std::size_t{8} << 20;
    const std::size_t bytes = (value.bytes() + kAlignment - 1) / kAlignment * kAlignment;
    if (bytes > std::min(left_, kBlock / 2)) return value.clone();
    if (used_ + bytes > size_) {
      size_ = std::min(left_, kBlock);
      block_ = allocate_elements(size_);
      used_ = 0;
    }
    Tensor result = Tensor::borrow(value.type(), value.shape(), block_.get() + used_, block_);
    std::memcpy(result.raw(), value.raw(), value.bytes());
    used_ += bytes;
    left_ -= bytes;
    return result;
  }

 private:
  std::size_t left_, size_ = 0, used_ = 0;
  std::shared_ptr<std::byte> block_;
};

}  // namespace

void CpuPlan::run_steps(std::vector<Tensor>& bound, std::span<const char> runs, ActivationStore* kept,
                        std::span<StepTime> times) const {
  std::vector<const Tensor*> in;
  std::vector<Tensor*> out;
  auto value = made_.values.begin();
  const int apart = kept != nullptr ? stretches_apart(kept->byte_limit()) : 0;
  KeptCopies copies(apart > 0 && !weights_.has_process_limit() ? kept_bytes_[static_cast<std::size_t>(apart) - 1] : 0);
  for (std::size_t i = 0; i < made_.steps.size(); ++i) {
    const Step& step = made_.steps[i];
    const bool run = runs.empty() || runs[i];
    if (run) {
      in.clear();
      out.clear();
      for (int slot : step.inputs) in.push_back(slot < 0 ? nullptr : &bound[slot]);
      for (int slot : step.outputs) out.push_back(slot < 0 ? nullptr : &bound[slot]);
      if (times.empty())
        step.kernel->run(in, out);
      else
        run_timed(*step.kernel, in, out, times[i]);
    }
    for (; value != made_.values.end() && value->step == static_cast<int>(i); ++value)
      if (run && apart > 0 && value->is_kept(apart) && !kept->contains(value->key))
        kept->put(value->key, copies.copy(bound[value->slot]), bound[value->slot].bytes());
  }
}

std::vector<StepTime> CpuPlan::profile(std::span<const Tensor> inputs) const {
  constexpr int kRuns = 8;
  std::vector<StepTime> times;
  for (const Step& step : made_.steps)
    times.push_back({step.layer, step.kernel->name(), std::numeric_limits<double>::infinity()});
  for (int run = 0; run < kRuns; ++run) execute(inputs, nullptr, false, false, times);
  // The products of a layer are those of its longest step; the others bring operands to it.
  std::map<LayerId, std::size_t> longest;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const auto [found, is_new] = longest.emplace(times[i].layer, i);
    if (!is_new && times[i].microseconds > times[found->second].microseconds) found->second = i;
  }
  for (const auto& [l, step] : longest) {
    if (l == kNone) continue;
    const Layer& layer = spec_->network->layer(l);
    if (layer.op->multiply_adds == nullptr || layer.output(0) == kNone || !spec_->shape(layer.outputs[0])) continue;
    std::vector<const Shape*> shapes;
    for (TensorId id : layer.inputs) shapes.push_back(id != kNone && spec_->shape(id) ? &*spec_->shape(id) : nullptr);
    if (shapes.size() < 2 || shapes[0] == nullptr || shapes[1] == nullptr) continue;
    times[step].multiply_adds = layer.op->multiply_adds(layer, shapes, *spec_->shape(layer.outputs[0]));
    for (TensorId id : present(layer.inputs))
      if (spec_->is_constant(id)) times[step].bytes += static_cast<double>(spec_->value(id).bytes());
  }
  return times;
}

std::vector<char> CpuPlan::bind_fresh_outputs(std::vector<Tensor>& bound, bool narrow) const {
  std::vector<char> is_output(made_.slots.size(), 0);
  const std::shared_ptr<std::byte> block = bytes_of_results_ == 0 ? nullptr : allocate_elements(bytes_of_results_);
  for (std::size_t o = 0; o < made_.outputs.size(); ++o) {
    const auto i = static_cast<std::size_t>(root_of(made_.slots, made_.outputs[o]));
    if (!fresh_[i] || bound[i]) continue;  // Not for a value that the store has.
    const Slot& slot = made_.slots[i];
    const DataType type = narrow ? narrow_types_[o] : slot.type;
    bound[i] = block == nullptr ? Tensor(type, slot.shape)
                                : Tensor::borrow(type, slot.shape, block.get() + offsets_of_results_[i], block);
    is_output[i] = 1;
  }
  return is_output;
}

/// A few at a time: what becomes weights and is dropped again takes as much memory as they do.
void CpuPlan::prepare() const {
  constexpr int kMost = 8;
  if (weights_.has_process_limit() || num_threads() < 2) return;
  const int tasks = std::min(kMost, num_threads());
  run_tasks(0, made_.weights.size(), {tasks, num_threads() / tasks}, [&](std::size_t i) { made_.weights[i](); });
}

/// Several threads may run one plan: each takes a workspace, and gives it back for the next run. Fresh outputs are
/// computed into new tensors, which the caller keeps. The others (inputs, constants, one slot that is two outputs) are
/// copied, since the next run or the caller may write over them.
std::vector<Tensor> CpuPlan::execute(std::span<const Tensor> inputs, ActivationStore* store, bool keep, bool narrow,
                                     std::span<StepTime> times) const {
  const std::shared_ptr<std::byte> arena = weights_.arena(arena_bytes_);
  Workspace workspace = take_workspace(arena.get());
  std::vector<Tensor>& bound = workspace.bound;
  for (std::size_t i = 0; i < made_.inputs.size(); ++i)
    if (made_.inputs[i] >= 0) bound[made_.inputs[i]] = inputs[i];
  std::vector<Tensor> own;
  std::vector<char> runs;
  if (store != nullptr) {
    own = bound;
    runs = reuse(*store, bound);
  }
  const std::vector<char> is_output = bind_fresh_outputs(bound, narrow);
  for (std::size_t i = 0; i < made_.slots.size(); ++i)
    if (made_.slots[i].alias >= 0) bound[i] = bound[made_.slots[i].alias].reshaped(made_.slots[i].shape);
  {
    const PlacedTeam team(last_run_.load(std::memory_order_relaxed));
    run_steps(bound, runs, keep ? store : nullptr, times);
    last_run_.store(team.age(), std::memory_order_relaxed);
  }
  for (const auto& file : spec_->network->files) file->check_unchanged();
  std::vector<Tensor> results;
  for (int slot : made_.outputs) {
    const Tensor& value = bound[static_cast<std::size_t>(slot)];
    results.push_back(is_output[static_cast<std::size_t>(root_of(made_.slots, slot))] ? value : value.clone());
  }
  if (store != nullptr) bound = std::move(own);
  for (int slot : made_.inputs)
    if (slot >= 0) bound[slot] = {};
  for (std::size_t i = 0; i < made_.slots.size(); ++i)
    if (made_.slots[i].dynamic || made_.slots[i].alias >= 0 || fresh_[i]) bound[i] = {};
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(workspace));
  return results;
}

}  // namespace ulpscope::cpu
