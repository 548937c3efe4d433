// What the kernels of attention have in common: products, copies into shared memory, and what becomes of operands.
#include "backend/cuda/attention_form.h"

namespace ulpscope::cuda {

const char* attention_functions() {
  return R"(
#define LDMATRIX(M, a, b, c, d, p) \
  asm volatile("ldmatrix.sync.aligned.m8n8.x4" M ".shared.b16 {%0,%1,%2,%3},[%4];" \
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(p) : "memory")
#define MMA(c, a, b0, b1) \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME ".f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

// The same without sums before.
#define MMA_FROM_ZERO(c, a, b0, b1) \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME ".f32 " \
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%10,%10,%10};" \
               : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3]) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f))

// 16 bytes into shared memory, which arrive later: the first COUNT of them are copied, the others zeros.
#define COPY_LATER(to, from, COUNT) \
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(COUNT) : "memory")
// Ends a group of what was started; waits until COUNT groups at most are on their way.
#define COMMIT asm volatile("cp.async.commit_group;")
#define ARRIVED(COUNT) asm volatile("cp.async.wait_group %0;" ::"n"(COUNT) : "memory")

// Two numbers times a factor, stored again.
DEVICE u32 scaled_pair(u32 x, float factor) {
  return (u32)NARROW(WIDEN((u16)x) * factor) | (u32)NARROW(WIDEN((u16)(x >> 16)) * factor) << 16;
}
// Two elements of fp8 e4m3, as numbers of the type.
DEVICE u32 elements_of_fp8(float x, float x1) {
#if HALF && __CUDA_ARCH__ >= 890
  u32 y;
  asm("{.reg .b16 e;\n\tcvt.rn.satfinite.e4m3x2.f32 e, %1, %2;\n\tcvt.rn.f16x2.e4m3x2 %0, e;}"
      : "=r"(y) : "f"(x1), "f"(x));
  return y;
#else
  return PAIR(round_e4m3(x), round_e4m3(x1));
#endif
}
// What becomes of two numbers of an operand before they are multiplied.
struct Untouched { static constexpr bool CHANGES = false; DEVICE u32 pair(u32 x) { return x; } };
#define PREPARED(OPERAND) \
  struct Prepared##OPERAND { \
    static constexpr bool CHANGES = SCALED_##OPERAND || ELEMENTS_##OPERAND; \
    DEVICE u32 pair(u32 x) { \
      if (SCALED_##OPERAND) return scaled_pair(x, FACTOR_##OPERAND); \
      if (!ELEMENTS_##OPERAND) return x; \
      const float low = WIDEN((u16)x), high = WIDEN((u16)(x >> 16)); \
      return elements_of_fp8(QUOTIENT_##OPERAND(low), QUOTIENT_##OPERAND(high)); \
    } \
  };
PREPARED(Q)
PREPARED(K)
PREPARED(V)
PREPARED(P)
template <class Prepared> DEVICE uint4 prepared(uint4 x) {
  return make_uint4(Prepared::pair(x.x), Prepared::pair(x.y), Prepared::pair(x.z), Prepared::pair(x.w));
}

// ROWS rows of COLUMNS elements, from row `first` of `limit`, into a tile of WIDTH elements a row; zeros beyond.
template <int ROWS, int COLUMNS, int WIDTH, bool ALIGNED, class Prepared>
DEVICE void fill(u16* tile, const u16* from, i64 first, i64 limit, i64 row, i64 column) {
  if constexpr (ALIGNED) {
    for (int i = threadIdx.x; i < ROWS * (WIDTH / 8); i += THREADS) {
      const int r = i / (WIDTH / 8), c = i % (WIDTH / 8) * 8;
      uint4* to = (uint4*)(tile + r * (WIDTH + PAD) + c);
      uint4 x = make_uint4(0, 0, 0, 0);
      if (first + r < limit && c < COLUMNS) x = *(const uint4*)(from + (first + r) * row + c);
      *to = prepared<Prepared>(x);
    }
  } else {
    for (int i = threadIdx.x; i < ROWS * WIDTH; i += THREADS) {
      const int r = i / WIDTH, c = i % WIDTH;
      const u16 x = first + r < limit && c < COLUMNS ? from[(first + r) * row + c * column] : (u16)0;
      tile[r * (WIDTH + PAD) + c] = (u16)Prepared::pair(x);
    }
  }
}
// Two probabilities as operands.
DEVICE u32 probabilities(float p, float p1) {
  if (NAN_IS_ZERO) {
    p = p == p ? p : 0.0f;
    p1 = p1 == p1 ? p1 : 0.0f;
  }
  return PreparedP::pair(PAIR(p, p1));
}
// The same as fill, but where rows are whole words the numbers arrive later (cp.async), and as they are.
template <int ROWS, int COLUMNS, int WIDTH, bool ALIGNED, class Prepared>
DEVICE void start_fill(u16* tile, const u16* from, i64 first, i64 limit, i64 row, i64 column) {
  if constexpr (ALIGNED) {
    for (int i = threadIdx.x; i < ROWS * (WIDTH / 8); i += THREADS) {
      const int r = i / (WIDTH / 8), c = i % (WIDTH / 8) * 8;
      const bool there = first + r < limit && c < COLUMNS;
      const u32 to = (u32)__cvta_generic_to_shared(tile + r * (WIDTH + PAD) + c);
      const u16* at = there ? from + (first + r) * row + c : from;
      COPY_LATER(to, at, there ? 16 : 0);
    }
  } else {
    fill<ROWS, COLUMNS, WIDTH, false, Prepared>(tile, from, first, limit, row, column);
  }
}
// Whole rows from the first on, prepared; everything is on its way before anything is waited for.
template <int ROWS, int COLUMNS, int WIDTH, class Prepared>
DEVICE void fill_prepared(u16* tile, const u16* from, i64 limit, i64 row) {
  constexpr int WORDS = ROWS * (WIDTH / 8), AT_ONCE = 16;
  for (int first = threadIdx.x; first < WORDS; first += AT_ONCE * THREADS) {
    uint4 x[AT_ONCE];
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j) {
      const int i = first + j * THREADS, r = i / (WIDTH / 8), c = i % (WIDTH / 8) * 8;
      x[j] = make_uint4(0, 0, 0, 0);
      if (j * THREADS < WORDS && i < WORDS && r < limit && c < COLUMNS) x[j] = *(const uint4*)(from + r * row + c);
    }
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j) {
      const int i = first + j * THREADS;
      if (j * THREADS < WORDS && i < WORDS)
        *(uint4*)(tile + i / (WIDTH / 8) * (WIDTH + PAD) + i % (WIDTH / 8) * 8) = prepared<Prepared>(x[j]);
    }
  }
}
// Prepares what this thread has brought itself.
template <int ROWS, int WIDTH, class Prepared> DEVICE void prepare_own(u16* tile) {
  for (int i = threadIdx.x; i < ROWS * (WIDTH / 8); i += THREADS) {
    uint4* at = (uint4*)(tile + i / (WIDTH / 8) * (WIDTH + PAD) + i % (WIDTH / 8) * 8);
    *at = prepared<Prepared>(*at);
  }
}
// A score that is not a number is lost here, but not in the sum: the whole row becomes one.
DEVICE float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
DEVICE float row_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}
)";
}

}  // namespace ulpscope::cuda
