#include "runners/foreign_operators.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "core/messages.h"
#include "onnx/node_model.h"
#include "ops/registry.h"
#include "runners/onnxruntime_runner.h"

namespace ulpscope {
namespace {

/// Sessions that stay open: one for each operator, its attributes, and types and shapes of its inputs.
constexpr std::size_t kMostSessions = 256;
constexpr std::int64_t kMostDecidingIntegers = 16;

using NodeInputs = std::vector<std::optional<NodeInput>>;

/// ONNX Runtime in a worker that starts with the first question, and again where the last one ended.
class Elsewhere {
 public:
  /// "domain::name" of every operator that ONNX Runtime has.
  const std::set<std::string>& operators() {
    const std::lock_guard lock(mutex_);
    if (!operators_) {
      operators_.emplace();
      try {
        const Value names = worker()->call("onnxruntime_operators");
        for (const Value& name : names.array()) operators_->insert(name.text());
      } catch (const Error& error) {
        log_warning("[import] Layers of other operators run in ONNX Runtime, which cannot be had: {}", error.what());
      }
    }
    return *operators_;
  }

  /// The outputs that the layer has for these inputs, as ONNX Runtime says. An unknown shape is that of a scalar.
  std::vector<RunnerBinding> outputs(const Layer& layer, const NodeInputs& inputs) {
    const std::lock_guard lock(mutex_);
    return session(layer, inputs).output_bindings();
  }

  TensorMap run(const Layer& layer, const NodeInputs& inputs, const TensorMap& values) {
    const std::lock_guard lock(mutex_);
    return session(layer, inputs).infer(values);
  }

 private:
  /// A child of this process cannot use its worker.
  std::shared_ptr<Worker> worker() {
    if (worker_ && (process_ != getpid() || !worker_->alive())) {
      for (auto& [model, runner] : sessions_)
        if (process_ != getpid()) static_cast<void>(runner.release());  // the parent's
      sessions_.clear();
      if (process_ != getpid()) static_cast<void>(new std::shared_ptr<Worker>(worker_));
      worker_ = nullptr;
    }
    if (!worker_) {
      // A layer takes no longer than others, and whoever runs layers ends between them.
      WorkerOptions options = default_worker_options();
      options.interrupted = {};
      worker_ = Worker::start(std::move(options));
      process_ = getpid();
    }
    return worker_;
  }

  Runner& session(const Layer& layer, const NodeInputs& inputs) {
    const std::shared_ptr<Worker> with = worker();
    std::string model = node_model(layer, inputs);
    const auto found = sessions_.find(model);
    if (found != sessions_.end()) return *found->second;
    if (sessions_.size() >= kMostSessions) sessions_.clear();
    OnnxRuntimeOptions options;
    options.threads = 1;
    options.optimize = false;
    auto runner = make_onnxruntime_runner(model, {}, options, with);
    runner->activate();
    return *sessions_.emplace(std::move(model), std::move(runner)).first->second;
  }

  std::mutex mutex_;
  std::optional<std::set<std::string>> operators_;
  std::shared_ptr<Worker> worker_;
  pid_t process_ = 0;
  std::map<std::string, std::unique_ptr<Runner>> sessions_;
};

/// Never destroyed: a forked process that exits must not end its parent's worker, which ends by itself.
Elsewhere& elsewhere() {
  static Elsewhere& instance = *new Elsewhere;
  return instance;
}

int number_of(const RunnerBinding& output) { return std::stoi(output.name.substr(1)); }

bool is_index_type(DataType type) { return type == DataType::kInt32 || type == DataType::kInt64; }

/// Integers that may decide shapes, as the length of a cache does in GroupQueryAttention; more are indices.
bool may_decide_shapes(DataType type, const Shape& shape) {
  return is_index_type(type) && shape.size() <= 1 && num_elements(shape) <= kMostDecidingIntegers;
}

std::optional<Tensor> known_value(const InferContext& context, int i) {
  try {
    return context.value(i);
  } catch (const NotKnownYet&) {
    return std::nullopt;
  }
}

/// In the types that kernels take; outputs follow the declared ones of narrow floats. Shapes that are known are told
/// from the start: some operators ask for those of their constants before they say a type. Without the value of a
/// scalar, ONNX Runtime guesses: its shapes are not taken then.
void infer_foreign(InferContext& context) {
  NodeInputs inputs(static_cast<std::size_t>(context.num_inputs()));
  std::optional<DataType> narrow;
  bool known = true;
  for (int i = 0; i < context.num_inputs(); ++i) {
    if (!context.has_input(i)) continue;
    const DataType type = context.type(i);
    inputs[i] = NodeInput{physical_type(type), {}, {}};
    if (is_floating(type) && inputs[i]->type != type && !narrow) narrow = type;
    try {
      inputs[i]->shape = context.shape(i);
      if (may_decide_shapes(type, *inputs[i]->shape)) inputs[i]->value = known_value(context, i);
      if (is_index_type(type) && inputs[i]->shape->empty() && !inputs[i]->value) known = false;
    } catch (const NotKnownYet&) {
      known = false;
    }
  }
  for (const RunnerBinding& output : elsewhere().outputs(context.layer(), inputs)) {
    context.set_type(number_of(output), output.type == DataType::kFloat32 && narrow ? *narrow : output.type);
    if (known && output.shape && !output.shape->empty() && std::ranges::find(*output.shape, -1) == output.shape->end())
      context.set_shape(number_of(output), *output.shape);
  }
}

void run_foreign(KernelContext& context) {
  NodeInputs inputs(static_cast<std::size_t>(context.num_inputs()));
  TensorMap values;
  for (int i = 0; i < context.num_inputs(); ++i) {
    if (!context.has_input(i)) continue;
    const Tensor& value = context.input(i);
    inputs[i] = NodeInput{value.type(), value.shape(), {}};
    values.push_back({fmt::format("i{}", i), value});
  }
  for (NamedTensor& output : elsewhere().run(context.layer(), inputs, values))
    context.set_output(std::stoi(output.name.substr(1)), std::move(output.tensor));
}

/// An operator whose names live as long as it.
struct ForeignOperator {
  std::string domain, name;
  OpDef def;

  ForeignOperator(std::string_view d, std::string_view n) : domain(d), name(n) {
    def.name = name;
    def.domain = domain;
    def.inputs = {0, kAnyNumber};
    def.outputs = {1, kAnyNumber};
    def.precision = PrecisionRule::kFixed;
    def.infer = infer_foreign;
    def.run = run_foreign;
  }
  ForeignOperator(const ForeignOperator&) = delete;
  ForeignOperator& operator=(const ForeignOperator&) = delete;
};

class RegistryWithOnnxRuntime final : public OpRegistry {
 public:
  const OpDef* find(std::string_view domain, std::string_view name) const override {
    return op_registry().find(domain, name);
  }
  std::span<const OpDef> all() const override { return op_registry().all(); }

  const OpDef* find_elsewhere(std::string_view domain, std::string_view name) const override {
    std::string key = fmt::format("{}::{}", domain == "ai.onnx" ? "" : domain, name);
    if (!elsewhere().operators().contains(key)) return nullptr;
    const std::lock_guard lock(mutex_);
    auto& known = known_[std::move(key)];
    if (!known) known = std::make_unique<ForeignOperator>(domain, name);
    return &known->def;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::unique_ptr<const ForeignOperator>> known_;
};

}  // namespace

const OpRegistry& registry_with_onnxruntime() {
  static const RegistryWithOnnxRuntime registry;
  return registry;
}

}  // namespace ulpscope
