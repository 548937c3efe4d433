// Users' Python scripts. A script is named "path[:function]"; without a colon it is the default function.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compare/results.h"
#include "engine/options.h"
#include "graph/network.h"
#include "runners/worker.h"

namespace ulpscope {

/// A file and the function in it.
struct ScriptName {
  std::string path, function;
  /// Splits at the last colon that is followed by an identifier; the text is otherwise all path.
  static ScriptName parse(const std::string& text, std::string_view default_function);
};

/// What a comparison function returned.
struct ScriptComparison {
  /// Per output, in the function's order; one entry with an empty name when it returned a single verdict.
  std::vector<std::pair<std::string, bool>> outputs;
  /// repr() of each returned value, for the log.
  std::vector<std::string> details;
  bool passed() const;
};

/// What a network script returned.
struct ScriptNetwork {
  std::shared_ptr<Network> network;
  bool strongly_typed = false;
};

/// The data of a `load_data` generator, one iteration at a time. The script's state lives in the worker.
class ScriptDataLoader {
 public:
  /// For ScriptHost::open_data_loader; `handle` names the open generator in the worker.
  ScriptDataLoader(std::shared_ptr<Worker> worker, std::int64_t handle, ScriptName script);
  ~ScriptDataLoader();
  ScriptDataLoader(const ScriptDataLoader&) = delete;
  ScriptDataLoader& operator=(const ScriptDataLoader&) = delete;
  /// Nothing at the end.
  std::optional<TensorMap> next();

 private:
  std::shared_ptr<Worker> worker_;
  std::int64_t handle_;
  ScriptName script_;  ///< For messages.
};

/// Runs scripts; starts its workers when the first script needs them (one for scripts that edit networks, one for data
/// and comparisons). Every method throws Error: kNotFound for a missing file or function, kScript with the traceback
/// when the script raises, exits, crashes, hangs or returns something else than it should.
class ScriptHost {
 public:
  /// Reads an ONNX model for `NetworkFromOnnxPath` and `OnnxParser.parse_from_file`.
  using ImportPath = std::function<std::shared_ptr<Network>(const std::filesystem::path&)>;
  /// The same from bytes (`NetworkFromOnnxBytes`, `OnnxParser.parse`).
  using ImportBytes = std::function<std::shared_ptr<Network>(std::span<const std::byte>)>;
  struct Callbacks {
    ImportPath import_path;
    ImportBytes import_bytes;
    const OpRegistry* ops = nullptr;
  };

  explicit ScriptHost(Callbacks callbacks, WorkerOptions options = default_worker_options());
  ~ScriptHost();

  /// MODEL is a script: `load_network()` returns (builder, network) or (builder, network, parser).
  ScriptNetwork load_network(const ScriptName& script);
  /// `--trt-npps`: `postprocess(network=network)`. Returns the edited network; `network` is unchanged.
  std::shared_ptr<Network> postprocess_network(const ScriptName& script, const Network& network);

  /// `--trt-config-script`: `load_config(builder, network)` makes the options, on top of `base` for what TensorRT's
  /// config does not have (fusion, target, ...).
  BuildOptions load_config(const ScriptName& script, const Network& network, const BuildOptions& base);
  /// `--trt-cpps`: `postprocess_config(builder, network, config)` edits them.
  BuildOptions postprocess_config(const ScriptName& script, const Network& network, const BuildOptions& options);

  /// `--data-loader-script`: `load_data()`, a generator or anything iterable of name-to-array dicts.
  std::unique_ptr<ScriptDataLoader> open_data_loader(const ScriptName& script);
  /// `--compare-func-script`: `compare_outputs(result0, result1)`.
  ScriptComparison compare(const ScriptName& script, const IterationResult& first, const IterationResult& second);
  /// `--postprocess-func-script`: `postprocess_outputs(result)`, which returns other outputs (an IterationResult or a
  /// dict).
  TensorMap postprocess_outputs(const ScriptName& script, const IterationResult& result);

  /// The worker for data, comparisons and runners; starts it.
  std::shared_ptr<Worker> data_worker();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ulpscope
