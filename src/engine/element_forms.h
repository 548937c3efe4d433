// Which layers have a form in a precision that stores operands as elements, and how their operands are encoded in it.
// docs/numerics.md has the rules.
#pragma once

#include <string>
#include <vector>

#include "engine/options.h"
#include "engine/specialization.h"
#include "formats/quantized.h"
#include "graph/assignment.h"
#include "graph/layer_form.h"

namespace ulpscope {

/// What form_obstacle() says of products that one cannot say more of.
inline constexpr std::string_view kUnknownShapes = "its shapes are known at run time only";

/// Why the layer cannot compute in this precision, whatever scales there are; empty: it can. Of floats: it always can.
std::string form_obstacle(const Specialization& spec, LayerId id, Precision precision);
inline bool has_form(const Specialization& spec, LayerId id, Precision precision) {
  return form_obstacle(spec, id, precision).empty();
}

/// The activations that need a calibrated scale for the layer to run in this precision, each once, in the order of the
/// inputs. Empty for a layer without such a form.
std::vector<TensorId> calibrated_inputs(const Specialization& spec, LayerId id, Precision precision);

/// The dimension of operand 0 or 1 of a MatMul or Gemm that is summed over.
int summed_axis(const Specialization& spec, const Layer& layer, std::size_t operand);

/// How a layer of this precision reads operand 0 or 1: with the axis of blocks, and one scale for the weights of a
/// MatMul or Gemm in fp8. `number`: the type in which float operands are read, which the scales of int4 have, too.
Encoding encoding_of(const Specialization& spec, const Layer& layer, Precision precision, std::size_t operand,
                     DataType number, const ScaleChoice& choice);

/// Products whose constant weights have a form with scales that --weight-scales is about.
std::vector<LayerId> products_with_chosen_scales(const Specialization& spec, PrecisionSet precisions);

/// Per constant, the mean squares that the options have for the products that read it; empty where these are not asked
/// for. Constants that several products read have those of the first.
IdMap<TensorId, SharedChannelWeights> find_channel_weights(const Specialization& spec, const BuildOptions& options);

/// What the errors of a layer's constant operand count, where its encoding has scales of least error; null: the same.
SharedChannelWeights channel_weights_of(const Specialization& spec, const Layer& layer, std::size_t operand,
                                        const Encoding& encoding, const Assignment& assignment);

/// The scales of an operand of a product in this encoding: per channel those of weight_scales().
ScaleLayout scale_layout(const Specialization& spec, const Layer& layer, std::size_t operand, const Encoding& encoding);

/// The largest value of the tensor is known beforehand, 1, since a Softmax makes it.
bool is_made_by_softmax(const Specialization& spec, TensorId id);

/// The scale of an activation in an encoding whose scales are calibrated (with a second scale: that one), 0: it has
/// none. `int8_scales`: Assignment::scale.
float activation_scale(const Specialization& spec, TensorId id, const Encoding& encoding,
                       const IdMap<TensorId, float>& int8_scales);

}  // namespace ulpscope
