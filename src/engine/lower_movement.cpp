// Pooling, and layers that move values: views, concatenation and resizing where layouts can be kept.
#include <algorithm>
#include <cstring>

#include "backend/cpu/op_kernel.h"
#include "backend/cpu/pool.h"
#include "core/parallel.h"
#include "engine/plan_builder.h"
#include "ops/window.h"

namespace ulpscope {
namespace {

/// out[o, :] = the inputs' rows o side by side.
class ConcatKernel final : public Kernel {
 public:
  ConcatKernel(std::int64_t outer, std::vector<std::int64_t> widths) : outer_(outer), widths_(std::move(widths)) {
    for (std::int64_t w : widths_) total_ += w;
  }

  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    float* out = outputs[0]->data<float>();
    parallel_for(outer_, std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, total_)),
                 [&](std::int64_t begin, std::int64_t end) {
                   std::int64_t offset = 0;
                   for (std::size_t i = 0; i < inputs.size(); ++i) {
                     const float* in = inputs[i]->data<float>();
                     const std::int64_t width = widths_[i];
                     for (std::int64_t o = begin; o < end; ++o)
                       std::memcpy(out + o * total_ + offset, in + o * width,
                                   static_cast<std::size_t>(width) * sizeof(float));
                     offset += width;
                   }
                 });
  }

 private:
  const std::int64_t outer_;
  const std::vector<std::int64_t> widths_;
  std::int64_t total_ = 0;
};

/// Nearest-neighbour enlargement by whole factors, channels last.
class RepeatKernel final : public Kernel {
 public:
  RepeatKernel(std::int64_t batch, std::int64_t height, std::int64_t width, std::int64_t channels,
               std::int64_t factor_y, std::int64_t factor_x)
      : batch_(batch), height_(height), width_(width), channels_(channels), factor_y_(factor_y), factor_x_(factor_x) {}

  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const float* in = inputs[0]->data<float>();
    float* out = outputs[0]->data<float>();
    const std::int64_t row = width_ * factor_x_ * channels_;
    parallel_for(batch_ * height_, std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, row * factor_y_)),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t y = begin; y < end; ++y) {
                     const float* source = in + y * width_ * channels_;
                     float* first = out + y * factor_y_ * row;
                     for (std::int64_t x = 0; x < width_; ++x)
                       for (std::int64_t r = 0; r < factor_x_; ++r)
                         std::memcpy(first + (x * factor_x_ + r) * channels_, source + x * channels_,
                                     static_cast<std::size_t>(channels_) * sizeof(float));
                     for (std::int64_t r = 1; r < factor_y_; ++r)
                       std::memcpy(first + r * row, first, static_cast<std::size_t>(row) * sizeof(float));
                   }
                 });
  }

 private:
  const std::int64_t batch_, height_, width_, channels_, factor_y_, factor_x_;
};

/// Mean over all positions of each channel, channels last; partial sums in fixed blocks of positions.
class ChannelMeanKernel final : public Kernel {
 public:
  ChannelMeanKernel(std::int64_t batch, std::int64_t positions, std::int64_t channels)
      : batch_(batch), positions_(positions), channels_(channels) {}

  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const float* in = inputs[0]->data<float>();
    float* out = outputs[0]->data<float>();
    constexpr std::int64_t kBlock = 128;
    const std::int64_t blocks = (positions_ + kBlock - 1) / kBlock;
    std::vector<float> partial(static_cast<std::size_t>(batch_ * blocks * channels_), 0.0f);
    parallel_for(batch_ * blocks, std::max<std::int64_t>(1, 16384 / (kBlock * channels_)),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t task = begin; task < end; ++task) {
                     float* sum = partial.data() + task * channels_;
                     const std::int64_t first = task % blocks * kBlock, last = std::min(positions_, first + kBlock);
                     const float* source = in + task / blocks * positions_ * channels_;
                     for (std::int64_t p = first; p < last; ++p)
                       for (std::int64_t c = 0; c < channels_; ++c) sum[c] += source[p * channels_ + c];
                   }
                 });
    for (std::int64_t n = 0; n < batch_; ++n)
      for (std::int64_t c = 0; c < channels_; ++c) {
        float sum = 0.0f;
        for (std::int64_t b = 0; b < blocks; ++b)
          sum += partial[static_cast<std::size_t>((n * blocks + b) * channels_ + c)];
        out[n * channels_ + c] = sum / static_cast<float>(positions_);
      }
  }

 private:
  const std::int64_t batch_, positions_, channels_;
};

}  // namespace

