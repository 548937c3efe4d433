// What carries out kernel descriptions. A backend is a folder here, a line in backends.cpp, and the tests' next column.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/activation_store.h"
#include "backend/weights.h"
#include "engine/kernels.h"
#include "engine/tactics.h"
#include "engine/timing_cache.h"

namespace ulpscope {

/// Runs the graph that is this attribute of a layer; `inputs` are all inputs of its network, captured values included.
using GraphFunction = std::function<std::vector<Tensor>(std::string_view attribute, std::span<const Tensor> inputs)>;

/// What one step of a plan takes by itself.
struct StepTime {
  LayerId layer = kNone;  ///< The last one that the step computes; kNone: it brings outputs to their place.
  std::string what;       ///< What computes it: "reorder", "cuBLASLt 128x768x768", ...
  double microseconds = 0;
  double multiply_adds = 0;  ///< Products that it adds up; 0: none, or not known.
  double bytes = 0;          ///< That it reads and writes at least; 0: not known.
  bool converts = false;     ///< It brings an operand of the layer into another type, and does nothing else.
};

/// A schedule, ready to run. Immutable; `run` may be called by several threads at once, with distinct stores.
class Plan {
 public:
  virtual ~Plan() = default;

  /// `inputs` in the order of the network's inputs, physical types, the shapes of the specialization. The outputs are
  /// fresh tensors, physical types, rounded to their storage type. With a store, which belongs to these inputs: what it
  /// has need not be computed again; with `keep`, what other plans can start from is added to it.
  virtual std::vector<Tensor> run(std::span<const Tensor> inputs, ActivationStore* store = nullptr,
                                  bool keep = true) const = 0;

  /// As run() without a store, for who wants outputs in the types that the network declares: what is float16 or
  /// bfloat16 may come as that, where it need not be made as float32 first.
  virtual std::vector<Tensor> run_narrow(std::span<const Tensor> inputs) const { return run(inputs); }

  /// Prepares weights ahead of the first run, with all threads of this one; where a run prepares them, it takes one
  /// after the other.
  virtual void prepare() const {}

  /// What one run takes on the device, inputs being there already: the least of several. Nothing where a backend has no
  /// clock of its own, or where the CPU computes in between.
  virtual std::optional<double> microseconds() const { return std::nullopt; }

  /// Times of the steps in their order, the least of several runs on these inputs; empty where a backend has none.
  virtual std::vector<StepTime> profile([[maybe_unused]] std::span<const Tensor> inputs) const { return {}; }

  /// Which algorithms compute its steps, as far as there was something to choose or to generate.
  virtual PlanTactics tactics() const { return {}; }

  /// Bytes of all activations at once, where the backend holds them.
  virtual std::size_t arena_bytes() const noexcept = 0;

  const Specialization& specialization() const noexcept { return *spec_; }
  const Grouping& grouping() const noexcept { return schedule_.grouping; }

 protected:
  Plan(std::shared_ptr<const Specialization> spec, Schedule schedule)
      : spec_(std::move(spec)), schedule_(std::move(schedule)) {}

  const std::shared_ptr<const Specialization> spec_;
  const Schedule schedule_;
};

/// What a backend runs on, for files of measured times.
struct DeviceDescription {
  std::string name;                              ///< "NVIDIA H200".
  std::map<std::string, std::string> libraries;  ///< Versions of what computes, by name.
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const noexcept = 0;

  /// Throws Error(kUnsupported) where the device is not there.
  virtual DeviceDescription device() const { return {std::string(name()), {}}; }

  /// Warms the device up in advance. Optional.
  /// Throws what plan() would; plan() may still be called afterwards.
  virtual void start() const {}

  /// Outputs must be copied from device memory, so one large network beats several small ones.
  virtual bool has_own_memory() const noexcept { return false; }

  /// The backend for bodies of control flow, which layers of a plan run.
  virtual std::string_view body_backend() const noexcept { return name(); }

  /// Whether it measures algorithms and takes the fastest.
  virtual bool measures() const noexcept { return false; }
  /// All that it knows of its device, for files.
  virtual TimingCache measured() const { return {}; }
  /// What was measured on the same device, here or elsewhere, is not measured again; warns where there is nothing of
  /// it.
  virtual void take_measured([[maybe_unused]] const TimingCache& cache) const {}

  /// Prepares the constants that `weights` has not prepared yet, and lowers every description to steps. `weights` and
  /// `subgraphs` (per layer: what runs its graphs; empty for layers without) outlive the plan. `replay`: the algorithms
  /// to take, of the groups that it names; null: the backend chooses. Throws Error(kBuild), also where a replay wants
  /// an algorithm that the device does not offer.
  virtual std::shared_ptr<const Plan> plan(std::shared_ptr<const Specialization> spec, Schedule schedule,
                                           WeightCache& weights, const IdMap<LayerId, GraphFunction>& subgraphs,
                                           const TacticReplay* replay) const = 0;
};

/// "cpu" (also as "auto": its bits do not depend on a machine), the fast one on every machine; "cuda", an NVIDIA GPU;
/// or "plain", the simplest code that follows the descriptions (docs/adding_a_backend.md). Throws Error(kNotFound)
/// listing the names.
const Backend& find_backend(std::string_view name);
std::span<const Backend* const> backends();

}  // namespace ulpscope
