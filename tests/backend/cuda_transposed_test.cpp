// Transposed convolutions whose windows lie side by side: what they are lowered to, and that by their definition.
#include <gtest/gtest.h>

#include <cmath>

#include "backend/lowered_networks.h"

namespace ulpscope::cuda::fake {
namespace {

using A = Net::Attribute;
using Ints = std::vector<std::int64_t>;

// --- What is done
// ----------------------------------------------------------------------------------------------------------------

struct Counts {
  std::int64_t products, convolutions, clears, kernels;
  friend bool operator==(const Counts&, const Counts&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Counts& c) {
    return out << c.products << " products, " << c.convolutions << " convolutions, " << c.clears << " clears, "
               << c.kernels << " kernels";
  }
};

Counts counts_of(Net& net, const BuildOptions& options, const Rules& rules = {}) {
  const Network& network = net.finish();
  std::vector<Shape> shapes;
  for (const Tensor& input : net.inputs()) shapes.push_back(input.shape());
  FakeDevice device(rules);
  return {count_steps<ProductStep>(network, shapes, options, device),
          count_steps<ConvolveStep>(network, shapes, options, device),
          count_steps<ClearStep>(network, shapes, options, device),
          count_steps<KernelStep>(network, shapes, options, device)};
}

/// Channels innermost, by a convolution.
std::string image(Net& n, std::int64_t channels) {
  return n.add("Conv", {n.input("image", {2, 8, 5, 6}), n.weight({channels, 8, 3, 3})}, {A("pads", Ints{1, 1, 1, 1})});
}

std::string upsampled(Net& n, const std::string& x, std::int64_t c, std::int64_t k, std::vector<A> attributes = {}) {
  attributes.emplace_back("strides", Ints{2, 2});
  return n.add("ConvTranspose", {x, n.weight({c, k, 2, 2}), n.weight({k})}, attributes);
}

std::vector<std::pair<const char*, BuildOptions>> precisions() {
  return {{"fp32", options_of({}, Fusion::kFull)},
          {"tf32", options_of({Precision::kTF32}, Fusion::kFull)},
          {"fp16", options_of({Precision::kFP16}, Fusion::kFull)},
          {"bf16", options_of({Precision::kBF16}, Fusion::kFull)}};
}

TEST(CudaTransposed, UpsamplingIsAProductAndAProgram) {
  for (const auto& [precision, options] : precisions()) {
    SCOPED_TRACE(precision);
    Net n("segmentation");
    n.output(n.add("Sigmoid", {upsampled(n, image(n, 24), 24, 1)}));
    // The others bring the image into its type and order, operands to tf32, and what is handed out to float32.
    EXPECT_EQ(counts_of(n, options), (Counts{1, 1, 0, std::string_view(precision) == "fp32" ? 2 : 3}));
  }
}

/// The second one reads what the first one left, bias and Relu included, where it lies.
TEST(CudaTransposed, UpsamplingTwiceCopiesNothing) {
  for (const auto& [precision, options] : precisions()) {
    SCOPED_TRACE(precision);
    Net n("segmentation");
    const auto up = n.add("BatchNormalization", {upsampled(n, image(n, 24), 24, 24), n.weight({24}, 0.5, 1.5),
                                                 n.weight({24}), n.weight({24}), n.weight({24}, 0.5, 2)});
    n.output(n.add("Sigmoid", {upsampled(n, n.add("Relu", {up}), 24, 1)}));
    const std::string_view type(precision);
    EXPECT_EQ(counts_of(n, options), (Counts{2, 1, 0, type == "fp32" ? 2 : type == "tf32" ? 4 : 3}));
  }
}

/// As in a U-Net.
TEST(CudaTransposed, UpsampledPartsOfAConcatAreCopiedOnce) {
  for (const auto& [precision, options] : precisions()) {
    SCOPED_TRACE(precision);
    Net n("skip");
    const auto x = image(n, 16), skip = n.add("Relu", {n.input("skip", {2, 8, 10, 12})});
    const auto joined = n.add("Concat", {upsampled(n, x, 16, 8), skip}, {A("axis", 1)});
    n.output(n.add("Conv", {joined, n.weight({8, 16, 3, 3})}));
    // Images to their type and order, Relu, two parts, operands of three products to tf32, outputs to theirs.
    EXPECT_EQ(counts_of(n, options), (Counts{1, 2, 0, std::string_view(precision) == "tf32" ? 7 : 5}));
  }
}

TEST(CudaTransposed, OthersAreConvolutions) {
  const BuildOptions options = options_of({Precision::kFP16}, Fusion::kFull);
  const std::vector<std::vector<A>> kinds{{A("group", 2)},
                                          {A("pads", Ints{1, 0, 0, 0})},
                                          {A("pads", Ints{0, 0, 1, 1})},
                                          {A("output_padding", Ints{0, 1})},
                                          {A("dilations", Ints{1, 2})},
                                          {A("output_shape", Ints{9, 12})}};
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    Net n("other");
    std::vector<A> attributes = kinds[i];
    attributes.emplace_back("strides", Ints{2, 2});
    n.output(n.add("ConvTranspose", {image(n, 32), n.weight({32, 16, 2, 2})}, attributes));
    const Counts counts = counts_of(n, options);
    EXPECT_EQ(counts.products, 0) << i;
  }
  for (const Ints& strides : {Ints{1, 2}, Ints{3, 2}, Ints{1, 1}}) {
    Net n("other strides");
    n.output(n.add("ConvTranspose", {image(n, 16), n.weight({16, 16, 2, 2})}, {A("strides", strides)}));
    EXPECT_EQ(counts_of(n, options).products, 0) << strides[0] << strides[1];
  }
  {
    Net n("single elements");
    n.output(n.add("ConvTranspose", {image(n, 16), n.weight({16, 16, 1, 1})}));
    EXPECT_EQ(counts_of(n, options).products, 0);
  }
  {
    Net n("weights of a run");
    n.output(n.add("ConvTranspose", {image(n, 16), n.input("w", {16, 16, 2, 2})}, {A("strides", Ints{2, 2})}));
    EXPECT_EQ(counts_of(n, options).products, 0);
  }
  {
    Net n("no product");
    n.output(upsampled(n, image(n, 16), 16, 16));
    EXPECT_EQ(counts_of(n, options, {.products = false}).convolutions, 2);
  }
}

// --- What comes out
// ----------------------------------------------------------------------------------------------------------------

/// y[n, k, i * stride + r] = bias[k] + sum over c of x[n, c, i] w[c, k, r]: whole numbers, so that all sums are exact.
Tensor direct(const Tensor& x, const Tensor& w, const Tensor& bias) {
  const Shape &from = x.shape(), &window = w.shape();
  Shape shape{from[0], window[1]};
  for (std::size_t d = 2; d < from.size(); ++d) shape.push_back(from[d] * window[d]);
  Tensor y(DataType::kFloat32, shape);
  // Leading dimensions of one element make them three.
  std::int64_t in[3]{1, 1, 1}, r[3]{1, 1, 1};
  for (std::size_t d = 2; d < from.size(); ++d) {
    in[d + 3 - from.size()] = from[d];
    r[d + 3 - from.size()] = window[d];
  }
  const std::int64_t c_count = from[1], k_count = window[1];
  const auto at = [](std::int64_t a, const std::int64_t* sizes, std::int64_t i, std::int64_t j, std::int64_t l) {
    return ((a * sizes[0] + i) * sizes[1] + j) * sizes[2] + l;
  };
  const std::int64_t out[3]{in[0] * r[0], in[1] * r[1], in[2] * r[2]};
  for (std::int64_t n = 0; n < from[0]; ++n)
    for (std::int64_t k = 0; k < k_count; ++k)
      for (std::int64_t i = 0; i < out[0]; ++i)
        for (std::int64_t j = 0; j < out[1]; ++j)
          for (std::int64_t l = 0; l < out[2]; ++l) {
            double sum = bias ? bias.data<float>()[k] : 0;
            for (std::int64_t c = 0; c < c_count; ++c)
              sum += static_cast<double>(x.data<float>()[at(n * c_count + c, in, i / r[0], j / r[1], l / r[2])]) *
                     w.data<float>()[at(c * k_count + k, r, i % r[0], j % r[1], l % r[2])];
            y.data<float>()[at(n * k_count + k, out, i, j, l)] = static_cast<float>(sum);
          }
  return y;
}

template <typename Of>
Tensor each(const Tensor& x, const Of& of) {
  Tensor y(DataType::kFloat32, x.shape());
  for (std::int64_t i = 0; i < x.size(); ++i) y.data<float>()[i] = of(i, x.data<float>()[i]);
  return y;
}

/// Channels last, and back.
Tensor turned(const Tensor& x, bool back) {
  const Shape& from = x.shape();
  const std::size_t at = back ? from.size() - 1 : 1;
  Shape shape = from;
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(at));
  shape.insert(back ? shape.begin() + 1 : shape.end(), from[at]);
  const std::int64_t c = from[at], count = x.size() / (from[0] * c);
  Tensor y(DataType::kFloat32, shape);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const std::int64_t n = i / (c * count), rest = i % (c * count);
    const std::int64_t to = back ? rest % c * count + rest / c : rest % count * c + rest / count;
    y.data<float>()[n * c * count + to] = x.data<float>()[i];
  }
  return y;
}

