// ONNX Runtime's product with weights of a few bits.
#include <array>
#include <type_traits>

#include "core/instruction_set.h"
#include "core/parallel.h"
#include "ops/adjoint_values.h"
#include "ops/common.h"
#include "ops/contraction/packed_weights.h"
#include "ops/multiply_adds.h"
#include "ulpscope/log.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ulpscope::ops {
namespace {

// Inputs.
constexpr int kActivations = 0, kCodes = 1, kScales = 2, kZeroPoints = 3, kGroupIndices = 4, kBias = 5;

/// Works with all contexts; fails for attributes that have no meaning.
template <typename Context>
PackedWeights packed_weights(const Context& ctx) {
  const PackedWeights w = packed_weights_of(ctx.layer());
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (w.n < 0 || w.k < 0 || w.n > kMost || w.k > kMost)
    ctx.fail("expected N and K from 0 to 2^31, got {} and {}", w.n, w.k);
  if (w.bits != 2 && w.bits != 4 && w.bits != 8) ctx.fail("expected 2, 4 or 8 bits, got {}", w.bits);
  if (w.block < 16 || w.block > kMost || (w.block & (w.block - 1)) != 0)
    ctx.fail("expected a block_size that is a power of two from 16 on, got {}", w.block);
  return w;
}

void require_elements(const InferContext& ctx, int input, std::string_view what, const Shape& expected) {
  if (!ctx.has_input(input) || num_elements(ctx.shape(input)) == num_elements(expected)) return;
  ctx.fail("expected {} of shape {} as input {}, got {}", what, to_string(expected), input,
           to_string(ctx.shape(input)));
}

void infer_matmul_nbits(InferContext& ctx) {
  const PackedWeights w = packed_weights(ctx);
  if (ctx.has_input(kGroupIndices))
    fail(ctx.layer(), "g_idx (input 4) is not supported; try a model whose weights are in the order of their groups",
         ErrorCode::kUnsupported);
  if (ctx.attributes().integer("weight_prepacked", 0) != 0)
    fail(ctx.layer(), "weights that are packed for a GPU (weight_prepacked) are not supported",
         ErrorCode::kUnsupported);
  if (ctx.attributes().integer("accuracy_level", 0) == 4)
    log_once(LogLevel::kWarning,
             "MatMulNBits with accuracy_level 4: ONNX Runtime may round activations to int8 there; ulpscope does not");
  Shape output = ctx.shape(kActivations);
  if (output.empty() || output.back() != w.k)
    ctx.fail("expected {} elements (K) along the last dimension of input 0, got a shape of {}", w.k, to_string(output));
  output.back() = w.n;
  ctx.set_shape(0, output);
  require_elements(ctx, kCodes, "codes", {w.n, w.blocks(), w.block_bytes()});
  require_elements(ctx, kScales, "scales", {w.n, w.blocks()});
  if (ctx.has_input(kZeroPoints) && is_floating(ctx.type(kZeroPoints)))
    require_elements(ctx, kZeroPoints, "zero points", {w.n, w.blocks()});
  else
    require_elements(ctx, kZeroPoints, "packed zero points", {w.n, w.zero_point_bytes()});
  require_elements(ctx, kBias, "a bias", {w.n});
}

/// sums[r * stride + w] = the sum of products of row r of `a` with row w of `b`, for so many rows of each.
using Dots = void (*)(const float* a, const float* b, std::int64_t count, float* sums, std::int64_t stride);
constexpr std::int64_t kRows = 3, kWeightRows = 2;  ///< Whose sums stay in registers.

#if defined(__x86_64__)
/// As dot_of_rows() has it, to the bit. REQUIRES: a multiple of 16.
template <int rows, int weights>
__attribute__((target("avx2"))) void dots_avx2(const float* a, const float* b, std::int64_t count, float* sums,
                                               std::int64_t stride) {
  __m256 parts[2][rows][weights];
  for (auto& half : parts)
    for (auto& row : half)
      for (__m256& part : row) part = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < count; i += 16)
    for (int half = 0; half < 2; ++half) {
      __m256 weight[weights];
      for (int w = 0; w < weights; ++w) weight[w] = _mm256_loadu_ps(b + w * count + i + 8 * half);
      for (int r = 0; r < rows; ++r) {
        const __m256 x = _mm256_loadu_ps(a + r * count + i + 8 * half);
        for (int w = 0; w < weights; ++w)
          parts[half][r][w] = _mm256_add_ps(parts[half][r][w], _mm256_mul_ps(x, weight[w]));
      }
    }
  for (int r = 0; r < rows; ++r)
    for (int w = 0; w < weights; ++w) {
      const __m256 eight = _mm256_add_ps(parts[0][r][w], parts[1][r][w]);
      const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
      const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
      sums[r * stride + w] = _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
    }
}
#endif

/// Of all rows that stay in registers (`many`), or of one each; null where plain loops do it.
Dots fast_dots([[maybe_unused]] bool many) {
#if defined(__x86_64__)
  if (instruction_set() >= InstructionSet::kAvx2) return many ? dots_avx2<kRows, kWeightRows> : dots_avx2<1, 1>;
#endif
  return nullptr;
}

