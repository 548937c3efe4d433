#include "backend/cpu/integer_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "backend/cpu/byte_store.h"
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

/// Of a matrix of bytes: 16-bit words of IntegerPart::b, and of all of it.
Index byte_words(const MatrixShape& shape) { return round_up(shape.k, 4) / 2 * round_up(shape.n, panel()); }
Index byte_matrix_words(const MatrixShape& shape) { return byte_words(shape) + 2 * round_up(shape.n, panel()); }

/// The same for columns that byte_matrix() packs; `sums` of them.
void pack_byte_panel(const std::int16_t* b, Index row, Index step, Index k, Index width, std::int8_t* to,
                     std::int32_t* sums) {
  std::fill_n(sums, panel(), 0);
  for (Index i = 0; i < k; i += 4)
    for (Index c = 0; c < panel(); ++c)
      for (Index j = i; j < i + 4; ++j) {
        *to = j < k && c < width ? static_cast<std::int8_t>(b[j * row + c * step]) : std::int8_t{0};
        sums[c] += *to++;
      }
}

/// Rows of bytes as IntegerPart::bytes has them: uint8, int8 plus 128.
void copy_bytes_of_rows(const std::uint8_t* from, Index rows, Index k, std::uint8_t flip, std::uint8_t* to) {
  const Index stride = round_up(k, 4);
  for (Index r = 0; r < rows; ++r, from += k, to += stride) {
    for (Index i = 0; i < k; ++i) to[i] = static_cast<std::uint8_t>(from[i] ^ flip);
    std::fill_n(to + k, stride - k, std::uint8_t{0});
  }
}

/// Where rows of a product go: to sums, or through them to bytes.
class ProductOutput {
 public:
  /// `columns`: of the product.
  ProductOutput(Tensor& output, Index columns, const std::optional<ByteStore>& store, Range part)
      : output_(output), columns_(columns), part_(part) {
    if (store) form_ = store->from(part.begin);
  }

  /// Some rows from this one on, at most kRows where they become bytes.
  void multiply(IntegerPart& part, Index row) {
    static thread_local ThreadMemory sums;
    const Index at = row * columns_ + part_.begin;
    if (form_) {
      part.out_stride = part_.end - part_.begin;
      part.out = sums.floats(static_cast<std::size_t>(part.rows * part.out_stride));
      part.form = &*form_;
      part.stored = static_cast<std::uint8_t*>(output_.raw()) + at;
      part.stored_stride = columns_;
    } else {
      part.out = static_cast<float*>(output_.raw()) + at;
      part.out_stride = columns_;
    }
    part.columns = part_.end - part_.begin;
    program_kernels().product.multiply_integers(part);
  }

  static constexpr Index kRows = 48;

 private:
  Tensor& output_;
  const Index columns_;
  const Range part_;
  std::optional<ByteForm> form_;
};

std::optional<ByteStore> store_of(const std::optional<Requantization>& bytes, Index columns) {
  return bytes ? std::optional<ByteStore>(std::in_place, *bytes, 1, columns, panel()) : std::nullopt;
}

/// By dot products of bytes. `as_integers`, `bytes`: make_matmul_integer_kernel().
class ByteMatMul final : public Kernel {
 public:
  ByteMatMul(const MatMulSpec& spec, const ObjectCache& cache, bool as_integers,
             const std::optional<Requantization>& bytes = std::nullopt)
      : spec_(spec),
        pieces_(spec, spec.k, panel()),
        as_integers_(as_integers),
        store_(store_of(bytes, spec.n)),
        flip_(spec.type_a == DataType::kInt8 ? 0x80 : 0) {
    spec_.constant_b = {};
    const Index count = std::accumulate(spec.batch_b.begin(), spec.batch_b.end(), Index{1}, std::multiplies<>());
    weights_ = cache(fmt::format("packed bytes|{}|{} x {} x {}{}", spec.key_b, count, spec.k, spec.n,
                                 spec.transpose_b ? " transposed" : ""),
                     [shape = MatrixShape(spec), count, values = spec.constant_b] {
                       return pack_bytes(values().cast(DataType::kInt16), shape, count);
                     });
  }

  std::string name() const override { return fmt::format("packed product of bytes, {}", program_kernels().name); }

  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const std::shared_ptr<const void> held = weights_();
    const auto* bytes = static_cast<const std::uint8_t*>(inputs[0]->raw());
    const std::int32_t zero =
        !as_integers_ || inputs[1] == nullptr ? flip_ : static_cast<const std::uint8_t*>(inputs[1]->raw())[0] ^ flip_;
    const Index stride = round_up(spec_.k, 4);
    pieces_.for_each([&](const ProductPieces::Piece& piece) {
      const auto& [matrix, rows, columns] = piece;
      ProductOutput out(*outputs[0], spec_.n, store_, columns);
      ByteMatrix b = byte_matrix(held.get(), spec_, pieces_.matrix_of(spec_.batch_b, matrix), zero);
      if (store_) store_->add_bias(0, b.start);
      IntegerPart part{};
      part.a_stride = stride / 2;
      part.b = b.b + columns.begin * part.a_stride;
      part.start = b.start.data() + columns.begin;
      part.k = stride / 2;
      part.as_integers = as_integers_;
      part.bytes = true;
      const std::uint8_t* const first = bytes + pieces_.matrix_of(spec_.batch_a, matrix) * spec_.m * spec_.k;
      const bool in_place = flip_ == 0 && stride == spec_.k;
      const Index most = in_place && !store_ ? rows.end - rows.begin : ProductOutput::kRows;
      thread_local ThreadMemory memory;
      for (Index row = rows.begin; row < rows.end; row += most) {
        part.rows = std::min(most, rows.end - row);
        const std::uint8_t* a = first + row * spec_.k;
        if (!in_place) {
          auto* const copy = reinterpret_cast<std::uint8_t*>(memory.get(static_cast<std::size_t>(part.rows * stride)));
          copy_bytes_of_rows(a, part.rows, spec_.k, flip_, copy);
          a = copy;
        }
        part.a = reinterpret_cast<const std::int16_t*>(a);
        out.multiply(part, matrix * spec_.m + row);
      }
    });
  }

 private:
  MatMulSpec spec_;  ///< Without constant_b.
  const ProductPieces pieces_;
  const bool as_integers_;
  const std::optional<ByteStore> store_;
  const std::uint8_t flip_;  ///< Of each byte, to be unsigned.
  PreparedSource weights_;
};

