// Damage to files, the same for the same seed.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "ulpscope/error.h"

namespace ulpscope::testing {

/// How many seeds to try: `count`, or $ULPSCOPE_DAMAGE times as many.
inline std::uint32_t rounds(std::uint32_t count) {
  const char* factor = std::getenv("ULPSCOPE_DAMAGE");
  return factor == nullptr ? count : count * static_cast<std::uint32_t>(std::atoi(factor));
}

/// Flips, overwrites, removes, doubles or cuts some bytes.
inline std::string damaged(std::string bytes, std::mt19937& random) {
  for (std::uint32_t count = 1 + random() % 3; count-- > 0 && !bytes.empty();) {
    const std::size_t at = random() % bytes.size(), length = std::min<std::size_t>(1 + random() % 8, bytes.size() - at);
    switch (random() % 7) {
      case 0:
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
        break;
      case 2:
        bytes[at] = static_cast<char>(random());
        break;
      case 3:
        bytes.replace(at, length, length, random() % 2 == 0 ? '\0' : '\xff');
        break;
      case 4:
        bytes.erase(at, length);
        break;
      case 5:
        bytes.insert(random() % bytes.size(), bytes.substr(at, length));
        break;
      default:
        if (random() % 4 == 0) bytes.resize(at);
    }
  }
  return bytes;
}

/// Changes one or two values anywhere in a document: other numbers and kinds, elements that go or come twice.
template <typename Json>
Json damaged_json(Json document, std::mt19937& random) {
  static const std::array<Json, 18> kValues{
      Json(-1),  Json(0),      Json(1),     Json(2),
      Json(7),   Json(255),    Json(65536), Json(std::int64_t{1} << 31),
      Json(1e9), Json(-1.5),   Json(1e308), Json(std::numeric_limits<std::int64_t>::max()),
      Json(""),  Json("x"),    Json(true),  Json(std::numeric_limits<std::int64_t>::min()),
      Json(),    Json::array()};
  for (std::uint32_t count = 1 + random() % 2; count-- > 0;) {
    // Down at random, and stop at a leaf or, now and then, before.
    Json* at = &document;
    Json* above = nullptr;
    while (at->is_structured() && !at->empty() && (above == nullptr || random() % 8 != 0)) {
      above = at;
      at = &*std::next(at->begin(), static_cast<std::ptrdiff_t>(random() % at->size()));
    }
    const Json& value = kValues[random() % kValues.size()];
    if (above != nullptr && above->is_array() && random() % 4 == 0) {
      const auto index = at - &(*above)[0];
      if (random() % 2 == 0)
        above->erase(above->begin() + index);
      else
        above->insert(above->begin() + index, Json(*at));
    } else if (above != nullptr && above->is_object() && random() % 8 == 0) {
      above->erase(std::next(above->begin(), static_cast<std::ptrdiff_t>(random() % above->size())));
    } else if (at->is_number_integer() && random() % 2 == 0) {
      // Around the largest numbers, too: unsigned, which wrap.
      *at = static_cast<std::int64_t>(static_cast<std::uint64_t>(at->template get<std::int64_t>()) + random() % 5 - 2);
    } else if (at->is_string() && random() % 2 == 0) {
      *at = damaged(at->template get<std::string>(), random);
    } else {
      *at = value;
    }
  }
  return document;
}

/// Calls `use`. True if it worked, false if it ended with an Error that says something; all else is a failure.
template <typename Use>
bool works(Use&& use, const std::string& what) {
  try {
    use();
    return true;
  } catch (const Error& error) {
    EXPECT_GT(std::string(error.what()).size(), 10u) << what;
  } catch (const std::exception& defect) {
    ADD_FAILURE() << what << ": " << defect.what();
  }
  return false;
}

}  // namespace ulpscope::testing
