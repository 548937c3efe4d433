#pragma once

#include <string_view>

namespace ulpscope::cli {

/// The git commit that the program was built from, with "-dirty" where files differed; empty where it is not known.
std::string_view commit();

}  // namespace ulpscope::cli
