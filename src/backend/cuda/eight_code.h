// What becomes of eight results that lie side by side, in generated kernels: vectors are loaded and stored whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cuda/program_source.h"

namespace ulpscope::cuda {

/// A program without row instructions on eight elements of its domain, neighbors along one dimension. Load 0 is not in
/// memory: it is what the kernel has computed.
class VectorizedProgramSource {
 public:
  /// `along`: the dimension; its first index is a multiple of 8. `index`: per dimension the expression, of type long
  /// long, of the first of the eight. The program outlives this.
  VectorizedProgramSource(const Program& program, std::vector<ProgramInput> inputs, std::vector<ProgramOutput> outputs,
                          std::size_t along, std::vector<std::string> index);

  /// Statements that load what depends on `along` alone, to be put where its index is known first.
  std::string loads() const;
  /// Statements that compute, behind loads(); `given` is the float expression of load 0 for the integer e.
  std::string code(const std::string& given) const;
  /// Statements that store what code() has computed.
  std::string stores() const;

 private:
  /// Bytes of the words in which eight elements are loaded and stored.
  static int word_of(DataType type);
  bool is_vector(DataType type, const std::vector<std::int64_t>& strides, int alignment) const;
  bool loads_eight(const ProgramInput& input) const;
  bool moves_along_only(const ProgramInput& input) const;
  std::string load_eight(std::size_t load) const;

  const Program& program_;
  std::vector<ProgramInput> inputs_;
  std::vector<ProgramOutput> outputs_;
  std::size_t along_;
  std::vector<std::string> index_, each_;  ///< Of the first of the eight; of number e.
};

}  // namespace ulpscope::cuda
