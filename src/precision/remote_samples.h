// Samples of trials that other processes run (sample_server.h): what is asked of them, and what comes back.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "compare/tensor_map.h"
#include "graph/assignment.h"
#include "precision/criterion.h"
#include "precision/predictor.h"
#include "precision/trials.h"
#include "runners/value.h"
#include "runners/work_queue.h"
#include "ulpscope/answer.h"

namespace ulpscope {

/// All samples of a search, of one network. `meanwhile` is called while this waits; it may throw to end all early.
/// Everything throws what the tasks throw, the first of the samples first, and what the queue throws.
class RemoteSamples {
 public:
  /// `count` samples from `first` on, in the order in which the processes have them.
  RemoteSamples(std::shared_ptr<WorkQueue> queue, const RepairSteps& repairs, std::size_t first, std::size_t count);

  /// As Trials::move_sample.
  void move_sample(std::size_t from, std::size_t to);

  std::vector<TensorMap> outputs(const Assignment& assignment, std::size_t first, std::size_t count, bool keep,
                                 const std::function<void()>& meanwhile);
  /// Each sample by itself, against its golden outputs, by the criterion that the processes were started with.
  std::vector<Judgement> judge(const Assignment& assignment, std::size_t first, std::size_t count, bool keep,
                               const std::function<void()>& meanwhile);
  /// Adds what judge() would ask for, for the queue to expect.
  void add_judge_items(const Assignment& assignment, std::size_t first, std::size_t count, bool keep,
                       std::vector<WorkItem>& items) const;
  WorkQueue& queue() const noexcept { return *queue_; }
  std::vector<SampleEffects> effects(const Assignment& low, std::span<const LayerId> candidates,
                                     const PredictorOptions& options, std::size_t first, std::size_t count,
                                     const std::function<void()>& meanwhile);

 private:
  std::vector<WorkItem> items(const char* kind, const Assignment& assignment, std::size_t first, std::size_t count,
                              Value::Map more) const;
  std::vector<Value> run(std::span<const WorkItem> items, const std::function<void()>& meanwhile);

  std::shared_ptr<WorkQueue> queue_;
  Tensor network_;                    ///< Of this state, as bytes.
  std::vector<std::size_t> samples_;  ///< Their numbers there.
};

}  // namespace ulpscope
