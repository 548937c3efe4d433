// Convolutions at moved positions, and the inverse of their unfolding.
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "core/vector_clones.h"
#include "ops/contraction/matrix_product.h"
#include "ops/movement.h"
#include "ops/window.h"

namespace ulpscope::ops {
namespace {

// Inputs: X, W, offset (N, offset_group * kernel * rank, o...), B, mask (N, offset_group * kernel, o...).
void infer_deform_conv(InferContext& ctx) {
  require_type_of_first(ctx, {1, 2, 3, 4});
  const WindowGeometry g = conv_geometry(ctx.layer(), ctx.shape(0), ctx.shape(1));
  const std::int64_t groups = ctx.attributes().integer("offset_group", 1);
  if (groups < 1 || g.in_channels % groups != 0)
    ctx.fail("{} channels cannot be split into {} offset groups", g.in_channels, groups);
  const std::int64_t positions = groups * num_elements(g.kernel);
  const auto wanted = [&](std::int64_t channels) {
    Shape shape{g.batch, channels};
    shape.insert(shape.end(), g.output.begin(), g.output.end());
    return shape;
  };
  if (const Shape shape = wanted(positions * static_cast<std::int64_t>(g.rank())); ctx.shape(2) != shape)
    ctx.fail("expected offsets of shape {}, got {}", to_string(shape), to_string(ctx.shape(2)));
  if (const Shape shape = wanted(positions); ctx.has_input(4) && ctx.shape(4) != shape)
    ctx.fail("expected a mask of shape {}, got {}", to_string(shape), to_string(ctx.shape(4)));
  ctx.set_shape(0, g.output_shape());
}

/// The linear interpolation of images at positions; elements outside are zeros. Positions are of three dimensions:
/// leading ones that the operator does not have have size 1 and position 0. Index: int32, which vectors are quick with,
/// or int64 for large images.
template <typename T, typename Index>
class Samples {
 public:
  Samples(std::int64_t count, std::int64_t rank)
      : count_(count), corners_(std::int64_t{1} << rank), offsets_(size()), weights_(size()) {}

  void place(std::int64_t i, const Window3::Triple& size, const std::array<T, 3>& at) {
    std::array<std::int64_t, 3> base{};
    std::array<T, 3> fraction{};
    bool near = true;
    for (std::size_t d = 0; d < 3; ++d) {
      near = near && at[d] > -1 && at[d] < static_cast<T>(size[d]);
      if (!near) break;
      base[d] = static_cast<std::int64_t>(std::floor(at[d]));
      fraction[d] = at[d] - static_cast<T>(base[d]);
    }
    for (std::int64_t corner = 0; corner < corners_; ++corner) {
      T weight{1};
      std::int64_t offset = 0;
      bool inside = near;
      for (std::size_t d = 0; d < 3 && inside; ++d) {
        const bool upper = (corner >> (2 - d)) & 1;
        const std::int64_t p = base[d] + (upper ? 1 : 0);
        weight *= upper ? fraction[d] : 1 - fraction[d];
        inside = p >= 0 && p < size[d];
        offset = offset * size[d] + p;
      }
      const auto slot = static_cast<std::size_t>(corner * count_ + i);
      weights_[slot] = inside ? weight : T{};
      offsets_[slot] = inside ? static_cast<Index>(offset) : 0;
    }
  }

  /// out[i] = that of the image at place i.
  void read(const T* image, T* out) const {
    std::fill_n(out, count_, T{});
    for (std::int64_t corner = 0; corner < corners_; ++corner)
      add_weighted(image, offsets_.data() + corner * count_, weights_.data() + corner * count_, count_, out);
  }

 private:
  /// What has no weight is not looked at: it may be an infinity.
  static ULPSCOPE_VECTOR_CLONES void add_weighted(const T* __restrict image, const Index* __restrict offsets,
                                                  const T* __restrict weights, std::int64_t count, T* __restrict out) {
    for (std::int64_t i = 0; i < count; ++i) {
      const T value = weights[i] * image[offsets[i]];
      out[i] += weights[i] != 0 ? value : T{};
    }
  }

  std::size_t size() const { return static_cast<std::size_t>(count_ * corners_); }

