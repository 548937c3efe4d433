// Whether an answer holds on other data.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ulpscope/answer.h"
#include "ulpscope/criterion.h"
#include "ulpscope/export.h"
#include "ulpscope/model.h"

namespace ulpscope {

struct VerifyOptions {
  /// Instead of the answer's own.
  std::optional<CriterionOptions> criterion;
  /// Exact outputs, one per sample; empty: from the model in fp32.
  std::vector<TensorsByName> golden;
  /// Outputs of another program that ran the answer, one per sample: judged instead of what the emulation gives.
  std::vector<TensorsByName> candidate;
  /// Called before each sample is run; may throw to end.
  std::function<void()> interrupt;
};

/// Runs the model in the precisions of the answer, with its repairs, on the samples (inputs by name), and judges the
/// outputs: passed(), the share of the tolerance that is used, and the error of every output. `model` is the one that
/// the answer was found for, with the same options. Throws Error(kInvalidArgument) for an answer of another model or
/// without a tolerance, and for samples that do not fit.
ULPSCOPE_API Judgement verify(const Model& model, const AnswerFile& answer, std::span<const TensorsByName> samples,
                              const VerifyOptions& options = {});

}  // namespace ulpscope
