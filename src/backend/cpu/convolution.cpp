// Convolutions and average pooling through oneDNN.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <thread>

#include "backend/cpu/choices.h"
#include "backend/cpu/known_choices.h"
#include "backend/cpu/layer_kernels.h"
#include "backend/cpu/onednn.h"
#include "backend/cpu/packed_product.h"
#include "backend/cpu/product.h"
#include "ops/common.h"
#include "ops/window.h"

namespace ulpscope::cpu {
namespace {

using namespace onednn;

/// [n, c, s...] dims as nhwc memory; one spatial dimension becomes a row of height 1.
Dims image_dims(const Shape& shape) {
  if (shape.size() == 3) return {shape[0], shape[1], 1, shape[2]};
  return Dims(shape.begin(), shape.end());
}

Dims spatial(const std::vector<std::int64_t>& values, std::int64_t absent) {
  Dims dims(values.begin(), values.end());
  if (dims.size() == 1) dims.insert(dims.begin(), absent);
  return dims;
}

Dims minus_one(Dims dims) {
  for (auto& d : dims) d -= 1;  // oneDNN counts the elements that a dilation leaves out
  return dims;
}

memory::desc image(const Shape& shape, DataType type = DataType::kFloat32) {
  return memory::desc(image_dims(shape), data_kind(type), memory::format_tag::nhwc);
}

/// Padding at the end as oneDNN wants it: what is needed for exactly this output (it may be negative).
Dims end_padding(const Dims& in, const Dims& out, const Dims& kernel, const Dims& stride, const Dims& dilation,
                 const Dims& begin) {
  Dims end(2);
  for (std::size_t i = 0; i < 2; ++i)
    end[i] = (out[2 + i] - 1) * stride[i] + (kernel[i] - 1) * dilation[i] + 1 - in[2 + i] - begin[i];
  return end;
}

dnnl::primitive_attr attributes_of(const ConvolutionSpec& spec) {
  dnnl::post_ops ops;
  for (const PostOp& op : spec.post_ops) {
    switch (op.kind) {
      case PostOp::Kind::kHardSwish:
        ops.append_eltwise(dnnl::algorithm::eltwise_hardswish, 1.0f / 6.0f, 0.5f);
        break;
      case PostOp::Kind::kAddTensor:
        ops.append_binary(dnnl::algorithm::binary_add, image(spec.output));
        break;
      case PostOp::Kind::kRelu:
      case PostOp::Kind::kClip:
        throw InternalError("oneDNN bounds results otherwise");
    }
  }
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(ops);
  return with_own_scratchpad(std::move(attributes));
}

/// Weights as [g, first / g, second, kh, kw]: the channels that a convolution, not a transposed one, writes and reads.
memory::desc weights_desc(const ConvolutionSpec& spec) {
  const Shape& w = spec.kernel;
  Dims dims = spatial({w.begin() + 2, w.end()}, 1);
  dims.insert(dims.begin(), {spec.groups, w[0] / spec.groups, w[1]});
  return memory::desc(dims, spec.type == DataType::kFloat32 ? DataKind::f32 : DataKind::s8, ops::strides_of(dims));
}

memory::desc without_groups(const memory::desc& desc, std::int64_t groups) {
  if (groups != 1) return desc;
  const Dims dims = desc.get_dims(), strides = desc.get_strides();
  return memory::desc({dims.begin() + 1, dims.end()}, desc.get_data_type(), {strides.begin() + 1, strides.end()});
}

/// oneDNN's "brgconv" chooses its blocks by the number of threads, and "gemm" what to share out, wherever there are few
/// pieces of work for each; with that, the order of sums. Seen up to 2.8 a core of an output row and 64 channels, and
/// up to 45 on few cores; in transposed convolutions everywhere.
bool may_split_by_threads(std::string_view implementation, const ConvolutionSpec& spec) {
  const bool brgemm =
      implementation.find("brgconv") != std::string_view::npos && implementation.find("1x1") == std::string_view::npos;
  if (!brgemm && implementation.find("gemm") == std::string_view::npos) return false;
  if (brgemm ? spec.transposed : products_depend_on_threads()) return true;
  const std::int64_t blocks = spec.groups * ((spec.output[1] / spec.groups + 63) / 64);
  const std::int64_t pieces = spec.output[0] * blocks * (spec.output.size() > 3 ? spec.output[2] : 1);
  return pieces < std::max<std::int64_t>(48, 3 * static_cast<std::int64_t>(std::thread::hardware_concurrency()));
}

/// Multiplications and additions. A weight meets what its first dimension counts: outputs, or inputs of a transposed
/// one.
std::int64_t operations_of(const ConvolutionSpec& spec) {
  return 2 * num_elements(spec.transposed ? spec.input : spec.output) * num_elements(spec.kernel) / spec.kernel[0];
}

/// A primitive whose results have the same bits for every number of threads. Of oneDNN's descriptions that refer to
/// another one, it holds that, too.
template <typename Desc>
struct ConvolutionChoice {
  std::optional<Desc> desc;  ///< Nothing where oneDNN has none.
  bool one_thread = false;   ///< It has to run on one.
  std::shared_ptr<const void> hint;
};

/// `make`: gives a fresh description.
template <typename MakeDesc>
auto choose_convolution(const ConvolutionSpec& spec, const MakeDesc& make) -> ConvolutionChoice<decltype(make())> {
  const auto name = [](const auto& desc) { return std::string_view(desc.impl_info_str()); };
  try {
    auto desc = make();
    bool more = true;
    while (more && may_split_by_threads(name(desc), spec)) more = desc.next_impl();
    const bool one_thread = !more || name(desc).starts_with("ref");
    if (!one_thread && name(desc).find("gemm") == std::string_view::npos) return {desc, false, nullptr};
    const ScopedThreads single(1);
    auto alone = make();
    // Where it takes a slow one depends on the threads, too. Our reference kernel takes over.
    if (name(alone).starts_with("ref")) return {};
    return {one_thread ? alone : desc, one_thread, nullptr};
  } catch (const dnnl::error&) {
    return {};
  }
}

struct ConvolutionDescs {
  memory::desc source, target, weights, any, bias;
  Dims strides, dilations, begin, end;
};

ConvolutionDescs descs_of(const ConvolutionSpec& spec) {
  ConvolutionDescs d;
  d.source = image(spec.input, spec.type);
  d.target = image(spec.output);
  d.weights = without_groups(weights_desc(spec), spec.groups);
  d.any = memory::desc(d.weights.get_dims(), d.weights.get_data_type(), memory::format_tag::any);
  if (spec.bias) d.bias = memory::desc({spec.output[1]}, DataKind::f32, memory::format_tag::x);
  const Dims kernel{d.weights.get_dims()[d.weights.get_dims().size() - 2], d.weights.get_dims().back()};
  d.strides = spatial(spec.strides, 1);
  d.begin = spatial(spec.pads_begin, 0);
  const Dims dilations = spatial(spec.dilations, 1);
  d.dilations = minus_one(dilations);
  d.end = end_padding(image_dims(spec.transposed ? spec.output : spec.input),
                      image_dims(spec.transposed ? spec.input : spec.output), kernel, d.strides, dilations, d.begin);
  return d;
}

dnnl::convolution_forward::primitive_desc forward_desc(const ConvolutionSpec& spec, const ConvolutionDescs& d) {
  return {cpu_engine(),
          dnnl::prop_kind::forward_inference,
          dnnl::algorithm::convolution_direct,
          d.source,
          d.any,
          d.bias,
          d.target,
          d.strides,
          d.dilations,
          d.begin,
          d.end,
          attributes_of(spec)};
}

/// oneDNN's first choice; nothing where it has none.
std::optional<dnnl::convolution_forward::primitive_desc> first_choice(const ConvolutionSpec& spec,
                                                                      const ConvolutionDescs& d) {
  using Choice = std::optional<dnnl::convolution_forward::primitive_desc>;
  static auto& known = *new KnownChoices<Choice>;
  return known.get(spec, [&]() -> Choice {
    try {
      return forward_desc(spec, d);
    } catch (const dnnl::error&) {
      return std::nullopt;
    }
  });
}

std::string_view name_of(const std::optional<dnnl::convolution_forward::primitive_desc>& choice) {
  return choice ? std::string_view(choice->impl_info_str()) : std::string_view();
}

template <typename Primitive>
std::unique_ptr<Kernel> primitive_kernel(const ConvolutionSpec& spec, const ConvolutionDescs& d,
                                         const ObjectCache& cache, const typename Primitive::primitive_desc& desc) {
  using K = PrimitiveKernel<Primitive>;
  std::vector<typename K::Argument> inputs{{spec.transposed ? DNNL_ARG_DIFF_DST : DNNL_ARG_SRC, d.source}};
  for (std::size_t i = 0; i < spec.post_ops.size(); ++i)
    if (spec.post_ops[i].kind == PostOp::Kind::kAddTensor)
      inputs.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1, d.target});
  std::unordered_map<int, PreparedSource> constants;
  const memory::desc packed = desc.weights_desc();
  constants[DNNL_ARG_WEIGHTS] =
      cache(packed_key(spec.key, d.weights, packed),
            [from = d.weights, packed, values = spec.weights] { return pack(from, values(), packed); });
  if (spec.bias) constants[DNNL_ARG_BIAS] = pack_now(d.bias, spec.bias);
  return std::make_unique<K>(desc, std::move(inputs),
                             typename K::Argument{spec.transposed ? DNNL_ARG_DIFF_SRC : DNNL_ARG_DST, d.target},
                             std::move(constants));
}

