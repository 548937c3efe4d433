#include "backend/cpu/choices.h"

#include <algorithm>
#include <array>

namespace ulpscope::cpu {
namespace {

/// Depthwise convolutions from so many channels on.
struct Depthwise {
  std::int64_t window, stride, channels;
};

/// AMD EPYC (Zen 4), oneDNN 2023.2.0: bytes take 1.0 to 1.8 of the time of floats. With a stride the input, which takes
/// four times as much memory as floats, is larger than what is computed of it. Others take 0.3 to 0.7.
constexpr std::array kDepthwise{
    Depthwise{3, 1, 1}, Depthwise{3, 2, 32}, Depthwise{5, 1, 1}, Depthwise{7, 1, 1}, Depthwise{7, 2, 32},
};

/// Products in a sum from which on tiles take 0.25 to 1.0 of the time; with fewer, and in groups, 0.9 to 2.1.
constexpr std::int64_t kTileSum = 64;

/// AMD EPYC (Zen 5) held to AVX2: with so many products in a sum, and so many output channels, pairs of 16 bits take
/// 0.55 to 0.95 of the time of floats, with fewer of either 0.9 to 2.5.
constexpr std::int64_t kPairSum = 32, kPairChannels = 32;

}  // namespace

bool is_faster_on_floats(const ConvolutionSpec& spec) {
  const std::int64_t channels = spec.input[1];
  if (spec.transposed || spec.groups != channels || spec.output[1] != channels) return false;
  return std::ranges::any_of(kDepthwise, [&](const Depthwise& row) {
    return channels >= row.channels && std::ranges::all_of(spec.strides, [&](auto s) { return s == row.stride; }) &&
           std::all_of(spec.kernel.begin() + 2, spec.kernel.end(), [&](auto size) { return size == row.window; });
  });
}

bool is_faster_in_pairs(const ConvolutionSpec& spec) {
  return num_elements(spec.kernel) / spec.kernel[0] >= kPairSum && spec.kernel[0] >= kPairChannels;
}

bool is_faster_in_tiles(const ConvolutionSpec& spec) {
  return spec.groups == 1 && num_elements(spec.kernel) / spec.kernel[0] >= kTileSum;
}

}  // namespace ulpscope::cpu
