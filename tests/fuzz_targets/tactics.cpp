// Tactic replay files.
#include "engine/tactics.h"

#include "fuzz_target.h"

/// What writing them calls; it is not part of the program.
std::string ulpscope::group_name(const Network&, const Group&) { return {}; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ulpscope;
  fuzz::reads({ErrorCode::kInvalidFile, ErrorCode::kBuild},
              [&] { tactics_from_json(std::string(fuzz::as_text(data, size))); });
  return 0;
}
