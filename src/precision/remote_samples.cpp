#include "precision/remote_samples.h"

#include <algorithm>
#include <numeric>

#include "precision/sample_messages.h"

namespace ulpscope {

RemoteSamples::RemoteSamples(std::shared_ptr<WorkQueue> queue, const RepairSteps& repairs, std::size_t first,
                             std::size_t count)
    : queue_(std::move(queue)), samples_(count) {
  Value::Array steps;
  for (const std::vector<Repair>& step : repairs) steps.push_back(value_of(std::span<const Repair>(step)));
  network_ = to_bytes(std::move(steps));
  std::iota(samples_.begin(), samples_.end(), first);
}

void RemoteSamples::move_sample(std::size_t from, std::size_t to) {
  const auto begin = samples_.begin();
  std::rotate(begin + static_cast<std::ptrdiff_t>(to), begin + static_cast<std::ptrdiff_t>(from),
              begin + static_cast<std::ptrdiff_t>(from) + 1);
}

/// Equal work is equal bytes: a result that was there before its time is known by them.
std::vector<WorkItem> RemoteSamples::items(const char* kind, const Assignment& assignment, std::size_t first,
                                           std::size_t count, Value::Map more) const {
  std::vector<WorkItem> result;
  Value task = Value::Map{{"do", kind}, {"network", network_}, {"assignment", value_of(assignment)}};
  for (auto& [key, value] : more) task.set(key, std::move(value));
  for (std::size_t s = first; s < first + count; ++s) {
    task.set("sample", static_cast<std::int64_t>(samples_[s]));
    task.set("number", static_cast<std::int64_t>(kind == std::string_view("effects") ? s - first : 0));
    result.push_back({samples_[s], to_bytes(task)});
  }
  return result;
}

std::vector<Value> RemoteSamples::run(std::span<const WorkItem> items, const std::function<void()>& meanwhile) {
  if (meanwhile) meanwhile();
  std::vector<Value> values;
  for (const Tensor& result : queue_->run(items, meanwhile)) {
    values.push_back(from_bytes(result));
    throw_error_in(values.back());
  }
  return values;
}

std::vector<TensorMap> RemoteSamples::outputs(const Assignment& assignment, std::size_t first, std::size_t count,
                                              bool keep, const std::function<void()>& meanwhile) {
  std::vector<TensorMap> result;
  for (const Value& each : run(items("outputs", assignment, first, count, {{"keep", keep}}), meanwhile))
    result.push_back(tensors_from(each["outputs"]));
  return result;
}

std::vector<Judgement> RemoteSamples::judge(const Assignment& assignment, std::size_t first, std::size_t count,
                                            bool keep, const std::function<void()>& meanwhile) {
  std::vector<Judgement> result;
  for (const Value& each : run(items("judge", assignment, first, count, {{"keep", keep}}), meanwhile))
    result.push_back(judgement_from(each["judgement"]));
  return result;
}

void RemoteSamples::add_judge_items(const Assignment& assignment, std::size_t first, std::size_t count, bool keep,
                                    std::vector<WorkItem>& all) const {
  std::ranges::move(items("judge", assignment, first, count, {{"keep", keep}}), std::back_inserter(all));
}

std::vector<SampleEffects> RemoteSamples::effects(const Assignment& low, std::span<const LayerId> candidates,
                                                  const PredictorOptions& options, std::size_t first, std::size_t count,
                                                  const std::function<void()>& meanwhile) {
  Tensor layers(DataType::kInt32, {static_cast<std::int64_t>(candidates.size())});
  std::int32_t* out = layers.data<std::int32_t>();
  for (const LayerId id : candidates) *out++ = id.number();
  std::vector<SampleEffects> result;
  for (const Value& each : run(items("effects", low, first, count,
                                     {{"layers", std::move(layers)},
                                      {"projections", options.projections},
                                      {"seed", static_cast<std::int64_t>(options.seed)}}),
                               meanwhile))
    result.push_back(effects_from(each["effects"]));
  return result;
}

}  // namespace ulpscope
