#include "runners/engine_runner.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "core/messages.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

std::vector<RunnerBinding> runner_bindings(const std::vector<Binding>& bindings, bool have_defaults = false) {
  std::vector<RunnerBinding> result;
  for (const Binding& binding : bindings) result.push_back({binding.name, binding.type, binding.shape, have_defaults});
  return result;
}

class EngineRunner : public Runner {
 public:
  EngineRunner(std::function<std::shared_ptr<Engine>()> make, std::string kind)
      : make_(std::move(make)), kind_(std::move(kind)) {}

  std::string kind() const override { return kind_; }

  void activate() override {
    engine_ = make_();
    inputs_ = runner_bindings(engine_->inputs());
    std::ranges::move(runner_bindings(engine_->defaults(), true), std::back_inserter(inputs_));
    outputs_ = runner_bindings(engine_->outputs());
  }

  void deactivate() override { engine_.reset(); }

  const std::vector<RunnerBinding>& input_bindings() const override { return inputs_; }
  const std::vector<RunnerBinding>& output_bindings() const override { return outputs_; }

  std::vector<NamedTensor> infer(const std::vector<NamedTensor>& inputs) override {
    const std::vector<Tensor> ordered = in_order(inputs);
    Engine& engine = engine_for(inputs);
    const auto start = std::chrono::steady_clock::now();
    std::vector<Tensor> results = engine.run(ordered);
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::vector<NamedTensor> outputs;
    for (std::size_t i = 0; i < results.size(); ++i) outputs.push_back({outputs_[i].name, std::move(results[i])});
    return outputs;
  }

  double last_inference_seconds() const override { return seconds_; }

  std::vector<Engine::StepProfile> profile(const TensorMap& inputs) {
    return engine_for(inputs).profile(in_order(inputs));
  }

 private:
  std::vector<Tensor> in_order(const TensorMap& inputs) const {
    if (!engine_) throw InternalError("EngineRunner::infer before activate");
    std::vector<Tensor> ordered;
    for (const RunnerBinding& binding : inputs_) {
      const Tensor* tensor = find_tensor(inputs, binding.name);
      if (tensor == nullptr && binding.has_default) continue;
      if (tensor == nullptr)
        throw invalid_argument("[run] " + name() + ": expected an input '" + binding.name +
                               "', got none of that name; try naming it as the model does")
            .of_file(engine_->network().file());
      ordered.push_back(*tensor);
    }
    return ordered;
  }

  /// Takes in_order(inputs).
  Engine& engine_for(const TensorMap& inputs) const {
    std::vector<std::string> given;
    for (const RunnerBinding& binding : inputs_)
      if (binding.has_default && find_tensor(inputs, binding.name) != nullptr) given.push_back(binding.name);
    return given.empty() ? *engine_ : *engine_->with_given(given);
  }

  std::function<std::shared_ptr<Engine>()> make_;
  std::string kind_;
  std::shared_ptr<Engine> engine_;
  std::vector<RunnerBinding> inputs_, outputs_;
  double seconds_ = 0;
};

}  // namespace

std::optional<std::vector<Engine::StepProfile>> profile_runner(Runner& runner, const TensorMap& inputs) {
  auto* ours = dynamic_cast<EngineRunner*>(&runner);
  if (ours == nullptr) return std::nullopt;
  return ours->profile(inputs);
}

std::unique_ptr<Runner> make_engine_runner(std::function<std::shared_ptr<Engine>()> make, std::string kind) {
  return std::make_unique<EngineRunner>(std::move(make), std::move(kind));
}

}  // namespace ulpscope
