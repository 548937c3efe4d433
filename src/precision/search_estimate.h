// How long a search will take.
#pragma once

#include "precision/search.h"
#include "precision/trials.h"

namespace ulpscope {

struct SearchEstimate {
  double forward_seconds = 0;  ///< The samples of the search in fp32.
  double search_seconds = 0;
};

/// From the beginning of a search on one sample, or two: those that the lowest precisions, `low`, harm most and least.
/// `trials`: of data.samples, not run yet. Throws as `search_precisions`.
SearchEstimate estimate_search(const SearchData& data, const Criterion& criterion, const SearchTask& options,
                               Trials& trials, const Assignment& low);

}  // namespace ulpscope
