// The typed file computes what the assignment computes, bit for bit.
#pragma once

#include <filesystem>

#include "convert/convert.h"
#include "graph/assignment.h"
#include "graph/network.h"

namespace ulpscope {

/// Imports the file and runs it, strongly typed, beside the assignment: on two samples of the options and one of every
/// other set of shapes, on all where these do not run each body that any sample runs; at their level of fusion, and
/// without fusion if `equal_at_every_level`. Returns the number of runs, and in `outputs` what the assignment gives for
/// all samples. Throws InternalError that says where they differ, Error for samples that lack an input, and what
/// `interrupt` of the options throws.
int prove_equal_bits(const Network& network, const Assignment& assignment, const std::filesystem::path& file,
                     const TypedModelOptions& convert_options, bool equal_at_every_level,
                     std::vector<TensorMap>& outputs);

}  // namespace ulpscope
