// Which layers become one group. Inside a group nothing is rounded; docs/numerics.md has the rules.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/options.h"
#include "engine/specialization.h"
#include "graph/assignment.h"

namespace ulpscope {

enum class GroupKind : std::uint8_t {
  kSingle,       ///< One layer.
  kPointwise,    ///< A chain (or net) of pointwise layers.
  kContraction,  ///< A matrix product or convolution with its epilogue.
  kRow,          ///< Pointwise layers and reductions over the innermost axes: normalization, softmax.
  kAttention,    ///< Two products with the softmax between them.
};

std::string_view name_of(GroupKind kind) noexcept;

struct Group {
  GroupKind kind = GroupKind::kSingle;
  std::vector<LayerId> layers;  ///< In network order. Executed where its last layer stands.
};

struct Grouping {
  std::vector<Group> groups;       ///< In execution order. Constant and folded layers are in none.
  IdMap<LayerId, int> group_of;    ///< Per layer; kNone for folded layers.
  IdMap<TensorId, char> internal;  ///< Per tensor: lives inside of one group only, never stored, never rounded.
};

/// Deterministic; O(layers * inputs).
Grouping fuse(const Specialization& spec, const Assignment& assignment, Fusion level);

/// The network hands the value on, or a layer outside of the group reads it.
bool leaves_group(const Specialization& spec, const Group& group, TensorId id);

/// "a + b + c", as engines name fused layers.
std::string group_name(const Network& network, const Group& group);

/// The axes that a reduction, softmax or normalization layer works over are the innermost ones: it can be part of a row
/// group. Returns how many innermost dimensions form the row; 0 when it cannot.
int row_dimensions(const Specialization& spec, const Layer& layer);

/// Per tensor: its shape is known at run time only, also where the layers before it tell less than it says.
IdMap<TensorId, char> open_tensors(const Specialization& spec);

/// True for a BatchNormalization in inference form with constant parameters.
bool is_scale_shift(const Specialization& spec, const Layer& layer);

}  // namespace ulpscope
