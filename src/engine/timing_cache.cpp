#include "engine/timing_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/messages.h"

namespace ulpscope {
namespace {

using TimingJson = nlohmann::ordered_json;

template <typename... T>
[[noreturn]] void fail(fmt::format_string<T...> text, T&&... values) {
  throw invalid_file("[timing cache] expected {}", fmt::format(text, std::forward<T>(values)...));
}

/// The object under a key, {} where there is none.
TimingJson object_in(const TimingJson& object, const char* key) {
  if (!object.contains(key)) return TimingJson::object();
  if (!object[key].is_object()) fail("an object as '{}', got {}", key, object[key].type_name());
  return object[key];
}

double microseconds_in(const TimingJson& value, const std::string& of) {
  if (!value.is_number()) fail("microseconds of '{}', got {}", of, value.type_name());
  return value.get<double>();
}

/// Caches are lines of text.
bool is_line(const std::string& text) {
  return !text.empty() && std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}

MeasuredTactic measured_in(const std::string& computes, const TimingJson& entry) {
  if (!entry.is_object() || !entry.contains("algorithm") || !entry["algorithm"].is_string() ||
      !entry.contains("microseconds"))
    fail("'algorithm' and 'microseconds' of '{}'", computes);
  MeasuredTactic tactic{entry["algorithm"].get<std::string>(), microseconds_in(entry["microseconds"], computes)};
  if (!is_line(computes) || !is_line(tactic.algorithm)) fail("a line of text as the algorithm of '{}'", computes);
  return tactic;
}

}  // namespace

TimingCache timing_cache_from_json(const std::string& text) {
  const TimingJson file = TimingJson::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool ours = file.is_object() && file.contains("timing_cache") && file["timing_cache"] == 1;
  if (!ours || !file.contains("microseconds")) fail("a timing cache of ulpscope");
  TimingCache cache;
  const TimingJson estimated = object_in(file, "microseconds"), measured = object_in(file, "tactics");
  for (const auto& [target, groups] : estimated.items()) {
    if (!groups.is_object()) fail("times by group of '{}', got {}", target, groups.type_name());
    for (const auto& [group, value] : groups.items()) cache.estimated[target][group] = microseconds_in(value, group);
  }
  for (const auto& [device, tactics] : measured.items()) {
    if (!tactics.is_object()) fail("tactics by what they compute of '{}'", device);
    for (const auto& [computes, entry] : tactics.items())
      cache.measured[device][computes] = measured_in(computes, entry);
  }
  return cache;
}

std::string to_json(const TimingCache& cache) {
  TimingJson file{{"timing_cache", 1}, {"microseconds", cache.estimated}};
  for (const auto& [device, tactics] : cache.measured)
    for (const auto& [computes, tactic] : tactics)
      file["tactics"][device][computes] = {{"algorithm", tactic.algorithm}, {"microseconds", tactic.microseconds}};
  return file.dump(1, ' ', false, TimingJson::error_handler_t::replace) + "\n";
}

}  // namespace ulpscope