/// `choose`: gives a ConvolutionChoice for the threads that there are now.
template <typename Primitive, typename Choose>
std::unique_ptr<Kernel> convolution_kernel(const ConvolutionSpec& spec, const ConvolutionDescs& d,
                                           const ObjectCache& cache, const Choose& choose) {
  static auto& known = *new KnownChoices<decltype(choose())>;  // Never destroyed: kernels may be static.
  return with_threads_for(operations_of(spec), [&](bool& one_thread) -> std::unique_ptr<Kernel> {
    const auto choice = known.get(spec, choose);
    if (!choice.desc) return nullptr;  // The reference kernel takes over.
    one_thread |= choice.one_thread;
    std::optional<ScopedThreads> single;
    if (choice.one_thread) single.emplace(1);
    return primitive_kernel<Primitive>(spec, d, cache, *choice.desc);
  });
}

/// A convolution as independent pieces, each computed by one thread: "brgconv" is the fastest, and its bits are those
/// of its shape then. Pieces are stripes of the first spatial dimension that is not 1, and blocks of output channels.
class PiecewiseConvolution final : public Kernel {
 public:
  struct Piece {
    std::shared_ptr<const Kernel> kernel;
    std::int64_t input, pixel, pixels, channel, channels;  ///< Elements, and positions of an image.
  };
  struct Image {
    std::int64_t count, input, pixels, channels;  ///< Elements of an input; positions and channels of an output.
  };

