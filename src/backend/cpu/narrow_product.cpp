#include "backend/cpu/narrow_product.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/memory.h"
#include "core/parallel.h"
#include "formats/stored_elements.h"

namespace ulpscope::cpu {
namespace {

/// A block of weights stays in the second-level cache.
constexpr std::int64_t kBlockElements = std::int64_t{1} << 18;
constexpr std::int64_t kColumns = 64;  ///< Blocks have a multiple of these.

float* block_of_thread(std::size_t elements) {
  thread_local std::shared_ptr<std::byte> memory;
  thread_local std::size_t size = 0;
  if (size < elements) {
    memory.reset();
    size = 0;
    memory = allocate_elements(elements * sizeof(float));
    size = elements;
  }
  return reinterpret_cast<float*>(memory.get());
}

class NarrowMatMul final : public Kernel {
 public:
  NarrowMatMul(const MatMulSpec& spec, std::shared_ptr<const TensorSource> weights, Rounding first, Rounding last)
      : m_(spec.m),
        k_(spec.k),
        n_(spec.n),
        columns_(std::clamp(kBlockElements / spec.k / kColumns, std::int64_t{1}, std::int64_t{8}) * kColumns),
        transposed_(spec.transpose_b),
        first_(first),
        last_(last),
        weights_(std::move(weights)),
        bias_(spec.bias) {
    const ScopedThreads single(1);
    const auto product = [&](std::int64_t columns) {
      MatMulSpec part = spec;
      part.n = columns;
      part.constant_b = {};
      part.bias = {};
      return make_matmul_kernel(part, {});
    };
    block_ = product(std::min(columns_, n_));
    if (n_ > columns_ && n_ % columns_ != 0) rest_ = product(n_ % columns_);
  }

  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    float* const out = outputs[0]->data<float>();
    const auto compute = [&](std::int64_t begin, std::int64_t end) {
      const ScopedThreads single(1);
      for (std::int64_t i = begin; i < end; ++i) multiply(*inputs[0], i * columns_, out);
    };
    parallel_for((n_ + columns_ - 1) / columns_, 1, compute);
  }

 private:
  void multiply(const Tensor& a, std::int64_t column, float* out) const {
    const std::int64_t columns = std::min(columns_, n_ - column);
    float* const block = block_of_thread(static_cast<std::size_t>((k_ + m_) * columns_));
    float* const results = block + k_ * columns_;
    if (transposed_)
      weights_->read(column * k_, columns * k_, block);
    else
      for (std::int64_t row = 0; row < k_; ++row) weights_->read(row * n_ + column, columns, block + row * columns);
    const auto size = static_cast<std::size_t>(columns * k_);
    if (first_ != Rounding::kNone) round_array(block, block, size, first_);
    if (last_ != Rounding::kNone) round_array(block, block, size, last_);
    const Tensor b = Tensor::borrow(DataType::kFloat32, {}, block, nullptr);
    Tensor product = Tensor::borrow(DataType::kFloat32, {}, results, nullptr);
    const std::array<const Tensor*, 2> in{&a, &b};
    Tensor* const to = &product;
    (columns == columns_ || rest_ == nullptr ? *block_ : *rest_).run(in, {&to, 1});
    const float* const bias = bias_ ? bias_.data<float>() + column : nullptr;
    for (std::int64_t row = 0; row < m_; ++row) {
      const float* const from = results + row * columns;
      float* const target = out + row * n_ + column;
      if (bias == nullptr)
        std::memcpy(target, from, static_cast<std::size_t>(columns) * sizeof(float));
      else
        for (std::int64_t c = 0; c < columns; ++c) target[c] = from[c] + bias[c];
    }
  }

  const std::int64_t m_, k_, n_, columns_;
  const bool transposed_;
  const Rounding first_, last_;
  const std::shared_ptr<const TensorSource> weights_;
  const Tensor bias_;
  std::unique_ptr<Kernel> block_, rest_;
};

}  // namespace

bool is_stored_narrow(const Tensor& value) {
  const auto source = value.source();
  const auto* stored = dynamic_cast<const StoredElements*>(source.get());
  return stored != nullptr && value.type() == DataType::kFloat32 &&
         (stored->stored() == DataType::kFloat16 || stored->stored() == DataType::kBFloat16);
}

std::unique_ptr<Kernel> make_narrow_matmul_kernel(const MatMulSpec& spec, const Tensor& weights, Rounding first,
                                                  Rounding last) {
  if (!is_stored_narrow(weights) || !spec.batch_a.empty() || !spec.batch_b.empty() || spec.k_end != 0 ||
      spec.transpose_a || products_depend_on_threads())
    return nullptr;
  return std::make_unique<NarrowMatMul>(spec, weights.source(), first, last);
}

}  // namespace ulpscope::cpu
