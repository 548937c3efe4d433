// LSTM, GRU and RNN lowered for a GPU, run on the fake one and compared with the plain backend.
#include <gtest/gtest.h>

#include <cstdlib>

#include "backend/lowered_networks.h"

namespace ulpscope::cuda::fake {
namespace {

using A = Net::Attribute;
using Ints = std::vector<std::int64_t>;

/// A layer with whatever the operator allows, and what usually follows it.
class RandomRecurrence {
 public:
  explicit RandomRecurrence(std::uint32_t seed) : dice_(seed), net_(fmt::format("recurrence of seed {}", seed), seed) {
    const std::int64_t seq = 1 + pick(5), batch = pick(3) == 0 ? 1 : pick(4) == 0 ? 9 + pick(9) : 2 + pick(7);
    const std::int64_t input = 1 + pick(12);
    const bool batch_first = pick(3) == 0;
    std::string x = net_.input("x", batch_first ? Shape{batch, seq, input} : Shape{seq, batch, input});
    if (pick(3) == 0) {  // Not where it was computed.
      const std::string turned = net_.add("Transpose", {net_.add("Tanh", {x})}, {A("perm", Ints{1, 0, 2})});
      x = net_.add("Transpose", {turned}, {A("perm", Ints{1, 0, 2})});
    }
    x = add_layer(x, seq, batch, input, batch_first);
    if (pick(2) == 0 && !x.empty() && !batch_first) {
      // As exporters stack them.
      const std::string rows = net_.add(
          "Reshape", {net_.add("Transpose", {x}, {A("perm", Ints{0, 2, 1, 3})}), net_.integers({seq, batch, width_})});
      net_.output(net_.add("Relu", {rows}));
      add_layer(rows, seq, batch, width_, false);
    }
  }
  Net& net() { return net_; }

 private:
  std::int64_t pick(std::uint32_t count) { return static_cast<std::int64_t>(dice_() % count); }

  /// Y, if it is there.
  std::string add_layer(const std::string& x, std::int64_t seq, std::int64_t batch, std::int64_t input,
                        bool batch_first) {
    static constexpr const char* kOps[]{"RNN", "GRU", "LSTM"};
    const std::int64_t kind = pick(4) == 0 ? 0 : 1 + pick(2), gates = kind == 0 ? 1 : kind + 2;
    const std::int64_t hidden = pick(3) == 0 ? 8 * (1 + pick(9)) : 1 + pick(70), directions = 1 + pick(2);
    const char* direction = directions == 2 ? "bidirectional" : pick(2) == 0 ? "reverse" : "forward";
    std::vector<A> attributes{A("direction", direction), A("hidden_size", hidden), A("layout", batch_first ? 1 : 0)};
    if (pick(4) == 0) attributes.emplace_back("clip", 0.3);
    if (kind == 0 && pick(2) == 0)
      attributes.emplace_back("activations", std::vector<std::string>(static_cast<std::size_t>(directions), "Relu"));
    if (kind == 1) attributes.emplace_back("linear_before_reset", static_cast<int>(pick(2)));
    if (kind == 2) attributes.emplace_back("input_forget", static_cast<int>(pick(4) == 0));
    const float scale = 1.0f / std::sqrt(static_cast<float>(hidden));
    const Shape state = batch_first ? Shape{batch, directions, hidden} : Shape{directions, batch, hidden};
    const auto initial = [&]() -> std::string {
      const std::int64_t way = pick(3);
      if (way == 0) return "";
      return way == 1 ? net_.weight(state) : net_.input(fmt::format("state{}", states_++), state, -1, 1);
    };
    std::vector<std::string> inputs{x,
                                    net_.weight({directions, gates * hidden, input}),
                                    net_.weight({directions, gates * hidden, hidden}, -2 * scale, 2 * scale),
                                    pick(4) == 0 ? "" : net_.weight({directions, 2 * gates * hidden}),
                                    "",
                                    initial()};
    if (kind == 2) inputs.push_back(initial());
    if (kind == 2) inputs.push_back(pick(2) == 0 ? "" : net_.weight({directions, 3 * hidden}));
    std::vector<bool> wanted(kind == 2 ? 3 : 2);
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = pick(4) != 0;
    wanted[static_cast<std::size_t>(pick(static_cast<std::uint32_t>(wanted.size())))] = true;
    const std::vector<std::string> outputs = net_.add_wanted(kOps[kind], inputs, wanted, attributes);
    for (const std::string& output : outputs)
      if (!output.empty()) net_.output(pick(2) == 0 ? output : net_.add("Neg", {output}));
    width_ = directions * hidden;
    return seq * batch > 0 ? outputs[0] : "";
  }

