#include "precision/trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/parallel.h"
#include "engine/assign.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

constexpr std::size_t kDefaultMemory = std::size_t{1} << 30;

Tensor fitted(const Network& network, TensorId id, const TensorMap& sample, std::size_t index) {
  const TensorInfo& info = network.tensor(id);
  const auto found = std::ranges::find_if(sample, [&](const auto& t) { return t.name == info.name; });
  if (found == sample.end()) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : sample) names.push_back(name);
    throw Error(ErrorCode::kInvalidArgument, fmt::format("[trials] sample {}: expected the input '{}', got only {}",
                                                         index, info.name, fmt::join(names, ", ")));
  }
  const Tensor& given = found->tensor;
  if (info.shape) {
    bool fits = given.shape().size() == info.shape->size();
    for (std::size_t d = 0; fits && d < given.shape().size(); ++d)
      fits = (*info.shape)[d] < 0 || (*info.shape)[d] == given.shape()[d];
    if (!fits)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("[trials] sample {}, input '{}': expected the shape {}, got {}", index, info.name,
                              to_string(*info.shape), to_string(given.shape())));
  }
  const bool same_family = is_floating(given.type()) == is_floating(info.type);
  if (!same_family)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("[trials] sample {}, input '{}': expected elements of type {}, got {}", index, info.name,
                            name_of(info.type), name_of(given.type())));
  Tensor typed = given.type() == info.type ? given : given.cast(info.type);
  const DataType physical = physical_type(typed.type());
  return physical == typed.type() ? typed : typed.cast(physical);
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
  if (inputs_.empty()) throw Error(ErrorCode::kInvalidArgument, "[trials] expected at least one sample, got none");
  stores_.assign(inputs_.size(), ActivationStore(kDefaultMemory / inputs_.size()));
  executable_ = std::make_unique<Executable>(*network_, Assignment{}, options_, nullptr, weights);
}

Trials::~Trials() = default;

void Trials::move_sample(std::size_t from, std::size_t to) {
  const auto rotate = [&](auto& list) { std::rotate(list.begin() + to, list.begin() + from, list.begin() + from + 1); };
  rotate(inputs_);
  rotate(stores_);
}

std::shared_ptr<const Specialization> Trials::specialization(std::size_t sample) {
  std::vector<Shape> shapes;
  for (const Tensor& tensor : inputs_[sample]) shapes.push_back(tensor.shape());
  return executable_->specialization(shapes);
}

Assignment Trials::full_precision() {
  BuildOptions options;
  return assign_precisions(*specialization(), options);
}

Assignment Trials::assign(const LayerTypes& requested) {
  return assign_precisions(*specialization(), options_, &requested);
}

void Trials::set_memory_limit(std::size_t bytes) {
  for (ActivationStore& store : stores_) store.set_byte_limit(bytes / stores_.size());
}

std::vector<TensorMap> Trials::run(const Assignment& assignment, bool keep) {
  return run(assignment, 0, num_samples(), keep);
}

std::vector<TensorMap> Trials::run(const Assignment& assignment, std::size_t first, std::size_t count, bool keep,
                                   const std::function<void()>& before_sample) {
  if (std::ranges::any_of(assignment.precision, [](Precision p) { return p != Precision::kFP32; })) ++evaluations_;
  std::map<std::vector<Shape>, std::shared_ptr<const Plan>> plans;  // One for all samples of a shape.
  std::vector<TensorMap> results;
  for (std::size_t s = first; s < first + count; ++s) {
    if (before_sample) before_sample();
    const auto& inputs = inputs_[s];
    std::vector<Shape> shapes;
    for (const Tensor& tensor : inputs) shapes.push_back(tensor.shape());
    auto& plan = plans[shapes];
    if (plan == nullptr) plan = executable_->plan_for(shapes, assignment, options_.fusion);
    std::vector<Tensor> outputs = plan->run(inputs, &stores_[s], keep);
    TensorMap named;
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      const TensorInfo& info = network_->tensor(network_->outputs[o]);
      Tensor& value = outputs[o];
      if (info.type != DataType::kUndefined && value.type() != info.type) value = value.cast(info.type);
      named.push_back({info.name, std::move(value)});
    }
    results.push_back(std::move(named));
  }
  return results;
}

}  // namespace ulpscope
