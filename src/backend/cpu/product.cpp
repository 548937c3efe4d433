#include "backend/cpu/product.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "backend/cpu/integer_product.h"
#include "backend/cpu/onednn.h"
#include "backend/cpu/packed_product.h"
#include "ops/common.h"

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

using namespace onednn;

/// As MatMulSpec::panels_b says.
bool is_in_panels(const memory::desc& desc) {
  const Dims padded = desc.get_padded_dims();
  return padded.size() == 2 && desc.get_inner_blks() == Dims{16, 64} && desc.get_inner_idxs() == Dims{0, 1} &&
         desc.get_strides() == Dims{16 * 64, padded[0] * 64};
}

/// One primitive for all of the product. A slice of k has the strides of the whole and an offset, so that nothing is
/// copied for it; a constant b is packed once into the layout that oneDNN chooses, under a key that all plans share.
std::unique_ptr<Kernel> make_whole_matmul(const MatMulSpec& spec, const ObjectCache& cache) {
  const bool sliced = spec.k_end != 0;
  const std::int64_t slice = sliced ? spec.k_end - spec.k_begin : spec.k;
  const auto operand = [](const std::vector<std::int64_t>& batch, std::int64_t rows, std::int64_t columns,
                          bool transposed, DataType type) {
    Dims dims(batch.begin(), batch.end());
    dims.push_back(transposed ? columns : rows);
    dims.push_back(transposed ? rows : columns);
    Dims strides = ops::strides_of(dims);
    if (transposed) {
      std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
      std::swap(strides[dims.size() - 1], strides[dims.size() - 2]);
    }
    return memory::desc(dims, data_kind(type), strides);
  };
  // A slice of k has the strides of the whole.
  const auto slice_of = [&](const memory::desc& whole, std::size_t k_from_end) {
    Dims dims = whole.get_dims();
    const Dims strides = whole.get_strides();
    dims[dims.size() - k_from_end] = slice;
    return memory::desc(dims, whole.get_data_type(), strides);
  };
  const memory::desc a = slice_of(operand(spec.batch_a, spec.m, spec.k, spec.transpose_a, spec.type_a), 1);
  const memory::desc b = slice_of(operand(spec.batch_b, spec.k, spec.n, spec.transpose_b, spec.type_b), 2);
  const std::int64_t offset_a = spec.k_begin * (spec.transpose_a ? spec.m : 1);
  const std::int64_t offset_b = spec.k_begin * (spec.transpose_b ? 1 : spec.n);
  Dims out_dims;
  for (std::size_t d = 0; d < spec.batch_a.size(); ++d) out_dims.push_back(std::max(spec.batch_a[d], spec.batch_b[d]));
  out_dims.push_back(spec.m);
  out_dims.push_back(spec.n);
  const memory::desc out = strided(out_dims, ops::strides_of(out_dims));
  const bool constant = static_cast<bool>(spec.constant_b);
  const memory::desc b_any =
      constant || spec.panels_b ? memory::desc(b.get_dims(), b.get_data_type(), memory::format_tag::any) : b;
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

/// A product as independent pieces, each computed by one thread: blocks of rows, or the matrices of a batch.
class PiecewiseMatMul final : public Kernel {
 public:
  struct Stride {
    std::int64_t a, b, out;  ///< Elements from one piece to the next; b: 0 where all pieces share it.
  };

  /// `kernels`: one per piece; or one for all but the last piece, and that of the last one; or one for all.
  PiecewiseMatMul(std::vector<std::unique_ptr<Kernel>> kernels, std::int64_t count, Stride stride)
      : kernels_(std::move(kernels)), count_(count), stride_(stride) {}

  std::string name() const override { return fmt::format("{} pieces, {}", count_, kernels_[0]->name()); }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const auto compute = [&](std::int64_t begin, std::int64_t end) {
      const ScopedThreads single(1);
      for (std::int64_t i = begin; i < end; ++i) {
        const Tensor a = part(*inputs[0], i * stride_.a);
        const Tensor b = inputs.size() > 1 ? part(*inputs[1], i * stride_.b) : Tensor();
        Tensor out = part(*outputs[0], i * stride_.out);
        const std::array<const Tensor*, 2> in{&a, &b};
        Tensor* const result = &out;
        kernel_of(i).run(std::span(in).first(inputs.size()), {&result, 1});
      }
    };
    parallel_for(count_, 1, compute);
  }

 private:
  const Kernel& kernel_of(std::int64_t piece) const {
    if (static_cast<std::int64_t>(kernels_.size()) == count_) return *kernels_[static_cast<std::size_t>(piece)];
    return piece + 1 == count_ ? *kernels_.back() : *kernels_.front();
  }

  /// The primitive knows its shape; of the tensor it takes the address only.
  static Tensor part(const Tensor& tensor, std::int64_t offset) {
    return Tensor::borrow(DataType::kFloat32, {}, const_cast<float*>(tensor.data<float>()) + offset, nullptr);
  }

  const std::vector<std::unique_ptr<Kernel>> kernels_;
  const std::int64_t count_;
  const Stride stride_;
};

