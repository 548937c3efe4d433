// Which runners yield outputs.
#pragma once

#include "args/option_table.h"

namespace ulpscope::cli {

struct RunnerSelectArgs {
  Ordered runners;  ///< "--trt", "--onnxrt", in the order typed.

  void declare(OptionTable& table);
};

}  // namespace ulpscope::cli
