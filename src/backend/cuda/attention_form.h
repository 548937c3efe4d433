// How attention is split among blocks and warps.
#pragma once

#include "backend/cuda/attention_source.h"
#include "core/division.h"

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
  int stages = 0;    ///< Of tiles in warp groups of sm_90, which go over them once; 0: no such groups.
  float factor = 1;  ///< Of all scores, where warp groups take them as they are.
  int copies() const { return in_registers ? 1 : 2; }
  std::int64_t rows() const { return static_cast<std::int64_t>(warps) * row_tiles * 16; }
  std::int64_t tiles() const { return 2 * (rows() * (dq + kPad) + copies() * tile * (dq + dv + 2 * kPad)); }
  /// A tile of keys and of values, and the barriers of both.
  std::int64_t stage_bytes() const { return 2 * tile * (dq + round_up(dv, 64)) + 40; }
  std::int64_t shared() const {
    if (stages > 0) return 1024 + 2 * rows() * dq + stages * stage_bytes() + (parts > 1 ? 8 * parts * rows() : 0);
    return tiles() + 4 * parts * rows();
  }
  /// Of scores and results, per thread.
  std::int64_t registers() const { return row_tiles * (tile / parts / 2 + dv / 2); }
  int groups() const { return warps / 4 * parts; }  ///< Of 128 threads.
  /// In shared memory, with the results of one part in place of the tiles.
  bool fits() const { return shared() <= kMostShared && (parts == 1 || rows() * dv * 4 <= tiles()); }
};

/// Nothing for sizes that no block has the memory for. `warp_group_processors`: as LoweringTarget says.
std::optional<AttentionForm> attention_form(const AttentionSpec& spec, int warp_group_processors);

/// The text of the functions that all kernels call.
const char* attention_functions();

/// The text of the kernel that goes over tiles of keys once.
const char* one_pass_attention();

/// The text of the kernel in warp groups, with the macros that it needs besides.
std::string group_attention(const AttentionSpec& spec, const AttentionForm& form);

/// What scores are multiplied by, where that is all that becomes of them, and exponentials can be taken of the sums
/// themselves.
std::optional<float> positive_factor(const AttentionSpec& spec);

/// Keys and values as warp groups read them.
std::vector<BoxedMatrix> boxed_operands(const AttentionSpec& spec, const AttentionForm& form);

/// Macros for all that the kernel's text leaves open, but what becomes of scores.
std::string definitions_of(const AttentionSpec& spec, const AttentionForm& form);

}  // namespace ulpscope::cuda
