// Layers that choose among rounded values, and layers that move them: their types against trying every choice.
#include "convert/selection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>

#include "convert/casts.h"
#include "engine/assign.h"
#include "graph/inference.h"
#include "graph/network_builder.h"

namespace ulpscope {
namespace {

using enum DataType;

enum class Kind { kCompute, kSelect, kMove };

/// A small network whose computing layers never fuse (softmax over the first axis), and what is known about it without
/// the code under test.
struct Small {
  testing::NetworkBuilder builder;
  std::vector<Kind> kinds;                ///< Per layer, in the order of the network without Constant layers.
  std::vector<std::vector<int>> sources;  ///< Per layer: layers that it reads; -1: the network's input.
  std::vector<char> exact_constants;      ///< Per layer: float16 holds its limits.
  std::vector<char> handed_out;
  std::vector<LayerId> ids;

  Small() { builder.input("x"); }

  static std::string name_of(int layer) { return layer < 0 ? "x" : "t" + std::to_string(layer); }

  int add(Kind kind, const std::string& op, std::vector<int> reads, float limit = 0) {
    const int index = static_cast<int>(kinds.size());
    std::vector<std::string> inputs;
    for (int source : reads) inputs.push_back(name_of(source));
    bool exact = true;
    if (op == "Clip") {
      exact = round_value(limit, rounding_of(kFloat16)) == limit;
      builder.weight("limit" + std::to_string(index), Tensor::of<float>({}, {limit}));
      builder.weight("low" + std::to_string(index), Tensor::of<float>({}, {-6.0F}));
      inputs.push_back("low" + std::to_string(index));
      inputs.push_back("limit" + std::to_string(index));
    }
    Layer& layer = builder.layer(op, inputs, {name_of(index)}, op + "_" + std::to_string(index));
    if (op == "Softmax") layer.attributes.set("axis", std::int64_t{0});
    if (op == "Transpose") layer.attributes.set("perm", std::vector<std::int64_t>{0, 1});
    kinds.push_back(kind);
    sources.push_back(std::move(reads));
    exact_constants.push_back(exact);
    handed_out.push_back(0);
    ids.push_back(LayerId(builder.network.layers.size() - 1));
    return index;
  }

  int size() const { return static_cast<int>(kinds.size()); }

