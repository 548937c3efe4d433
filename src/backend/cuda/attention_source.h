// CUDA source of attention: both products and the softmax between them, without scores in memory.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "backend/cuda/kernel_source.h"
#include "backend/cuda/program_source.h"

namespace ulpscope::cuda {

/// out[b, h, i, :] = sum_j p[b, h, i, j] v[b, h, j, :], p = round(softmax_j(score(sum_d q[b, h, i, d] k[b, h, j, d]))).
/// Sums are in float32; the probabilities are normalized in float32 and then rounded to the type of the operands
/// (docs/numerics.md); the result is rounded once. Elements of fp8 are multiplied as numbers of `type`, which holds
/// them. With `flash`, p = round(exp(score - largest)), and the sum is divided by that of the exponentials before it is
/// rounded.
struct AttentionSpec {
  std::int64_t batch = 1, heads = 1, queries = 0, keys = 0;
  std::int64_t depth = 0;                ///< Of a row of q and k.
  std::int64_t value_depth = 0;          ///< Of a row of v and of the result.
  DataType type = DataType::kFloat16;    ///< Of q, k, v: float16 or bfloat16.
  DataType stored = DataType::kFloat16;  ///< Of the result: as `type`, or float32.
  /// Strides in elements of b, h, row, and of an element of a row. Any; rows are contiguous where it matters.
  std::array<std::int64_t, 4> q{}, k{}, v{}, out{};
  std::array<int, 4> alignment{16, 16, 16, 16};  ///< Of the addresses of q, k, v, out.
  /// What elements of q and k are multiplied by, and rounded to `type` again, before anything else.
  std::optional<float> q_factor, k_factor;
  /// Programs without rows over (batch, heads, queries, keys), one after the other. Load 0 of the first is the sum,
  /// that of the second what the first gives, rounded; the second gives what the softmax takes.
  struct Scores {
    Program program;
    Register result = 0;
    std::vector<ProgramInput> loads;      ///< From load 1 on.
    Rounding rounding = Rounding::kNone;  ///< Of the result.
  };
  std::array<Scores, 2> scores;
  /// Products of elements of fp8 e4m3, the nearest to numbers / scale: of q and k, of p and v. Sums are multiplied by
  /// float32(product of both scales). Not with factors of the same operands, nor with `flash`.
  struct Elements {
    float a = 0, b = 0;  ///< Scales.
  };
  std::optional<Elements> score_elements, value_elements;
  bool has_elements() const noexcept { return score_elements || value_elements; }
  bool nan_is_zero = false;  ///< Probabilities that are not a number count as 0. Not with `flash`.
  bool flash = false;
};

/// kernel(q, k, v, loads of both programs..., out). Nothing for what it has no form for: a depth that is no multiple of
/// 8, above 256, ... `warp_group_processors`: as LoweringTarget says; more than 0 is for sm_90a alone.
std::optional<KernelSource> attention_source(const AttentionSpec& spec, int warp_group_processors = 0);

}  // namespace ulpscope::cuda
