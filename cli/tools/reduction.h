// Which parts of a model `debug reduce` tries, one after another.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "onnx/submodel.h"

namespace ulpscope::cli {

/// `remaining`: about so many tries.
using PartPasses = std::function<bool(const ModelParts::Part& part, int remaining)>;

struct Reduced {
  std::optional<ModelParts::Part> bad;   ///< The smallest that fails, the last of equal ones,
  std::optional<ModelParts::Part> good;  ///< and the largest one smaller than that which passes, else the smallest.
};

/// Moves the end of a part of `count` nodes (its beginning if `of_inputs`) to node after node: `part_at` has it there.
/// By halves, where parts that go on behind one that fails are taken to fail, too; or each of them.
Reduced reduce_part(std::size_t count, bool of_inputs, bool one_by_one,
                    const std::function<ModelParts::Part(std::size_t index)>& part_at, const PartPasses& passes);

/// The values that nodes from this one on read, and that they do not compute: constants aside.
std::vector<std::string> crossing(const ModelParts& model, std::size_t node);

}  // namespace ulpscope::cli