bool PlanBuilder::lower_pool(LayerId id) {
  const Layer& l = layer(id);
  const std::string_view op = l.op->name;
  const bool global = op == "GlobalAveragePool" || (op == "ReduceMean" && row_dimensions(spec_, l) == 2);
  if (!global && op != "MaxPool" && op != "AveragePool") return false;
  if (!spec_.shape(l.inputs[0]) || !spec_.shape(l.outputs[0]) ||
      physical_type(spec_.type(l.inputs[0])) != DataType::kFloat32)
    return false;
  const Shape& input = shape(l.inputs[0]);
  const Shape& output = shape(l.outputs[0]);
  if (input.size() < 3 || input.size() > 4 || num_elements(input) == 0 || num_elements(output) == 0) return false;
  for (std::size_t o = 1; o < l.outputs.size(); ++o)
    if (l.outputs[o] != kNone) return false;
  const Home& home = home_[static_cast<std::size_t>(l.inputs[0])];
  if (home.slot >= 0 && plan_.slots_[static_cast<std::size_t>(home.slot)].dynamic) return false;
  std::unique_ptr<Kernel> kernel;
  if (global) {
    if (home.layout != Layout::kChannelsLast) return false;  // Rows of a dense tensor: a program does it.
    if (op == "ReduceMean" && input.size() != 4) return false;
    kernel = std::make_unique<ChannelMeanKernel>(input[0], num_elements(input) / input[0] / input[1], input[1]);
  } else {
    if (op == "AveragePool" && l.attributes.integer("ceil_mode", 0) != 0) return false;
    const ops::WindowGeometry g = ops::pool_geometry(l, input);
    cpu::PoolSpec spec{op == "MaxPool"                                     ? cpu::PoolSpec::Kind::kMax
                       : l.attributes.integer("count_include_pad", 0) != 0 ? cpu::PoolSpec::Kind::kAverageIncludePad
                                                                           : cpu::PoolSpec::Kind::kAverageExcludePad,
                       input,
                       output,
                       g.kernel,
                       g.strides,
                       g.dilations,
                       g.pads_begin,
                       g.pads_end};
    kernel = op == "MaxPool" ? cpu::make_max_pool_kernel(spec) : cpu::make_average_pool_kernel(spec);
    if (kernel == nullptr) return false;
  }
  const int in = read_operand(id, 0, Layout::kChannelsLast);
  // One value per channel is the same in both layouts.
  const bool single = num_elements(output) == output[0] * output[1];
  const int out = define(l.outputs[0], single ? Layout::kDense : Layout::kChannelsLast);
  add_step(std::move(kernel), {in}, {out}, id);
  if (const Rounding rounding = store_rounding(l.outputs[0], {&id, 1}); rounding != Rounding::kNone)
    add_step(cpu::make_round_kernel(rounding), {out}, {out}, id);
  settle(l.outputs[0], {&id, 1});
  return true;
}

bool PlanBuilder::lower_movement(LayerId id) {
  const Layer& l = layer(id);
  if (l.op->precision != PrecisionRule::kMovement || l.outputs.empty() || l.outputs[0] == kNone) return false;
  const TensorId input = l.inputs[0], output = l.outputs[0];
  if (input == kNone || spec_.is_constant(input) || !spec_.shape(input) || !spec_.shape(output)) return false;
  if (plan_.slots_[static_cast<std::size_t>(home_[static_cast<std::size_t>(input)].slot)].dynamic) return false;
  return lower_view(id) || lower_concat(id);
}

