// TensorRT's calibration cache.
#include "calibration/calibration_cache.h"

#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ulpscope;
  fuzz::reads({ErrorCode::kInvalidFile}, [&] {
    CalibrationCache cache = parse_calibration_cache(fuzz::as_text(data, size), "x.cache");
    // These cannot be written.
    std::erase_if(cache.scales, [](const auto& entry) { return entry.first.find('\r') != std::string::npos; });
    if (parse_calibration_cache(to_text(cache), "again").scales != cache.scales) fuzz::finding("the scales changed");
  });
  return 0;
}
