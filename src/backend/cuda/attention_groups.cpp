// Attention on long rows for sm_90: one warp group brings tiles of keys and values, the others multiply with wgmma.
// While one of them has the tensor cores, another one takes exponentials; within a group the scores of a tile are
// computed beside the results of the tile before. (The order is that of FlashAttention-3, Shah et al. 2024.) Without
// AttentionSpec::flash keys are read once more, before all, for the largest scores and the sums.
#include <fmt/format.h>

#include "backend/cuda/attention_form.h"
#include "backend/cuda/element_source.h"
#include "backend/cuda/warp_groups.h"
#include "formats/rounding.h"

namespace ulpscope::cuda {
namespace {

constexpr const char* kGroups = R"(
template <bool B> struct Flag { static constexpr bool value = B; };
constexpr int GROUPS = ROW_GROUPS * PARTS, ROWS = ROW_GROUPS * 64, TILES = (KEYS + TILE - 1) / TILE;
constexpr int K_BYTES = DQ * TILE * 2, V_BYTES = VALUE_BOXES * 64 * TILE * 2;
static_assert(PARTS <= STAGES, "a part goes around at most once from tile to tile");
constexpr float LOG2E = 1.44269504f * SCORE_FACTOR;  // Scores are powers of two here.
// What scores are measured by: a row without a finite score so far by anything, but differences must be numbers.
DEVICE float measure(float largest) { return largest == -INFINITE ? 0.0f : largest * LOG2E; }
DEVICE float power(float x, float by) { return exp2_of(fmaf(x, LOG2E, -by)); }
// Two elements times a factor. Where the type has the factor, its own product is the rounded one.
template <bool EXACT> DEVICE u32 scaled_two(u32 x, float factor) {
  if constexpr (EXACT) {
    u32 y;
    asm("mul.rn." NAME "x2 %0, %1, %2;" : "=r"(y) : "r"(x), "r"(PAIR(factor, factor)));
    return y;
  } else {
    return scaled_pair(x, factor);
  }
}
template <bool EXACT> DEVICE uint4 scaled_word(uint4 x, float factor) {
  return make_uint4(scaled_two<EXACT>(x.x, factor), scaled_two<EXACT>(x.y, factor), scaled_two<EXACT>(x.z, factor),
                    scaled_two<EXACT>(x.w, factor));
}

// Blocks take one block of queries after the other, the first ones of a head first.
constexpr int QUERY_BLOCKS = (QUERIES + ROWS - 1) / ROWS, ITEMS = QUERY_BLOCKS * HEADS * BATCH;
constexpr int PASSES = FLASH ? 1 : 2;  // Over the keys.

// The place of a tile in the ring, and how often the ring was filled before it.
struct Place {
  int stage = 0;
  u32 phase = 0;
  __device__ __forceinline__ void advance(int by) {
    stage += by;
    if (stage >= STAGES) stage -= STAGES, phase ^= 1;
  }
};

// The group that brings keys and values: one thread starts, and where keys have a factor three warps multiply them.
DEVICE void bring(const TensorMap* k, const TensorMap* v, u32 tiles_k, u32 tiles_v, u32 raw_k, u32 full_k, u32 full_v,
                  u32 empty_k, u32 empty_v) {
  const int own = (int)threadIdx.x % 128 - 32;
  Place keys, values;
  if (own == -32) {
    for (int item = blockIdx.x; item < ITEMS; item += gridDim.x) {
      const int h = item / QUERY_BLOCKS % HEADS, b = item / (QUERY_BLOCKS * HEADS);
      for (int n = 0; n < PASSES * TILES; ++n) {
        const int row = n % TILES * TILE;
        const u32 of_keys = keys.stage * 8, barrier = (SCALED_K ? raw_k : full_k) + of_keys;
        wait(empty_k + of_keys, keys.phase ^ 1);
        expect(barrier, K_BYTES);
#pragma unroll
        for (int box = 0; box < DQ / 64; ++box)
          load_box(tiles_k + keys.stage * K_BYTES + box * TILE * 128, k, barrier, box * 64, row, K1 == 0 ? 0 : h,
                   K0 == 0 ? 0 : b);
        keys.advance(1);
        if (n < (PASSES - 1) * TILES) continue;
        const u32 of_values = values.stage * 8;
        wait(empty_v + of_values, values.phase ^ 1);
        expect(full_v + of_values, V_BYTES);
#pragma unroll
        for (int box = 0; box < VALUE_BOXES; ++box)
          load_box(tiles_v + values.stage * V_BYTES + box * TILE * 128, v, full_v + of_values, box * 64, row,
                   V1 == 0 ? 0 : h, V0 == 0 ? 0 : b);
        values.advance(1);
      }
    }
  }
  if (SCALED_K && own >= 0)
    for (int item = blockIdx.x; item < ITEMS; item += gridDim.x)
      for (int n = 0; n < PASSES * TILES; ++n, keys.advance(1)) {
        wait(raw_k + keys.stage * 8, keys.phase);
#pragma unroll 4
        for (int i = own; i < K_BYTES / 16; i += 96) {
          const u32 at = tiles_k + keys.stage * K_BYTES + i * 16;
          store_word(at, scaled_word<EXACT_K>(load_word(at), FACTOR_K));
        }
        publish();
        arrive_here(full_k + keys.stage * 8);
      }
}

extern "C" __global__ __launch_bounds__(GROUPS * 128 + 128, BLOCKS) void kernel(
    const __grid_constant__ TensorMap map_k, const __grid_constant__ TensorMap map_v, ARGUMENTS) {
  extern __shared__ u8 memory[];
  const u32 tiles_q = (shared_address(memory) + 1023) & ~1023u, tiles_k = tiles_q + ROWS * DQ * 2;
  const u32 tiles_v = tiles_k + STAGES * K_BYTES, full_k = tiles_v + STAGES * V_BYTES, full_v = full_k + STAGES * 8;
  const u32 empty_k = full_v + STAGES * 8, empty_v = empty_k + STAGES * 8, raw_k = empty_v + STAGES * 8;
  float2* const of_parts = (float2*)(memory + (raw_k + STAGES * 8 - shared_address(memory)));
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      init_barrier(raw_k + s * 8, 1);
      init_barrier(full_k + s * 8, SCALED_K ? 96 : 1);
      init_barrier(full_v + s * 8, 1);
      init_barrier(empty_k + s * 8, 4 * ROW_GROUPS);  // The warps that read it.
      init_barrier(empty_v + s * 8, 4 * ROW_GROUPS);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  begin();
  if (group == GROUPS) {
    FEWER_REGISTERS;
    bring(&map_k, &map_v, tiles_k, tiles_v, raw_k, full_k, full_v, empty_k, empty_v);
    return;
  }
  MORE_REGISTERS;
  // With PARTS > 1, part p has the tiles p, p + PARTS, ..., and the results are added up at the end.
  const int part = group / ROW_GROUPS, rows_of = group % ROW_GROUPS, warp = threadIdx.x / 32 % 4;
  const u32 own_q = tiles_q + rows_of * 64 * DQ * 2;
  float c[TILE / 2], out[DV / 2], largest[2], total[2];
  u32 p[TILE / 16][4];
  i64 b, h, rows[2];  // This thread has two rows of its warp's 16: 8 apart.
  // What the softmax takes of a sum of products.
  auto score = [&](float sum, i64 i, i64 j) -> float {
SCORE
  };
  const u64 box_q = box_at(own_q);
  auto start_scores = [&](int stage) {
    const u64 box_k = box_at(tiles_k + stage * K_BYTES);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int d = 0; d < (DEPTH + 15) / 16; ++d)
      multiply_scores(c, box_q + d / 4 * (64 * 8) + d % 4 * 2, box_k + d / 4 * (TILE * 8) + d % 4 * 2, d > 0);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  };
  auto start_results = [&](int stage) {
    // Rows of keys are the inner dimension here: boxes of 64 values lie TILE rows apart.
    const u64 box_v = turned_box_at(tiles_v + stage * V_BYTES, TILE * 128);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int n = 0; n < TILE / 16; ++n) multiply_values(out, p[n], box_v + n * (16 * 8));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  };
  // `ends`: there are keys beyond the last one in it, whose scores are -infinity.
  auto scores_of_tile = [&](int t, auto ends) {
    const int key = t * TILE + (lane & 3) * 2;
#pragma unroll
    for (int n = 0; n < TILE / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int j = key + n * 8 + (e & 1);
        if (decltype(ends)::value && j >= KEYS)
          c[n * 4 + e] = -INFINITE;
        else
          c[n * 4 + e] = score(c[n * 4 + e], rows[e >> 1], j);
      }
  };
  auto take_scores = [&](int t) {
    if (KEYS % TILE != 0 && t + 1 == TILES)
      scores_of_tile(t, Flag<true>());
    else
      scores_of_tile(t, Flag<false>());
  };
  // Of the scores their exponentials; what all before has to be multiplied by, and whether it has to.
  float factors[2];
  auto exponentials = [&](int t) -> bool {
    take_scores(t);
    bool grows = false;
    float by[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float x = largest[e];
#pragma unroll
      for (int n = 0; n < TILE / 8; ++n) x = fmaxf(x, fmaxf(c[n * 4 + e * 2], c[n * 4 + e * 2 + 1]));
      x = row_max(x);
      grows |= x > largest[e];
      by[e] = measure(x);
      factors[e] = power(largest[e], by[e]);
      largest[e] = x;
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float sums[2] = {0.0f, 0.0f};
#pragma unroll
      for (int n = 0; n < TILE / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& x = c[n * 4 + e * 2 + i];
          x = power(x, by[e]);
          sums[i] += x;
        }
      total[e] = total[e] * factors[e] + (sums[0] + sums[1]);
    }
    return __any_sync(~0u, grows);
  };
  // Of the scores the probabilities, when the largest ones and the sums are known.
  float inverse[2];
  auto weights = [&](int t) {
    take_scores(t);
#pragma unroll
    for (int n = 0; n < TILE / 2; ++n)
      c[n] = power(c[n], largest[n >> 1 & 1] * LOG2E) * inverse[n >> 1 & 1];
  };
  auto multiply_results = [&](float by, float by1) {
#pragma unroll
    for (int n = 0; n < DV / 8; ++n) {
      out[n * 4] *= by;
      out[n * 4 + 1] *= by;
      out[n * 4 + 2] *= by1;
      out[n * 4 + 3] *= by1;
    }
  };
  // The sums of products are the operands of the second product as they lie.
  auto pack = [&] {
#pragma unroll
    for (int n = 0; n < TILE / 16; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) p[n][i] = probabilities(c[n * 8 + i * 2], c[n * 8 + i * 2 + 1]);
  };
  auto read = [&](u32 barrier, int stage) {
    __syncwarp();
    if (lane == 0) arrive_here(barrier + stage * 8);
  };
  // The largest scores and the sums of whole rows; `own_factor`: what those of this part were measured by too little.
  float own_factor[2] = {1.0f, 1.0f};
  auto sums_of_rows = [&] {
    total[0] = row_sum(total[0]);
    total[1] = row_sum(total[1]);
    if constexpr (PARTS > 1) {
      float2* const own = of_parts + rows_of * 64 + warp * 16 + (lane >> 2);
      asm volatile("bar.sync 8, %0;" ::"n"(GROUPS * 128) : "memory");
      if ((lane & 3) == 0) {
        own[part * ROWS] = make_float2(largest[0], total[0]);
        own[part * ROWS + 8] = make_float2(largest[1], total[1]);
      }
      asm volatile("bar.sync 8, %0;" ::"n"(GROUPS * 128) : "memory");
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float most = -INFINITE, sum = 0.0f;
#pragma unroll
        for (int o = 0; o < PARTS; ++o) most = fmaxf(most, own[o * ROWS + e * 8].x);
#pragma unroll
        for (int o = 0; o < PARTS; ++o)
          sum += own[o * ROWS + e * 8].y * power(own[o * ROWS + e * 8].x, measure(most));
        own_factor[e] = power(largest[e], measure(most));
        largest[e] = most;
        total[e] = sum;
      }
    }
  };
  // Groups take turns: one starts its products when the one before has started its own; of two, when it has its scores.
  auto my_turn = [&] {
    asm volatile("bar.sync %0, 256;" ::"r"(4 + group) : "memory");
  };
  auto your_turn = [&](int t, bool last) {
    const bool around = PARTS > 1 || group + 1 == GROUPS, ends = t + 1 >= TILES;
    const int next = group + 1 == GROUPS || (PARTS > 1 && ends) ? 0 : group + 1;
    if (!(around && ends && last)) asm volatile("bar.arrive %0, 256;" ::"r"(4 + next) : "memory");
  };
  if (group + 1 == GROUPS) your_turn(TILES, false);
  Place keys, values;
  keys.advance(part);
  values.advance(part);
  for (int item = blockIdx.x; item < ITEMS; item += gridDim.x) {
    const bool last = item + gridDim.x >= ITEMS;
    const i64 own_first = (i64)(item % QUERY_BLOCKS) * ROWS + rows_of * 64;
    h = item / QUERY_BLOCKS % HEADS;
    b = item / (QUERY_BLOCKS * HEADS);
    if (item != blockIdx.x) asm volatile("bar.sync %0, %1;" ::"r"(1 + rows_of), "n"(PARTS * 128) : "memory");
    if (part == 0) {
      const u16* const q = (const u16*)q_ + b * Q0 + h * Q1;
      const int own_row = threadIdx.x % 128 / 8, word = threadIdx.x % 8;
#pragma unroll
      for (int box = 0; box < DQ / 64; ++box)
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const int r = own_row + n * 16, column = box * 64 + word * 8;
          uint4 x = make_uint4(0, 0, 0, 0);
          if (own_first + r < QUERIES && column < DEPTH) x = *(const uint4*)(q + (own_first + r) * Q2 + column);
          if (SCALED_Q) x = scaled_word<EXACT_Q>(x, FACTOR_Q);
          store_word(own_q + box * 64 * 128 + r * 128 + (word ^ r % 8) * 16, x);
        }
      publish();
    }
    asm volatile("bar.sync %0, %1;" ::"r"(1 + rows_of), "n"(PARTS * 128) : "memory");
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      // Computed for nothing beyond the queries, but read in bounds.
      rows[e] = own_first + warp * 16 + e * 8 + (lane >> 2);
      if (QUERIES % ROWS != 0) rows[e] = rows[e] < QUERIES ? rows[e] : QUERIES - 1;
      largest[e] = -INFINITE;
      total[e] = 0.0f;
    }
