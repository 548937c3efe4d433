// Attention on tensor cores (mma.sync m16n8k16): a warp has 16 queries and a part of the keys. Keys up to a few hundred
// stay in shared memory and their scores in registers; longer rows go over tiles of keys twice, first for the largest
// score and the sum, then for the probabilities, which have to be normalized before they are rounded. Where
// exponentials are rounded instead, once is enough: attention_flash.cpp.
#include "backend/cuda/attention_source.h"

#include <fmt/format.h>

#include "backend/cuda/attention_form.h"
#include "backend/cuda/element_source.h"

namespace ulpscope::cuda {
namespace {

/// What both kernels have in common: tiles, fragments of the queries, sums of products, scores, the end.
constexpr const char* kKernel = R"(
static_assert(PART % 16 == 0, "whole operands of keys");
extern "C" __global__ __launch_bounds__(THREADS) void kernel(ARGUMENTS) {
  begin();
  extern __shared__ __align__(16) u16 shared[];
  u16* const tile_q = shared;
  u16* const tile_k = tile_q + WARPS * 16 * (DQ + PAD);
  u16* const tile_v = tile_k + COPIES * TILE * (DQ + PAD);
  float* const of_parts = (float*)(tile_v + COPIES * TILE * (DV + PAD));
  // Of every tile each of PARTS has its own PART keys.
  const int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) % WARPS, part = (threadIdx.x >> 5) / WARPS;
  const i64 b = blockIdx.z, h = blockIdx.y, first = (i64)blockIdx.x * WARPS * 16;
  const u16* const q = (const u16*)q_ + b * Q0 + h * Q1;
  const u16* const k = (const u16*)k_ + b * K0 + h * K1;
  const u16* const v = (const u16*)v_ + b * V0 + h * V1;
  start_fill<WARPS * 16, DEPTH, DQ, WHOLE_Q, PreparedQ>(tile_q, q, first, QUERIES, Q2, Q3);
  COMMIT;
START  // Of what was started, the queries have arrived.
  ARRIVED(BEHIND_QUERIES);
  if (WHOLE_Q && PreparedQ::CHANGES && !QUERIES_KEPT) prepare_own<WARPS * 16, DQ, PreparedQ>(tile_q);
  __syncthreads();
  const i64 row = first + warp * 16 + (lane >> 2);  // And row + 8.
  const u32 at_q = (u32)__cvta_generic_to_shared(tile_q + (warp * 16 + (lane & 15)) * (DQ + PAD) + (lane >> 4) * 8);
  const u32 first_k =
      (u32)__cvta_generic_to_shared(tile_k + (part * PART + (lane & 7)) * (DQ + PAD) + (lane >> 3) * 8);
  const u32 first_v =
      (u32)__cvta_generic_to_shared(tile_v + (part * PART + (lane & 15)) * (DV + PAD) + (lane >> 4) * 8);
  u32 at_k = first_k, at_v = first_v;

