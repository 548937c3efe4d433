// The samples of a search: which it works on, which it is checked with, and what tells two searches apart.
#pragma once

#include <memory>

#include "args/criterion.h"
#include "args/search.h"
#include "precision/journal.h"
#include "precision/search.h"
#include "tools/precision_setup.h"

namespace ulpscope::cli {

/// The samples as `run` makes inputs (4 if they are generated, with a warning), those that are held out, and golden
/// outputs for all of them if --golden was given. Throws Error for what does not fit.
SearchData make_search_data(const PrecisionOptions& options, const SearchArgs& args, PrecisionSetup& setup);

/// What must be equal for a journal to be continued: model, data, criterion, and the options that decide what is tried.
Fingerprint make_fingerprint(const PrecisionOptions& options, const CriterionArgs& criterion_args,
                             const SearchData& data, const Criterion& criterion, const SearchOptions& search);

}  // namespace ulpscope::cli
