// Polygraphy's options for TensorFlow: known, so that their abbreviations mean here what they mean there, and refused.
#pragma once

#include "args/option_table.h"

namespace ulpscope::cli {

void declare_tensorflow_options(OptionTable& table);

}  // namespace ulpscope::cli
