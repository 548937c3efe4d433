// What is said of --memory-limit where it cannot be kept.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "backend/backend.h"
#include "graph/network.h"

namespace ulpscope {

/// Warns that `bytes` are more than a limit, ahead of taking them where that is known. `what`: "the inputs take",
/// without the number; `advice`: what makes it less. Nothing where there is no limit (0), or it is kept.
void warn_beyond_limit(std::size_t limit, std::size_t bytes, const std::string& what, const std::string& advice);

/// Warns, naming the layer, where the weights of one layer alone are more than the limit: they are held while it runs.
void warn_of_small_limit(const Network& network, std::size_t memory_limit);

/// Begins a piece of work on the network under a limit: warns as warn_of_small_limit, and forgets what came before.
void begin_limited(const Network& network, std::size_t memory_limit);
/// At its end: warns where tensors took more, whatever could be done about it. As warn_beyond_limit.
void end_limited(std::size_t memory_limit, const std::string& what, const std::string& advice);

/// Warns that another program, which `runner` names, takes what it takes.
void warn_of_unlimited(std::string_view runner, std::size_t memory_limit);

/// Warns where one run takes more than that, whatever the weights do.
void warn_of_activations(const Plan& plan, std::size_t memory_limit);

}  // namespace ulpscope
