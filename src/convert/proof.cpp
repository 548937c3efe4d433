#include "convert/proof.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "backend/backend.h"
#include "core/messages.h"
#include "core/parallel.h"
#include "engine/assign.h"
#include "engine/option_names.h"
#include "onnx/import.h"
#include "runners/foreign_operators.h"
#include "runtime/by_shapes.h"
#include "runtime/executable.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

/// Bytes for all runs that are done at a time: so much, and as much as they take, up to the last.
constexpr std::size_t kWorking = std::size_t{160} << 20, kMostWorking = std::size_t{2048} << 20;

void compare(const Network& network, const Network& typed, std::size_t output, std::size_t sample, Fusion level,
             Tensor expected, Tensor actual) {
  const DataType type = typed.tensor(typed.outputs[output]).type;
  if (type != DataType::kUndefined && expected.type() != type) expected = expected.cast(type);
  if (type != DataType::kUndefined && actual.type() != type) actual = actual.cast(type);
  const std::string& name = network.tensor(network.outputs[output]).name;
  const auto fail = [&](const std::string& what) {
    throw InternalError(
        fmt::format("[convert] the typed model does not compute what the assignment does: output '{}', sample {}, "
                    "--fusion {}: {}; nothing was written",
                    name, sample, name_of(level), what));
  };
  if (expected.type() != actual.type() || expected.shape() != actual.shape())
    fail(fmt::format("expected {} {}, got {} {}", name_of(expected.type()), to_string(expected.shape()),
                     name_of(actual.type()), to_string(actual.shape())));
  if (std::memcmp(expected.raw(), actual.raw(), expected.bytes()) == 0) return;
  if (!is_floating(expected.type())) fail("integers differ");
  const Tensor a = expected.cast(DataType::kFloat64), b = actual.cast(DataType::kFloat64);
  std::int64_t count = 0, first = -1;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double x = a.data<double>()[i], y = b.data<double>()[i];
    if ((std::isnan(x) && std::isnan(y)) || (x == y && std::signbit(x) == std::signbit(y))) continue;
    if (first < 0) first = i;
    ++count;
  }
  if (count > 0)
    fail(fmt::format("{} of {} elements differ, the first at {}: expected {}, got {}", count, a.size(), first,
                     a.data<double>()[first], b.data<double>()[first]));
}

/// What both networks are given.
struct ProofSample {
  std::vector<Tensor> inputs;  ///< Physical types.
  std::vector<Shape> shapes;
};

ProofSample proof_sample(const Network& network, const Network& typed, const TensorMap& sample, std::size_t index) {
  ProofSample result;
  for (std::size_t i = 0; i < network.inputs.size(); ++i) {
    const TensorInfo& info = network.tensor(network.inputs[i]);
    const Tensor* found = find_tensor(sample, info.name);
    if (found == nullptr) throw invalid_argument("[convert] sample {}: expected the input '{}'", index, info.name);
    Tensor value = found->type() == info.type ? *found : found->cast(info.type);
    // An input in a narrower type arrives rounded; so both get the same values.
    const DataType type = typed.tensor(typed.inputs[i]).type;
    if (type != info.type) value = value.cast(type).cast(info.type);
    result.shapes.push_back(value.shape());
    const DataType physical = physical_type(info.type);
    result.inputs.push_back(physical == value.type() ? value : value.cast(physical));
  }
  return result;
}

/// One run that both networks do.
struct ProofRun {
  std::size_t sample = 0;
  Fusion level = Fusion::kFull;
};
using Outputs = std::vector<Tensor>;

std::size_t bytes_of(const std::vector<Tensor>& tensors) {
  std::size_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor.bytes();
  return bytes;
}

/// Does runs of one network side by side, each with its share of the threads: on small networks threads that work on
/// one sample together mostly wait for each other.
class ProofRunner {
 public:
  ProofRunner(const Network& network, Executable& executable, const std::vector<ProofSample>& samples,
              const TypedModelOptions& options)
      : network_(network), executable_(executable), samples_(samples), options_(options) {}

  /// Calls take(run, its outputs) for each, some at a time. `interrupt` of the options is called once per run, by this
  /// thread.
  void run(std::span<const ProofRun> runs, const std::function<void(std::size_t, Outputs)>& take) {
    std::map<Fusion, ByShapes<const Plan>> plans;
    for (const ProofRun& each : runs) plans[each.level].expect(samples_[each.sample].shapes);
    const auto plan_of = [&](const ProofRun& each) {
      const auto& shapes = samples_[each.sample].shapes;
      return plans[each.level].use(shapes,
                                   [&] { return executable_.plan_for(shapes, executable_.assignment(), each.level); });
    };
    std::atomic<std::size_t> begun = 0;
    std::size_t told = 0;
    const auto tell = [&](std::size_t count) {
      for (; told < count; ++told)
        if (options_.interrupt) options_.interrupt();
    };
    const auto task = [&](std::size_t r) {
      ++begun;
      take(r, naming_file(network_, [&] { return plan_of(runs[r])->run(samples_[runs[r].sample].inputs); }));
    };
    ThreadShare share{1, num_threads()};
    if (runs.size() > 1 && num_threads() > 1) {
      const ProofRun& largest = *std::ranges::max_element(
          runs, {}, [&](const ProofRun& each) { return bytes_of(samples_[each.sample].inputs); });
      plans[largest.level].expect(samples_[largest.sample].shapes);
      const std::size_t bytes = plan_of(largest)->arena_bytes(), limit = options_.memory_limit;
      share = share_threads(runs.size(), bytes, limit != 0 ? limit / 4 : std::min(kMostWorking, kWorking + 2 * bytes));
    }
    run_tasks(0, runs.size(), share, task, [&] { tell(std::min(begun + 1, runs.size())); });
    tell(runs.size());
  }

