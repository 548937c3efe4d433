// The options of the tools that search precisions.
#pragma once

#include <functional>
#include <string>

#include "args/comparison.h"
#include "args/criterion.h"
#include "args/inference.h"
#include "args/network_args.h"
#include "args/option_table.h"

namespace ulpscope::cli {

/// The option groups of `run` that these tools share, and what they add to them. A tool declares the groups that it
/// takes.
struct PrecisionOptions {
  ModelArgs model;
  OnnxLoadArgs onnx;
  TrtConfigArgs config;
  TrtNetworkArgs network;
  DataLoaderArgs data;
  ComparisonArgs comparison;
  PythonLimitArgs python;
  std::optional<std::string> golden;
  bool cost_model = false;
  double calibration_seconds = 0;   ///< Set by tools that have a time limit; see NetworkArgs.
  bool measures_elsewhere = false;  ///< The same.
  /// Set by tools that need golden results of some outputs, by name; others may be missing.
  std::function<bool(const std::string&)> needs_golden;

  /// --golden, --cost-model and --python-time-limit, in the section at hand.
  void declare_search(OptionTable& table);
  /// Data, build and comparison, where the model is declared already.
  void declare_build(OptionTable& table);
  NetworkArgs network_args() const {
    return {model, onnx, config, network, data, calibration_seconds, measures_elsewhere};
  }
};

// Tools that try something again and again: what judges a try, and what is kept of it.

/// The command that says whether a try passed.
struct CheckArgs {
  std::vector<std::string> command;  ///< Empty: somebody is asked.
  std::vector<std::string> fail_codes, ignore_fail_codes;
  std::vector<std::string> fail_regex;
  bool show_output = false, hide_fail_output = false;

  void declare(OptionTable& table);
};

/// Files that are sorted by verdict.
struct ArtifactArgs {
  std::vector<std::string> artifacts;
  std::optional<std::string> folder;

  void declare(OptionTable& table);
};

/// What a try leaves behind.
struct IterationArgs {
  std::optional<std::string> artifact, info, load_replay, save_replay;
  bool keep_artifact = false;
  std::string usual_artifact = "polygraphy_debug.engine";  ///< Set by the tool, ahead of declare().

  void declare(OptionTable& table);
  std::string artifact_path() const { return artifact.value_or(usual_artifact); }
  std::string replay_path() const { return save_replay.value_or("polygraphy_debug_replay.json"); }
};

// The options of `debug precision`.

struct DebugPrecisionArgs {
  CheckArgs check;
  ArtifactArgs artifacts;
  IterationArgs iteration;
  PrecisionOptions precision;
  std::optional<std::string> mode, direction, type;

  void declare(OptionTable& table);
};

// The options of `debug reduce`.

struct DebugReduceArgs {
  CheckArgs check;
  ArtifactArgs artifacts;
  IterationArgs iteration{.usual_artifact = "polygraphy_debug.onnx"};
  PrecisionOptions precision;
  CriterionArgs criterion;
  std::optional<std::string> output, min_good, mode;
  bool keep_inputs = false, keep_outputs = false, fixed_shapes = false;

  void declare(OptionTable& table);
};

}  // namespace ulpscope::cli
