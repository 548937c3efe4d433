#include "ops/contraction/accumulated.h"

namespace ulpscope::ops {
namespace {

/// Places of a kernel, and the places of the input that they meet.
class Places {
 public:
  Places(const Window3& window, bool transposed) : window_(window), transposed_(transposed) {}

  std::int64_t count() const { return Window3::volume(window_.kernel); }
  std::int64_t outputs() const { return Window3::volume(window_.output); }

  /// The position in the input that `output` reads through `place`; -1: none.
  std::int64_t input(std::int64_t output, std::int64_t place) const {
    std::int64_t result = 0, stride = 1;
    for (int d = 3; d-- > 0;) {
      const std::int64_t o = output % window_.output[d], k = place % window_.kernel[d];
      output /= window_.output[d];
      place /= window_.kernel[d];
      std::int64_t i = transposed_ ? o + window_.pads_begin[d] - k * window_.dilations[d]
                                   : o * window_.strides[d] + k * window_.dilations[d] - window_.pads_begin[d];
      if (transposed_ && i % window_.strides[d] != 0) return -1;
      if (transposed_) i /= window_.strides[d];
      if (i < 0 || i >= window_.input[d]) return -1;
      result += i * stride;
      stride *= window_.input[d];
    }
    return result;
  }

 private:
  const Window3& window_;
  const bool transposed_;
};

}  // namespace

void run_accumulated_product(const Accumulator& accumulator, const MatrixProduct& d, const float* a, const float* b,
                             float* out) {
  for_each_matrix(d, [&](std::int64_t at, std::int64_t at_a, std::int64_t at_b) {
    const std::vector<float> columns = transposed(b + at_b * d.k * d.n, d.k, d.n);
    multiply_rows(accumulator, a + at_a * d.m * d.k, columns.data(), out + at * d.m * d.n, d.m, d.n, d.k);
  });
}

void convolve_accumulated(const Accumulator& accumulator, const WindowGeometry& g, const Window3& window,
                          bool transposed, const float* x, const float* w, float* out) {
  const Places places(window, transposed);
  const std::int64_t in = g.in_channels / g.groups, outs = g.out_channels / g.groups, k = places.count() * in;
  const std::int64_t image = Window3::volume(window.input), positions = places.outputs();
  std::vector<float> rows(static_cast<std::size_t>(positions * k)), weights(static_cast<std::size_t>(outs * k));
  std::vector<float> results(static_cast<std::size_t>(outs * positions));
  for (std::int64_t n = 0; n < g.batch; ++n)
    for (std::int64_t group = 0; group < g.groups; ++group) {
      for (std::int64_t m = 0; m < outs; ++m)
        for (std::int64_t place = 0; place < places.count(); ++place)
          for (std::int64_t c = 0; c < in; ++c) {
            const std::int64_t from = transposed ? (group * in + c) * outs + m : (group * outs + m) * in + c;
            weights[m * k + place * in + c] = w[from * places.count() + place];
          }
      const float* channels = x + (n * g.in_channels + group * in) * image;
      for (std::int64_t o = 0; o < positions; ++o)
        for (std::int64_t place = 0; place < places.count(); ++place) {
          const std::int64_t at = places.input(o, place);
          for (std::int64_t c = 0; c < in; ++c) rows[o * k + place * in + c] = at < 0 ? 0.0f : channels[c * image + at];
        }
      multiply_rows(accumulator, rows.data(), weights.data(), results.data(), positions, outs, k);
      const std::vector<float> planes = ops::transposed(results.data(), positions, outs);
      std::ranges::copy(planes, out + (n * g.out_channels + group * outs) * positions);
    }
}

}  // namespace ulpscope::ops
