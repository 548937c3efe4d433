#include "runners/python_runner.h"

#include <algorithm>
#include <iterator>

#include "compare/shape_match.h"
#include "core/messages.h"
#include "runners/tensor_values.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

std::vector<RunnerBinding> bindings_from(const Value& values, bool has_defaults = false) {
  std::vector<RunnerBinding> result;
  for (const Value& value : values.array()) {
    const auto type = data_type_from_name(value["dtype"].text());
    if (!type)
      throw unsupported("[script] worker: '{}' has the unknown type '{}'", value["name"].text(), value["dtype"].text());
    RunnerBinding& binding = result.emplace_back(RunnerBinding{value["name"].text(), *type});
    if (!value["shape"].is_null()) binding.shape = value["shape"].shape();
    binding.has_default = has_defaults;
  }
  return result;
}

}  // namespace

PythonRunner::PythonRunner(std::string kind, std::string backend, std::shared_ptr<Worker> worker)
    : kind_(std::move(kind)), backend_(std::move(backend)), shared_(std::move(worker)) {}

PythonRunner::~PythonRunner() {
  try {
    deactivate();
  } catch (...) {
    // The process is gone, and the session with it.
  }
}

void PythonRunner::activate() {
  if (worker_) return;
  const std::shared_ptr<Worker> worker = shared_ ? shared_ : Worker::start();
  const Value result = worker->call(backend_ + "_open", open_arguments());
  inputs_ = bindings_from(result["inputs"]);
  if (!result["defaults"].is_null())
    std::ranges::move(bindings_from(result["defaults"], true), std::back_inserter(inputs_));
  outputs_ = bindings_from(result["outputs"]);
  handle_ = result["handle"].integer();
  worker_ = worker;
  opened(result);
}

void PythonRunner::deactivate() {
  const std::shared_ptr<Worker> worker = std::exchange(worker_, nullptr);
  if (worker && shared_ && worker->alive()) worker->call(backend_ + "_close", Value::Map{{"handle", handle_}});
}

Value PythonRunner::fed(const TensorMap& inputs) const {
  Value::Array feed;
  for (const RunnerBinding& binding : inputs_) {
    const Tensor* tensor = find_tensor(inputs, binding.name);
    if (tensor == nullptr && binding.has_default) continue;
    if (tensor == nullptr)
      throw invalid_argument("[run] {}: expected the input '{}', got none of that name", kind_, binding.name);
    if (tensor->type() != binding.type)
      throw invalid_argument("[run] {}: input '{}': expected elements of type {}, got {}", kind_, binding.name,
                             name_of(binding.type), name_of(tensor->type()));
    if (binding.shape && !shape_fits(tensor->shape(), *binding.shape))
      throw invalid_argument("[run] {}: input '{}': expected the shape {}, got {}", kind_, binding.name,
                             to_string(*binding.shape), to_string(tensor->shape()));
    feed.push_back(Value::Array{binding.name, *tensor});
  }
  return feed;
}

TensorMap PythonRunner::infer(const TensorMap& inputs) {
  if (!worker_) throw InternalError("a runner must be active to infer");
  Value result;
  try {
    result = worker_->call(backend_ + "_run", Value::Map{{"handle", handle_}, {"inputs", fed(inputs)}});
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInterrupted) throw;
    throw error.of_file(file());
  }
  seconds_ = result["seconds"].real();
  return tensors_from(result["outputs"]);
}

}  // namespace ulpscope
