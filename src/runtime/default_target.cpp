#include "runtime/default_target.h"

#include <fmt/format.h>

#include <cctype>
#include <vector>

#include "backend/backend.h"
#include "core/messages.h"
#include "engine/options.h"
#include "engine/target.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

/// Letters and digits in lower case; everything else separates words.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const unsigned char c : text) {
    if (std::isalnum(c) != 0)
      words.back() += static_cast<char>(std::tolower(c));
    else if (!words.back().empty())
      words.emplace_back();
  }
  return words;
}

}  // namespace

std::string target_of_device(std::string_view device) {
  const std::vector<std::string> words = words_of(device);
  // "RTX 4090" is two words of a device, and one of a target.
  for (const std::string& target : target_names())
    for (std::size_t i = 0; i < words.size(); ++i)
      if (words[i] == target || (i > 0 && words[i - 1] + words[i] == target)) return target;
  return "";
}

std::string default_target(const std::string& backend) {
  std::string unknown{kDefaultTarget};
  if (!find_backend(backend).has_own_memory()) return unknown;
  std::string device;
  try {
    device = find_backend(backend).device().name;
  } catch (const Error&) {
    return unknown;  // Whoever runs something there says so.
  }
  if (std::string target = target_of_device(device); !target.empty()) return target;
  log_once(LogLevel::kWarning,
           "[target] '{}' has no figures in data/targets: times are those of {}; try --target measured, or `ulpscope "
           "target measure`",
           device, unknown);
  return unknown;
}

}  // namespace ulpscope
