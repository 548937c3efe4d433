// What an assignment costs on a target: tactic times, launches, reformats and broken fusions.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/fusion.h"
#include "engine/specialization.h"
#include "engine/target.h"
#include "graph/assignment.h"

namespace ulpscope {

/// Operations (a multiply-add counts two) and bytes of a layer's weights and activations, per element size.
struct LayerWork {
  double operations = 0;
  double multiply_adds = 0;  ///< Those of matrix products, convolutions and recurrent layers whose shapes are known.
  double weight_elements = 0, activation_elements = 0;
};
LayerWork work_of(const Specialization& spec, const Layer& layer);

/// 0 for kNone and for shapes that are not known.
double elements_of(const Specialization& spec, TensorId id);

/// The choice of precisions as a labeling problem. All costs are microseconds on the target.
struct CostProblem {
  struct Node {
    LayerId layer = kNone;
    std::vector<Precision> choices;  ///< From low to high.
    std::vector<double> cost;        ///< Per choice: its work, and its launch where it opens a group.
  };
  /// One tensor between nodes. A cast to each other storage type that is wanted is paid once.
  struct Value {
    TensorId tensor = kNone;
    int producer = -1;           ///< Node; -1: a network input, stored as float32.
    bool output = false;         ///< Also a network output, in float32.
    std::vector<int> consumers;  ///< Nodes.
    double elements = 0;
    double pass_us = 0;  ///< A pass that converts it,
    double share = 1;    ///< and what a cast takes of one.
    double cast_us() const noexcept { return share * pass_us; }
  };
  /// Neighbors that would be one group: paid when their storage types differ.
  struct Link {
    int a, b;
    double broken_us;
  };
  std::vector<Node> nodes;
  std::vector<Value> values;
  std::vector<Link> links;

  /// The total for one choice (an index into `choices`) per node.
  double energy(const std::vector<int>& choice) const;
  /// Int8 layers hand int8 to each other, and a boundary is a pass that quantizes. On targets whose kernels are
  /// modelled they store the next higher float, as layers do whose weights alone are elements: making integers of it is
  /// part of what each of them takes.
  bool hands_integers = true;
  DataType storage(int node, int choice) const;
};

CostProblem make_cost_problem(const Specialization& spec, const Grouping& grouping, const Target& target,
                              const IdMap<LayerId, std::vector<Precision>>& choices);

/// The minimum. Exact when every node chooses among the same two storage types; else alpha expansion from the best
/// uniform choice (Boykov, Veksler and Zabih, "Fast approximate energy minimization via graph cuts", 2001).
std::vector<int> minimize(const CostProblem& problem);

class GroupTimes;

/// What whole assignments take on a target: their groups, as measured where the target knows them, and one cast for
/// each tensor and other type that groups other than its own read it in. Bodies of control flow count one trip each, as
/// far as their shapes are known.
class TimeModel {
 public:
  /// `spec` outlives it.
  TimeModel(const Specialization& spec, Fusion fusion, Target target);
  ~TimeModel();
  TimeModel(TimeModel&&) noexcept;

  /// Microseconds of one inference,
  double operator()(const Assignment& assignment) const { return estimate(assignment).total_us; }
  /// and the share of it that is launch overhead: what its kernels take however little they compute.
  double launch_share(const Assignment& assignment) const {
    const Estimate estimated = estimate(assignment);
    return estimated.total_us > 0 ? estimated.launches_us / estimated.total_us : 0;
  }
  /// What of it casts are.
  struct Casts {
    int count = 0;
    double total_us = 0;
    double product_passes_us = 0, other_passes_us = 0;  ///< As passes of their own: for products, and for others.
  };
  Casts casts(const Assignment& assignment) const { return estimate(assignment).casts; }
  /// How many of its groups the target has measured times of.
  struct Coverage {
    int groups = 0, measured = 0;
  };
  Coverage coverage(const Assignment& assignment) const;
  /// Megabytes of what products read of constants, in the precisions that they read them in.
  double weights_mb(const Assignment& assignment) const;
  /// Its kernels, as the model of a target sees them: groups, casts, and the run itself.
  std::vector<KernelWork> kernels(const Assignment& assignment) const;
  const Target& target() const noexcept { return target_; }

 private:
  struct Estimate {
    double total_us = 0, launches_us = 0;
    Casts casts;
  };
  /// One that is left between groups: how many elements, and whether a product reads it.
  struct LeftCast {
    double elements, pass_us;
    bool by_product;
  };
  std::vector<LeftCast> casts_left(const Grouping& grouping, const Assignment& assignment) const;
  Estimate estimate(const Assignment& assignment) const;

  const Specialization& spec_;
  Fusion fusion_;
  Target target_;
  std::unique_ptr<GroupTimes> measured_;
  CostProblem problem_;  ///< Its values say what is cast.
  std::vector<std::pair<Body, TimeModel>> bodies_;
};

/// Estimated microseconds per group under an assignment, launches included; as measured where the target knows them.
std::vector<double> group_times_us(const Specialization& spec, const Grouping& grouping, const Assignment& assignment,
                                   const Target& target);

}  // namespace ulpscope
