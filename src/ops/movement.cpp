#include "ops/movement.h"

#include <algorithm>

#include "core/parallel.h"
#include "core/vector_clones.h"

namespace ulpscope::ops {
namespace {

/// A copy with unit dimensions dropped and dimensions merged where both sides allow it.
struct Loops {
  Shape sizes;
  std::vector<std::int64_t> in, out;
};

Loops simplify(const Shape& shape, std::span<const std::int64_t> in, std::span<const std::int64_t> out) {
  Loops loops;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    if (!loops.sizes.empty() && loops.in.back() == in[d] * shape[d] && loops.out.back() == out[d] * shape[d]) {
      loops.sizes.back() *= shape[d];
      loops.in.back() = in[d];
      loops.out.back() = out[d];
      continue;
    }
    loops.sizes.push_back(shape[d]);
    loops.in.push_back(in[d]);
    loops.out.push_back(out[d]);
  }
  return loops;
}

/// Calls row(in offset, out offset) for every index of the first `rank` loops, in parallel.
template <typename Row>
void for_each_row(const Loops& loops, std::size_t rank, std::int64_t bytes_per_row, Row&& row) {
  const std::int64_t rows = product(loops.sizes, 0, rank);
  parallel_for(rows, items_per_task(rows, bytes_per_row / 4), [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t> index(rank);
    std::int64_t in = 0, out = 0, rest = begin;
    for (std::size_t d = rank; d-- > 0;) {
      index[d] = rest % loops.sizes[d];
      rest /= loops.sizes[d];
      in += index[d] * loops.in[d];
      out += index[d] * loops.out[d];
    }
    for (std::int64_t r = begin; r < end; ++r) {
      row(in, out);
      for (std::size_t d = rank; d-- > 0;) {
        in += loops.in[d];
        out += loops.out[d];
        if (++index[d] < loops.sizes[d]) break;
        in -= loops.in[d] * loops.sizes[d];
        out -= loops.out[d] * loops.sizes[d];
        index[d] = 0;
      }
    }
  });
}

/// The dimension, other than the last, along which the input is contiguous: there a plain loop would touch one element
/// per cache line.
std::optional<std::size_t> transposed_dimension(const Loops& loops) {
  if (loops.out.back() != 1) return std::nullopt;
  for (std::size_t d = 0; d + 1 < loops.sizes.size(); ++d)
    if (loops.in[d] == 1) return d;
  return std::nullopt;
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define ULPSCOPE_HAS_SHUFFLES 1
#endif
#endif

/// to[i * out_step + k] = from[i + k * in_step] for a square of four words.
void transpose_four(const std::uint32_t* from, std::int64_t in_step, std::uint32_t* to, std::int64_t out_step) {
#ifdef ULPSCOPE_HAS_SHUFFLES
  using Four = std::uint32_t __attribute__((vector_size(16)));
  Four row[4];
  for (int k = 0; k < 4; ++k) std::memcpy(&row[k], from + k * in_step, sizeof(Four));
  const Four low_a = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
  const Four low_b = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
  const Four high_a = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
  const Four high_b = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
  const Four columns[4] = {
      __builtin_shufflevector(low_a, low_b, 0, 1, 4, 5), __builtin_shufflevector(low_a, low_b, 2, 3, 6, 7),
      __builtin_shufflevector(high_a, high_b, 0, 1, 4, 5), __builtin_shufflevector(high_a, high_b, 2, 3, 6, 7)};
  for (int i = 0; i < 4; ++i) std::memcpy(to + i * out_step, &columns[i], sizeof(Four));
#else
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 4; ++k) to[i * out_step + k] = from[i + k * in_step];
#endif
}

/// to[k * to_row + i] = from[i * rows + k]: an image's channels, taken apart.
template <int rows, typename Word>
ULPSCOPE_VECTOR_CLONES void unweave(const Word* __restrict from, Word* to, std::int64_t to_row, std::int64_t count) {
  Word* __restrict a = to, * __restrict b = to + to_row, * __restrict c = b + to_row, * __restrict d = c + to_row;
  for (std::int64_t i = 0; i < count; ++i) {
    a[i] = from[i * rows];
    b[i] = from[i * rows + 1];
    if constexpr (rows > 2) c[i] = from[i * rows + 2];
    if constexpr (rows > 3) d[i] = from[i * rows + 3];
  }
}

/// to[i * rows + k] = from[k * from_row + i].
template <int rows, typename Word>
ULPSCOPE_VECTOR_CLONES void weave(const Word* from, std::int64_t from_row, Word* __restrict to, std::int64_t count) {
  const Word *a = from, *b = from + from_row, *c = b + from_row, *d = c + from_row;
  for (std::int64_t i = 0; i < count; ++i) {
    to[i * rows] = a[i];
    to[i * rows + 1] = b[i];
    if constexpr (rows > 2) to[i * rows + 2] = c[i];
    if constexpr (rows > 3) to[i * rows + 3] = d[i];
  }
}

/// Copies with few rows in the input, or in the output, that are woven into one on the other side. False: it is none.
template <typename Word>
bool copy_woven(const void* in, void* out, const Loops& outer, const Loops& loops, std::size_t dimension) {
  constexpr std::int64_t kPiece = 4096;
  const std::int64_t height = loops.sizes[dimension], width = loops.sizes.back();
  const std::int64_t in_step = loops.in.back(), out_step = loops.out[dimension];
  const bool apart = height <= 4 && in_step == height, together = width <= 4 && out_step == width;
  if (!apart && !together) return false;
  const std::int64_t rows = apart ? height : width, count = apart ? width : height;
  const auto run_pieces = [&](auto copy, std::int64_t first, std::int64_t pieces, std::int64_t size) {
    Loops cut = outer;
    cut.sizes.push_back(pieces);
    cut.in.push_back(kPiece * (apart ? in_step : 1));
    cut.out.push_back(kPiece * (apart ? 1 : out_step));
    for_each_row(cut, cut.sizes.size(), size * rows * static_cast<std::int64_t>(sizeof(Word)),
                 [&](std::int64_t from, std::int64_t to) {
                   copy(static_cast<const Word*>(in) + from + first * (apart ? in_step : 1),
                        static_cast<Word*>(out) + to + first * (apart ? 1 : out_step), size);
                 });
  };
  const auto run = [&](auto copy) {
    const std::int64_t whole = count / kPiece;
    if (whole > 0) run_pieces(copy, 0, whole, kPiece);
    if (count % kPiece != 0) run_pieces(copy, whole * kPiece, 1, count % kPiece);
  };
  const auto run_rows = [&]<int number>(std::integral_constant<int, number>) {
    run([&](const Word* from, Word* to, std::int64_t size) {
      apart ? unweave<number>(from, to, out_step, size) : weave<number>(from, in_step, to, size);
    });
  };
  rows == 2   ? run_rows(std::integral_constant<int, 2>{})
  : rows == 3 ? run_rows(std::integral_constant<int, 3>{})
              : run_rows(std::integral_constant<int, 4>{});
  return true;
}

template <typename Word>
void copy_transposed(const void* in, void* out, Loops loops, std::size_t dimension) {
  constexpr std::int64_t kTile = 64 / sizeof(Word) > 16 ? 16 : 64 / sizeof(Word);
  const std::size_t last = loops.sizes.size() - 1;
  const std::int64_t height = loops.sizes[dimension], width = loops.sizes[last];
  const std::int64_t in_step = loops.in[last], out_step = loops.out[dimension];
  // The dimension becomes the second to last, counted in tiles.
  Loops outer = loops;
  for (auto* list : {&outer.sizes, &outer.in, &outer.out}) {
    list->erase(list->begin() + static_cast<std::ptrdiff_t>(dimension));
    list->pop_back();
  }
  if (copy_woven<Word>(in, out, outer, loops, dimension)) return;
  const std::size_t outer_rank = outer.sizes.size();
  // Rows of the input are far apart: with tasks enough, four cache lines of each are read while its page is open.
  const std::int64_t tile = height * product(outer.sizes, 0, outer_rank) >= 32 * kTile ? 4 * kTile : kTile;
  const std::int64_t whole = height / tile;
  const auto run_tiles = [&](std::int64_t first, std::int64_t tiles, std::int64_t rows) {
    Loops tiled = outer;
    tiled.sizes.push_back(tiles);
    tiled.in.push_back(tile);
    tiled.out.push_back(tile * out_step);
    for_each_row(tiled, outer_rank + 1, width * rows * static_cast<std::int64_t>(sizeof(Word)),
                 [&](std::int64_t from, std::int64_t to) {
                   from += first;
                   to += first * out_step;
                   for (std::int64_t j = 0; j < width; j += kTile) {
                     const std::int64_t columns = std::min(kTile, width - j);
                     std::int64_t squares = 0;  // Words in each direction that are done in squares.
                     if constexpr (std::is_same_v<Word, std::uint32_t>) {
                       if (rows % 4 == 0) squares = columns / 4 * 4;
                       for (std::int64_t i = 0; squares > 0 && i < rows; i += 4)
                         for (std::int64_t k = 0; k < squares; k += 4)
                           transpose_four(static_cast<const Word*>(in) + from + i + (j + k) * in_step, in_step,
                                          static_cast<Word*>(out) + to + i * out_step + j + k, out_step);
                     }
                     for (std::int64_t i = 0; i < rows; ++i)
                       for (std::int64_t k = squares; k < columns; ++k)
                         store_word(out, to + i * out_step + j + k, load_word<Word>(in, from + i + (j + k) * in_step));
                   }
                 });
  };
  run_tiles(0, whole, tile);
  if (height % tile != 0) run_tiles(whole * tile, 1, height % tile);
}

template <typename Word>
void copy_loops(const void* in, void* out, const Loops& loops) {
  const std::size_t last = loops.sizes.size() - 1;
  const std::int64_t count = loops.sizes[last], from_step = loops.in[last], to_step = loops.out[last];
  const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(Word));
  if (from_step == 1 && to_step == 1) {
    for_each_row(loops, last, bytes, [&](std::int64_t from, std::int64_t to) {
      std::memcpy(static_cast<std::byte*>(out) + to * static_cast<std::int64_t>(sizeof(Word)),
                  static_cast<const std::byte*>(in) + from * static_cast<std::int64_t>(sizeof(Word)),
                  static_cast<std::size_t>(bytes));
    });
  } else if (from_step == 0 && to_step == 1) {
    for_each_row(loops, last, bytes, [&](std::int64_t from, std::int64_t to) {
      std::fill_n(static_cast<Word*>(out) + to, count, load_word<Word>(in, from));
    });
  } else if (const auto dimension = transposed_dimension(loops)) {
    copy_transposed<Word>(in, out, loops, *dimension);
  } else {
    const auto copy = [&](auto in_step, auto out_step) {
      for_each_row(loops, last, bytes, [&](std::int64_t from, std::int64_t to) {
        for (std::int64_t i = 0; i < count; ++i)
          store_word(out, to + i * out_step, load_word<Word>(in, from + i * in_step));
      });
    };
    using Two = std::integral_constant<std::int64_t, 2>;
    if (from_step == 2 && to_step == 1)
      copy(Two{}, std::integral_constant<std::int64_t, 1>{});
    else
      copy(from_step, to_step);
  }
}

}  // namespace

