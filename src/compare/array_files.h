// Inputs in NumPy's files.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "compare/data_loader.h"
#include "compare/tensor_map.h"

namespace ulpscope {

/// Samples of a file of inputs: JSON (load_inputs), an .npz archive with an array per input, or an .npy file for a
/// network with one input; without bindings, arrays are one sample, one of an .npy file with the file's name. Arrays
/// may be several samples, along the first axis: those with one axis more than the input, and those that are a multiple
/// of a batch whose size the network fixes. Throws Error(kNotFound), Error(kInvalidFile), and Error(kInvalidArgument)
/// for arrays with different numbers of samples.
std::vector<TensorMap> load_samples(const std::filesystem::path& path, std::span<const InputBinding> bindings);

}  // namespace ulpscope
