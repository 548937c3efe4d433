#include "runtime/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "backend/backend.h"
#include "core/parallel.h"
#include "engine/fusion.h"
#include "runtime/by_shapes.h"
#include "runtime/memory_limit.h"
#include "runtime/staged_plan.h"
#include "ulpscope/error.h"

namespace ulpscope {

Executable::Executable(const Network& network, Assignment assignment, const BuildOptions& options,
                       std::shared_ptr<const Specialization> spec, const WeightCache& weights)
    : network_(network), assignment_(std::move(assignment)), options_(options), weights_(weights) {
  if (options_.timing_cache) find_backend(options_.backend).take_measured(*options_.timing_cache);
  if (spec != nullptr) specializations_.put(spec->input_shapes, spec);
  if (options_.memory_limit != 0)
    weights_.set_limits({options_.memory_limit, options_.memory_limit, options_.memory_limit});
}

/// The plans of a body under one assignment, by the shapes that come in.
class Executable::BodyPlans {
 public:
  BodyPlans(Executable& executable, Body body, const Assignment& around, Fusion fusion,
            std::shared_ptr<const TacticReplay> replay)
      : executable_(executable), body_(body), fusion_(fusion), replay_(std::move(replay)) {
    around_.precision = around.precision;
    around_.asked_in_bodies = around.asked_in_bodies;
  }

  std::vector<Tensor> run(std::span<const Tensor> inputs) { return plan_for(shapes_of(inputs))->run(inputs); }

 private:
  std::shared_ptr<const Plan> plan_for(const std::vector<Shape>& shapes) {
    const std::vector<Shape> key = executable_.plan_key(shapes);
    {
      const std::lock_guard lock(mutex_);
      if (auto found = plans_.find(key)) return found;
    }
    const BuildOptions& options = executable_.options_;
    const auto spec = executable_.specialization(shapes);
    const Assignment assignment = assignment_of_body(
        around_, body_, spec->inferred, options.constraints != ConstraintMode::kNone, options.strongly_typed);
    auto made = executable_.plan_for(shapes, assignment, fusion_, replay_);
    const std::lock_guard lock(mutex_);
    plans_.put(key, made);  // Another thread may have been faster.
    return plans_.find(key);
  }

