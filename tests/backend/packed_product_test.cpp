// Our own product of packed matrices, held against sums in double precision: every small shape, with what lies behind
// its operands and results poisoned; and against itself, cut in other ways, bit by bit.
#include "backend/cpu/packed_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/parallel.h"

namespace ulpscope::cpu {
namespace {

using Index = std::int64_t;

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();
constexpr std::size_t kGuard = 64;  ///< Elements in front of and behind what a kernel may touch.

/// Numbers between poison.
class GuardedNumbers {
 public:
  explicit GuardedNumbers(Shape shape) : shape_(std::move(shape)), all_(count() + 2 * kGuard, kPoison) {}

  float* data() { return all_.data() + kGuard; }
  const float* data() const { return all_.data() + kGuard; }
  std::size_t count() const { return static_cast<std::size_t>(num_elements(shape_)); }
  Tensor tensor() { return Tensor::borrow(DataType::kFloat32, shape_, data(), nullptr); }
  std::vector<float> values() const { return {data(), data() + count()}; }
  void fill(unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < count(); ++i) data()[i] = normal(random);
  }
  bool is_intact() const {
    for (std::size_t i = 0; i < kGuard; ++i)
      if (!std::isnan(all_[i]) || !std::isnan(all_[all_.size() - 1 - i])) return false;
    return true;
  }

 private:
  const Shape shape_;
  std::vector<float> all_;
};

ObjectCache packed_now() {
  return [](const std::string&, std::function<PreparedObject()> make) -> PreparedSource {
    return [object = make().object] { return object; };
  };
}

struct ProductCase {
  std::vector<Index> batch_a, batch_b;
  Index m, k, n;
  bool transpose_a = false, transpose_b = false, constant = false, bias = false;
  Index k_begin = 0, k_end = 0;

  std::string text() const {
    return ::testing::PrintToString(batch_a) + " " + ::testing::PrintToString(batch_b) + " " + std::to_string(m) +
           " x " + std::to_string(k) + " x " + std::to_string(n) + (transpose_a ? ", a transposed" : "") +
           (transpose_b ? ", b transposed" : "") + (constant ? ", constant" : "") + (bias ? ", bias" : "") + ", k " +
           std::to_string(k_begin) + " to " + std::to_string(k_end);
  }
};

Shape shape_of(std::vector<Index> batch, Index rows, Index columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return {batch.begin(), batch.end()};
}

/// Operands and results of a case.
struct ProductRun {
  explicit ProductRun(const ProductCase& c)
      : c(c),
        a(c.transpose_a ? shape_of(c.batch_a, c.k, c.m) : shape_of(c.batch_a, c.m, c.k)),
        b(c.transpose_b ? shape_of(c.batch_b, c.n, c.k) : shape_of(c.batch_b, c.k, c.n)),
        bias({c.n}) {
    for (std::size_t d = 0; d < c.batch_a.size(); ++d) batch.push_back(std::max(c.batch_a[d], c.batch_b[d]));
    a.fill(1);
    b.fill(2);
    bias.fill(3);
  }

  std::unique_ptr<Kernel> kernel() {
    MatMulSpec spec;
    spec.batch_a = c.batch_a;
    spec.batch_b = c.batch_b;
    spec.m = c.m;
    spec.k = c.k;
    spec.n = c.n;
    spec.transpose_a = c.transpose_a;
    spec.transpose_b = c.transpose_b;
    spec.k_begin = c.k_begin;
    spec.k_end = c.k_end;
    if (c.bias) spec.bias = bias.tensor();
    if (c.constant) {
      spec.constant_b = [this] { return b.tensor(); };
      spec.key_b = "b";
    }
    return make_packed_matmul_kernel(spec, packed_now());
  }

  std::vector<float> results(const Kernel& kernel, int threads) {
    const ScopedThreads scope(threads);
    GuardedNumbers out(shape_of(batch, c.m, c.n));
    const Tensor first = a.tensor(), second = b.tensor();
    Tensor target = out.tensor();
    const std::array<const Tensor*, 2> in{&first, &second};
    Tensor* const to = &target;
    kernel.run(std::span(in).first(c.constant ? 1 : 2), {&to, 1});
    EXPECT_TRUE(out.is_intact());
    return out.values();
  }

