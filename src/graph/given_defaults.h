// Constants of a network that callers give values of their own.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "graph/network.h"

namespace ulpscope {

/// A copy in which these constants are inputs, behind the others and in this order, also for the bodies that read them.
/// REQUIRES: they are among `network.defaults`, each once.
std::shared_ptr<Network> with_inputs(const Network& network, std::span<const std::string> names);

}  // namespace ulpscope
