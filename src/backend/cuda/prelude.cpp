// What all kernels share. Its names: types f16, bf16, boolean, i8 ... u64; value<T>(bits) and bits<T>(value) of one
// element; load<T, V, W> and store<T, V, W> of V elements in words of W bytes; round_*; one function per instruction.
#include "backend/cuda/element_source.h"
#include "backend/cuda/kernel_source.h"

namespace ulpscope::cuda {
namespace {

constexpr const char* kTypes = R"(
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct e4m3 { u8 bits; };
struct boolean { u8 bits; };
#define DEVICE static __device__ __forceinline__
#define INFINITE __int_as_float(0x7f800000)

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
DEVICE void begin() { asm volatile("griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;" ::: "memory"); }
#else
DEVICE void begin() {}
#endif
DEVICE float widen_f16(u16 x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }
DEVICE u16 narrow_f16(float x) { u16 y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
DEVICE u16 narrow_bf16(float x) { u16 y; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
DEVICE u32 pair_f16(float x, float x1) {
  u32 y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(x1), "f"(x));
  return y;
}
DEVICE u32 pair_bf16(float x, float x1) {
  u32 y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(x1), "f"(x));
  return y;
}
DEVICE float exp2_of(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEVICE u32 multiplied_f16x2(u32 a, u32 b) {
  u32 y;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
}
DEVICE u32 subtracted_f16x2(u32 a, u32 b) {
  u32 y;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
}
DEVICE u32 fused_f16x2(u32 a, u32 b, u32 c) {
  u32 y;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
  return y;
}
// The bits of a that mask has, beside those of c, in one instruction.
DEVICE u32 picked(u32 a, u32 mask, u32 c) {
  u32 y;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(y) : "r"(a), "r"(mask), "r"(c));
  return y;
}
// 16 bytes that are read once.
DEVICE uint4 streamed(const u8* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
// d[16][8] += a[16][16] b[16][8], on all lanes of a warp.
DEVICE void multiply_f16(float (&d)[4], const u32 (&a)[4], u32 b, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(b1));
}
DEVICE void multiply_bf16(float (&d)[4], const u32 (&a)[4], u32 b, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(b1));
}
DEVICE float widen_bf16(u16 x) { return __uint_as_float((u32)x << 16); }

DEVICE float round_f16(float x) { return widen_f16(narrow_f16(x)); }
DEVICE float round_bf16(float x) { return widen_bf16(narrow_bf16(x)); }
DEVICE float round_tf32(float x) {
  const u32 b = __float_as_uint(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return __uint_as_float(b | 0x00400000u);
  return __uint_as_float((b + 0xfffu + (b >> 13 & 1u)) & ~0x1fffu);
}
// To the nearest number of fp8 e4m3, ties to even; what is too large becomes 448.
DEVICE float round_e4m3(float x) {
  x = x > 448.0f ? 448.0f : x;
  x = x < -448.0f ? -448.0f : x;
  const u32 own = __float_as_uint(x) & 0x7f800000u;
  const float unit = __uint_as_float((own > 0x3c800000u ? own : 0x3c800000u) + 0x0a400000u);
  const float y = (fabsf(x) + unit) - unit;
  return copysignf(y, x);
}
DEVICE u32 code_e4m3(float x) {
  x = round_e4m3(x);
  const u32 half = narrow_f16(x * 0x1p-8f);
  return x == x ? half >> 8 & 0x80u | half >> 7 & 0x7fu : 0x7fu;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
DEVICE u32 pair_e4m3(float x, float x1) {
  u16 y;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(y) : "f"(x1), "f"(x));
  return y;
}
DEVICE u32 halves_e4m3(u16 x) {
  u32 y;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(y) : "h"(x));
  return y;
}
#else
DEVICE u32 halves_e4m3(u16 x) {
  const u32 low = (x & 0x80u) << 8 | (x & 0x7fu) << 7, high = (x & 0x8000u) | (x >> 1 & 0x3f80u);
  return multiplied_f16x2(low | high << 16, 0x5c005c00u);
}
DEVICE u32 pair_e4m3(float x, float x1) { return code_e4m3(x) | code_e4m3(x1) << 8; }
#endif
// To an integer from low to high, ties to even; NaN is 0.
DEVICE float to_integer(float x, float low, float high) {
  x = x == x ? x : 0.0f;
  x = x < low ? low : x;
  x = x > high ? high : x;
  return (x + 12582912.0f) - 12582912.0f;
}
)";