  Executable& executable_;
  const Body body_;
  const Fusion fusion_;
  const std::shared_ptr<const TacticReplay> replay_;
  Assignment around_;  ///< Of the network around, precisions alone.
  std::mutex mutex_;   ///< Of what follows.
  RecentlyUsed<std::shared_ptr<const Plan>> plans_{16};
};

Executable& Executable::executable_of(const Body& body) {
  const std::lock_guard lock(mutex_);
  auto& made = bodies_[body.first];
  if (made == nullptr) {
    BuildOptions options = options_;
    options.backend = find_backend(options_.backend).body_backend();
    made = std::make_unique<Executable>(*body.graph->network, Assignment{}, options);
  }
  return *made;
}

IdMap<LayerId, GraphFunction> Executable::body_functions(const Assignment& assignment, Fusion fusion,
                                                         const std::shared_ptr<const TacticReplay>& replay) {
  IdMap<LayerId, GraphFunction> functions(network_.layers.size());
  using ByName = std::map<std::string, std::unique_ptr<BodyPlans>, std::less<>>;
  std::map<LayerId, std::shared_ptr<ByName>> plans;
  for (const Body& body : network_.bodies()) {
    auto& by_name = plans[body.holder];
    if (by_name == nullptr) by_name = std::make_shared<ByName>();
    by_name->emplace(body.attribute,
                     std::make_unique<BodyPlans>(executable_of(body), body, assignment, fusion, replay));
    functions[body.holder] = [by_name](std::string_view attribute, std::span<const Tensor> inputs) {
      return by_name->find(attribute)->second->run(inputs);
    };
  }
  return functions;
}

std::vector<std::string> Executable::idle_bodies(const Assignment& assignment) {
  std::vector<std::string> result;
  for (const Body& body : network_.bodies()) {
    const auto inside = part_of(assignment.precision, body, body.graph->network->num_all_layers());
    if (std::ranges::all_of(inside, [](Precision each) { return each == Precision::kFP32; })) continue;
    Executable& executable = executable_of(body);
    bool reached = false;
    {
      const std::lock_guard lock(executable.mutex_);
      reached = executable.specializations_.any() != nullptr;
    }
    if (!reached) {
      result.push_back(fmt::format("{} of '{}'", body.attribute, network_.layer(body.holder).name));
      continue;
    }
    Assignment own;
    own.precision = inside;
    std::ranges::move(executable.idle_bodies(own), std::back_inserter(result));
  }
  return result;
}

Executable::~Executable() = default;

std::shared_ptr<const Specialization> Executable::specialization(const std::vector<Shape>& input_shapes) {
  std::shared_ptr<const Specialization> other;
  {
    const std::lock_guard lock(mutex_);
    if (auto found = specializations_.find(input_shapes)) return found;
    other = specializations_.any();
  }
  auto made = specialize(network_, input_shapes, other.get());
  const std::lock_guard lock(mutex_);
  if (specializations_.put(input_shapes, made)) weights_.drop_expired();
  return specializations_.find(input_shapes);
}

std::shared_ptr<const Plan> Executable::plan_for(const std::vector<Shape>& input_shapes, const Assignment& assignment,
                                                 Fusion fusion) {
  return plan_for(input_shapes, assignment, fusion, nullptr);
}

std::shared_ptr<const Plan> Executable::plan_for(const std::vector<Shape>& input_shapes, const Assignment& assignment,
                                                 Fusion fusion, std::shared_ptr<const TacticReplay> replay) {
  auto spec = specialization(input_shapes);
  IdMap<LayerId, GraphFunction> subgraphs = body_functions(assignment, fusion, replay);
  Grouping grouping = fuse(*spec, assignment, fusion);
  return make_plan(std::move(spec), std::move(grouping),
                   std::make_shared<PlanParts>(PlanParts{find_backend(options_.backend), assignment, fusion, weights_,
                                                         std::move(subgraphs), std::move(replay)}));
}

/// oneDNN shares out a primitive when it is made: run by a team of another size, every such step would start and end
/// threads.
std::vector<Shape> Executable::plan_key(std::vector<Shape> input_shapes) const {
  if (!find_backend(options_.backend).has_own_memory()) input_shapes.push_back({num_threads()});
  return input_shapes;
}

std::shared_ptr<const Plan> Executable::plan_for(const std::vector<Shape>& input_shapes) {
  const std::vector<Shape> key = plan_key(input_shapes);
  std::shared_future<std::shared_ptr<const Plan>> pending;
  {
    const std::lock_guard lock(mutex_);
    if (auto found = plans_.find(key)) return found;
    const auto [entry, is_new] = pending_.try_emplace(key);
    if (is_new)  // The first that waits makes it.
      entry->second = std::async(std::launch::deferred, [this, input_shapes] {
                        auto plan = plan_for(input_shapes, assignment_, options_.fusion, options_.tactic_replay);
                        warn_of_activations(*plan, options_.memory_limit);
                        return plan;
                      }).share();
    pending = entry->second;
  }
  pending.wait();
  const std::lock_guard lock(mutex_);
  pending_.erase(key);
  plans_.put(key, pending.get());
  return pending.get();
}

std::size_t Executable::arena_bytes(const std::vector<Shape>& input_shapes) {
  specialization(input_shapes);  // Folds constants: by all threads.
  const ScopedThreads single(1);
  return plan_for(input_shapes)->arena_bytes();
}

std::size_t Executable::arena_bytes(const std::vector<Shape>& input_shapes, const Assignment& assignment,
                                    Fusion fusion) {
  specialization(input_shapes);
  const ScopedThreads single(1);
  return plan_for(input_shapes, assignment, fusion)->arena_bytes();
}

std::vector<Tensor> Executable::run(std::span<const Tensor> inputs) {
  return naming_file(network_, [&] { return plan_for(shapes_of(inputs))->run(inputs); });
}

std::vector<Tensor> Executable::run_narrow(std::span<const Tensor> inputs) {
  return naming_file(network_, [&] { return plan_for(shapes_of(inputs))->run_narrow(inputs); });
}

}  // namespace ulpscope
