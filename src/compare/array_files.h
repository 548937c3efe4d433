// Files of arrays: NumPy's .npy and .npz (numpy.lib.format, versions 1.0 to 3.0), and those of torch.save.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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

/// A version 1.0 file in C order. bfloat16 and what ulpscope only holds (float8, int4, ...) have no NumPy type:
/// Error(kUnsupported) with advice.
std::string encode_npy(const Tensor& tensor);

/// The array of an .npy file, or the first array of an .npz archive (stored or deflated). Fortran order and big-endian
/// elements are converted; float128, complex, strings, structures and pickled objects are refused. `where` starts the
/// messages ("[load] outputs.json: output 'y'"). Throws Error(kInvalidFile), or Error(kUnsupported) for a type that is
/// refused.
Tensor decode_npy(std::string_view bytes, std::string_view where);

/// The .npy file in an .npz archive that comes first in its directory. Throws Error(kInvalidFile).
std::string first_of_npz(std::string_view bytes, std::string_view where);
/// All files of an .npz archive ("x.npy"), in the order of its directory. Throws Error(kInvalidFile).
std::vector<std::pair<std::string, std::string>> files_of_npz(std::string_view bytes, std::string_view where);

/// The tensor of a file of torch.save, as far as it holds one: Polygraphy's JSON has tensors of torch in that form
/// (torch 1.6 or later: a ZIP archive). Nothing of it is executed. `where` starts the messages. Throws
/// Error(kInvalidFile), or Error(kUnsupported) for what is no plain tensor in memory.
Tensor decode_torch(std::string_view bytes, std::string_view where);

}  // namespace ulpscope
