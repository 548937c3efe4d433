// The loop that all pooling operators share.
#pragma once

#include <algorithm>

#include "core/parallel.h"
#include "ops/window.h"

namespace ulpscope::ops {

/// For every output position of every plane (batch and channel): calls reduce(plane, output index within the plane,
/// first, last) where first and last are the ranges [first[d], last[d]) of kernel positions that lie inside of the
/// input. Kernel position k of output o reads input o * stride + k * dilation - pads_begin. Does not throw.
template <typename Reduce>
void for_each_window(std::int64_t planes, const Window3& w, Reduce&& reduce) noexcept {
  using Triple = Window3::Triple;
  parallel_for(planes, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t plane = begin; plane < end; ++plane) {
      std::int64_t index = 0;
      Triple at{}, first{}, last{};
      const auto clip = [&](std::size_t d) {
        const std::int64_t offset = at[d] * w.strides[d] - w.pads_begin[d];
        const OutputRange inside = valid_outputs(w.kernel[d], w.input[d], w.dilations[d], offset);
        first[d] = inside.begin;
        last[d] = inside.end;
      };
      for (at[0] = 0; at[0] < w.output[0]; ++at[0]) {
        clip(0);
        for (at[1] = 0; at[1] < w.output[1]; ++at[1]) {
          clip(1);
          for (at[2] = 0; at[2] < w.output[2]; ++at[2], ++index) {
            clip(2);
            reduce(plane, index, at, first, last);
          }
        }
      }
    }
  });
}

/// Calls visit(offset within the input plane) for the kernel positions [first, last) of the window at output `at`.
template <typename Visit>
void visit_window(const Window3& w, const Window3::Triple& at, const Window3::Triple& first,
                  const Window3::Triple& last, Visit&& visit) {
  for (std::int64_t kz = first[0]; kz < last[0]; ++kz) {
    const std::int64_t z = at[0] * w.strides[0] + kz * w.dilations[0] - w.pads_begin[0];
    for (std::int64_t ky = first[1]; ky < last[1]; ++ky) {
      const std::int64_t y = at[1] * w.strides[1] + ky * w.dilations[1] - w.pads_begin[1];
      const std::int64_t row = (z * w.input[1] + y) * w.input[2];
      for (std::int64_t kx = first[2]; kx < last[2]; ++kx)
        visit(row + at[2] * w.strides[2] + kx * w.dilations[2] - w.pads_begin[2]);
    }
  }
}

}  // namespace ulpscope::ops
