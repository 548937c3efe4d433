// Long sums of values of mostly one sign, which the accumulators of GPUs lose bits of.
#pragma once

#include <map>
#include <vector>

#include "engine/specialization.h"
#include "formats/accumulator.h"
#include "graph/assignment.h"

namespace ulpscope {

/// Of the products that an assignment runs in fp8, or in fp16 or bf16, those with sums that are long for it:
/// docs/numerics.md has the lengths.
class OneSignedProducts {
 public:
  /// `accumulation`: what they were added up in. Nothing is to be said of what a GPU's accumulator was asked for.
  OneSignedProducts(const Specialization& spec, const Assignment& assignment, Accumulation accumulation);

  /// What a tensor holds, for one sample. For distinct tensors by several threads.
  void add(TensorId tensor, const Tensor& values);
  /// Warns once of all whose operands, of those that were added, have mostly one sign.
  void warn() const;

 private:
  struct Signs {
    double positive = 0, negative = 0;  ///< Sums of magnitudes.
    double share() const;               ///< Of the larger.
  };
  struct LongProduct {
    LayerId layer;
    double length;  ///< Products in a sum.
  };

  const Specialization& spec_;
  const Assignment& assignment_;
  std::vector<LongProduct> products_;
  std::map<TensorId, Signs> signs_;  ///< Of their operands.
};

}  // namespace ulpscope
