// A warp multiplies 16 columns of the matrix by up to 8 rows with mma.m16n8k16, the matrix as its first operand. In a
// chunk, a lane has as many neighbors along k as 16 bytes hold of two columns (16 of 4 bits, 8 of 8 bits): which k is
// which of an instruction does not matter, as long as it is the same in both operands. So the matrix is packed in the
// order of registers, and x is read in words of 16 bytes. The warps of a block share the chunks of the same columns.
#include "backend/cuda/narrow_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cuda/element_source.h"
#include "core/division.h"
#include "core/parallel.h"
#include "engine/narrow_limits.h"
#include "formats/numeric_format.h"

namespace ulpscope::cuda {
namespace {

constexpr std::int64_t kTileColumns = 16, kWarpLanes = 32, kQuad = 4, kLaneBytes = 16;

bool has_four_bits(Format format) { return format == Format::kInt4 || format == Format::kFloat4E2M1; }
/// Elements along k that a lane has of a chunk.
std::int64_t lane_elements(Format format) { return has_four_bits(format) ? 16 : 8; }
std::int64_t column_tiles(const NarrowProductSpec& s) { return divided_up(s.n, kTileColumns); }
std::int64_t chunks(const NarrowProductSpec& s) { return divided_up(s.k, kQuad * lane_elements(s.format)); }
std::int64_t groups(const NarrowProductSpec& s) { return divided_up(s.k, s.block); }
/// Elements are multiplied by their scales in float16, which holds both: one rounding, as of the product in float32.
bool multiplies_halves(const NarrowProductSpec& s) {
  return s.half_scales && s.format != Format::kFloat4E2M1 && s.type == DataType::kFloat16;
}

/// Codes become halves by moving their bits, where scales are float32: floats smaller by this.
float lost_factor(const NarrowProductSpec& s) {
  if (multiplies_halves(s)) return 1;
  return s.format == Format::kFloat4E2M1 ? 0x1p14f : s.format == Format::kFloat8E4M3 ? 0x1p8f : 1.0f;
}

std::uint32_t code_of(Format format, float element) {
  if (format == Format::kInt4) return static_cast<std::uint32_t>(static_cast<int>(element) + 8) & 15;
  if (format == Format::kInt8) return static_cast<std::uint32_t>(static_cast<int>(element) + 128) & 255;
  return encode(format_of(format), static_cast<double>(element), {.saturate = true});
}

constexpr const char* kNarrowFunctions = R"(  struct Chunk { uint4 words; Scale scales; };
  // The two columns' weights of four neighbors along k, as mma takes them: column g of the first two, column g + 8 of
  // these, then both of the last two.
  const auto weights_of = [](const Chunk& chunk, int step, u32 (&a)[4]) {
  const u32 words[4] = {chunk.words.x, chunk.words.y, chunk.words.z, chunk.words.w};
HALVES#pragma unroll
  for (int j = 0; j < 4; ++j) {
DECODE  }
  };
)";

// Each scale twice.
constexpr const char* kHalvesOfScales =
    "  const u32 halves[2] = {__byte_perm(chunk.scales, 0, 0x1010u), __byte_perm(chunk.scales, 0, 0x3232u)};\n";
constexpr const char* kIntegerHalvesOf4 = R"(    // 1024 and the code, or 1024 and 16 times it.
    const u32 bits = picked(words[step] >> 8 * (j / 2), j % 2 == 0 ? 0x000f000fu : 0x00f000f0u, 0x64006400u);
    const u32 pair = j % 2 == 0 ? subtracted_f16x2(bits, 0x64086408u) : fused_f16x2(bits, 0x2c002c00u, 0xd480d480u);
    a[j] = multiplied_f16x2(pair, halves[j % 2]);
)";
constexpr const char* kIntegerHalvesOf8 = R"(    // 1024 and the code.
    const u32 bits = __byte_perm(words[2 * step + j / 2], 0x64646464u, j % 2 == 0 ? 0x4140u : 0x4342u);
    a[j] = multiplied_f16x2(subtracted_f16x2(bits, 0x64806480u), halves[j % 2]);
)";
constexpr const char* kFloatHalvesOf8 = R"(    const u32 bits = words[2 * step + j / 2] >> 16 * (j % 2);
    a[j] = multiplied_f16x2(halves_e4m3((u16)bits), halves[j % 2]);
)";
constexpr const char* kIntegerOf4 = R"(    const u32 bits = words[step] >> 4 * j & 0x000f000fu;
    const u32 pair = subtracted_f16x2(bits | 0x64006400u, 0x64086408u);
    const float scale = j % 2 == 0 ? chunk.scales.x : chunk.scales.y;
    a[j] = PAIR(widen_f16((u16)pair) * scale, widen_f16((u16)(pair >> 16)) * scale);
)";
constexpr const char* kFloatOf4 = R"(    const u32 bits = words[step] >> 4 * j & 0x000f000fu;
    const u32 pair = (bits & 0x00080008u) << 12 | (bits & 0x00070007u) << 9;
    const float scale = j % 2 == 0 ? chunk.scales.x : chunk.scales.y;
    a[j] = PAIR(widen_f16((u16)pair) * scale, widen_f16((u16)(pair >> 16)) * scale);
)";
constexpr const char* kIntegerOf8 = R"(    const u32 bits = words[2 * step + j / 2] >> 16 * (j % 2);
    const float scale = j % 2 == 0 ? chunk.scales.x : chunk.scales.y;
    // 2^23 and an integer, as a float.
    const float low = __uint_as_float(0x4b000000u | (bits & 0xffu)) - 8388736.0f;
    const float high = __uint_as_float(0x4b000000u | (bits >> 8 & 0xffu)) - 8388736.0f;
    a[j] = PAIR(low * scale, high * scale);
)";
constexpr const char* kFloatOf8 = R"(    const u32 bits = words[2 * step + j / 2] >> 16 * (j % 2);
    const u32 low = (bits & 0x80u) << 8 | (bits & 0x7fu) << 7, high = (bits & 0x8000u) | (bits >> 1 & 0x3f80u);
    const float scale = j % 2 == 0 ? chunk.scales.x : chunk.scales.y;
    a[j] = PAIR(widen_f16((u16)low) * scale, widen_f16((u16)high) * scale);
)";

