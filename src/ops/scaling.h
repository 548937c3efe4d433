// How operators take operands that are multiplied by powers of two (OpDef::scaling), for all of them in one table.
#pragma once

#include "graph/op.h"

namespace ulpscope::ops {

/// OpDef::scaling of this operator, from its other traits. Null: operands and results may not be scaled.
Scaling (*scaling_rule(const OpDef& op))(const Layer&);

}  // namespace ulpscope::ops
