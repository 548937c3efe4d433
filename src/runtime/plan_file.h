// Engines as files: the network, its weights, the assignment and the options of its build.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "engine/options.h"
#include "graph/assignment.h"
#include "graph/network.h"

namespace ulpscope {

struct PlanFile {
  std::shared_ptr<Network> network;
  Assignment assignment;
  BuildOptions options;
};

/// Layout: the 8 bytes "ULPSPLAN", version (u32), size of the description (u64), XXH3 of all that follows (u64), the
/// description (MessagePack), weights (each at a multiple of 64 bytes). Little-endian. docs/formats.md has the details.
void write_plan_file(const std::filesystem::path& path, const Network& network, const Assignment& assignment,
                     const BuildOptions& options);

/// Weights stay in the mapped file. Throws Error(kInvalidFile): what was expected and what is there;
/// Error(kUnsupported): an operator that this version does not have. What comes back has the form that every later
/// stage relies on.
PlanFile read_plan_file(const std::filesystem::path& path, const OpRegistry& ops);

/// The same from memory that `owner` keeps, aligned to 64 bytes. `source` names it in messages.
PlanFile parse_plan(std::span<std::byte> bytes, std::shared_ptr<const void> owner, const std::string& source,
                    const OpRegistry& ops);

}  // namespace ulpscope
