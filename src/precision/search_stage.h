// What a search is doing: it is timed by that, watched for the memory that it takes, and told to people.
#pragma once

#include <cstdint>
#include <string_view>

namespace ulpscope {

/// In the order in which they come.
enum class Stage : std::uint8_t {
  kNone,
  kConnecting,
  kStartingWorkers,
  kFloat32,
  kGolden,
  kConstants,
  kRegions,
  kChannels,
  kCancellation,
  kLowest,
  kPredicting,
  kMeasuring,
  kOverflows,
  kWeighing,
  kSearching,
  kPolishing,
  kHeldOut,
  kOtherOrders,
  kLowering,
  kShrinking,
  kWeighingRepairs,
  kUntouched,
  kOtherSets,
  kExplaining,
};

/// For people: nothing may depend on it.
std::string_view text_of(Stage stage) noexcept;
/// For people: what it holds beside a run.
std::string_view held_in(Stage stage) noexcept;

}  // namespace ulpscope
