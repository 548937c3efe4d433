#include "ops/convolution/convolve_channels.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/division.h"
#include "core/parallel.h"
#include "core/vector_clones.h"

namespace ulpscope::ops {
namespace {

using Index = std::int64_t;

constexpr Index kOuts = 16;    ///< Output channels.
constexpr Index kOutputs = 6;  ///< Of a row, side by side.

/// A row of outputs.
struct OutputRow {
  const float* image;    ///< The channels that it reads.
  const float* weights;  ///< [channel, places, kOuts].
  const float* bias;     ///< kOuts.
  Index channels, volume, places;
  OutputRange slices, rows;  ///< Places of the window that are inside of the image.
  Index slice, row;          ///< Of the image, at place 0.
};

/// `count` outputs of a row, from `x` on, which read the same places `columns` of each row of the window.
template <int count>
ULPSCOPE_VECTOR_CLONES void add_products(const Window3& g, const OutputRow& r, Index x, const OutputRange& columns,
                                         float* out) {
  typedef float Vector __attribute__((vector_size(kOuts * sizeof(float))));
  Vector sums[count], tap;
  for (int p = 0; p < count; ++p) std::memcpy(&sums[p], r.bias, sizeof(Vector));
  const Index step = g.strides[2], first = x * step - g.pads_begin[2];
  for (Index c = 0; c < r.channels; ++c)
    for (Index kz = r.slices.begin; kz < r.slices.end; ++kz)
      for (Index ky = r.rows.begin; ky < r.rows.end; ++ky) {
        const Index z = r.slice + kz * g.dilations[0], y = r.row + ky * g.dilations[1];
        const float* const line = r.image + c * r.volume + (z * g.input[1] + y) * g.input[2] + first;
        const float* const taps = r.weights + (c * r.places + (kz * g.kernel[1] + ky) * g.kernel[2]) * kOuts;
        for (Index kx = columns.begin; kx < columns.end; ++kx) {
          std::memcpy(&tap, taps + kx * kOuts, sizeof tap);
          const float* const from = line + kx * g.dilations[2];
#pragma GCC unroll 8
          for (int p = 0; p < count; ++p) sums[p] += tap * from[p * step];
        }
      }
  for (int p = 0; p < count; ++p) std::memcpy(out + p * kOuts, &sums[p], sizeof(Vector));
}

/// The places of a window that reads from `offset` on in dimension d.
OutputRange places_inside(const Window3& g, std::size_t d, Index offset) {
  return valid_outputs(g.kernel[d], g.input[d], g.dilations[d], offset);
}

/// All outputs of a row, kOuts each.
void convolve_row(const Window3& g, const OutputRow& row, float* out) {
  for (Index x = 0; x < g.output[2];) {
    const auto columns_of = [&](Index at) { return places_inside(g, 2, at * g.strides[2] - g.pads_begin[2]); };
    const OutputRange columns = columns_of(x), whole{0, g.kernel[2]};
    const auto same = [](const OutputRange& a, const OutputRange& b) { return a.begin == b.begin && a.end == b.end; };
    // Windows between two that are inside of the image are, too.
    if (x + kOutputs <= g.output[2] && same(columns, whole) && same(columns_of(x + kOutputs - 1), whole)) {
      add_products<kOutputs>(g, row, x, columns, out + x * kOuts);
      x += kOutputs;
    } else {
      add_products<1>(g, row, x, columns, out + x * kOuts);
      ++x;
    }
  }
}

}  // namespace

bool convolves_channels(const WindowGeometry& g) {
  constexpr Index kPlaces = 32;  // So many outputs of a channel.
  return 2 * (g.out_channels / g.groups) >= kOuts && num_elements(g.output) >= kPlaces;
}

void convolve_channels(const WindowGeometry& g, const Window3& window, const float* x, const float* w,
                       const float* bias, float* out) {
  const Index outs = g.out_channels / g.groups, ins = g.in_channels / g.groups, places = Window3::volume(window.kernel);
  const Index blocks = divided_up(outs, kOuts), all = g.groups * blocks, taps = ins * places;
  std::vector<float> weights(static_cast<std::size_t>(all * taps * kOuts)),
      biases(static_cast<std::size_t>(all * kOuts));
  const auto channel_of = [&](Index block) { return block / blocks * outs + block % blocks * kOuts; };
  const auto lanes_of = [&](Index block) { return std::min(kOuts, outs - block % blocks * kOuts); };
  for (Index block = 0; block < all; ++block)
    for (Index lane = 0; lane < lanes_of(block); ++lane) {
      const Index m = channel_of(block) + lane;
      for (Index i = 0; i < taps; ++i) weights[(block * taps + i) * kOuts + lane] = w[m * taps + i];
      if (bias != nullptr) biases[block * kOuts + lane] = bias[m];
    }
  const Index lines = window.output[0] * window.output[1], width = window.output[2];
  const Index volume = Window3::volume(window.input), results = lines * width, tasks = g.batch * all * lines;
  parallel_for(tasks, items_per_task(tasks, taps * width), [&](Index begin, Index end) {
    std::vector<float> sums(static_cast<std::size_t>(width * kOuts));
    for (Index i = begin; i < end; ++i) {
      const Index line = i % lines, block = i / lines % all, n = i / lines / all;
      OutputRow row{x + (n * g.in_channels + block / blocks * ins) * volume,
                    weights.data() + block * taps * kOuts,
                    biases.data() + block * kOuts,
                    ins,
                    volume,
                    places,
                    {},
                    {},
                    0,
                    0};
      row.slice = line / window.output[1] * window.strides[0] - window.pads_begin[0];
      row.row = line % window.output[1] * window.strides[1] - window.pads_begin[1];
      row.slices = places_inside(window, 0, row.slice);
      row.rows = places_inside(window, 1, row.row);
      convolve_row(window, row, sums.data());
      for (Index lane = 0; lane < lanes_of(block); ++lane) {
        float* const to = out + (n * g.out_channels + channel_of(block) + lane) * results + line * width;
        for (Index p = 0; p < width; ++p) to[p] = sums[p * kOuts + lane];
      }
    }
  });
}

}  // namespace ulpscope::ops
