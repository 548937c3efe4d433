#include <algorithm>

#include "backend/cpu/product.h"
#include "backend/cpu/program_kernels.h"
#include "backend/cpu/thread_memory.h"
#include "core/parallel.h"

namespace ulpscope::cpu {
namespace {

/// One spatial dimension becomes a row of height 1.
struct Extent {
  std::int64_t height, width;
};

Extent extent_of(const std::vector<std::int64_t>& values, std::int64_t absent) {
  return values.size() == 1 ? Extent{absent, values[0]} : Extent{values[0], values[1]};
}

Extent image_of(const Shape& shape) { return extent_of({shape.begin() + 2, shape.end()}, 1); }

/// Places [begin, end) of a window that lie inside of an image.
struct Inside {
  std::int64_t begin, end;
};

Inside inside(std::int64_t first, std::int64_t dilation, std::int64_t window, std::int64_t extent) {
  const std::int64_t begin = first < 0 ? (-first + dilation - 1) / dilation : 0;
  const std::int64_t end = first >= extent ? 0 : (extent - first + dilation - 1) / dilation;
  return {std::min(begin, window), std::clamp<std::int64_t>(end, 0, window)};
}

class DepthwiseKernel final : public Kernel {
 public:
  DepthwiseKernel(const ConvolutionSpec& spec, PreparedSource weights)
      : images_(spec.output[0]),
        channels_(spec.output[1]),
        each_(spec.output[1] / spec.input[1]),
        depth_(spec.kernel[1]),
        input_(image_of(spec.input)),
        output_(image_of(spec.output)),
        window_(image_of(spec.kernel)),
        strides_(extent_of(spec.strides, 1)),
        dilations_(extent_of(spec.dilations, 1)),
        pads_(extent_of(spec.pads_begin, 0)),
        bias_(spec.bias),
        post_ops_(spec.post_ops),
        weights_(std::move(weights)) {}

  std::string name() const override { return "depthwise"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const std::shared_ptr<const void> weights = weights_();
    const auto* packed = static_cast<const Tensor*>(weights.get())->data<float>();
    thread_local ThreadMemory memory;
    const float* const in = each_ == 1 ? inputs[0]->data<float>() : repeated(*inputs[0], memory);
    const std::int64_t parts = (output_.width + kPart - 1) / kPart, tasks = images_ * output_.height * parts;
    parallel_each(tasks, items_per_task(tasks, std::min(output_.width, kPart) * channels_), [&](std::int64_t task) {
      run_part(in, inputs, *outputs[0], packed, task / parts, task % parts * kPart);
    });
  }

 private:
  static constexpr std::int64_t kPart = 96;  ///< Outputs of a row at a time.

  /// Of row `row` of all images, from output `first` on.
  void run_part(const float* in, std::span<const Tensor* const> inputs, Tensor& output, const float* weights,
                std::int64_t row, std::int64_t first) const {
    const std::int64_t y = row % output_.height * strides_.height - pads_.height;
    const Inside rows = inside(y, dilations_.height, window_.height, input_.height);
    const float* image = in + row / output_.height * input_.height * input_.width * channels_;
    const std::int64_t last = std::min(first + kPart, output_.width);
    float* const out = output.data<float>() + row * output_.width * channels_;
    for (std::int64_t o = first; o < last;) {
      const Inside columns = columns_of(o);
      std::int64_t next = o + 1;
      while (next < last && columns_of(next).begin == columns.begin && columns_of(next).end == columns.end) ++next;
      DepthwiseRun part{};
      part.count = next - o;
      part.channels = channels_;
      part.depth = depth_;
      part.rows = std::max<std::int64_t>(rows.end - rows.begin, 0);
      part.columns = std::max<std::int64_t>(columns.end - columns.begin, 0);
      part.row_step = dilations_.height * input_.width * channels_;
      part.column_step = dilations_.width * channels_;
      part.weight_row = window_.width * depth_ * channels_;
      part.output_step = strides_.width * channels_;
      part.bias = bias_ ? bias_.data<float>() : nullptr;
      part.out = out + o * channels_;
      if (part.rows == 0 || part.columns == 0)
        part.rows = part.columns = 0;
      else {
        const std::int64_t x = o * strides_.width - pads_.width + columns.begin * dilations_.width;
        part.in = image + ((y + rows.begin * dilations_.height) * input_.width + x) * channels_;
        part.weights = weights + (rows.begin * window_.width + columns.begin) * depth_ * channels_;
      }
      program_kernels().depthwise(part);
      o = next;
    }
    apply_post_ops(post_ops_, inputs, output.data<float>(), (row * output_.width + first) * channels_,
                   (last - first) * channels_);
  }

