// Layers by themselves: movement as views, copies and gathers, casts, pooling, reductions, recurrent layers; the CPU
// for all others.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "backend/cuda/movement_source.h"
#include "backend/cuda/placement.h"
#include "backend/cuda/products.h"
#include "backend/cuda/recurrent_source.h"
#include "ops/contraction/einsum_form.h"
#include "ops/recurrent/form.h"

namespace ulpscope::cuda {

inline StridedTensor strided(const View& view, const Shape& shape) { return {view.type, shape, view.strides}; }

class Layers : KernelLowering {
 public:
  Layers(const KernelLowering& context, const IdMap<LayerId, GraphFunction>& subgraphs, Programs& programs,
         Epilogues& epilogues, Matrices& matrices)
      : KernelLowering(context),
        subgraphs_(subgraphs),
        programs_(programs),
        epilogues_(epilogues),
        matrices_(matrices) {}

  void lower(const LayerKernel& kernel);
  /// A product by its operator's reference kernel on the CPU, and its epilogue on the device.
  void lower_host(const ProductKernel& kernel);
  /// Names of those that move floats to the CPU and back.
  const std::set<std::string>& on_host() const { return on_host_; }

 private:
  bool lower_view(const LayerKernel& kernel);
  /// Resize that repeats whole elements: a view of them.
  bool lower_repeats(const LayerKernel& kernel);
  bool keep_elements(const LayerKernel& kernel);
  /// Resize in modes linear and cubic.
  bool lower_resample(const LayerKernel& kernel);
  bool lower_traced(const LayerKernel& kernel);
  bool lower_cast(const LayerKernel& kernel);
  // lower_einsum.cpp
  struct IndexedProduct;
  /// Nothing where it is no product of matrices, or cuBLASLt does not take it.
  std::optional<IndexedProduct> indexed_product(const ops::EinsumForm& form, const Operand& first,
                                                const Operand& second, DataType result);
  bool lower_einsum(const LayerKernel& kernel);
  /// MatMul in which each operand is repeated along a dimension of the other.
  bool lower_repeated(const ProductKernel& kernel);
  // lower_selection.cpp
  bool lower_gather(const LayerKernel& kernel);
  bool lower_chosen(const LayerKernel& kernel);
  bool lower_placed(const LayerKernel& kernel);
  bool lower_merged(const LayerKernel& kernel);
  bool lower_where(const LayerKernel& kernel);
  bool lower_predicate(const LayerKernel& kernel);
  bool lower_cumulative(const LayerKernel& kernel);
  // lower_quantize.cpp
  bool lower_quantize(const LayerKernel& kernel);
  bool lower_dequantize(const LayerKernel& kernel);
  bool lower_pool(const LayerKernel& kernel);
  /// The tensor as float32 or what it is stored in; integers times their scale.
  View numbers(const Operand& operand);
  bool lower_rows(const LayerKernel& kernel);
  bool lower_concat(const LayerKernel& kernel);
  bool lower_magnitudes(const LayerKernel& kernel);
  void lower_host(const LayerKernel& kernel);

  // lower_recurrent.cpp
  bool lower_recurrent(const LayerKernel& kernel);
  /// W x as float32 [rows of X, columns]: those of all directions and gates, and some that nobody reads. No view where
  /// cuBLASLt does not take it.
  View input_sums(const LayerKernel& kernel, const ops::RecurrentForm& form, std::int64_t& columns);
  std::vector<Pointer> recurrent_parameters(const LayerKernel& kernel, RecurrentStepSpec& step);
  View recurrent_weights(const Operand& r, const RecurrentStepSpec& step);
  /// What lies where for the time steps of a layer.
  struct Recurrence;
  void add_time_steps(const RecurrentStepSpec& step, const Recurrence& memory);

  const IdMap<LayerId, GraphFunction>& subgraphs_;
  Programs& programs_;
  Epilogues& epilogues_;
  Matrices& matrices_;
  std::set<std::string> on_host_;
};

}  // namespace ulpscope::cuda
