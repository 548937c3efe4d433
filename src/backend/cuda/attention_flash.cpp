// Attention that goes over its keys once (AttentionSpec::flash): exponentials are rounded before they are normalized,
// so that sums and results only have to be multiplied when a larger score comes.
#include "backend/cuda/attention_form.h"

namespace ulpscope::cuda {
namespace {

constexpr const char* kOnePass = R"(
static_assert(PART % 16 == 0, "whole operands of keys");
#define DEVICE_MEMBER __device__ __forceinline__
template <bool B> struct Flag { static constexpr bool value = B; };
// What scores are measured by: a row without a finite score so far by anything, but differences must be numbers.
DEVICE float measure(float largest) { return largest == -INFINITE ? 0.0f : largest; }
// exp(x) for x <= 0.
DEVICE float power(float x) { return exp2_of(x * 1.44269504f); }

// Tiles of rows of WIDTH elements, one after the other, to two places in turn. A thread brings the same words of every
// tile, so that addresses are known but for the tile; where words do not part so, start_fill() finds them.
template <int COLUMNS, int WIDTH, i64 ROW, i64 COLUMN, bool WHOLE, class Prepared> struct Tiles {
  static constexpr int WORDS = WIDTH / 8, STEP = WHOLE && THREADS % WORDS == 0 ? THREADS / WORDS : TILE + 1;
  static constexpr bool PARTS_EVENLY = TILE % STEP == 0;
  static constexpr int SIZE = TILE * (WIDTH + PAD);
  u16* tile;
  const u16 *all, *own;
  u32 to;
  int row, bytes;

  DEVICE_MEMBER void begin_at(u16* place, const u16* from) {
    tile = place;
    all = from;
    row = threadIdx.x / WORDS;
    const int column = threadIdx.x % WORDS * 8;
    bytes = column < COLUMNS ? 16 : 0;
    own = from + row * ROW + (column < COLUMNS ? column : 0);
    to = (u32)__cvta_generic_to_shared(place + row * (WIDTH + PAD) + column);
  }
  DEVICE_MEMBER void start(int t) {
    const i64 first = (i64)t * TILE;
    if constexpr (PARTS_EVENLY) {
      const u16* const from = own + first * ROW;
      const u32 into = to + (t & 1) * SIZE * 2;
      const bool whole = first + TILE <= KEYS;
#pragma unroll
      for (int n = 0; n < TILE / STEP; ++n) {
        const bool there = whole || first + row + n * STEP < KEYS;
        COPY_LATER(into + n * STEP * (WIDTH + PAD) * 2, there ? from + n * STEP * ROW : all, there ? bytes : 0);
      }
    } else {
      start_fill<TILE, COLUMNS, WIDTH, WHOLE, Prepared>(tile + (t & 1) * SIZE, all, first, KEYS, ROW, COLUMN);
    }
  }
  // Prepares what this thread has brought itself.
  DEVICE_MEMBER void prepare(int t) {
    if constexpr (PARTS_EVENLY) {
#pragma unroll
      for (int n = 0; n < TILE / STEP; ++n) {
        uint4* const at = (uint4*)(tile + (t & 1) * SIZE + (row + n * STEP) * (WIDTH + PAD) + threadIdx.x % WORDS * 8);
        *at = prepared<Prepared>(*at);
      }
    } else {
      prepare_own<TILE, WIDTH, Prepared>(tile + (t & 1) * SIZE);
    }
  }
};

extern "C" __global__ __launch_bounds__(THREADS, BLOCKS) void kernel(ARGUMENTS) {
  begin();
  constexpr int ROWS = WARPS * ROW_TILES * 16, TILES = (KEYS + TILE - 1) / TILE;
  constexpr int SIZE_K = TILE * (DQ + PAD), SIZE_V = TILE * (DV + PAD);
  extern __shared__ __align__(16) u16 shared[];
  // Two tiles of keys and of values: one is filled while the other is worked on.
  u16* const tile_q = shared;
  u16* const tile_k = tile_q + ROWS * (DQ + PAD);
  u16* const tile_v = tile_k + 2 * SIZE_K;
  float* const of_parts = (float*)(tile_v + 2 * SIZE_V);
  // Of every tile each of PARTS has its own PART keys.
  const int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) % WARPS, part = (threadIdx.x >> 5) / WARPS;
  const int own = warp * ROW_TILES * 16;  // The first query of this warp in the block.
  const i64 b = blockIdx.z, h = blockIdx.y, first = (i64)blockIdx.x * ROWS;
  const u16* const q = (const u16*)q_ + b * Q0 + h * Q1;
  const u16* const k = (const u16*)k_ + b * K0 + h * K1;
  const u16* const v = (const u16*)v_ + b * V0 + h * V1;
  Tiles<DEPTH, DQ, K2, K3, WHOLE_K, PreparedK> keys;
  Tiles<VALUES, DV, V2, V3, WHOLE_V, Untouched> values;
  keys.begin_at(tile_k, k);
  values.begin_at(tile_v, v);
  auto start = [&](int t) {
    keys.start(t);
    values.start(t);
    COMMIT;
  };
  start_fill<ROWS, DEPTH, DQ, WHOLE_Q, PreparedQ>(tile_q, q, first, QUERIES, Q2, Q3);
  COMMIT;
  start(0);
  ARRIVED(1);
  if (WHOLE_Q && PreparedQ::CHANGES) prepare_own<ROWS, DQ, PreparedQ>(tile_q);
  __syncthreads();
  const u32 at_q = (u32)__cvta_generic_to_shared(tile_q + (own + (lane & 15)) * (DQ + PAD) + (lane >> 4) * 8);
  const u32 first_k =
      (u32)__cvta_generic_to_shared(tile_k + (part * PART + (lane & 7)) * (DQ + PAD) + (lane >> 3) * 8);
  const u32 first_v =
      (u32)__cvta_generic_to_shared(tile_v + (part * PART + (lane & 15)) * (DV + PAD) + (lane >> 4) * 8);

