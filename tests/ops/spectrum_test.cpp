// Rows of the spectral operators and their windows.
#include <cmath>
#include <complex>
#include <numbers>

#include "ops/op_rows.h"

namespace ulpscope::test::spectrum_rows {
namespace {

const Attribute kZero = std::int64_t{0}, kOne = std::int64_t{1};

double cosine(std::int64_t i, double period, double turns = 1) {
  return std::cos(2 * std::numbers::pi * turns * double(i) / period);
}

/// The DFT of a real line, as (bins, 2); bin k of `length`.
Tensor transformed(const Tensor& x, std::int64_t length, const Shape& shape, std::int64_t bins) {
  return generated(shape, [=](std::int64_t i) {
    const std::int64_t k = i / 2 % bins, line = i / 2 / bins;
    std::complex<double> sum = 0;
    for (std::int64_t n = 0; n < length; ++n)
      sum += double{x.data<float>()[line * length + n]} *
             std::polar(1.0, -2 * std::numbers::pi * double(k * n % length) / double(length));
    return i % 2 == 0 ? sum.real() : sum.imag();
  });
}

const Tensor x = spread({2, 12, 1}, -1, 1, 1), odd = spread({1, 7, 1}, -1, 1, 2);

const AddRows rows({
    {"DFT", "even length", 20, {}, {x}, {transformed(x, 12, {2, 12, 2}, 12)}, 1e-5},
    {"DFT", "odd length, one-sided", 17, {{"onesided", kOne}}, {odd}, {transformed(odd, 7, {1, 4, 2}, 4)}, 1e-5},
    {"DFT",
     "padded along another axis",
     20,
     {},
     {f32({2, 1, 1}, {1, 2}), i64({}, {4}), i64({}, {0})},
     {f32({4, 1, 2}, {3, 0, 1, -2, -1, 0, 1, 2})}},
    {"DFT", "inverse", 20, {{"inverse", kOne}}, {f32({1, 2, 2}, {3, 1, -1, 1})}, {f32({1, 2, 2}, {1, 1, 2, 0})}},
    {"DFT",
     "inverse, one-sided",
     20,
     {{"inverse", kOne}, {"onesided", kOne}},
     {f32({1, 3, 2}, {10, 0, -2, 2, -2, 0})},
     {f32({1, 4, 1}, {1, 2, 3, 4})}},
    {"STFT",
     "frames with a window",
     17,
     {},
     {f32({1, 4, 1}, {1, 2, 3, 4}), i64({}, {1}), f32({2}, {1, 0.5F})},
     {f32({1, 3, 2, 2}, {2, 0, 0, 0, 3.5F, 0, 0.5F, 0, 5, 0, 1, 0})}},
    {"STFT",
     "a signal without parts",
     17,
     {},
     {f32({1, 4}, {1, 2, 3, 4}), i64({}, {1}), f32({2}, {1, 0.5F})},
     {f32({1, 3, 2, 2}, {2, 0, 0, 0, 3.5F, 0, 0.5F, 0, 5, 0, 1, 0})}},
    {"STFT",
     "a batch of two dimensions",
     17,
     {},
     {f32({2, 1, 2, 1}, {1, 2, 3, 4}), i64({}, {1}), f32({2}, {1, 0.5F})},
     {f32({2, 1, 1, 2, 2}, {2, 0, 0, 0, 5, 0, 1, 0})}},
    {"STFT",
     "complex signal",
     17,
     {{"onesided", kZero}},
     {f32({1, 2, 2}, {1, 1, 2, 0}), i64({}, {1}), Tensor(), i64({}, {2})},
     {f32({1, 1, 2, 2}, {3, 1, -1, 1})}},
    {"HannWindow",
     "periodic",
     17,
     {},
     {i64({}, {5})},
     {generated({5}, [](std::int64_t i) { return 0.5 - 0.5 * cosine(i, 5); })}},
    {"HannWindow",
     "symmetric, in double",
     17,
     {{"periodic", kZero}, {"output_datatype", std::int64_t{11}}},
     {i32({}, {3})},
     {f64({3}, {0, 1, 0})}},
    {"HammingWindow",
     "symmetric",
     17,
     {{"periodic", kZero}},
     {i64({}, {4})},
     {generated({4}, [](std::int64_t i) { return 25.0 / 46 - 21.0 / 46 * cosine(i, 3); })}},
    {"BlackmanWindow",
     "periodic",
     17,
     {},
     {i32({}, {6})},
     {generated({6}, [](std::int64_t i) { return 0.42 - 0.5 * cosine(i, 6) + 0.08 * cosine(i, 6, 2); })}},
    {"MelWeightMatrix",
     "triangles, with edges at bins 0, 0, 2 and 4",
     17,
     {},
     {i64({}, {2}), i64({}, {16}), i64({}, {8192}), f32({}, {0}), f32({}, {4096})},
     {f32({9, 2}, {1, 0, 0.5F, 0.5F, 0, 1, 0, 0.5F, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})}},
});

}  // namespace
}  // namespace ulpscope::test::spectrum_rows
