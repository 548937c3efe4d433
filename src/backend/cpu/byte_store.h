// A Requantization as the loops of products of bytes take it. Private to src/backend/cpu.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "backend/cpu/product.h"
#include "backend/cpu/program.h"
#include "backend/cpu/program_kernels.h"

namespace ulpscope::cpu {

/// What a program does, if that is to make bytes of the sums in its input number `sums`, dense and channels last, in a
/// way that loops of products have. `constants`: of its inputs, those that are in memory.
std::optional<Requantization> bytes_of_sums(const ProgramForm& program, std::size_t sums,
                                            const std::vector<Tensor>& constants);

class ByteStore {
 public:
  /// `channels`: of each place in the order of the loops; -1: none.
  ByteStore(const Requantization& by, const std::vector<std::int64_t>& channels);
  /// Of `groups` matrices with so many columns each, for whole panels.
  ByteStore(const Requantization& by, std::int64_t groups, std::int64_t columns, std::int64_t panel);

  /// From this place on. Valid as long as this is.
  ByteForm from(std::int64_t place) const;
  /// Adds the bias from this place on to what sums begin from.
  void add_bias(std::int64_t place, std::vector<std::int32_t>& start) const;

 private:
  std::vector<float> scales_, offset_;
  std::vector<std::int32_t> bias_;
  ByteForm form_{};
};

}  // namespace ulpscope::cpu