  // Queries as operands: in registers where they are few.
  u32 kept[QUERIES_KEPT ? DQ / 16 : 1][4];
  if (QUERIES_KEPT)
#pragma unroll
    for (int d = 0; d < DQ / 16; ++d) {
      LDMATRIX("", kept[d][0], kept[d][1], kept[d][2], kept[d][3], at_q + d * 32);
      if (WHOLE_Q)
#pragma unroll
        for (int i = 0; i < 4; ++i) kept[d][i] = PreparedQ::pair(kept[d][i]);
    }
  // Sums of products of this warp's queries with the 8 keys from `key` of the tile on.
  auto multiply = [&](float (&c)[4], int key) {
    c[0] = c[1] = c[2] = c[3] = 0.0f;
#pragma unroll
    for (int d = 0; d < DQ / 16; d += 2) {
      u32 b0, b1, b2, b3;
      LDMATRIX("", b0, b1, b2, b3, at_k + (key * (DQ + PAD) + d * 16) * 2);
      if constexpr (QUERIES_KEPT) {
        MMA(c, kept[d], b0, b1);
        MMA(c, kept[d + 1], b2, b3);
      } else {
        u32 a[4];
        LDMATRIX("", a[0], a[1], a[2], a[3], at_q + d * 32);
        MMA(c, a, b0, b1);
        LDMATRIX("", a[0], a[1], a[2], a[3], at_q + d * 32 + 32);
        MMA(c, a, b2, b3);
      }
    }
  };
  // What the softmax takes of them; -infinity beyond the keys.
  auto score = [&](float sum, i64 i, i64 j) -> float {
    if (KEYS % TILE != 0 && j >= KEYS) return -INFINITE;
    if (QUERIES % (WARPS * 16) != 0) i = i < QUERIES ? i : QUERIES - 1;  // Computed for nothing, but read in bounds.
SCORE
  };
  auto scores = [&](float (&c)[4], i64 key) {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      c[e] = score(ELEMENTS_Q ? c[e] * SUM_SCALE : c[e], row + (e >> 1) * 8, key + (lane & 3) * 2 + (e & 1));
  };
  // All of a tile, one after the other, so that what the scores load is not waited for one by one.
  auto tile_scores = [&](float (&c)[PART / 8][4], i64 key) {
#pragma unroll
    for (int n = 0; n < PART / 8; ++n) multiply(c[n], n * 8);
#pragma unroll
    for (int n = 0; n < PART / 8; ++n) scores(c[n], key + part * PART + n * 8);
  };
  // Hands each part two values of this thread's rows, and takes all of them: combine(first, second) in order.
  auto with_parts = [&](float a0, float a1, auto&& combine) {
    if ((lane & 3) == 0) {
      float* const own = of_parts + (part * WARPS * 16 + warp * 16 + (lane >> 2));
      own[0] = a0;
      own[8] = a1;
    }
    __syncthreads();
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
      const float* const other = of_parts + (p * WARPS * 16 + warp * 16 + (lane >> 2));
      combine(other[0], other[8]);
    }
    __syncthreads();
  };
  auto largest_of_parts = [&](float& a0, float& a1) {
    if (PARTS > 1)
      with_parts(a0, a1, [&](float x, float y) {
        a0 = fmaxf(a0, x);
        a1 = fmaxf(a1, y);
      });
  };
  auto sum_of_parts = [&](float& a0, float& a1) {
    float whole0 = 0.0f, whole1 = 0.0f;
    if (PARTS == 1) return;
    with_parts(a0, a1, [&](float x, float y) {
      whole0 += x;
      whole1 += y;
    });
    a0 = whole0;
    a1 = whole1;
  };
  // Probabilities of 16 keys times their values, added to the results.
  float out[DV / 8][4];
#pragma unroll
  for (int n = 0; n < DV / 8; ++n) out[n][0] = out[n][1] = out[n][2] = out[n][3] = 0.0f;
  auto weigh = [&](const float (&c)[4], const float (&c1)[4], float s0, float s1, int key) {
    const u32 p[4] = {probabilities(c[0] * s0, c[1] * s0), probabilities(c[2] * s1, c[3] * s1),
                      probabilities(c1[0] * s0, c1[1] * s0), probabilities(c1[2] * s1, c1[3] * s1)};
#pragma unroll
    for (int n = 0; n < DV / 8; n += 2) {
      u32 b0, b1, b2, b3;
      LDMATRIX(".trans", b0, b1, b2, b3, at_v + (key * (DV + PAD) + n * 8) * 2);
      MMA(out[n], p, b0, b1);
      MMA(out[n + 1], p, b2, b3);
    }
  };
BODY
  // The results of the first part and, one after the other, of the others.
  if constexpr (PARTS > 1) {
    float* const sums = (float*)shared + warp * 32 + lane;
    for (int p = 1; p < PARTS; ++p) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < DV / 2; ++i)
        if (part == p) sums[i * WARPS * 32] = out[i / 4][i % 4];
      __syncthreads();
#pragma unroll
      for (int i = 0; i < DV / 2; ++i)
        if (part == 0) out[i / 4][i % 4] += sums[i * WARPS * 32];
    }
    __syncthreads();  // All sums are read: their memory may be written.
    if (part != 0) return;
  }
  if (ELEMENTS_V)
#pragma unroll
    for (int n = 0; n < DV / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) out[n][e] *= RESULT_SCALE;
  if constexpr (WHOLE_OUT) {
    // Through shared memory, where the queries were: whole words then.
    u16* const own = tile_q + warp * 16 * (DQ + PAD);
#pragma unroll
    for (int n = 0; n < DV / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        *(u32*)(own + ((lane >> 2) + e * 8) * (DQ + PAD) + n * 8 + (lane & 3) * 2) = PAIR(out[n][e * 2], out[n][e * 2 + 1]);
    __syncwarp();
    for (int i = lane; i < 16 * (VALUES / 8); i += 32) {
      const int r = i / (VALUES / 8), c = i % (VALUES / 8) * 8;
      const i64 to = first + warp * 16 + r;
      if (to < QUERIES) *(uint4*)(out_ + (b * O0 + h * O1 + to * O2 + c) * 2) = *(const uint4*)(own + r * (DQ + PAD) + c);
    }
    return;
  }
#pragma unroll
  for (int n = 0; n < DV / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const i64 i = row + (e >> 1) * 8;
      const int c = n * 8 + (lane & 3) * 2 + (e & 1);
      if (i < QUERIES && c < VALUES) store_one<STORED>(out_ + (b * O0 + h * O1 + i * O2 + c * O3) * (i64)sizeof(STORED), out[n][e]);
    }
}
)";

