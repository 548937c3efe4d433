#include "precision/trials.h"

#include <algorithm>
#include <optional>
#include <ranges>

#include "backend/backend.h"
#include "core/memory.h"
#include "core/messages.h"
#include "core/parallel.h"
#include "engine/assign.h"
#include "engine/quantized_choices.h"
#include "graph/evaluate.h"
#include "precision/remote_samples.h"
#include "runtime/by_shapes.h"

namespace ulpscope {
namespace {

/// Activations that trials share, and what samples need that are worked on at a time: so much, and as much as runs
/// take, so that a search stays within a few times the memory of one; no more than is of use.
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kKept = 96 * kMiB, kMostKept = 1024 * kMiB, kWorking = 160 * kMiB, kMostWorking = 2048 * kMiB;
constexpr std::size_t kSmall = 256 * kMiB;  ///< Prepared weights that every search may keep.
/// Weights that all threads prepare together: they are worth it, and stay, in every precision.
constexpr std::size_t kLeastPrepared = 4 * kMiB, kMostPrepared = 256 * kMiB;

Tensor fitted(const Network& network, TensorId id, const TensorMap& sample, std::size_t index) {
  const TensorInfo& info = network.tensor(id);
  const Tensor* found = find_tensor(sample, info.name);
  if (found == nullptr) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : sample) names.push_back(name);
    throw invalid_argument("[trials] sample {}: expected the input '{}', got only {}", index, info.name,
                           fmt::join(names, ", "));
  }
  const Tensor& given = *found;
  if (info.shape) {
    bool fits = given.shape().size() == info.shape->size();
    for (std::size_t d = 0; fits && d < given.shape().size(); ++d)
      fits = (*info.shape)[d] < 0 || (*info.shape)[d] == given.shape()[d];
    if (!fits)
      throw invalid_argument("[trials] sample {}, input '{}': expected the shape {}, got {}", index, info.name,
                             to_string(*info.shape), to_string(given.shape()));
  }
  const bool same_family = is_floating(given.type()) == is_floating(info.type);
  if (!same_family)
    throw invalid_argument("[trials] sample {}, input '{}': expected elements of type {}, got {}", index, info.name,
                           name_of(info.type), name_of(given.type()));
  return to_physical(given.type() == info.type ? given : given.cast(info.type));
}

std::size_t constant_bytes(const Network& network) {
  std::size_t bytes = 0;
  const auto readers = network.consumers();
  for (const auto& [id, info] : network.tensors.items())
    if (is_floating(info.type) && !readers[id].empty())
      bytes += static_cast<std::size_t>(info.value.size()) * sizeof(float);
  return bytes;
}

/// Of prepared weights: all of them in one precision and some in another; small ones in every one. Formats for weights
/// alone that compete are run one after the other, all of them in every sample: none is asked for again soon, and
/// beside one of them there is room for the scales that were chosen for all.
std::size_t prepared_limit(const Network& network, const BuildOptions& options) {
  const std::vector<Precision> enabled = options.enabled.members();
  const std::size_t constants = constant_bytes(network);
  if (std::ranges::count_if(enabled, [](Precision each) { return is_of_weights(each); }) > 1)
    return std::max(kSmall, constants + constants / 16);
  return std::max(kMostKept, constants + constants / 4);
}

TensorMap named_outputs(const Network& network, std::vector<Tensor> outputs) {
  TensorMap named;
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    const TensorInfo& info = network.tensor(network.outputs[o]);
    Tensor& value = outputs[o];
    if (info.type != DataType::kUndefined && value.type() != info.type) value = value.cast(info.type);
    named.push_back({info.name, std::move(value)});
  }
  return named;
}

/// By the elements of its inputs.
std::size_t largest_sample(std::span<const std::vector<Tensor>> inputs, std::size_t first, std::size_t count) {
  const auto elements = [&](std::size_t s) {
    std::int64_t sum = 0;
    for (const Tensor& tensor : inputs[s]) sum += tensor.size();
    return sum;
  };
  return *std::ranges::max_element(std::views::iota(first, first + count), {}, elements);
}

