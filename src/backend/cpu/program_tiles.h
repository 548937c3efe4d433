// The domain of a program cut into tiles, and what each of its inputs has for one of them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/cpu/program.h"

namespace ulpscope::cpu {

class ProgramTiles {
 public:
  /// Nothing when the rows cannot be expressed, see ProgramBuilder::finish().
  static std::optional<ProgramTiles> make(const ProgramForm& form);

  /// Whole rows, or part of one.
  struct Tile {
    std::int64_t outer, row, column, rows, columns;
    std::int64_t elements() const { return rows * columns; }
  };
  std::int64_t count() const;
  Tile tile(std::int64_t index) const;
  /// Of a tile, at most.
  std::int64_t elements() const { return tile_rows_ * tile_columns_; }
  /// Where the tile begins in what is dense over the domain, and over its rows. Its elements are consecutive.
  std::int64_t offset(const Tile& tile) const { return first_row(tile) * inner_ + tile.column; }
  std::int64_t first_row(const Tile& tile) const { return tile.outer * rows_ + tile.row; }

  /// The input's values for a tile: where they lie, or in `place`, which has room for every tile.
  const float* load(std::size_t input, const float* base, const Tile& tile, float* place) const;
  /// One value per column, the same for all tiles: load_repeated() is enough, once.
  bool is_repeated(std::size_t input) const { return inputs_[input].repeated; }
  void load_repeated(std::size_t input, const float* base, float* place) const;

 private:
  struct Access {
    std::vector<std::int64_t> outer;  ///< Strides of the outer dimensions.
    std::int64_t row = 0, column = 0;
    Rounding rounding = Rounding::kNone;
    bool full = false;  ///< One value per element, else per row.
    bool repeated = false;
  };
  struct Loop {
    std::int64_t extent;
    std::vector<std::int64_t> strides;  ///< One per input.
  };

  bool collapse(const ProgramForm& form);
  bool repeats(const Access& access) const;

  std::int64_t inner_ = 1, rows_ = 1, outer_count_ = 1;
  Shape outer_;
  std::int64_t tile_rows_ = 1, tile_columns_ = 1;
  std::vector<Access> inputs_;
};

}  // namespace ulpscope::cpu
