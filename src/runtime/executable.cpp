#include "runtime/executable.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/assign.h"
#include "engine/fusion.h"
#include "runtime/memory_limit.h"
#include "runtime/staged_plan.h"
#include "ulpscope/error.h"

namespace ulpscope {

Executable::Executable(const Network& network, Assignment assignment, const BuildOptions& options,
                       std::shared_ptr<const Specialization> spec, const WeightCache& weights)
    : network_(network), assignment_(std::move(assignment)), options_(options), weights_(weights) {
  if (options_.timing_cache) find_backend(options_.backend).take_measured(*options_.timing_cache);
  if (spec != nullptr) specializations_.put(spec->input_shapes, spec);
  if (options_.memory_limit != 0) weights_.set_limits({options_.memory_limit, options_.memory_limit, options_.memory_limit});
}

std::vector<Tensor> Executable::run_subgraph(LayerId layer, Precision precision, std::string_view attribute,
                                             std::span<const Tensor> inputs) {
  const auto key = std::make_tuple(layer, precision, std::string(attribute));
  Executable* body = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = bodies_.find(key); found != bodies_.end()) body = found->second.get();
  }
  if (body == nullptr) {
    const Network& graph = *network_.layer(layer).attributes.required_graph(attribute).network;
    // Costs of bodies are not modeled: unless the lowest precision is asked for, they keep fp32 and what the file
    // says. Their tensors have no scales.
    BuildOptions options = options_;
    options.backend = find_backend(options_.backend).body_backend();
    options.int8 = false;
    options.scales.clear();
    options.fp8 = false;
    options.fp16 = (options.fp16 || options.fp16_on_request) && options.assume_lowest && precision == Precision::kFP16;
    options.bf16 = (options.bf16 || options.bf16_on_request) && options.assume_lowest && precision == Precision::kBF16;
    options.tf32 &= options.assume_lowest && (precision == Precision::kTF32 || options.strongly_typed);
    std::vector<Shape> shapes;
    for (const Tensor& tensor : inputs) shapes.push_back(tensor.shape());
    const auto spec = specialize(graph, std::move(shapes));
    auto made = std::make_unique<Executable>(graph, assign_precisions(*spec, options), options, spec);
    const std::lock_guard lock(mutex_);
    body = bodies_.emplace(key, std::move(made)).first->second.get();  // Another thread may have been faster.
  }
  return body->run(inputs);
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
  IdMap<LayerId, GraphFunction> subgraphs(network_.layers.size());
  for (LayerId l : subgraphs.ids())
    if (network_.layers[l].op->kind == OpKind::kControl)
      subgraphs[l] = [this, l, precision = assignment.precision[l]](std::string_view attribute,
                                                                    std::span<const Tensor> inputs) {
        return run_subgraph(l, precision, attribute, inputs);
      };
  Grouping grouping = fuse(*spec, assignment, fusion);
  return make_plan(std::move(spec), std::move(grouping),
                   std::make_shared<PlanParts>(PlanParts{find_backend(options_.backend), assignment, fusion, weights_,
                                                         std::move(subgraphs), std::move(replay)}));
}

std::shared_ptr<const Plan> Executable::plan_for(const std::vector<Shape>& input_shapes) {
  std::shared_future<std::shared_ptr<const Plan>> pending;
  {
    const std::lock_guard lock(mutex_);
    if (auto found = plans_.find(input_shapes)) return found;
    const auto [entry, is_new] = pending_.try_emplace(input_shapes);
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
  pending_.erase(input_shapes);
  plans_.put(input_shapes, pending.get());
  return pending.get();
}

std::vector<Tensor> Executable::run(std::span<const Tensor> inputs) {
  std::vector<Shape> shapes;
  for (const Tensor& tensor : inputs) shapes.push_back(tensor.shape());
  return plan_for(shapes)->run(inputs);
}

}  // namespace ulpscope
