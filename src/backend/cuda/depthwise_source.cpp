// Depthwise convolutions: a thread computes eight channels of neighbors along the width. Weights lie in shared memory;
// those of one row of taps are in registers, where every loaded input meets all the outputs that it belongs to.
#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/convolution_code.h"

namespace ulpscope::cuda {
namespace {

constexpr std::int64_t kThreads = 128, kVectorsPerBlock = 4, kSharedBytes = 40960;
/// Threads that compute several columns share so much of the taps of a large window that fewer of them are enough: 7x7
/// over 32x32x768 takes 17 us with one column a thread and 10 with four, on an H200.
constexpr std::int64_t kLargeWindow = 25, kBusyThreadsOfLarge = 24576;
/// Wider rows of taps, or columns further apart, do not fit into registers.
constexpr std::int64_t kLargestRow = 7, kMostColumns = 20;

std::int64_t taps_of(const ConvolutionSpec& spec) {
  std::int64_t taps = 1;
  for (std::size_t i = 2; i < spec.weights.size(); ++i) taps *= spec.weights[i];
  return taps;
}

constexpr const char* kLoadWeights = R"(
  constexpr int TAPS = RD * RH * RW, STRIPS = (OW + WT - 1) / WT;
  alignas(16) __shared__ Sum shared[TAPS][CB * 8];
  const int c0 = blockIdx.y * (CB * 8);
  for (int i = threadIdx.x; i < CB * TAPS; i += THREADS) {
    const int tap = i / CB, first = i % CB * 8;
    if (c0 + first >= C) continue;
    WEIGHTS
#pragma unroll
    for (int e = 0; e < 8; ++e) shared[tap][first + e] = w[e];
  }
  __syncthreads();
  const int vector = threadIdx.x % CB, k = c0 + vector * 8;
  const Index strip = (Index)blockIdx.x * (THREADS / CB) + threadIdx.x / CB;
  if (k >= C || strip >= N * OD * OH * STRIPS) return;
  const int ow0 = (int)(strip % STRIPS) * WT, oh = (int)(strip / STRIPS % OH), od = (int)(strip / STRIPS / OH % OD);
  const Index n = strip / STRIPS / OH / OD;
CHANNEL_LOADS  Sum sums[WT][8] = {};
#pragma unroll 1
  for (int td = 0; td < RD; ++td) {
    const int id = od * SD - PD + td * DD;
    if (id < 0 || id >= ID) continue;
#pragma unroll 1
    for (int th = 0; th < RH; ++th) {
      const int ih = oh * SH - PH + th * DH;
      if (ih < 0 || ih >= IH) continue;
      const long long row = (((long long)n * ID + id) * IH + ih) * IW;
      const Sum (*taps)[CB * 8] = shared + (td * RH + th) * RW;
)";

constexpr const char* kWindow = R"(      Sum w[RW][8];
#pragma unroll
      for (int tw = 0; tw < RW; ++tw)
#pragma unroll
        for (int e = 0; e < 8; ++e) w[tw][e] = taps[tw][vector * 8 + e];
#pragma unroll
      for (int column = 0; column < (WT - 1) * SW + (RW - 1) * DW + 1; ++column) {
        const int iw = ow0 * SW - PW + column;
        if (iw < 0 || iw >= IW) continue;
        LOAD
#pragma unroll
        for (int j = 0; j < WT; ++j)
#pragma unroll
          for (int tw = 0; tw < RW; ++tw)
            if (j * SW + tw * DW == column)
#pragma unroll
              for (int e = 0; e < 8; ++e) sums[j][e] = multiply_add(v[e], w[tw][e], sums[j][e]);
      }
)";

constexpr const char* kDirect = R"(#pragma unroll 1
      for (int tw = 0; tw < RW; ++tw)
#pragma unroll
        for (int j = 0; j < WT; ++j) {
          const int iw = (ow0 + j) * SW - PW + tw * DW;
          if (iw < 0 || iw >= IW) continue;
          LOAD
#pragma unroll
          for (int e = 0; e < 8; ++e) sums[j][e] = multiply_add(v[e], taps[tw][vector * 8 + e], sums[j][e]);
        }
)";

constexpr const char* kEnd = R"(    }
  }
#pragma unroll
  for (int j = 0; j < WT; ++j) {
    const int ow = ow0 + j;
    if (ow < OW) {
EPILOGUE    }
  }
}
)";

}  // namespace

bool has_depthwise_source(const ConvolutionSpec& spec) {
  const std::int64_t channels = spec.input[1];
  return spec.groups == channels && spec.output[1] == channels && channels % 8 == 0 &&
         taps_of(spec) * 8 * 4 <= kSharedBytes;
}

KernelSource depthwise_source(const ConvolutionCode& code, std::int64_t busy_threads) {
  const ConvolutionSpec& spec = code.spec;
  const std::int64_t vectors = spec.input[1] / 8, taps = taps_of(spec), width = spec.output[4];
  const std::int64_t rows = spec.output[0] * spec.output[2] * spec.output[3];
  std::int64_t per_block = std::min(vectors, kVectorsPerBlock), per_thread = 4;
  while (per_block > 1 && taps * per_block * 32 > kSharedBytes) per_block /= 2;
  if (taps >= kLargeWindow) busy_threads = std::min(busy_threads, kBusyThreadsOfLarge);
  while (per_thread > 1 && rows * vectors * ((width + per_thread - 1) / per_thread) < busy_threads) per_thread /= 2;
  const std::int64_t threads = kThreads / per_block * per_block;
  const std::int64_t columns = (per_thread - 1) * spec.strides[2] + (spec.weights[4] - 1) * spec.dilations[2] + 1;
  const bool window = spec.weights[4] <= kLargestRow && columns <= kMostColumns;
  KernelSource made;
  made.source = prelude() + code.header(static_cast<unsigned>(threads)) + code.constants() +
                fmt::format("  constexpr int CB = {}, WT = {}, THREADS = {};\n  constexpr long long N = {};", per_block,
                            per_thread, threads, spec.output[0]);
  made.source +=
      replaced(replaced(kLoadWeights, "WEIGHTS",
                        code.operands("w", code.weights_type(), "weights", "(long long)tap * C + c0 + first")),
               "CHANNEL_LOADS", code.eight().loads());
  made.source +=
      replaced(window ? kWindow : kDirect, "LOAD", code.operands("v", spec.operands, "x", "(row + iw) * C + k"));
  made.source += replaced(kEnd, "EPILOGUE", code.eight().code("sums[j][e]") + code.eight().stores());
  const std::int64_t strips = rows * ((width + per_thread - 1) / per_thread), strips_per_block = threads / per_block;
  made.grid = {static_cast<unsigned>((strips + strips_per_block - 1) / strips_per_block),
               static_cast<unsigned>((vectors + per_block - 1) / per_block), 1};
  made.block = static_cast<unsigned>(threads);
  return made;
}

}  // namespace ulpscope::cuda
