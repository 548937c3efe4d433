// The source of movement and pools, run on this processor.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <memory>

#include "backend/cuda/movement_source.h"
#include "backend/cuda/stored_matrix.h"
#include "backend/cuda_elements.h"
#include "backend/cuda_programs.h"
#include "backend/cuda_shim.h"
#include "backend/seeds.h"
#include "ops/reduction/row_magnitudes.h"

namespace ulpscope::cuda {
namespace {

using shim::GuardedBuffer;
using testing_programs::offsets_of;

constexpr unsigned char kUntouched = 0xa5;
constexpr DataType kFloatTypes[] = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16};
constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16, DataType::kBool,
                               DataType::kInt8,    DataType::kUInt8,   DataType::kInt16,    DataType::kInt32,
                               DataType::kInt64,   DataType::kUInt64,  DataType::kUInt32};

struct Random {
  explicit Random(unsigned seed) : engine(seed) {}
  int pick(int n) { return static_cast<int>(engine() % static_cast<unsigned>(n)); }
  bool chance(int percent) { return pick(100) < percent; }
  template <typename List>
  auto any(const List& list) {
    return list[pick(static_cast<int>(std::size(list)))];
  }

  /// In some order of memory, perhaps with gaps; perhaps 0 along some dimensions.
  StridedTensor tensor(DataType type, const Shape& shape, bool may_repeat) {
    std::vector<std::size_t> order(shape.size());
    std::iota(order.begin(), order.end(), 0);
    if (chance(60)) std::shuffle(order.begin(), order.end(), engine);
    StridedTensor t{type, shape, std::vector<std::int64_t>(shape.size())};
    std::int64_t step = chance(8) ? 2 : 1;
    const bool repeats = may_repeat && chance(25);
    for (std::size_t i = order.size(); i-- > 0;) {
      if (repeats && chance(50)) continue;
      t.strides[order[i]] = step;
      step = step * shape[order[i]] + (chance(8) ? 1 + pick(8) : 0);
    }
    return t;
  }

  std::mt19937 engine;
};

/// A tensor in memory; `shift` elements behind an aligned address.
struct Placed {
  Placed(const StridedTensor& t, int shift) : type(t.type), offsets(offsets_of(t.shape, t.strides)) {
    const auto highest = *std::max_element(offsets.begin(), offsets.end());
    const std::size_t bytes = static_cast<std::size_t>(highest + 1 + shift) * size_of(t.type);
    buffer = std::make_unique<GuardedBuffer>(bytes, 16, kUntouched);
    zero = buffer->data() + static_cast<std::size_t>(shift) * size_of(t.type);
  }
  unsigned char* at(std::size_t i) const { return zero + offsets[i] * static_cast<std::int64_t>(size_of(type)); }
  double value(std::size_t i) const { return elements::read(type, at(i)); }
  void fill(Random& random, double scale) {
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      const double x = (random.pick(2001) - 1000) / 1000.0 * scale;
      const bool is_unsigned = !is_floating(type) && std::string_view(name_of(type)).starts_with("u");
      elements::write(type, at(i), type == DataType::kBool ? random.pick(2) : is_unsigned ? std::fabs(x) : x);
    }
  }
  DataType type;
  std::vector<std::int64_t> offsets;
  std::unique_ptr<GuardedBuffer> buffer;
  unsigned char* zero;
};

using Case = std::function<void(const shim::Kernels&, std::size_t number)>;

/// Kernels and what to do with each.
struct Cases {
  std::vector<KernelSource> sources;
  std::vector<Case> cases;
  std::vector<std::string> names;
  void add(KernelSource source, std::string name, Case run) {
    sources.push_back(std::move(source));
    names.push_back(std::move(name));
    cases.push_back(std::move(run));
  }
  void run() const {
    const std::string compiler = shim::compiler();
    if (compiler.empty()) GTEST_SKIP() << "no C++ compiler: neither $CXX nor c++";
    const shim::Kernels kernels(sources, compiler);
    ASSERT_EQ(kernels.error(), "");
    for (std::size_t i = 0; i < cases.size(); ++i) {
      cases[i](kernels, i);
      if (::testing::Test::HasFailure())
        FAIL() << names[i] << "\n" << sources[i].source.substr(prelude().size()) << "grid " << sources[i].grid[0];
    }
  }
};

