#include "engine/target.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "core/messages.h"
#include "engine/target_data.h"
#include "engine/target_formats.h"
#include "graph/assignment.h"
#include "ulpscope/error.h"

namespace ulpscope {

double Target::work_us(double operations, double bytes, Precision p) const noexcept {
  return std::max(operations / (rate(p) * 1e6), bytes / (bandwidth_gb_per_s * 1e3));
}

double Target::rate(Precision p) const noexcept {
  const auto own = [&](Precision each) { return tflops[static_cast<std::size_t>(each)]; };
  if (own(p) > 0 || !is_of_weights(p)) return own(p);
  return own(Precision::kFP16) > 0 ? own(Precision::kFP16) : own(Precision::kFP32);
}

double Target::uncached_us(const KernelWork& work) const noexcept {
  const auto mb = [&](KernelTerm term) { return work.terms[static_cast<std::size_t>(term)]; };
  const double bytes = mb(KernelTerm::kMb) + mb(KernelTerm::kWeightMb);
  return std::max(0.0, bytes - cached_mb) * 1e3 / bandwidth_gb_per_s;
}

double Target::pass_us(double elements, double bytes_per_element) const {
  if (kernels != nullptr) return kernel_us(cast_work(elements, bytes_per_element));
  return launch_us + elements * bytes_per_element / (bandwidth_gb_per_s * 1e3);
}

std::string Target::figures() const {
  std::string text = fmt::format("{} {} {} {} {} {}", bandwidth_gb_per_s, launch_us, cast_share, product_cast_share,
                                 weight_us_per_mb, cached_mb);
  for (const double rate : tflops) text += fmt::format(" {}", rate);
  if (kernels != nullptr)
    for (const auto& [kernel, factors] : kernels->us)
      text += fmt::format("\n{} {} {}", name_of(kernel.first), name_of(kernel.second), fmt::join(factors, " "));
  if (timed != nullptr)
    for (const auto& [kernel, times] : *timed)
      for (const auto& [precision, us] : times) text += fmt::format("\n{} {} {}", kernel, precision, us);
  return text;
}

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "ulpscope-target";
constexpr int kVersion = 1;

/// What is known of the kernels of `other`, as this GPU's rates are to that one's: arithmetic by its peak, what one
/// processor does alone by its share of that, bytes in the cache by the number of processors, and calls by the launch.
std::shared_ptr<const KernelModel> scaled_kernels(const Target& other, const Target& own, const std::string& name) {
  if (other.kernels == nullptr || !other.kernels->of.empty())
    throw invalid_file("[target] '{}': has no measured kernels that '{}' could take", name, own.name);
  auto result = std::make_shared<KernelModel>(*other.kernels);
  result->of = name;
  const double launch = other.launch_us > 0 ? own.launch_us / other.launch_us : 1;
  const double processors =
      other.processors > 0 && own.processors > 0 ? static_cast<double>(own.processors) / other.processors : 1;
  const double bytes = 1 / processors;
  std::erase_if(result->us, [&](const auto& each) { return !own.has(each.first.second); });
  for (auto& [kernel, factors] : result->us) {
    const double arithmetic = other.rate(kernel.second) / own.rate(kernel.second);
    const double alone = kernel.first == KernelKind::kRecurrent ? launch : arithmetic * processors;
    const KernelTerms by{launch, alone, arithmetic, bytes, bytes, launch, bytes};
    for (std::size_t t = 0; t < kKernelTerms; ++t) factors[t] *= by[t];
  }
  return result;
}

class TargetReader {
 public:
  TargetReader(const Json& json, const std::string& where) : json_(json), where_(where) {}

  Target read() const {
    if (!json_.is_object()) fail("expected a JSON object, got something else");
    check_version();
    Target target;
    target.name = text(json_, "name");
    target.bandwidth_gb_per_s = number(json_, "bandwidth_gb_per_s");
    if (!(target.bandwidth_gb_per_s > 0)) fail_number("bandwidth_gb_per_s", "above 0", target.bandwidth_gb_per_s);
    target.launch_us = number(json_, "launch_us");
    if (!(target.launch_us >= 0)) fail_number("launch_us", "0 or more", target.launch_us);
    target.cast_share = not_negative("cast_share", 1);
    target.product_cast_share = not_negative("product_cast_share", target.cast_share);
    target.weight_us_per_mb = not_negative("weight_us_per_mb", 0);
    target.cached_mb = not_negative("cached_mb", 0);
    read_rates(target);
    if (json_.contains("processors")) target.processors = static_cast<int>(not_negative("processors", 0));
    if (json_.contains("kernels")) target.kernels = kernels(json_["kernels"], target);
    if (json_.contains("measured")) target.origin = origin(json_["measured"]);
    if (json_.contains("groups")) read_groups(json_["groups"], target);
    return target;
  }