constexpr const char* kNarrowKernel = R"(  __shared__ float parts[WARPS][16][9];
  constexpr int AT_ONCE = WARPS * DEPTH, CHUNK = 4 * LANE;  // CHUNK: along k.
  // Scales are a fixed number of groups further for every next chunk of a warp.
  constexpr bool STEADY = ALIGNED && WARPS * CHUNK % BLOCK == 0;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  // Where the next chunk of this warp is in the matrix, in scales and in x.
  const u8* next = weights + (((u64)blockIdx.x * CHUNKS + warp) * 32 + lane) * 16;
  const Scale* own = (const Scale*)scales + (u64)blockIdx.x * GROUPS * 8 + g;
  if (STEADY && GROUPS > 1) own += (warp * 4 + t) * LANE / BLOCK * 8;
  const u8* row = in0 + ((u64)g * K + warp * CHUNK + t * LANE) * 2;
  Chunk chunk[DEPTH];
  const auto fetch = [&](int d, int first) {
    if (!WHOLE && first + d * WARPS >= CHUNKS) return;
    chunk[d].words = streamed(next + d * WARPS * 512);
    int group = 0;
    if (STEADY && GROUPS > 1) group = d * (WARPS * CHUNK / BLOCK);
    if (!STEADY) group = ((first + d * WARPS) * 4 + t) * LANE / BLOCK;
    if (!STEADY && group >= GROUPS) group = GROUPS - 1;
    chunk[d].scales = own[group * 8];
  };
  const auto advance = [&] {
    next += AT_ONCE * 512;
    if (STEADY && GROUPS > 1) own += AT_ONCE * CHUNK / BLOCK * 8;
  };
  // Constants are there before the kernels that this one waits for have ended.
#pragma unroll
  for (int d = 0; d < DEPTH; ++d) fetch(d, warp);
  // Of rows that there are not: zeros.
  uint4 x[LANE / 8];
