#include "engine/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "engine/target_data.h"
#include "ulpscope/error.h"

namespace ulpscope {

double Target::work_us(double operations, double bytes, Precision p) const noexcept {
  const double rate = tflops[static_cast<std::size_t>(p)];
  return std::max(operations / (rate * 1e6), bytes / (bandwidth_gb_per_s * 1e3));
}

namespace {

Target parse(const std::string& text, const std::string& where) {
  try {
    const auto json = nlohmann::json::parse(text);
    Target target;
    target.name = json.at("name").get<std::string>();
    target.bandwidth_gb_per_s = json.at("bandwidth_gb_per_s").get<double>();
    target.launch_us = json.at("launch_us").get<double>();
    for (int p = 0; p < static_cast<int>(target.tflops.size()); ++p)
      target.tflops[static_cast<std::size_t>(p)] =
          json.at("tflops").value(std::string(name_of(static_cast<Precision>(p))), 0.0);
    if (target.bandwidth_gb_per_s <= 0 || target.launch_us < 0 || !target.has(Precision::kFP32))
      throw Error(ErrorCode::kInvalidFile, "the rates must be positive, and fp32 must have one");
    return target;
  } catch (const nlohmann::json::exception& e) {
    throw Error(ErrorCode::kInvalidFile, fmt::format("{}: not a target description: {}", where, e.what()));
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("{}: {}", where, e.what()));
  }
}

}  // namespace

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const auto& [name, text] : kTargetData) names.emplace_back(name);
  return names;
}

Target find_target(const std::string& name) {
  for (const auto& [known, text] : kTargetData)
    if (known == name) return parse(std::string(text), fmt::format("target '{}'", name));
  if (name.ends_with(".json")) return parse(read_file(name), name);
  throw Error(ErrorCode::kNotFound,
              fmt::format("[target] unknown target '{}': expected one of {}, or a JSON file of that form", name,
                          fmt::join(target_names(), ", ")));
}

}  // namespace ulpscope