std::string described(const StridedTensor& t) {
  return fmt::format("{} {} strides {}; ", name_of(t.type), to_string(t.shape), to_string(t.strides));
}

/// Every element is as `expected` says, and nothing else was written.
void check(const Placed& out, const std::function<double(std::size_t)>& expected, double tolerance = 0) {
  std::vector<bool> written(out.buffer->size());
  for (std::size_t i = 0; i < out.offsets.size(); ++i) {
    const double e = expected(i), got = out.value(i);
    ASSERT_TRUE(e == got || (std::isnan(e) && std::isnan(got)) || std::fabs(e - got) <= tolerance * (1 + std::fabs(e)))
        << "element " << i << ": expected " << e << ", got " << got;
    std::fill_n(written.begin() + (out.at(i) - out.buffer->data()), size_of(out.type), true);
  }
  for (std::size_t i = 0; i < written.size(); ++i)
    ASSERT_TRUE(written[i] || out.buffer->data()[i] == kUntouched) << "byte " << i << " is none of the tensor's";
}

/// As Cast of ONNX, for values of moderate size.
double cast(DataType from, DataType to, const unsigned char* p) {
  unsigned char bytes[8] = {};
  const double x = elements::read(from, p);
  if (to == DataType::kBool) return x != 0;
  if (is_floating(to)) {
    elements::write(to, bytes, x);
    return elements::read(to, bytes);
  }
  elements::with_integer(to, [&](auto zero) {
    using T = decltype(zero);
    if (is_floating(from))
      elements::put_bits(bytes, static_cast<T>(static_cast<std::int64_t>(x)));
    else
      elements::with_integer(
          from, [&](auto other) { elements::put_bits(bytes, static_cast<T>(elements::bits_at<decltype(other)>(p))); });
  });
  return elements::read(to, bytes);
}

Shape random_shape(Random& random, std::int64_t most) {
  static constexpr std::int64_t kSizes[] = {1, 2, 3, 4, 7, 8, 16, 17, 31, 32, 48, 64, 65, 96, 130};
  Shape shape;
  for (int d = random.pick(5); d > 0; --d) shape.push_back(random.any(kSizes));
  while (num_elements(shape) > most) {
    auto& largest = *std::max_element(shape.begin(), shape.end());
    largest = (largest + 1) / 2;
  }
  return shape;
}

TEST(CudaMovementSource, CopiesAndCasts) {
  const unsigned seed = sweeps::seed();
  SCOPED_TRACE(fmt::format("ULPSCOPE_TEST_SEED={}", seed));
  Cases all;
  for (unsigned i = 0; i < 120; ++i) {
    Random random(seed + i);
    const Shape shape = random_shape(random, 20000);
    const DataType type = random.any(kTypes);
    const StridedTensor in = random.tensor(type, shape, true);
    const StridedTensor out = random.tensor(random.chance(50) ? type : random.any(kTypes), shape, false);
    const int shift = random.chance(20) ? 1 : 0;
    all.add(copy_source(in, out), described(in) + described(out),
            [=](const shim::Kernels& kernels, std::size_t number) {
              Random values(seed + i);
              Placed from(in, shift), to(out, shift);
              from.fill(values, 300);
              ASSERT_EQ(kernels.run(number, {from.zero, to.zero}), "");
              check(to, [&](std::size_t e) { return cast(in.type, out.type, from.at(e)); });
            });
  }
  all.run();
}