constexpr const char* kElements = R"(
// An element as a number, from the low bits of a word; and the reverse.
template <class T> struct Element {
  DEVICE float value(u64 bits) { return (float)(T)bits; }
  DEVICE u64 bits(float x) { return (u64)(T)x; }
};
template <> struct Element<float> {
  DEVICE float value(u64 bits) { return __uint_as_float((u32)bits); }
  DEVICE u64 bits(float x) { return __float_as_uint(x); }
};
template <> struct Element<f16> {
  DEVICE float value(u64 bits) { return widen_f16((u16)bits); }
  DEVICE u64 bits(float x) { return narrow_f16(x); }
};
template <> struct Element<bf16> {
  DEVICE float value(u64 bits) { return widen_bf16((u16)bits); }
  DEVICE u64 bits(float x) { return narrow_bf16(x); }
};
template <> struct Element<e4m3> {
  DEVICE float value(u64 bits) { return widen_f16((u16)((bits & 0x80u) << 8 | (bits & 0x7fu) << 7)) * 256.0f; }
  DEVICE u64 bits(float x) { return pair_e4m3(x, 0.0f) & 0xffu; }
};
template <> struct Element<boolean> {
  DEVICE float value(u64 bits) { return (bits & 0xffu) != 0 ? 1.0f : 0.0f; }
  DEVICE u64 bits(float x) { return x != 0.0f ? 1 : 0; }
};
template <int S> struct Word;
template <> struct Word<1> { typedef u8 type; };
template <> struct Word<2> { typedef u16 type; };
template <> struct Word<4> { typedef u32 type; };
template <> struct Word<8> { typedef uint2 type; };
template <> struct Word<16> { typedef uint4 type; };

// B bytes in words of W <= B bytes.
template <int B, int W> DEVICE void fetch(const u8* p, u32 (&w)[(B + 3) / 4]) {
  typedef typename Word<W>::type T;
  if constexpr (W < 4) w[0] = 0;
#pragma unroll
  for (int i = 0; i < B / W; ++i) {
    const T v = ((const T*)p)[i];
    if constexpr (W == 16) w[4 * i] = v.x, w[4 * i + 1] = v.y, w[4 * i + 2] = v.z, w[4 * i + 3] = v.w;
    else if constexpr (W == 8) w[2 * i] = v.x, w[2 * i + 1] = v.y;
    else if constexpr (W == 4) w[i] = v;
    else if (i * W % 4 == 0) w[i * W / 4] = v;
    else w[i * W / 4] |= (u32)v << i * W % 4 * 8;
  }
}
template <int B, int W> DEVICE void put(u8* p, const u32 (&w)[(B + 3) / 4]) {
  typedef typename Word<W>::type T;
#pragma unroll
  for (int i = 0; i < B / W; ++i) {
    if constexpr (W == 16) ((T*)p)[i] = make_uint4(w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3]);
    else if constexpr (W == 8) ((T*)p)[i] = make_uint2(w[2 * i], w[2 * i + 1]);
    else ((T*)p)[i] = (T)(w[i * W / 4] >> i * W % 4 * 8);
  }
}
template <int S, int N> DEVICE u64 pick(const u32 (&w)[N], int e) {
  if constexpr (S == 8) return w[2 * e] | (u64)w[2 * e + 1] << 32;
  else return w[e * S / 4] >> e * S % 4 * 8;
}
template <class T, int V, int W> DEVICE void load(const u8* p, float (&x)[V]) {
  u32 w[(V * sizeof(T) + 3) / 4];
  fetch<V * sizeof(T), W>(p, w);
#pragma unroll
  for (int e = 0; e < V; ++e) x[e] = Element<T>::value(pick<sizeof(T)>(w, e));
}
template <class T, int V> struct Packed {
  template <int N> DEVICE void pack(const float (&x)[V], u32 (&w)[N]) {
    constexpr int S = sizeof(T);
#pragma unroll
    for (int i = 0; i < N; ++i) w[i] = 0;
#pragma unroll
    for (int e = 0; e < V; ++e) {
      const u64 b = Element<T>::bits(x[e]);
      if constexpr (S == 8) w[2 * e] = (u32)b, w[2 * e + 1] = (u32)(b >> 32);
      else if constexpr (S == 4) w[e] = (u32)b;
      else w[e * S / 4] |= ((u32)b & ((1u << S * 8) - 1)) << e * S % 4 * 8;
    }
  }
};
template <int V> struct Packed<f16, V> {
  template <int N> DEVICE void pack(const float (&x)[V], u32 (&w)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) w[i] = 2 * i + 1 < V ? pair_f16(x[2 * i], x[(2 * i + 1) % V]) : narrow_f16(x[2 * i]);
  }
};
template <int V> struct Packed<bf16, V> {
  template <int N> DEVICE void pack(const float (&x)[V], u32 (&w)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) w[i] = 2 * i + 1 < V ? pair_bf16(x[2 * i], x[(2 * i + 1) % V]) : narrow_bf16(x[2 * i]);
  }
};
template <int V> struct Packed<e4m3, V> {
  template <int N> DEVICE void pack(const float (&x)[V], u32 (&w)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      w[i] = pair_e4m3(x[4 * i], 4 * i + 1 < V ? x[(4 * i + 1) % V] : 0.0f);
      if (4 * i + 2 < V) w[i] |= pair_e4m3(x[(4 * i + 2) % V], 4 * i + 3 < V ? x[(4 * i + 3) % V] : 0.0f) << 16;
    }
  }
};
// Integers of less than 2^22: the sum has their lowest bits in its own.
template <int V> struct PackedBytes {
  template <int N> DEVICE void pack(const float (&x)[V], u32 (&w)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) w[i] = 0;
#pragma unroll
    for (int e = 0; e < V; ++e) w[e / 4] |= (__float_as_uint(x[e] + 12582912.0f) & 0xffu) << e % 4 * 8;
  }
};
template <int V> struct Packed<i8, V> : PackedBytes<V> {};
template <int V> struct Packed<u8, V> : PackedBytes<V> {};
template <class T, int V, int W> DEVICE void store(u8* p, const float (&x)[V]) {
  u32 w[(V * sizeof(T) + 3) / 4];
  Packed<T, V>::pack(x, w);
  put<V * sizeof(T), W>(p, w);
}
template <class T> DEVICE float load_one(const u8* p) {
  float x[1];
  load<T, 1, sizeof(T) < 8 ? sizeof(T) : 8>(p, x);
  return x[0];
}
template <class T> DEVICE void store_one(u8* p, float value) {
  const float x[1] = {value};
  store<T, 1, sizeof(T) < 8 ? sizeof(T) : 8>(p, x);
}

