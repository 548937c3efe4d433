#include "tools/engine_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/messages.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

constexpr std::size_t kSmall = 20;

/// Whether the layer computes with floats; others report the type that they move.
bool computes(const Engine::LayerReport& layer) { return precision_named(layer.precision).has_value(); }

void log_layers(const std::vector<Engine::LayerReport>& layers, LogLevel level) {
  log(level, fmt::format("Layers ({}): precision, reason, group, tactic", layers.size()));
  const LogIndent indent;
  for (const Engine::LayerReport& layer : layers) {
    std::string line = fmt::format("{} [{}] | {}", layer.name, layer.op, layer.precision);
    if (!layer.reason.empty()) line += ": " + layer.reason;
    if (!layer.group.empty()) line += " | group: " + layer.group;
    if (!layer.tactic.empty()) line += " | tactic: " + layer.tactic;
    if (layer.microseconds > 0) line += fmt::format(" | {:.4g} us on the target", layer.microseconds);
    log(level, line);
    if (layer.nodes.size() > 1 || (layer.nodes.size() == 1 && layer.nodes[0] != layer.name)) {
      const LogIndent nodes;
      log(LogLevel::kVerbose, fmt::format("from the nodes {}", fmt::join(layer.nodes, ", ")));
    }
  }
}

void log_summary(const std::vector<Engine::LayerReport>& layers) {
  std::vector<std::pair<std::pair<std::string, std::string>, std::vector<std::string>>> decisions;
  std::size_t others = 0;
  for (const Engine::LayerReport& layer : layers) {
    if (!computes(layer)) {
      ++others;
      continue;
    }
    // What follows a colon is about this very layer ("... would save 0.4 us here").
    const auto key = std::make_pair(layer.precision, layer.reason.substr(0, layer.reason.find(": ")));
    auto found = std::ranges::find(decisions, key, [](const auto& entry) { return entry.first; });
    if (found == decisions.end()) found = decisions.insert(decisions.end(), {key, {}});
    found->second.push_back(layer.name);
  }
  log_info("Precisions of {} layers (-v shows each)", layers.size());
  const LogIndent indent;
  for (const auto& [decision, names] : decisions) {
    std::vector<std::string> shown(names.begin(), names.begin() + std::min<std::ptrdiff_t>(3, std::ssize(names)));
    log_info("{} | {} layer(s){}{}: {}{}", decision.first, names.size(), decision.second.empty() ? "" : " | ",
             decision.second, fmt::join(shown, ", "), names.size() > shown.size() ? ", ..." : "");
  }
  if (others > 0) log_info("no precision of their own | {} layer(s) that move values, or compute integers", others);
}

}  // namespace

void log_engine_report(const Engine& engine, bool reduced) {
  if (!log_enabled(LogLevel::kInfo)) return;
  const std::vector<Engine::LayerReport> layers = engine.report();
  const auto first = std::ranges::find_if(layers, computes);
  const bool mixed = std::any_of(first, layers.end(), [&](const Engine::LayerReport& layer) {
    return computes(layer) && layer.precision != first->precision;
  });
  const bool worth_a_line = reduced || mixed;
  if (log_enabled(LogLevel::kVerbose) || (worth_a_line && layers.size() <= kSmall)) {
    log_layers(layers, worth_a_line && layers.size() <= kSmall ? LogLevel::kInfo : LogLevel::kVerbose);
  } else if (worth_a_line) {
    log_summary(layers);
  }
}

}  // namespace ulpscope::cli