TEST(CudaMovementSource, CastsRoundOnce) {
  // 2^24 + 2^16 + 1 lies above the middle of two bfloat16 numbers, and on it as float32.
  const Shape shape{4};
  const StridedTensor in{DataType::kInt64, shape, {1}}, out{DataType::kBFloat16, shape, {1}};
  Cases all;
  all.add(copy_source(in, out), "", [&](const shim::Kernels& kernels, std::size_t number) {
    Placed from(in, 0), to(out, 0);
    const std::int64_t values[] = {(1 << 25) + (1 << 17) + 1, -(1 << 25) - (1 << 17) - 1, (1 << 25) + (1 << 17), 3};
    for (std::size_t i = 0; i < 4; ++i) elements::put_bits(from.at(i), values[i]);
    ASSERT_EQ(kernels.run(number, {from.zero, to.zero}), "");
    const double expected[] = {33554432.0 + 262144, -33554432.0 - 262144, 33554432.0, 3.0};
    check(to, [&](std::size_t e) { return expected[e]; });
  });
  all.run();
}

TEST(CudaMovementSource, Gathers) {
  const unsigned seed = sweeps::seed();
  SCOPED_TRACE(fmt::format("ULPSCOPE_TEST_SEED={}", seed));
  Cases all;
  for (unsigned i = 0; i < 60; ++i) {
    Random random(seed + i);
    Shape shape = random_shape(random, 3000);
    if (shape.empty()) shape = {5};
    const std::int64_t axis = random.pick(static_cast<int>(shape.size()));
    Shape ids = random_shape(random, 6), result(shape.begin(), shape.begin() + axis);
    result.insert(result.end(), ids.begin(), ids.end());
    result.insert(result.end(), shape.begin() + axis + 1, shape.end());
    const DataType type = random.any(kTypes);
    const StridedTensor data = random.tensor(type, shape, false);
    const StridedTensor indices = random.tensor(random.chance(50) ? DataType::kInt64 : DataType::kInt32, ids, false);
    const bool other = is_floating(type) && random.chance(40);
    const StridedTensor out = random.tensor(other ? random.any(kFloatTypes) : type, result, false);
    const int shift = random.chance(20) ? 1 : 0;
    all.add(gather_source(data, indices, out, axis), described(data) + described(indices) + described(out),
            [=](const shim::Kernels& kernels, std::size_t number) {
              Random values(seed + i);
              Placed from(data, shift), which(indices, 0), to(out, shift);
              from.fill(values, 100);
              const std::int64_t size = shape[axis];
              std::vector<std::int64_t> chosen;
              for (std::size_t e = 0; e < which.offsets.size(); ++e) {
                const std::int64_t index = values.pick(static_cast<int>(2 * size + 2)) - size - 1;
                elements::write(indices.type, which.at(e), static_cast<double>(index));
                chosen.push_back(index < 0 ? index + size : index);
              }
              ASSERT_EQ(kernels.run(number, {from.zero, which.zero, to.zero}), "");
              const std::int64_t inner = num_elements(Shape(shape.begin() + axis + 1, shape.end()));
              const auto count = static_cast<std::int64_t>(chosen.size());
              check(to, [&](std::size_t e) {
                const auto place = static_cast<std::int64_t>(e);
                const std::int64_t index = chosen[place / inner % count];
                if (index < 0 || index >= size) return 0.0;
                const std::int64_t source = (place / inner / count * size + index) * inner + place % inner;
                return cast(data.type, out.type, from.at(static_cast<std::size_t>(source)));
              });
            });
  }
  all.run();
}