  const std::int64_t count_, corners_;
  std::vector<Index> offsets_;  ///< Per corner and place.
  std::vector<T> weights_;
};

/// Where the tap of a kernel looks, at all places of the output.
template <typename T, typename Index>
Samples<T, Index> samples_of(const Window3& w, std::int64_t rank, std::int64_t tap, const T* offsets) {
  const std::int64_t volume = Window3::volume(w.output);
  Samples<T, Index> samples(volume, rank);
  const Window3::Triple k{tap / (w.kernel[1] * w.kernel[2]), tap / w.kernel[2] % w.kernel[1], tap % w.kernel[2]};
  for (std::int64_t o = 0; o < volume; ++o) {
    const Window3::Triple place{o / (w.output[1] * w.output[2]), o / w.output[2] % w.output[1], o % w.output[2]};
    std::array<T, 3> at{};
    for (std::int64_t d = 0; d < 3; ++d) {
      const auto i = static_cast<std::size_t>(d);
      at[i] = static_cast<T>(place[i] * w.strides[i] + k[i] * w.dilations[i] - w.pads_begin[i]);
      if (d >= 3 - rank) at[i] += offsets[(d - (3 - rank)) * volume + o];
    }
    samples.place(o, w.input, at);
  }
  return samples;
}

void run_deform_conv(KernelContext& ctx) {
  const WindowGeometry g = conv_geometry(ctx.layer(), ctx.input(0).shape(), ctx.input(1).shape());
  const Window3 w = to_window3(ctx.layer(), g);
  const std::int64_t offset_groups = ctx.attributes().integer("offset_group", 1);
  const std::int64_t rank = static_cast<std::int64_t>(g.rank());
  const std::int64_t in_volume = Window3::volume(w.input), out_volume = Window3::volume(w.output);
  const std::int64_t taps = Window3::volume(w.kernel);
  const std::int64_t group_in = g.in_channels / g.groups, group_out = g.out_channels / g.groups;
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&]<typename T>(T) {
    const T* x = ctx.input(0).data<T>();
    const T* weights = ctx.input(1).data<T>();
    const T* offsets = ctx.input(2).data<T>();
    const T* bias = ctx.has_input(3) ? ctx.input(3).data<T>() : nullptr;
    const T* mask = ctx.has_input(4) ? ctx.input(4).data<T>() : nullptr;
    T* out = ctx.output(0).data<T>();
    std::vector<T> columns(static_cast<std::size_t>(g.in_channels * taps * out_volume));
    for (std::int64_t n = 0; n < g.batch; ++n) {
      // Sampled inputs as a matrix (channel and tap, output position), then one product per group.
      const std::int64_t shared = g.in_channels / offset_groups;  // Channels that look at the same places.
      const auto sample = [&](std::int64_t part, const auto& samples) {
        const std::int64_t first = part / taps * shared;
        const T* const factors = mask ? mask + (n * offset_groups * taps + part) * out_volume : nullptr;
        for (std::int64_t channel = first; channel < first + shared; ++channel) {
          T* const row = columns.data() + (channel * taps + part % taps) * out_volume;
          samples.read(x + (n * g.in_channels + channel) * in_volume, row);
          for (std::int64_t o = 0; factors != nullptr && o < out_volume; ++o) row[o] *= factors[o];
        }
      };
      parallel_each(offset_groups * taps, 1, [&](std::int64_t part) {
        const T* const moved = offsets + (n * offset_groups * taps + part) * rank * out_volume;
        if (in_volume <= std::numeric_limits<std::int32_t>::max())
          sample(part, samples_of<T, std::int32_t>(w, rank, part % taps, moved));
        else
          sample(part, samples_of<T, std::int64_t>(w, rank, part % taps, moved));
      });
      for (std::int64_t group = 0; group < g.groups; ++group) {
        T* y = out + (n * g.out_channels + group * group_out) * out_volume;
        multiply_parallel(weights + group * group_out * group_in * taps,
                          columns.data() + group * group_in * taps * out_volume, y, group_out, out_volume,
                          group_in * taps);
        if (bias)
          for (std::int64_t i = 0; i < group_out * out_volume; ++i) y[i] += bias[group * group_out + i / out_volume];
      }
    }
  });
}

struct BlockPlan {
  Shape image, block, strides, dilations, pads, positions;  ///< positions: blocks per dimension.
  std::int64_t channels = 0;
};

// Inputs: input (N, C * block volume, L), image_shape, block_shape.
template <typename Context>
BlockPlan block_plan(const Context& ctx) {
  const Shape& x = shape_of(ctx, 0);
  BlockPlan p;
  p.image = ctx.input_ints(1);
  p.block = ctx.input_ints(2);
  const std::size_t rank = p.image.size();
  p.strides = ctx.attributes().ints("strides", Shape(rank, 1));
  p.dilations = ctx.attributes().ints("dilations", Shape(rank, 1));
  p.pads = ctx.attributes().ints("pads", Shape(2 * rank, 0));
  if (x.size() != 3 || p.block.size() != rank || p.strides.size() != rank || p.dilations.size() != rank ||
      p.pads.size() != 2 * rank)
    ctx.fail("input {}, image {} and block {} do not fit together, or to strides, dilations and pads", to_string(x),
             to_string(p.image), to_string(p.block));
  for (std::size_t i = 0; i < rank; ++i) {
    if (p.image[i] < 0 || p.block[i] < 1 || p.strides[i] < 1 || p.dilations[i] < 1)
      ctx.fail("expected positive block sizes, strides and dilations");
    const std::int64_t room = p.image[i] + p.pads[i] + p.pads[i + rank] - (p.dilations[i] * (p.block[i] - 1) + 1);
    if (room < 0) ctx.fail("a block of {} does not fit an image of {}", to_string(p.block), to_string(p.image));
    p.positions.push_back(room / p.strides[i] + 1);
  }
  const std::int64_t volume = num_elements(p.block);
  if (x[1] % volume != 0 || x[2] != num_elements(p.positions))
    ctx.fail("an input of shape {} does not fit {} positions of blocks of {} elements", to_string(x),
             num_elements(p.positions), volume);
  p.channels = x[1] / volume;
  return p;
}