 private:
  const Network& network_;
  Executable& executable_;
  const std::vector<ProofSample>& samples_;
  const TypedModelOptions& options_;
};

/// Of each sample whether its bits are compared first: two, and one of every other set of shapes.
std::vector<bool> first_samples(const std::vector<ProofSample>& samples) {
  std::set<std::vector<Shape>> seen;
  std::vector<bool> result;
  for (const ProofSample& each : samples) result.push_back(seen.insert(each.shapes).second || result.size() < 2);
  return result;
}

/// Of the types that the network declares.
TensorMap named(const Network& network, const std::vector<Tensor>& outputs) {
  TensorMap result;
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    const TensorInfo& info = network.tensor(network.outputs[o]);
    const bool other = info.type != DataType::kUndefined && outputs[o].type() != info.type;
    result.push_back({info.name, other ? outputs[o].cast(info.type) : outputs[o]});
  }
  return result;
}

void warn_of_idle(const std::vector<std::string>& bodies) {
  if (bodies.empty()) return;
  log_warning(
      "[convert] No sample runs {}: what is written there follows the same rules, but no bits prove it; try samples "
      "that run it",
      fmt::join(bodies, ", "));
}

}  // namespace

int prove_equal_bits(const Network& network, const Assignment& assignment, const std::filesystem::path& file,
                     const TypedModelOptions& convert_options, bool equal_at_every_level,
                     std::vector<TensorMap>& outputs) {
  const std::shared_ptr<Network> typed = import_onnx(file, registry_with_onnxruntime());
  set_dynamic_scale_rule(*typed, assignment.scale_choice.mx);
  BuildOptions options, typed_options;
  options.fusion = typed_options.fusion = convert_options.fusion;
  options.memory_limit = typed_options.memory_limit = convert_options.memory_limit;
  options.constraints = ConstraintMode::kObey;  // As what the assignment was made with, for what bodies store.
  typed_options.strongly_typed = true;
  typed_options.accumulation = assignment.accumulation;
  typed_options.attention = assignment.attention;
  // What a file stores does not depend on the sample: one shows that it is the same without fusion.
  const bool both_levels = convert_options.fusion != Fusion::kNone && equal_at_every_level;
  const auto levels_of = [&](std::size_t sample) {
    return both_levels && sample == 0 ? std::vector{convert_options.fusion, Fusion::kNone}
                                      : std::vector{convert_options.fusion};
  };
  std::vector<ProofSample> samples;
  for (std::size_t s = 0; s < convert_options.samples.size(); ++s)
    samples.push_back(proof_sample(network, *typed, convert_options.samples[s], s));
  if (samples.empty()) return 0;
  const auto first_spec = specialize(*typed, samples.front().shapes);
  const Assignment types = assign_precisions(*first_spec, typed_options);
  std::vector<ProofRun> runs;
  for (std::size_t s = 0; s < samples.size(); ++s)
    for (const Fusion level : levels_of(s)) runs.push_back({s, level});
  std::vector<Outputs> expected(runs.size());
  std::vector<std::string> idle;
  {  // One network after the other: never the weights of both.
    Executable original(network, assignment, options);
    ProofRunner(network, original, samples, convert_options).run(runs, [&](std::size_t r, Outputs each) {
      expected[r] = std::move(each);
    });
    idle = original.idle_bodies(assignment);
  }
  warn_of_idle(idle);
  for (std::size_t r = 0; r < runs.size(); ++r)
    if (runs[r].level == convert_options.fusion) outputs.push_back(named(network, expected[r]));
  Executable converted(*typed, types, typed_options, first_spec);
  const std::vector<bool> is_first = first_samples(samples);
  const auto prove = [&](bool first) {
    std::vector<ProofRun> compared;
    std::vector<Outputs> wanted;
    for (std::size_t r = 0; r < runs.size(); ++r)
      if (is_first[runs[r].sample] == first) {
        compared.push_back(runs[r]);
        wanted.push_back(std::move(expected[r]));
      }
    ProofRunner(network, converted, samples, convert_options).run(compared, [&](std::size_t r, Outputs actual) {
      for (std::size_t o = 0; o < actual.size(); ++o)
        compare(network, *typed, o, compared[r].sample, compared[r].level, std::move(wanted[r][o]),
                std::move(actual[o]));
      wanted[r].clear();
    });
    return static_cast<int>(compared.size());
  };
  const int count = prove(true);
  // What a file stores depends on shapes and on the bodies that run.
  return converted.idle_bodies(types).size() > idle.size() ? count + prove(false) : count;
}

}  // namespace ulpscope