constexpr const char* kStartAll = R"(
  if constexpr (!(WHOLE_K && PreparedK::CHANGES)) {
    start_fill<TILE, DEPTH, DQ, WHOLE_K, PreparedK>(tile_k, k, 0, KEYS, K2, K3);
    COMMIT;
  }
  start_fill<TILE, VALUES, DV, WHOLE_V, PreparedV>(tile_v, v, 0, KEYS, V2, V3);
  COMMIT;
  if constexpr (WHOLE_K && PreparedK::CHANGES) fill_prepared<TILE, DEPTH, DQ, PreparedK>(tile_k, k, KEYS, K2);
)";

constexpr const char* kInRegisters = R"(
  ARRIVED(1);
  __syncthreads();
  float c[PART / 8][4], m0 = -INFINITE, m1 = -INFINITE, s0 = 0.0f, s1 = 0.0f;
  tile_scores(c, 0);
#pragma unroll
  for (int n = 0; n < PART / 8; ++n) {
    m0 = fmaxf(m0, fmaxf(c[n][0], c[n][1]));
    m1 = fmaxf(m1, fmaxf(c[n][2], c[n][3]));
  }
  m0 = row_max(m0);
  m1 = row_max(m1);
  largest_of_parts(m0, m1);
#pragma unroll
  for (int n = 0; n < PART / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) c[n][e] = expf(c[n][e] - (e < 2 ? m0 : m1));
    s0 += c[n][0] + c[n][1];
    s1 += c[n][2] + c[n][3];
  }
  s0 = row_sum(s0);
  s1 = row_sum(s1);
  sum_of_parts(s0, s1);
  s0 = 1.0f / s0;
  s1 = 1.0f / s1;
  ARRIVED(0);
  if (WHOLE_V && PreparedV::CHANGES) prepare_own<TILE, DV, PreparedV>(tile_v);
  __syncthreads();
#pragma unroll
  for (int n = 0; n < PART / 8; n += 2) weigh(c[n], c[n + 1], FLASH ? 1.0f : s0, FLASH ? 1.0f : s1, n * 8);
  if (FLASH)
#pragma unroll
    for (int n = 0; n < DV / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) out[n][e] *= e < 2 ? s0 : s1;
)";

constexpr const char* kStartFirst = R"(
  // Two tiles of keys and of values: one is filled while the other is worked on.
  constexpr int SIZE_K = TILE * (DQ + PAD), SIZE_V = TILE * (DV + PAD), TILES = (KEYS + TILE - 1) / TILE;
  auto start = [&](int t, bool values) {
    u16* const to = tile_k + (t & 1) * SIZE_K;
    start_fill<TILE, DEPTH, DQ, WHOLE_K, PreparedK>(to, k, (i64)t * TILE, KEYS, K2, K3);
    if (values)
      start_fill<TILE, VALUES, DV, WHOLE_V, PreparedV>(tile_v + (t & 1) * SIZE_V, v, (i64)t * TILE, KEYS, V2, V3);
    COMMIT;
  };
  start(0, false);
)";

constexpr const char* kInTiles = R"(
  float m0 = -INFINITE, m1 = -INFINITE, s0 = 0.0f, s1 = 0.0f;
  float c[PART / 8][4];
  // Waits for tile t, and starts the next one.
  auto arrive = [&](int t, bool values) {
    if (t + 1 < TILES) {
      start(t + 1, values);
      ARRIVED(1);
    } else {
      ARRIVED(0);
    }
    if (WHOLE_K && PreparedK::CHANGES) prepare_own<TILE, DQ, PreparedK>(tile_k + (t & 1) * SIZE_K);
    if (values && WHOLE_V && PreparedV::CHANGES) prepare_own<TILE, DV, PreparedV>(tile_v + (t & 1) * SIZE_V);
    __syncthreads();
    at_k = first_k + (t & 1) * SIZE_K * 2;
    at_v = first_v + (t & 1) * SIZE_V * 2;
  };
  for (int t = 0; t < TILES; ++t) {
    arrive(t, false);
    tile_scores(c, (i64)t * TILE);
    float n0 = m0, n1 = m1;
#pragma unroll
    for (int n = 0; n < PART / 8; ++n) {
      n0 = fmaxf(n0, fmaxf(c[n][0], c[n][1]));
      n1 = fmaxf(n1, fmaxf(c[n][2], c[n][3]));
    }
    // What a row without a finite score so far is measured by does not matter, but its difference must be a number.
    const float b0 = n0 == -INFINITE ? 0.0f : n0, b1 = n1 == -INFINITE ? 0.0f : n1;
    s0 *= expf(m0 - b0);
    s1 *= expf(m1 - b1);
#pragma unroll
    for (int n = 0; n < PART / 8; ++n) {
      s0 += expf(c[n][0] - b0) + expf(c[n][1] - b0);
      s1 += expf(c[n][2] - b1) + expf(c[n][3] - b1);
    }
    m0 = n0;
    m1 = n1;
    __syncthreads();
  }
  start(0, true);
  auto join_lanes = [](float& m, float& s) {
    const float whole = row_max(m);
    s = row_sum(s * expf(m - (whole == -INFINITE ? 0.0f : whole)));
    m = whole;
  };
  join_lanes(m0, s0);
  join_lanes(m1, s1);
  if (PARTS > 1) {
    const float own0 = m0, own1 = m1;
    largest_of_parts(m0, m1);
    s0 *= expf(own0 - (m0 == -INFINITE ? 0.0f : m0));
    s1 *= expf(own1 - (m1 == -INFINITE ? 0.0f : m1));
    sum_of_parts(s0, s1);
  }
  s0 = 1.0f / s0;
  s1 = 1.0f / s1;
  for (int t = 0; t < TILES; ++t) {
    arrive(t, true);
    tile_scores(c, (i64)t * TILE);
#pragma unroll
    for (int n = 0; n < PART / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) c[n][e] = expf(c[n][e] - (e < 2 ? m0 : m1));
#pragma unroll
    for (int n = 0; n < PART / 8; n += 2) weigh(c[n], c[n + 1], s0, s1, n * 8);
    __syncthreads();
  }
)";

