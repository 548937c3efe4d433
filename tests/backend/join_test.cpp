#include "backend/cpu/join.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "backend/seeds.h"
#include "ulpscope/error.h"

namespace ulpscope::cpu {
namespace {

using I = Instruction;

/// Stands for a product: what it writes has nothing to do with the programs around it, but for its input.
class Negation final : public Kernel {
 public:
  std::string name() const override { return "negation"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    for (std::int64_t i = 0; i < outputs[0]->size(); ++i) outputs[0]->data<float>()[i] = -inputs[0]->data<float>()[i];
  }
};

/// Steps over one domain: programs, some in place of what they read, and negations between them.
class RandomSteps {
 public:
  explicit RandomSteps(std::uint32_t seed) : random_(seed) {
    domain_ = {pick(1, 3), pick(1, 9), pick(1, 5) * pick(1, 60)};
    for (int i = 0; i < 2; ++i) dense_.push_back(slot(domain_, DataType::kFloat32));
    channels_ = slot({domain_[2]}, DataType::kFloat32);
    made.inputs = {dense_[0], dense_[1], channels_};
    const int count = static_cast<int>(pick(2, 9));
    for (int i = 0; i < count; ++i) {
      pick(0, 4) == 0 ? negate() : add_program();
      if (pick(0, 2) == 0) add_view();
    }
    for (const int s : dense_)
      if (pick(0, 2) == 0 || s == dense_.back()) made.outputs.push_back(s);
    made.outputs.insert(made.outputs.end(), bytes_.begin(), bytes_.end());
  }

  std::vector<Tensor> run(const Steps& steps, const std::vector<std::shared_ptr<const Kernel>>& kernels) {
    std::vector<Tensor> tensors;
    std::mt19937 values(7);
    std::uniform_real_distribution<float> value(-4, 4);
    for (const Slot& s : steps.slots) {
      if (s.alias >= 0) {
        const Tensor& whole = tensors[static_cast<std::size_t>(s.alias)];
        tensors.push_back(Tensor::borrow(s.type, s.shape, const_cast<void*>(whole.raw()), nullptr));
        continue;
      }
      tensors.emplace_back(s.type, s.shape);
      std::memset(tensors.back().raw(), 0x5a, tensors.back().bytes());
    }
    for (const int s : steps.inputs)
      for (std::int64_t i = 0; i < tensors[s].size(); ++i) tensors[s].data<float>()[i] = value(values);
    for (std::size_t i = 0; i < steps.steps.size(); ++i) {
      std::vector<const Tensor*> in;
      std::vector<Tensor*> out;
      for (const int s : steps.steps[i].inputs) in.push_back(&tensors[s]);
      for (const int s : steps.steps[i].outputs) out.push_back(&tensors[s]);
      kernels[i]->run(in, out);
    }
    std::vector<Tensor> results;
    for (const int s : steps.outputs) results.push_back(tensors[s]);
    return results;
  }

  Steps made;
  std::map<int, ProgramForm> programs;

