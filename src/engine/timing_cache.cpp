#include "engine/timing_cache.h"

#include <algorithm>

#include "core/json_reader.h"
#include "core/messages.h"

namespace ulpscope {
namespace {

using json::Json;
using json::Reader;

/// Caches are lines of text.
bool is_line(const std::string& text) {
  return !text.empty() && std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}

MeasuredTactic to_tactic(const std::string& computes, const Reader& reader) {
  MeasuredTactic tactic{reader.at("algorithm").text(), json::not_negative(reader.at("microseconds"))};
  if (!is_line(tactic.algorithm)) reader.at("algorithm").fail("a line of text");
  if (!is_line(computes)) reader.fail("a line of text as its key");
  return tactic;
}

}  // namespace

TimingCache timing_cache_from_json(const std::string& text) {
  Json json;
  const bool ours = json::parse(text, json) && json.is_object() && json.contains("timing_cache") &&
                    json["timing_cache"] == 1 && json.contains("microseconds");
  if (!ours) throw invalid_file("[timing cache] expected a timing cache of ulpscope");
  const Reader file(json, "[timing cache]");
  TimingCache cache;
  file.at("microseconds").members([&](const std::string& target, const Reader& groups) {
    groups.members(
        [&](const std::string& group, const Reader& us) { cache.estimated[target][group] = json::not_negative(us); });
  });
  if (!file.has("tactics")) return cache;
  file.at("tactics").members([&](const std::string& device, const Reader& tactics) {
    tactics.members([&](const std::string& computes, const Reader& entry) {
      cache.measured[device][computes] = to_tactic(computes, entry);
    });
  });
  return cache;
}

std::string to_json(const TimingCache& cache) {
  Json file{{"timing_cache", 1}, {"microseconds", cache.estimated}};
  for (const auto& [device, tactics] : cache.measured)
    for (const auto& [computes, tactic] : tactics)
      file["tactics"][device][computes] = {{"algorithm", tactic.algorithm}, {"microseconds", tactic.microseconds}};
  return file.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ulpscope