/// One or two of them with random shapes, in a random place.
class RandomUpsampling {
 public:
  explicit RandomUpsampling(std::uint32_t seed) : random_(seed), net(fmt::format("seed {}", seed)) {
    const auto rank = static_cast<std::size_t>(pick(1, 3));
    const std::int64_t channels = one_of({1, 2, 3, 5, 8, 16, 24});
    Shape shape{pick(1, 3), channels};
    for (std::size_t d = 0; d < rank; ++d) shape.push_back(pick(1, rank == 3 ? 3 : 5));
    Ints first{0}, last{0};
    for (std::size_t d = 2; d < rank + 2; ++d)
      first.push_back(static_cast<std::int64_t>(d) - 1), last.push_back(static_cast<std::int64_t>(d));
    first.insert(first.begin() + 1, static_cast<std::int64_t>(rank) + 1);
    last.push_back(1);
    const Tensor x = numbers(shape, 2);
    std::string name;
    switch (pick(0, 2)) {
      case 0:
        name = net.input("x", x);
        break;
      case 1:
        name = net.add("Transpose", {net.input("x", turned(x, false))}, {A("perm", first)});
        break;
      default: {
        // Among other channels: rows that are apart, and begin anywhere.
        const std::int64_t before = pick(0, 3), all = before + channels + pick(0, 5), count = x.size() / channels;
        Shape wide = turned(x, false).shape();
        wide.back() = all;
        Tensor values = numbers(wide, 2);
        for (std::int64_t i = 0; i < x.size(); ++i)
          values.data<float>()[i / channels * all + before + i % channels] = turned(x, false).data<float>()[i];
        EXPECT_EQ(values.size(), count * all);
        name = net.add("Slice", {net.add("Transpose", {net.input("x", values)}, {A("perm", first)}),
                                 net.integers({before}), net.integers({before + channels}), net.integers({1})});
      }
    }
    made_.push_back({name, x});
    const int layers = static_cast<int>(pick(1, 2));
    for (int i = 0; i < layers; ++i) {
      add();
      const auto& [out, values] = made_.back();
      if (i + 1 < layers && chance()) continue;
      if (chance())
        add_output(out, values);
      else
        add_output(net.add("Transpose", {out}, {A("perm", last)}), turned(values, false));
      if (chance()) add_output(net.add("Neg", {out}), each(values, [](std::int64_t, float v) { return -v; }));
    }
  }

