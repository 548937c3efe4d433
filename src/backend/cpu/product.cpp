#include "backend/cpu/product.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "backend/cpu/pool.h"
#include "core/file.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "ops/common.h"
#include "ulpscope/error.h"

namespace ulpscope::cpu {

bool products_depend_on_threads() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::isa_default:
    case dnnl::cpu_isa::sse41:
    case dnnl::cpu_isa::avx:
    case dnnl::cpu_isa::avx2:
    case dnnl::cpu_isa::avx2_vnni:
      return true;
    default:
      return false;
  }
}

namespace {

using dnnl::memory;
using Dims = memory::dims;
using DataKind = memory::data_type;

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& stream_of_thread() {
  thread_local dnnl::stream stream(cpu_engine());
  return stream;
}

memory::desc strided(const Dims& dims, const Dims& strides) { return memory::desc(dims, DataKind::f32, strides); }

struct Packed {
  std::shared_ptr<std::byte> bytes;
  dnnl::memory memory;
};

/// `offset`: elements of `values` before the first one of `from`.
PreparedObject pack(const memory::desc& from, const Tensor& values, const memory::desc& to, std::int64_t offset = 0) {
  memory source(from, cpu_engine(), const_cast<float*>(static_cast<const float*>(values.raw())) + offset);
  const std::shared_ptr<std::byte> bytes = allocate_weights(to.get_size());
  memory packed(to, cpu_engine(), bytes.get());
  if (from == to && to.get_size() == values.bytes()) {
    std::memcpy(packed.get_data_handle(), values.raw(), values.bytes());
  } else {
    dnnl::reorder(source, packed).execute(stream_of_thread(), source, packed);
    stream_of_thread().wait();
  }
  MappedFile::release(values.raw(), values.bytes());
  return {std::make_shared<Packed>(Packed{bytes, packed}), to.get_size()};
}

/// oneDNN's own scratchpad belongs to the thread that makes a primitive; ours is the thread's that runs it.
dnnl::primitive_attr with_own_scratchpad(dnnl::primitive_attr attributes = {}) {
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

void* scratchpad_of_thread(std::size_t bytes) {
  thread_local std::shared_ptr<std::byte> memory;
  thread_local std::size_t size = 0;
  if (size < bytes) {
    memory.reset();
    size = 0;
    memory = allocate_elements(bytes);
    size = bytes;
  }
  return memory.get();
}

/// Runs one primitive; arguments beyond the constants are set per run.
template <typename Primitive>
class PrimitiveKernel final : public Kernel {
 public:
  struct Argument {
    int index;  ///< DNNL_ARG_...
    memory::desc desc;
    std::int64_t offset = 0;  ///< Elements before the first one of `desc`.
  };

  PrimitiveKernel(typename Primitive::primitive_desc desc, std::vector<Argument> inputs, Argument output,
                  std::unordered_map<int, PreparedSource> constants)
      : primitive_(desc),
        scratchpad_(desc.scratchpad_desc()),
        inputs_(std::move(inputs)),
        output_(std::move(output)),
        constants_(std::move(constants)) {}

  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    std::unordered_map<int, memory> arguments;
    arguments.reserve(inputs_.size() + constants_.size() + 2);
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      arguments.emplace(inputs_[i].index, memory(inputs_[i].desc, cpu_engine(),
                                                 const_cast<float*>(inputs[i]->data<float>()) + inputs_[i].offset));
    std::vector<std::shared_ptr<const void>> held;
    for (const auto& [index, constant] : constants_) {
      held.push_back(constant());
      arguments.emplace(index, static_cast<const Packed*>(held.back().get())->memory);
    }
    arguments.emplace(output_.index, memory(output_.desc, cpu_engine(), outputs[0]->raw()));
    if (const std::size_t bytes = scratchpad_.get_size(); bytes != 0)
      arguments.emplace(DNNL_ARG_SCRATCHPAD, memory(scratchpad_, cpu_engine(), scratchpad_of_thread(bytes)));
    primitive_.execute(stream_of_thread(), arguments);
    stream_of_thread().wait();
  }

 private:
  const Primitive primitive_;
  const memory::desc scratchpad_;
  const std::vector<Argument> inputs_;
  const Argument output_;
  const std::unordered_map<int, PreparedSource> constants_;
};

/// Kept by its kernel.
PreparedSource pack_now(const memory::desc& desc, const Tensor& values) {
  return [object = pack(desc, values, desc).object] { return object; };
}

/// Two memory descriptors with equal text hold the same bytes in the same order.
std::string text_of(const memory::desc& desc) {
  std::string text = fmt::format("{}|", fmt::join(desc.get_padded_dims(), ","));
  text += fmt::format("{}|{}|{}", fmt::join(desc.get_strides(), ","), fmt::join(desc.get_inner_blks(), ","),
                      fmt::join(desc.get_inner_idxs(), ","));
  return text;
}

/// One constant may be read in several ways: transposed or not, with other groups.
std::string packed_key(const std::string& constant, const memory::desc& from, const memory::desc& to) {
  return fmt::format("packed|{}|{}|{}", constant, text_of(from), text_of(to));
}

/// As MatMulSpec::panels_b says.
bool is_in_panels(const memory::desc& desc) {
  const Dims padded = desc.get_padded_dims();
  return padded.size() == 2 && desc.get_inner_blks() == Dims{16, 64} && desc.get_inner_idxs() == Dims{0, 1} &&
         desc.get_strides() == Dims{16 * 64, padded[0] * 64};
}

std::unique_ptr<Kernel> make_whole_matmul(const MatMulSpec& spec, const ObjectCache& cache) {
  const bool sliced = spec.k_end != 0;
  const std::int64_t slice = sliced ? spec.k_end - spec.k_begin : spec.k;
  const auto operand = [](const std::vector<std::int64_t>& batch, std::int64_t rows, std::int64_t columns,
                          bool transposed) {
    Dims dims(batch.begin(), batch.end());
    dims.push_back(transposed ? columns : rows);
    dims.push_back(transposed ? rows : columns);
    Dims strides = ops::strides_of(dims);
    if (transposed) {
      std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
      std::swap(strides[dims.size() - 1], strides[dims.size() - 2]);
    }
    return strided(dims, strides);
  };
  // A slice of k has the strides of the whole.
  const auto slice_of = [&](const memory::desc& whole, std::size_t k_from_end) {
    Dims dims = whole.get_dims();
    const Dims strides = whole.get_strides();
    dims[dims.size() - k_from_end] = slice;
    return strided(dims, strides);
  };
  const memory::desc a = slice_of(operand(spec.batch_a, spec.m, spec.k, spec.transpose_a), 1);
  const memory::desc b = slice_of(operand(spec.batch_b, spec.k, spec.n, spec.transpose_b), 2);
  const std::int64_t offset_a = spec.k_begin * (spec.transpose_a ? spec.m : 1);
  const std::int64_t offset_b = spec.k_begin * (spec.transpose_b ? 1 : spec.n);
  Dims out_dims;
  for (std::size_t d = 0; d < spec.batch_a.size(); ++d) out_dims.push_back(std::max(spec.batch_a[d], spec.batch_b[d]));
  out_dims.push_back(spec.m);
  out_dims.push_back(spec.n);
  const memory::desc out = strided(out_dims, ops::strides_of(out_dims));
  const bool constant = static_cast<bool>(spec.constant_b);
  const memory::desc b_any =
      constant || spec.panels_b ? memory::desc(b.get_dims(), DataKind::f32, memory::format_tag::any) : b;
  Dims bias_dims(out_dims.size(), 1);
  bias_dims.back() = spec.n;
  const memory::desc bias = strided(bias_dims, ops::strides_of(bias_dims));
  using Desc = dnnl::matmul::primitive_desc;
  const Desc desc = spec.bias ? Desc(cpu_engine(), a, b_any, bias, out, with_own_scratchpad())
                              : Desc(cpu_engine(), a, b_any, out, with_own_scratchpad());
  using K = PrimitiveKernel<dnnl::matmul>;
  std::vector<K::Argument> inputs{{DNNL_ARG_SRC, a, offset_a}};
  std::unordered_map<int, PreparedSource> constants;
  if (constant) {
    const memory::desc packed = desc.weights_desc();
    const std::string part = sliced ? fmt::format("|k {}", spec.k_begin) : "";
    constants[DNNL_ARG_WEIGHTS] =
        cache(packed_key(spec.key_b + part, b, packed),
              [b, packed, offset_b, values = spec.constant_b] { return pack(b, values(), packed, offset_b); });
  } else if (spec.panels_b) {
    if (!is_in_panels(desc.weights_desc())) return nullptr;
    inputs.push_back({DNNL_ARG_WEIGHTS, desc.weights_desc()});
  } else {
    inputs.push_back({DNNL_ARG_WEIGHTS, b, offset_b});
  }
  if (spec.bias) constants[DNNL_ARG_BIAS] = pack_now(bias, spec.bias);
  return std::make_unique<K>(desc, std::move(inputs), K::Argument{DNNL_ARG_DST, out}, std::move(constants));
}

class OneThreadKernel final : public Kernel {
 public:
  explicit OneThreadKernel(std::unique_ptr<Kernel> kernel) : kernel_(std::move(kernel)) {}
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const ScopedThreads single(1);
    kernel_->run(inputs, outputs);
  }

