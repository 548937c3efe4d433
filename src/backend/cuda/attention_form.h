// How attention is split among blocks and warps.
#pragma once

#include "backend/cuda/attention_source.h"

namespace ulpscope::cuda {

/// How its work is split. Sizes are rounded up.
struct AttentionForm {
  static constexpr std::int64_t kMostShared = 96 << 10;  ///< Bytes per block that every architecture from sm_80 on has.
  static constexpr std::int64_t kPad = 8;        ///< Elements behind each row of a tile: rows start in other banks.
  static constexpr std::int64_t kPartKeys = 16;  ///< A part of a tile has a multiple of these: one operand of values.

  std::int64_t dq, dv, tile;
  int warps, parts;   ///< Each warp has 16 queries, or row_tiles times as many, and one of the parts of the keys.
  bool in_registers;  ///< Scores of a whole row are; else it goes over tiles of keys, twice, or once if it may.
  int row_tiles = 1;
  int copies() const { return in_registers ? 1 : 2; }
  std::int64_t rows() const { return static_cast<std::int64_t>(warps) * row_tiles * 16; }
  std::int64_t tiles() const { return 2 * (rows() * (dq + kPad) + copies() * tile * (dq + dv + 2 * kPad)); }
  std::int64_t shared() const { return tiles() + 4 * parts * rows(); }
  /// Of scores and results, per thread.
  std::int64_t registers() const { return row_tiles * (tile / parts / 2 + dv / 2); }
  /// In shared memory, with the results of one part in place of the tiles.
  bool fits() const { return shared() <= kMostShared && (parts == 1 || rows() * dv * 4 <= tiles()); }
};

/// Nothing for sizes that no block has the memory for.
std::optional<AttentionForm> attention_form(const AttentionSpec& spec);

/// The text of the kernel that goes over tiles of keys once.
const char* one_pass_attention();

/// Macros for all that the kernel's text leaves open, but what becomes of scores.
std::string definitions_of(const AttentionSpec& spec, const AttentionForm& form);

}  // namespace ulpscope::cuda