  /// `bounds`: what is done to the results of pieces at last, if anything.
  PiecewiseConvolution(std::vector<Piece> pieces, Image image, std::optional<PostOp> bounds)
      : pieces_(std::move(pieces)), image_(image), bounds_(bounds) {}

  std::string name() const override { return fmt::format("{} pieces, {}", pieces_.size(), pieces_[0].kernel->name()); }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const auto count = static_cast<std::int64_t>(pieces_.size()), all = image_.count * count;
    // Neighbors, which share weights, stay together.
    parallel_each(all, 1, [&](std::int64_t i) {
      const ScopedThreads single(1);
      run_piece(pieces_[i % count], i / count, inputs, *outputs[0]);
    });
  }

 private:
  static Tensor at(const float* values) {  // The primitive knows its shape.
    return Tensor::borrow(DataType::kFloat32, {}, const_cast<float*>(values), nullptr);
  }

  void run_piece(const Piece& piece, std::int64_t image, std::span<const Tensor* const> inputs, Tensor& output) const {
    const std::int64_t all = image_.channels, first = (image * image_.pixels + piece.pixel) * all + piece.channel;
    const bool whole = piece.channels == all;
    const std::int64_t size = piece.pixels * piece.channels;
    thread_local ThreadMemory memory;  // Channels of a block side by side: the result, and what is added to it.
    float* const block = whole ? nullptr : memory.floats(static_cast<std::size_t>(size) * inputs.size());
    const auto copy = [&](const float* from, std::int64_t from_row, float* to, std::int64_t to_row) {
      for (std::int64_t p = 0; p < piece.pixels; ++p) std::copy_n(from + p * from_row, piece.channels, to + p * to_row);
    };
    std::vector<Tensor> operands{at(inputs[0]->data<float>() + image * image_.input + piece.input)};
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      const float* addend = inputs[i]->data<float>() + first;
      if (!whole) copy(addend, all, block + size * static_cast<std::int64_t>(i), piece.channels);
      operands.push_back(at(whole ? addend : block + size * static_cast<std::int64_t>(i)));
    }
    std::vector<const Tensor*> in;
    for (const Tensor& operand : operands) in.push_back(&operand);
    float* target = output.data<float>() + first;
    Tensor result = at(whole ? target : block);
    Tensor* const out = &result;
    piece.kernel->run(in, {&out, 1});
    if (bounds_) apply_post_ops({&*bounds_, 1}, inputs, whole ? target : block, 0, size);
    if (!whole) copy(block, piece.channels, target, all);
  }

  const std::vector<Piece> pieces_;
  const Image image_;
  const std::optional<PostOp> bounds_;
};

