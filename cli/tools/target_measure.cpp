// `ulpscope target measure`: what this machine takes, as a file for --target.
#include "tools/target_measure.h"

#include <fmt/format.h>

#include "args/debug.h"
#include "core/messages.h"
#include "core/parallel.h"
#include "interrupt.h"
#include "tools/network_setup.h"
#include "tools/precision_setup.h"
#include "tools/tool.h"

namespace ulpscope::cli {

void measure_target_of(const std::filesystem::path& file, const Model& model, const TensorsByName& sample) {
  const MeasuredTarget measured = measure_target(file, model, sample, show_measuring);
  log_info("Saving target to {}: {}, with the times of {} kernels{}", file.string(), measured.name, measured.kernels,
           measured.left_out > 0 ? fmt::format("; {} groups have no time of their own and are estimated from the rates",
                                               measured.left_out)
                                 : "");
}

void show_measuring(const std::string& what) {
  check_interrupted();
  log_info("Measuring " + what);
}

std::filesystem::path target_beside(std::filesystem::path answer) {
  if (answer.extension() == ".json") answer.replace_extension();
  if (answer.extension() == ".answer") answer.replace_extension();
  return answer += ".target.json";
}

namespace {

class TargetMeasureTool : public Tool {
 public:
  std::string description() const override {
    return "\n\n    ulpscope target measure -o rtx4090.json --backend cuda [MODEL --fp16 --load-inputs FILE...]\n\n"
           "Writes the rates of products per precision, the bandwidth and the cost of a launch; with MODEL also the "
           "times\n"
           "of its groups in float32, in each precision that is allowed (default: float16) and in mixtures of both. "
           "Nothing\n"
           "else should run meanwhile. Times decide what is fast, never what is computed.";
  }
  bool announces() const override { return true; }

  void declare(OptionTable& table) override {
    options_.model.declare(table, /*required=*/false, ModelForms::kNetworks);
    table.section("Output", "what is written.");
    table.ours().value({"-o", "--output"}, output_, "FILE.json", "Where to write the target");
    table.section("Kernels", "a model of what every kind of kernel takes, for networks that were never measured.");
    table.ours().flag({"--shapes"}, shapes_,
                      "Measure some hundred small networks of random sizes instead of MODEL, and fit the model to "
                      "them (minutes; --backend cuda)");
    table.ours().value({"--save-shapes"}, save_shapes_, "FILE", "Where to keep what they took");
    table.ours().value({"--load-shapes"}, load_shapes_, "FILE",
                       "Fit to what they took before, on any machine: nothing is measured, and no GPU is needed");
    table.ours().value({"--num-shapes"}, num_shapes_, "N", "How many networks are measured (default: 160)");
    options_.onnx.declare(table, OnnxLoadArgs::Scope::kRead);
    options_.config.declare(table, "obey");
    options_.network.declare(table, options_.config.strongly_typed, /*engine=*/false);
    options_.data.declare(table);
    table.section("Scripts", "users' Python scripts.");
    options_.python.declare(table);
  }

  void check_usage() const override {
    if (!output_) throw UsageError("the following arguments are required: -o/--output");
    if (!shapes_ && (save_shapes_ || load_shapes_ || num_shapes_))
      throw UsageError("arguments --save-shapes, --load-shapes and --num-shapes: expected with --shapes");
    if (shapes_ && options_.model.given()) throw UsageError("argument --shapes: not allowed with MODEL");
    if (save_shapes_ && load_shapes_) throw UsageError("argument --save-shapes: not allowed with --load-shapes");
    if (load_shapes_ && !options_.config.target)
      throw UsageError("argument --load-shapes: expected --target, whose rates the file takes");
    if (options_.config.target && !shapes_)
      throw UsageError("argument --target: not allowed here, where one is measured");
    if (!options_.model.given() && !options_.data.load_inputs.empty())
      throw UsageError("argument --load-inputs: not allowed without MODEL");
  }

  int run() override {
    set_num_threads(options_.config.num_threads());
    if (shapes_) return measure_shapes();
    if (!options_.model.given()) {
      const BuildOptions build = options_.config.build_options(options_.model);
      const MeasuredTarget measured = measure_target(*output_, build.backend, build.threads, show_measuring);
      log_info("Saving target to {}: {}", *output_, measured.name);
      return 0;
    }
    options_.model.check_not_replaced("-o", *output_);
    TrtConfigArgs& config = options_.config;
    if (config.precisions().empty()) config.allow(Precision::kFP16) = true;
    PrecisionSetup setup = make_precision_setup(options_);
    const std::vector<TensorsByName> samples = by_name(make_samples(options_, setup));
    measure_target_of(*output_, setup.model, samples.front());
    return 0;
  }

 private:
  int measure_shapes() {
    KernelMeasuring how;
    how.backend = options_.config.build_options(options_.model).backend;
    how.networks = num_shapes_.value_or(how.networks);
    how.load_times = load_shapes_.value_or("");
    how.save_times = save_shapes_.value_or("");
    how.rates_of = options_.config.target.value_or("");
    if (how.load_times.empty() && how.backend != "cuda")
      throw UsageError("argument --shapes: expected --backend cuda, whose kernels are modelled, or --load-shapes");
    const MeasuredTarget measured = measure_kernels(*output_, how, show_measuring);
    log_info("Saving target to {}: {}, with a model of kernels that was fitted to {} times", *output_, measured.name,
             measured.kernels);
    return 0;
  }

  PrecisionOptions options_;
  std::optional<std::string> output_, save_shapes_, load_shapes_;
  bool shapes_ = false;
  std::optional<int> num_shapes_;
};

}  // namespace

std::unique_ptr<Tool> make_target_measure_tool() { return std::make_unique<TargetMeasureTool>(); }

}  // namespace ulpscope::cli
