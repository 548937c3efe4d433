#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/cpu/product.h"
#include "backend/cpu/program_kernels.h"
#include "backend/cpu/thread_memory.h"
#include "core/file.h"
#include "core/memory.h"
#include "core/parallel.h"

namespace ulpscope::cpu {
namespace {

using Index = std::int64_t;
using Triple = std::array<Index, 3>;  ///< Of slices, rows and columns; a lone dimension is a row.

/// With `absent` in front of fewer than three.
Triple extents(const std::vector<Index>& values, Index absent) {
  Triple result{absent, absent, absent};
  std::ranges::copy(values, result.end() - static_cast<std::ptrdiff_t>(values.size()));
  return result;
}

Index product_of(const Triple& values) { return values[0] * values[1] * values[2]; }

Triple image_extents(const Shape& shape) { return extents({shape.begin() + 2, shape.end()}, 1); }

/// Columns of a panel, or of all of them, as they are stored.
Index stored_columns(Index columns) {
  const Index lanes = program_kernels().product.lanes;
  return (columns + lanes - 1) / lanes * lanes;
}

/// A place of the window: what an output reads lies `from` behind its first input.
struct Place {
  Triple from;
  Index number;
};

/// Outputs that read the same places: all of a convolution; of a transposed one, those whose steps from the first one
/// are whole strides.
struct Phase {
  Triple first, extent;  ///< In the output; outputs side by side, and one below the other.
  std::vector<Place> places;
  Index run = 1;      ///< So many places, from every multiple on, lie side by side in the image.
  Index weights = 0;  ///< Elements in front of its own.
};

struct Geometry {
  explicit Geometry(const ConvolutionSpec& spec)
      : input(image_extents(spec.input)),
        output(image_extents(spec.output)),
        window(image_extents(spec.kernel)),
        groups(spec.groups),
        in(spec.input[1] / spec.groups),
        out(spec.output[1] / spec.groups) {
    const Triple strides = extents(spec.strides, 1);
    (spec.transposed ? out_step : in_step) = strides;
  }

  Index k(const Phase& phase) const { return static_cast<Index>(phase.places.size()) * in; }

  Triple input, output, window;
  Triple in_step{1, 1, 1}, out_step{1, 1, 1};  ///< From one output of a phase to the next.
  Index groups, in, out;                       ///< Channels of a group.
};

/// Places in one dimension: offsets from the first input, and their numbers.
std::vector<std::pair<Index, Index>> places_along(const ConvolutionSpec& spec, std::size_t axis, Index first) {
  const Index window = image_extents(spec.kernel)[axis], stride = extents(spec.strides, 1)[axis];
  const Index dilation = extents(spec.dilations, 1)[axis], pad = extents(spec.pads_begin, 0)[axis];
  std::vector<std::pair<Index, Index>> places;
  for (Index i = 0; i < window; ++i) {
    if (!spec.transposed)
      places.emplace_back(i * dilation - pad, i);
    else if (const Index from = first + pad - i * dilation; from % stride == 0)
      places.emplace_back(from / stride, i);
  }
  return places;
}

std::vector<Phase> phases_of(const ConvolutionSpec& spec, const Geometry& g) {
  std::vector<Phase> phases;
  Index weights = 0;
  Triple end;  // Of the first outputs.
  for (std::size_t axis = 0; axis < 3; ++axis) end[axis] = std::min(g.out_step[axis], g.output[axis]);
  for (Index i = 0; i < product_of(end); ++i) {
    Phase phase{{i / (end[1] * end[2]), i / end[2] % end[1], i % end[2]}, {}, {}, 1, weights};
    for (std::size_t axis = 0; axis < 3; ++axis)
      phase.extent[axis] = (g.output[axis] - phase.first[axis] + g.out_step[axis] - 1) / g.out_step[axis];
    const auto columns = places_along(spec, 2, phase.first[2]);
    for (const auto& [slice, z] : places_along(spec, 0, phase.first[0]))
      for (const auto& [row, y] : places_along(spec, 1, phase.first[1]))
        for (const auto& [column, x] : columns)
          phase.places.push_back({{slice, row, column}, (z * g.window[1] + y) * g.window[2] + x});
    if (g.groups == 1 && !spec.transposed && extents(spec.dilations, 1)[2] == 1) phase.run = g.window[2];
    weights += g.groups * g.k(phase) * stored_columns(g.out);
    phases.push_back(std::move(phase));
  }
  return phases;
}

struct PackedPhases {
  std::shared_ptr<std::byte> memory;
  bool finite;

