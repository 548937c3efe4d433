// The window of a convolution of integers over images. Private to src/backend/cpu.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "backend/cpu/product.h"

namespace ulpscope::cpu {

/// Rows and columns of everything; a lone dimension is that of columns.
class PlaneWindow {
 protected:
  using Pair = std::array<std::int64_t, 2>;

  explicit PlaneWindow(const ConvolutionSpec& spec)
      : input_(pair_of(std::span(spec.input).subspan(2), 1)),
        output_(pair_of(std::span(spec.output).subspan(2), 1)),
        window_(pair_of(std::span(spec.kernel).subspan(2), 1)),
        strides_(pair_of(spec.strides, 1)),
        dilations_(pair_of(spec.dilations, 1)),
        pads_(pair_of(spec.pads_begin, 0)) {}

  const Pair input_, output_, window_, strides_, dilations_, pads_;

 private:
  static Pair pair_of(std::span<const std::int64_t> values, std::int64_t absent) {
    return values.size() == 1 ? Pair{absent, values[0]} : Pair{values[0], values[1]};
  }
};

}  // namespace ulpscope::cpu
