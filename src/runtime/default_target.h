// Whose times are estimated where nobody says.
#pragma once

#include <string>
#include <string_view>

namespace ulpscope {

/// The name for find_target(): on a backend that is a GPU of data/targets that one, else kDefaultTarget. A GPU that has
/// no figures there is a warning, said once.
std::string default_target(const std::string& backend);

/// The target that a device is, by the words of its name ("NVIDIA A100-SXM4-80GB": "a100"); empty: none.
std::string target_of_device(std::string_view device);

}  // namespace ulpscope
