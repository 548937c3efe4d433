#include "engine/target.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "core/file.h"
#include "core/messages.h"
#include "engine/target_data.h"
#include "engine/target_formats.h"
#include "engine/target_json.h"
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

using json::Json;
using json::not_negative;
using json::Reader;

constexpr char kFormat[] = "ulpscope-target";
constexpr int kVersion = 1;
constexpr std::int64_t kMostCounted = 1 << 30;

Target target_of_kernels(const std::string& name);

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

/// Calls `visit(key, value)` for the figures that may be 0. Files may lack all but the first.
template <typename AnyTarget, typename Visit>
void visit_figures(AnyTarget& target, const Visit& visit) {
  visit("launch_us", target.launch_us);
  visit("cast_share", target.cast_share);
  visit("product_cast_share", target.product_cast_share);
  visit("weight_us_per_mb", target.weight_us_per_mb);
  visit("cached_mb", target.cached_mb);
}

template <typename AnyOrigin, typename Visit>
void visit_origin(AnyOrigin& origin, const Visit& visit) {
  visit("program", origin.program);
  visit("date", origin.date);
  visit("backend", origin.backend);
  visit("device", origin.device);
}

double positive(const Reader& reader, const char* expected = "a number above 0") {
  const double value = reader.real();
  if (!(value > 0) || std::isinf(value)) reader.fail(expected);
  return value;
}

void check_version(const Reader& reader) {
  const std::string form = fmt::format("\"format\": \"{}\", \"version\": {}", kFormat, kVersion);
  if (!reader.has("format") || !reader.has("version")) reader.fail(fmt::format("{}; try adding these", form));
  if (reader.at("format").text() != kFormat) reader.at("format").fail(fmt::format("\"{}\"", kFormat));
  if (reader.at("version").integer() != kVersion)
    reader.at("version").fail(fmt::format("{}; try measuring again with `ulpscope target measure`", kVersion));
}

void read_rates(const Reader& rates, Target& target) {
  rates.members([&](const std::string& name, const Reader& rate) {
    const std::optional<Precision> precision = precision_named(name);
    if (!precision) rate.fail(fmt::format("{} as the key", precision_list(" or ")));
    target.tflops[static_cast<std::size_t>(*precision)] =
        positive(rate, "a number above 0 (leave out what the device does not have)");
  });
  if (!target.has(Precision::kFP32)) rates.fail("a rate of fp32");
}

std::shared_ptr<const TimedKernels> to_groups(const Reader& groups) {
  auto timed = std::make_shared<TimedKernels>();
  groups.each([&](const Reader& group) {
    auto& times = (*timed)[group.at("kernel").text()];
    group.at("us").members(
        [&](const std::string& precision, const Reader& us) { times[precision] = not_negative(us); });
  });
  return timed;
}

/// Those of another target are named alone, unless they are `scaled`.
std::shared_ptr<const KernelModel> to_kernels(const Reader& reader, const Target& target, bool scaled) {
  auto model = std::make_shared<KernelModel>();
  if (reader.has("of")) {
    model->of = reader.at("of").text();
    return scaled ? scaled_kernels(target_of_kernels(model->of), target, model->of) : model;
  }
  model->networks = reader.at("networks").integer(0, kMostCounted, "a number of networks");
  model->median_error = reader.at("median_error").real();
  model->large_error = reader.at("large_error").real();
  reader.at("us").each([&](const Reader& each) {
    const auto kind = kernel_kind_named(each.at("kind").text());
    if (!kind) each.at("kind").fail("a kind of kernel");
    KernelTerms& factors = model->us[{*kind, json::to_precision(each.at("precision"))}];
    for (std::size_t t = 0; t < kKernelTerms; ++t)
      if (const std::string term(name_of(static_cast<KernelTerm>(t))); each.has(term.c_str()))
        factors[t] = not_negative(each.at(term.c_str()));
  });
  return model;
}

Target to_target(const Reader& reader, bool scaled) {
  check_version(reader);
  Target target;
  target.name = reader.at("name").text();
  target.bandwidth_gb_per_s = positive(reader.at("bandwidth_gb_per_s"));
  visit_figures(target, [&](const char* key, double& figure) {
    if (&figure == &target.launch_us || reader.has(key)) figure = not_negative(reader.at(key));
  });
  if (!reader.has("product_cast_share")) target.product_cast_share = target.cast_share;
  read_rates(reader.at("tflops"), target);
  if (reader.has("processors"))
    target.processors = reader.at("processors").integer(0, kMostCounted, "a number of processors");
  if (reader.has("kernels")) target.kernels = to_kernels(reader.at("kernels"), target, scaled);
  if (reader.has("measured")) target.origin = json::to_origin(reader.at("measured"));
  if (reader.has("groups")) target.timed = to_groups(reader.at("groups"));
  return target;
}

/// Factors of 0 are left out, as are digits that no measurement has.
Json from_kernels(const KernelModel& model) {
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

Precision json::to_precision(const Reader& reader) {
  const std::string text = reader.text();
  if (const auto precision = precision_named(text)) return *precision;
  reader.fail(fmt::format("a precision ({})", precision_list(", ")));
}

Json json::from_origin(const Target::Origin& origin) {
  Json result;
  visit_origin(origin, [&](const char* key, const std::string& value) { result[key] = value; });
  result["threads"] = origin.threads;
  result["libraries"] = origin.libraries;
  return result;
}

Target::Origin json::to_origin(const Reader& reader) {
  Target::Origin origin;
  visit_origin(origin, [&](const char* key, std::string& value) { value = reader.at(key).text(); });
  if (reader.has("threads")) origin.threads = reader.at("threads").integer(0, 1 << 20, "a number of threads");
  if (reader.has("libraries"))
    reader.at("libraries").members([&](const std::string& name, const Reader& version) {
      origin.libraries[name] = version.text();
    });
  return origin;
}

namespace {

Target target_of_text(std::string_view text, const std::string& where, bool scaled) {
  Json json;
  if (!json::parse(text, json)) throw invalid_file("[target] '{}': expected JSON; is the file damaged?", where);
  return to_target(Reader(json, fmt::format("[target] '{}'", where)), scaled);
}

/// As find_target(), for one that takes its kernels. Does not look for those that it takes itself: files may name each
/// other.
Target target_of_kernels(const std::string& name) {
  return is_target_file(name) ? target_of_text(read_file(name), name, false) : find_target(name);
}

}  // namespace

Target target_from_json(std::string_view text, const std::string& where) { return target_of_text(text, where, true); }

std::string target_to_json(const Target& target) {
  Json json{{"format", kFormat}, {"version", kVersion}, {"name", target.name}};
  if (target.origin) json["measured"] = json::from_origin(*target.origin);
  Json& rates = json["tflops"] = Json::object();
  for (std::size_t p = 0; p < target.tflops.size(); ++p)
    if (target.tflops[p] > 0) rates[std::string(name_of(static_cast<Precision>(p)))] = target.tflops[p];
  json["bandwidth_gb_per_s"] = target.bandwidth_gb_per_s;
  visit_figures(target, [&](const char* key, double figure) { json[key] = figure; });
  if (target.processors > 0) json["processors"] = target.processors;
  if (target.kernels != nullptr) json["kernels"] = from_kernels(*target.kernels);
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
