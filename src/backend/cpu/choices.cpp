#include "backend/cpu/choices.h"

namespace ulpscope::cpu {
namespace {

/// Products in a sum from which on tiles take 0.25 to 1.0 of the time; with fewer, and in groups, 0.9 to 2.1.
constexpr std::int64_t kTileSum = 64;

/// AMD EPYC (Zen 5) held to AVX2: with so many products in a sum, and so many output channels, pairs of 16 bits take
/// 0.55 to 0.95 of the time of floats, with fewer of either 0.9 to 2.5.
constexpr std::int64_t kPairSum = 32, kPairChannels = 32;

/// AMD EPYC (Zen 5), AVX-512: of fewer channels, which leave most of a vector empty, depthwise convolutions take up to
/// three times as long as on floats.
constexpr std::int64_t kDepthwiseChannels = 32;

/// Groups of 16 outputs take 1.2 (AVX-512) to 1.6 (AVX2) times as long as by the reference kernel.
constexpr std::int64_t kPatchChannels = 32;

}  // namespace

bool is_faster_on_bytes(const ConvolutionSpec& spec) { return spec.groups >= kDepthwiseChannels; }

bool is_faster_in_pairs(const ConvolutionSpec& spec) {
  return num_elements(spec.kernel) / spec.kernel[0] >= kPairSum && spec.kernel[0] >= kPairChannels;
}

bool is_faster_in_tiles(const ConvolutionSpec& spec) {
  return spec.groups == 1 && num_elements(spec.kernel) / spec.kernel[0] >= kTileSum;
}

bool is_faster_as_patches(const ConvolutionSpec& spec) {
  return spec.groups == 1 || spec.output[1] / spec.groups >= kPatchChannels;
}

}  // namespace ulpscope::cpu
