#include "runners/script_host.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>

#include "core/messages.h"
#include "runners/network_exchange.h"
#include "runners/tensor_values.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

bool is_identifier(std::string_view text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text.front())) != 0) return false;
  return std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c >= 0x80; });
}

Value::Map place_of(const ScriptName& script) { return {{"path", script.path}, {"function", script.function}}; }

Value iteration_value(const IterationResult& result) {
  return Value::Map{{"outputs", value_of(result.outputs)},
                    {"runtime", result.runtime ? Value(*result.runtime) : Value()},
                    {"runner_name", result.runner_name}};
}

/// "FP16", as TensorRT's BuilderFlag has it.
std::string builder_flag(Precision precision) {
  std::string name(name_of(precision));
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

Value config_value(const BuildOptions& options) {
  Value::Array flags, profiles;
  for (const Precision p : options.enabled.members()) flags.emplace_back(builder_flag(p));
  if (options.constraints == ConstraintMode::kObey) flags.emplace_back("OBEY_PRECISION_CONSTRAINTS");
  if (options.constraints == ConstraintMode::kPrefer) flags.emplace_back("PREFER_PRECISION_CONSTRAINTS");
  for (const Profile& profile : options.profiles) {
    Value::Map shapes;
    for (const auto& [name, opt] : profile.opt) {
      const auto min = profile.min.find(name), max = profile.max.find(name);
      shapes.emplace_back(
          name, Value::Array{Value::of_shape(min == profile.min.end() ? opt : min->second), Value::of_shape(opt),
                             Value::of_shape(max == profile.max.end() ? opt : max->second)});
    }
    profiles.emplace_back(std::move(shapes));
  }
  return Value::Map{{"flags", std::move(flags)}, {"profiles", std::move(profiles)}};
}

BuildOptions options_from(const Value& config, BuildOptions options, const std::string& where) {
  const std::vector<std::string> flags = config["flags"].strings();
  const auto has = [&](std::string_view name) { return std::ranges::find(flags, name) != flags.end(); };
  for (const LayerForm& form : layer_forms())
    options.enabled.set(form.precision, form.precision != Precision::kFP32 && has(builder_flag(form.precision)));
  options.enabled = with_smaller_blocks(options.enabled);
  if (has("OBEY_PRECISION_CONSTRAINTS") || has("STRICT_TYPES"))
    options.constraints = ConstraintMode::kObey;
  else if (has("PREFER_PRECISION_CONSTRAINTS"))
    options.constraints = ConstraintMode::kPrefer;
  else
    options.constraints = ConstraintMode::kNone;
  options.profiles.clear();
  for (const Value& entry : config["profiles"].array()) {
    Profile profile;
    for (const auto& [name, shapes] : entry.map()) {
      const Value::Array& triple = shapes.array();
      profile.min[name] = triple.at(0).shape();
      profile.opt[name] = triple.at(1).shape();
      profile.max[name] = triple.at(2).shape();
    }
    options.profiles.push_back(std::move(profile));
  }
  if (config["calibrator"].is_bool() && config["calibrator"].boolean())
    log_warning(
        "[script] {}: its calibrator is not used: ulpscope calibrates itself; give a cache with --calibration-cache",
        where);
  return options;
}

}  // namespace

ScriptName ScriptName::parse(const std::string& text, std::string_view default_function) {
  const std::size_t colon = text.rfind(':');
  if (colon != std::string::npos && colon > 0 && is_identifier(std::string_view(text).substr(colon + 1)))
    return {text.substr(0, colon), text.substr(colon + 1)};
  return {text, std::string(default_function)};
}

bool ScriptComparison::passed() const {
  return std::ranges::all_of(outputs, [](const auto& entry) { return entry.second; });
}

ScriptDataLoader::ScriptDataLoader(std::shared_ptr<Worker> worker, std::int64_t handle, ScriptName script)
    : worker_(std::move(worker)), handle_(handle), script_(std::move(script)) {}

ScriptDataLoader::~ScriptDataLoader() {
  try {
    if (worker_->alive()) worker_->call("close_data_loader", Value::Map{{"handle", handle_}});
  } catch (...) {
    // The script's clean-up failed; the data that it gave is complete.
  }
}

std::optional<TensorMap> ScriptDataLoader::next() {
  const Value feed = worker_->call(
      "next_data", Value::Map{{"handle", handle_}, {"path", script_.path}, {"function", script_.function}});
  if (feed.is_null()) return std::nullopt;
  return tensors_from(feed);
}

struct ScriptHost::Impl {
  Callbacks callbacks;
  WorkerOptions options;
  std::mutex mutex;
  std::shared_ptr<Worker> network_worker, data_worker;

  std::shared_ptr<Worker> start(std::shared_ptr<Worker>& worker, Shims shims) {
    const std::lock_guard lock(mutex);
    if (!worker || !worker->alive()) {
      WorkerOptions own = options;
      own.shims = shims;
      if (&worker == &network_worker && own.description_limit.count() > 0) own.call_limit = own.description_limit;
      worker = Worker::start(std::move(own));
    }
    return worker;
  }

  /// The networks that a script sees during one call, by handle.
  struct Session {
    const Callbacks& callbacks;
    std::vector<std::shared_ptr<const Network>> networks;
    const Network* lent = nullptr;  ///< Handle 0: the caller's.

