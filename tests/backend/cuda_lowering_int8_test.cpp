// Integers on the fake GPU: the bits of the plain backend, which sums 64-bit integers' worth in float64.
#include <gtest/gtest.h>

#include "backend/lowered_networks.h"

namespace ulpscope::cuda::fake {
namespace {

using A = Net::Attribute;
using Ints = std::vector<std::int64_t>;
using Scales = std::map<std::string, float>;

class IntegerCases {
 public:
  Net& net(const std::string& name) {
    nets_.push_back(std::make_unique<Net>(name, static_cast<std::uint32_t>(nets_.size()) + 1));
    return *nets_.back();
  }
  /// What was made last, at every fusion level, stored in float32 and float16; `layers` are in int8.
  void check(const Scales& scales, int layers) {
    Net& net = *nets_.back();
    const Network& network = net.finish();
    const auto cache = std::make_shared<WeightCache>();
    for (const Fusion fusion : {Fusion::kNone, Fusion::kPointwise, Fusion::kFull})
      for (const bool narrow : {false, true}) {
        BuildOptions options;
        options.enabled.set(Precision::kINT8);
        options.assume_lowest = true;
        options.enabled.set(Precision::kFP16, narrow);
        options.fusion = fusion;
        options.threads = 1;
        options.scales = scales;
        for (const bool libraries : {true, false}) {
          const std::string name = fmt::format("{}, fusion {}{}{}", network.name, static_cast<int>(fusion),
                                               narrow ? ", fp16" : "", libraries ? "" : ", generated kernels");
          all_.add(name, network, net.inputs(), options, Match::kBits,
                   {.products = libraries, .convolutions = libraries}, cache);
          int integers = 0;
          for (const auto& kernels : all_.schedule().kernels)
            for (const KernelDescription& kernel : kernels) {
              if (const auto* product = std::get_if<ProductKernel>(&kernel)) integers += product->elements;
              if (const auto* program = std::get_if<ProgramKernel>(&kernel))
                integers += std::ranges::any_of(program->program.values, [](const Program::Value& v) {
                  return v.instruction == Instruction::kFakeQuantize;
                });
              if (const auto* layer = std::get_if<LayerKernel>(&kernel))
                integers += std::ranges::any_of(layer->operands, [](const Operand& o) { return o.is_encoded(); });
            }
          EXPECT_EQ(integers, layers) << name;
        }
      }
  }
  bool run() { return all_.run(); }
  std::int64_t host_steps() const { return all_.host_steps(); }