// NaN wins.
DEVICE float smaller(float a, float b) { return a < b || a != a ? a : b; }
DEVICE float larger(float a, float b) { return a > b || a != a ? a : b; }
DEVICE float clamp(float x, float low, float high) { return smaller(larger(x, low), high); }
// a / b where 1 / b is high + low: host code says for which b this is correctly rounded.
DEVICE float multiplied(float a, float high, float low) { return fmaf(a, high, a * low); }
// a / b for b > 0 without a branch: a quotient that is a few ulp off, and two steps with remainders that are exact for
// |a| >= 2^-100, after which it is correctly rounded (P. Markstein, "Computation of elementary functions on the IBM RISC
// System/6000 processor", 1990). Below that it is an ulp off at most.
DEVICE float divided(float a, float b, float reciprocal) {
  const float near = a * reciprocal;
  float q = fmaf(-fmaf(near, b, -a), reciprocal, near);
  q = fmaf(-fmaf(q, b, -a), reciprocal, q);
  return fabsf(near) < INFINITE ? q : near;
}
// 1.5 ulp. Both polynomials (minimax, of (erf(x) / x - 1)(x^2) and of -log2(erfc(x)) / x - 1) are cheaper than to choose
// between their coefficients, as erff does: a processor multiplies and adds twice as fast as it selects.
DEVICE float erf_of(float x) {
  const float t = fabsf(x), s = x * x;
  float near = fmaf(0x1.496a32p-14f, s, -0x1.a3f7p-11f);
  near = fmaf(near, s, 0x1.5405b2p-8f);
  near = fmaf(near, s, -0x1.b7f90ep-6f);
  near = fmaf(near, s, 0x1.ce2cf8p-4f);
  near = fmaf(near, s, -0x1.81273ep-2f);
  near = fmaf(near, s, 0x1.06eba8p-3f);
  near = fmaf(near, x, x);
  float far = fmaf(0x1.5618d8p-16f, t, -0x1.0a7f9ap-11f);
  far = fmaf(far, t, 0x1.63f134p-8f);
  far = fmaf(far, t, -0x1.1bf25ap-5f);
  far = fmaf(far, t, 0x1.3ad06cp-3f);
  far = fmaf(far, t, 0x1.d504aap-1f);
  far = fmaf(far, t, 0x1.41b928p-1f);
  far = 1.0f - exp2_of(fmaf(-far, t, -t));
  return t < 1.0f ? near : copysignf(far, x);
}
// c + erf(x) for |c| >= 1, to which 2^-24 of erf(x) is little: one polynomial for all x (minimax, of -log2(erfc(x)) / x),
// by which erfc is 2^-29 off.
DEVICE float sum_with_erf(float c, float x) {
  const float t = fabsf(x);
  float p = fmaf(0x1.ec66dap-20f, t, -0x1.0b15b4p-15f);
  p = fmaf(p, t, 0x1.012efcp-12f);
  p = fmaf(p, t, -0x1.19b90ap-10f);
  p = fmaf(p, t, 0x1.54cfbcp-9f);
  p = fmaf(p, t, -0x1.7e24cap-12f);
  p = fmaf(p, t, -0x1.c3eeccp-6f);
  p = fmaf(p, t, 0x1.2fa7bep-3f);
  p = fmaf(p, t, 0x1.d63edp-1f);
  p = fmaf(p, t, 0x1.a0be84p+0f);
  return c + copysignf(1.0f - exp2_of(-p * t), x);
}
DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
DEVICE float softplus(float x) { return x > 0.0f ? x + log1pf(expf(-x)) : log1pf(expf(x)); }
)";

