// Col2Im, ai.onnx 18: adds up overlapping blocks into an image; the inverse of the unfolding of a convolution.
#include "core/parallel.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

struct BlockPlan {
  Shape image, block, strides, dilations, pads, positions;  ///< positions: blocks per dimension.
  std::int64_t channels = 0;
};

// Inputs: input (N, C * block volume, L), image_shape, block_shape.
template <typename Context>
BlockPlan block_plan(const Context& ctx) {
  const Shape& x = shape_of(ctx, 0);
  BlockPlan p;
  p.image = integers_of(ctx, 1);
  p.block = integers_of(ctx, 2);
  const std::size_t rank = p.image.size();
  p.strides = ctx.attributes().integers("strides", Shape(rank, 1));
  p.dilations = ctx.attributes().integers("dilations", Shape(rank, 1));
  p.pads = ctx.attributes().integers("pads", Shape(2 * rank, 0));
  if (x.size() != 3 || p.block.size() != rank || p.strides.size() != rank || p.dilations.size() != rank ||
      p.pads.size() != 2 * rank)
    ctx.fail(fmt::format("input {}, image {} and block {} do not fit together, or to strides, dilations and pads",
                         to_string(x), to_string(p.image), to_string(p.block)));
  for (std::size_t i = 0; i < rank; ++i) {
    if (p.image[i] < 0 || p.block[i] < 1 || p.strides[i] < 1 || p.dilations[i] < 1)
      ctx.fail("expected positive block sizes, strides and dilations");
    const std::int64_t room = p.image[i] + p.pads[i] + p.pads[i + rank] - (p.dilations[i] * (p.block[i] - 1) + 1);
    if (room < 0)
      ctx.fail(fmt::format("a block of {} does not fit an image of {}", to_string(p.block), to_string(p.image)));
    p.positions.push_back(room / p.strides[i] + 1);
  }
  const std::int64_t volume = num_elements(p.block);
  if (x[1] % volume != 0 || x[2] != num_elements(p.positions))
    ctx.fail(fmt::format("an input of shape {} does not fit {} positions of blocks of {} elements", to_string(x),
                         num_elements(p.positions), volume));
  p.channels = x[1] / volume;
  return p;
}

void infer_col2im(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  const BlockPlan p = block_plan(ctx);
  Shape shape{ctx.shape(0)[0], p.channels};
  shape.insert(shape.end(), p.image.begin(), p.image.end());
  ctx.set_shape(0, std::move(shape));
}

void run_col2im(KernelContext& ctx) {
  const BlockPlan p = block_plan(ctx);
  const std::size_t rank = p.image.size();
  const std::int64_t volume = num_elements(p.block), length = num_elements(p.positions), pixels = num_elements(p.image);
  with_type(NumericTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    const T* in = ctx.input(0).data<T>();
    T* out = ctx.output(0).data<T>();
    parallel_for(ctx.input(0).shape()[0] * p.channels, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t plane = begin; plane < end; ++plane) {
        T* image = out + plane * pixels;
        std::fill(image, image + pixels, T{});
        for (std::int64_t k = 0; k < volume; ++k)
          for (std::int64_t l = 0; l < length; ++l) {
            std::int64_t at = 0, stride = 1, tap = k, position = l;
            bool inside = true;
            for (std::size_t d = rank; d-- > 0;) {
              const std::int64_t i =
                  position % p.positions[d] * p.strides[d] - p.pads[d] + tap % p.block[d] * p.dilations[d];
              position /= p.positions[d];
              tap /= p.block[d];
              inside = inside && i >= 0 && i < p.image[d];
              at += i * stride;
              stride *= p.image[d];
            }
            if (inside) image[at] = static_cast<T>(image[at] + in[(plane * volume + k) * length + l]);
          }
      }
    });
  });
}

}  // namespace

OpDef col2im() {
  return {.name = "Col2Im",
          .since_version = 18,
          .inputs = {3, 3},
          .types = {kNumbers, kIndices},
          .weights = 0b110,
          .infer = infer_col2im,
          .run = run_col2im};
}

}  // namespace ulpscope::ops