#pragma unroll
    for (int n = 0; n < DV / 2; ++n) out[n] = 0.0f;
    auto products = [&](int t, bool with_results, bool last) {
      wait(full_k + keys.stage * 8, keys.phase);
      my_turn();
      start_scores(keys.stage);
      if (with_results) {
        wait(full_v + values.stage * 8, values.phase);
        start_results(values.stage);
      }
      if (GROUPS > 2) your_turn(t, last);
      if (with_results)
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
      else
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
      if (GROUPS == 2) your_turn(t, last);
      read(empty_k, keys.stage);
      keys.advance(PARTS);
    };
    auto end_results = [&] {
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
      read(empty_v, values.stage);
      values.advance(PARTS);
    };
    if constexpr (!FLASH) {
      for (int t = part; t < TILES; t += PARTS) {
        products(t, false, false);
        exponentials(t);
      }
      if (PARTS > 1) {  // The parts may have read tiles of different number.
        keys = Place();
        for (int n = 0; n < TILES + part; ++n) keys.advance(1);
      }
      sums_of_rows();
      inverse[0] = 1.0f / total[0];
      inverse[1] = 1.0f / total[1];
    }
    if (part < TILES) {
      products(part, false, last);
      if constexpr (FLASH)
        exponentials(part);
      else
        weights(part);
      pack();
      for (int t = part + PARTS; t < TILES; t += PARTS) {
        products(t, true, last);
        bool grows = false;
        if constexpr (FLASH)
          grows = exponentials(t);
        else
          weights(t);
        end_results();
        if (grows) multiply_results(factors[0], factors[1]);
        pack();
      }
      wait(full_v + values.stage * 8, values.phase);
      start_results(values.stage);
      end_results();
    }
    if constexpr (FLASH) sums_of_rows();
    if constexpr (PARTS > 1) {
      // The other parts hand over what they have in place of keys and values, which all have read then.
      if (FLASH) multiply_results(own_factor[0], own_factor[1]);
      float* const place = (float*)(memory + (tiles_k - shared_address(memory))) + threadIdx.x % 128 +
                           rows_of * (DV / 2) * 128;
      constexpr int STEP = ROW_GROUPS * (DV / 2) * 128;
      asm volatile("bar.sync 8, %0;" ::"n"(GROUPS * 128) : "memory");
      if (part > 0)
#pragma unroll
        for (int n = 0; n < DV / 2; ++n) place[(part - 1) * STEP + n * 128] = out[n];
      asm volatile("bar.sync 8, %0;" ::"n"(GROUPS * 128) : "memory");
      if (part > 0) return;  // Of such blocks each has one item.
#pragma unroll
      for (int o = 0; o < PARTS - 1; ++o)
#pragma unroll
        for (int n = 0; n < DV / 2; ++n) out[n] += place[o * STEP + n * 128];
    }
    if (FLASH) multiply_results(1.0f / total[0], 1.0f / total[1]);
    if constexpr (WHOLE_OUT) {
      // Through shared memory, where this warp's queries were, or its keys: whole words then.
      const u32 own = own_q + warp * 16 * 128;
      asm volatile("bar.sync %0, 128;" ::"r"(1 + rows_of) : "memory");
#pragma unroll
      for (int n = 0; n < DV / 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int r = e * 8 + (lane >> 2);
          store_pair(own + n / 8 * 64 * 128 + r * 128 + ((n ^ r) & 7) * 16 + (lane & 3) * 4,
                     PAIR(out[n * 4 + e * 2], out[n * 4 + e * 2 + 1]));
        }
      __syncwarp();
      for (int i = lane; i < 16 * (VALUES / 8); i += 32) {
        const int r = i / (VALUES / 8), w = i % (VALUES / 8);
        const i64 to = own_first + warp * 16 + r;
        if (to < QUERIES)
          *(uint4*)(out_ + (b * O0 + h * O1 + to * O2 + w * 8) * 2) =
              load_word(own + w / 8 * 64 * 128 + r * 128 + ((w ^ r) & 7) * 16);
      }
    } else {
#pragma unroll
      for (int n = 0; n < DV / 2; ++n) {
        const i64 to = own_first + warp * 16 + (n >> 1 & 1) * 8 + (lane >> 2);
        const int d = n / 4 * 8 + (lane & 3) * 2 + (n & 1);
        if (to < QUERIES && d < VALUES)
          store_one<STORED>(out_ + (b * O0 + h * O1 + to * O2 + d * O3) * (i64)sizeof(STORED), out[n]);
      }
    }
  }
}
)";

