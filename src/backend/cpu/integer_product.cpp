#include "backend/cpu/integer_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "backend/cpu/product_pieces.h"
#include "backend/cpu/program_kernels.h"
#include "backend/cpu/thread_memory.h"
#include "core/division.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "ulpscope/error.h"

namespace ulpscope::cpu {
namespace {

using Index = std::int64_t;

Index panel() { return program_kernels().product.panel; }
/// Elements of a packed matrix.
Index packed_pairs(Index k, Index n) { return round_up(k, 2) * round_up(n, panel()); }

/// Columns [column, column + panel) of a matrix b as IntegerPart::b wants them. `row`, `step`: from row to row, and
/// from column to column.
template <typename T>
void pack_panel(const T* b, Index row, Index step, Index k, Index width, std::int16_t* to) {
  for (Index i = 0; i < k; i += 2)
    for (Index c = 0; c < panel(); ++c)
      for (Index j = i; j < i + 2; ++j) *to++ = j < k && c < width ? b[j * row + c * step] : std::int16_t{0};
}

template <typename T>
PreparedObject pack_pairs(const Tensor& values, const MatrixShape& shape, Index matrices) {
  const Index size = packed_pairs(shape.k, shape.n), panels = (shape.n + panel() - 1) / panel();
  const auto bytes = static_cast<std::size_t>(matrices * size) * sizeof(std::int16_t);
  std::shared_ptr<std::byte> memory = allocate_elements(bytes);
  auto* const to = reinterpret_cast<std::int16_t*>(memory.get());
  const Index row = shape.transpose_b ? 1 : shape.n, step = shape.transpose_b ? shape.k : 1;
  parallel_for(
      matrices * panels, std::max<Index>(1, (1 << 16) / (shape.k * panel() + 1)), [&](Index first, Index last) {
        for (Index i = first; i < last; ++i) {
          const Index column = i % panels * panel();
          pack_panel(values.data<T>() + i / panels * shape.k * shape.n + column * step, row, step, shape.k,
                     std::min(panel(), shape.n - column), to + i / panels * size + column * round_up(shape.k, 2));
        }
      });
  return {std::move(memory), bytes};
}

template <typename T>
void widen(const T* from, Index rows, Index k, std::int16_t zero, std::int16_t* to) {
  const Index stride = round_up(k, 2);
  for (Index r = 0; r < rows; ++r, from += k, to += stride) {
    for (Index i = 0; i < k; ++i) to[i] = static_cast<std::int16_t>(from[i] - zero);
    if (stride != k) to[k] = 0;
  }
}

class IntegerMatMul final : public Kernel {
 public:
  /// `as_integers`: make_matmul_integer_kernel().
  IntegerMatMul(const MatMulSpec& spec, const ObjectCache& cache, bool as_integers)
      : spec_(spec), pieces_(spec, spec.k, panel()), as_integers_(as_integers) {
    spec_.constant_b = {};
    const Index count = std::accumulate(spec.batch_b.begin(), spec.batch_b.end(), Index{1}, std::multiplies<>());
    weights_ = cache(fmt::format("packed integers|{}|{} x {} x {}{}", spec.key_b, count, spec.k, spec.n,
                                 spec.transpose_b ? " transposed" : ""),
                     [shape = MatrixShape(spec), count, values = spec.constant_b, as_integers] {
                       return as_integers ? pack_pairs<std::int16_t>(values(), shape, count)
                                          : pack_pairs<std::int8_t>(values(), shape, count);
                     });
  }

  std::string name() const override { return fmt::format("packed product of integers, {}", program_kernels().name); }

  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const std::shared_ptr<const void> held = weights_();
    const std::int16_t zero = as_integers_ && inputs[1] != nullptr ? element(*inputs[1]) : std::int16_t{0};
    auto* const out = static_cast<float*>(outputs[0]->raw());
    pieces_.for_each([&](const ProductPieces::Piece& piece) {
      const auto& [matrix, rows, columns] = piece;
      IntegerPart part{};
      part.a_stride = round_up(spec_.k, 2);
      part.b = static_cast<const std::int16_t*>(held.get()) +
               pieces_.matrix_of(spec_.batch_b, matrix) * packed_pairs(spec_.k, spec_.n) +
               columns.begin * part.a_stride;
      part.out_stride = spec_.n;
      part.columns = columns.end - columns.begin;
      part.k = spec_.k;
      part.as_integers = as_integers_;
      const Index first = pieces_.matrix_of(spec_.batch_a, matrix) * spec_.m;
      // As many rows as the second-level cache holds beside columns of b.
      constexpr Index kElements = 1 << 16;
      const Index most = std::clamp<Index>(kElements / part.a_stride / 6 * 6, 6, 48);
      thread_local ThreadMemory memory;
      for (Index row = rows.begin; row < rows.end; row += most) {
        part.rows = std::min(most, rows.end - row);
        auto* const a = reinterpret_cast<std::int16_t*>(
            memory.get(static_cast<std::size_t>(part.rows * part.a_stride) * sizeof(std::int16_t)));
        if (spec_.type_a == DataType::kUInt8)
          widen(inputs[0]->data<std::uint8_t>() + (first + row) * spec_.k, part.rows, spec_.k, zero, a);
        else
          widen(inputs[0]->data<std::int8_t>() + (first + row) * spec_.k, part.rows, spec_.k, zero, a);
        part.a = a;
        part.out = out + (matrix * spec_.m + row) * spec_.n + columns.begin;
        program_kernels().product.multiply_integers(part);
      }
    });
  }

 private:
  static std::int16_t element(const Tensor& zero) {
    return zero.type() == DataType::kUInt8 ? std::int16_t{zero.data<std::uint8_t>()[0]}
                                           : std::int16_t{zero.data<std::int8_t>()[0]};
  }

  MatMulSpec spec_;  ///< Without constant_b.
  const ProductPieces pieces_;
  const bool as_integers_;
  PreparedSource weights_;
};

}  // namespace

namespace {

bool multiplies(Index k, Index largest_a, Index largest_b) {
  return program_kernels().product.multiply_integers != nullptr && k < (Index{1} << 31) / (largest_a * largest_b);
}

}  // namespace

bool multiplies_integers(Index k) { return multiplies(k, 255, 128); }
bool multiplies_centered_integers(Index k) { return multiplies(k, 255, 255); }

PreparedObject pack_integers(const Tensor& values, const MatrixShape& shape) {
  return pack_pairs<std::int8_t>(values, shape, 1);
}

std::unique_ptr<Kernel> make_integer_matmul_kernel(const MatMulSpec& spec, const ObjectCache& cache) {
  if (!spec.constant_b || spec.transpose_a || spec.k_end != 0 || spec.bias)
    throw InternalError("a product of integers has no constant matrix, or more than one");
  return std::make_unique<IntegerMatMul>(spec, cache, false);
}

std::unique_ptr<Kernel> make_matmul_integer_kernel(const MatMulSpec& spec, const ObjectCache& cache) {
  return std::make_unique<IntegerMatMul>(spec, cache, true);
}

}  // namespace ulpscope::cpu
