// Plan files. What starts with { is the description as JSON, behind which weights of zeros are put; all else is a file
// whose magic, version and checksum are made right, so that what lies behind them is reached.
#include <xxhash.h>

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/memory.h"
#include "fuzz_target.h"
#include "ops/registry.h"
#include "runtime/plan_file.h"

namespace ulpscope::fuzz {
namespace {

constexpr std::size_t kHeader = 32, kAlignment = 64, kWeights = 4096;

std::string file_of_json(std::string_view text) {
  const auto description = nlohmann::json::parse(text, nullptr, false);
  if (description.is_discarded()) return {};
  std::string packed, file(kHeader, '\0');
  nlohmann::json::to_msgpack(description, packed);
  const std::uint64_t size = packed.size();
  std::memcpy(file.data() + 16, &size, sizeof size);
  file += packed;
  file.append((kAlignment - file.size() % kAlignment) % kAlignment + kWeights, '\0');
  return file;
}

}  // namespace
}  // namespace ulpscope::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ulpscope;
  std::string file(fuzz::as_text(data, size));
  if (file.starts_with('{')) file = fuzz::file_of_json(file);
  if (file.size() < fuzz::kHeader) return 0;
  constexpr std::uint32_t kVersion = 3;
  std::memcpy(file.data(), "ULPSPLAN", 8);
  std::memcpy(file.data() + 8, &kVersion, sizeof kVersion);
  const std::uint64_t hash = XXH3_64bits(file.data() + fuzz::kHeader, file.size() - fuzz::kHeader);
  std::memcpy(file.data() + 24, &hash, sizeof hash);
  const std::shared_ptr<void> memory = allocate_elements(file.size());
  auto* const bytes = static_cast<std::byte*>(memory.get());
  std::memcpy(bytes, file.data(), file.size());
  fuzz::reads({ErrorCode::kInvalidFile, ErrorCode::kUnsupported}, [&] {
    parse_plan({bytes, file.size()}, memory, "m.plan", op_registry());
  });
  return 0;
}
