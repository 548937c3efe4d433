// The convolution kernel that Conv, ConvInteger, QLinearConv and ConvTranspose share.
#pragma once

#include <algorithm>

#include "core/parallel.h"
#include "ops/window.h"

namespace ulpscope::ops {

/// out(N, M, o...) = bias(M) or 0, plus the sum of x(N, C, i...) * w(M, C/group, k...). Transposed: out(N, M, i *
/// stride
/// + k * dilation - pad) += x(N, C, i) * w(C, M/group, k). T is the type of the accumulator too: float32 or wider, or
/// int32. `bias` may be null. Does not throw.
template <typename T, bool transposed = false>
void convolve(const WindowGeometry& g, const Window3& w3, const T* x, const T* w, const T* bias, T* out) noexcept {
  const auto& [in, kernel, stride, dilation, pad, pad_end, o] = w3;
  // Position i of `near` meets i * stride + offset of `far`.
  const Window3::Triple &near = transposed ? in : o, &far = transposed ? o : in;
  const std::int64_t in_volume = Window3::volume(in), out_volume = Window3::volume(o);
  const std::int64_t kernel_volume = Window3::volume(kernel);
  const std::int64_t group_in = g.in_channels / g.groups, group_out = g.out_channels / g.groups;
  parallel_for(g.batch * g.out_channels, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t plane = begin; plane < end; ++plane) {
      const std::int64_t n = plane / g.out_channels, m = plane % g.out_channels;
      T* y = out + plane * out_volume;
      std::fill(y, y + out_volume, bias ? bias[m] : T{});
      for (std::int64_t c = 0; c < group_in; ++c) {
        const std::int64_t channel = m / group_out * group_in + c;
        const T* image = x + (n * g.in_channels + channel) * in_volume;
        const T* taps = w + (transposed ? channel * group_out + m % group_out : m * group_in + c) * kernel_volume;
        for (std::int64_t kz = 0; kz < kernel[0]; ++kz) {
          const std::int64_t dz = kz * dilation[0] - pad[0];
          const OutputRange rz = valid_outputs(near[0], far[0], stride[0], dz);
          for (std::int64_t ky = 0; ky < kernel[1]; ++ky) {
            const std::int64_t dy = ky * dilation[1] - pad[1];
            const OutputRange ry = valid_outputs(near[1], far[1], stride[1], dy);
            for (std::int64_t kx = 0; kx < kernel[2]; ++kx) {
              const T tap = *taps++;
              const std::int64_t dx = kx * dilation[2] - pad[2], step = stride[2];
              const OutputRange rx = valid_outputs(near[2], far[2], step, dx);
              for (std::int64_t z = rz.begin; z < rz.end; ++z)
                for (std::int64_t row = ry.begin; row < ry.end; ++row) {
                  const std::int64_t at_near = (z * near[1] + row) * near[2];
                  const std::int64_t at_far = ((z * stride[0] + dz) * far[1] + row * stride[1] + dy) * far[2] + dx;
                  const T* source = image + (transposed ? at_near : at_far);
                  T* target = y + (transposed ? at_far : at_near);
                  if constexpr (transposed)
                    for (std::int64_t i = rx.begin; i < rx.end; ++i) target[i * step] += tap * source[i];
                  else if (step == 1)
                    for (std::int64_t i = rx.begin; i < rx.end; ++i) target[i] += tap * source[i];
                  else
                    for (std::int64_t i = rx.begin; i < rx.end; ++i) target[i] += tap * source[i * step];
                }
            }
          }
        }
      }
    }
  });
}

}  // namespace ulpscope::ops