 private:
  template <typename... T>
  [[noreturn]] void fail(fmt::format_string<T...> text, T&&... values) const {
    throw invalid_file("[target] '{}': {}", where_, fmt::format(text, std::forward<T>(values)...));
  }
  [[noreturn]] void fail_number(const std::string& key, const char* expected, double got) const {
    fail("'{}': expected a number {}, got {}", key, expected, got);
  }

  double not_negative(const std::string& key, double otherwise) const {
    const double value = json_.contains(key) ? number(json_, key) : otherwise;
    if (!(value >= 0)) fail_number(key, "0 or more", value);
    return value;
  }

  void check_version() const {
    for (const char* key : {"format", "version"})
      if (!json_.contains(key))
        fail("expected '{}', got none; try adding \"format\": \"{}\", \"version\": {} to it", key, kFormat, kVersion);
    if (json_["format"] != kFormat) fail("expected the format \"{}\", got {}", kFormat, json_["format"].dump());
    if (json_["version"] != kVersion)
      fail("expected version {}, got {}; try measuring again with `ulpscope target measure`", kVersion,
           json_["version"].dump());
  }

  std::string text(const Json& object, const char* key) const {
    if (!object.contains(key)) fail("expected '{}', got none", key);
    if (!object[key].is_string()) fail("'{}': expected text, got {}", key, object[key].dump());
    return object[key].get<std::string>();
  }
  double number(const Json& object, const std::string& key) const {
    if (!object.contains(key)) fail("expected the number '{}', got none", key);
    if (!object[key].is_number()) fail("'{}': expected a number, got {}", key, object[key].dump());
    return object[key].get<double>();
  }

  void read_rates(Target& target) const {
    if (!json_.contains("tflops") || !json_["tflops"].is_object())
      fail("expected the object 'tflops' of rates per precision");
    const Json& rates = json_["tflops"];
    for (const auto& [name, rate] : rates.items()) {
      const std::optional<Precision> precision = precision_named(name);
      if (!precision) fail("'tflops': expected {}, got '{}'", precision_list(" or "), name);
      const double value = number(rates, name);
      if (!(value > 0))
        fail("'tflops', '{}': expected a number above 0, got {}; leave out what the device does not have", name, value);
      target.tflops[static_cast<std::size_t>(*precision)] = value;
    }
    if (!target.has(Precision::kFP32)) fail("'tflops': expected a rate of fp32, got none");
  }

  Target::Origin origin(const Json& json) const {
    if (!json.is_object()) fail("'measured': expected an object");
    Target::Origin result;
    result.program = text(json, "program");
    result.date = text(json, "date");
    result.backend = text(json, "backend");
    result.device = text(json, "device");
    if (json.contains("threads")) result.threads = static_cast<int>(number(json, "threads"));
    if (json.contains("libraries"))
      for (const auto& [name, version] : json["libraries"].items())
        if (version.is_string()) result.libraries[name] = version.get<std::string>();
    return result;
  }

  void read_groups(const Json& groups, Target& target) const {
    if (!groups.is_array()) fail("'groups': expected a list");
    auto timed = std::make_shared<TimedKernels>();
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const Json& each = groups[i];
      if (!each.is_object() || !each.contains("us") || !each["us"].is_object())
        fail("'groups', element {}: expected an object of 'kernel' and 'us', times per precision", i);
      auto& times = (*timed)[text(each, "kernel")];
      for (const auto& [precision, us] : each["us"].items()) {
        const double value = us.is_number() ? us.get<double>() : -1;
        if (!(value >= 0) || !std::isfinite(value))
          fail("'groups', element {}, '{}': expected microseconds, 0 or more, got {}", i, precision, us.dump());
        times[precision] = value;
      }
    }
    target.timed = std::move(timed);
  }

  std::shared_ptr<const KernelModel> kernels(const Json& json, const Target& target) const {
    if (!json.is_object()) fail("'kernels': expected an object");
    if (json.contains("of")) return scaled_kernels(find_target(text(json, "of")), target, text(json, "of"));
    auto model = std::make_shared<KernelModel>();
    model->networks = static_cast<int>(number(json, "networks"));
    model->median_error = number(json, "median_error");
    model->large_error = number(json, "large_error");
    if (!json.contains("us") || !json["us"].is_array()) fail("'kernels': expected the list 'us' of factors");
    for (const Json& each : json["us"]) read_factors(each, *model);
    return model;
  }

