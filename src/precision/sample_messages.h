// What a search and the processes that run its samples say to each other: values as bytes, with the bits of all
// numbers.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/assignment.h"
#include "precision/criterion.h"
#include "precision/predictor.h"
#include "runners/tensor_values.h"
#include "ulpscope/answer.h"

namespace ulpscope {

/// As one tensor of bytes, and back. Throws Error(kScript) for what is no such message.
Tensor to_bytes(const Value& value);
Value from_bytes(const Tensor& bytes);

Value value_of(const Assignment& assignment);
Assignment assignment_from(const Value& value);

Value value_of(const Judgement& judgement);
Judgement judgement_from(const Value& value);

Value value_of(const SampleEffects& effects);
SampleEffects effects_from(const Value& value);

Value value_of(std::span<const Repair> repairs);
std::vector<Repair> repairs_from(const Value& value);

Value value_of(const std::map<std::string, float>& scales);
std::map<std::string, float> scales_from(const Value& value);

/// What a prediction asks a criterion, for these outputs. The one that comes back judges nothing.
Value prediction_value(const Criterion& criterion, std::span<const std::string> outputs);
std::unique_ptr<Criterion> criterion_from(const Value& value);

/// An error of a task, in place of its result, and back: throws it.
Value value_of_error(const std::exception& error);
void throw_error_in(const Value& result);

}  // namespace ulpscope