  // 16 queries, 16 of their elements, as operands; in registers where they are few.
  auto load_queries = [&](u32 (&a)[4], int r, int d) {
    LDMATRIX("", a[0], a[1], a[2], a[3], at_q + (r * 16 * (DQ + PAD) + d * 16) * 2);
  };
  u32 kept[ROW_TILES][QUERIES_KEPT ? DQ / 16 : 2][4];
  if constexpr (QUERIES_KEPT) {
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int d = 0; d < DQ / 16; ++d) load_queries(kept[r][d], r, d);
  }
  // This thread has two rows of every 16: 8 apart, computed for nothing beyond the queries, but read in bounds.
  i64 rows[ROW_TILES][2];
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      rows[r][e] = first + own + r * 16 + e * 8 + (lane >> 2);
      if (QUERIES % ROWS != 0) rows[r][e] = rows[r][e] < QUERIES ? rows[r][e] : QUERIES - 1;
    }
  // What the softmax takes of a sum of products.
  auto score = [&](float sum, i64 i, i64 j) -> float {
SCORE
  };

  float out[ROW_TILES][DV / 8][4], largest[ROW_TILES][2], total[ROW_TILES][2];
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r) {
#pragma unroll
    for (int n = 0; n < DV / 8; ++n) out[r][n][0] = out[r][n][1] = out[r][n][2] = out[r][n][3] = 0.0f;
    largest[r][0] = largest[r][1] = -INFINITE;
    total[r][0] = total[r][1] = 0.0f;
  }
  // All that was added up so far, measured by another score.
  auto multiply_sums = [&](int r, int e, float factor) {
    total[r][e] *= factor;
#pragma unroll
    for (int n = 0; n < DV / 8; ++n) {
      out[r][n][e * 2] *= factor;
      out[r][n][e * 2 + 1] *= factor;
    }
  };
  float c[ROW_TILES][PART / 8][4];
  // `ends`: there are keys beyond the last one in it, whose scores are -infinity.
  auto scores_of_tile = [&](int t, auto ends) {
    const i64 key = (i64)t * TILE + part * PART + (lane & 3) * 2;
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int n = 0; n < PART / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const i64 j = key + n * 8 + (e & 1);
          if (decltype(ends)::value && j >= KEYS)
            c[r][n][e] = -INFINITE;
          else
            c[r][n][e] = score(c[r][n][e], rows[r][e >> 1], j);
        }
  };
  for (int t = 0; t < TILES; ++t) {
    ARRIVED(0);
    if (WHOLE_K && PreparedK::CHANGES) keys.prepare(t);
    __syncthreads();  // It is there for all, and nobody works on the one before, whose place is filled next.
    if (t + 1 < TILES) start(t + 1);
    const u32 at_k = first_k + (t & 1) * SIZE_K * 2, at_v = first_v + (t & 1) * SIZE_V * 2;

#pragma unroll
    for (int d = 0; d < DQ / 16; d += 2) {
      constexpr bool loads = !QUERIES_KEPT;
      if constexpr (loads) {
#pragma unroll
        for (int r = 0; r < ROW_TILES; ++r) {
          load_queries(kept[r][0], r, d);
          load_queries(kept[r][1], r, d + 1);
        }
      }
#pragma unroll
      for (int n = 0; n < PART / 8; ++n) {
        u32 b0, b1, b2, b3;
        LDMATRIX("", b0, b1, b2, b3, at_k + (n * 8 * (DQ + PAD) + d * 16) * 2);
#pragma unroll
        for (int r = 0; r < ROW_TILES; ++r) {
          if (d == 0)
            MMA_FROM_ZERO(c[r][n], kept[r][0], b0, b1);
          else
            MMA(c[r][n], kept[r][loads ? 0 : d], b0, b1);
          MMA(c[r][n], kept[r][loads ? 1 : d + 1], b2, b3);
        }
      }
    }
    if (KEYS % TILE != 0 && t + 1 == TILES)
      scores_of_tile(t, Flag<true>());
    else
      scores_of_tile(t, Flag<false>());

    float next[ROW_TILES][2];
    bool grows = false;
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float x = largest[r][e];
#pragma unroll
        for (int n = 0; n < PART / 8; ++n) x = fmaxf(x, fmaxf(c[r][n][e * 2], c[r][n][e * 2 + 1]));
        next[r][e] = row_max(x);
        grows |= next[r][e] > largest[r][e];
      }
    // Behind the first tiles it seldom does.
    if (__any_sync(~0u, grows)) {
#pragma unroll
      for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (next[r][e] > largest[r][e]) multiply_sums(r, e, power(largest[r][e] - measure(next[r][e])));
          largest[r][e] = next[r][e];
        }
    }
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r) {
      const float by[2] = {measure(largest[r][0]), measure(largest[r][1])};
#pragma unroll
      for (int n = 0; n < PART / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          c[r][n][e] = power(c[r][n][e] - by[e >> 1]);
          total[r][e >> 1] += c[r][n][e];
        }
    }
    // The sums of products are the operands of the second product as they lie.