TEST(CudaMovementSource, Selects) {
  const unsigned seed = sweeps::seed();
  SCOPED_TRACE(fmt::format("ULPSCOPE_TEST_SEED={}", seed));
  Cases all;
  for (unsigned i = 0; i < 60; ++i) {
    Random random(seed + i);
    const Shape shape = random_shape(random, 5000);
    const bool floats = random.chance(70);
    const DataType type = random.any(kTypes);
    const StridedTensor condition = random.tensor(DataType::kBool, shape, true);
    const StridedTensor x = random.tensor(floats ? random.any(kFloatTypes) : type, shape, true);
    const StridedTensor y = random.tensor(floats ? random.any(kFloatTypes) : type, shape, true);
    const StridedTensor out = random.tensor(floats ? random.any(kFloatTypes) : type, shape, false);
    const int shift = random.chance(20) ? 1 : 0;
    all.add(where_source(condition, x, y, out), described(condition) + described(x) + described(y) + described(out),
            [=](const shim::Kernels& kernels, std::size_t number) {
              Random values(seed + i);
              Placed c(condition, shift), a(x, shift), b(y, shift), to(out, shift);
              c.fill(values, 1);
              a.fill(values, 100);
              b.fill(values, 100);
              ASSERT_EQ(kernels.run(number, {c.zero, a.zero, b.zero, to.zero}), "");
              check(to, [&](std::size_t e) {
                return c.value(e) != 0 ? cast(x.type, out.type, a.at(e)) : cast(y.type, out.type, b.at(e));
              });
            });
  }
  all.run();
}

struct Pooled {
  StridedTensor in, out;
  PoolWindow window;
  std::vector<std::int64_t> pads_end;
  Rounding load, store;
};

/// Of the element at `place` (n, c, d...) of the output.
double pooled(const Pooled& p, const Placed& in, const std::vector<std::int64_t>& place) {
  const std::size_t spatial = p.window.kernel.size();
  double sum = 0, largest = -INFINITY;
  std::int64_t inside = 0, padded = 0;
  std::vector<std::int64_t> k(spatial);
  for (bool more = true; more;) {
    std::int64_t index = place[0] * p.in.shape[1] + place[1];
    bool is_inside = true, is_padded = true;
    for (std::size_t d = 0; d < spatial; ++d) {
      const std::int64_t at =
          place[d + 2] * p.window.strides[d] + k[d] * p.window.dilations[d] - p.window.pads_begin[d];
      is_inside &= at >= 0 && at < p.in.shape[d + 2];
      is_padded &= at < p.in.shape[d + 2] + p.pads_end[d];
      index = index * p.in.shape[d + 2] + at;
    }
    padded += is_padded ? 1 : 0;
    if (is_inside) {
      const double x =
          static_cast<double>(round_value(static_cast<float>(in.value(static_cast<std::size_t>(index))), p.load));
      sum += x;
      largest = testing_programs::nan_wins(largest, x, true);
      ++inside;
    }
    more = false;
    for (std::size_t d = spatial; d-- > 0 && !more;) {
      more = ++k[d] < p.window.kernel[d];
      if (!more) k[d] = 0;
    }
  }
  const std::int64_t count = p.window.count_pads ? padded : inside;
  return p.window.average ? (count == 0 ? 0 : sum / static_cast<double>(count)) : largest;
}