constexpr const char* kConversions = R"(
// Between element types, as Cast of ONNX 13: to nearest even; floats to integers toward 0, low bits kept.
template <class T> struct Kind { static constexpr bool is_float = false, is_bool = false; };
template <> struct Kind<float> { static constexpr bool is_float = true, is_bool = false; };
template <> struct Kind<f16> { static constexpr bool is_float = true, is_bool = false; };
template <> struct Kind<bf16> { static constexpr bool is_float = true, is_bool = false; };
template <> struct Kind<boolean> { static constexpr bool is_float = false, is_bool = true; };
template <class A, class B> struct Same { static constexpr bool value = false; };
template <class A> struct Same<A, A> { static constexpr bool value = true; };
DEVICE float number(float x) { return x; }
DEVICE float number(f16 x) { return widen_f16(x.bits); }
DEVICE float number(bf16 x) { return widen_bf16(x.bits); }
DEVICE void assign(float& y, float x) { y = x; }
DEVICE void assign(f16& y, float x) { y.bits = narrow_f16(x); }
DEVICE void assign(bf16& y, float x) { y.bits = narrow_bf16(x); }
DEVICE float toward_zero(i64 x) { return __ll2float_rz(x); }
DEVICE float toward_zero(u64 x) { return __ull2float_rz(x); }
template <class To, class From> DEVICE To convert(From x) {
  To y;
  if constexpr (Same<To, From>::value) {
    y = x;
  } else if constexpr (Kind<From>::is_float) {
    const float f = number(x);
    if constexpr (Kind<To>::is_float) assign(y, f);
    else if constexpr (Kind<To>::is_bool) y.bits = f != 0.0f;
    else y = f >= 9223372036854775808.0f ? (To)(u64)f : (To)(i64)f;
  } else if constexpr (Kind<From>::is_bool) {
    y = convert<To, u8>(x.bits != 0);
  } else if constexpr (Kind<To>::is_bool) {
    y.bits = x != 0;
  } else if constexpr (Same<To, float>::value) {
    y = (float)x;
  } else if constexpr (Kind<To>::is_float) {
    // To odd first, so that there is one rounding.
    typedef decltype(x + (sizeof(From) == 8 ? x : (i64)0)) Wide;
    const float cut = toward_zero((Wide)x);
    assign(y, (Wide)cut == (Wide)x ? cut : __uint_as_float(__float_as_uint(cut) | 1u));
  } else {
    y = (To)x;
  }
  return y;
}
)";

}  // namespace

const std::string& prelude() {
  static const std::string text = std::string(kTypes) + kElements + kConversions + instruction_functions();
  return text;
}

std::string replaced(std::string text, std::string_view word, std::string_view by) {
  return text.replace(text.find(word), word.size(), by);
}

}  // namespace ulpscope::cuda
