#include "engine/option_names.h"

#include <fmt/format.h>

#include <utility>

#include "ulpscope/error.h"

namespace ulpscope {
namespace {

constexpr std::string_view kFusions[] = {"none", "pointwise", "full"};
constexpr std::pair<std::string_view, bool BuildOptions::*> kPrecisions[] = {{"tf32", &BuildOptions::tf32},
                                                                             {"fp16", &BuildOptions::fp16},
                                                                             {"bf16", &BuildOptions::bf16},
                                                                             {"fp8", &BuildOptions::fp8},
                                                                             {"int8", &BuildOptions::int8}};

}  // namespace

Fusion fusion_from_name(std::string_view name, std::string_view where) {
  for (std::size_t i = 0; i < std::size(kFusions); ++i)
    if (kFusions[i] == name) return static_cast<Fusion>(i);
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: expected none, pointwise or full, got '{}'", where, name));
}

std::string_view name_of(Fusion fusion) noexcept { return kFusions[static_cast<std::size_t>(fusion)]; }

std::vector<std::string> enabled_precisions(const BuildOptions& build) {
  std::vector<std::string> result;
  for (const auto& [name, flag] : kPrecisions)
    if (build.*flag) result.emplace_back(name);
  return result;
}

void enable_precision(BuildOptions& build, std::string_view name, std::string_view where) {
  for (const auto& [known, flag] : kPrecisions)
    if (known == name) {
      build.*flag = true;
      return;
    }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{}: expected tf32, fp16, bf16, fp8 or int8, got '{}'", where, name));
}

}  // namespace ulpscope