  /// Every result, and the sum of the magnitudes of what it is the sum of.
  void expect_sums(const std::vector<float>& actual) const {
    const Index begin = c.k_begin, end = c.k_end != 0 ? c.k_end : c.k;
    const Index matrices = num_elements(Shape(batch.begin(), batch.end()));
    for (Index i = 0, at = 0; i < matrices; ++i)
      for (Index row = 0; row < c.m; ++row)
        for (Index column = 0; column < c.n; ++column, ++at) {
          double sum = c.bias ? bias.data()[column] : 0.0, magnitude = std::abs(sum);
          const float* const x = a.data() + matrix(c.batch_a, i) * c.m * c.k;
          const float* const y = b.data() + matrix(c.batch_b, i) * c.k * c.n;
          for (Index k = begin; k < end; ++k) {
            const double product = static_cast<double>(x[c.transpose_a ? k * c.m + row : row * c.k + k]) *
                                   static_cast<double>(y[c.transpose_b ? column * c.k + k : k * c.n + column]);
            sum += product;
            magnitude += std::abs(product);
          }
          // Half an ulp for each sum and product of a chain would be 1.5e-5 for 256; random ones stay far below.
          ASSERT_NEAR(actual[static_cast<std::size_t>(at)], sum, 1e-6 * magnitude)
              << i << ", " << row << ", " << column;
        }
  }

  Index matrix(const std::vector<Index>& own, Index index) const {
    Index result = 0, step = 1;
    for (std::size_t d = own.size(); d-- > 0; index /= batch[d]) {
      result += (own[d] == 1 ? 0 : index % batch[d]) * step;
      step *= own[d];
    }
    return result;
  }