#pragma unroll
    for (int n = 0; n < PART / 8; n += 2) {
      u32 p[ROW_TILES][4];
#pragma unroll
      for (int r = 0; r < ROW_TILES; ++r) {
        p[r][0] = PAIR(c[r][n][0], c[r][n][1]);
        p[r][1] = PAIR(c[r][n][2], c[r][n][3]);
        p[r][2] = PAIR(c[r][n + 1][0], c[r][n + 1][1]);
        p[r][3] = PAIR(c[r][n + 1][2], c[r][n + 1][3]);
      }
#pragma unroll
      for (int d = 0; d < DV / 8; d += 2) {
        u32 b0, b1, b2, b3;
        LDMATRIX(".trans", b0, b1, b2, b3, at_v + (n * 8 * (DV + PAD) + d * 8) * 2);
#pragma unroll
        for (int r = 0; r < ROW_TILES; ++r) {
          MMA(out[r][d], p[r], b0, b1);
          MMA(out[r][d + 1], p[r], b2, b3);
        }
      }
    }
  }

  // Each of the parts hands a value per row to the others, and gets theirs: combine(row tile, 0 or 1, value), in order.
  auto exchange = [&](const float (&values)[ROW_TILES][2], auto&& combine) {
    __syncthreads();
    float* const mine = of_parts + part * ROWS + own + (lane >> 2);
    if ((lane & 3) == 0)
#pragma unroll
      for (int r = 0; r < ROW_TILES; ++r) {
        mine[r * 16] = values[r][0];
        mine[r * 16 + 8] = values[r][1];
      }
    __syncthreads();
    for (int p = 0; p < PARTS; ++p) {
      const float* const other = of_parts + p * ROWS + own + (lane >> 2);
#pragma unroll
      for (int r = 0; r < ROW_TILES; ++r) {
        combine(r, 0, other[r * 16]);
        combine(r, 1, other[r * 16 + 8]);
      }
    }
  };
  if constexpr (PARTS > 1) {
    float whole[ROW_TILES][2];
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r) whole[r][0] = whole[r][1] = -INFINITE;
    exchange(largest, [&](int r, int e, float x) { whole[r][e] = fmaxf(whole[r][e], x); });
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (largest[r][e] != whole[r][e]) multiply_sums(r, e, power(largest[r][e] - measure(whole[r][e])));
  }
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r) {
    total[r][0] = row_sum(total[r][0]);
    total[r][1] = row_sum(total[r][1]);
  }
  if constexpr (PARTS > 1) {
    float whole[ROW_TILES][2];
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r) whole[r][0] = whole[r][1] = 0.0f;
    exchange(total, [&](int r, int e, float x) { whole[r][e] += x; });
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r) {
      total[r][0] = whole[r][0];
      total[r][1] = whole[r][1];
    }
    // The results of the first part and, one after the other, of the others.
    float* const sums = (float*)shared + warp * 32 + lane;
    for (int p = 1; p < PARTS; ++p) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < ROW_TILES * DV / 2; ++i)
        if (part == p) sums[i * WARPS * 32] = out[i / (DV / 2)][i % (DV / 2) / 4][i % 4];
      __syncthreads();
