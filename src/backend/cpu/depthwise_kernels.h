// The loops of depthwise convolutions, compiled once per instruction set (program_kernels.h).
#pragma once

#include <cstdint>

namespace ulpscope::cpu {

/// Outputs side by side in a row, all of whose windows have the same places inside of the image.
struct DepthwiseRun {
  const float* in;       ///< Of the first output: the first place of its window, which is inside.
  const float* weights;  ///< Of that place. [rows of the window, columns, channels]
  const float* bias;     ///< One per channel, or null.
  float* out;
  std::int64_t count, channels;
  std::int64_t rows, columns;            ///< Places of the window that are inside.
  std::int64_t row_step, column_step;    ///< From one to the next, in elements of the input;
  std::int64_t weight_row, output_step;  ///< a row of the window's weights; the inputs of neighboring outputs.
};

using DepthwiseFunction = void (*)(const DepthwiseRun& run);

}  // namespace ulpscope::cpu