 private:
  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  int slot(Shape shape, DataType type) {
    made.slots.push_back({.type = type, .shape = std::move(shape)});
    return static_cast<int>(made.slots.size()) - 1;
  }
  int any_dense() {
    // The last one mostly: that makes chains.
    return pick(0, 1) == 0 ? dense_.back() : dense_[pick(0, static_cast<std::int64_t>(dense_.size()) - 1)];
  }
  void add(std::shared_ptr<const Kernel> kernel, std::vector<int> inputs, std::vector<int> outputs) {
    made.steps.push_back({std::move(kernel), std::move(inputs), std::move(outputs), kNone});
  }
  void negate() {
    const int from = any_dense(), to = slot(domain_, DataType::kFloat32);
    add(std::make_shared<Negation>(), {from}, {to});
    dense_.push_back(to);
    // Only the step that follows reads it, which may take its place.
    fresh_ = to;
  }
  /// Of what the last step left: all of it, or its first rows.
  void add_view() {
    const bool whole = pick(0, 1) == 0;
    View view{slot(whole ? domain_ : Shape{1, domain_[1], domain_[2]}, DataType::kFloat32),
              {whole ? domain_[1] * domain_[2] : 0, domain_[2], 1}};
    made.slots[static_cast<std::size_t>(view.slot)].alias = dense_.back();
    views_.push_back(std::move(view));
    fresh_ = -1;
  }
  float scale() { return std::vector<float>{0.02f, 0.031f}[pick(0, 1)]; }
  void add_program() {
    ProgramBuilder p(domain_);
    const std::vector<std::int64_t> strides{domain_[1] * domain_[2], domain_[2], 1};
    std::vector<int> inputs{any_dense()}, outputs;
    std::vector<Register> registers{p.input(strides, Rounding::kNone)};
    if (pick(0, 1) == 0) {
      inputs.push_back(any_dense());
      registers.push_back(p.input(strides, pick(0, 4) == 0 ? Rounding::kF16 : Rounding::kNone));
    }
    if (pick(0, 1) == 0) {
      inputs.push_back(channels_);
      registers.push_back(p.input({0, 0, 1}, Rounding::kNone));
    }
    if (!views_.empty() && pick(0, 1) == 0) {
      inputs.push_back(views_.back().slot);
      registers.push_back(p.input(views_.back().strides, Rounding::kNone));
    }
    registers.push_back(p.constant(1.5f));
    const auto any = [&] { return registers[pick(0, static_cast<std::int64_t>(registers.size()) - 1)]; };
    const auto steps = pick(1, 5);
    for (std::int64_t s = 0; s < steps; ++s) {
      const Register r = pick(0, 2) == 0 ? registers[0] : any();
      switch (pick(0, 5)) {
        case 0:
          registers.push_back(p.apply(I::kAdd, r, any()));
          break;
        case 1:
          registers.push_back(p.apply(I::kSub, r, any()));
          break;
        case 2:
          registers.push_back(p.apply(I::kMul, r, any()));
          break;
        case 3:
          registers.push_back(p.apply(I::kRelu, r));
          break;
        case 4:
          registers.push_back(p.apply(I::kClip, r, -1, -1.0f, 2.0f));
          break;
        default:
          registers.push_back(p.apply(I::kFakeQuantize, r, -1, scale(), static_cast<float>(pick(0, 1))));
      }
    }
    const bool in_place = fresh_ == inputs[0] && pick(0, 1) == 0;
    const auto results = pick(1, 2);
    for (std::int64_t o = 0; o < results; ++o) {
      p.output(o == 0 ? registers.back() : any(), pick(0, 6) == 0 ? Rounding::kF16 : Rounding::kNone);
      outputs.push_back(o == 0 && in_place ? inputs[0] : slot(domain_, DataType::kFloat32));
      if (outputs.back() != inputs[0]) dense_.push_back(outputs.back());
    }
    if (pick(0, 2) == 0) {
      const ProgramForm::Integers integers{to_bytes(scale(), false), static_cast<std::int32_t>(pick(-1, 1)),
                                           pick(0, 1) == 1};
      p.output_integers(pick(0, 1) == 0 ? registers.back() : any(), integers);
      bytes_.push_back(slot(domain_, integers.as_floats ? DataType::kFloat32 : DataType::kInt8));
      outputs.push_back(bytes_.back());
    }
    fresh_ = -1;
    programs.emplace(static_cast<int>(made.steps.size()), p.form());
    add(nullptr, std::move(inputs), std::move(outputs));
  }