void set_kept_bytes(std::vector<ActivationStore>& stores, std::size_t bytes) {
  for (ActivationStore& store : stores) store.set_byte_limit(bytes / stores.size());
}

}  // namespace

Trials::Trials(std::shared_ptr<const Network> network, const BuildOptions& options, std::span<const TensorMap> samples,
               const WeightCache& weights)
    : network_(std::move(network)), options_(options) {
  set_num_threads(options.threads);
  for (std::size_t s = 0; s < samples.size(); ++s) {
    std::vector<Tensor> row;
    for (TensorId id : network_->inputs) row.push_back(fitted(*network_, id, samples[s], s));
    inputs_.push_back(std::move(row));
  }
  if (inputs_.empty()) throw invalid_argument("[trials] expected at least one sample, got none");
  stores_.assign(inputs_.size(), ActivationStore(0));
  const std::size_t weight_bytes = constant_bytes(*network_);
  prepares_weights_ = weight_bytes >= kLeastPrepared && weight_bytes <= kMostPrepared;
  executable_ = std::make_unique<Executable>(*network_, Assignment{}, options_, nullptr, weights);
  set_memory_limit(options.memory_limit);
}

Trials::~Trials() = default;

void Trials::move_sample(std::size_t from, std::size_t to) {
  const auto rotate = [&](auto& list) { std::rotate(list.begin() + to, list.begin() + from, list.begin() + from + 1); };
  rotate(inputs_);
  rotate(stores_);
  if (remote_ != nullptr) remote_->move_sample(from, to);
}

void Trials::set_workers(const std::shared_ptr<WorkQueue>& queue, const RepairSteps& repairs, std::size_t first) {
  remote_ = queue == nullptr ? nullptr : std::make_unique<RemoteSamples>(queue, repairs, first, num_samples());
}

std::shared_ptr<const Specialization> Trials::specialization(std::size_t sample) {
  return executable_->specialization(shapes_of(inputs_[sample]));
}

Assignment Trials::full_precision() {
  const Requests none(network_->num_all_layers());
  return assign_precisions(*specialization(), BuildOptions{}, &none);
}

const QuantizedChoices& Trials::quantized_choices() {
  auto spec = specialization();
  if (choices_ == nullptr || choices_of_ != spec) {
    choices_ = std::make_unique<const QuantizedChoices>(*spec, options_);
    choices_of_ = std::move(spec);
  }
  return *choices_;
}

Assignment Trials::assign(const Requests& requested) {
  return assign_precisions(*specialization(), options_, &requested, &quantized_choices());
}

void Trials::add_scale_choice(Assignment& assignment) { quantized_choices().add_scale_choice(options_, assignment); }

void Trials::set_memory_limit(std::size_t bytes) {
  memory_limit_ = bytes;
  set_kept_bytes(stores_, bytes == 0 ? 0 : std::min(kMostKept, bytes / 8));
  const std::size_t limit = bytes == 0 ? WeightCache::Limits::kNone : bytes;
  executable_->set_weight_limits({prepared_limit(*network_, options_), limit, limit});
}

std::size_t Trials::run_bytes() { return constant_bytes(*network_) + activation_bytes(); }

std::size_t Trials::activation_bytes() {
  if (!activation_bytes_)
    activation_bytes_ = executable_->arena_bytes(shapes_of(inputs_[largest_sample(inputs_, 0, num_samples())]),
                                                 full_precision(), options_.fusion);
  return *activation_bytes_;
}

