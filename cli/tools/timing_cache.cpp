#include "tools/timing_cache.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>

#include "console.h"
#include "core/file.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

using TimingJson = nlohmann::ordered_json;

std::string described(const std::vector<Engine::TensorReport>& tensors) {
  std::vector<std::string> texts;
  for (const Engine::TensorReport& tensor : tensors)
    texts.push_back(fmt::format("{}{}", name_of(tensor.storage), tensor.shape ? to_string(*tensor.shape) : ""));
  return fmt::format("{}", fmt::join(texts, ", "));
}

/// "Conv fp16: float16(1, 3, 8, 8) -> float16(1, 4, 6, 6) + Relu ...", and its microseconds.
std::map<std::string, double> times_of(const Engine& engine) {
  std::map<std::string, std::pair<std::string, double>> groups;
  for (const Engine::LayerReport& layer : engine.report()) {
    auto& [text, microseconds] = groups[layer.group];
    text += fmt::format("{}{} {}: {} -> {}", text.empty() ? "" : " + ", layer.op, layer.precision,
                        described(layer.inputs), described(layer.outputs));
    microseconds += layer.microseconds;
  }
  std::map<std::string, double> times;
  for (const auto& [name, group] : groups)
    if (group.second > 0) times.insert(group);
  return times;
}

TimingJson read_cache(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored) || std::filesystem::file_size(path, ignored) == 0)
    return {{"timing_cache", 1}, {"microseconds", TimingJson::object()}};
  TimingJson cache = TimingJson::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  if (!cache.is_object() || cache.value("timing_cache", 0) != 1 || !cache["microseconds"].is_object())
    throw Error(ErrorCode::kInvalidFile,
                fmt::format("[options] --save-timing-cache {}: expected a timing cache of ulpscope, or no file; try "
                            "another path",
                            path.string()));
  return cache;
}

}  // namespace

void save_timing_cache(const std::filesystem::path& path, const Engine& engine) {
  TimingJson cache = read_cache(path);
  TimingJson& times = cache["microseconds"][engine.options().target];
  if (times.is_null()) times = TimingJson::object();
  for (const auto& [group, microseconds] : times_of(engine)) times[group] = microseconds;
  log_info("Saving tactic timing cache to " + path.string());
  const WritingFile writing;
  write_file(path, cache.dump(1) + "\n");
}

}  // namespace ulpscope::cli