    const Network* find(const Value& handle) const {
      if (handle.is_null()) return nullptr;
      const std::int64_t index = handle.integer();
      if (index == 0 && lent != nullptr) return lent;
      if (index < 1 || index > static_cast<std::int64_t>(networks.size()))
        throw error_of(ErrorCode::kScript, "[script] network: there is no network {}", index);
      return networks[index - 1].get();
    }

    Value add(std::shared_ptr<const Network> network) {
      networks.push_back(std::move(network));
      return describe_network(*networks.back(), static_cast<int>(networks.size()));
    }

    Value answer(const std::string& method, const Value& args) {
      if (method == "import_path" && callbacks.import_path) return add(callbacks.import_path(args["path"].text()));
      if (method == "import_bytes" && callbacks.import_bytes) {
        const Tensor& data = args["data"].tensor();
        return add(callbacks.import_bytes({static_cast<const std::byte*>(data.raw()), data.bytes()}));
      }
      if (method == "infer") return infer_description(find(args["network"]["handle"]), args["network"], *callbacks.ops);
      if (method == "constant") {
        const Network* network = find(args["handle"]);
        const Tensor value = network == nullptr ? Tensor() : constant_of(*network, args["tensor"].integer());
        if (!value)
          throw Error(ErrorCode::kScript, "[script] network: expected a constant of the model, got another tensor");
        return value;
      }
      throw unsupported("[script] worker: this program cannot answer '{}'", method);
    }
  };

  Value call(const char* method, Value::Map args, Session& session) {
    if (callbacks.ops == nullptr) throw InternalError("a script host for networks needs the operators");
    return start(network_worker, Shims::kFirst)
        ->call(method, std::move(args),
               [&](const std::string& name, const Value& request) { return session.answer(name, request); });
  }

  Value::Map place_and_network(const ScriptName& script, const Network& network) {
    Value::Map args = place_of(script);
    args.emplace_back("network", describe_network(network, 0));
    return args;
  }
};

ScriptHost::ScriptHost(Callbacks callbacks, WorkerOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->callbacks = std::move(callbacks);
  impl_->options = std::move(options);
}

ScriptHost::~ScriptHost() = default;

ScriptNetwork ScriptHost::load_network(const ScriptName& script) {
  log_verbose("Loading a network through {}:{}", script.path, script.function);
  Impl::Session session{impl_->callbacks, {}, nullptr};
  const Value description = impl_->call("load_network", place_of(script), session);
  ScriptNetwork result;
  result.network = apply_description(session.find(description["handle"]), description, *impl_->callbacks.ops);
  if (result.network->source.empty()) result.network->source = script.path;
  result.strongly_typed = description["strongly_typed"].boolean();
  return result;
}

std::shared_ptr<Network> ScriptHost::postprocess_network(const ScriptName& script, const Network& network) {
  log_verbose("Postprocessing the network through {}:{}", script.path, script.function);
  Impl::Session session{impl_->callbacks, {}, &network};
  const Value description = impl_->call("postprocess_network", impl_->place_and_network(script, network), session);
  return apply_description(&network, description, *impl_->callbacks.ops);
}

BuildOptions ScriptHost::load_config(const ScriptName& script, const Network& network, const BuildOptions& base) {
  Impl::Session session{impl_->callbacks, {}, &network};
  const Value config = impl_->call("load_config", impl_->place_and_network(script, network), session);
  return options_from(config, base, script.path);
}

BuildOptions ScriptHost::postprocess_config(const ScriptName& script, const Network& network,
                                            const BuildOptions& options) {
  Impl::Session session{impl_->callbacks, {}, &network};
  Value::Map args = impl_->place_and_network(script, network);
  args.emplace_back("config", config_value(options));
  return options_from(impl_->call("postprocess_config", std::move(args), session), options, script.path);
}

std::unique_ptr<ScriptDataLoader> ScriptHost::open_data_loader(const ScriptName& script) {
  const std::shared_ptr<Worker> worker = data_worker();
  const Value handle = worker->call("open_data_loader", place_of(script));
  return std::make_unique<ScriptDataLoader>(worker, handle.integer(), script);
}

ScriptComparison ScriptHost::compare(const ScriptName& script, const IterationResult& first,
                                     const IterationResult& second) {
  Value::Map args = place_of(script);
  args.emplace_back("first", iteration_value(first));
  args.emplace_back("second", iteration_value(second));
  const Value verdicts = data_worker()->call("compare", std::move(args));
  ScriptComparison result;
  for (const Value& entry : verdicts["outputs"].array())
    result.outputs.emplace_back(entry.array().at(0).text(), entry.array().at(1).boolean());
  result.details = verdicts["details"].strings();
  return result;
}

TensorMap ScriptHost::postprocess_outputs(const ScriptName& script, const IterationResult& result) {
  Value::Map args = place_of(script);
  args.emplace_back("result", iteration_value(result));
  return tensors_from(data_worker()->call("postprocess_result", std::move(args)));
}

std::shared_ptr<Worker> ScriptHost::data_worker() { return impl_->start(impl_->data_worker, Shims::kFallback); }

}  // namespace ulpscope