std::size_t Trials::sample_bytes() {
  std::size_t bytes = 0;
  for (std::size_t s = 0; s < num_samples(); ++s) {
    for (const Tensor& tensor : inputs_[s]) bytes += tensor.bytes();
    const auto spec = specialization(s);
    for (const TensorId id : network_->outputs)
      if (const auto& shape = spec->shape(id))
        bytes += static_cast<std::size_t>(num_elements(*shape)) * size_of(physical_type(spec->type(id)));
  }
  return bytes;
}

std::size_t Trials::working_memory() {
  if (memory_limit_ != 0) return memory_limit_ / 4;
  if (find_backend(options_.backend).has_own_memory()) return kMostWorking;
  // Samples run beside each other, on two threads each at least where there are many.
  const auto tasks = static_cast<std::size_t>(std::max(2, num_threads() / 2));
  const std::size_t most = std::max(kMostWorking, static_cast<std::size_t>(machine_memory() / 16));
  return std::min(most, kWorking + tasks * run_bytes());
}

CalibrationOptions Trials::range_options() {
  CalibrationOptions result;
  result.threads = options_.threads;
  result.memory_limit = memory_limit_ != 0 ? memory_limit_ / 8 : std::min(result.memory_limit, working_memory());
  return result;
}

std::vector<TensorMap> Trials::run(const Assignment& assignment, bool keep) {
  return run(assignment, 0, num_samples(), keep);
}

std::vector<TensorMap> Trials::run(const Assignment& assignment, std::size_t first, std::size_t count, bool keep,
                                   const std::function<void()>& before_sample) {
  if (remote_ != nullptr) return remote_->outputs(assignment, first, count, keep, before_sample);
  if (memory_limit_ == 0 && stores_.front().byte_limit() == 0)
    set_kept_bytes(stores_, find_backend(options_.backend).has_own_memory() ? kMostKept
                                                                            : std::min(kMostKept, kKept + run_bytes()));
  std::vector<TensorMap> results(count);
  const auto run_samples = [&](std::size_t begin, std::size_t end, const ThreadShare& share) {
    ByShapes<const Plan> plans;
    for (std::size_t s = begin; s < end; ++s) plans.expect(shapes_of(inputs_[s]));
    const auto plan_of = [&](std::size_t s) {
      const auto shapes = shapes_of(inputs_[s]);
      return plans.use(shapes, [&] { return executable_->plan_for(shapes, assignment, options_.fusion); });
    };
    if (share.tasks > 1 && prepares_weights_) {
      plans.expect(shapes_of(inputs_[begin]));
      std::optional<ScopedThreads> threads(share.threads);  // Those that the plan is for.
      const auto plan = plan_of(begin);
      threads.reset();
      naming_file(*network_, [&] { plan->prepare(); });
    }
    run_tasks(
        begin, end, share,
        [&](std::size_t s) {
          const auto plan = plan_of(s);
          auto outputs = naming_file(*network_, [&] { return plan->run(inputs_[s], &stores_[s], keep); });
          results[s - first] = named_outputs(*network_, std::move(outputs));
        },
        before_sample);
  };
  // As many as there are threads for; with more threads each, those that are left over.
  const ThreadShare share = share_of_samples(assignment, first, count);
  const std::size_t whole = count - count % static_cast<std::size_t>(share.tasks);
  run_samples(first, first + whole, share);
  if (whole < count)
    run_samples(first + whole, first + count,
                {static_cast<int>(count - whole), num_threads() / static_cast<int>(count - whole)});
  return results;
}

/// Every sample that runs beside others has activations of its own: as many as the budget holds of the largest.
ThreadShare Trials::share_of_samples(const Assignment& assignment, std::size_t first, std::size_t count) {
  if (count < 2 || num_threads() < 2) return {1, num_threads()};
  const std::size_t largest = largest_sample(inputs_, first, count);
  const auto [known, added] = arena_bytes_.try_emplace(shapes_of(inputs_[largest]));
  if (added) known->second = executable_->arena_bytes(known->first, assignment, options_.fusion);
  return share_threads(count, known->second, working_memory());
}

}  // namespace ulpscope
