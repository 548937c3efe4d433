#include "runtime/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>

#include "core/messages.h"
#include "core/parallel.h"
#include "engine/assign.h"
#include "engine/attention.h"
#include "engine/cost.h"
#include "engine/tactics.h"
#include "graph/evaluate.h"
#include "graph/given_defaults.h"
#include "ops/registry.h"
#include "runtime/by_shapes.h"
#include "runtime/device_plans.h"
#include "runtime/executable.h"
#include "runtime/memory_limit.h"
#include "runtime/plan_file.h"
#include "ulpscope/error.h"

namespace ulpscope {

struct Engine::Impl {
  std::shared_ptr<const Network> network;
  BuildOptions options;
  std::vector<Binding> inputs, outputs, defaults;
  /// Those that costs and groups were computed for; nothing while an input has no rank.
  std::optional<std::vector<Shape>> build_shapes;
  /// Made by build; or by the first run, when the network does not work for the smallest shapes and no profile says
  /// more.
  std::unique_ptr<Executable> executable;
  DevicePlans device_plans;
  std::map<std::vector<std::string>, std::shared_ptr<Engine>> given;  ///< By the names of what callers give.
  std::mutex mutex, given_mutex;

  void make_executable(std::vector<Shape> shapes);
  Executable& built();
  /// What a caller gives, checked, in physical types; makes the executable if need be.
  std::vector<Tensor> to_executable(std::span<const Tensor> given);
};

void Engine::Impl::make_executable(std::vector<Shape> shapes) {
  const auto spec = specialize(*network, shapes);
  executable = std::make_unique<Executable>(*network, assign_precisions(*spec, options), options, spec);
  build_shapes = std::move(shapes);
}

Executable& Engine::Impl::built() {
  if (executable == nullptr)
    throw invalid_argument(
        build_shapes
            ? "[build] the shapes of the inputs are not known: the network has dynamic dimensions and does not work "
              "with 1 for each; run it first, or give --input-shapes, or a profile (--trt-min-shapes, "
              "--trt-opt-shapes, --trt-max-shapes)"
            : "[build] the shapes of the inputs are not known: the model gives not even the rank of an input; run it "
              "first, or give --input-shapes, or a profile (--trt-min-shapes, --trt-opt-shapes, --trt-max-shapes)");
  return *executable;
}

namespace {

const Shape* find_shape(const std::map<std::string, Shape>& shapes, const std::string& name) {
  const auto found = shapes.find(name);
  return found == shapes.end() ? nullptr : &found->second;
}

std::vector<Binding> bindings_of(const Network& network, const std::vector<TensorId>& ids) {
  std::vector<Binding> result;
  for (TensorId id : ids) {
    const TensorInfo& info = network.tensor(id);
    result.push_back({info.name, info.type, info.shape});
  }
  return result;
}

bool fits(const Shape& shape, const Shape& declared) {
  if (shape.size() != declared.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (shape[d] < 0 || (declared[d] >= 0 && shape[d] != declared[d])) return false;
  return true;
}

/// Concrete input shapes to build for: those of the first profile, else the declared ones with 1 for unknown
/// dimensions. Nothing where neither tells the rank of an input.
std::optional<std::vector<Shape>> shapes_to_build(const Network& network, const BuildOptions& options) {
  std::vector<Shape> result;
  for (TensorId id : network.inputs) {
    const TensorInfo& info = network.tensor(id);
    const auto check_rank = [&](const Shape* given) {
      if (given != nullptr && info.shape && given->size() != info.shape->size())
        throw invalid_argument("[build] input '{}': expected a shape like {}, got {}", info.name,
                               to_string(*info.shape), to_string(*given));
    };
    for (const Profile& profile : options.profiles)
      for (const auto* shapes : {&profile.min, &profile.opt, &profile.max}) check_rank(find_shape(*shapes, info.name));
    const Shape* shape = nullptr;
    if (!options.profiles.empty()) {
      shape = find_shape(options.profiles.front().opt, info.name);
      if (shape == nullptr) shape = find_shape(options.profiles.front().min, info.name);
    }
    if (shape == nullptr) {
      // An expectation, not a demand: one that does not fit is left aside.
      const Shape* typical = find_shape(options.typical_shapes, info.name);
      if (typical != nullptr && (!info.shape || fits(*typical, *info.shape))) shape = typical;
    }
    if (shape == nullptr && !info.shape) return std::nullopt;
    Shape chosen = shape != nullptr ? *shape : *info.shape;
    for (std::size_t d = 0; d < chosen.size(); ++d) {
      if (info.shape && (*info.shape)[d] >= 0 && chosen[d] != (*info.shape)[d])
        throw invalid_argument("[build] input '{}': expected a shape like {}, got {}", info.name,
                               to_string(*info.shape), to_string(chosen));
      if (chosen[d] < 0) chosen[d] = 1;
    }
    result.push_back(std::move(chosen));
  }
  return result;
}

void check_input(const Binding& binding, DataType type, const Shape& given, const BuildOptions& options) {
  const auto fail = [&](const std::string& expected) {
    throw invalid_argument("[run] input '{}': expected the shape {}, got {}", binding.name, expected, to_string(given));
  };
  if (type != binding.type)
    throw invalid_argument("[run] input '{}': expected elements of type {}, got {}", binding.name,
                           name_of(binding.type), name_of(type));
  if (binding.shape && !fits(given, *binding.shape)) fail(to_string(*binding.shape));
  if (options.profiles.empty()) return;
  const auto each_dim = [&](const Shape* bound, const auto& holds) {
    return bound == nullptr || std::ranges::equal(given, *bound, holds);
  };
  const bool inside = std::ranges::any_of(options.profiles, [&](const Profile& profile) {
    return each_dim(find_shape(profile.min, binding.name), std::greater_equal<>()) &&
           each_dim(find_shape(profile.max, binding.name), std::less_equal<>());
  });
  if (!inside) fail("between the minimum and maximum of a profile");
}

std::int64_t stored_bytes(const Specialization& spec, const Assignment& assignment, TensorId id) {
  const auto& shape = spec.shape(id);
  return shape ? num_elements(*shape) * static_cast<std::int64_t>(size_of(assignment.storage[id])) : 0;
}

void describe_tensors(const Specialization& spec, const Layer& layer, const Assignment& assignment, LayerId id,
                      Engine::LayerReport& row) {
  const Network& network = *spec.network;
  const auto describe = [&](TensorId tensor) {
    const TensorInfo& info = network.tensor(tensor);
    Engine::TensorReport entry{info.name, assignment.storage[tensor], spec.shape(tensor)};
    entry.weight = info.producer == kNone && static_cast<bool>(info.value);
    return entry;
  };
  for (TensorId input : present(layer.inputs)) {
    Engine::TensorReport& entry = row.inputs.emplace_back(describe(input));
    if (!entry.weight) continue;
    // A weight is prepared in the type that the layer computes in.
    if (is_floating(entry.storage) && layer.op->precision == PrecisionRule::kCompute)
      entry.storage = storage_of(assignment.precision[id]);
    row.weight_bytes += network.tensor(input).value.size() * static_cast<std::int64_t>(size_of(entry.storage));
  }
  for (TensorId output : present(layer.outputs)) row.outputs.push_back(describe(output));
  if (layer.op->kind == OpKind::kConstant)
    for (TensorId output : present(layer.outputs)) row.weight_bytes += stored_bytes(spec, assignment, output);
}

Engine::LayerReport report_of(const Specialization& spec, const Assignment& assignment, LayerId id) {
  const Layer& layer = spec.network->layer(id);
  Engine::LayerReport row;
  row.name = layer.name;
  row.op = layer.op->name;
  row.nodes = layer.nodes;
  row.reason = assignment.reason[id];
  const TensorId output = layer.output(0);
  row.precision = layer.op->precision == PrecisionRule::kCompute
                      ? std::string(name_of(assignment.precision[id]))
                      : std::string(output == kNone ? "-" : name_of(assignment.storage[output]));
  describe_tensors(spec, layer, assignment, id, row);
  return row;
}

/// Of the layers in its bodies.
void report_bodies(const Specialization& spec, const Assignment& assignment, LayerId holder,
                   const BuildOptions& options, std::vector<Engine::LayerReport>& rows) {
  const std::vector<Body> bodies = spec.network->bodies();
  for (std::size_t b = 0; b < bodies.size(); ++b) {
    const auto& inner = spec.bodies[b];
    if (bodies[b].holder != holder || inner == nullptr) continue;
    const Assignment own = assignment_of_body(assignment, bodies[b], inner->inferred,
                                              options.constraints != ConstraintMode::kNone, options.strongly_typed);
    for (LayerId id : inner->network->layers.ids()) {
      rows.push_back(report_of(*inner, own, id));
      report_bodies(*inner, own, id, options, rows);
    }
  }
}

std::unique_ptr<Engine::Impl> prepare(std::shared_ptr<const Network> network, const BuildOptions& options) {
  auto impl = std::make_unique<Engine::Impl>();
  impl->options = options;
  impl->inputs = bindings_of(*network, network->inputs);
  impl->outputs = bindings_of(*network, network->outputs);
  for (const DefaultValue& each : network->defaults)
    if (network->can_be_given(each))
      impl->defaults.push_back({network->tensor(each.tensor).name, each.value.type(), each.shape});
  impl->build_shapes = shapes_to_build(*network, options);
  impl->network = std::move(network);
  return impl;
}

}  // namespace

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

std::shared_ptr<Engine> Engine::build(std::shared_ptr<const Network> network, const BuildOptions& options) {
  set_num_threads(options.threads);
  if (options.tactic_replay) check_backend(*options.tactic_replay, find_backend(options.backend).name());
  auto impl = prepare(std::move(network), options);
  warn_of_small_limit(*impl->network, options.memory_limit);
  if (!impl->build_shapes) {
    log_verbose("The build waits for the first input shapes, since the model does not give the rank of every input");
    return std::make_shared<Engine>(std::move(impl));
  }
  const bool dynamic = std::ranges::any_of(
      impl->inputs, [](const Binding& b) { return !b.shape || std::ranges::find(*b.shape, -1) != b.shape->end(); });
  try {
    impl->make_executable(*impl->build_shapes);
  } catch (const Error& e) {
    if (!dynamic || !options.profiles.empty() || e.code() == ErrorCode::kBuild ||
        e.code() == ErrorCode::kInvalidArgument)
      throw;
    log_verbose(
        "The build waits for the first input shapes, since the network does not work with 1 for every dynamic "
        "dimension ({})",
        e.what());
    return std::make_shared<Engine>(std::move(impl));
  }
  if (options.tactic_replay) {
    const auto spec = impl->executable->specialization(*impl->build_shapes);
    const Assignment& assignment = impl->executable->assignment();
    check_replay(*options.tactic_replay, *spec, assignment, fuse(*spec, assignment, options.fusion));
    impl->executable->plan_for(*impl->build_shapes);  // Refuses algorithms that the device does not offer.
  }
  return std::make_shared<Engine>(std::move(impl));
}

std::shared_ptr<Engine> Engine::load(const std::filesystem::path& path, const BuildOptions& running) {
  PlanFile file = read_plan_file(path, op_registry());
  file.network->source = path.string();
  if (running.tactic_replay) check_backend(*running.tactic_replay, find_backend(running.backend).name());
  file.options.backend = running.backend;
  file.options.threads = running.threads;
  file.options.memory_limit = running.memory_limit;
  file.options.tactic_replay = running.tactic_replay;
  file.options.timing_cache = running.timing_cache;
  set_num_threads(running.threads);
  auto impl = prepare(file.network, file.options);
  if (!impl->build_shapes)
    throw invalid_file("[engine] {}: it does not say for which input shapes it was built", path.string());
  warn_of_small_limit(*impl->network, running.memory_limit);
  impl->executable = std::make_unique<Executable>(*impl->network, std::move(file.assignment), file.options);
  return std::make_shared<Engine>(std::move(impl));
}

void Engine::save(const std::filesystem::path& path) const {
  const Assignment& assignment = impl_->built().assignment();
  // The network need not work for any others, and what the loaded engine reports is about them.
  BuildOptions options = impl_->options;
  for (std::size_t i = 0; i < impl_->inputs.size(); ++i)
    options.typical_shapes.insert_or_assign(impl_->inputs[i].name, (*impl_->build_shapes)[i]);
  write_plan_file(path, *impl_->network, assignment, options);
}

const std::vector<Binding>& Engine::inputs() const noexcept { return impl_->inputs; }
const std::vector<Binding>& Engine::outputs() const noexcept { return impl_->outputs; }
const std::vector<Binding>& Engine::defaults() const noexcept { return impl_->defaults; }

std::shared_ptr<Engine> Engine::with_given(const std::vector<std::string>& names) {
  const std::lock_guard lock(impl_->given_mutex);
  std::shared_ptr<Engine>& engine = impl_->given[names];
  if (engine != nullptr) return engine;
  BuildOptions options = impl_->options;
  options.tactic_replay = nullptr;
  for (const std::string& name : names) {
    const DefaultValue* constant = impl_->network->find_default(name);
    if (constant == nullptr)
      throw invalid_argument("[run] '{}': expected an input of the model, or a constant that is one, too", name);
    options.typical_shapes.insert_or_assign(name, constant->value.shape());
  }
  return engine = build(with_inputs(*impl_->network, names), options);
}

std::vector<Tensor> Engine::Impl::to_executable(std::span<const Tensor> given) {
  if (given.size() != inputs.size())
    throw invalid_argument("[run] expected {} inputs, got {}", inputs.size(), given.size());
  set_num_threads(options.threads);
  std::vector<Tensor> physical;
  for (std::size_t i = 0; i < given.size(); ++i) {
    check_input(inputs[i], given[i].type(), given[i].shape(), options);
    physical.push_back(to_physical(given[i]));
  }
  const std::lock_guard lock(mutex);
  if (executable == nullptr) make_executable(shapes_of(physical));
  return physical;
}

std::vector<Tensor> Engine::run(std::span<const Tensor> inputs) {
  const std::vector<Tensor> physical = naming_file(network(), [&] { return impl_->to_executable(inputs); });
  std::vector<Tensor> outputs = impl_->executable->run_narrow(physical);
  for (std::size_t o = 0; o < outputs.size(); ++o)
    if (impl_->outputs[o].type != DataType::kUndefined && outputs[o].type() != impl_->outputs[o].type)
      outputs[o] = outputs[o].cast(impl_->outputs[o].type);
  return outputs;
}

void Engine::check_inputs(std::span<const DeviceTensor> inputs) const {
  if (inputs.size() != impl_->inputs.size())
    throw invalid_argument("[run] expected {} inputs, got {}", impl_->inputs.size(), inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i)
    check_input(impl_->inputs[i], inputs[i].type, inputs[i].shape, impl_->options);
}

DeviceSpace* Engine::space() const {
  const DeviceBackend* const backend = find_device_backend(impl_->options.backend);
  return backend != nullptr ? &backend->space() : nullptr;
}

std::shared_ptr<const DevicePlan> Engine::device_plan(const std::vector<Shape>& shapes) {
  set_num_threads(impl_->options.threads);
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->executable == nullptr) impl_->make_executable(shapes);
  }
  return impl_->device_plans.plan_for(shapes, *impl_->executable, *impl_->network, impl_->options);
}

