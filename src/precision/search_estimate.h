// How long a search will take.
#pragma once

#include "precision/search.h"

namespace ulpscope {

/// Seconds, from the beginning of a search on one sample: the one that the lowest precisions harm most. `forward` and
/// `lowest`: outputs of all search samples in fp32 and in the lowest precisions. Throws as `search_precisions`.
double estimate_search_seconds(const SearchData& data, const Criterion& criterion, const SearchTask& options,
                               std::span<const TensorMap> exact, std::span<const TensorMap> lowest);

}  // namespace ulpscope
