#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "backend/cpu/product.h"
#include "backend/cpu/thread_memory.h"
#include "core/parallel.h"
#include "formats/stored_elements.h"

namespace ulpscope::cpu {
namespace {

/// A block of weights stays in the second-level cache.
constexpr std::int64_t kBlockElements = std::int64_t{1} << 18;
constexpr std::int64_t kPanel = 64;  ///< Columns: blocks have a multiple of these.

/// Numbers of float16 or bfloat16, aligned or not, as float32.
void widen(DataType type, const std::byte* in, float* out, std::size_t count) {
  constexpr std::size_t kMost = 256;
  alignas(64) std::uint16_t bits[kMost];
  for (std::size_t at = 0; at < count; at += kMost) {
    const std::size_t some = std::min(kMost, count - at);
    std::memcpy(bits, in + at * sizeof *bits, some * sizeof *bits);
    if (type == DataType::kFloat16)
      widen_f16(bits, out + at, some);
    else
      for (std::size_t i = 0; i < some; ++i) out[at + i] = bf16_value(bits[i]);
  }
}

class NarrowMatMul final : public Kernel {
 public:
  NarrowMatMul(const MatMulSpec& spec, std::shared_ptr<const TensorSource> source, const StoredElements& weights,
               Rounding first, Rounding last)
      : m_(spec.m),
        k_(spec.k),
        n_(spec.n),
        columns_(std::clamp(kBlockElements / spec.k / kPanel, std::int64_t{1}, std::int64_t{8}) * kPanel),
        transposed_(spec.transpose_b),
        first_(first),
        last_(last),
        owner_(std::move(source)),
        weights_(weights.bytes()),
        type_(weights.stored()),
        bias_(spec.bias) {
    const ScopedThreads single(1);
    const auto product = [&](std::int64_t columns) {
      MatMulSpec part = spec;
      part.n = columns;
      part.constant_b = {};
      part.bias = {};
      part.panels_b = panels_;
      return make_matmul_kernel(part, {});
    };
    const bool has_rest = n_ > columns_ && n_ % columns_ != 0;
    for (panels_ = !transposed_;; panels_ = false) {
      block_ = product(std::min(columns_, n_));
      if (has_rest && block_ != nullptr) rest_ = product(n_ % columns_);
      if (block_ != nullptr && (!has_rest || rest_ != nullptr)) break;
    }
  }

  std::string name() const override { return "narrow weights, " + block_->name(); }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    float* const out = outputs[0]->data<float>();
    const auto compute = [&](std::int64_t begin, std::int64_t end) {
      const ScopedThreads single(1);
      for (std::int64_t i = begin; i < end; ++i) multiply(*inputs[0], i * columns_, out);
    };
    parallel_for((n_ + columns_ - 1) / columns_, 1, compute);
  }

 private:
  static constexpr std::int64_t kRows = 16;  ///< Panels have a multiple of these.

  std::int64_t padded_rows() const { return (k_ + kRows - 1) / kRows * kRows; }

  /// Elements from number `begin` on.
  void read(std::int64_t begin, std::int64_t count, float* to) const {
    const auto size = static_cast<std::size_t>(count);
    widen(type_, weights_ + static_cast<std::size_t>(begin) * sizeof(std::uint16_t), to, size);
    if (first_ != Rounding::kNone) round_array(to, to, size, first_);
    if (last_ != Rounding::kNone) round_array(to, to, size, last_);
  }

  void read_block(std::int64_t column, std::int64_t columns, float* block) const {
    if (transposed_) return read(column * k_, columns * k_, block);
    if (!panels_) {
      for (std::int64_t row = 0; row < k_; ++row) read(row * n_ + column, columns, block + row * columns);
      return;
    }
    // Rows are far apart, so that the processor does not see which comes next.
    constexpr std::int64_t kAhead = 12, kLine = 64 / static_cast<std::int64_t>(sizeof(std::uint16_t));
    for (std::int64_t row = 0; row < padded_rows(); ++row) {
      if (row + kAhead < k_)
        for (std::int64_t c = 0; c < columns; c += kLine)
          __builtin_prefetch(weights_ +
                             static_cast<std::size_t>((row + kAhead) * n_ + column + c) * sizeof(std::uint16_t));
      for (std::int64_t panel = 0; panel < columns; panel += kPanel) {
        const std::int64_t some = row < k_ ? std::min(kPanel, columns - panel) : 0;
        float* const to = block + panel * padded_rows() + row * kPanel;
        if (some > 0) read(row * n_ + column + panel, some, to);
        std::fill(to + some, to + kPanel, 0.0f);
      }
    }
  }

  void multiply(const Tensor& a, std::int64_t column, float* out) const {
    const std::int64_t columns = std::min(columns_, n_ - column);
    thread_local ThreadMemory memory;
    float* const block = memory.floats(static_cast<std::size_t>((padded_rows() + m_) * columns_));
    float* const results = block + padded_rows() * columns_;
    read_block(column, columns, block);
    const Tensor b = Tensor::borrow(DataType::kFloat32, {}, block, nullptr);
    Tensor product = Tensor::borrow(DataType::kFloat32, {}, results, nullptr);
    const std::array<const Tensor*, 2> in{&a, &b};
    Tensor* const to = &product;
    (rest_ == nullptr || columns == columns_ ? *block_ : *rest_).run(in, {&to, 1});
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
  const std::shared_ptr<const TensorSource> owner_;
  const std::byte* const weights_;
  const DataType type_;
  const Tensor bias_;
  bool panels_ = false;  ///< Blocks are panels, as oneDNN packs.
  std::unique_ptr<Kernel> block_, rest_;
};

/// Null for other tensors than float32 that are stored as float16 or bfloat16.
const StoredElements* narrow_elements(const Tensor& value, const std::shared_ptr<const TensorSource>& source) {
  const auto* stored = dynamic_cast<const StoredElements*>(source.get());
  const bool narrow = stored != nullptr && value.type() == DataType::kFloat32 &&
                      (stored->stored() == DataType::kFloat16 || stored->stored() == DataType::kBFloat16);
  return narrow ? stored : nullptr;
}

}  // namespace

bool is_stored_narrow(const Tensor& value) { return narrow_elements(value, value.source()) != nullptr; }

std::unique_ptr<Kernel> make_narrow_matmul_kernel(const MatMulSpec& spec, const Tensor& weights, Rounding first,
                                                  Rounding last) {
  auto source = weights.source();
  const StoredElements* stored = narrow_elements(weights, source);
  if (stored == nullptr || !spec.batch_a.empty() || !spec.batch_b.empty() || spec.k_end != 0 || is_long_sum(spec) ||
      spec.transpose_a || products_depend_on_threads())
    return nullptr;
  return std::make_unique<NarrowMatMul>(spec, std::move(source), *stored, first, last);
}

}  // namespace ulpscope::cpu