#pragma unroll
      for (int i = 0; i < ROW_TILES * DV / 2; ++i)
        if (part == 0) out[i / (DV / 2)][i % (DV / 2) / 4][i % 4] += sums[i * WARPS * 32];
    }
    __syncthreads();  // All sums are read: their memory may be written.
    if (part != 0) return;
  }
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r) {
    const float inverse[2] = {1.0f / total[r][0], 1.0f / total[r][1]};
#pragma unroll
    for (int n = 0; n < DV / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) out[r][n][e] *= inverse[e >> 1];
  }
  u16* const words = tile_q + own * (DQ + PAD);
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
    for (int n = 0; n < DV / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int i = r * 16 + e * 8 + (lane >> 2), d = n * 8 + (lane & 3) * 2;
        if constexpr (WHOLE_OUT) {
          *(u32*)(words + i * (DQ + PAD) + d) = PAIR(out[r][n][e * 2], out[r][n][e * 2 + 1]);
        } else {
          const i64 to = first + own + i;
          u8* const at = out_ + (b * O0 + h * O1 + to * O2 + d * O3) * (i64)sizeof(STORED);
          if (to < QUERIES && d < VALUES) store_one<STORED>(at, out[r][n][e * 2]);
          if (to < QUERIES && d + 1 < VALUES) store_one<STORED>(at + O3 * (i64)sizeof(STORED), out[r][n][e * 2 + 1]);
        }
      }
  if constexpr (WHOLE_OUT) {
    // Through shared memory, where this warp's queries were: whole words then.
    __syncwarp();
    for (int i = lane; i < ROW_TILES * 16 * (VALUES / 8); i += 32) {
      const int r = i / (VALUES / 8), d = i % (VALUES / 8) * 8;
      const i64 to = first + own + r;
      u8* const at = out_ + (b * O0 + h * O1 + to * O2 + d) * 2;
      if (to < QUERIES) *(uint4*)at = *(const uint4*)(words + r * (DQ + PAD) + d);
    }
  }
}
)";

}  // namespace

const char* one_pass_attention() { return kOnePass; }

}  // namespace ulpscope::cuda