/// What the text of warp groups leaves open besides.
std::string group_definitions(const AttentionSpec& spec, const AttentionForm& form) {
  std::string text;
  const auto define = [&](const std::string& name, auto value) { text += fmt::format("#define {} {}\n", name, value); };
  define("STAGES", form.stages);
  define("ROW_GROUPS", form.warps / 4);
  const auto exact = [&](std::optional<float> factor) {
    return factor.has_value() &&
           (spec.type == DataType::kFloat16 ? round_to_f16(*factor) : round_to_bf16(*factor)) == *factor;
  };
  define("EXACT_Q", exact(spec.q_factor));
  define("EXACT_K", exact(spec.k_factor));
  define("HEADS", spec.heads);
  define("BATCH", spec.batch);
  define("SCORE_FACTOR", literal(form.factor));
  define("VALUE_BOXES", divided_up(spec.value_depth, 64));
  // Of 65,536: as many for each thread that multiplies as 128 others leave.
  const auto registers = [&](const char* change, int count) {
    return fmt::format("asm volatile(\"setmaxnreg.{}.sync.aligned.u32 {};\")", change, count);
  };
  define("FEWER_REGISTERS", registers("dec", form.groups() == 3 ? 32 : 24));
  define("MORE_REGISTERS", registers("inc", form.groups() == 3 ? 160 : 240));
  return text;
}

}  // namespace