TEST(CudaMovementSource, Pools) {
  const unsigned seed = sweeps::seed();
  SCOPED_TRACE(fmt::format("ULPSCOPE_TEST_SEED={}", seed));
  Cases all;
  for (unsigned i = 0; i < 60; ++i) {
    Random random(seed + i);
    static constexpr std::int64_t kChannels[] = {1, 3, 8, 16, 20};
    static constexpr Rounding kRoundings[] = {Rounding::kNone, Rounding::kF16, Rounding::kBF16, Rounding::kTF32};
    Pooled p;
    Shape in{1 + random.pick(2), random.any(kChannels)}, out = in;
    for (int d = 1 + random.pick(3); d > 0; --d) {
      in.push_back(3 + random.pick(9));
      p.window.kernel.push_back(1 + random.pick(3));
      p.window.strides.push_back(1 + random.pick(2));
      p.window.dilations.push_back(1 + random.pick(2));
      p.window.pads_begin.push_back(random.pick(3));
      p.pads_end.push_back(random.pick(3));
      out.push_back(1 + (in.back() + p.window.pads_begin.back()) / p.window.strides.back());
    }
    p.window.average = random.chance(50);
    p.window.count_pads = random.chance(50);
    p.in = random.tensor(random.any(kFloatTypes), in, false);
    p.out = random.tensor(random.any(kFloatTypes), out, false);
    if (random.chance(60))  // Channels last.
      for (StridedTensor* t : {&p.in, &p.out}) {
        std::int64_t step = t->shape[1];
        for (std::size_t d = t->shape.size(); d-- > 2; step *= t->shape[d]) t->strides[d] = step;
        t->strides[1] = 1;
        t->strides[0] = step;
      }
    p.load = random.any(kRoundings);
    p.store = random.any(kRoundings);
    const int shift = random.chance(20) ? 1 : 0;
    all.add(pool_source(p.in, p.out, p.window, p.pads_end, p.load, p.store), described(p.in) + described(p.out),
            [=](const shim::Kernels& kernels, std::size_t number) {
              Random values(seed + i);
              Placed from(p.in, shift), to(p.out, shift);
              from.fill(values, 10);
              if (!p.window.average) elements::write(p.in.type, from.at(0), NAN);
              ASSERT_EQ(kernels.run(number, {from.zero, to.zero}), "");
              const bool narrow = p.out.type != DataType::kFloat32 || p.store != Rounding::kNone;
              check(
                  to,
                  [&](std::size_t e) {
                    std::vector<std::int64_t> place(p.out.shape.size());
                    std::size_t rest = e;
                    for (std::size_t d = place.size(); d-- > 0; rest /= static_cast<std::size_t>(p.out.shape[d]))
                      place[d] = static_cast<std::int64_t>(rest % static_cast<std::size_t>(p.out.shape[d]));
                    unsigned char bytes[8];
                    const double value = pooled(p, from, place);
                    elements::write(p.out.type, bytes,
                                    static_cast<double>(round_value(static_cast<float>(value), p.store)));
                    return elements::read(p.out.type, bytes);
                  },
                  p.window.average ? (narrow ? 0.01 : 1e-5) : 0);
            });
  }
  all.run();
}

TEST(CudaMovementSource, BringsMatricesIntoOrder) {
  const unsigned seed = sweeps::seed();
  SCOPED_TRACE(fmt::format("ULPSCOPE_TEST_SEED={}", seed));
  Cases all;
  for (unsigned i = 0; i < 40; ++i) {
    Random random(seed + i);
    const DataType type = random.any(kFloatTypes);
    MatrixPart part{1 + random.pick(80), 1 + random.pick(80), random.pick(3) * 7, 0, random.pick(2)};
    part.all = part.first + part.rows + random.pick(9);
    const auto name = fmt::format("{} x {} from {} of {}, turned {}", part.rows, part.columns, part.first, part.all,
                                  part.turned);
    all.add(matrix_source(type, part), name, [=](const shim::Kernels& kernels, std::size_t number) {
      Random values(seed + i);
      const std::int64_t count = part.rows * part.columns;
      GuardedBuffer from(kMatrixPartBytes + static_cast<std::size_t>(count) * sizeof(float), 16, 0);
      std::memcpy(from.data(), &part, sizeof part);
      auto* const elements = reinterpret_cast<float*>(from.data() + kMatrixPartBytes);
      // Some that fp16 rounds to infinities, to subnormal numbers and to 0.
      for (std::int64_t e = 0; e < count; ++e)
        elements[e] = std::ldexp(static_cast<float>(values.pick(2001) - 1000), values.pick(50) - 36);
      const std::vector<std::int64_t> strides = part.turned != 0 ? std::vector<std::int64_t>{1, part.all}
                                                                 : std::vector<std::int64_t>{part.columns, 1};
      Placed whole({type, {part.all, part.columns}, strides}, 0);
      ASSERT_EQ(kernels.run(number, {from.data(), whole.zero}), "");
      check(whole, [&](std::size_t e) {
        const std::int64_t row = static_cast<std::int64_t>(e) / part.columns - part.first;
        unsigned char bytes[4] = {kUntouched, kUntouched, kUntouched, kUntouched};
        if (row >= 0 && row < part.rows)
          elements::write(type, bytes, elements[row * part.columns + static_cast<std::int64_t>(e) % part.columns]);
        return elements::read(type, bytes);
      });
    });
  }
  all.run();
}

