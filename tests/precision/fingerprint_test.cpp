// Hashes of networks: everything that changes what is searched changes them.
#include "precision/fingerprint.h"

#include <gtest/gtest.h>

#include "engine/build_helpers.h"

namespace ulpscope::testing {
namespace {

std::shared_ptr<Network> softmax() {
  Model model;
  model.input("x", {2, 3});
  model.node("Softmax", {"x"}, {"y"}, "Softmax");
  model.output("y");
  return model.load();
}

TEST(Fingerprint, KnowsAttributesOfEveryKind) {
  const std::string plain = hash_of_network(*softmax());
  EXPECT_EQ(hash_of_network(*softmax()), plain);
  std::vector<std::string> seen{plain};
  const auto with = [&](const char* name, Attribute value) {
    const auto network = softmax();
    layer_named(*network, "Softmax").attributes.set(name, std::move(value));
    const std::string hash = hash_of_network(*network);
    EXPECT_EQ(std::ranges::count(seen, hash), 0) << name;
    seen.push_back(hash);
  };
  with("axis", std::int64_t{0});
  with("axis", std::int64_t{1});
  with("axis", 1.0f);
  with("axis", 2.0f);
  with("axis", std::string("a"));
  with("axis", std::vector<std::int64_t>{1, 2});
  with("axis", std::vector<std::int64_t>{1});
  with("axis", std::vector<float>{1});
  with("axis", std::vector<std::string>{"a", "b"});
  with("axis", std::vector<std::string>{"ab"});
  with("axis", Tensor::of<float>({1}, {1}));
  with("other", std::int64_t{1});
  const auto body = softmax();
  with("body", Subgraph{body, {}});
  layer_named(*body, "Softmax").attributes.set("axis", std::int64_t{0});
  with("body", Subgraph{body, {}});
  with("body", Subgraph{body, {0}});
}

}  // namespace
}  // namespace ulpscope::testing