  std::mt19937 dice_;
  Net net_;
  int states_ = 0;
  std::int64_t width_ = 0;  ///< Of the last layer: directions * hidden.
};

/// Sizes that take several rounds over a row of R, and many sequences at once.
TEST(CudaRecurrent, LargeLayers) {
  struct Case {
    const char* op;
    std::int64_t gates, batch, hidden, directions;
    PrecisionSet type;
  };
  constexpr PrecisionSet kFp32;
  constexpr Case kCases[]{{"LSTM", 4, 1, 520, 1, kFp32}, {"LSTM", 4, 3, 264, 2, kFp32},
                          {"GRU", 3, 1, 530, 1, kFp32},  {"GRU", 3, 2, 300, 1, kFp32},
                          {"RNN", 1, 1, 1030, 1, kFp32}, {"RNN", 1, 64, 136, 2, {Precision::kFP16}}};
  Comparison all;
  std::vector<std::unique_ptr<Net>> nets;
  for (const auto& [op, gates, batch, hidden, directions, type] : kCases) {
    const std::string name = fmt::format("{} of {} units, {} sequences", op, hidden, batch);
    Net& n = *nets.emplace_back(std::make_unique<Net>(name, static_cast<std::uint32_t>(hidden)));
    const float scale = 2.0f / std::sqrt(static_cast<float>(hidden));
    const auto x = n.input("x", {1, batch, 3});
    for (const std::string& output :
         n.add_many(op,
                    {x, n.weight({directions, gates * hidden, 3}),
                     n.weight({directions, gates * hidden, hidden}, -scale, scale),
                     n.weight({directions, 2 * gates * hidden}), "", n.input("h", {directions, batch, hidden}, -1, 1)},
                    2, {A("direction", directions == 2 ? "bidirectional" : "forward")}))
      n.output(output);
    Network& network = n.finish();
    all.add(name, network, n.inputs(), options_of(type, Fusion::kFull), Match::kRoundings);
  }
  if (!all.run()) GTEST_SKIP() << "no compiler";
}

TEST(CudaRecurrent, RandomLayers) {
  const std::uint32_t start = sweeps::seed();
  const int count = sweeps::count(24);
  Comparison all;
  std::vector<std::unique_ptr<RandomRecurrence>> made;
  for (int i = 0; i < count; ++i) {
    const auto seed = start + static_cast<std::uint32_t>(i);
    Net& net = made.emplace_back(std::make_unique<RandomRecurrence>(seed))->net();
    Network& network = net.finish();
    const BuildOptions options[]{options_of({}, Fusion::kFull), options_of({Precision::kFP16}, Fusion::kNone),
                                 options_of({Precision::kFP16}, Fusion::kFull),
                                 options_of({Precision::kBF16}, Fusion::kPointwise)};
    all.add(fmt::format("seed {}, {}", seed, i % 4), network, net.inputs(), options[i % 4], Match::kRoundings);
    EXPECT_EQ(all.host_steps(), 0) << "seed " << seed;
  }
  if (!all.run()) GTEST_SKIP() << "no compiler";
}

}  // namespace
}  // namespace ulpscope::cuda::fake