  const ProductCase c;
  GuardedNumbers a, b, bias;
  std::vector<Index> batch;
};

void expect_right(const ProductCase& c) {
  ProductRun run(c);
  const auto kernel = run.kernel();
  if (kernel == nullptr) {
    EXPECT_TRUE(!c.constant && (c.k * c.n > 1 << 18 ? c.m <= 16 : c.transpose_b && c.m <= 3)) << c.text();
    return;
  }
  const std::vector<float> results = run.results(*kernel, 1);
  run.expect_sums(results);
  if (::testing::Test::HasFailure()) FAIL() << c.text();
  if (2 * static_cast<Index>(results.size()) * c.k < 20'000) return;  // Less than two threads are given.
  for (const int threads : {2, 3}) {
    const std::vector<float> others = run.results(*kernel, threads);
    ASSERT_EQ(std::memcmp(others.data(), results.data(), results.size() * sizeof(float)), 0)
        << c.text() << ", " << threads << " threads";
  }
}

/// Transposed or not, computed or constant, with a bias or without.
void expect_right_in_all_forms(ProductCase c) {
  for (int form = 0; form < 16; ++form) {
    c.transpose_a = (form & 1) != 0;
    c.transpose_b = (form & 2) != 0;
    c.constant = (form & 4) != 0;
    c.bias = (form & 8) != 0;
    ASSERT_NO_FATAL_FAILURE(expect_right(c));
  }
}

constexpr std::array<Index, 11> kSizes{1, 2, 3, 5, 6, 7, 15, 16, 17, 31, 33};

TEST(PackedProduct, EverySmallShape) {
  for (const Index m : kSizes)
    for (const Index n : kSizes)
      for (const Index k : kSizes) ASSERT_NO_FATAL_FAILURE(expect_right_in_all_forms({.m = m, .k = k, .n = n}));
}

TEST(PackedProduct, SumsThatBeginAnew) {
  for (const Index k : {255, 256, 257, 513, 1025, 2049})
    for (const Index m : {1, 3, 7})
      for (const Index n : {17, 70}) ASSERT_NO_FATAL_FAILURE(expect_right_in_all_forms({.m = m, .k = k, .n = n}));
}

TEST(PackedProduct, ManyRowsAndColumns) {
  for (const ProductCase& c : std::vector<ProductCase>{{.m = 400, .k = 70, .n = 1000},
                                                       {.m = 97, .k = 1300, .n = 130},
                                                       {.m = 1, .k = 300, .n = 800},
                                                       {.m = 1, .k = 300, .n = 2000},
                                                       {.m = 1500, .k = 40, .n = 1}})
    ASSERT_NO_FATAL_FAILURE(expect_right_in_all_forms(c));
}

TEST(PackedProduct, Batches) {
  using Batch = std::vector<Index>;
  for (const auto& [a, b] : std::vector<std::pair<Batch, Batch>>{{{3}, {3}},
                                                                 {{1}, {4}},
                                                                 {{5}, {1}},
                                                                 {{2, 1, 3}, {1, 4, 3}},
                                                                 {{2, 3}, {1, 1}},
                                                                 {{1, 3}, {2, 1}},
                                                                 {{60}, {60}}})
    for (const Index m : {1, 5, 8})
      ASSERT_NO_FATAL_FAILURE(expect_right_in_all_forms({.batch_a = a, .batch_b = b, .m = m, .k = 33, .n = 35}));
}

TEST(PackedProduct, SlicesOfK) {
  for (const Index begin : {0, 1, 100, 300})
    for (const Index end : {301, 400, 600})
      for (const Index m : {1, 9})
        ASSERT_NO_FATAL_FAILURE(expect_right_in_all_forms({.m = m, .k = 600, .n = 37, .k_begin = begin, .k_end = end}));
}

TEST(PackedProduct, ResultsDoNotDependOnOtherRowsAndColumns) {
  ProductRun whole({.m = 100, .k = 700, .n = 75, .constant = true, .bias = true});
  const std::vector<float> all = whole.results(*whole.kernel(), 1);
  for (const Index row : {0, 6, 50, 99}) {
    ProductRun one({.m = 1, .k = 700, .n = 75, .constant = true, .bias = true});
    std::memcpy(one.a.data(), whole.a.data() + row * 700, 700 * sizeof(float));
    const std::vector<float> results = one.results(*one.kernel(), 1);
    EXPECT_EQ(std::memcmp(results.data(), all.data() + row * 75, 75 * sizeof(float)), 0) << row;
  }
}

TEST(PackedProduct, InfinitiesAndNanStayWhereTheyBelong) {
  ProductRun run({.m = 7, .k = 20, .n = 19});
  run.a.data()[2 * 20 + 5] = std::numeric_limits<float>::infinity();
  run.b.data()[3 * 19 + 18] = kPoison;
  const std::vector<float> results = run.results(*run.kernel(), 1);
  for (Index row = 0; row < 7; ++row)
    for (Index column = 0; column < 19; ++column) {
      const float value = results[static_cast<std::size_t>(row * 19 + column)];
      if (column == 18)
        EXPECT_TRUE(std::isnan(value)) << row;
      else if (row == 2)
        EXPECT_TRUE(std::isinf(value)) << column;
      else
        EXPECT_TRUE(std::isfinite(value)) << row << ", " << column;
    }
}

TEST(PackedProduct, PackedWeightsAreCountedAndAreNoLargerThanNeeded) {
  std::size_t bytes = 0;
  std::string name;
  const ObjectCache cache = [&](const std::string& key, std::function<PreparedObject()> make) -> PreparedSource {
    const PreparedObject made = make();
    bytes = made.bytes;
    name = key;
    return [object = made.object] { return object; };
  };
  ProductRun run({.m = 4, .k = 100, .n = 64});
  MatMulSpec spec{{.m = 4, .n = 64, .k = 100}};
  spec.constant_b = [&] { return run.b.tensor(); };
  spec.key_b = "weights";
  ASSERT_NE(make_packed_matmul_kernel(spec, cache), nullptr);
  EXPECT_EQ(bytes, 100 * 64 * sizeof(float));
  EXPECT_NE(name.find("weights"), std::string::npos);
  const std::string whole = name;
  spec.k_begin = 50;
  spec.k_end = 100;
  ASSERT_NE(make_packed_matmul_kernel(spec, cache), nullptr);
  EXPECT_EQ(bytes, 50 * 64 * sizeof(float));
  EXPECT_NE(name, whole);
}

/// Convolutions over single places, with what rides on them, against the definition; null where oneDNN has them.
void expect_pointwise(Index places, Index in, Index out, const std::vector<PostOp::Kind>& kinds) {
  ProductRun run({.m = places, .k = in, .n = out, .transpose_b = true, .constant = true, .bias = true});
  GuardedNumbers addend({places, out}), results({places, out});
  addend.fill(4);
  ConvolutionSpec spec{.input = {1, in, 1, places},
                       .output = {1, out, 1, places},
                       .strides = {1, 1},
                       .dilations = {1, 1},
                       .pads_begin = {0, 0},
                       .pads_end = {0, 0}};
  spec.kernel = {out, in, 1, 1};
  spec.weights = [&] { return run.b.tensor().reshaped({out, in, 1, 1}); };
  spec.bias = run.bias.tensor();
  spec.key = "weights";
  for (const PostOp::Kind kind : kinds) spec.post_ops.push_back({kind});
  const auto kernel = make_pointwise_kernel(spec, packed_now());
  if (kernel == nullptr) GTEST_SKIP() << "oneDNN's are taken";
  const std::vector<float> products = run.results(*run.kernel(), 1);
  for (const int threads : {1, 3}) {
    const ScopedThreads scope(threads);
    const Tensor x = run.a.tensor(), added = addend.tensor();
    Tensor target = results.tensor();
    std::vector<const Tensor*> inputs{&x};
    for (const PostOp::Kind kind : kinds)
      if (kind == PostOp::Kind::kAddTensor) inputs.push_back(&added);
    Tensor* const to = &target;
    kernel->run(inputs, {&to, 1});
    for (std::size_t i = 0; i < products.size(); ++i) {
      double expected = products[i];
      for (const PostOp::Kind kind : kinds) {
        if (kind == PostOp::Kind::kAddTensor)
          expected += static_cast<double>(addend.data()[i]);
        else if (kind == PostOp::Kind::kRelu)
          expected = std::max(expected, 0.0);
        else
          expected *= std::clamp(expected / 6 + 0.5, 0.0, 1.0);
      }
      ASSERT_NEAR(results.data()[i], expected, 1e-6 * (1 + std::abs(expected))) << i << ", " << threads << " threads";
    }
  }
  EXPECT_TRUE(results.is_intact());
}

TEST(PackedProduct, ConvolutionsOverSinglePlaces) {
  using enum PostOp::Kind;
  for (const Index places : {1, 49, 200})
    for (const auto& kinds : std::vector<std::vector<PostOp::Kind>>{
             {}, {kAddTensor}, {kHardSwish}, {kRelu}, {kAddTensor, kHardSwish, kAddTensor, kRelu}}) {
      expect_pointwise(places, 40, 50, kinds);
      if (IsSkipped() || HasFatalFailure()) return;
    }
}

TEST(PackedProduct, OtherConvolutionsAreLeftToOthers) {
  const ConvolutionSpec right{.input = {1, 40, 6, 6},
                              .output = {1, 50, 6, 6},
                              .strides = {1, 1},
                              .dilations = {1, 1},
                              .pads_begin = {0, 0},
                              .pads_end = {0, 0},
                              .kernel = {50, 40, 1, 1}};
  const auto is_left = [&](const std::function<void(ConvolutionSpec&)>& change) {
    ConvolutionSpec spec = right;
    spec.weights = [] { return Tensor(DataType::kFloat32, {50, 40, 1, 1}); };
    change(spec);
    return make_pointwise_kernel(spec, packed_now()) == nullptr;
  };
  EXPECT_TRUE(is_left([](ConvolutionSpec& s) { s.strides = {1, 2}, s.output[3] = 3; }));
  EXPECT_TRUE(is_left([](ConvolutionSpec& s) { s.pads_begin = {0, 1}, s.output[3] = 7; }));
  EXPECT_TRUE(is_left([](ConvolutionSpec& s) { s.pads_end = {0, 1}, s.output[3] = 7; }));
  EXPECT_TRUE(is_left([](ConvolutionSpec& s) { s.groups = 2, s.kernel[1] = 20; }));
  EXPECT_TRUE(is_left([](ConvolutionSpec& s) { s.kernel[2] = 3, s.output[2] = 4; }));
  EXPECT_TRUE(is_left([](ConvolutionSpec& s) { s.transposed = true; }));
  EXPECT_TRUE(is_left([](ConvolutionSpec& s) { s.type = DataType::kInt8; }));
}

TEST(PackedProduct, LeavesBytesAndPanelsToOthers) {
  MatMulSpec spec{{.m = 4, .n = 64, .k = 100}};
  spec.panels_b = true;
  EXPECT_EQ(make_packed_matmul_kernel(spec, packed_now()), nullptr);
  spec.panels_b = false;
  spec.type_a = spec.type_b = DataType::kInt8;
  EXPECT_EQ(make_packed_matmul_kernel(spec, packed_now()), nullptr);
}

}  // namespace
}  // namespace ulpscope::cpu
