// Measured times of groups, found again by what a group computes and on which shapes.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/fusion.h"
#include "engine/specialization.h"
#include "engine/target.h"
#include "graph/assignment.h"

namespace ulpscope {

/// What a group computes: operators with their attributes, shapes and connections, without names and values.
/// "MatMul($0[1x128x768], w[768x768]) %0[1x128x768]; Relu(%0) %1[1x128x768]". `$n`: read; `%n`: computed; `*` behind a
/// value in between: others read it, too. Empty for what has no such text: sub-graphs and shapes that are not known.
std::string kernel_text(const Specialization& spec, const Group& group);

/// The precision that a group's time depends on: of its first layer that computes ("fp16"), else the type of its first
/// output ("float16").
std::string_view group_precision(const Specialization& spec, const Group& group, const Assignment& assignment);

/// Groups that are products by constants of the same operand in the same precision, with a bias at most behind them,
/// two or more with no other such product between them: a backend whose constants lie side by side computes them as
/// one, so what one of them takes depends on the others. Without an assignment: in any precision.
std::vector<std::vector<std::size_t>> products_of_one_operand(const Specialization& spec, const Grouping& grouping,
                                                              const Assignment* assignment);
/// Per group: how many of those it is one of; else 1.
std::vector<int> count_together(const Specialization& spec, const Grouping& grouping, const Assignment* assignment);

/// What times are kept by: "fp16", "fp16 x3" for a group that is one of three.
std::string timed_precision(std::string_view precision, int together);

/// The groups of one network among those of a target. Thread-safe.
class GroupTimes {
 public:
  /// `spec` outlives it.
  GroupTimes(const Specialization& spec, std::shared_ptr<const TimedKernels> timed)
      : spec_(spec), timed_(std::move(timed)) {}

  /// Microseconds, launch included; nothing where the target does not say. `together`: how many products of
  /// one operand are computed as one; where that was not measured, the time of a single one.
  std::optional<double> find(const Group& group, std::string_view precision, int together = 1) const;
  /// The same; where the target does not know the group, but knows others that begin with the same product, the least
  /// of these: what follows a product is little beside it.
  std::optional<double> find_like(const Group& group, std::string_view precision, int together = 1) const;
  bool empty() const noexcept { return timed_ == nullptr; }

 private:
  using Times = TimedKernels::mapped_type;
  std::optional<double> least_with_product(const Group& group, std::string_view precision) const;

  const Specialization& spec_;
  const std::shared_ptr<const TimedKernels> timed_;
  mutable std::mutex mutex_;
  mutable std::map<std::vector<LayerId>, const Times*> known_;                         ///< By the layers of a group.
  mutable std::map<std::pair<LayerId, std::string>, std::optional<double>> products_;  ///< By precision.
};

}  // namespace ulpscope
