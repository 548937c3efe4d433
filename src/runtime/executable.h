// A network with its assignment, runnable for any input shapes: plans are made per shapes and kept.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "engine/options.h"
#include "runtime/recently_used.h"

namespace ulpscope {

/// Used for the network itself and, one each, for the sub-graphs of its control flow.
class Executable {
 public:
  /// `network` outlives the executable. `spec`: the specialization that the assignment was made for, if there is one;
  /// it is not made again. `weights`: prepared constants to share, of a network with constants in common.
  Executable(const Network& network, Assignment assignment, const BuildOptions& options,
             std::shared_ptr<const Specialization> spec = nullptr, const WeightCache& weights = {});
  ~Executable();

  /// Physical types in and out.
  std::vector<Tensor> run(std::span<const Tensor> inputs);
  /// See Plan::run_narrow.
  std::vector<Tensor> run_narrow(std::span<const Tensor> inputs);

  /// The plan for these input shapes, with the algorithms of the replay in the options; made if need be, by one thread
  /// while others that ask for it wait.
  std::shared_ptr<const Plan> plan_for(const std::vector<Shape>& input_shapes);
  /// A plan for another assignment, without a replay; shares weights and specializations. Not kept.
  std::shared_ptr<const Plan> plan_for(const std::vector<Shape>& input_shapes, const Assignment& assignment,
                                       Fusion fusion);

  /// What a run of such a plan holds beside its inputs, results and weights. Asked of plans for one thread, the
  /// quickest to make: it hardly depends on how many there are.
  std::size_t arena_bytes(const std::vector<Shape>& input_shapes);
  std::size_t arena_bytes(const std::vector<Shape>& input_shapes, const Assignment& assignment, Fusion fusion);

  std::shared_ptr<const Specialization> specialization(const std::vector<Shape>& input_shapes);
  /// The bodies with a layer in lower precision under this assignment that no run of a plan has reached so far, in
  /// words: "then_branch of 'If_3'".
  std::vector<std::string> idle_bodies(const Assignment& assignment);
  const WeightCache& weights() const noexcept { return weights_; }
  void set_weight_limits(const WeightCache::Limits& limits) { weights_.set_limits(limits); }
  const Assignment& assignment() const noexcept { return assignment_; }

 private:
  class BodyPlans;

  std::shared_ptr<const Plan> plan_for(const std::vector<Shape>& input_shapes, const Assignment& assignment,
                                       Fusion fusion, std::shared_ptr<const TacticReplay> replay);
  /// What runs the bodies of each layer under an assignment.
  IdMap<LayerId, GraphFunction> body_functions(const Assignment& assignment, Fusion fusion,
                                               const std::shared_ptr<const TacticReplay>& replay);
  /// What a plan is for.
  std::vector<Shape> plan_key(std::vector<Shape> input_shapes) const;
  /// Of a body, whatever its assignment.
  Executable& executable_of(const Body& body);

  const Network& network_;
  const Assignment assignment_;
  const BuildOptions options_;
  WeightCache weights_;
  std::mutex mutex_;                                       ///< Of what follows.
  std::map<LayerId, std::unique_ptr<Executable>> bodies_;  ///< By the first layer that they have.
  RecentlyUsed<std::shared_ptr<const Specialization>> specializations_{32};
  RecentlyUsed<std::shared_ptr<const Plan>> plans_{16};  ///< By plan_key().
  std::map<std::vector<Shape>, std::shared_future<std::shared_ptr<const Plan>>> pending_;
};

}  // namespace ulpscope
