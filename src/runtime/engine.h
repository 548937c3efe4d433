// The built network: what TensorRT calls an engine and its execution context.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/device_plan.h"
#include "engine/options.h"
#include "graph/network.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// A network input or output as a caller sees it.
struct Binding {
  std::string name;
  DataType type;
  std::optional<Shape> shape;  ///< Nothing: not even the rank is known; -1: a dynamic dimension.
};

/// Immutable after build, except for its caches; `run` may be called from several threads, one at a time each.
class Engine {
 public:
  /// Chooses precisions, fuses, and prepares to run. The network must not change afterwards. Logs its decisions.
  /// Throws Error(kBuild) when a constraint cannot be obeyed (names the layer).
  static std::shared_ptr<Engine> build(std::shared_ptr<const Network> network, const BuildOptions& options);

  /// Reads what `save` wrote. Of `running` count the backend, the threads, and the algorithms and times for the
  /// backend: a replay's precisions do not. Throws Error(kInvalidFile): other magic, version or checksum; Error(kBuild)
  /// for a replay of another backend.
  static std::shared_ptr<Engine> load(const std::filesystem::path& path, const BuildOptions& running = {});
  void save(const std::filesystem::path& path) const;

  const std::vector<Binding>& inputs() const noexcept;
  const std::vector<Binding>& outputs() const noexcept;
  /// Constants that a caller may give values of their own, in one run or in all.
  const std::vector<Binding>& defaults() const noexcept;
  /// This engine for callers who give values for these of `defaults()`: inputs behind the others, in this order. Made
  /// when it is asked for first, and kept. Where it may fold less, it has other groups: a tactic replay does not hold
  /// for it. Throws Error(kInvalidArgument) for a name that is none of them, and like build().
  std::shared_ptr<Engine> with_given(const std::vector<std::string>& names);

  /// One inference. `inputs` in the order of `inputs()`, of exactly their types and of fitting shapes; the outputs in
  /// the order of `outputs()`, of exactly their types. Throws Error(kInvalidArgument) naming the input that does not
  /// fit.
  std::vector<Tensor> run(std::span<const Tensor> inputs);

  /// Throws Error(kInvalidArgument) unless these are as run() expects them.
  void check_inputs(std::span<const DeviceTensor> inputs) const;
  /// The memory of the device that it computes on; null: the CPU's.
  DeviceSpace* space() const;
  /// The plan for inputs of these shapes in that memory; null: they have to pass through the CPU's. REQUIRES: space().
  std::shared_ptr<const DevicePlan> device_plan(const std::vector<Shape>& shapes);

  /// The plan for inputs of these shapes.
  std::shared_ptr<const Plan> plan(const std::vector<Shape>& shapes);
  /// Its Plan::microseconds().
  std::optional<double> device_microseconds(const std::vector<Shape>& shapes) { return plan(shapes)->microseconds(); }

  /// What every step of a run on these inputs takes, in their order, for `run --profile`.
  struct StepProfile {
    std::string layer, op, what;  ///< `layer` is empty for a step that brings outputs to their place.
    double microseconds = 0, multiply_adds = 0, bytes = 0;  ///< As in StepTime.
  };
  std::vector<StepProfile> profile(std::span<const Tensor> inputs);

  /// Polygraphy's tactic replay JSON for this engine (`--save-tactics`).
  std::string tactic_replay_json() const;

  /// What became of a tensor that a layer reads or writes.
  struct TensorReport {
    std::string name;
    DataType storage = DataType::kUndefined;  ///< The type that it is stored in, where it is stored.
    std::optional<Shape> shape;               ///< For the shapes of the build; nothing: known at run time only.
    bool weight = false;                      ///< A constant that is prepared with the layer.
  };
  /// One line per layer, those in bodies behind the layer that runs them, without a group of their own: name,
  /// precision, storage, group, tactic and the reason for its precision.
  struct LayerReport {
    std::string name, op, precision, reason, group, tactic;
    std::vector<std::string> nodes;
    double microseconds = 0;  ///< Estimated on the target, for the whole group, on its first layer; 0 on the others.
    std::vector<TensorReport> inputs, outputs;  ///< Without absent ones.
    /// Bytes on the target, in the types that they are stored in: of the layer's weights, and of its outputs (0 for
    /// those that stay inside of a group).
    std::int64_t weight_bytes = 0, output_bytes = 0;
  };
  /// Empty while the build still waits for the first input shapes.
  std::vector<LayerReport> report() const;
  /// Bytes that all activations take here at once, held in physical types; 0 while the build waits.
  std::size_t arena_bytes() const;
  /// What the engine was built from and for.
  const Network& network() const noexcept;
  const BuildOptions& options() const noexcept;

  ~Engine();
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace ulpscope
