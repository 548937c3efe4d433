// What a tactic replay asks of the steps of one plan.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cuda/steps.h"
#include "engine/fusion.h"
#include "engine/tactics.h"
#include "graph/network.h"
#include "ulpscope/error.h"

namespace ulpscope::cuda {

/// Names generated kernels among what steps compute; their algorithm is the hash of their source.
inline constexpr std::string_view kGeneratedKernel = "generated kernel";

/// How the steps of a plan are computed, once that is chosen.
std::vector<StepTactic> tactics_of(const Steps& steps);

class Replay {
 public:
  /// `wanted` may be null: then it asks for nothing. `device`: as in PlanTactics. All arguments outlive it. Throws
  /// Error(kBuild) for the algorithms of another device.
  Replay(const TacticReplay* wanted, const Network& network, const Grouping& grouping, std::string_view device);

  /// There is one.
  bool asks() const { return wanted_ != nullptr; }
  /// The replay has an algorithm for this somewhere.
  bool has(const std::string& computes) const { return known_.contains(computes); }
  /// The algorithm of this step, which a product or a convolution has; null: the backend chooses.
  const std::string* algorithm(LayerId layer, std::string_view computes);
  /// Takes note of the hash of a kernel's source.
  void generated(LayerId layer, std::string_view hash);
  /// For an algorithm that its library does not take.
  Error refusal(LayerId layer, std::string_view computes, std::string_view algorithm) const;
  /// Warns of what the replay did not have.
  void report() const;

 private:
  struct Missing {
    int count = 0, of = 0;
    std::string first;
    void add(bool found, const std::string& step);
  };
  /// What the replay says of the group of a layer; null: nothing.
  const TacticReplay::GroupTactics* group(LayerId layer) const;
  std::string layer_name(LayerId layer) const;

  const TacticReplay* const wanted_;
  const Network& network_;
  const Grouping& grouping_;
  const std::string_view device_;
  std::set<std::string_view> known_;
  Missing algorithms_, kernels_;
};

}  // namespace ulpscope::cuda
