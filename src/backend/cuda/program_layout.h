// How the elements of a program's domain are shared out to threads, and when its registers are computed.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cuda/dimensions.h"
#include "backend/cuda/program_source.h"

namespace ulpscope::cuda {

/// Every row instruction ends a stage: what is computed of its result belongs to the next one. Per register.
struct ProgramStages {
  std::vector<bool> needed;     ///< Some output depends on it.
  std::vector<bool> along_row;  ///< It may differ from element to element of a row.
  std::vector<int> stage;       ///< The first in which it can be computed.
  std::vector<int> first;       ///< needed and along_row: the first in which it is wanted.
  int last = 0;                 ///< The stage in which outputs are stored.
  int live = 0;                 ///< How many values per element one stage leaves to the next, at most.
};

/// `along_row`: per load, whether it moves along the row.
ProgramStages stages_of(const ProgramSpec& spec, const std::vector<bool>& along_row);

/// A group is one row, or `vector` rows side by side; `threads` threads share it, chunk by chunk. A chunk is `vector`
/// elements of a row, or one element of each row of the group. Operands are numbered inputs first, then outputs.
struct ProgramLayout {
  Dimensions outer, row;     ///< Of the rows, and of the elements of a row. A pointwise program has no `row`.
  bool across = false;       ///< Vectors lie across rows.
  int vector = 1;            ///< Elements.
  std::int64_t groups = 1;   ///< In the domain.
  std::int64_t chunks = 1;   ///< In a group.
  int threads = 1;           ///< Of a group: a power of two up to 32, or a multiple of 32; `across`: a power of two.
  int groups_per_block = 1;  ///< `across` with more than one thread: a power of two up to 32.
  int kept = 1;              ///< Chunks of a thread, all in registers; 0: they are read again in every stage.
  std::int64_t tail = 0;     ///< Elements behind the last vector of a domain of one dimension.
  bool wide = false;         ///< Indices need 64 bits.
  std::vector<int> words;    ///< Per operand: bytes that its vectors are read and written in.
  const Dimension* vector_dimension() const { return across ? last(outer) : last(row); }

 private:
  static const Dimension* last(const Dimensions& dims) { return dims.empty() ? nullptr : &dims.back(); }
};

struct PlannedProgram {
  ProgramStages stages;
  ProgramLayout layout;
};
PlannedProgram plan_program(const ProgramSpec& spec);

}  // namespace ulpscope::cuda
