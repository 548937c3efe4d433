#include "backend/cuda/driver.h"

#include "core/messages.h"

namespace ulpscope::cuda {

const Driver& driver() {
  static const Driver functions;
  return functions;
}

void check(Result result, const char* what) {
  if (result == kSuccess) return;
  const char *name = nullptr, *text = nullptr;
  driver().get_error_name(result, &name);
  driver().get_error_string(result, &text);
  throw unsupported(
      "[run] backend 'cuda': the driver could not {}: {} ({}); the CPU stays usable: leave out --backend cuda", what,
      text != nullptr ? text : "unknown error", name != nullptr ? name : "no name");
}

}  // namespace ulpscope::cuda