std::vector<Engine::StepProfile> Engine::profile(std::span<const Tensor> inputs) {
  const std::vector<Tensor> physical = naming_file(network(), [&] { return impl_->to_executable(inputs); });
  std::vector<StepProfile> result;
  for (const StepTime& step : impl_->executable->plan_for(shapes_of(physical))->profile(physical)) {
    StepProfile& made = result.emplace_back();
    if (step.layer != kNone) {
      made.layer = impl_->network->layer(step.layer).name;
      made.op = impl_->network->layer(step.layer).op->name;
    }
    made.what = step.what;
    made.microseconds = step.microseconds;
    made.multiply_adds = step.multiply_adds;
    made.bytes = step.bytes;
  }
  return result;
}

std::shared_ptr<const Plan> Engine::plan(const std::vector<Shape>& shapes) {
  set_num_threads(impl_->options.threads);
  const std::lock_guard lock(impl_->mutex);
  if (impl_->executable == nullptr) impl_->make_executable(shapes);
  return impl_->executable->plan_for(shapes);
}

std::string Engine::tactic_replay_json() const {
  const auto plan = impl_->built().plan_for(*impl_->build_shapes);
  return tactics_to_json(*impl_->executable->specialization(*impl_->build_shapes), impl_->executable->assignment(),
                         plan->grouping(), find_backend(impl_->options.backend).name(), plan->tactics());
}