std::vector<BoxedMatrix> boxed_operands(const AttentionSpec& spec, const AttentionForm& form) {
  // What is the same for all heads or batches counts once.
  const auto many = [](std::int64_t count, std::int64_t stride) {
    return stride == 0 ? BoxedMatrix::Many{1, 8} : BoxedMatrix::Many{count, stride};
  };
  const auto boxed = [&](const std::array<std::int64_t, 4>& strides, std::int64_t columns, int argument) {
    return BoxedMatrix{.type = spec.type,
                       .rows = spec.keys,
                       .columns = columns,
                       .row_stride = strides[2],
                       .box_rows = static_cast<int>(form.tile),
                       .many = {many(spec.heads, strides[1]), many(spec.batch, strides[0])},
                       .argument = argument};
  };
  return {boxed(spec.k, spec.depth, 1), boxed(spec.v, spec.value_depth, 2)};
}

std::string group_attention(const AttentionSpec& spec, const AttentionForm& form) {
  const std::int64_t results = form.dv / 2;
  std::string text =
      group_definitions(spec, form) + warp_group_functions() + multiply_code("multiply_scores", spec.type, form.tile);
  text += fmt::format(
      "DEVICE void multiply_values(float (&d)[{0}], const u32 (&a)[4], u64 b) {{\n"
      "  asm volatile(\"{{\\n.reg .pred add;\\nsetp.ne.b32 add, 1, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n{1}k16.f32.{2}.{2} {{{3}}}, {{{4}}}, %{5}, add, 1, 1, 1;\\n}}\"\n"
      "    : {6} : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b));\n}}\n",
      results, form.dv, type_code(spec.type), operands_from(0, results), operands_from(results, 4), results + 4,
      sums_of_d(results));
  return text + kGroups;
}

}  // namespace ulpscope::cuda