/// Stripes of this dimension, and blocks of channels: some eight million operations a piece at least, about sixteen at
/// most. Two, four or eight threads share an even number of stripes well.
struct Split {
  std::size_t axis = 2;
  std::int64_t stripes = 1, blocks = 1;
};

Split split_of(const ConvolutionSpec& spec) {
  Split split;
  if (spec.output.size() > 3 && spec.input[2] == 1 && spec.output[2] == 1) split.axis = 3;
  constexpr std::int64_t kPieces = 16, kWork = 4 << 20, kChannels = 64, kPixels = 24;
  const std::int64_t weights = num_elements(spec.kernel), channels = spec.output[1];
  const std::int64_t pixels = num_elements(spec.output) / spec.output[0] / channels;
  const std::int64_t extent = spec.output[split.axis];
  const std::int64_t wanted = std::clamp<std::int64_t>(pixels * weights / kWork, 1, kPieces);
  const std::int64_t rows = std::max<std::int64_t>(1, kPixels * extent / pixels);  // In a stripe, at least.
  const std::int64_t stripes = std::max<std::int64_t>(1, extent / rows);
  // What is read again for every piece is what takes less memory.
  if (weights > num_elements(spec.input) / spec.input[0] && spec.groups == 1)
    split.blocks = std::clamp<std::int64_t>(channels / kChannels, 1, wanted);
  split.stripes = std::min(stripes, (wanted + split.blocks - 1) / split.blocks);
  if (split.stripes > 1) split.stripes = std::min(stripes, split.stripes + split.stripes % 2) / 2 * 2;
  return split;
}

/// The convolution that computes `count` output channels from `first` on.
ConvolutionSpec block_of_channels(const ConvolutionSpec& whole, std::int64_t first, std::int64_t count) {
  ConvolutionSpec block = whole;
  block.output[1] = block.kernel[0] = count;
  const std::int64_t row_size = num_elements(whole.kernel) / whole.kernel[0];
  block.weights = [values = whole.weights, first, count, row_size, shape = block.kernel] {
    const Tensor all = values();
    Tensor part(DataType::kFloat32, shape);
    std::copy_n(all.data<float>() + first * row_size, count * row_size, part.data<float>());
    return part;
  };
  block.key += fmt::format("|channels {} {}", first, count);
  if (whole.bias) {
    block.bias = Tensor(DataType::kFloat32, {count});
    std::copy_n(whole.bias.data<float>() + first, count, block.bias.data<float>());
  }
  return block;
}

