#include "backend/backends.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "core/messages.h"

namespace ulpscope {

std::span<const Backend* const> backends() {
  static const std::array<const Backend*, 3> all{&cpu::cpu_backend(), &cuda::cuda_backend(), &plain::plain_backend()};
  return all;
}

const DeviceBackend* find_device_backend(std::string_view name) {
  return name == cuda::cuda_backend().name() ? &cuda::cuda_device_backend() : nullptr;
}

const Backend& find_backend(std::string_view name) {
  cpu::check_instructions();  // Every backend has kernels of the processor: reference kernels, bodies, conversions.
  if (name == "auto") name = "cpu";
  std::vector<std::string_view> names;
  for (const Backend* backend : backends()) {
    if (backend->name() == name) return *backend;
    names.push_back(backend->name());
  }
  throw error_of(ErrorCode::kNotFound, "[build] backend '{}': expected one of {}", name, fmt::join(names, ", "));
}

}  // namespace ulpscope
