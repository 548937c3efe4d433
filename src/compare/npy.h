// NumPy's .npy and .npz formats (numpy.lib.format, versions 1.0 to 3.0), in memory.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulpscope/tensor.h"

namespace ulpscope {

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

}  // namespace ulpscope