/// Nothing where a whole primitive has to do it.
std::unique_ptr<Kernel> make_piecewise_convolution(const ConvolutionSpec& spec, const Split& split,
                                                   std::optional<PostOp> bounds, const ObjectCache& cache) {
  const std::size_t axis = split.axis, s = axis - 2;
  const std::int64_t channels = spec.output[1], out_rows = spec.output[axis], in_rows = spec.input[axis];
  const std::int64_t image_in = num_elements(spec.input) / spec.input[0];
  const std::int64_t pixels = num_elements(spec.output) / spec.output[0] / channels;
  const std::int64_t width = (channels / split.blocks + 15) / 16 * 16;
  std::map<std::array<std::int64_t, 5>, std::shared_ptr<const Kernel>> made;
  std::vector<PiecewiseConvolution::Piece> pieces;
  for (std::int64_t channel = 0; channel < channels; channel += width)
    for (std::int64_t i = 0; i < split.stripes; ++i) {
      const std::int64_t row = out_rows * i / split.stripes;
      ConvolutionSpec stripe = spec;
      stripe.input[0] = stripe.output[0] = 1;
      stripe.output[axis] = out_rows * (i + 1) / split.stripes - row;
      const std::int64_t from = row * spec.strides[s] - spec.pads_begin[s];
      const std::int64_t to =
          from + (stripe.output[axis] - 1) * spec.strides[s] + (spec.kernel[axis] - 1) * spec.dilations[s] + 1;
      const std::int64_t begin = std::max<std::int64_t>(from, 0), end = std::min(to, in_rows);
      if (begin >= end) return nullptr;  // Pads alone.
      stripe.input[axis] = end - begin;
      stripe.pads_begin[s] = begin - from;
      const std::int64_t count = std::min(width, channels - channel);
      const ConvolutionSpec piece = count == channels ? stripe : block_of_channels(stripe, channel, count);
      std::shared_ptr<const Kernel>& kernel =
          made[{stripe.input[axis], stripe.pads_begin[s], stripe.output[axis], channel, piece.output[1]}];
      if (kernel == nullptr) {
        const ConvolutionDescs d = descs_of(piece);
        const auto desc = first_choice(piece, d);
        if (name_of(desc).find("brgconv") == std::string_view::npos) return nullptr;
        kernel = primitive_kernel<dnnl::convolution_forward>(piece, d, cache, *desc);
      }
      pieces.push_back({kernel, begin * image_in / in_rows, row * pixels / out_rows,
                        stripe.output[axis] * pixels / out_rows, channel, piece.output[1]});
    }
  return std::make_unique<PiecewiseConvolution>(
      std::move(pieces), PiecewiseConvolution::Image{spec.input[0], image_in, pixels, channels}, bounds);
}

