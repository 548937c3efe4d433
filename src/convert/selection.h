// Layers whose results are some of their operands (Relu, Clip, Max, ...): they give the same bits in every type that
// holds their operands.
#pragma once

#include <utility>
#include <vector>

#include "engine/specialization.h"
#include "graph/assignment.h"

namespace ulpscope {

/// True if the layer chooses among its operands, or changes their signs: Relu, Clip, Max, Min, Abs, Neg, MaxPool,
/// GlobalMaxPool, ReduceMax, ReduceMin. False with outputs of another kind (indices), and for limits in attributes that
/// are not all there.
bool selects(const Layer& layer);

/// The limits that the layer has as attributes (Clip up to opset 10), without the types that do not hold them.
void drop_inexact_limits(const Layer& layer, std::vector<DataType>& types);

/// Every element is one of that type. `id` is constant and of float32.
bool holds(const Specialization& spec, TensorId id, DataType type);

/// A finite element of a float32 tensor is none in float16.
bool goes_beyond_float16(const Tensor& value);

/// Of layers that take another type than the assignment's: those that must not, since at some level of fusion a value
/// would be rounded that was not before, or the reverse, so that bits change. Empty: all may.
std::vector<LayerId> fusion_conflicts(const Specialization& spec, const Assignment& assignment,
                                      const std::vector<std::pair<LayerId, DataType>>& moved);

}  // namespace ulpscope