/// The statements that make of `sum` what the softmax takes, and the kernel's arguments, loads of these among them.
std::string score_code(const AttentionSpec& spec, std::string& arguments) {
  arguments = "const u8* __restrict__ q_, const u8* __restrict__ k_, const u8* __restrict__ v_";
  std::string score;
  int count = 0;
  for (const AttentionSpec::Scores& part : spec.scores) {
    const bool first = &part == &spec.scores[0];
    std::vector<std::string> pointers{""}, given{first ? "sum" : "before"};
    std::vector<ProgramInput> loads{{}};
    for (const ProgramInput& load : part.loads) {
      pointers.push_back(fmt::format("load{}", count));
      given.emplace_back();
      loads.push_back(load);
      arguments += fmt::format(", const u8* __restrict__ load{}", count++);
    }
    const std::string prefix = first ? "r" : "t";
    const std::vector<std::string> index{"b", "h", "i", "j"};
    score += element_code(part.program, loads, pointers, given, index, prefix);
    const std::string result = rounded_code(part.rounding, fmt::format("{}{}", prefix, part.result));
    score += first ? fmt::format("const float before = {};\n", result) : fmt::format("return {};", result);
  }
  arguments += ", u8* __restrict__ out_";
  return score;
}

}  // namespace

std::optional<KernelSource> attention_source(const AttentionSpec& spec, int warp_group_processors) {
  if (spec.depth > 256 || spec.value_depth > 256 || spec.keys == 0 || spec.batch > 65535 || spec.heads > 65535)
    return std::nullopt;
  auto form = attention_form(spec, warp_group_processors);
  if (!form) return std::nullopt;
  std::string arguments;
  std::string score = score_code(spec, arguments);
  if (const auto factor = positive_factor(spec); factor && form->stages > 0) {
    form->factor = *factor;
    score = "return sum;";
  }
  const bool in_groups = form->stages > 0, once = spec.flash && !form->in_registers;
  std::string kernel = in_groups ? group_attention(spec, *form) : once ? one_pass_attention() : kKernel;
  kernel = replaced(replaced(std::move(kernel), "ARGUMENTS", arguments), "SCORE\n", score + "\n");
  if (!in_groups && !once) {
    kernel = replaced(std::move(kernel), "START", form->in_registers ? kStartAll : kStartFirst);
    kernel = replaced(std::move(kernel), "BODY\n", form->in_registers ? kInRegisters : kInTiles);
  }
  KernelSource result;
  result.source = prelude() + definitions_of(spec, *form) + attention_functions() + kernel;
  result.grid = {static_cast<unsigned>((spec.queries + form->rows() - 1) / form->rows()),
                 static_cast<unsigned>(spec.heads), static_cast<unsigned>(spec.batch)};
  result.block = static_cast<unsigned>(form->warps * form->parts + (in_groups ? 4 : 0)) * 32;
  result.shared = static_cast<unsigned>(form->shared());
  if (in_groups) {
    const unsigned items = result.grid[0] * result.grid[1] * result.grid[2];
    result.grid = {form->parts > 1 ? items : std::min(items, static_cast<unsigned>(warp_group_processors)), 1, 1};
    result.boxed = boxed_operands(spec, *form);
  }
  return result;
}

}  // namespace ulpscope::cuda