  std::mt19937 random_;
  Net net;
  struct Output {
    std::string name;
    Tensor values;  ///< Exact.
  };
  std::vector<Output> outputs;
  int layers = 0;

 private:
  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  std::int64_t one_of(const Ints& values) { return values[static_cast<std::size_t>(pick(0, std::ssize(values) - 1))]; }
  bool chance() { return pick(0, 1) == 0; }
  Tensor numbers(const Shape& shape, std::int64_t largest) {
    Tensor result(DataType::kFloat32, shape);
    for (std::int64_t i = 0; i < result.size(); ++i)
      result.data<float>()[i] = static_cast<float>(pick(-largest, largest));
    return result;
  }
  /// All but two channels of zeros, lest results grow.
  Tensor of_two_channels(const Shape& window) {
    Tensor result = numbers(window, 0);
    const std::int64_t per_channel = result.size() / window[0];
    for (std::int64_t i = 0; i < 2 * per_channel; ++i)
      result.data<float>()[pick(0, window[0] - 1) * per_channel + i / 2] = static_cast<float>(pick(-1, 1));
    return result;
  }
  void add_output(const std::string& name, const Tensor& values) {
    net.output(name);
    outputs.push_back({name, values});
  }

  void add() {
    ++layers;
    const auto [x, values] = made_.back();
    const Shape& from = values.shape();
    Shape window{from[1], one_of({1, 2, 3, 4, 7, 8, 67, 80})};
    Ints kernel;
    for (std::size_t d = 2; d < from.size(); ++d) kernel.push_back(pick(1, from.size() == 5 ? 2 : 3));
    if (num_elements(kernel) == 1) kernel[static_cast<std::size_t>(pick(0, std::ssize(kernel) - 1))] = 2;
    window.insert(window.end(), kernel.begin(), kernel.end());
    const Tensor w = layers == 1 ? numbers(window, 1) : of_two_channels(window);
    const Tensor bias = chance() ? numbers({window[1]}, 3) : Tensor();
    std::vector<std::string> inputs{x, net.weight(w)};
    if (bias) inputs.push_back(net.weight(bias));
    std::string y = net.add("ConvTranspose", inputs, {A("strides", kernel)});
    Tensor made = direct(values, w, bias);
    switch (pick(0, 5)) {
      case 0:
      case 1:
        y = net.add("Relu", {y});
        made = each(made, [](std::int64_t, float v) { return std::max(v, 0.0f); });
        break;
      case 2: {
        const Tensor r = numbers(made.shape(), 4);
        y = net.add("Abs", {net.add("Add", {y, net.input(fmt::format("r{}", layers), r)})});
        made = each(made, [&](std::int64_t i, float v) { return std::fabs(v + r.data<float>()[i]); });
        break;
      }
      case 3: {
        Shape per_channel(made.shape().size() - 1, 1);
        per_channel[0] = window[1];
        const Tensor factor = numbers(per_channel, 2);
        const std::int64_t count = made.size() / (from[0] * window[1]);
        y = net.add("Mul", {y, net.weight(factor)});
        made = each(made, [&](std::int64_t i, float v) { return v * factor.data<float>()[i / count % window[1]]; });
        break;
      }
      default:
        break;
    }
    made_.push_back({y, made});
  }