#pragma unroll
  for (int i = 0; i < LANE / 8; ++i) x[i] = make_uint4(0, 0, 0, 0);
  const auto read = [&](int d, int c) {
#pragma unroll
    for (int i = 0; i < LANE / 8; ++i) {
      if (!ALIGNED) x[i] = make_uint4(0, 0, 0, 0);
      if (g < M && (ALIGNED || (c * 4 + t) * LANE < K)) x[i] = *(const uint4*)(row + d * WARPS * CHUNK * 2 + i * 16);
    }
  };
  begin();
  // Two sums, neither of which waits for the other.
  float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f}, more[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
  for (int first = warp; first < CHUNKS; first += AT_ONCE) {
    advance();
#pragma unroll
    for (int d = 0; d < DEPTH; ++d) {
      const int c = first + d * WARPS;
      if (!WHOLE && c >= CHUNKS) break;
      read(d, c);
#pragma unroll
      for (int step = 0; step < LANE / 4; ++step) {
        u32 a[4];
        weights_of(chunk[d], step, a);
        const uint4 four = x[step / 2];
        multiply_TYPE(step % 2 == 0 ? sums : more, a, step % 2 == 0 ? four.x : four.z, step % 2 == 0 ? four.y : four.w);
      }
      if (first + AT_ONCE < CHUNKS) fetch(d, first + AT_ONCE);
    }
    row += AT_ONCE * CHUNK * 2;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] += more[i];
  parts[warp][g][2 * t] = sums[0];
  parts[warp][g][2 * t + 1] = sums[1];
  parts[warp][g + 8][2 * t] = sums[2];
  parts[warp][g + 8][2 * t + 1] = sums[3];
  __syncthreads();
  for (int e = threadIdx.x; e < 16 * M; e += 32 * WARPS) {
    const i64 row = e / 16, column = (i64)blockIdx.x * 16 + e % 16;
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) sum += parts[w][e % 16][row];
    if (column < N) {
EPILOGUE    }
  }
}
)";

/// Of the program's domain: that of a row and a column.
std::vector<std::string> index_of(const Shape& domain) {
  std::vector<std::string> index(domain.size());
  std::int64_t inner = 1;
  for (std::size_t d = domain.size() - 1; d-- > 0; inner *= domain[d])
    index[d] = fmt::format("row / {} % {}", inner, domain[d]);
  index.back() = "column";
  return index;
}

std::string epilogue_of(const ProgramSpec& program) {
  std::vector<std::string> pointers{""}, given{"sum"};
  for (std::size_t i = 1; i < program.inputs.size(); ++i) {
    pointers.push_back(fmt::format("in{}", i));
    given.emplace_back();
  }
  const std::vector<std::string> index = index_of(program.domain);
  std::string text = element_code(program.program, program.inputs, pointers, given, index, "r");
  for (std::size_t o = 0; o < program.outputs.size(); ++o)
    text += store_code(program.outputs[o], fmt::format("out{}", o), sum_of_strides(program.outputs[o].strides, index),
                       fmt::format("r{}", program.outputs[o].source)) +
            "\n";
  return text;
}

std::string decode_of(const NarrowProductSpec& spec) {
  if (multiplies_halves(spec))
    return spec.format == Format::kInt4   ? kIntegerHalvesOf4
           : spec.format == Format::kInt8 ? kIntegerHalvesOf8
                                          : kFloatHalvesOf8;
  std::string text = spec.format == Format::kInt4         ? kIntegerOf4
                     : spec.format == Format::kFloat4E2M1 ? kFloatOf4
                     : spec.format == Format::kInt8       ? kIntegerOf8
                                                          : kFloatOf8;
  return replaced(std::move(text), "PAIR", spec.type == DataType::kFloat16 ? "pair_f16" : "pair_bf16");
}

/// What was fastest on an H200 (132 processors) for matrices of 2048 x 2048 to 11008 x 4096, in turns and of one size.
struct Form {
  std::int64_t warps = 16, depth = 2;  ///< Chunks that a warp loads ahead.
};
constexpr int kBlocksAtOnce = 2;  ///< Of a processor: what limits the registers of a thread.
Form form_of(const NarrowProductSpec& spec) {
  Form form;
  while (form.warps > 1 && form.warps > chunks(spec)) form.warps /= 2;
  form.depth = std::min(form.depth, divided_up(chunks(spec), form.warps));
  return form;
}

}  // namespace

bool has_narrow_source(const NarrowProductSpec& s) {
  return s.m >= 1 && s.m <= kMostNarrowRows && s.n >= 1 && has_narrow_words(s.k, s.block) &&
         (s.type == DataType::kFloat16 || s.type == DataType::kBFloat16) && s.k * s.n < std::int64_t{1} << 40 &&
         s.k < std::numeric_limits<int>::max() / 2;
}

DataType scale_type(const NarrowProductSpec& spec) {
  return multiplies_halves(spec) ? DataType::kFloat16 : DataType::kFloat32;
}