 private:
  const std::unique_ptr<Kernel> kernel_;
};

/// A product as independent pieces, each computed by one thread: blocks of rows, or the matrices of a batch.
class PiecewiseMatMul final : public Kernel {
 public:
  struct Stride {
    std::int64_t a, b, out;  ///< Elements from one piece to the next; b: 0 where all pieces share it.
  };

  PiecewiseMatMul(std::unique_ptr<Kernel> piece, std::unique_ptr<Kernel> last, std::int64_t count, Stride stride)
      : piece_(std::move(piece)), last_(std::move(last)), count_(count), stride_(stride) {}

  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const auto compute = [&](std::int64_t begin, std::int64_t end) {
      const ScopedThreads single(1);
      for (std::int64_t i = begin; i < end; ++i) {
        const Tensor a = part(*inputs[0], i * stride_.a);
        const Tensor b = inputs.size() > 1 ? part(*inputs[1], i * stride_.b) : Tensor();
        Tensor out = part(*outputs[0], i * stride_.out);
        const std::array<const Tensor*, 2> in{&a, &b};
        Tensor* const result = &out;
        const Kernel& kernel = last_ != nullptr && i + 1 == count_ ? *last_ : *piece_;
        kernel.run(std::span(in).first(inputs.size()), {&result, 1});
      }
    };
    parallel_for(count_, 1, compute);
  }

 private:
  /// The primitive knows its shape; of the tensor it takes the address only.
  static Tensor part(const Tensor& tensor, std::int64_t offset) {
    return Tensor::borrow(DataType::kFloat32, {}, const_cast<float*>(tensor.data<float>()) + offset, nullptr);
  }

  const std::unique_ptr<Kernel> piece_, last_;
  const std::int64_t count_;
  const Stride stride_;
};

