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
void pack_panel(const std::int8_t* b, Index row, Index step, Index k, Index width, std::int16_t* to) {
  for (Index i = 0; i < k; i += 2)
    for (Index c = 0; c < panel(); ++c)
      for (Index j = i; j < i + 2; ++j) *to++ = j < k && c < width ? b[j * row + c * step] : std::int16_t{0};
}

PreparedObject pack_pairs(const Tensor& values, const MatrixShape& shape, Index matrices) {
  const Index size = packed_pairs(shape.k, shape.n), panels = (shape.n + panel() - 1) / panel();
  const auto bytes = static_cast<std::size_t>(matrices * size) * sizeof(std::int16_t);
  std::shared_ptr<std::byte> memory = allocate_weights(bytes);
  auto* const to = reinterpret_cast<std::int16_t*>(memory.get());
  const Index row = shape.transpose_b ? 1 : shape.n, step = shape.transpose_b ? shape.k : 1;
  parallel_for(
      matrices * panels, std::max<Index>(1, (1 << 16) / (shape.k * panel() + 1)), [&](Index first, Index last) {
        for (Index i = first; i < last; ++i) {
          const Index column = i % panels * panel();
          pack_panel(values.data<std::int8_t>() + i / panels * shape.k * shape.n + column * step, row, step, shape.k,
                     std::min(panel(), shape.n - column), to + i / panels * size + column * round_up(shape.k, 2));
        }
      });
  return {std::move(memory), bytes};
}

template <typename T>
void widen(const T* from, Index rows, Index k, std::int16_t* to) {
  const Index stride = round_up(k, 2);
  for (Index r = 0; r < rows; ++r, from += k, to += stride) {
    for (Index i = 0; i < k; ++i) to[i] = from[i];
    if (stride != k) to[k] = 0;
  }
}

class IntegerMatMul final : public Kernel {
 public:
  IntegerMatMul(const MatMulSpec& spec, const ObjectCache& cache) : spec_(spec), pieces_(spec, spec.k, panel()) {
    spec_.constant_b = {};
    const Index count = std::accumulate(spec.batch_b.begin(), spec.batch_b.end(), Index{1}, std::multiplies<>());
    weights_ = cache(
        fmt::format("packed integers|{}|{} x {} x {}{}", spec.key_b, count, spec.k, spec.n,
                    spec.transpose_b ? " transposed" : ""),
        [shape = MatrixShape(spec), count, values = spec.constant_b] { return pack_pairs(values(), shape, count); });
  }

  std::string name() const override { return fmt::format("packed product of integers, {}", program_kernels().name); }

  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const std::shared_ptr<const void> held = weights_();
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
          widen(inputs[0]->data<std::uint8_t>() + (first + row) * spec_.k, part.rows, spec_.k, a);
        else
          widen(inputs[0]->data<std::int8_t>() + (first + row) * spec_.k, part.rows, spec_.k, a);
        part.a = a;
        part.out = outputs[0]->data<float>() + (matrix * spec_.m + row) * spec_.n + columns.begin;
        program_kernels().product.multiply_integers(part);
      }
    });
  }

 private:
  MatMulSpec spec_;  ///< Without constant_b.
  const ProductPieces pieces_;
  PreparedSource weights_;
};

}  // namespace

bool multiplies_integers(Index k) {
  constexpr Index kLongest = (Index{1} << 31) / (255 * 128) - 1;
  return program_kernels().product.multiply_integers != nullptr && k <= kLongest;
}

std::unique_ptr<Kernel> make_integer_matmul_kernel(const MatMulSpec& spec, const ObjectCache& cache) {
  if (!spec.constant_b || spec.transpose_a || spec.k_end != 0 || spec.bias)
    throw InternalError("a product of integers has no constant matrix, or more than one");
  return std::make_unique<IntegerMatMul>(spec, cache);
}

}  // namespace ulpscope::cpu
