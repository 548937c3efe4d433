#include "runners/onnxruntime_runner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/file.h"
#include "core/messages.h"
#include "onnx/description.h"
#include "onnx/edit.h"
#include "onnx/quantization_check.h"
#include "runners/python_runner.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

namespace fs = std::filesystem;

Tensor bytes_of(std::span<const std::string_view> pieces) {
  std::size_t size = 0;
  for (const std::string_view piece : pieces) size += piece.size();
  Tensor result(DataType::kUInt8, {static_cast<std::int64_t>(size)});
  auto* out = static_cast<char*>(result.raw());
  for (const std::string_view piece : pieces) {
    std::memcpy(out, piece.data(), piece.size());
    out += piece.size();
  }
  return result;
}

class OnnxRuntimeRunner final : public PythonRunner {
 public:
  OnnxRuntimeRunner(fs::path path, std::string bytes, fs::path external_data_dir, OnnxRuntimeOptions options,
                    std::shared_ptr<Worker> worker)
      : PythonRunner("onnxrt-runner", "onnxruntime", std::move(worker)),
        path_(std::move(path)),
        bytes_(std::move(bytes)),
        external_data_dir_(std::move(external_data_dir)),
        options_(std::move(options)) {}

 private:
  /// Calls `use` with the model as it was given.
  template <typename Use>
  auto with_model(const Use& use) const {
    if (!bytes_.empty()) return use(std::as_bytes(std::span(bytes_)));
    const std::shared_ptr<MappedFile> file = MappedFile::open(path_);
    return use(std::as_const(*file).bytes());
  }
  std::string source() const { return path_.empty() ? "model" : path_.string(); }

  /// What ONNX Runtime would drop. It says itself what it finds wrong with a file that cannot be read.
  std::string dropped_relu() const try {
    return options_.optimize ? with_model([&](auto bytes) { return relu_before_fp8(bytes, source()); }) : std::string();
  } catch (const Error&) {
    return {};
  }

  std::string file() const override { return path_.string(); }

  /// ONNX Runtime says the same of a scalar and of an input of any rank.
  void opened(const Value&) override {
    const auto looks_scalar = [](const RunnerBinding& input) { return input.shape && input.shape->empty(); };
    if (std::ranges::none_of(inputs(), looks_scalar)) return;
    for (const std::string& name : with_model([&](auto bytes) { return inputs_without_shape(bytes, source()); }))
      for (RunnerBinding& input : inputs())
        if (input.name == name) input.shape.reset();
  }

  Value open_arguments() override {
    Value::Map args{{"path", path_.string()},
                    {"threads", options_.threads},
                    {"optimize", options_.optimize},
                    {"providers", Value::of_strings(options_.providers)}};
    if (const std::string relu = dropped_relu(); !relu.empty()) {
      log_warning(
          "[onnxrt] {}: ONNX Runtime's optimizations drop the Relu '{}' in front of a QuantizeLinear to fp8, and all "
          "like it; here they are kept. Elsewhere, give its session disabled_optimizers=['ReluQuantRewrite']",
          source(), relu);
      args.emplace_back("left_out", Value::of_strings({"ReluQuantRewrite"}));
    }
    fs::path folder = external_data_dir_;
    const bool edited = options_.mark_all || !options_.outputs.empty() || !options_.exclude_outputs.empty();
    if (edited) {
      std::vector<std::string> outputs = options_.outputs;
      if (options_.mark_all) outputs = {"mark", "all"};
      args.emplace_back("model", with_model([&](std::span<const std::byte> model) {
                          return bytes_of(with_outputs(model, source(), outputs, options_.exclude_outputs).pieces());
                        }));
    } else if (!bytes_.empty() || !folder.empty()) {
      args.emplace_back("model", with_model([](std::span<const std::byte> model) {
                          const std::string_view piece(reinterpret_cast<const char*>(model.data()), model.size());
                          return bytes_of({&piece, 1});
                        }));
    }
    if (folder.empty() && !path_.empty()) folder = fs::absolute(path_).parent_path();
    args.emplace_back("external_data_dir", folder.string());
    return args;
  }

  fs::path path_;
  std::string bytes_;
  fs::path external_data_dir_;
  OnnxRuntimeOptions options_;
};

}  // namespace

std::unique_ptr<Runner> make_onnxruntime_runner(fs::path model, OnnxRuntimeOptions options,
                                                std::shared_ptr<Worker> worker) {
  fs::path external = options.external_data_dir;
  return std::make_unique<OnnxRuntimeRunner>(std::move(model), "", std::move(external), std::move(options),
                                             std::move(worker));
}

std::unique_ptr<Runner> make_onnxruntime_runner(std::string model_bytes, fs::path external_data_dir,
                                                OnnxRuntimeOptions options, std::shared_ptr<Worker> worker) {
  return std::make_unique<OnnxRuntimeRunner>(fs::path(), std::move(model_bytes), std::move(external_data_dir),
                                             std::move(options), std::move(worker));
}

}  // namespace ulpscope
