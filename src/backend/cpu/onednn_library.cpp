#include <fmt/format.h>

#include <oneapi/dnnl/dnnl.hpp>

#include "backend/cpu/product.h"

namespace ulpscope::cpu {

std::string onednn_version() {
  const dnnl_version_t& version = *dnnl::version();
  return fmt::format("{}.{}.{}", version.major, version.minor, version.patch);
}

}  // namespace ulpscope::cpu
