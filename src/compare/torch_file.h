// The files of torch.save, as far as they hold one tensor: Polygraphy's JSON has tensors of torch in that form.
#pragma once

#include <string_view>

#include "ulpscope/tensor.h"

namespace ulpscope {

/// The tensor of such a file (torch 1.6 or later: a ZIP archive). Nothing of it is executed. `where` starts the
/// messages. Throws Error(kInvalidFile), or Error(kUnsupported) for what is no plain tensor in memory.
Tensor decode_torch(std::string_view bytes, std::string_view where);

}  // namespace ulpscope