Tensor packed_elements(const NarrowProductSpec& s, const NarrowWeights::Matrix& matrix) {
  const std::int64_t lane = lane_elements(s.format), count = chunks(s), bits = has_four_bits(s.format) ? 4 : 8;
  Tensor result(DataType::kUInt8, {column_tiles(s) * count * kWarpLanes * kLaneBytes});
  auto* const out = result.data<std::uint8_t>();
  const float* const in = matrix.elements.data<float>();
  const std::uint32_t nothing = code_of(s.format, 0);
  parallel_for(column_tiles(s), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin * count * kWarpLanes; at < end * count * kWarpLanes; ++at) {
      const std::int64_t tile = at / (count * kWarpLanes), chunk = at / kWarpLanes % count, g = at % kWarpLanes / kQuad,
                         t = at % kQuad;
      std::uint32_t words[4] = {};
      for (std::int64_t i = 0; i < lane; ++i)
        for (std::int64_t half = 0; half < 2; ++half) {
          const std::int64_t column = tile * kTileColumns + half * 8 + g, k = (chunk * kQuad + t) * lane + i;
          const std::uint32_t code = column < s.n && k < s.k ? code_of(s.format, in[column * s.k + k]) : nothing;
          const std::int64_t step = i / 4, pair = i / 2 % 2, second = i % 2;
          if (bits == 4)
            words[step] |= code << (4 * (half + 2 * pair) + 16 * second);
          else
            words[2 * step + pair] |= code << (16 * half + 8 * second);
        }
      std::copy_n(reinterpret_cast<const std::uint8_t*>(words), kLaneBytes, out + at * kLaneBytes);
    }
  });
  return result;
}

Tensor packed_scales(const NarrowProductSpec& s, const NarrowWeights::Matrix& matrix) {
  const std::int64_t count = groups(s);
  Tensor result(DataType::kFloat32, {column_tiles(s) * count * kTileColumns});
  float* out = result.data<float>();
  const float *elements = matrix.elements.data<float>(), *scales = matrix.scales.data<float>();
  for (std::int64_t tile = 0; tile < column_tiles(s); ++tile)
    for (std::int64_t group = 0; group < count; ++group)
      for (std::int64_t i = 0; i < kTileColumns; ++i) {
        const std::int64_t column = tile * kTileColumns + i % 2 * 8 + i / 2;
        float scale = column < s.n ? scales[column * count + group] * lost_factor(s) : 0.0f;
        // What is no number among the elements has no code: its scale is none.
        if (column < s.n && s.format == Format::kFloat8E4M3) {
          const float* const row = elements + column * s.k;
          if (!std::all_of(row + group * s.block, row + std::min(s.k, (group + 1) * s.block),
                           [](float x) { return std::isfinite(x); }))
            scale = std::numeric_limits<float>::quiet_NaN();
        }
        *out++ = scale;
      }
  return result;
}

KernelSource narrow_product_source(const NarrowProductSpec& spec) {
  const Form form = form_of(spec);
  KernelSource made;
  std::string text = prelude();
  text += fmt::format(
      "extern \"C\" __global__ void __launch_bounds__({}, {}) kernel(const u8* in0, const u8* weights, const u8* "
      "scales",
      form.warps * kWarpLanes, kBlocksAtOnce);
  for (std::size_t i = 1; i < spec.program.inputs.size(); ++i) text += fmt::format(", const u8* in{}", i);
  for (std::size_t o = 0; o < spec.program.outputs.size(); ++o) text += fmt::format(", u8* out{}", o);
  text += fmt::format(
      ") {{\n  constexpr int M = {}, K = {}, BLOCK = {}, LANE = {}, CHUNKS = {}, GROUPS = {}, WARPS = {}, DEPTH = {};\n"
      "  constexpr i64 N = {};\n  constexpr bool WHOLE = {}, ALIGNED = {};\n  typedef {} Scale;\n",
      spec.m, spec.k, std::min(spec.block, spec.k), lane_elements(spec.format), chunks(spec), groups(spec), form.warps,
      form.depth, spec.n, chunks(spec) % (form.warps * form.depth) == 0, spec.k % (4 * lane_elements(spec.format)) == 0,
      multiplies_halves(spec) ? "u32" : "float2");
  text += replaced(replaced(kNarrowFunctions, "DECODE", decode_of(spec)), "HALVES",
                   multiplies_halves(spec) ? kHalvesOfScales : "");
  text += replaced(replaced(kNarrowKernel, "TYPE", type_code(spec.type)), "EPILOGUE", epilogue_of(spec.program));
  made.source = std::move(text);
  made.grid[0] = static_cast<unsigned>(column_tiles(spec));
  made.block = static_cast<unsigned>(form.warps * kWarpLanes);
  return made;
}

}  // namespace ulpscope::cuda
