// What storing an operand of a product in a narrow format does to it, and why.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/quantized.h"
#include "ulpscope/answer.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// What a format does to constant weights, or to an activation over several samples. A share is what has one scale.
struct OperandLoss {
  double error = 0, squares = 0;  ///< Sums of squares: of the error, and of the values.
  std::int64_t values = 0;
  /// The root mean square of the error, as a share of that of the values.
  double relative() const;

  /// Values that lie beyond the largest element times their scale by more than rounding does.
  std::int64_t saturated = 0;
  double most_beyond = 0;  ///< The most of these, over that.
  double saturation = 0;   ///< Their part of `error`.

  /// Shares whose scale is more than twice what their largest value needs, or 0: scales cannot be as small.
  std::int64_t too_small = 0, shares = 0;
  double smallest_scale = 0;  ///< Of these; the smallest that there is where it is 0.
  std::int64_t vanished = 0;  ///< Their values that become 0 and are not.
  std::int64_t gone = 0;      ///< Those of all shares, of formats without blocks.

  /// Sums of squares per channel of a dimension whose channels share scales with each other.
  struct Channels {
    int dimension = 0;
    std::int64_t block = 0;  ///< As many neighbors share a scale; 0: all of them.
    std::vector<double> error, squares;
  };
  std::vector<Channels> channels;

  /// Blocks in which all but the largest value lose more than half (as `relative`), and of the worst of these how many
  /// times the root mean square of the others its largest is.
  std::int64_t swallowed = 0;
  double peak = 0;

  void add(const OperandLoss& other);
};

/// `stored` as quantize() or an activation has it; `dimensions`: those whose channels share scales with each other.
OperandLoss operand_loss(const Tensor& values, const Quantized& stored, const Encoding& encoding,
                         const ScaleLayout& layout, const std::vector<int>& dimensions);

/// Sets the kind of the reason and its counts; returns what is to be said behind "the weights 'w' lose 3 % (rms)", or
/// nothing where no cause shows.
std::string explain_loss(const OperandLoss& loss, Reason& reason);

}  // namespace ulpscope
