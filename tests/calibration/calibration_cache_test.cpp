// Calibration caches: TensorRT's text, there and back, and files that are none.
#include "calibration/calibration_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "compare/log_capture.h"
#include "onnx/model_builder.h"
#include "ulpscope/error.h"

namespace ulpscope::testing {
namespace {

TEST(CalibrationCache, ReadsWhatTensorRtWrites) {
  const CalibrationCache cache = parse_calibration_cache(
      "TRT-7103-EntropyCalibration2\n"
      "data: 3c008912\n"
      "(Unnamed Layer* 48) [Constant]_output: 3c010204\n"
      "a: b:0: 3F800000\r\n"
      "x: 8000000  \n"
      "\n",
      "c.cache");
  EXPECT_EQ(cache.version, "7103");
  EXPECT_EQ(cache.algorithm, "EntropyCalibration2");
  EXPECT_EQ(cache.scales.size(), 4u);
  EXPECT_NEAR(cache.scales.at("data"), 0.00784518f, 1e-8f);
  EXPECT_NEAR(cache.scales.at("(Unnamed Layer* 48) [Constant]_output"), 1.0f / 127, 1e-8f);
  EXPECT_EQ(cache.scales.at("a: b:0"), 1.0f);
  EXPECT_EQ(cache.scales.at("x"), std::ldexp(1.0f, -111));
}

TEST(CalibrationCache, TakesEveryVersionAndAlgorithm) {
  for (const char* header : {"TRT-8601-MinMaxCalibration", "TRT-100300-LegacyCalibration", "TRT-8.6.1-Another"})
    EXPECT_EQ(parse_calibration_cache(std::string(header) + "\nx: 3f800000", "c").scales.size(), 1u) << header;
  EXPECT_EQ(parse_calibration_cache("TRT-8601-MinMaxCalibration", "c").algorithm, "MinMaxCalibration");
}

TEST(CalibrationCache, RoundTrip) {
  const TemporaryFolder folder;
  CalibrationCache cache;
  cache.algorithm = "MinMaxCalibration";
  cache.scales = {{"x", 0.1f},
                  {"layer: 1/out:0", 1e-30f},
                  {"ends with: ", 2},
                  {" (odd) [name]", std::numeric_limits<float>::max() / 127},
                  {"t\xc3\xa9nseur", std::numeric_limits<float>::min()}};
  const auto path = folder / "new/c.cache";
  EXPECT_FALSE(find_calibration_cache(path));
  write_calibration_cache(path, cache);
  const auto read = find_calibration_cache(path);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->scales, cache.scales);
  EXPECT_EQ(read->algorithm, "MinMaxCalibration");
  EXPECT_EQ(to_text(*read), to_text(cache));
  EXPECT_FALSE(find_calibration_cache(folder.write("empty", "")));
  EXPECT_FALSE(find_calibration_cache(folder.write("blank", " \r\n\n")));
  expect_error(ErrorCode::kNotFound, {"absent"}, [&] { read_calibration_cache(folder / "absent"); });
}

TEST(CalibrationCache, WritesEightDigits) {
  CalibrationCache cache;
  cache.scales = {{"x", std::ldexp(1.0f, -111)}, {"two\nlines", 1}};
  LogCapture log;
  EXPECT_EQ(to_text(cache), "TRT-8601-EntropyCalibration2\nx: 08000000\n");
  EXPECT_TRUE(log.has("'two\\x0alines': its name has a line break"));
}

TEST(CalibrationCache, SaysWhatIsWrong) {
  const std::string header = "TRT-8601-EntropyCalibration2\n";
  const struct {
    std::string text;
    std::vector<std::string> parts;
  } kCases[] = {
      {"", {"line 1", "expected a header like TRT-8601-EntropyCalibration2"}},
      {"x: 3f800000\n", {"line 1", "got 'x: 3f800000'"}},
      {"TRT-\n", {"line 1"}},
      {"TRT-8601\n", {"line 1"}},
      {"TRT--EntropyCalibration2\n", {"line 1"}},
      {"TRT-8601-\n", {"line 1"}},
      {std::string("\x7f"
                   "ELF\x00\x01",
                   6),
       {"line 1", "\\x7fELF\\x00"}},
      {header + "x\n", {"line 2", "expected 'tensor name: hex', got 'x'"}},
      {header + "x:3f800000\n", {"line 2"}},
      {header + ": 3f800000\n", {"line 2"}},
      {header + "y: 3f800000\nx: \n", {"line 3", "got 'x:'"}},
      {header + "x: 3f80000g\n", {"line 2", "hexadecimal", "'3f80000g'"}},
      {header + "x: 0x3f8000\n", {"line 2", "hexadecimal"}},
      {header + "x: -3f80000\n", {"line 2", "hexadecimal"}},
      {header + "x: 3f8000000\n", {"line 2", "up to 8"}},
      {header + "x: 0.0078\n", {"line 2", "hexadecimal"}},
      {header + "\n\nx: 7fc00000\n", {"line 4", "tensor 'x'", "NaN"}},
      {header + "x: 7f800000\n", {"tensor 'x'", "infinity"}},
      {header + "x: bf800000\n", {"tensor 'x'", "negative"}},
      {header + "x: 0\n", {"tensor 'x'", "expected a positive scale"}},
      {header + "x: 80000000\n", {"tensor 'x'", "expected a positive scale"}},
      {header + "x: 1\n", {"tensor 'x'", "too small"}},
      {header + "x: 7f7fffff\n", {"tensor 'x'", "overflows"}},
      {header + "x: 3f800000\nx: 3f000000\n", {"line 3", "tensor 'x'", "0.5 after 1"}},
      {header + std::string(100000, 'y') + "\n", {"line 2", "yyy..."}},
  };
  for (const auto& each : kCases) {
    std::vector<std::string> parts = each.parts;
    parts.insert(parts.begin(), "[calibration cache] 'c.cache'");
    SCOPED_TRACE(each.text.substr(0, 80));
    expect_error(ErrorCode::kInvalidFile, parts, [&] { parse_calibration_cache(each.text, "c.cache"); });
  }
  EXPECT_EQ(parse_calibration_cache(header + "x: 3f800000\nx: 3f800000\n", "c").scales.size(), 1u);
}

}  // namespace
}  // namespace ulpscope::testing
