#include "runners/tensorrt_runner.h"

#include "core/messages.h"
#include "runners/python_runner.h"

namespace ulpscope {
namespace {

class TensorRTRunner final : public PythonRunner {
 public:
  TensorRTRunner(std::filesystem::path model, TensorRTOptions options, std::shared_ptr<Worker> worker)
      : PythonRunner("trt-runner", "tensorrt", std::move(worker)),
        model_(std::move(model)),
        options_(std::move(options)) {}

 private:
  std::string file() const override { return model_.string(); }

  Value open_arguments() override {
    Value::Array precisions, profile;
    for (const Precision p : options_.enabled.members()) precisions.emplace_back(name_of(p));
    Value::Map layers;
    for (const auto& [name, type] : options_.layer_precisions) {
      // What no type asks for (tf32) TensorRT decides for all layers that store the same.
      const auto request = request_named(type);
      const bool named = !request || request->type() != DataType::kUndefined;
      layers.emplace_back(name, named ? type : std::string(name_of(storage_of(*request->precision()))));
    }
    for (const TensorRTOptions::InputProfile& entry : options_.profile)
      profile.push_back(Value::Map{{"input", entry.input},
                                   {"min", Value::of_shape(entry.min)},
                                   {"opt", Value::of_shape(entry.opt)},
                                   {"max", Value::of_shape(entry.max)}});
    return Value::Map{{"path", model_.string()},
                      {"precisions", std::move(precisions)},
                      {"strongly_typed", options_.strongly_typed},
                      {"constraints", options_.precision_constraints},
                      {"layer_precisions", std::move(layers)},
                      {"profile", std::move(profile)},
                      {"save_engine", options_.save_engine.string()}};
  }

  void opened(const Value& result) override {
    log_info("Built with TensorRT {}", result["version"].text());
    for (const std::string& name : result["unknown_layers"].strings())
      log_warning("[tensorrt] --layer-precisions: the network has no layer '{}'", name);
  }

  std::filesystem::path model_;
  TensorRTOptions options_;
};

}  // namespace

std::unique_ptr<Runner> make_tensorrt_runner(std::filesystem::path model, TensorRTOptions options,
                                             std::shared_ptr<Worker> worker) {
  return std::make_unique<TensorRTRunner>(std::move(model), std::move(options), std::move(worker));
}

}  // namespace ulpscope