void infer_col2im(InferContext& ctx) {
  const BlockPlan p = block_plan(ctx);
  Shape shape{ctx.shape(0)[0], p.channels};
  shape.insert(shape.end(), p.image.begin(), p.image.end());
  ctx.set_shape(0, std::move(shape));
}

/// Element k of all blocks, by rows of positions: add(position, pixel, pixels to the next one, how many), of those that
/// lie in the image.
template <typename Add>
void for_each_row_of_blocks(const BlockPlan& p, std::int64_t k, const Add& add) {
  const std::size_t rank = p.image.size();
  Shape from(rank);  // Where the element is in the first block.
  for (std::size_t d = rank; d-- > 0; k /= p.block[d]) from[d] = k % p.block[d] * p.dilations[d] - p.pads[d];
  if (rank == 0) return add(0, 0, 1, 1);
  const std::int64_t width = p.positions.back(), step = p.strides.back(), rows = num_elements(p.positions) / width;
  const OutputRange valid = valid_outputs(width, p.image.back(), step, from.back());
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t at = from.back() + valid.begin * step, stride = p.image.back(), position = row;
    bool inside = valid.begin < valid.end;
    for (std::size_t d = rank - 1; d-- > 0; position /= p.positions[d], stride *= p.image[d]) {
      const std::int64_t i = position % p.positions[d] * p.strides[d] + from[d];
      inside = inside && i >= 0 && i < p.image[d];
      at += i * stride;
    }
    if (inside) add(row * width + valid.begin, at, step, valid.end - valid.begin);
  }
}

template <typename T>
void add_row(const T* __restrict x, std::int64_t count, T* __restrict out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(out[i] + x[i]);
}

void run_col2im(KernelContext& ctx) {
  const BlockPlan p = block_plan(ctx);
  const std::int64_t volume = num_elements(p.block), length = num_elements(p.positions), pixels = num_elements(p.image);
  struct Row {
    std::int64_t first, at, step, count;
  };
  std::vector<Row> rows;  // Of every plane.
  for (std::int64_t k = 0; k < volume; ++k)
    for_each_row_of_blocks(p, k, [&](std::int64_t first, std::int64_t at, std::int64_t step, std::int64_t count) {
      rows.push_back({k * length + first, at, step, count});
    });
  with_type(NumericTypes{}, ctx, ctx.input(0).type(), [&]<typename T>(T) {
    const T* in = ctx.input(0).data<T>();
    T* out = ctx.output(0).data<T>();
    parallel_each(ctx.input(0).shape()[0] * p.channels, 1, [&](std::int64_t plane) {
      T* image = out + plane * pixels;
      std::fill(image, image + pixels, T{});
      for (const Row& row : rows) {
        const T* x = in + plane * volume * length + row.first;
        if (row.step == 1)
          add_row(x, row.count, image + row.at);
        else
          for (std::int64_t i = 0; i < row.count; ++i)
            image[row.at + i * row.step] = static_cast<T>(image[row.at + i * row.step] + x[i]);
      }
    });
  });
}

}  // namespace

OpTable deform_conv() {
  return {
      // DeformConv, ai.onnx 19, 22: a convolution whose kernel positions move by given offsets, linearly interpolated
      // (Dai et al., "Deformable Convolutional Networks", 2017; Zhu et al., 2018, for the mask).
      make_op({.name = "DeformConv", .since_version = 19, .inputs = {3, 5}, .types = {kFloats}, .weights = 0b1010},
              infer_deform_conv, run_deform_conv),
      // Col2Im, ai.onnx 18: adds up overlapping blocks into an image; the inverse of the unfolding of a convolution.
      make_op(
          {.name = "Col2Im", .since_version = 18, .inputs = {3, 3}, .types = {kNumbers, kIndices}, .weights = 0b110},
          infer_col2im, run_col2im),
  };
}

}  // namespace ulpscope::ops
