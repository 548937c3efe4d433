#include "calibration/calibration_cache.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/file.h"
#include "core/messages.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

constexpr std::string_view kBlank = " \t\r";

/// Long or binary lines are shown in part.
std::string excerpt(std::string_view line) {
  constexpr std::size_t kShown = 60;
  std::string text;
  for (char c : line.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte < 0x20 || byte == 0x7f ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return line.size() > kShown ? text + "..." : text;
}

[[noreturn]] void fail(const std::string& source, std::size_t line, const std::string& message) {
  throw invalid_file("[calibration cache] '{}', line {}: {}", source, line, message);
}

/// "TRT-8601-EntropyCalibration2".
void parse_header(std::string_view line, const std::string& source, std::size_t number, CalibrationCache& cache) {
  const std::size_t dash = line.rfind('-');
  if (!line.starts_with("TRT-") || dash <= 4 || dash + 1 == line.size())
    fail(source, number,
         fmt::format("expected a header like TRT-8601-EntropyCalibration2, got '{}'; is it a calibration cache?",
                     excerpt(line)));
  cache.version = line.substr(4, dash - 4);
  cache.algorithm = line.substr(dash + 1);
}

/// Why no tensor can have that scale; empty when it can.
std::string why_not_a_scale(float scale) {
  if (std::isnan(scale)) return "NaN";
  if (std::isinf(scale)) return "infinity";
  if (scale < 0) return fmt::format("{}, which is negative", scale);
  if (scale == 0) return "0";
  if (scale < std::numeric_limits<float>::min()) return fmt::format("{}, which is too small", scale);
  if (scale > std::numeric_limits<float>::max() / 127.0f)
    return fmt::format("{}, which is so large that 127 times it overflows", scale);
  return {};
}

void parse_entry(std::string_view line, const std::string& source, std::size_t number, CalibrationCache& cache) {
  const std::size_t colon = line.rfind(": ");
  if (colon == std::string_view::npos || colon == 0)
    fail(source, number, fmt::format("expected 'tensor name: hex', got '{}'", excerpt(line)));
  const std::string name(line.substr(0, colon));
  const std::string_view hex = line.substr(colon + 2);
  std::uint32_t bits = 0;
  const auto [end, failed] = std::from_chars(hex.data(), hex.data() + hex.size(), bits, 16);
  if (hex.empty() || hex.size() > 8 || failed != std::errc{} || end != hex.data() + hex.size())
    fail(source, number,
         fmt::format("expected up to 8 hexadecimal digits (the bits of a float32) after '{}: ', got '{}'",
                     excerpt(name), excerpt(hex)));
  const float scale = std::bit_cast<float>(bits);
  if (const std::string reason = why_not_a_scale(scale); !reason.empty())
    fail(source, number,
         fmt::format("tensor '{}': expected a positive scale, got {} ({}); try calibrating again with another file",
                     excerpt(name), hex, reason));
  const auto [entry, added] = cache.scales.emplace(name, scale);
  if (!added && entry->second != scale)
    fail(source, number,
         fmt::format("tensor '{}': expected one scale, got {} after {} in an earlier line", excerpt(name), scale,
                     entry->second));
}

std::string read_cache_file(const std::filesystem::path& path) {
  try {
    return read_file(path);
  } catch (const Error& e) {
    throw error_of(e.code(), "[calibration cache] {}", e.what());
  }
}

}  // namespace

CalibrationCache parse_calibration_cache(std::string_view text, const std::string& source) {
  CalibrationCache cache;
  bool header = false;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    const std::size_t last = line.find_last_not_of(kBlank);
    line = last == std::string_view::npos ? std::string_view{} : line.substr(0, last + 1);
    if (line.empty()) continue;
    if (header) {
      parse_entry(line, source, number, cache);
    } else {
      parse_header(line, source, number, cache);
      header = true;
    }
  }
  if (!header) fail(source, 1, "expected a header like TRT-8601-EntropyCalibration2, got an empty file");
  return cache;
}

std::string to_text(const CalibrationCache& cache) {
  std::string text = fmt::format("TRT-{}-{}\n", cache.version, cache.algorithm);
  for (const auto& [name, scale] : cache.scales) {
    if (name.find_first_of("\r\n") != std::string::npos) {
      log_warning("[calibration cache] tensor '{}': its name has a line break, so it is left out", excerpt(name));
      continue;
    }
    text += fmt::format("{}: {:08x}\n", name, std::bit_cast<std::uint32_t>(scale));
  }
  return text;
}

std::optional<CalibrationCache> find_calibration_cache(const std::filesystem::path& path) {
  std::error_code failed;
  if (!std::filesystem::exists(path, failed) && !failed) return std::nullopt;
  const std::string text = read_cache_file(path);
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return std::nullopt;
  return parse_calibration_cache(text, path.string());
}

CalibrationCache read_calibration_cache(const std::filesystem::path& path) {
  return parse_calibration_cache(read_cache_file(path), path.string());
}

void write_calibration_cache(const std::filesystem::path& path, const CalibrationCache& cache) {
  try {
    write_file(path, to_text(cache));
  } catch (const Error& e) {
    throw error_of(e.code(), "[calibration cache] {}", e.what());
  }
}

}  // namespace ulpscope