  void read_factors(const Json& json, KernelModel& model) const {
    if (!json.is_object()) fail("'kernels', 'us': expected objects of 'kind', 'precision' and factors");
    const std::string kind_name = text(json, "kind"), precision_name = text(json, "precision");
    const auto kind = kernel_kind_named(kind_name);
    const auto precision = precision_named(precision_name);
    if (!kind) fail("'kernels', 'us', 'kind': expected a kind of kernel, got '{}'", kind_name);
    if (!precision) fail("'kernels', 'us', 'precision': expected {}, got '{}'", precision_list(" or "), precision_name);
    KernelTerms& factors = model.us[{*kind, *precision}];
    for (std::size_t t = 0; t < kKernelTerms; ++t) {
      const std::string term(name_of(static_cast<KernelTerm>(t)));
      if (!json.contains(term)) continue;
      factors[t] = number(json, term);
      if (!(factors[t] >= 0)) fail_number(term, "0 or more", factors[t]);
    }
  }

  const Json& json_;
  const std::string& where_;
};

}  // namespace

Target target_from_json(std::string_view text, const std::string& where) {
  try {
    const Json json = Json::parse(text);
    return TargetReader(json, where).read();
  } catch (const nlohmann::json::exception& e) {
    throw invalid_file("[target] '{}': not a target description: {}", where, e.what());
  }
}

namespace {

/// Factors of 0 are left out, as are digits that no measurement has.
Json kernels_to_json(const KernelModel& model) {
  if (!model.of.empty()) return {{"of", model.of}};
  const auto rounded = [](double value) { return std::stod(fmt::format("{:.4g}", value)); };
  Json us = Json::array();
  for (const auto& [kernel, factors] : model.us) {
    Json each{{"kind", name_of(kernel.first)}, {"precision", name_of(kernel.second)}};
    for (std::size_t t = 0; t < kKernelTerms; ++t)
      if (factors[t] > 0) each[std::string(name_of(static_cast<KernelTerm>(t)))] = rounded(factors[t]);
    us.push_back(std::move(each));
  }
  return {{"networks", model.networks},
          {"median_error", rounded(model.median_error)},
          {"large_error", rounded(model.large_error)},
          {"us", std::move(us)}};
}

}  // namespace

std::string target_to_json(const Target& target) {
  Json json{{"format", kFormat}, {"version", kVersion}, {"name", target.name}};
  if (target.origin)
    json["measured"] = {{"program", target.origin->program}, {"date", target.origin->date},
                        {"backend", target.origin->backend}, {"device", target.origin->device},
                        {"threads", target.origin->threads}, {"libraries", target.origin->libraries}};
  Json& rates = json["tflops"] = Json::object();
  for (std::size_t p = 0; p < target.tflops.size(); ++p)
    if (target.tflops[p] > 0) rates[std::string(name_of(static_cast<Precision>(p)))] = target.tflops[p];
  json["bandwidth_gb_per_s"] = target.bandwidth_gb_per_s;
  json["launch_us"] = target.launch_us;
  json["cast_share"] = target.cast_share;
  json["product_cast_share"] = target.product_cast_share;
  json["weight_us_per_mb"] = target.weight_us_per_mb;
  json["cached_mb"] = target.cached_mb;
  if (target.processors > 0) json["processors"] = target.processors;
  if (target.kernels != nullptr) json["kernels"] = kernels_to_json(*target.kernels);
  Json& groups = json["groups"] = Json::array();
  if (target.timed != nullptr)
    for (const auto& [kernel, times] : *target.timed) groups.push_back({{"kernel", kernel}, {"us", times}});
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const auto& [name, text] : kTargetData) names.emplace_back(name);
  return names;
}

bool is_target_file(std::string_view name) { return name.ends_with(".json"); }

Target find_target(const std::string& name) {
  for (const auto& [known, text] : kTargetData)
    if (known == name) return target_from_json(text, name);
  if (is_target_file(name)) {
    static std::mutex mutex;
    static std::pair<std::string, Target> last;  // By what the file says.
    std::string text = read_file(name);
    const std::lock_guard lock(mutex);
    if (last.first != text) last = {text, target_from_json(text, name)};
    return last.second;
  }
  if (name == kMeasuredTarget)
    throw unsupported(
        "[target] 'measured': `ulpscope precision search` measures the machine before it begins; expected the file of "
        "`ulpscope target measure -o FILE.json` (ulpscope.measure_target) here");
  throw error_of(ErrorCode::kNotFound, "[target] unknown target '{}': expected one of {}, or a JSON file of that form",
                 name, fmt::join(target_names(), ", "));
}

void refuse_lacking_formats(const std::string& target, PrecisionSet enabled, std::string_view where) {
  if (target == kMeasuredTarget || is_target_file(target)) return;
  const Target chosen = find_target(target);
  for (const Precision p : enabled.members())
    if (!is_float(p) && !chosen.has(p))
      throw invalid_argument("{} {}: {} has no {} arithmetic; try {} --weights-only, or another target", where, target,
                             chosen.name, name_of(p), form_of(p).flag());
}

}  // namespace ulpscope
