#include "backend/cpu/program_tiles.h"

#include <algorithm>
#include <cstring>

namespace ulpscope::cpu {

std::optional<ProgramTiles> ProgramTiles::make(const ProgramForm& form) {
  ProgramTiles tiles;
  if (!tiles.collapse(form)) return std::nullopt;
  for (Access& access : tiles.inputs_) access.repeated = tiles.repeats(access);
  return tiles;
}

/// Makes loops of the domain: neighboring dimensions that all inputs step over evenly are one loop, so that most
/// programs have two, the tile's rows and columns, and loops around them. False where a row is not one loop: reductions
/// go along a single one.
bool ProgramTiles::collapse(const ProgramForm& form) {
  const std::size_t row_begin = form.domain.size() - static_cast<std::size_t>(form.row_dims);
  std::vector<Loop> outer, row;
  const auto add = [&](std::vector<Loop>& loops, std::size_t d) {
    if (form.domain[d] == 1) return;
    Loop loop{form.domain[d], {}};
    for (const auto& input : form.inputs) loop.strides.push_back(input.strides[d]);
    // Two loops are one when every input steps over the inner one evenly.
    if (!loops.empty()) {
      bool merge = true;
      for (std::size_t i = 0; i < loop.strides.size(); ++i)
        merge &= loops.back().strides[i] == loop.strides[i] * loop.extent;
      if (merge) {
        loops.back().extent *= loop.extent;
        loops.back().strides = loop.strides;
        return;
      }
    }
    loops.push_back(std::move(loop));
  };
  for (std::size_t d = 0; d < row_begin; ++d) add(outer, d);
  for (std::size_t d = row_begin; d < form.domain.size(); ++d) add(row, d);
  if (row.size() > 1) return false;
  // What a reduction yields of nothing is the reference kernels' to say.
  if (!row.empty() && row.back().extent == 0) return false;
  const std::vector<std::int64_t> none(form.inputs.size(), 0);
  const bool has_rows = form.row_dims > 0;
  if (!has_rows) {
    if (outer.empty()) outer.push_back({1, none});
    row.push_back(outer.back());
    outer.pop_back();
  }
  if (row.empty()) row.push_back({1, none});
  if (outer.empty()) outer.push_back({1, none});
  inner_ = row.back().extent;
  rows_ = outer.back().extent;
  outer_count_ = 1;
  for (std::size_t i = 0; i + 1 < outer.size(); ++i) {
    outer_.push_back(outer[i].extent);
    outer_count_ *= outer[i].extent;
  }
  for (std::size_t i = 0; i < form.inputs.size(); ++i) {
    const auto& input = form.inputs[i];
    Access access{{}, outer.back().strides[i], row.back().strides[i], input.rounding};
    access.full = form.registers[input.target].kind == ProgramForm::Kind::kFull;
    for (std::size_t d = 0; d + 1 < outer.size(); ++d) access.outer.push_back(outer[d].strides[i]);
    inputs_.push_back(std::move(access));
  }
  // 6 KiB a register: a handful of them fit the first-level cache. Nothing has to, where values are read where they
  // lie.
  const bool in_place = !has_rows && std::ranges::all_of(inputs_, [](const Access& access) {
    return access.column == 1 && access.rounding == Rounding::kNone;
  });
  const std::int64_t elements = in_place && rows_ == 1 ? 4096 : 1536;
  tile_columns_ = has_rows ? inner_ : std::min(inner_, elements);
  tile_rows_ = std::clamp<std::int64_t>(elements / std::max<std::int64_t>(tile_columns_, 1), 1,
                                        std::max<std::int64_t>(rows_, 1));
  return true;
}

std::int64_t ProgramTiles::count() const {
  if (rows_ * inner_ * outer_count_ == 0) return 0;
  const std::int64_t row_tiles = (rows_ + tile_rows_ - 1) / tile_rows_;
  const std::int64_t column_tiles = (inner_ + tile_columns_ - 1) / tile_columns_;
  return outer_count_ * row_tiles * column_tiles;
}

ProgramTiles::Tile ProgramTiles::tile(std::int64_t index) const {
  const std::int64_t row_tiles = (rows_ + tile_rows_ - 1) / tile_rows_;
  const std::int64_t column_tiles = (inner_ + tile_columns_ - 1) / tile_columns_;
  Tile tile{};
  tile.column = index % column_tiles * tile_columns_;
  tile.row = index / column_tiles % row_tiles * tile_rows_;
  tile.outer = index / column_tiles / row_tiles;
  tile.rows = std::min(tile_rows_, rows_ - tile.row);
  tile.columns = std::min(tile_columns_, inner_ - tile.column);
  return tile;
}

/// Where it lies is good enough for a single row.
bool ProgramTiles::repeats(const Access& access) const {
  if (tile_rows_ == 1 && access.column == 1 && access.rounding == Rounding::kNone) return false;
  return access.full && tile_columns_ == inner_ && access.row == 0 &&
         std::ranges::all_of(access.outer, [](std::int64_t stride) { return stride == 0; });
}

void ProgramTiles::load_repeated(std::size_t input, const float* base, float* place) const {
  const Access& access = inputs_[input];
  for (std::int64_t c = 0; c < inner_; ++c) place[c] = base[c * access.column];
  const std::int64_t count = tile_rows_ * inner_;
  for (std::int64_t known = inner_; known < count; known *= 2)
    std::copy_n(place, std::min(known, count - known), place + known);
  if (access.rounding != Rounding::kNone) round_array(place, place, static_cast<std::size_t>(count), access.rounding);
}

const float* ProgramTiles::load(std::size_t input, const float* base, const Tile& tile, float* place) const {
  const Access& access = inputs_[input];
  std::int64_t offset = tile.row * access.row + tile.column * access.column, outer = tile.outer;
  for (std::size_t d = outer_.size(); d-- > 0;) {
    offset += outer % outer_[d] * access.outer[d];
    outer /= outer_[d];
  }
  const float* source = base + offset;
  const std::int64_t rows = tile.rows, columns = tile.columns;
  std::int64_t count = rows * columns;
  if (!access.full) {
    count = rows;
    if (access.row == 1 && access.rounding == Rounding::kNone) return source;
    for (std::int64_t r = 0; r < rows; ++r) place[r] = source[r * access.row];
  } else if (access.column == 1 && (rows == 1 || access.row == columns)) {
    if (access.rounding == Rounding::kNone) return source;
    round_array(source, place, static_cast<std::size_t>(count), access.rounding);
    return place;
  } else {
    for (std::int64_t r = 0; r < rows; ++r) {
      float* to = place + r * columns;
      const float* from = source + r * access.row;
      if (access.row == 0 && r > 0)
        std::memcpy(to, place, static_cast<std::size_t>(columns) * sizeof(float));
      else if (access.column == 1)
        std::memcpy(to, from, static_cast<std::size_t>(columns) * sizeof(float));
      else if (access.column == 0)
        std::fill(to, to + columns, *from);
      else
        for (std::int64_t c = 0; c < columns; ++c) to[c] = from[c * access.column];
    }
  }
  if (access.rounding != Rounding::kNone) round_array(place, place, static_cast<std::size_t>(count), access.rounding);
  return place;
}

}  // namespace ulpscope::cpu