const std::byte* element(const Tensor& tensor, std::int64_t at) noexcept {
  return static_cast<const std::byte*>(tensor.raw()) + at * static_cast<std::int64_t>(size_of(tensor.type()));
}

std::byte* element(Tensor& tensor, std::int64_t at) noexcept {
  return static_cast<std::byte*>(tensor.raw()) + at * static_cast<std::int64_t>(size_of(tensor.type()));
}

void copy_strided(DataType type, const void* in, std::span<const std::int64_t> in_strides, void* out,
                  std::span<const std::int64_t> out_strides, const Shape& shape) {
  if (std::ranges::find(shape, 0) != shape.end()) return;
  Loops loops = simplify(shape, in_strides, out_strides);
  if (loops.sizes.empty()) {
    std::memcpy(out, in, size_of(type));
    return;
  }
  if (loops.sizes.size() == 1 && loops.in[0] == 1 && loops.out[0] == 1)
    return copy_bytes(in, out, static_cast<std::size_t>(loops.sizes[0]) * size_of(type));
  with_word(type, [&](auto word) { copy_loops<decltype(word)>(in, out, loops); });
}

void copy_strided(DataType type, const void* in, std::span<const std::int64_t> in_strides, void* out,
                  const Shape& shape) {
  copy_strided(type, in, in_strides, out, strides_of(shape), shape);
}

