// Where random sweeps start.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace ulpscope::sweeps {

/// ULPSCOPE_TEST_SEED, else by chance; printed, so that a failure can be seen again.
inline std::uint32_t seed() {
  const char* given = std::getenv("ULPSCOPE_TEST_SEED");
  const auto seed = given != nullptr ? static_cast<std::uint32_t>(std::strtoul(given, nullptr, 10))
                                     : std::random_device{}() % 1000000;
  std::printf("ULPSCOPE_TEST_SEED=%u\n", static_cast<unsigned>(seed));
  return seed;
}

/// ULPSCOPE_TEST_NETWORKS, for longer sweeps, else the usual number.
inline int count(int usual) {
  const char* given = std::getenv("ULPSCOPE_TEST_NETWORKS");
  return given != nullptr ? std::atoi(given) : usual;
}

}  // namespace ulpscope::sweeps