  /// Each channel as often as there are outputs of it.
  const float* repeated(const Tensor& input, ThreadMemory& memory) const {
    const float* const from = input.data<float>();
    float* const to = memory.floats(static_cast<std::size_t>(input.size() * each_));
    parallel_for(input.size(), items_per_task(input.size(), each_), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) std::fill_n(to + i * each_, each_, from[i]);
    });
    return to;
  }

  Inside columns_of(std::int64_t output) const {
    return inside(output * strides_.width - pads_.width, dilations_.width, window_.width, input_.width);
  }

  const std::int64_t images_, channels_;
  const std::int64_t each_;   ///< Output channels of an input channel.
  const std::int64_t depth_;  ///< Channels of a group.
  const Extent input_, output_, window_, strides_, dilations_, pads_;
  const Tensor bias_;
  const std::vector<PostOp> post_ops_;
  const PreparedSource weights_;
};

/// [places of the window, inputs of a group, channels]
PreparedObject pack_filters(const Tensor& weights) {
  const std::int64_t channels = weights.shape()[0], depth = weights.shape()[1];
  const std::int64_t places = weights.size() / channels / depth;
  Tensor packed(DataType::kFloat32, {places, depth, channels});
  for (std::int64_t c = 0; c < channels; ++c)
    for (std::int64_t i = 0; i < depth; ++i)
      for (std::int64_t p = 0; p < places; ++p)
        packed.data<float>()[(p * depth + i) * channels + c] = weights.data<float>()[(c * depth + i) * places + p];
  const std::size_t bytes = packed.bytes();
  return {std::make_shared<Tensor>(std::move(packed)), bytes};
}

}  // namespace

Instruction instruction_of(PostOp::Kind kind) {
  if (kind == PostOp::Kind::kRelu) return Instruction::kRelu;
  return kind == PostOp::Kind::kClip ? Instruction::kClip : Instruction::kHardSwish;
}

void apply_post_ops(std::span<const PostOp> ops, std::span<const Tensor* const> inputs, float* output,
                    std::int64_t first, std::int64_t count) {
  float* const out = output + first;
  std::size_t addend = 1;
  for (const PostOp& op : ops) {
    if (op.kind == PostOp::Kind::kAddTensor)
      program_kernels().binary(Instruction::kAdd)(out, out, inputs[addend++]->data<float>() + first, count);
    else
      program_kernels().unary(instruction_of(op.kind))(out, out, count, op.p, op.q);
  }
}

std::unique_ptr<Kernel> make_depthwise_kernel(const ConvolutionSpec& spec, const ObjectCache& cache) {
  const std::int64_t channels = spec.output[1];
  const bool single = spec.groups == 1 && channels != 1;  // One image for all: an ordinary convolution.
  const std::int64_t depth = spec.kernel[1];
  const bool in_vector = depth == 2 || depth == 4 || (depth == 8 && program_kernels().product.lanes >= depth);
  const bool of_groups = in_vector && spec.groups > 1 && channels == spec.input[1];
  if (spec.transposed || spec.type != DataType::kFloat32 || channels == 0 || single || (depth != 1 && !of_groups))
    return nullptr;
  return std::make_unique<DepthwiseKernel>(
      spec, cache(spec.key + "|depthwise", [values = spec.weights] { return pack_filters(values()); }));
}

}  // namespace ulpscope::cpu
