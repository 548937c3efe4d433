// Turns kernel descriptions into steps for the GPU: where tensors lie, in which type and order, and who computes them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/steps.h"
#include "backend/cuda/stored_matrix.h"

namespace ulpscope::cuda {

/// What lowering asks of the GPU it lowers for; a fake one serves the tests.
class LoweringTarget {
 public:
  virtual ~LoweringTarget() = default;
  /// These bytes on the device; kept in the cache under the key.
  virtual std::shared_ptr<const DeviceMemory> constant(WeightCache& weights, const std::string& key,
                                                       const std::function<Tensor()>& make) = 0;
  /// The same of matrices, one behind the other, as `type`; `make` gives the same elements.
  virtual std::shared_ptr<const DeviceMemory> matrices(WeightCache& weights, const std::string& key,
                                                       [[maybe_unused]] std::span<const StoredMatrix> parts,
                                                       [[maybe_unused]] DataType type,
                                                       const std::function<Tensor()>& make) {
    return constant(weights, key, make);
  }
  /// cuDNN computes this.
  virtual bool has_convolution(const ConvolutionSpec& spec) = 0;
  /// cuBLASLt computes this.
  virtual bool has_product(const MatrixProductSpec& spec) = 0;
  /// Kernels of product_source.h run on it.
  virtual bool has_fused_products() = 0;
  /// Multiprocessors that run attention in warp groups (sm_90); 0: it has none of these.
  virtual int warp_group_processors() = 0;
  /// Its tensor cores add up as --accumulation hopper says.
  virtual bool is_hopper() = 0;
};

/// Stands before a target, which outlives it, and answers as that one does.
class TargetInFront : public LoweringTarget {
 public:
  explicit TargetInFront(LoweringTarget& target) : target_(target) {}
  bool has_convolution(const ConvolutionSpec& spec) override { return target_.has_convolution(spec); }
  bool has_product(const MatrixProductSpec& spec) override { return target_.has_product(spec); }
  bool has_fused_products() override { return target_.has_fused_products(); }
  int warp_group_processors() override { return target_.warp_group_processors(); }
  bool is_hopper() override { return target_.is_hopper(); }

 protected:
  LoweringTarget& target_;
};

/// `weights` and `subgraphs` as in Backend::plan. With Ends::kDevice, REQUIRES: can_stay_on_device().
Steps lower(const Specialization& spec, const Schedule& schedule, WeightCache& weights,
            const IdMap<LayerId, GraphFunction>& subgraphs, LoweringTarget& target, Ends ends = Ends::kHost);

/// All inputs and outputs have shapes that are known before a run, and types that kernels of the GPU have.
bool can_stay_on_device(const Specialization& spec);

}  // namespace ulpscope::cuda