  std::mt19937 random_;
  Shape domain_;
  struct View {
    int slot;
    std::vector<std::int64_t> strides;
  };
  std::vector<int> dense_, bytes_;
  std::vector<View> views_;
  int channels_ = -1, fresh_ = -1;
};

TEST(Join, LeavesEveryBitOfWhatOthersRead) {
  const std::uint32_t first = sweeps::seed();
  std::size_t before = 0, after = 0;
  for (std::uint32_t seed = first; seed < first + static_cast<std::uint32_t>(sweeps::count(400)); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomSteps net(seed);
    std::vector<std::shared_ptr<const Kernel>> kernels;
    for (std::size_t i = 0; i < net.made.steps.size(); ++i) {
      const auto found = net.programs.find(static_cast<int>(i));
      kernels.push_back(found == net.programs.end() ? net.made.steps[i].kernel
                                                    : ProgramBuilder(found->second).finish());
    }
    const std::vector<Tensor> expected = net.run(net.made, kernels);
    before += net.made.steps.size();
    for (std::size_t i = 0; i < net.made.steps.size(); ++i)
      for (const int slot : net.made.steps[i].outputs)
        net.made.values.push_back({slot, static_cast<int>(i), {}, false});
    join_programs(net.made, net.programs);
    after += net.made.steps.size();
    kernels.clear();
    for (const Step& step : net.made.steps) kernels.push_back(step.kernel);
    const std::vector<Tensor> got = net.run(net.made, kernels);
    for (std::size_t o = 0; o < got.size(); ++o)
      ASSERT_EQ(std::memcmp(expected[o].raw(), got[o].raw(), got[o].bytes()), 0) << "output " << o;
    for (const StoredValue& value : net.made.values) {
      const Step& step = net.made.steps.at(static_cast<std::size_t>(value.step));
      ASSERT_NE(std::ranges::find(step.outputs, value.slot), step.outputs.end());
    }
  }
  EXPECT_LT(after, before * 9 / 10);
}

TEST(Join, RefusesProgramsThatLeaveTheirTensors) {
  for (const bool reads : {true, false}) {
    Steps made;
    made.slots = {{.type = DataType::kFloat32, .shape = {reads ? 63 : 64}},
                  {.type = DataType::kFloat32, .shape = {reads ? 64 : 63}}};
    ProgramBuilder p({64});
    p.output(p.apply(I::kRelu, p.input({1}, Rounding::kNone)), Rounding::kNone);
    made.steps.push_back({nullptr, {0}, {1}, kNone});
    EXPECT_THROW(join_programs(made, {{0, p.form()}}), InternalError);
  }
}

TEST(Join, DoesNotQuantizeWhatIsQuantizedAgain) {
  for (const bool same : {true, false}) {
    Steps made;
    made.slots = {{.type = DataType::kFloat32, .shape = {64}},
                  {.type = DataType::kFloat32, .shape = {64}},
                  {.type = DataType::kInt8, .shape = {64}}};
    ProgramBuilder first({64}), second({64});
    const Register x = first.apply(I::kRelu, first.input({1}, Rounding::kNone));
    first.output(first.apply(I::kFakeQuantize, x, -1, 0.1f, 0.0f), Rounding::kNone);
    second.output_integers(second.input({1}, Rounding::kNone), {to_bytes(same ? 0.1f : 0.2f, false)});
    made.inputs = {0};
    made.steps = {{nullptr, {0}, {1}, kNone}, {nullptr, {1}, {2}, kNone}};
    made.outputs = {2};
    join_programs(made, {{0, first.form()}, {1, second.form()}});
    ASSERT_EQ(made.steps.size(), 1U);
    EXPECT_EQ(made.steps[0].kernel->name(), same ? "quantization" : "program");
  }
}

TEST(Join, QuantizesWhatTwoStepsReadOnce) {
  Steps made;
  for (int i = 0; i < 5; ++i) made.slots.push_back({.type = DataType::kFloat32, .shape = {64}});
  std::map<int, ProgramForm> programs;
  const auto program = [&](std::vector<int> inputs, int output, auto&& compute) {
    ProgramBuilder p({64});
    std::vector<Register> registers;
    for (std::size_t i = 0; i < inputs.size(); ++i) registers.push_back(p.input({1}, Rounding::kNone));
    p.output(compute(p, registers), Rounding::kNone);
    programs.emplace(static_cast<int>(made.steps.size()), p.form());
    made.steps.push_back({nullptr, std::move(inputs), {output}, kNone});
  };
  const auto quantized = [](ProgramBuilder& p, Register x) { return p.apply(I::kFakeQuantize, x, -1, 0.1f, 0.0f); };
  made.inputs = {0};
  program({0}, 1, [](ProgramBuilder& p, const auto& r) { return p.apply(I::kRelu, r[0]); });
  program({1}, 2, [&](ProgramBuilder& p, const auto& r) { return quantized(p, r[0]); });
  made.steps.push_back({std::make_shared<Negation>(), {2}, {3}, kNone});
  program({1, 3}, 4, [&](ProgramBuilder& p, const auto& r) { return p.apply(I::kMul, quantized(p, r[0]), r[1]); });
  made.outputs = {4};
  join_programs(made, programs);
  ASSERT_EQ(made.steps.size(), 3U);
  EXPECT_EQ(made.steps[0].outputs, std::vector<int>{2});  // Nobody reads what is not quantized.
  EXPECT_EQ(made.steps[2].inputs, (std::vector<int>{2, 3}));
}

}  // namespace
}  // namespace ulpscope::cpu
