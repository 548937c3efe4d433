#include "tools/timing_cache.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "core/file.h"
#include "core/messages.h"
#include "engine/timing_cache.h"
#include "interrupt.h"
#include "ulpscope/error.h"

namespace ulpscope::cli {
namespace {

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

TimingCache read_cache(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored) || std::filesystem::file_size(path, ignored) == 0) return {};
  try {
    return timing_cache_from_json(read_file(path));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidFile) throw;
    throw invalid_file(
        "[options] --save-timing-cache {}: expected a timing cache of ulpscope, or no file; try another path ({})",
        path.string(), error.what());
  }
}

}  // namespace

void save_timing_cache(const std::filesystem::path& path, const Engine& engine) {
  TimingCache cache = read_cache(path);
  const std::string& target = engine.options().target;
  for (const auto& [group, microseconds] : times_of(engine)) cache.estimated[target][group] = microseconds;
  for (const auto& [device, tactics] : find_backend(engine.options().backend).measured().measured)
    for (const auto& [computes, tactic] : tactics) cache.measured[device][computes] = tactic;
  log_info("Saving tactic timing cache to " + path.string());
  const WritingFile writing;
  write_file(path, to_json(cache));
}

}  // namespace ulpscope::cli
