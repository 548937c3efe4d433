// Lowering whole segments of a network, as float16 converters do that look for the layers they must leave alone.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace ulpscope {

/// The tries that a search spends on it: single layers beyond that gain little.
constexpr std::size_t segment_budget(std::size_t num_layers) { return num_layers < 64 ? 16 + num_layers / 4 : 32; }

/// Starts with every layer raised; tries to lower the largest segment that was not tried yet, keeps it low if that is
/// right, else halves it. Ends when every single layer was decided, or after `budget` tries. Returns per layer whether
/// it stays raised. `right`: tries a set (per layer: raised).
std::vector<char> search_segments(std::size_t num_layers, std::size_t budget,
                                  const std::function<bool(const std::vector<char>& raised)>& right);

}  // namespace ulpscope