TEST(CudaMovementSource, CountsRowsByMagnitude) {
  using Counts = ops::RowMagnitudes;
  const unsigned seed = sweeps::seed();
  SCOPED_TRACE(fmt::format("ULPSCOPE_TEST_SEED={}", seed));
  Cases all;
  for (unsigned i = 0; i < 40; ++i) {
    Random random(seed + i);
    const Shape shape = random_shape(random, 8000);
    const StridedTensor in = random.tensor(random.any(kFloatTypes), shape, true);
    all.add(magnitudes_source(in), described(in), [=](const shim::Kernels& kernels, std::size_t number) {
      Random values(seed + i);
      Placed from(in, 0);
      const std::int64_t length = shape.empty() ? 1 : shape.back();
      const double special[] = {0, 1e30, -3e38, INFINITY, NAN, 1e-45, -1e-40, 65504};
      for (std::size_t e = 0; e < from.offsets.size(); ++e) {
        const bool zero = e / static_cast<std::size_t>(length) % 5 == 2;
        elements::write(in.type, from.at(e),
                        zero                ? 0
                        : values.chance(5)  ? values.any(special)
                                            : std::ldexp(values.pick(2001) - 1000, values.pick(40) - 20));
      }
      // By the definition, without bits of numbers.
      std::vector<std::int64_t> want(Counts::kBins + 1, 0);
      float largest = 0, finite = 0, smallest = INFINITY;
      for (std::size_t begin = 0; begin < from.offsets.size(); begin += static_cast<std::size_t>(length)) {
        long double squares = 0;
        for (std::size_t e = begin; e < begin + static_cast<std::size_t>(length); ++e) {
          const auto x = static_cast<float>(std::fabs(from.value(e)));
          if (!std::isfinite(x)) continue;
          finite = std::max(finite, x);
          if (x > 0) smallest = std::min(smallest, x);
          if (x >= 1e30F) continue;
          largest = std::max(largest, x);
          squares += static_cast<long double>(x) * x;
        }
        const long double half_bits = std::log2(squares / static_cast<long double>(length));
        ++want[squares == 0 ? Counts::kBins : static_cast<std::size_t>(std::clamp<long double>(half_bits + 300.5L, 0, 559))];
      }
      GuardedBuffer counts(Counts::kSize * sizeof(std::int32_t), 16, 0);
      ASSERT_EQ(kernels.run(number, {from.zero, counts.data()}), "");
      const auto got = [&](int place) {
        std::int32_t count = 0;
        std::memcpy(&count, counts.data() + static_cast<std::size_t>(place) * sizeof count, sizeof count);
        return count;
      };
      for (int place = 0; place <= Counts::kBins; ++place)
        ASSERT_EQ(got(place), want[static_cast<std::size_t>(place)]) << "place " << place;
      EXPECT_EQ(std::bit_cast<float>(got(Counts::kLargest)), largest);
      EXPECT_EQ(std::bit_cast<float>(got(Counts::kLargestFinite)), finite);
      EXPECT_EQ(std::bit_cast<float>(Counts::kInfinity - got(Counts::kSmallest)), smallest);
    });
  }
  all.run();
}

}  // namespace
}  // namespace ulpscope::cuda
