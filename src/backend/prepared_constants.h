// Constants as kernels read them: rounded, multiplied by a BatchNormalization, quantized. The same for every backend,
// which brings them into its own memory and layout.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "backend/weights.h"
#include "engine/kernels.h"

namespace ulpscope {

/// Gives the elements of a constant whenever they are to be packed; may make them anew each time.
using ConstantSource = std::function<Tensor()>;

/// Rounds all elements on all threads; `in` may equal `out`.
void round_parallel(const float* in, float* out, std::int64_t count, Rounding rounding);

/// Of one specialization. Sources refer to it; everything that is prepared is kept in the cache under a key that names
/// the elements and what was done to them. All tensors are dense.
class PreparedConstants {
 public:
  PreparedConstants(const Specialization& spec, WeightCache& weights) : spec_(spec), weights_(weights) {}

  /// Names a constant in the cache, which outlives this specialization; "none" for kNone.
  std::string key(TensorId id) const;
  /// The same as it is read: with its roundings.
  std::string key(const Operand& operand) const;
  /// The first and the second rounding of a constant, where they may change it.
  std::pair<Rounding, Rounding> roundings(const Operand& operand) const;
  /// Rounded, as numbers: not for operands whose elements are multiplied.
  Tensor get(const Operand& operand) const;
  /// The same, not kept: for who packs it.
  ConstantSource source(const Operand& operand) const;
  ConstantSource source(const Tensor& value, std::pair<Rounding, Rounding> roundings) const;
  /// The weights of a product that stores them as elements and reads them as numbers; of others, source().
  ConstantSource weights(const ProductKernel& kernel) const;
  /// Names these; adds nothing where source() is meant.
  std::string weights_key(const ProductKernel& kernel) const;
  /// The values of a load, when they are known beforehand; `reader`: the layer that reads them.
  Tensor of_load(const Load& load, LayerId reader) const;

  /// What the inference BatchNormalization multiplies by or adds, per channel.
  Tensor scale_or_shift(LayerId normalization, bool shift, Rounding rounding) const;
  /// The weights of a convolution, with its normalization multiplied in. Sets `key`; the source refers to the network.
  ConstantSource convolution_weights(const ProductKernel& kernel, Rounding rounding, std::string& key) const;
  /// Its bias, likewise; absent where it has none. Adds to `key`.
  Tensor convolution_bias(const ProductKernel& kernel, Rounding rounding, std::string& key) const;
  /// Weights and bias of a convolution with a normalization, as the operator's reference kernel reads them.
  std::pair<Tensor, Tensor> normalized_parameters(const ProductKernel& kernel) const;

  struct ElementWeights {
    /// What products sum (summed_elements), as float32, the shape of the weights: deferred, so that they leave memory
    /// once they are packed. To be asked for by in_memory().
    Tensor elements;
    Tensor scales;    ///< Behind the sum: one per output channel, or of the tensor.
  };
  /// Names the elements of a product's weights: the same for layers, of any network, that use a constant in one way.
  std::string element_weights_key(LayerId id, const Operand& weights) const;
  /// `weights`: how the layer reads them. `rescaled`: the values are no longer those of the file.
  std::shared_ptr<const ElementWeights> element_weights(const Layer& l, const Operand& weights, const Tensor& values,
                                                        const std::string& key, bool rescaled) const;
  /// The weights of a product as elements times their scales; `key` and `rescaled` as for element_weights().
  Tensor weights_of_elements(const Layer& l, const Operand& operand, const Tensor& values, const std::string& key,
                             bool rescaled) const;
  /// A constant operand that is read as elements, times their scales.
  Tensor dequantized(LayerId id, const Operand& operand) const;
  /// float32(scale of x * scale of a channel's weights); of blocks that of the weights, 1.
  Tensor product_scales(const Operand& x, const Tensor& weights, const std::string& key) const;

 private:
  const Layer& layer(LayerId id) const { return spec_.network->layer(id); }
  /// The elements of a constant are the file's own, in a type that this rounding keeps.
  bool file_holds(TensorId id, Rounding rounding) const;
  /// For what is packed of a constant as float32.
  std::function<void()> room_for(const Tensor& value) const;
  std::string scale_shift_key(const Layer& l) const;

  const Specialization& spec_;
  WeightCache& weights_;
};

}  // namespace ulpscope
