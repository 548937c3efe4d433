// What is checked of the options and the data of a search before it begins.
#pragma once

#include "precision/criterion.h"
#include "precision/search.h"

namespace ulpscope {

void check_options(const SearchStrategy& options);

/// What a budget of bits is about.
void check_bits(const SearchStrategy& options, PrecisionSet enabled);

/// What is searched has to say something about the target and about other data: warns where it does not.
void warn_of_weak_grounds(const SearchTask& task, const SearchData& data);

/// Golden results of another model or of other inputs are refused before anything is searched.
void check_golden_shapes(const SearchData& data, const Criterion& criterion, bool infinities_equal);

}  // namespace ulpscope