 private:
  std::vector<std::unique_ptr<Net>> nets_;
  Comparison all_;
};

TEST(CudaLoweringInt8, Products) {
  IntegerCases cases;
  for (const Ints& mkn : {Ints{1, 1, 1}, Ints{5, 33, 17}, Ints{16, 384, 64}, Ints{3, 12, 9}, Ints{3, 9, 12}}) {
    Net& n = cases.net(fmt::format("MatMul {} with bias", ulpscope::to_string(mkn)));
    const auto x = n.input("x", {1, mkn[0], mkn[1]}, -6, 6);
    n.output(n.add("Relu", {n.add("Add", {n.weight({mkn[2]}), n.add("MatMul", {x, n.weight({mkn[1], mkn[2]})})})}));
    cases.check({{"x", 0.04f}}, 1);
  }
  for (const bool constant : {true, false}) {
    Net& n = cases.net("long sums");
    Tensor x(DataType::kFloat32, {2, 5000}), w(DataType::kFloat32, {5000, 3});
    std::fill_n(x.data<float>(), x.size(), 127.0f);
    std::fill_n(w.data<float>(), w.size(), 127.0f);
    x.data<float>()[4999] = 126;
    n.input("x", x);
    n.output(n.add("MatMul", {"x", constant ? n.weight(w) : n.input("w", w)}));
    cases.check({{"x", 1.0f}, {"w", 1.0f}}, 1);
  }
  struct Batches {
    Shape a, b;
  };
  for (const auto& [a, b] :
       {Batches{{2, 2, 7, 32}, {2, 2, 32, 9}}, Batches{{2, 2, 8, 4}, {2, 2, 4, 8}}, Batches{{3, 5, 6}, {6, 7}},
        Batches{{5, 6}, {3, 6, 7}}, Batches{{2, 1, 5, 6}, {3, 6, 4}}, Batches{{8, 1, 1}, {8, 1, 1}}}) {
    Net& n = cases.net(fmt::format("{} by {}", ulpscope::to_string(a), ulpscope::to_string(b)));
    n.output(n.add("Neg", {n.add("MatMul", {n.input("x", a), n.input("z", b)})}));
    cases.check({{"x", 0.017f}, {"z", 0.02f}}, 1);
  }
  {
    Net& n = cases.net("constant batches");
    n.output(n.add("MatMul", {n.input("x", {3, 5, 6}), n.weight({3, 6, 4})}));
    cases.check({{"x", 0.017f}}, 1);
  }
  add_projections(cases.net("projections"));
  cases.check({{"x", 0.03f}}, 4);
  {
    Net& n = cases.net("one tensor, read in two ways");
    const auto x = n.input("x", {4, 4});
    n.output(n.add("MatMul", {x, x}));
    n.output(n.add("Gemm", {x, n.weight({4, 4})}, {A("transA", 1)}));
    n.output(n.add("MatMul", {n.add("Transpose", {x}, {A("perm", Ints{1, 0})}), x}));
    cases.check({{"x", 0.017f}}, 3);
  }
  if (!cases.run()) GTEST_SKIP() << "no compiler";
}

TEST(CudaLoweringInt8, Blocks) {
  IntegerCases cases;
  {
    Net& n = cases.net("attention");
    const auto x = n.input("x", {2, 8, 16});
    const auto scores = n.add("MatMul", {x, n.add("Transpose", {x}, {A("perm", Ints{0, 2, 1})})});
    n.output(n.add("MatMul", {n.add("Relu", {scores}), x}));
    cases.check({{"x", 0.03f}, {"Relu2_out", 0.1f}}, 2);
  }
  {
    Net& n = cases.net("a scale that goes through a Reshape");
    const auto r = n.add("Reshape", {n.add("MatMul", {n.input("x", {8, 16}), n.weight({16, 8})}), n.integers({64})});
    n.output(n.add("Add", {r, r}));
    cases.check({{"x", 0.03f}, {"MatMul1_out", 0.1f}}, 2);
  }
  if (!cases.run()) GTEST_SKIP() << "no compiler";
}

TEST(CudaLoweringInt8, Gemm) {
  IntegerCases cases;
  for (const int turned : {0, 1, 2, 3})
    for (const bool plain : {true, false})
      for (const std::int64_t size : {12, 11}) {
        Net& n = cases.net(fmt::format("Gemm {} {} {}", turned, plain, size));
        const std::int64_t k = 40, m = 6;
        const auto a = n.input("a", (turned & 1) != 0 ? Shape{k, m} : Shape{m, k});
        const Shape b_shape = (turned & 2) != 0 ? Shape{size, k} : Shape{k, size};
        const auto b = plain ? n.weight(b_shape) : n.input("b", b_shape);
        n.output(n.add("Gemm", {a, b, n.weight({size})},
                       {A("transA", turned & 1), A("transB", turned >> 1), A("alpha", plain ? 1.0 : 0.5),
                        A("beta", plain ? 1.0 : 2.0)}));
        cases.check({{"a", 0.03f}, {"b", 0.011f}}, 1);
      }
  if (!cases.run()) GTEST_SKIP() << "no compiler";
}

TEST(CudaLoweringInt8, Convolutions) {
  IntegerCases cases;
  struct Form {
    std::int64_t n, c, k, groups, stride, dilation, pad;
    Ints window;
    bool bias;
  };
  for (const Form& f : {Form{1, 3, 16, 1, 2, 1, 1, {3, 3}, true}, Form{2, 8, 8, 8, 1, 1, 1, {3, 3}, false},
                        Form{1, 6, 4, 2, 1, 2, 2, {3, 1}, true}, Form{1, 64, 32, 1, 1, 1, 0, {1, 1}, false},
                        Form{1, 32, 16, 1, 1, 1, 1, {3, 2}, true}})
    for (const bool transposed : {false, true}) {
      Net& n = cases.net(fmt::format("{} of {} channels", transposed ? "ConvTranspose" : "Conv", f.c));
      Shape w = transposed ? Shape{f.c, f.k / f.groups} : Shape{f.k, f.c / f.groups};
      w.insert(w.end(), f.window.begin(), f.window.end());
      std::vector<std::string> inputs{n.input("x", {f.n, f.c, 6, 7}), n.weight(w)};
      if (f.bias) inputs.push_back(n.weight({f.k}));
      const auto y = n.add(transposed ? "ConvTranspose" : "Conv", inputs,
                           {A("strides", Ints(2, f.stride)), A("dilations", Ints(2, f.dilation)),
                            A("pads", Ints(4, f.pad)), A("group", f.groups)});
      n.output(f.bias ? y : n.add("Relu", {y}));
      cases.check({{"x", 0.05f}}, 1);
    }
  {
    Net& n = cases.net("a normalization and a residual");
    const auto x = n.input("x", {1, 4, 6, 6});
    const auto y = n.add("Conv", {x, n.weight({5, 4, 3, 3})}, {A("pads", Ints(4, 1))});
    const auto z =
        n.add("BatchNormalization", {y, n.weight({5}, 0.5, 1.5), n.weight({5}), n.weight({5}), n.weight({5}, 0.5, 2)});
    n.output(n.add("Relu", {n.add("Add", {z, n.input("r", {1, 5, 6, 6})})}));
    cases.check({{"x", 0.04f}}, 1);
  }
  if (!cases.run()) GTEST_SKIP() << "no compiler";
}

TEST(CudaLoweringInt8, LayersThatArePointwiseOrPool) {
  IntegerCases cases;
  for (const char* op : {"Add", "Mul"}) {
    Net& n = cases.net(op);
    const auto x = n.input("x", {6, 40}), z = n.input("z", {40});
    n.output(n.add(op, {x, z}));
    n.output(n.add(op, {n.weight({6, 40}), x}));
    cases.check({{"x", 0.02f}, {"z", 0.01f}}, 2);
  }
  {
    Net& n = cases.net("pools");
    const auto x = n.input("x", {2, 3, 4, 4});
    n.output(n.add("AveragePool", {x}, {A("kernel_shape", Ints{2, 2})}));
    n.output(n.add("GlobalAveragePool", {x}));
    n.output(n.add("AveragePool", {x},
                   {A("kernel_shape", Ints{3, 2}), A("pads", Ints{1, 0, 1, 1}), A("strides", Ints{2, 1}),
                    A("count_include_pad", 1)}));
    cases.check({{"x", 0.03125f}}, 3);
  }
  {
    Net& n = cases.net("a pool behind a convolution");
    const auto y = n.add("Relu", {n.add("Conv", {n.input("x", {2, 16, 5, 4}), n.weight({16, 16, 3, 3})})});
    n.output(n.add("Neg", {n.add("Flatten", {n.add("GlobalAveragePool", {y})})}));
    cases.check({{"x", 0.03f}, {y, 0.0625f}}, 2);  // Sums of these are exact, in every order.
  }
  {
    Net& n = cases.net("not numbers");
    n.input("x", Tensor::of<float>({1, 6}, {0.25f, 0.75f, -1e9f, INFINITY, NAN, -0.75f}));
    n.output(n.add("MatMul", {"x", n.weight({6, 5})}));
    cases.check({{"x", 0.5f}}, 1);
  }
  EXPECT_EQ(cases.host_steps(), 0);
  if (!cases.run()) GTEST_SKIP() << "no compiler";
}

/// QuantizeLinear and DequantizeLinear with zero point 0, of int8 or uint8.
std::string pair(Net& n, const std::string& x, float scale, bool is_unsigned) {
  const auto zero = n.weight(is_unsigned ? Tensor::of<std::uint8_t>({}, {0}) : Tensor::of<std::int8_t>({}, {0}));
  const auto s = n.scalar(scale);
  return n.add("DequantizeLinear", {n.add("QuantizeLinear", {x, s, zero}), s, zero});
}

TEST(CudaLoweringInt8, Pairs) {
  IntegerCases cases;
  for (const int kind : {0, 1, 2, 3}) {
    Net& n = cases.net(fmt::format("pairs {}", kind));
    const auto x = n.input("x", {2, 5, 8}), z = n.input("z", {2, 8, 12}), image = n.input("image", {1, 16, 5, 5});
    n.output(n.add("MatMul", {pair(n, x, 0.013f, (kind & 1) != 0), pair(n, z, 0.027f, (kind & 2) != 0)}));
    // The same tensor at another scale.
    n.output(n.add("MatMul", {pair(n, x, 0.02f, (kind & 1) != 0), pair(n, z, 0.01f, (kind & 2) != 0)}));
    Tensor w(DataType::kInt8, {16, 16, 3, 3});
    for (std::int64_t i = 0; i < w.size(); ++i) w.data<std::int8_t>()[i] = static_cast<std::int8_t>(i * 37 % 255 - 127);
    const auto weights = n.add("DequantizeLinear", {n.weight(w), n.weight({16}, 0.01f, 0.02f)}, {A("axis", 0)});
    n.output(n.add("Conv", {pair(n, image, 0.02f, (kind & 1) != 0), weights, n.weight({16})}));
    cases.check({}, 3);
    // Between a program and its product, only integers are stored.
    EXPECT_EQ(cases.host_steps(), 0);
  }
  if (!cases.run()) GTEST_SKIP() << "no compiler";
}

}  // namespace
}  // namespace ulpscope::cuda::fake