/// Casts between float types keep the layout; those to a type that holds the values already are views.
bool PlanBuilder::lower_cast(LayerId id) {
  const Layer& l = layer(id);
  if ((l.op->name != "Cast" && l.op->name != "CastLike") || l.outputs.empty() || l.outputs[0] == kNone) return false;
  const TensorId input = l.inputs[0], output = l.outputs[0];
  const auto held_as_float = [&](TensorId tensor) {
    return is_floating(spec_.type(tensor)) && physical_type(spec_.type(tensor)) == DataType::kFloat32;
  };
  if (input == kNone || spec_.is_constant(input) || !held_as_float(input) || !held_as_float(output)) return false;
  if (!spec_.shape(input) || !spec_.shape(output) || storage(output) != spec_.type(output)) return false;
  const Rounding rounding = internal(output) ? Rounding::kNone : rounding_of(spec_.type(output));
  if (rounding_of(spec_.type(output)) == Rounding::kNone && spec_.type(output) != DataType::kFloat32) return false;
  const Home source = home_[static_cast<std::size_t>(input)];
  if (plan_.slots_[static_cast<std::size_t>(source.slot)].dynamic) return false;
  const int slot = read(input, source.layout, rounding, id);
  const int view = define(output, source.layout);
  plan_.slots_[static_cast<std::size_t>(view)].alias = slot;
  home_[static_cast<std::size_t>(output)].storage = rounding == Rounding::kNone ? source.storage : spec_.type(output);
  return true;
}

/// Layers that only rename dimensions share the bytes of their input.
bool PlanBuilder::lower_view(LayerId id) {
  const Layer& l = layer(id);
  const TensorId input = l.inputs[0], output = l.outputs[0];
  const std::string_view op = l.op->name;
  const Home source = home_[static_cast<std::size_t>(input)];
  const bool reshape =
      op == "Reshape" || op == "Squeeze" || op == "Unsqueeze" || op == "Flatten" || op == "Identity" || op == "Dropout";
  if (spec_.type(input) != spec_.type(output)) return false;
  if (op == "Dropout" && l.inputs.size() > 2 && l.inputs[2] != kNone) {
    const Tensor& training = spec_.value(l.inputs[2]);
    if (!training || training.type() != DataType::kBool || training.size() != 1 || training.data<bool>()[0])
      return false;
  }
  if (is_floating(spec_.type(output)) && !is_exact(source.storage, store_rounding(output))) return false;
  for (std::size_t o = 1; o < l.outputs.size(); ++o)
    if (l.outputs[o] != kNone) return false;
  Layout layout = Layout::kDense;
  int slot = source.slot;
  if (op == "Transpose") {
    // From one image layout to the other: the bytes are already there.
    const auto perm = l.attributes.integers("perm");
    if (perm == std::vector<std::int64_t>{0, 2, 3, 1} && source.layout == Layout::kChannelsLast)
      layout = Layout::kDense;
    else if (perm == std::vector<std::int64_t>{0, 3, 1, 2} && source.layout == Layout::kDense)
      layout = Layout::kChannelsLast;
    else
      return false;
  } else if (!reshape) {
    return false;
  } else if (op == "Identity" || op == "Dropout" || shape(input) == shape(output)) {
    layout = source.layout;
  } else {
    slot = read(input, Layout::kDense, Rounding::kNone, id);
  }
  const int view = define(output, layout);
  plan_.slots_[static_cast<std::size_t>(view)].alias = slot;
  home_[static_cast<std::size_t>(output)].storage = source.storage;
  return true;
}

