// The operators that ulpscope knows: those listed in ops.inc.
#pragma once

#include "graph/op.h"

namespace ulpscope {

/// The one registry; immutable, thread-safe.
const OpRegistry& op_registry();

}  // namespace ulpscope