  const float* values() const { return reinterpret_cast<const float*>(memory.get()); }
};

/// For each phase and each group the panels of ProductPart::b: [places, channels] by output channels.
PreparedObject pack_phases(const Geometry& g, const std::vector<Phase>& phases, bool transposed,
                           const Tensor& weights) {
  const Index panel = program_kernels().product.panel, window = product_of(g.window);
  const Index count = phases.back().weights + g.groups * g.k(phases.back()) * stored_columns(g.out);
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  auto packed = std::make_shared<PackedPhases>(PackedPhases{allocate_elements(bytes), true});
  const float* const from = weights.data<float>();
  // From one output channel, and from one input channel, to the next.
  const Index out_step = transposed ? window : g.in * window, in_step = transposed ? g.out * window : window;
  for (const Phase& phase : phases) {
    float* to = reinterpret_cast<float*>(packed->memory.get()) + phase.weights;
    for (Index group = 0; group < g.groups; ++group)
      for (Index column = 0; column < g.out; column += panel) {
        const Index width = std::min(panel, g.out - column), stored = stored_columns(width);
        const float* const first = from + group * g.in * g.out * window + column * out_step;
        for (const Place& place : phase.places)
          for (Index c = 0; c < g.in; ++c, to += stored) {
            for (Index i = 0; i < width; ++i) to[i] = first[i * out_step + c * in_step + place.number];
            std::fill(to + width, to + stored, 0.0f);
          }
      }
  }
  packed->finite = std::all_of(from, from + weights.size(), [](float w) { return std::isfinite(w); });
  MappedFile::release(weights.raw(), weights.bytes());
  return {std::move(packed), bytes};
}

class PatchConvolution final : public Kernel {
 public:
  PatchConvolution(const ConvolutionSpec& spec, std::vector<Phase> phases, PreparedSource weights)
      : g_(spec),
        images_(spec.output[0]),
        phases_(std::move(phases)),
        bias_(spec.bias),
        post_ops_(spec.post_ops),
        weights_(std::move(weights)) {
    const bool in_order = g_.out_step == Triple{1, 1, 1};
    for (std::size_t p = 0; p < phases_.size(); ++p) {
      const Index outputs = product_of(phases_[p].extent);
      const Index run = in_order ? outputs : phases_[p].extent[2], most = block_of(g_.k(phases_[p]));
      for (Index first = 0; first < outputs; first += run)
        for (Index i = 0; i < run; i += most) blocks_.push_back({p, first + i, std::min(most, run - i)});
    }
  }

  std::string name() const override { return fmt::format("product of patches, {}", program_kernels().name); }

  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const std::shared_ptr<const void> held = weights_();
    const auto& weights = *static_cast<const PackedPhases*>(held.get());
    constexpr Index kTasks = 16, kTask = 1 << 16;  // Multiplications.
    const auto blocks = static_cast<Index>(blocks_.size());
    const Index rest = images_ * blocks * g_.groups, panel = program_kernels().product.panel;
    const Index each = std::max<Index>(1, g_.k(phases_[0]) * blocks_[0].count * g_.out);
    const Index parts = std::clamp<Index>(std::min(kTasks / rest, each / kTask), 1, (g_.out + panel - 1) / panel);
    parallel_each(rest * parts, std::max<Index>(1, kTask * parts / each), [&](Index i) {
      const Index task = i / parts, panels = (g_.out + panel - 1) / panel;
      const Index from = i % parts * panels / parts * panel, to = (i % parts + 1) * panels / parts * panel;
      const Piece piece{task / g_.groups / blocks, task % g_.groups, from, std::min(to, g_.out) - from};
      run_piece(inputs, outputs[0]->data<float>(), weights,
                blocks_[static_cast<std::size_t>(task / g_.groups % blocks)], piece);
    });
  }

 private:
  /// Outputs of a phase, one behind the other in memory, each `out_step` behind the one before.
  struct Block {
    std::size_t phase;
    Index first, count;
  };

  struct Piece {
    Index image, group;
    Index column, columns;  ///< Output channels of the group.
  };

  /// Rows of patches that stay in the second-level cache.
  static Index block_of(Index k) {
    constexpr Index kElements = 1 << 16, kRows = 6, kLeast = 24, kMost = 384;
    return std::clamp(kElements / std::max<Index>(k, 1) / kRows * kRows, k > kElements ? kRows : kLeast, kMost);
  }

  void run_piece(std::span<const Tensor* const> inputs, float* output, const PackedPhases& weights, const Block& block,
                 const Piece& piece) const {
    const Phase& phase = phases_[block.phase];
    const Index k = g_.k(phase), channels = g_.groups * g_.out;
    const float* const image =
        inputs[0]->data<float>() + piece.image * product_of(g_.input) * g_.groups * g_.in + piece.group * g_.in;
    thread_local ThreadMemory memory;
    float* const patches = memory.floats(static_cast<std::size_t>(block.count * k));
    for (Index i = 0; i < block.count; ++i) copy_patch(image, phase, block.first + i, patches + i * k);
    Triple at = position(phase, block.first);
    for (std::size_t axis = 0; axis < 3; ++axis) at[axis] = phase.first[axis] + at[axis] * g_.out_step[axis];
    const Index place = ((piece.image * g_.output[0] + at[0]) * g_.output[1] + at[1]) * g_.output[2] + at[2];
    const Index first = place * channels + piece.group * g_.out + piece.column;
    const Index stored = stored_columns(g_.out);
    ProductPart part{};
    part.a = patches;
    part.a_stride = k;
    part.b = weights.values() + phase.weights + piece.group * k * stored + piece.column * k;
    part.bias = bias_ ? bias_.data<float>() + piece.group * g_.out + piece.column : nullptr;
    part.out = output + first;
    part.out_stride = g_.out_step[2] * channels;
    part.rows = block.count;
    part.columns = piece.columns;
    part.k = k;
    program_kernels().product.multiply(part);
    if (!weights.finite)
      for (Index i = 0; i < block.count; ++i) add_what_is_there(image, phase, block.first + i, part, i);
    for (Index i = 0; i < block.count && !post_ops_.empty(); ++i)
      apply_post_ops(post_ops_, inputs, output, first + i * part.out_stride, piece.columns);
  }