/// The pieces, where the fastest primitive would sum in an order that depends on the number of threads. Whoever
/// computes a piece bounds it: its results are in that cache.
std::unique_ptr<Kernel> make_in_pieces(ConvolutionSpec spec, const ObjectCache& cache) {
  std::optional<PostOp> bounds;
  if (are_bounded(spec.post_ops)) {
    bounds = spec.post_ops.back();
    spec.post_ops.pop_back();
  }
  const Split split = split_of(spec);
  if (split.stripes * split.blocks == 1) return nullptr;
  const ScopedThreads single(1);
  const auto whole = first_choice(spec, descs_of(spec));
  const std::string_view name = name_of(whole);
  if (name.find("brgconv") == std::string_view::npos || !may_split_by_threads(name, spec)) return nullptr;
  try {
    return make_piecewise_convolution(spec, split, bounds, cache);
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

/// oneDNN's own loops for them know no dilation, among others; its product takes up to a hundred times as long. For
/// groups of a few channels it has that with AVX2, and loops that leave most of a vector empty with AVX-512.
bool takes_own_depthwise(ConvolutionSpec spec, const ConvolutionDescs& d) {
  if (spec.kernel[1] != 1) return true;
  if (are_bounded(spec.post_ops)) spec.post_ops.pop_back();
  const ScopedThreads single(1);
  return name_of(first_choice(spec, d)).find("dw") == std::string_view::npos;
}

/// Sums of integers are exact: nothing depends on threads.
std::unique_ptr<Kernel> make_byte_convolution(const ConvolutionSpec& spec, const ConvolutionDescs& d,
                                              const ObjectCache& cache) {
  return with_threads_for(operations_of(spec), [&](bool&) -> std::unique_ptr<Kernel> {
    try {
      auto desc = forward_desc(spec, d);
      const auto has_dot_products = [&] {
        const std::string_view name = desc.impl_info_str();
        return name.find("vnni") != std::string_view::npos ||
               (name.find("amx") != std::string_view::npos && is_faster_in_tiles(spec));
      };
      while (!has_dot_products())
        if (!desc.next_impl()) return nullptr;
      return primitive_kernel<dnnl::convolution_forward>(spec, d, cache, desc);
    } catch (const dnnl::error&) {
      return nullptr;
    }
  });
}

}  // namespace

std::unique_ptr<Kernel> make_convolution_kernel(const ConvolutionSpec& spec, const ObjectCache& cache) {
  using Forward = dnnl::convolution_forward;
  using Backward = dnnl::convolution_backward_data;
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
  const ConvolutionDescs d = descs_of(spec);
  if (spec.type != DataType::kFloat32) return make_byte_convolution(spec, d, cache);
  if (!spec.transposed) {
    if (auto product = make_pointwise_kernel(spec, cache)) return product;
    if (takes_own_depthwise(spec, d))
      if (auto depthwise = make_depthwise_kernel(spec, cache)) return depthwise;
    if (auto pieces = make_in_pieces(spec, cache)) return pieces;
    if (are_bounded(spec.post_ops)) return nullptr;
    return convolution_kernel<Forward>(spec, d, cache,
                                       [&] { return choose_convolution(spec, [&] { return forward_desc(spec, d); }); });
  }
  // What the gradient of a convolution with respect to its input computes. oneDNN's own deconvolution takes kernels
  // whose sums depend on the number of threads.
  return convolution_kernel<Backward>(spec, d, cache, [&]() -> ConvolutionChoice<Backward::primitive_desc> {
    std::shared_ptr<const Forward::primitive_desc> hint;  // Descriptions that are made of it refer to it.
    try {
      hint =
          std::make_shared<Forward::primitive_desc>(cpu_engine(), dnnl::prop_kind::forward_training, kDirect, d.target,
                                                    d.any, d.source, d.strides, d.dilations, d.begin, d.end);
    } catch (const dnnl::error&) {
      return {};
    }
    auto choice = choose_convolution(spec, [&] {
      return Backward::primitive_desc(cpu_engine(), kDirect, d.target, d.any, d.source, d.strides, d.dilations, d.begin,
                                      d.end, *hint, with_own_scratchpad());
    });
    choice.hint = std::move(hint);
    return choice;
  });
}

std::unique_ptr<Kernel> make_average_pool_kernel(const PoolSpec& spec) {
  if (ops::averages_in_double(spec.kernel)) return nullptr;  // As the reference kernel does.
  const auto algorithm = spec.form == ops::PoolForm::kAverageIncludingPads
                             ? dnnl::algorithm::pooling_avg_include_padding
                             : dnnl::algorithm::pooling_avg_exclude_padding;
  const memory::desc source = image(spec.input), target = image(spec.output);
  const Dims kernel = spatial(spec.kernel, 1), strides = spatial(spec.strides, 1),
             dilations = spatial(spec.dilations, 1), begin = spatial(spec.pads_begin, 0);
  const Dims end = end_padding(image_dims(spec.input), image_dims(spec.output), kernel, strides, dilations, begin);
  try {
    const dnnl::pooling_forward::primitive_desc desc(cpu_engine(), dnnl::prop_kind::forward_inference, algorithm,
                                                     source, target, strides, kernel, minus_one(dilations), begin, end,
                                                     with_own_scratchpad());
    using K = PrimitiveKernel<dnnl::pooling_forward>;
    return std::make_unique<K>(desc, std::vector<K::Argument>{{DNNL_ARG_SRC, source}},
                               K::Argument{DNNL_ARG_DST, target}, std::unordered_map<int, PreparedSource>{});
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

}  // namespace ulpscope::cpu
