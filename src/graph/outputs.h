// Which tensors are network outputs.
#pragma once

#include <span>
#include <string>

#include "graph/network.h"

namespace ulpscope {

/// True for the two words `mark all`.
bool is_mark_all(std::span<const std::string> names);

/// Replaces the network's outputs by these tensors, in this order. Patterns as in graph/name_match.h; `mark all` and
/// `*` stand for every output of every layer except Shape and Constant layers (and except layers inside of loops, which
/// are in networks of their own). Throws Error(kInvalidArgument) for an unknown name and when nothing is left.
void mark_outputs(Network& network, std::span<const std::string> names);

/// Removes these outputs. A tensor that is no output is left alone; an unknown name is an Error(kInvalidArgument).
void unmark_outputs(Network& network, std::span<const std::string> names);

}  // namespace ulpscope