class IntegerMatMul final : public Kernel {
 public:
  IntegerMatMul(const MatMulSpec& spec, const ObjectCache& cache, bool as_integers,
                const std::optional<Requantization>& bytes = std::nullopt)
      : spec_(spec), pieces_(spec, spec.k, panel()), as_integers_(as_integers), store_(store_of(bytes, spec.n)) {
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
    std::vector<std::int32_t> start(store_ ? static_cast<std::size_t>(round_up(spec_.n, panel())) : 0);
    if (store_) store_->add_bias(0, start);
    pieces_.for_each([&](const ProductPieces::Piece& piece) {
      const auto& [matrix, rows, columns] = piece;
      ProductOutput out(*outputs[0], spec_.n, store_, columns);
      IntegerPart part{};
      part.a_stride = round_up(spec_.k, 2);
      part.b = static_cast<const std::int16_t*>(held.get()) +
               pieces_.matrix_of(spec_.batch_b, matrix) * packed_pairs(spec_.k, spec_.n) +
               columns.begin * part.a_stride;
      part.k = spec_.k;
      if (store_) part.start = start.data() + columns.begin;
      part.as_integers = as_integers_;
      const Index first = pieces_.matrix_of(spec_.batch_a, matrix) * spec_.m;
      // As many rows as the second-level cache holds beside columns of b.
      constexpr Index kElements = 1 << 16;
      const Index most = std::clamp<Index>(kElements / part.a_stride / 6 * 6, 6, ProductOutput::kRows);
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
        out.multiply(part, matrix * spec_.m + row);
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
  const std::optional<ByteStore> store_;
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
bool multiplies_bytes_with_zeros(Index k) {
  return multiplies(k, 255, 128) && program_kernels().product.has_byte_products();
}

PreparedObject pack_bytes(const Tensor& values, const MatrixShape& shape, Index matrices) {
  const Index words = byte_matrix_words(shape), panels = divided_up(shape.n, panel()), k = round_up(shape.k, 4);
  const auto bytes = static_cast<std::size_t>(matrices * words) * sizeof(std::int16_t);
  std::shared_ptr<std::byte> memory = allocate_elements(bytes);
  const Index row = shape.transpose_b ? 1 : shape.n, step = shape.transpose_b ? shape.k : 1;
  for (Index i = 0; i < matrices * panels; ++i) {
    const Index matrix = i / panels, column = i % panels * panel();
    std::byte* const to = memory.get() + matrix * words * static_cast<Index>(sizeof(std::int16_t));
    pack_byte_panel(values.data<std::int16_t>() + matrix * shape.k * shape.n + column * step, row, step, shape.k,
                    std::min(panel(), shape.n - column), reinterpret_cast<std::int8_t*>(to) + column * k,
                    reinterpret_cast<std::int32_t*>(to + 2 * byte_words(shape)) + column);
  }
  return {std::move(memory), bytes};
}

ByteMatrix byte_matrix(const void* packed, const MatrixShape& shape, Index index, std::int32_t zero) {
  const auto* words = static_cast<const std::int16_t*>(packed) + index * byte_matrix_words(shape);
  const auto* sums = reinterpret_cast<const std::int32_t*>(words + byte_words(shape));
  ByteMatrix result{words, std::vector<std::int32_t>(static_cast<std::size_t>(round_up(shape.n, panel())))};
  for (std::size_t c = 0; c < result.start.size(); ++c) result.start[c] = -zero * sums[c];
  return result;
}

PreparedObject pack_integers(const Tensor& values, const MatrixShape& shape, Index matrices) {
  return values.type() == DataType::kInt16 ? pack_pairs<std::int16_t>(values, shape, matrices)
                                           : pack_pairs<std::int8_t>(values, shape, matrices);
}
Index packed_integers(const MatrixShape& shape) { return packed_pairs(shape.k, shape.n); }

std::unique_ptr<Kernel> make_integer_matmul_kernel(const MatMulSpec& spec, const ObjectCache& cache) {
  if (!spec.constant_b || spec.transpose_a || spec.k_end != 0 || spec.bias)
    throw InternalError("a product of integers has no constant matrix, or more than one");
  if (multiplies_bytes_with_zeros(spec.k)) return std::make_unique<ByteMatMul>(spec, cache, false);
  return std::make_unique<IntegerMatMul>(spec, cache, false);
}

std::unique_ptr<Kernel> make_matmul_integer_kernel(const MatMulSpec& spec, const ObjectCache& cache,
                                                   const std::optional<Requantization>& bytes) {
  if (spec.type_b == DataType::kInt8 && multiplies_bytes_with_zeros(spec.k))
    return std::make_unique<ByteMatMul>(spec, cache, true, bytes);
  return std::make_unique<IntegerMatMul>(spec, cache, true, bytes);
}

}  // namespace ulpscope::cpu
