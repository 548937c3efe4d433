// What the engine is built for: TensorRT's builder configuration, and what is ours beside it.
#pragma once

#include <array>
#include <cstddef>

#include "args/model.h"
#include "args/option_table.h"
#include "engine/options.h"

namespace ulpscope::cli {

struct TrtConfigArgs {
  Repeated min_shapes, opt_shapes, max_shapes;
  std::array<bool, kPrecisionCount> allowed{};  ///< --tf32, --fp16, ...; by --int4 its largest blocks.
  bool weights_only = false;
  std::optional<int> block_size;
  std::vector<std::string> formats;
  std::optional<std::string> constraints;
  bool obey = false, strict = false;
  std::optional<std::string> calibration_cache, calib_base_cls;
  std::vector<std::string> calibration_inputs;
  std::optional<std::string> weight_scales, mx_scale_rule;
  std::optional<double> quantile;
  std::optional<std::string> save_tactics, load_tactics, save_timing_cache, load_timing_cache;
  std::optional<std::string> config_script, config_postprocess_script;
  bool strongly_typed = false;
  std::optional<std::string> fusion, accumulation, attention, target, backend, engine_backend;
  bool assume_lowest = false;
  std::optional<int> threads;
  std::optional<std::string> memory_limit;

  bool& allow(Precision p) { return allowed[static_cast<std::size_t>(p)]; }
  /// What is allowed, with --weights-only and --block-size. Throws Error where these say nothing.
  PrecisionSet precisions() const;
  /// The same without the smaller blocks that come with int4.
  PrecisionSet named_precisions() const;

  void declare_profiles(OptionTable& table);
  /// The formats that operands are stored in as elements, --weights-only, --block-size, and how their scales are found.
  void declare_elements(OptionTable& table);
  void declare_accumulation(OptionTable& table);
  void declare_attention(OptionTable& table);
  void declare_backend(OptionTable& table);
  /// --memory-limit, of the tools that run models.
  void declare_memory_limit(OptionTable& table);
  /// Tactics, scripts, and what is accepted for the sake of scripts.
  void declare_builder(OptionTable& table);
  /// `default_constraints`: what the help says of --precision-constraints; the member stays empty when it is not given.
  void declare(OptionTable& table, const std::string& default_constraints = "none");
  /// Everything but what scripts change. Reads the tactics file. Throws Error.
  BuildOptions build_options(const ModelArgs& model) const;
  /// Of --backend; the CPU where nothing is said.
  std::string backend_name() const;
  bool real_tensorrt() const { return backend == "tensorrt"; }
  /// Of --memory-limit; 0: none. Throws Error.
  std::size_t memory_bytes() const;
  /// Of --threads. Throws Error where that is none that a machine can have.
  int num_threads() const;
};

}  // namespace ulpscope::cli
