// Convolutions as products of a matrix of weights with one of gathered inputs, in tiles through shared memory: right
// for every spec. A warp's lanes are output channels, of several groups where these are narrow.
#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/convolution_code.h"
#include "core/division.h"

namespace ulpscope::cuda {
namespace {

constexpr std::int64_t kLanes = 32, kRows = 8, kBlockThreads = kLanes * kRows;

/// How a block is cut out of the result.
struct Tiling {
  std::int64_t groups = 1;             ///< Of the convolution, per block.
  std::int64_t channels_per_lane = 1;  ///< Of one group.
  std::int64_t positions_per_thread = 8;
  std::int64_t depth = 16;  ///< Products per position between two barriers.
  std::int64_t channel_tiles = 1, position_tiles = 1;

  std::int64_t positions() const { return kRows * positions_per_thread; }
  /// Floats per product in shared memory: rows of 16 bytes that begin in different banks.
  std::int64_t row() const {
    std::int64_t floats = groups * (positions() + 4);
    while (floats % 32 != 4) floats += 4;
    return floats;
  }
};

Tiling tiling_of(const ConvolutionSpec& spec, std::int64_t busy_threads) {
  const std::int64_t outputs = spec.output[1] / spec.groups;
  const std::int64_t positions = num_elements(spec.output) / spec.output[1];
  Tiling t;
  t.groups = std::min(spec.groups, std::max<std::int64_t>(1, kLanes / outputs));
  if (t.groups == 1 && outputs > kLanes) t.channels_per_lane = 2;
  if (t.groups > 8) {
    t.depth = 8;
    t.positions_per_thread = t.groups > 16 ? 2 : 4;
  }
  t.channel_tiles = t.groups > 1 ? divided_up(spec.groups, t.groups)
                                 : spec.groups * divided_up(outputs, kLanes * t.channels_per_lane);
  while (t.positions_per_thread > 2 &&
         divided_up(positions, t.positions()) * t.channel_tiles * kBlockThreads < busy_threads)
    t.positions_per_thread /= 2;
  t.position_tiles = divided_up(positions, t.positions());
  return t;
}

constexpr const char* kSums = R"(
  constexpr int KG = K / GROUPS, CG = C / GROUPS, TERMS = RD * RH * RW * CG, P = ROWS * PT;
  constexpr int TILES = (KG + 32 * KT - 1) / (32 * KT);  // Per group.
  alignas(16) __shared__ Sum gathered[Q][ROW];
  __shared__ Sum factors[Q][32 * KT + 1];
  __shared__ int start[P][3];
  __shared__ long long base[P];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Index first = (Index)blockIdx.x * P;
  const int group = G > 1 ? blockIdx.y * G : blockIdx.y / TILES;
  const int k0 = G > 1 ? group * KG : group * KG + (int)(blockIdx.y % TILES) * (32 * KT);
  const int k_end = G > 1 ? (group + G < GROUPS ? group + G : GROUPS) * KG : (group + 1) * KG;
  for (int p = threadIdx.x; p < P; p += 32 * ROWS) {
    const Index m = first + p;
    const int ow = (int)(m % OW), oh = (int)(m / OW % OH), od = (int)(m / OW / OH % OD);
    start[p][0] = m < M ? od * SD - PD : -(1 << 29);
    start[p][1] = oh * SH - PH;
    start[p][2] = ow * SW - PW;
    base[p] = ((((long long)(m / OW / OH / OD) * ID + start[p][0]) * IH + start[p][1]) * IW + start[p][2]) * C;
  }
  Sum sums[KT][PT] = {};
  const int column = threadIdx.x % Q, my_group = G > 1 && lane / KG < G ? lane / KG : 0;
#pragma unroll 1
  for (int q0 = 0; q0 < TERMS; q0 += Q) {
    const int q = q0 + column, tap = q / CG;
    const int td = tap / (RW * RH) * DD, th = tap / RW % RH * DH, tw = tap % RW * DW;
    const long long from = (((long long)td * IH + th) * IW + tw) * C + (long long)group * CG + q % CG;
    __syncthreads();
#pragma unroll 4
    for (int i = threadIdx.x / Q; i < G * P; i += 32 * ROWS / Q) {
      const int g = i % G, p = i / G;
      const int id = start[p][0] + td, ih = start[p][1] + th, iw = start[p][2] + tw;
      const bool inside = q < TERMS && group + g < GROUPS && id >= 0 && id < ID && ih >= 0 && ih < IH && iw >= 0 && iw < IW;
      gathered[column][g * (P + 4) + p] = inside ? INPUT : (Sum)0;
    }
#pragma unroll 4
    for (int i = threadIdx.x / Q; i < 32 * KT; i += 32 * ROWS / Q)
      factors[column][i] = q < TERMS && k0 + i < k_end ? WEIGHT : (Sum)0;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < Q; ++j) {
      const Sum* a = gathered[j] + my_group * (P + 4) + warp * PT;
#pragma unroll
      for (int s = 0; s < KT; ++s)
#pragma unroll
        for (int t = 0; t < PT; ++t) sums[s][t] = multiply_add(a[t], factors[j][lane + 32 * s], sums[s][t]);
    }
  }
)";

constexpr const char* kStores = R"(#pragma unroll
  for (int s = 0; s < KT; ++s)
#pragma unroll
    for (int t = 0; t < PT; ++t) {
      const Index m = first + warp * PT + t;
      const int k = k0 + lane + 32 * s;
      if (m < M && k < k_end) {
        const int ow = (int)(m % OW), oh = (int)(m / OW % OH), od = (int)(m / OW / OH % OD);
        const Index n = m / OW / OH / OD;
EPILOGUE      }
    }
}
)";

std::string with(std::string text, const std::string& what, const std::string& by) {
  return text.replace(text.find(what), what.size(), by);
}

}  // namespace

KernelSource tiled_source(const ConvolutionCode& code, std::int64_t busy_threads) {
  const Tiling tiling = tiling_of(code.spec, busy_threads);
  KernelSource made;
  made.source = prelude() + code.header(kBlockThreads) + code.constants() +
                fmt::format(
                    "  constexpr int ROWS = {}, G = {}, KT = {}, PT = {}, Q = {}, ROW = {};\n"
                    "  constexpr long long M = {};",
                    kRows, tiling.groups, tiling.channels_per_lane, tiling.positions_per_thread, tiling.depth,
                    tiling.row(), num_elements(code.spec.output) / code.spec.output[1]);
  made.source += with(with(kSums, "INPUT", code.operand(code.spec.operands, "x", "base[p] + from + g * CG")), "WEIGHT",
                      code.operand(code.weights_type(), "weights", "(long long)(k0 + i) * TERMS + q"));
  made.source += with(kStores, "EPILOGUE", code.element("sums[s][t]"));
  made.grid = {static_cast<unsigned>(tiling.position_tiles), static_cast<unsigned>(tiling.channel_tiles), 1};
  made.block = static_cast<unsigned>(kBlockThreads);
  return made;
}

KernelSource convolution_source(const ConvolutionSpec& spec, const Program& epilogue,
                                std::span<const ProgramInput> loads, std::span<const ProgramOutput> outputs) {
  const ConvolutionCode code(spec, epilogue, loads, outputs);
  return has_depthwise_source(spec) ? depthwise_source(code) : tiled_source(code);
}

}  // namespace ulpscope::cuda
