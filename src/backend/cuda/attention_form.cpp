#include "backend/cuda/attention_form.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/element_source.h"
#include "core/division.h"
#include "formats/numeric_format.h"

namespace ulpscope::cuda {
namespace {

/// Rows can be read as words of 16 bytes.
bool whole(const std::array<std::int64_t, 4>& strides, std::int64_t depth, int alignment) {
  return strides[3] == 1 && depth % 8 == 0 && alignment % 16 == 0 &&
         std::all_of(strides.begin(), strides.end() - 1, [](std::int64_t stride) { return stride % 8 == 0; });
}

/// Tiles of keys, once. A warp with two tiles of queries reads keys and values from shared memory half as often; that
/// pays where enough blocks are left for two per processor of a large GPU. The bounds are reckoned, not measured.
std::optional<AttentionForm> one_pass_form(const AttentionSpec& spec, std::int64_t dq, std::int64_t dv) {
  constexpr std::int64_t kProcessors = 132;
  const auto blocks = [&](std::int64_t rows) { return (spec.queries + rows - 1) / rows * spec.heads * spec.batch; };
  const bool small = std::max(dq, dv) <= 64;
  AttentionForm form{dq, dv, 64, 4, 1, false};
  if (small && blocks(128) >= 2 * kProcessors) {
    form.row_tiles = 2;
  } else if (blocks(64) < 2 * kProcessors) {
    // Few blocks: more warps in each, and more blocks.
    form.parts = 2;
    form.tile = small ? 128 : 64;
    if (blocks(64) < kProcessors) form.warps = 2, form.parts = small ? 4 : 2;
  }
  while (!form.fits() && form.tile > AttentionForm::kPartKeys * form.parts) form.tile /= 2;
  while (!form.fits() && form.parts > 1) form.parts /= 2;
  while (!form.fits() && form.warps > 1) form.warps /= 2;
  return form.fits() && form.dv <= 256 ? std::optional(form) : std::nullopt;
}

/// Warp groups of sm_90, where rows are whole words: as many queries, or parts of the keys, for each of two or three
/// groups as are done first on so many processors. Microseconds are those of an H100 and an H200.
std::optional<AttentionForm> group_form(const AttentionSpec& spec, int processors) {
  constexpr std::int64_t kMostShared = 227 << 10, kTile = 128;
  constexpr int kMostStages = 4;
  if (std::max(spec.depth, spec.value_depth) > 128 || spec.queries < 64 ||
      !whole(spec.q, spec.depth, spec.alignment[0]) || !whole(spec.k, spec.depth, spec.alignment[1]) ||
      !whole(spec.v, spec.value_depth, spec.alignment[2]))
    return std::nullopt;
  const std::int64_t dq = round_up(spec.depth, 64), dv = round_up(spec.value_depth, 16);
  const bool small = std::max(dq, dv) <= 64;  // Three groups have registers for no more.
  std::optional<AttentionForm> best;
  double least = 0;
  for (const auto& [rows, parts] : {std::pair{3, 1}, {2, 1}, {1, 3}, {1, 2}}) {
    if (rows * parts == 3 && !small) continue;
    AttentionForm form{dq, dv, kTile, rows * 4, parts, false};
    const std::int64_t items = divided_up(spec.queries, form.rows()) * spec.heads * spec.batch;
    const double per_tile = rows * parts == 3 ? 1.58 : small ? 1.33 : 1.78, per_item = parts > 1 ? 3 : 1;
    const double time = static_cast<double>(divided_up(items, processors)) *
                        (static_cast<double>(divided_up(divided_up(spec.keys, kTile), parts)) * per_tile + per_item);
    if (best && time >= least) continue;
    form.stages = kMostStages;
    while (form.shared() > kMostShared) --form.stages;
    best = form;
    least = time;
  }
  return best;
}

/// What scores are multiplied by, where that is all that becomes of them.
std::optional<float> factor_of(const AttentionSpec::Scores& scores) {
  const auto& values = scores.program.values;
  const auto value = [&](Register r) -> const Program::Value& { return values[static_cast<std::size_t>(r)]; };
  if (scores.rounding != Rounding::kNone) return std::nullopt;
  const Program::Value& result = value(scores.result);
  if (result.kind == Program::Kind::kLoad && result.load == 0) return 1.0f;
  if (result.kind != Program::Kind::kResult || result.instruction != Instruction::kMul) return std::nullopt;
  const Program::Value *sum = &value(result.a), *factor = &value(result.b);
  if (sum->kind == Program::Kind::kConstant) std::swap(sum, factor);
  if (sum->kind != Program::Kind::kLoad || sum->load != 0 || factor->kind != Program::Kind::kConstant)
    return std::nullopt;
  return factor->constant;
}

}  // namespace

std::optional<float> positive_factor(const AttentionSpec& spec) {
  const auto first = factor_of(spec.scores[0]), second = factor_of(spec.scores[1]);
  if (!first || !second) return std::nullopt;
  const float factor = *first * *second;
  return factor > 0 && factor < 1e6f ? std::optional(factor) : std::nullopt;
}

/// Scores of a whole row in registers where these and shared memory suffice, else tiles. Few queries are shared among
/// more blocks, and their keys among more warps, so that every processor has some. The bounds are those that were
/// fastest on an H200 (132 processors) with BERT-base, ViT-B/16 and Whisper.
std::optional<AttentionForm> attention_form(const AttentionSpec& spec, int warp_group_processors) {
  constexpr std::int64_t kVeryFew = 128, kFew = 264, kSome = 1056;
  const std::int64_t warps = (spec.queries + 15) / 16 * spec.heads * spec.batch;  // Of all blocks, parts aside.
  const std::int64_t dq = round_up(spec.depth, 32), dv = round_up(spec.value_depth, 16);
  // Keys and values that become elements first do so once per block.
  const bool large = spec.has_elements() && spec.queries >= kVeryFew && warps >= 2 * kSome;
  const int in_block = warps < kVeryFew ? 1 : warps < kSome ? 2 : large ? 8 : 4;
  for (int parts = warps < kFew ? 4 : warps < kSome ? 2 : 1; parts <= 4; parts *= 2) {
    const AttentionForm form{dq, dv, round_up(spec.keys, AttentionForm::kPartKeys * parts), in_block, parts, true};
    if (form.registers() <= 176 && form.fits()) return form;
  }
  if (warp_group_processors > 0 && !spec.has_elements())
    if (const auto form = group_form(spec, warp_group_processors)) return form;
  if (spec.flash) return one_pass_form(spec, dq, dv);
  const bool small = std::max(dq, dv) <= 64;
  AttentionForm form{dq, dv, small ? 128 : dq > 128 ? 32 : 64, small ? 8 : 4, 2, false};
  if (warps < kFew)
    form.warps = 2, form.parts = static_cast<int>(std::min<std::int64_t>(4, form.tile / AttentionForm::kPartKeys));
  while (!form.fits() && form.tile > AttentionForm::kPartKeys * form.parts) form.tile /= 2;
  if (!form.fits()) form.parts = 1;
  while (!form.fits() && form.tile > AttentionForm::kPartKeys) form.tile /= 2;
  return form.fits() && form.dv <= 256 ? std::optional(form) : std::nullopt;
}

namespace {

/// The code of the elements of fp8 of numbers of `type` over `scale`, before they are rounded: times the reciprocal
/// where no number comes to lie on another side of a tie so, or on it; else the quotient itself.
std::string quotient_of_elements(DataType type, float scale) {
  const NumericFormat &elements = format_of(Format::kFloat8E4M3), &numbers = *format_of(type);
  const float reciprocal = 1.0f / scale;
  const auto side = [](float x, double tie) { return (x > tie) - (x < tie); };
  const auto last = encode(elements, elements.largest(), {});
  for (std::uint32_t code = 0; code < last; ++code) {
    const double tie = (decode(elements, code) + decode(elements, code + 1)) / 2;
    const std::uint32_t near = encode(numbers, tie * static_cast<double>(scale), {.saturate = true});
    for (std::uint32_t bits = near - std::min(near, 2u); bits <= near + 2; ++bits) {
      const auto x = static_cast<float>(decode(numbers, bits));
      if (side(x / scale, tie) != side(x * reciprocal, tie)) return quotient_code("(x)", scale);
    }
  }
  return fmt::format("(x) * {}", literal(reciprocal));
}

/// What becomes of numbers of the operands and of sums.
template <typename Define>
void define_operands(const AttentionSpec& spec, const Define& define) {
  const auto operand = [&](char name, std::optional<float> factor, std::optional<float> scale) {
    define(fmt::format("SCALED_{}", name), factor.has_value());
    define(fmt::format("FACTOR_{}", name), literal(factor.value_or(1.0f)));
    define(fmt::format("ELEMENTS_{}", name), scale.has_value());
    define(fmt::format("QUOTIENT_{}(x)", name), scale ? quotient_of_elements(spec.type, *scale) : "(x)");
  };
  const auto scales = [](const std::optional<AttentionSpec::Elements>& elements, float AttentionSpec::Elements::* own) {
    return elements ? std::optional((*elements).*own) : std::nullopt;
  };
  const auto &scores = spec.score_elements, &values = spec.value_elements;
  operand('Q', spec.q_factor, scales(scores, &AttentionSpec::Elements::a));
  operand('K', spec.k_factor, scales(scores, &AttentionSpec::Elements::b));
  operand('P', std::nullopt, scales(values, &AttentionSpec::Elements::a));
  operand('V', std::nullopt, scales(values, &AttentionSpec::Elements::b));
  define("SUM_SCALE", literal(scores ? scores->a * scores->b : 1.0f));
  define("RESULT_SCALE", literal(values ? values->a * values->b : 1.0f));
}

}  // namespace

/// The kernel's text is one for all shapes and types: what differs is defined here, so that every loop and address of
/// it is a constant to the device's compiler.
std::string definitions_of(const AttentionSpec& spec, const AttentionForm& form) {
  const bool half = spec.type == DataType::kFloat16;
  std::string text;
  const auto define = [&](const std::string& name, auto value) { text += fmt::format("#define {} {}\n", name, value); };
  define("HALF", half ? 1 : 0);
  define("NAME", half ? "\"f16\"" : "\"bf16\"");
  define("PAIR", half ? "pair_f16" : "pair_bf16");
  define("NAN_IS_ZERO", spec.nan_is_zero);
  define("QUERIES_KEPT", form.dq <= 128);
  define("WIDEN", half ? "widen_f16" : "widen_bf16");
  define("NARROW", half ? "narrow_f16" : "narrow_bf16");
  define_operands(spec, define);
  define("STORED", type_code(spec.stored));
  define("FLASH", spec.flash);
  define("ROW_TILES", form.row_tiles);
  define("WARPS", form.warps);
  define("PARTS", form.parts);
  define("PART", form.tile / form.parts);
  define("THREADS", form.warps * form.parts * 32);
  // Of these, on a processor at a time, so that a thread has 128 registers, or 255 where it needs them.
  define("BLOCKS", form.stages > 0 ? 1 : (form.registers() <= 64 ? 512 : 256) / (form.warps * form.parts * 32));
  define("PAD", AttentionForm::kPad);
  define("COPIES", form.copies());
  define("TILE", form.tile);
  define("DQ", form.dq);
  define("DV", form.dv);
  define("DEPTH", spec.depth);
  define("VALUES", spec.value_depth);
  define("KEYS", spec.keys);
  define("QUERIES", spec.queries);
  for (int d = 0; d < 4; ++d) {
    const auto place = static_cast<std::size_t>(d);
    define(fmt::format("Q{}", d), fmt::format("{}ll", spec.q[place]));
    define(fmt::format("K{}", d), fmt::format("{}ll", spec.k[place]));
    define(fmt::format("V{}", d), fmt::format("{}ll", spec.v[place]));
    define(fmt::format("O{}", d), fmt::format("{}ll", spec.out[place]));
  }
  const bool whole_k = whole(spec.k, spec.depth, spec.alignment[1]);
  define("WHOLE_Q", whole(spec.q, spec.depth, spec.alignment[0]));
  define("WHOLE_K", whole_k);
  define("WHOLE_V", whole(spec.v, spec.value_depth, spec.alignment[2]));
  define("WHOLE_OUT",
         spec.stored == spec.type && form.dv <= form.dq && whole(spec.out, spec.value_depth, spec.alignment[3]));
  // Groups that are started after them.
  define("BEHIND_QUERIES", form.in_registers && !(whole_k && (spec.k_factor || spec.score_elements)) ? 2 : 1);
  return text;
}

}  // namespace ulpscope::cuda
