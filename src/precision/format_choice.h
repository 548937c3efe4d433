// Which of several formats each layer takes where a search may lower layers to more than one. They are no ladder: fp8
// is better on most transformers, int8 on most convolutions.
#pragma once

#include <map>

#include "graph/network.h"
#include "precision/search.h"

namespace ulpscope {

/// Per layer that has a form in one of the enabled formats: the one whose own error moves the outputs least, as
/// predict_effects() has it, of those that are equal the one with the fewest bytes. Products that read one tensor (Q, K
/// and V; gate and up) take one format where they have one in common, since one kernel multiplies them. Empty where at
/// most one format is enabled.
std::map<LayerId, Precision> choose_formats(const SearchData& data, const Criterion& criterion, const SearchTask& task);

}  // namespace ulpscope
