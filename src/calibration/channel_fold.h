// How the channels of a tensor can be multiplied by powers of two: which constants around it change, and how.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "graph/network.h"
#include "ulpscope/shape.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// A constant whose elements are multiplied by 2^(sign * exponent of their channel).
struct Edit {
  LayerId layer = kNone;
  std::size_t input = 0;
  int sign = 1;
  Shape shape;           ///< The constant as it has to be: one element may become one per channel.
  std::size_t axis = 0;  ///< Of `shape`, counts the channels (of a group).
  /// Groups: the channel is index[axis] + shape[axis] * (index[0] / per_group). 0: one group.
  std::int64_t per_group = 0;
};

/// How the channels of a tensor can be rescaled.
struct Fold {
  TensorId tensor = kNone;
  bool copies = false;  ///< A layer is added that rescales the tensor for its readers; the tensor itself stays.
  std::int64_t channels = 0;
  std::size_t trailing = 0;  ///< Axes behind that of the channels.
  std::vector<Edit> edits;   ///< Those of the readers first,
  std::size_t reader_edits = 0;
  std::vector<LayerId> readers;
  std::vector<LayerId> passed;  ///< Layers with or without edits from the producer upwards.
};

/// Finds how the channels of tensors can be rescaled.
class Folder {
 public:
  explicit Folder(const Network& network) : network_(network), consumers_(network.consumers()) {}

  /// Nothing where a constant is missing, or somebody else reads what would change.
  std::optional<Fold> fold(TensorId tensor, bool copies) const;

 private:
  bool add_reader(LayerId id, Fold& fold) const;
  /// A constant that meets every channel once, or all of them: of one element, or of one along the channels.
  bool fold_pointwise(LayerId id, std::size_t input, int sign, std::size_t trailing, Fold& fold) const;
  /// A parameter with one element per channel.
  bool fold_vector(LayerId id, std::size_t input, Fold& fold) const;
  bool fold_weights(LayerId id, Fold& fold) const;
  /// Goes on with an input that only this layer reads.
  bool pass(TensorId input, Fold& fold) const;
  bool fold_producer(TensorId tensor, Fold& fold) const;

  const Network& network_;
  const IdMap<TensorId, std::vector<LayerId>> consumers_;
};

/// The float32 constant that a layer reads there, or null.
const Tensor* constant_input(const Network& network, const Layer& layer, std::size_t index);

/// Elements behind the axis of the channels.
std::int64_t inner_of(const Edit& edit);

/// Which channel the element of `edit.shape` belongs to.
std::int64_t channel_of(const Edit& edit, std::int64_t element, std::int64_t inner);

/// The constant with its elements rescaled; nothing where that would round one.
std::optional<Tensor> rescaled(const Tensor& value, const Edit& edit, std::span<const std::int8_t> exponents);

/// Whether no constant of the fold would be rounded.
bool is_exact_for(const Network& network, const Fold& fold, std::span<const std::int8_t> exponents);

}  // namespace ulpscope
