#include "backend/cpu/product_pieces.h"

#include <algorithm>

#include "core/parallel.h"

namespace ulpscope::cpu {
namespace {

using Index = std::int64_t;

/// One of `count` even parts of [0, size), cut at multiples of `unit`.
Range part_of(Index size, Index unit, Index count, Index index) {
  const Index units = (size + unit - 1) / unit;
  return {std::min(size, index * units / count * unit), std::min(size, (index + 1) * units / count * unit)};
}

}  // namespace

ProductPieces::ProductPieces(const MatrixShape& shape, Index k, Index panel)
    : m_(shape.m), n_(shape.n), k_(k), panel_(panel) {
  for (std::size_t d = 0; d < shape.batch_a.size(); ++d) {
    batch_.push_back(std::max(shape.batch_a[d], shape.batch_b[d]));
    matrices_ *= batch_.back();
  }
}

Index ProductPieces::matrix_of(const std::vector<Index>& batch, Index index) const {
  Index matrix = 0, step = 1;
  for (std::size_t d = batch.size(); d-- > 0;) {
    if (batch[d] != 1) matrix += index % batch_[d] * step;
    index /= batch_[d];
    step *= batch[d];
  }
  return matrix;
}

void ProductPieces::for_each(const std::function<void(const Piece&)>& compute) const {
  const Split split = split_over(num_threads());
  parallel_for(matrices_ * split.rows * split.columns, split.grain, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      if (const Piece each = piece(split, i); each.rows.begin != each.rows.end) compute(each);
  });
}

/// The larger operand is cut first: each of its elements is read by one thread.
ProductPieces::Split ProductPieces::split_over(int threads) const {
  constexpr Index kForEachThread = 10'000, kPiece = 200'000;  // Operations; the latter take some 3 us.
  const Index operations = 2 * m_ * n_ * std::max<Index>(k_, 1) * matrices_;
  Split split;
  split.grain = matrices_;
  if (threads == 1 || operations < threads * kForEachThread) return split;
  const Index wanted = std::clamp<Index>(operations / kPiece, threads, Index{4} * threads);
  if (matrices_ >= wanted) {
    split.grain = matrices_ / wanted;
    return split;
  }
  constexpr Index kRows = 24;
  const Index each = (wanted + matrices_ - 1) / matrices_;
  const Index most_rows = (m_ + kRows - 1) / kRows, most_columns = (n_ + panel_ - 1) / panel_;
  if (n_ >= m_) {
    split.columns = std::min(each, most_columns);
    split.rows = std::min((each + split.columns - 1) / split.columns, most_rows);
  } else {
    split.rows = std::min(each, most_rows);
    split.columns = std::min((each + split.rows - 1) / split.rows, most_columns);
  }
  split.grain = 1;
  return split;
}

ProductPieces::Piece ProductPieces::piece(const Split& split, Index index) const {
  const Index pieces = split.rows * split.columns, inside = index % pieces;
  return {index / pieces, part_of(m_, 6, split.rows, inside / split.columns),
          part_of(n_, panel_, split.columns, inside % split.columns)};
}

}  // namespace ulpscope::cpu