std::unique_ptr<Kernel> make_piecewise_matmul(const MatMulSpec& spec, const ObjectCache& cache) {
  const ScopedThreads single(1);
  const bool batch = spec.batch_a.size() == 1 && spec.batch_a == spec.batch_b;
  if (batch) {
    MatMulSpec one = spec;
    one.batch_a.clear();
    one.batch_b.clear();
    return std::make_unique<PiecewiseMatMul>(
        make_whole_matmul(one, cache), nullptr, spec.batch_a[0],
        PiecewiseMatMul::Stride{spec.m * spec.k, spec.k * spec.n, spec.m * spec.n});
  }
  constexpr std::int64_t kRows = 16;
  if (!spec.batch_a.empty() || spec.transpose_a || spec.m <= kRows)
    return std::make_unique<PiecewiseMatMul>(make_whole_matmul(spec, cache), nullptr, 1,
                                             PiecewiseMatMul::Stride{0, 0, 0});
  MatMulSpec block = spec, rest = spec;
  block.m = kRows;
  rest.m = spec.m % kRows;
  return std::make_unique<PiecewiseMatMul>(
      make_whole_matmul(block, cache), rest.m != 0 ? make_whole_matmul(rest, cache) : nullptr,
      (spec.m + kRows - 1) / kRows, PiecewiseMatMul::Stride{kRows * spec.k, 0, kRows * spec.n});
}

}  // namespace

std::unique_ptr<Kernel> make_matmul_kernel(const MatMulSpec& spec, const ObjectCache& cache) {
  return products_depend_on_threads() ? make_piecewise_matmul(spec, cache) : make_whole_matmul(spec, cache);
}