  void finish() {
    for (int l = 0; l < size(); ++l) {
      bool read = false;
      for (const auto& reads : sources) read |= std::count(reads.begin(), reads.end(), l) > 0;
      if (!read) handed_out[l] = 1;
      if (handed_out[l]) builder.output(name_of(l));
    }
    infer_types(builder.network);
  }
};

Small random_network(std::mt19937& random) {
  const auto pick = [&](std::size_t count) { return static_cast<int>(random() % count); };
  Small result;
  const int layers = 4 + pick(7);
  int undecided = 0;
  for (int l = 0; l < layers; ++l) {
    const auto source = [&] { return std::max(-1, l - 1 - pick(3)); };
    const int kind = undecided < 8 ? pick(5) : 0;
    undecided += kind > 1;
    if (kind < 2)
      result.add(Kind::kCompute, "Softmax", {source()});
    else if (kind == 2)
      result.add(Kind::kMove, "Transpose", {source()});
    else if (kind == 3)
      result.add(Kind::kSelect, pick(2) == 0 ? "Max" : "Min", {source(), source()});
    else if (pick(2) == 0)
      result.add(Kind::kSelect, "Relu", {source()});
    else
      result.add(Kind::kSelect, "Clip", {source()}, pick(2) == 0 ? 6.0F : 0.1F);
  }
  result.finish();
  return result;
}

/// The fewest casts of all choices of types that give the bits of the assignment.
int fewest_casts(const Small& small, const std::vector<DataType>& assigned) {
  const std::size_t count = small.kinds.size();
  // Every element is one of float16, in the assignment.
  std::vector<char> narrow(count, 0);
  const auto is_narrow = [&](int layer) { return layer >= 0 && narrow[layer] != 0; };
  std::vector<char> reads_narrow(count, 1);
  for (std::size_t l = 0; l < count; ++l) {
    for (int source : small.sources[l]) reads_narrow[l] &= is_narrow(source);
    narrow[l] = small.kinds[l] == Kind::kCompute ? assigned[l] == kFloat16
                : small.kinds[l] == Kind::kMove
                    ? reads_narrow[l]
                    : assigned[l] == kFloat16 || (reads_narrow[l] && small.exact_constants[l]);
  }
  int best = std::numeric_limits<int>::max();
  for (unsigned choice = 0; choice < 1u << count; ++choice) {
    std::vector<DataType> types(count);
    bool valid = true;
    for (std::size_t l = 0; l < count; ++l) types[l] = (choice >> l & 1u) != 0 ? kFloat16 : kFloat32;
    int casts = 0;
    for (int l = -1; l < static_cast<int>(count); ++l) {
      const DataType written = l < 0 ? kFloat32 : types[l];
      std::set<DataType> wanted;
      for (std::size_t r = 0; r < count; ++r)
        if (std::count(small.sources[r].begin(), small.sources[r].end(), l) > 0) wanted.insert(types[r]);
      if (l >= 0 && small.handed_out[l]) wanted.insert(kFloat32);
      wanted.erase(written);
      casts += static_cast<int>(wanted.size());
      if (l < 0) continue;
      const auto i = static_cast<std::size_t>(l);
      if (small.kinds[i] == Kind::kCompute && types[i] != assigned[i]) valid = false;
      if (small.kinds[i] == Kind::kSelect && types[i] != assigned[i])
        valid &= reads_narrow[i] && (assigned[i] == kFloat16 || small.exact_constants[i]);
      // Rounded where the assignment does not: only if everybody rounds.
      if (small.kinds[i] == Kind::kMove && types[i] == kFloat16 && !narrow[i]) valid &= wanted.empty();
    }
    if (valid) best = std::min(best, casts);
  }
  return best;
}

struct Placed {
  Typing typing;
  Assignment assignment;
};

Placed place(const Small& small, const std::vector<DataType>& assigned) {
  const auto spec = specialize(small.builder.network, {{3, 4}});
  BuildOptions build;
  build.enabled.set(Precision::kFP16);
  build.assume_lowest = true;
  build.constraints = ConstraintMode::kObey;
  Requests requested(small.builder.network.layers.size());
  for (std::size_t l = 0; l < assigned.size(); ++l)
    if (small.kinds[l] != Kind::kMove) requested[small.ids[l]] = assigned[l];
  Assignment assignment = assign_precisions(*spec, build, &requested);
  return {place_casts(*spec, assignment, {}), assignment};
}

TEST(Selection, TypesAreThoseOfTheFewestCasts) {
  std::mt19937 random(5);
  int moved = 0;
  for (int round = 0; round < 400; ++round) {
    const Small small = random_network(random);
    std::vector<DataType> assigned;
    for (int l = 0; l < small.size(); ++l) assigned.push_back(random() % 2 == 0 ? kFloat16 : kFloat32);
    const Placed placed = place(small, assigned);
    EXPECT_EQ(placed.typing.casts, fewest_casts(small, assigned)) << "round " << round;
    moved += static_cast<int>(placed.typing.moved.size());
  }
  EXPECT_GE(moved, 100);
}

TEST(Selection, KeptLayersCostTwoCastsEachAtMost) {
  std::mt19937 random(9);
  for (int round = 0; round < 20; ++round) {
    Small small;
    int last = -1, kept = 0;
    std::vector<DataType> assigned;
    for (int block = 0; block < 12; ++block) {
      last = small.add(Kind::kCompute, "Softmax", {last});
      const bool keep = block > 0 && block < 11 && random() % 3 == 0;
      kept += keep;
      assigned.push_back(keep ? kFloat32 : kFloat16);
      // What follows was asked to be anything.
      const int before = last;
      last = small.add(Kind::kMove, "Transpose", {last});
      assigned.push_back(kFloat32);
      if (!keep) {
        last = small.add(Kind::kSelect, "Relu", {last});
        assigned.push_back(random() % 2 == 0 ? kFloat16 : kFloat32);
        last = small.add(Kind::kSelect, "Max", {last, before});
        assigned.push_back(random() % 2 == 0 ? kFloat16 : kFloat32);
      }
    }
    small.finish();
    EXPECT_LE(place(small, assigned).typing.casts, 2 * kept + 2) << "round " << round;
  }
}

/// product (fp16) -> op -> after; returns whether `op`, asked to be fp32, became fp16.
bool moves(const std::string& op, const std::string& after, std::vector<float> limits = {}) {
  testing::NetworkBuilder builder;
  builder.input("x");
  builder.weight("w", Tensor::of<float>({4, 4}, std::vector<float>(16, 0.3F)));
  builder.layer("MatMul", {"x", "w"}, {"a"}, "product");
  std::vector<std::string> inputs{"a"};
  for (float limit : limits) {
    inputs.push_back("limit" + std::to_string(inputs.size()));
    builder.weight(inputs.back(), Tensor::of<float>({}, {limit}));
  }
  builder.layer(op, inputs, {"b"}, "choice");
  builder.layer(after, after == "MatMul" ? std::vector<std::string>{"b", "w"} : std::vector<std::string>{"b"}, {"y"},
                "after");
  builder.output("y");
  infer_types(builder.network);
  const auto spec = specialize(builder.network, {{3, 4}});
  BuildOptions build;
  build.enabled.set(Precision::kFP16);
  build.assume_lowest = true;
  build.constraints = ConstraintMode::kObey;
  Requests requested(builder.network.layers.size());
  const LayerId choice = builder.network.find_layer("choice");
  requested[choice] = kFloat32;
  const Typing typing = place_casts(*spec, assign_precisions(*spec, build, &requested), {});
  return std::any_of(typing.moved.begin(), typing.moved.end(), [&](const auto& each) { return each.first == choice; });
}

TEST(Selection, LimitsHaveToBeRepresentable) {
  EXPECT_TRUE(moves("Relu", "MatMul"));
  EXPECT_TRUE(moves("Clip", "MatMul", {0.0F, 6.0F}));
  EXPECT_FALSE(moves("Clip", "MatMul", {0.0F, 0.1F}));
  EXPECT_FALSE(moves("Clip", "MatMul", {-1e6F, 1e6F}));
  EXPECT_FALSE(moves("Clip", "MatMul", {0.0F}));  // The other one is the largest float32.
}

TEST(Selection, NothingFusesThatRoundedBefore) {
  // With Relu in float16, product, Relu and Tanh would be one group, in which the product is not rounded.
  EXPECT_FALSE(moves("Relu", "Tanh"));
  EXPECT_TRUE(moves("Relu", "Transpose"));
  // Zeros of the other sign: -1e-9 is above the limit, its rounded value is not.
  EXPECT_FALSE(moves("Clip", "MatMul", {-1.0F, 0.0F}));
}

}  // namespace
}  // namespace ulpscope