void copy_bytes(const void* in, void* out, std::size_t bytes) {
  parallel_for(static_cast<std::int64_t>(bytes), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(static_cast<std::byte*>(out) + begin, static_cast<const std::byte*>(in) + begin,
                static_cast<std::size_t>(end - begin));
  });
}

void fill_elements(DataType type, void* out, std::int64_t count, const void* value) {
  const auto size = static_cast<std::int64_t>(size_of(type));
  parallel_for(count, items_per_task(count, 1), [&](std::int64_t begin, std::int64_t end) {
    copy_strided(type, value, std::vector<std::int64_t>{0}, static_cast<std::byte*>(out) + begin * size,
                 Shape{end - begin});
  });
}

void run_copy(KernelContext& ctx) { copy_bytes(ctx.input(0).raw(), ctx.output(0).raw(), ctx.output(0).bytes()); }

std::vector<std::int64_t> inverse_permutation(std::span<const std::int64_t> perm) {
  std::vector<std::int64_t> result(perm.size());
  for (std::size_t d = 0; d < perm.size(); ++d)
    result[static_cast<std::size_t>(perm[d])] = static_cast<std::int64_t>(d);
  return result;
}

void copy_permuted(const Tensor& in, const Shape& shape, std::span<const std::int64_t> perm, Tensor& out) {
  const std::vector<std::int64_t> dense = strides_of(shape);
  std::vector<std::int64_t> strides(perm.size());
  Shape result(perm.size());
  for (std::size_t d = 0; d < perm.size(); ++d) {
    strides[d] = dense[static_cast<std::size_t>(perm[d])];
    result[d] = shape[static_cast<std::size_t>(perm[d])];
  }
  copy_strided(in.type(), in.raw(), strides, out.raw(), result);
}

}  // namespace ulpscope::ops