/// The matrix of a batch of constants.
MatMulSpec product_of_batch(MatMulSpec spec, std::int64_t index) {
  spec.batch_a.clear();
  spec.batch_b.clear();
  if (!spec.constant_b) return spec;
  spec.key_b += fmt::format("|matrix {}", index);
  spec.constant_b = [all = std::move(spec.constant_b), shape = Shape{spec.k, spec.n}, index] {
    const Tensor whole = all();
    const std::int64_t offset = index * num_elements(shape) * static_cast<std::int64_t>(size_of(whole.type()));
    void* const matrix = static_cast<std::byte*>(const_cast<void*>(whole.raw())) + offset;
    return Tensor::borrow(whole.type(), shape, matrix, std::make_shared<Tensor>(whole));
  };
  return spec;
}

std::unique_ptr<Kernel> make_piecewise_matmul(const MatMulSpec& spec, const ObjectCache& cache) {
  const ScopedThreads single(1);
  using Stride = PiecewiseMatMul::Stride;
  std::vector<std::unique_ptr<Kernel>> kernels;
  if (spec.batch_a.size() == 1 && spec.batch_a == spec.batch_b) {
    const std::int64_t count = spec.batch_a[0];
    for (std::int64_t i = 0; i < (spec.constant_b ? count : 1); ++i)
      kernels.push_back(make_whole_matmul(product_of_batch(spec, i), cache));
    return std::make_unique<PiecewiseMatMul>(std::move(kernels), count,
                                             Stride{spec.m * spec.k, spec.k * spec.n, spec.m * spec.n});
  }
  constexpr std::int64_t kRows = 16;
  if (!spec.batch_a.empty() || spec.transpose_a || spec.m <= kRows) {
    kernels.push_back(make_whole_matmul(spec, cache));
    return std::make_unique<PiecewiseMatMul>(std::move(kernels), 1, Stride{0, 0, 0});
  }
  MatMulSpec rows = spec;
  rows.m = kRows;
  kernels.push_back(make_whole_matmul(rows, cache));
  if (rows.m = spec.m % kRows; rows.m != 0) kernels.push_back(make_whole_matmul(rows, cache));
  return std::make_unique<PiecewiseMatMul>(std::move(kernels), (spec.m + kRows - 1) / kRows,
                                           Stride{kRows * spec.k, 0, kRows * spec.n});
}

}  // namespace

std::unique_ptr<Kernel> make_short_matmul_kernel(const MatMulSpec& spec, const ObjectCache& cache) {
  if (spec.type_a != DataType::kFloat32 && !multiplies_bytes(spec.k)) return make_integer_matmul_kernel(spec, cache);
  const bool depends = products_depend_on_threads() && spec.type_a == DataType::kFloat32;  // Sums of integers do not.
  if (depends) {
    auto packed = make_packed_matmul_kernel(spec, cache);
    return packed ? std::move(packed) : make_piecewise_matmul(spec, cache);
  }
  std::int64_t operations = 2 * spec.m * spec.k * spec.n;
  for (std::size_t d = 0; d < spec.batch_a.size(); ++d) operations *= std::max(spec.batch_a[d], spec.batch_b[d]);
  if (spec.panels_b) return make_whole_matmul(spec, cache);
  return with_threads_for(operations, [&](bool&) { return make_whole_matmul(spec, cache); });
}

namespace {

bool has_instructions(dnnl::cpu_isa wanted) {
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  return isa != dnnl::cpu_isa::isa_default &&
         (static_cast<int>(isa) & static_cast<int>(wanted)) == static_cast<int>(wanted);
}

}  // namespace

bool multiplies_bytes(std::int64_t k) {
  constexpr std::int64_t kLongest = (std::int64_t{1} << 31) / (256 * 128) - 1;  // In 32 bits; oneDNN adds 128 to int8.
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  return k <= kLongest && (isa == dnnl::cpu_isa::avx2_vnni || isa == dnnl::cpu_isa::avx2_vnni_2 ||
                           has_instructions(dnnl::cpu_isa::avx512_core_vnni));
}

bool multiplies_in_tiles() { return has_instructions(dnnl::cpu_isa::avx512_core_amx); }

}  // namespace ulpscope::cpu
