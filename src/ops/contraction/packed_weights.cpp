#include "ops/contraction/packed_weights.h"

#include "core/instruction_set.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ulpscope::ops {
namespace {

#if defined(__x86_64__)
__attribute__((target("avx2"))) std::int64_t unpack_avx2(const std::uint8_t* codes, std::int64_t count, float zero,
                                                         float scale, float* out) {
  const __m128i low = _mm_set1_epi8(15);
  const __m256 shift = _mm256_set1_ps(zero), by = _mm256_set1_ps(scale);
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + i / 2));
    const __m128i in_order = _mm_unpacklo_epi8(_mm_and_si128(bytes, low), _mm_and_si128(_mm_srli_epi16(bytes, 4), low));
    const __m256 first = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(in_order));
    const __m256 second = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(in_order, 8)));
    _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_sub_ps(first, shift), by));
    _mm256_storeu_ps(out + i + 8, _mm256_mul_ps(_mm256_sub_ps(second, shift), by));
  }
  return i;
}
#endif

}  // namespace

bool is_matmul_nbits(const Layer& layer) { return layer.op->name == "MatMulNBits"; }

PackedWeights packed_weights_of(const Layer& layer) {
  const Attributes& attributes = layer.attributes;
  return {attributes.required_integer("N"), attributes.required_integer("K"), attributes.integer("bits", 4),
          attributes.required_integer("block_size")};
}

Unpack fast_unpack() {
#if defined(__x86_64__)
  if (instruction_set() >= InstructionSet::kAvx2) return unpack_avx2;
#endif
  return nullptr;
}

}  // namespace ulpscope::ops