/// The sum of products: sixteen running sums, added pairwise at the end.
template <typename T>
T dot_of_rows(const T* a, const T* b, std::int64_t count) {
  std::array<T, 16> sums{};
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16)
    for (std::size_t lane = 0; lane < 16; ++lane) sums[lane] += a[i + std::int64_t(lane)] * b[i + std::int64_t(lane)];
  for (std::size_t lane = 0; i < count; ++i, ++lane) sums[lane] += a[i] * b[i];
  for (std::size_t half = 8; half > 0; half /= 2)
    for (std::size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

/// sums[r * stride + w] = the sum of products of row r of `a` with row w of `b`.
template <typename T>
void dots_of_rows(const T* a, std::int64_t rows, const T* b, std::int64_t weights, std::int64_t count, T* sums,
                  std::int64_t stride) {
  if constexpr (std::is_same_v<T, float>) {
    const bool many = rows == kRows && weights == kWeightRows;
    if (const Dots dots = count % 16 == 0 ? fast_dots(many) : nullptr; dots != nullptr) {
      if (many) return dots(a, b, count, sums, stride);
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t w = 0; w < weights; ++w) dots(a + r * count, b + w * count, count, sums + r * stride + w, 0);
      return;
    }
  }
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t w = 0; w < weights; ++w) sums[r * stride + w] = dot_of_rows(a + r * count, b + w * count, count);
}

template <typename T>
void multiply_packed(KernelContext& ctx) {
  const PackedWeights w = packed_weights(ctx);
  const PackedRows<T> rows(w, ctx.input(kCodes), ctx.input(kScales),
                           ctx.has_input(kZeroPoints) ? ctx.input(kZeroPoints) : Tensor());
  const T* a = ctx.input(kActivations).data<T>();
  const Tensor biases = ctx.has_input(kBias) ? ctx.input(kBias).cast(type_of<T>()) : Tensor();
  const T* bias = biases ? biases.template data<T>() : nullptr;
  T* out = ctx.output(0).data<T>();
  const std::int64_t m = w.n == 0 ? 0 : ctx.output(0).size() / w.n;
  // Every thread unpacks its rows of weights once, for all rows of activations: some of them at a time, in caches.
  constexpr std::int64_t kAtATime = 4 * kWeightRows;
  const auto multiply = [&](std::int64_t begin, std::int64_t end) {
    Tensor unpacked(type_of<T>(), {std::min(kAtATime, end - begin), w.k});
    T* const b = unpacked.data<T>();
    for (std::int64_t n = begin; n < end; n += kAtATime) {
      const std::int64_t last = std::min(n + kAtATime, end);
      for (std::int64_t r = n; r < last; ++r) rows.read(r, b + (r - n) * w.k);
      for (std::int64_t i = 0; i < m; i += kRows)
        for (std::int64_t r = n; r < last; r += kWeightRows)
          dots_of_rows(a + i * w.k, std::min(kRows, m - i), b + (r - n) * w.k, std::min(kWeightRows, last - r), w.k,
                       out + i * w.n + r, w.n);
      for (std::int64_t i = 0; bias != nullptr && i < m; ++i)
        for (std::int64_t r = n; r < last; ++r) out[i * w.n + r] += bias[r];
    }
  };
  parallel_for(w.n, std::max<std::int64_t>(1, (1 << 16) / std::max<std::int64_t>(1, w.k * (m + 4))), multiply);
}

void run_matmul_nbits(KernelContext& ctx) {
  with_type(FloatTypes{}, ctx, ctx.input(kActivations).type(), [&]<typename T>(T) { multiply_packed<T>(ctx); });
}

void adjoint_matmul_nbits(AdjointContext& ctx) {
  const PackedWeights w = packed_weights(ctx);
  for (int i : {kScales, kZeroPoints})
    if (ctx.has_input(i) && ctx.wants(i)) ctx.leave_out(i);
  const Value g = gradient(ctx);
  const std::int64_t m = num_elements(g.shape()) / std::max<std::int64_t>(1, w.n);
  if (ctx.has_input(kBias) && ctx.wants(kBias))
    ctx.set(kBias, reshape(sum_to(reshape(g, {m, w.n}), {1, w.n}), ctx.input_shape(kBias)).id);
  if (!ctx.wants(kActivations)) return;
  const auto known = [&](int i) { return ctx.input_value(i) == nullptr ? Tensor() : *ctx.input_value(i); };
  const Tensor codes = known(kCodes), scales = known(kScales);
  const Tensor zeros = ctx.has_input(kZeroPoints) ? known(kZeroPoints) : Tensor();
  if (!codes || !scales || (!zeros && ctx.has_input(kZeroPoints))) return ctx.leave_out(kActivations);
  Tensor weights(DataType::kFloat32, {w.n, w.k});
  const PackedRows<float> rows(w, codes, scales, zeros);
  for (std::int64_t n = 0; n < w.n; ++n) rows.read(n, weights.data<float>() + n * w.k);
  const Value matrix{&ctx, ctx.constant(weights)};
  ctx.set(kActivations, reshape(matmul(reshape(g, {m, w.n}), matrix), ctx.input_shape(kActivations)).id);
}

}  // namespace

OpTable matmul_nbits() {
  return {
      // MatMulNBits, com.microsoft 1: a matrix times the transpose of one of 2, 4 or 8 bits with scales per block of a
      // row. Codes are numbers exactly; sums are float32.
      make_op({.name = "MatMulNBits",
               .domain = "com.microsoft",
               .inputs = {3, 6},
               .types = {kFloats, TypeSet{DataType::kUInt8}, kFloats, kFloats | TypeSet{DataType::kUInt8},
                         TypeSet{DataType::kInt32}, kFloats},
               .kind = OpKind::kContraction,
               .weights = 0b111110,
               .multiply_adds = multiply_adds_of_matmul},
              infer_matmul_nbits, run_matmul_nbits, adjoint_matmul_nbits),
  };
}

}  // namespace ulpscope::ops