  std::vector<Output> made_;
};

/// Whole numbers of at most 8 bits: what is computed and stored is exact in every type.
TEST(CudaTransposed, RandomOnesAreWhatTheirDefinitionSays) {
  const std::uint32_t start = sweeps::seed();
  struct Case {
    std::unique_ptr<RandomUpsampling> made;
    std::shared_ptr<const Specialization> spec;
    Schedule schedule;
    WeightCache weights;
    FakeDevice device;
    IdMap<LayerId, GraphFunction> subgraphs;
    std::unique_ptr<FakePlan> plan;
  };
  KernelBank bank;
  std::vector<std::unique_ptr<Case>> cases;
  constexpr Fusion kFusions[]{Fusion::kFull, Fusion::kNone, Fusion::kPointwise};
  for (int i = 0; i < sweeps::count(30); ++i) {
    auto c = std::make_unique<Case>();
    const auto seed = start + static_cast<std::uint32_t>(i);
    c->made = std::make_unique<RandomUpsampling>(seed);
    const Network& network = c->made->net.finish();
    std::vector<Shape> shapes;
    for (const Tensor& input : c->made->net.inputs()) shapes.push_back(input.shape());
    const auto all = precisions();
    BuildOptions options = all[static_cast<std::size_t>(i) % all.size()].second;
    options.fusion = kFusions[i / 4 % 3];
    c->spec = specialize(network, shapes);
    const Assignment assignment = assign_precisions(*c->spec, options);
    c->schedule = describe(*c->spec, assignment, fuse(*c->spec, assignment, options.fusion));
    c->subgraphs = IdMap<LayerId, GraphFunction>(network.layers.size());
    c->plan =
        std::make_unique<FakePlan>(network.name, *c->spec, c->schedule, c->weights, c->subgraphs, c->device, bank);
    std::int64_t products = 0;
    for (const Step& step : c->plan->steps().steps) {
      products += std::holds_alternative<ProductStep>(step.work) ? 1 : 0;
      EXPECT_FALSE(std::holds_alternative<ConvolveStep>(step.work)) << network.name;
      EXPECT_FALSE(std::holds_alternative<ClearStep>(step.work)) << network.name;
    }
    EXPECT_EQ(products, c->made->layers) << network.name;
    cases.push_back(std::move(c));
  }
  const std::string compiler = shim::compiler();
  if (compiler.empty()) GTEST_SKIP() << "no compiler";
  ASSERT_EQ(bank.compile(compiler), "");
  for (const auto& c : cases) {
    const std::string& name = c->made->net.network().name;
    for (const unsigned char poison : {0xff, 0x41}) {
      std::vector<Tensor> got;
      ASSERT_NO_THROW(got = c->plan->run(c->made->net.inputs(), poison)) << name;
      for (std::size_t o = 0; o < got.size(); ++o) {
        const auto& [tensor, want] = c->made->outputs[o];
        ASSERT_EQ(got[o].shape(), want.shape()) << name;
        for (std::int64_t i = 0; i < want.size(); ++i)
          ASSERT_EQ(got[o].data<float>()[i], want.data<float>()[i]) << name << ", " << tensor << ", element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace ulpscope::cuda::fake
