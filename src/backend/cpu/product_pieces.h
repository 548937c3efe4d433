// How matrix products are cut into tasks. Any cut gives the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "backend/product_form.h"

namespace ulpscope::cpu {

struct Range {
  std::int64_t begin, end;
};

/// The matrices of a product, whose operands may share some, and the pieces of each of them.
class ProductPieces {
 public:
  /// `panel`: of columns; where it is cut.
  ProductPieces(const MatrixShape& shape, std::int64_t k, std::int64_t panel);

  /// Which matrix of an operand of this batch the `index`-th one of the results is made of.
  std::int64_t matrix_of(const std::vector<std::int64_t>& batch, std::int64_t index) const;

  struct Piece {
    std::int64_t matrix;  ///< Of the results.
    Range rows, columns;
  };
  /// On all threads.
  void for_each(const std::function<void(const Piece&)>& compute) const;

 private:
  /// Every matrix in so many pieces, some of which are a task.
  struct Split {
    std::int64_t rows = 1, columns = 1, grain = 1;
  };
  Split split_over(int threads) const;
  Piece piece(const Split& split, std::int64_t index) const;

  const std::int64_t m_, n_, k_, panel_;
  std::vector<std::int64_t> batch_;
  std::int64_t matrices_ = 1;
};

}  // namespace ulpscope::cpu
