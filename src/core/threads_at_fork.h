// The threads of a process that forks.
#pragma once

namespace ulpscope {

/// Ends threads that wait for work, and what they hold of their own, ahead of a fork: whoever locks something for it
/// that these would take as they end calls this first.
void end_threads() noexcept;

}  // namespace ulpscope