std::vector<Engine::LayerReport> Engine::report() const {
  if (impl_->executable == nullptr) return {};
  const Network& network = *impl_->network;
  const auto spec = impl_->executable->specialization(*impl_->build_shapes);
  const auto plan = impl_->executable->plan_for(*impl_->build_shapes);
  const Assignment& assignment = impl_->executable->assignment();
  const Target target = find_target(impl_->options.target);
  std::vector<LayerReport> result;
  const std::vector<double> times = group_times_us(*spec, plan->grouping(), assignment, target);
  for (const auto& [l, layer] : network.layers.items()) {
    LayerReport row = report_of(*spec, assignment, l);
    const int index = plan->grouping().group_of[l];
    // What only layers of the same group read is never stored.
    for (std::size_t o = 0; o < layer.outputs.size(); ++o) {
      const TensorId id = layer.outputs[o];
      if (id == kNone) continue;
      const auto& readers = spec->consumers[id];
      const bool inside =
          index >= 0 && !spec->output[id] && !readers.empty() &&
          std::ranges::all_of(readers, [&](LayerId reader) { return plan->grouping().group_of[reader] == index; });
      if (!inside && !spec->is_constant(id)) row.output_bytes += stored_bytes(*spec, assignment, id);
    }
    if (index >= 0) {
      const Group& group = plan->grouping().groups[index];
      row.group = group_name(network, group);
      const bool flash = group.kind == GroupKind::kAttention && std::ranges::any_of(group.layers, [&](LayerId id) {
                           return multiplies_exponentials(*spec, assignment, id);
                         });
      row.tactic = fmt::format("{}{}_{}", flash ? "flash_" : "", name_of(group.kind), row.precision);
      if (group.layers.front() == l) row.microseconds = times[index];
    }
    result.push_back(std::move(row));
    report_bodies(*spec, assignment, l, impl_->options, result);
  }
  return result;
}

std::size_t Engine::arena_bytes() const {
  return impl_->executable == nullptr ? 0 : impl_->executable->plan_for(*impl_->build_shapes)->arena_bytes();
}

const Network& Engine::network() const noexcept { return *impl_->network; }
const BuildOptions& Engine::options() const noexcept { return impl_->options; }

}  // namespace ulpscope