namespace {

/// [n, c, s...] dims as nhwc memory; one spatial dimension becomes a row of height 1.
Dims image_dims(const Shape& shape) {
  Dims dims(shape.begin(), shape.end());
  if (dims.size() == 3) dims.insert(dims.begin() + 2, 1);
  return dims;
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

memory::desc image(const Shape& shape) {
  return memory::desc(image_dims(shape), DataKind::f32, memory::format_tag::nhwc);
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
  return strided(dims, ops::strides_of(dims));
}

memory::desc without_groups(const memory::desc& desc, std::int64_t groups) {
  if (groups != 1) return desc;
  const Dims dims = desc.get_dims(), strides = desc.get_strides();
  return strided({dims.begin() + 1, dims.end()}, {strides.begin() + 1, strides.end()});
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

/// A primitive whose results have the same bits for every number of threads; the "jit" kernels are as fast on small
/// work. `make`: gives a fresh description. Nothing where oneDNN has none; `one_thread`: it has to run on one.
template <typename MakeDesc>
auto choose_convolution(const ConvolutionSpec& spec, const MakeDesc& make, bool& one_thread)
    -> std::optional<decltype(make())> {
  const auto name = [](const auto& desc) { return std::string_view(desc.impl_info_str()); };
  try {
    auto desc = make();
    bool more = true;
    while (more && may_split_by_threads(name(desc), spec)) more = desc.next_impl();
    one_thread = !more || name(desc).starts_with("ref");
    if (!one_thread && name(desc).find("gemm") == std::string_view::npos) return desc;
    const ScopedThreads single(1);
    auto alone = make();
    // Where it takes a slow one depends on the threads, too. Our reference kernel takes over.
    if (name(alone).starts_with("ref")) return std::nullopt;
    return one_thread ? alone : desc;
  } catch (const dnnl::error&) {
    return std::nullopt;
  }
}

struct ConvolutionDescs {
  memory::desc source, target, weights, any, bias;
  Dims strides, dilations, begin, end;
};

ConvolutionDescs descs_of(const ConvolutionSpec& spec) {
  ConvolutionDescs d;
  d.source = image(spec.input);
  d.target = image(spec.output);
  d.weights = without_groups(weights_desc(spec), spec.groups);
  d.any = memory::desc(d.weights.get_dims(), DataKind::f32, memory::format_tag::any);
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

template <typename Primitive, typename MakeDesc>
std::unique_ptr<Kernel> convolution_kernel(const ConvolutionSpec& spec, const ConvolutionDescs& d,
                                           const ObjectCache& cache, const MakeDesc& make) {
  bool one_thread = false;
  const auto desc = choose_convolution(spec, make, one_thread);
  if (!desc) return nullptr;  // The reference kernel takes over.
  std::optional<ScopedThreads> single;
  if (one_thread) single.emplace(1);
  using K = PrimitiveKernel<Primitive>;
  std::vector<typename K::Argument> inputs{{spec.transposed ? DNNL_ARG_DIFF_DST : DNNL_ARG_SRC, d.source}};
  for (std::size_t i = 0; i < spec.post_ops.size(); ++i)
    if (spec.post_ops[i].kind == PostOp::Kind::kAddTensor)
      inputs.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1, d.target});
  std::unordered_map<int, PreparedSource> constants;
  const memory::desc packed = desc->weights_desc();
  constants[DNNL_ARG_WEIGHTS] =
      cache(packed_key(spec.key, d.weights, packed),
            [from = d.weights, packed, values = spec.weights] { return pack(from, values(), packed); });
  if (spec.bias) constants[DNNL_ARG_BIAS] = pack_now(d.bias, spec.bias);
  auto kernel = std::make_unique<K>(*desc, std::move(inputs),
                                    typename K::Argument{spec.transposed ? DNNL_ARG_DIFF_SRC : DNNL_ARG_DST, d.target},
                                    std::move(constants));
  if (one_thread) return std::make_unique<OneThreadKernel>(std::move(kernel));
  return kernel;
}

}  // namespace

std::unique_ptr<Kernel> make_convolution_kernel(const ConvolutionSpec& spec, const ObjectCache& cache) {
  using Forward = dnnl::convolution_forward;
  using Backward = dnnl::convolution_backward_data;
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
  const ConvolutionDescs d = descs_of(spec);
  if (!spec.transposed)
    return convolution_kernel<Forward>(spec, d, cache, [&] {
      return Forward::primitive_desc(cpu_engine(), dnnl::prop_kind::forward_inference, kDirect, d.source, d.any, d.bias,
                                     d.target, d.strides, d.dilations, d.begin, d.end, attributes_of(spec));
    });
  // What the gradient of a convolution with respect to its input computes. oneDNN's own deconvolution takes kernels
  // whose sums depend on the number of threads.
  std::optional<Forward::primitive_desc> hint;  // Descriptions that are made of it refer to it.
  try {
    hint.emplace(cpu_engine(), dnnl::prop_kind::forward_training, kDirect, d.target, d.any, d.source, d.strides,
                 d.dilations, d.begin, d.end);
  } catch (const dnnl::error&) {
    return nullptr;
  }
  return convolution_kernel<Backward>(spec, d, cache, [&] {
    return Backward::primitive_desc(cpu_engine(), kDirect, d.target, d.any, d.source, d.strides, d.dilations, d.begin,
                                    d.end, *hint, with_own_scratchpad());
  });
}

std::unique_ptr<Kernel> make_average_pool_kernel(const PoolSpec& spec) {
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
