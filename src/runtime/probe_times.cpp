// Files of measured probes.
#include <fmt/format.h>

#include <cmath>

#include "core/messages.h"
#include "engine/target_json.h"
#include "runtime/measure_kernels.h"

namespace ulpscope {
namespace {

constexpr std::string_view kTimesFormat = "ulpscope-probe-times";
constexpr int kTimesVersion = 1;

ProbeTime to_time(const json::Reader& reader) {
  ProbeTime time{.probe = reader.at("probe").integer(0, 1 << 20, "the number of a probe"),
                 .us = reader.at("us").real()};
  if (!(time.us > 0) || std::isinf(time.us)) reader.at("us").fail("a number above 0");
  reader.at("precisions").each([&](const json::Reader& each) { time.precisions.set(json::to_precision(each)); });
  time.mixed = reader.has("mixed") && reader.at("mixed").boolean();
  return time;
}

}  // namespace

std::string probe_times_to_json(const ProbeTimes& times) {
  json::Json measured = json::from_origin(times.origin);
  measured.erase("threads");  // Of a CPU.
  std::string text =
      fmt::format("{{\n \"format\": \"{}\", \"version\": {},\n \"measured\": {},\n \"times\": [", kTimesFormat,
                  kTimesVersion, measured.dump(-1, ' ', false, json::Json::error_handler_t::replace));
  bool first = true;
  for (const ProbeTime& time : times.times) {
    json::Json each{{"probe", time.probe}, {"precisions", json::Json::array()}};
    for (const Precision p : time.precisions.members()) each["precisions"].push_back(name_of(p));
    if (time.mixed) each["mixed"] = true;
    each["us"] = std::stod(fmt::format("{:.5g}", time.us));
    text += (first ? "\n  " : ",\n  ") + each.dump();
    first = false;
  }
  return text + "\n ]\n}\n";
}

ProbeTimes probe_times_from_json(std::string_view text, const std::string& where) {
  json::Json json;
  if (!json::parse(text, json)) throw invalid_file("[target] '{}': expected JSON; is the file damaged?", where);
  const json::Reader reader(json, fmt::format("[target] '{}'", where));
  if (reader.at("format").text() != kTimesFormat || reader.at("version").integer() != kTimesVersion)
    reader.fail(fmt::format("the format \"{}\", version {}; try `ulpscope target measure --shapes --save-shapes`",
                            kTimesFormat, kTimesVersion));
  ProbeTimes result{json::to_origin(reader.at("measured")), {}};
  reader.at("times").each([&](const json::Reader& each) { result.times.push_back(to_time(each)); });
  return result;
}

}  // namespace ulpscope
