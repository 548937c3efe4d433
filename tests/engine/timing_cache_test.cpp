// Files of times: what is written comes back, what is no such file is refused.
#include "engine/timing_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/build_helpers.h"

namespace ulpscope::testing {
namespace {

std::string random_text(std::mt19937& random) {
  std::string text;
  for (auto length = 1 + random() % 20; length > 0; --length) text += static_cast<char>(' ' + random() % 95);
  return text;
}

TEST(TimingCacheFile, ComesBack) {
  const auto seed = std::random_device{}();
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> time(0, 1e4);
  for (int round = 0; round < 100; ++round) {
    TimingCache cache;
    for (auto i = random() % 3; i > 0; --i)
      for (auto j = 1 + random() % 4; j > 0; --j)
        cache.estimated[random_text(random)][random_text(random)] = time(random);
    for (auto i = random() % 3; i > 0; --i)
      for (auto j = 1 + random() % 4; j > 0; --j)
        cache.measured[random_text(random)][random_text(random)] = {random_text(random), time(random)};
    const TimingCache again = timing_cache_from_json(to_json(cache));
    EXPECT_EQ(again.estimated, cache.estimated) << "seed " << seed;
    EXPECT_EQ(again.measured, cache.measured) << "seed " << seed;
  }
}

TEST(TimingCacheFile, OfBeforeHasEstimatesAlone) {
  const TimingCache read =
      timing_cache_from_json(R"({"timing_cache": 1, "microseconds": {"h200": {"Add fp16: a -> b": 2}}})");
  EXPECT_EQ(read.estimated.at("h200").at("Add fp16: a -> b"), 2.0);
  EXPECT_TRUE(read.measured.empty());
  EXPECT_EQ(to_json(read).find("tactics"), std::string::npos);
}

TEST(TimingCacheFile, RefusesOthersAndSaysWhy) {
  const auto refused = [](const std::string& text, const std::vector<std::string>& parts) {
    expect_error(ErrorCode::kInvalidFile, parts, [&] { timing_cache_from_json(text); });
  };
  const auto with_tactics = [](const std::string& tactics) {
    return R"({"timing_cache": 1, "microseconds": {}, "tactics": )" + tactics + "}";
  };
  for (const char* text : {"", "{", "[]", "7", "\x7f\x45\x4c\x46", R"({"timing_cache": 2, "microseconds": {}})",
                           R"({"timing_cache": 1})", R"({"replay": {}})"})
    refused(text, {"expected a timing cache of ulpscope"});
  refused(R"({"timing_cache": 1, "microseconds": 3})", {"microseconds: expected an object, got 3"});
  for (const char* us : {"\"nan\"", "\"inf\"", "-1"})
    refused(fmt::format(R"({{"timing_cache": 1, "microseconds": {{"t4": {{"a": {}}}}}}})", us),
            {"microseconds.t4.a: expected a number of 0 or more"});
  refused(R"({"timing_cache": 1, "microseconds": {"t4": 3}})", {"microseconds.t4: expected an object, got 3"});
  refused(R"({"timing_cache": 1, "microseconds": {"t4": {"a": "3"}}})",
          {"microseconds.t4.a: expected a number, got '3'"});
  refused(with_tactics("[]"), {"tactics: expected an object, got a list"});
  refused(with_tactics(R"({"gpu": 1})"), {"tactics.gpu: expected an object"});
  refused(with_tactics(R"({"gpu": {"product": "00ff"}})"), {"tactics.gpu.product: expected an object"});
  refused(with_tactics(R"({"gpu": {"product": {"algorithm": 1, "microseconds": 1}}})"),
          {"tactics.gpu.product.algorithm: expected text, got 1"});
  refused(with_tactics(R"({"gpu": {"product": {"algorithm": "a"}}})"),
          {"tactics.gpu.product: expected the key \"microseconds\""});
  refused(with_tactics(R"({"gpu": {"product": {"algorithm": "a", "microseconds": null}}})"),
          {"product.microseconds: expected a number, got null"});
  refused(with_tactics(R"({"gpu": {"product": {"algorithm": "a\tb", "microseconds": 1}}})"), {"a line of text"});
  refused(with_tactics(R"({"gpu": {"pro\nduct": {"algorithm": "a", "microseconds": 1}}})"), {"a line of text"});
}

}  // namespace
}  // namespace ulpscope::testing
