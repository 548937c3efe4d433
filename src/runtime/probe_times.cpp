// Files of measured probes.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/messages.h"
#include "runtime/measure_kernels.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kTimesFormat = "ulpscope-probe-times";
constexpr int kTimesVersion = 1;

ProbeTime time_from_json(const Json& json) {
  ProbeTime time{.probe = json.at("probe").get<int>(), .us = json.at("us").get<double>()};
  if (time.probe < 0 || !(time.us > 0) || !std::isfinite(time.us))
    throw invalid_file("expected a 'probe' of 0 or more and 'us' above 0, got " + json.dump());
  for (const Json& each : json.at("precisions")) {
    const auto name = each.get<std::string>();
    const std::optional<Precision> precision = precision_named(name);
    if (!precision) throw invalid_file("'precisions': expected {}, got '{}'", precision_list(" or "), name);
    time.precisions.set(*precision);
  }
  if (json.contains("mixed")) time.mixed = json["mixed"].get<bool>();
  return time;
}

}  // namespace

std::string probe_times_to_json(const ProbeTimes& times) {
  const Target::Origin& origin = times.origin;
  std::string text = fmt::format("{{\n \"format\": \"{}\", \"version\": {},\n \"measured\": {},\n \"times\": [",
                                 kTimesFormat, kTimesVersion,
                                 Json{{"program", origin.program},
                                      {"date", origin.date},
                                      {"backend", origin.backend},
                                      {"device", origin.device},
                                      {"libraries", origin.libraries}}
                                     .dump(-1, ' ', false, Json::error_handler_t::replace));
  bool first = true;
  for (const ProbeTime& time : times.times) {
    Json each{{"probe", time.probe}, {"precisions", Json::array()}};
    for (const Precision p : time.precisions.members()) each["precisions"].push_back(name_of(p));
    if (time.mixed) each["mixed"] = true;
    each["us"] = std::stod(fmt::format("{:.5g}", time.us));
    text += (first ? "\n  " : ",\n  ") + each.dump();
    first = false;
  }
  return text + "\n ]\n}\n";
}

ProbeTimes probe_times_from_json(std::string_view text, const std::string& where) {
  try {
    const Json json = Json::parse(text);
    if (json.at("format") != kTimesFormat || json.at("version") != kTimesVersion)
      throw invalid_file("expected the format \"{}\", version {}; try `ulpscope target measure --shapes --save-shapes`",
                         kTimesFormat, kTimesVersion);
    ProbeTimes result;
    const Json& measured = json.at("measured");
    result.origin.program = measured.at("program").get<std::string>();
    result.origin.date = measured.at("date").get<std::string>();
    result.origin.backend = measured.at("backend").get<std::string>();
    result.origin.device = measured.at("device").get<std::string>();
    result.origin.libraries = measured.at("libraries").get<std::map<std::string, std::string>>();
    for (const Json& each : json.at("times")) result.times.push_back(time_from_json(each));
    return result;
  } catch (const Error& e) {
    throw error_of(e.code(), "[target] '{}': {}", where, e.what());
  } catch (const nlohmann::json::exception& e) {
    throw invalid_file("[target] '{}': no measured shapes: {}", where, e.what());
  }
}

}  // namespace ulpscope