bool PlanBuilder::lower_concat(LayerId id) {
  const Layer& l = layer(id);
  if (l.op->name != "Concat" || physical_type(spec_.type(l.outputs[0])) != DataType::kFloat32 ||
      !is_floating(spec_.type(l.outputs[0])))
    return false;
  const Shape& output = shape(l.outputs[0]);
  const std::int64_t rank = static_cast<std::int64_t>(output.size());
  std::int64_t axis = l.attributes.integer("axis", 1);
  axis = axis < 0 ? axis + rank : axis;
  bool channels_last = (rank == 4 || rank == 3) && axis == 1;
  for (TensorId input : l.inputs) {
    if (input == kNone || !spec_.shape(input)) return false;
    if (spec_.is_constant(input)) continue;
    if (plan_.slots_[static_cast<std::size_t>(home_[static_cast<std::size_t>(input)].slot)].dynamic) return false;
    channels_last &= home_[static_cast<std::size_t>(input)].layout == Layout::kChannelsLast;
  }
  const Layout layout = channels_last ? Layout::kChannelsLast : Layout::kDense;
  std::vector<int> inputs;
  std::vector<std::int64_t> widths;
  std::int64_t outer = 1, inner = 1;
  if (channels_last) {
    outer = num_elements(output) / std::max<std::int64_t>(1, output[1]);
  } else {
    for (std::int64_t d = 0; d < axis; ++d) outer *= output[static_cast<std::size_t>(d)];
    for (std::int64_t d = axis + 1; d < rank; ++d) inner *= output[static_cast<std::size_t>(d)];
  }
  for (TensorId input : l.inputs) {
    inputs.push_back(
        read(input, layout, spec_.is_constant(input) ? store_rounding(l.outputs[0]) : Rounding::kNone, id));
    widths.push_back(shape(input)[static_cast<std::size_t>(axis)] * inner);
  }
  const int out = define(l.outputs[0], layout);
  add_step(std::make_shared<ConcatKernel>(outer, std::move(widths)), std::move(inputs), {out}, id);
  if (const Rounding rounding = store_rounding(l.outputs[0]); rounding != Rounding::kNone)
    add_step(cpu::make_round_kernel(rounding), {out}, {out}, id);
  return true;
}

bool PlanBuilder::lower_resize(LayerId id) {
  const Layer& l = layer(id);
  if ((l.op->name != "Resize" && l.op->name != "Upsample") || spec_.is_constant(l.inputs[0]) ||
      !spec_.shape(l.inputs[0]) || !spec_.shape(l.outputs[0]))
    return false;
  const Shape& input = shape(l.inputs[0]);
  const Shape& output = shape(l.outputs[0]);
  if (l.attributes.text("mode", "nearest") != "nearest" || input.size() != 4 ||
      home_[static_cast<std::size_t>(l.inputs[0])].layout != Layout::kChannelsLast)
    return false;
  if (input[0] != output[0] || input[1] != output[1] || input[2] == 0 || input[3] == 0 || output[2] % input[2] != 0 ||
      output[3] % input[3] != 0)
    return false;
  if (l.op->name == "Resize" && l.opset >= 11) {
    // For whole factors, all of these pick the same source pixel.
    const std::string transform = l.attributes.text("coordinate_transformation_mode", "half_pixel");
    const std::string rounding = l.attributes.text("nearest_mode", "round_prefer_floor");
    const bool floor = transform == "asymmetric" && rounding == "floor";
    const bool half =
        (transform == "half_pixel" || transform == "pytorch_half_pixel" || transform == "half_pixel_symmetric") &&
        (rounding == "round_prefer_floor" || rounding == "round_prefer_ceil");
    if (!floor && !half) return false;
    if (transform == "pytorch_half_pixel" && (output[2] == 1 || output[3] == 1)) return false;
    // A requested scale that is not the ratio of the sizes picks other pixels.
    if (!l.attributes.text("keep_aspect_ratio_policy", "stretch").starts_with("stretch")) return false;
    const TensorId scales = l.inputs.size() > 2 ? l.inputs[2] : kNone;
    if (scales != kNone && (!spec_.is_constant(scales) || !scales_match(spec_.value(scales), input, output)))
      return false;
  }
  const int in = read(l.inputs[0], Layout::kChannelsLast, load_rounding(l, id, 0), id);
  const int out = define(l.outputs[0], Layout::kChannelsLast);
  add_step(std::make_shared<RepeatKernel>(input[0], input[2], input[3], input[1], output[2] / input[2],
                                          output[3] / input[3]),
           {in}, {out}, id);
  if (const Rounding rounding = store_rounding(l.outputs[0]); rounding != Rounding::kNone)
    add_step(cpu::make_round_kernel(rounding), {out}, {out}, id);
  return true;
}

bool PlanBuilder::scales_match(const Tensor& scales, const Shape& input, const Shape& output) {
  if (scales.type() != DataType::kFloat32 || scales.size() == 0) return scales.size() == 0;
  if (scales.size() != 4) return false;
  for (std::size_t d = 0; d < 4; ++d)
    if (scales.data<float>()[d] * static_cast<float>(input[d]) != static_cast<float>(output[d])) return false;
  return true;
}

}  // namespace ulpscope
