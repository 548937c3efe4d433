// The strategies of Polygraphy's precision tools: which layers to try in higher precision next, given which tries were
// right. They know nothing of networks and engines: layers are indices into a list, a try is a function.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace ulpscope {

enum class Direction : std::uint8_t {
  kForward,  ///< The first layers, from the network's inputs.
  kReverse,  ///< The last layers, from its outputs.
};

/// One set of layers to try in higher precision.
struct Attempt {
  std::vector<int> layers;  ///< Ascending.
  int count = 0;            ///< layers.size(); what "the first N layers" names.
  int remaining = 0;        ///< About how many tries are left.
  std::optional<int> good;  ///< The smallest count that was right so far.
  std::optional<int> bad;   ///< The largest count below it that was wrong.
  bool probe = false;       ///< Made after the answer was known, to see whether larger sets pass as well.
};

/// True if the outputs are right with exactly these layers in higher precision. May throw.
using TryLayers = std::function<bool(const Attempt&)>;

struct StrategyResult {
  /// The smallest set that was tried and right; nothing: none was.
  std::optional<std::vector<int>> layers;
  /// Every try, in order: how many layers, and the verdict.
  std::vector<std::pair<int, bool>> tried;
  /// False if some try was wrong although a smaller one was right: then smaller sets than the answer may exist.
  bool monotone() const;
};

/// Where a bisection starts, and what it takes for granted.
enum class BisectStart : std::uint8_t {
  /// No layer; then halfway to one more than all. The old `precision bisect`.
  kNone,
  /// All layers; then halfway to none, which is never tried. `debug precision --mode bisect`.
  kAll,
};

/// Bisection over the first (last) N of `num_layers` layers; O(log n) tries. Finds the smallest right N if right sets
/// stay right when they grow. `probes`: that many larger sets are tried afterwards, to see whether they do.
StrategyResult bisect_layers(int num_layers, Direction direction, BisectStart start, const TryLayers& right,
                             int probes = 0);

/// 0, 1, 2, ... layers, up to the first that is right. Finds the smallest right N, whatever larger ones do.
StrategyResult add_layers(int num_layers, Direction direction, const TryLayers& right, int probes = 0);

/// No layer, then the first `step`, 2 * `step`, ... of `ranking`, which are layers, worst first, each once.
/// REQUIRES: step > 0.
StrategyResult add_worst_layers(const std::vector<int>& ranking, int step, const TryLayers& right);

/// Largest ratio first: each output's error divided by that of the output before it, in the order of the list; what
/// is not finite comes first (what follows it is not to blame), an error after none too. The first output has no ratio
/// and comes last. Ties keep their order. Returns indices into `errors`.
std::vector<int> rank_by_error_growth(const std::vector<double>& errors);

}  // namespace ulpscope
