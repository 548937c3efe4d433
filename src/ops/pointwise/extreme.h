// What Max and Min share: the gradient of a result that is one of its inputs.
#pragma once

#include <vector>

#include "ops/adjoint_values.h"

namespace ulpscope::ops {

/// Inputs that are the result share its gradient.
inline void extreme_adjoint(AdjointContext& ctx) {
  const Value y = output(ctx);
  std::vector<Value> chosen;
  for (int i = 0; i < ctx.num_inputs(); ++i) chosen.push_back(1 - abs(sign(input(ctx, i) - y)));
  Value count = chosen[0];
  for (std::size_t i = 1; i < chosen.size(); ++i) count = count + chosen[i];
  const Value share = gradient(ctx) / count;
  for (int i = 0; i < ctx.num_inputs(); ++i)
    if (ctx.wants(i)) set(ctx, i, share * chosen[static_cast<std::size_t>(i)]);
}

}  // namespace ulpscope::ops