  /// Of output `number` among those of a phase.
  static Triple position(const Phase& phase, Index number) {
    const Index row = number / phase.extent[2];
    return {row / phase.extent[1], row % phase.extent[1], number % phase.extent[2]};
  }

  /// The input at a place of the window of the output at this position; null outside of the image.
  const float* input_at(const float* image, const Place& place, const Triple& output) const {
    Index at = 0;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const Index i = output[axis] * g_.in_step[axis] + place.from[axis];
      if (i < 0 || i >= g_.input[axis]) return nullptr;
      at = at * g_.input[axis] + i;
    }
    return image + at * g_.groups * g_.in;
  }

  void copy_patch(const float* image, const Phase& phase, Index number, float* to) const {
    const Triple output = position(phase, number);
    const auto copy = [&](const float* from, Index places) {
      const auto bytes = static_cast<std::size_t>(places * g_.in) * sizeof(float);
      if (from != nullptr)
        std::memcpy(to, from, bytes);
      else
        std::memset(to, 0, bytes);
      to += places * g_.in;
    };
    for (auto place = phase.places.begin(); place != phase.places.end(); place += phase.run) {
      const float* const first = input_at(image, *place, output);
      if (first != nullptr && input_at(image, place[phase.run - 1], output) != nullptr)
        copy(first, phase.run);
      else
        for (Index i = 0; i < phase.run; ++i) copy(input_at(image, place[i], output), 1);
    }
  }

  /// Where the window reaches beyond the image: zeros times what is not finite would be NaN.
  void add_what_is_there(const float* image, const Phase& phase, Index number, const ProductPart& part,
                         Index row) const {
    const Triple output = position(phase, number);
    const auto is_outside = [&](const Place& place) { return input_at(image, place, output) == nullptr; };
    if (std::ranges::none_of(phase.places, is_outside)) return;
    const Index panel = program_kernels().product.panel;
    for (Index column = 0; column < part.columns; ++column) {
      const Index start = column / panel * panel, stored = std::min(panel, stored_columns(part.columns - start));
      const float* const b = part.b + start * part.k + column - start;
      const float* const a = part.a + row * part.a_stride;
      float sum = 0;
      for (std::size_t p = 0; p < phase.places.size(); ++p) {
        if (is_outside(phase.places[p])) continue;
        for (Index i = static_cast<Index>(p) * g_.in; i < static_cast<Index>(p + 1) * g_.in; ++i)
          sum = std::fma(a[i], b[i * stored], sum);
      }
      part.out[row * part.out_stride + column] = part.bias == nullptr ? sum : sum + part.bias[column];
    }
  }

  const Geometry g_;
  const Index images_;
  const std::vector<Phase> phases_;
  const Tensor bias_;
  const std::vector<PostOp> post_ops_;
  const PreparedSource weights_;
  std::vector<Block> blocks_;
};

}  // namespace

std::unique_ptr<Kernel> make_patch_convolution_kernel(const ConvolutionSpec& spec, const ObjectCache& cache) {
  const Geometry g(spec);
  if (spec.type != DataType::kFloat32) return nullptr;
  constexpr Index kMostPhases = 4096;
  Index phase_count = 1;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const Index steps = std::min(g.out_step[axis], g.output[axis]);
    if (steps > kMostPhases / phase_count) return nullptr;
    phase_count *= steps;
  }
  std::vector<Phase> phases = phases_of(spec, g);
  std::string key = fmt::format("{}|patches in {} groups", spec.key, spec.groups);
  if (spec.transposed)
    key += fmt::format(", transposed|{}|{}|{}|{}", fmt::join(spec.strides, ","), fmt::join(spec.dilations, ","),
                       fmt::join(spec.pads_begin, ","), fmt::join(spec.output, ","));
  PreparedSource weights = cache(key, [g, phases, transposed = spec.transposed, values = spec.weights] {
    return pack_phases(g, phases, transposed, values());
  });
  return std::make_unique<PatchConvolution>(spec, std::move(phases), std::move(weights));
}

}  // namespace ulpscope::cpu
