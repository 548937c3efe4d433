#include "graph/layer_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace ulpscope {
namespace {

constexpr OperandForm per_tensor(Format format) {
  return {Encoding{.format = format, .granularity = Granularity::kTensor}, ScaleSource::kCalibrated};
}
constexpr OperandForm per_channel(Format format) {
  return {Encoding{.format = format, .granularity = Granularity::kChannel, .axis = -1}, ScaleSource::kOwn};
}
/// Blocks along the dimension that is summed over (axis -1, wherever the operand has it).
constexpr OperandForm in_blocks(Format format, std::int64_t block, Format scale) {
  return {Encoding{.format = format, .granularity = Granularity::kBlock, .axis = -1, .block = block, .scale = scale},
          ScaleSource::kOwn};
}
/// Blocks whose scales have a second one over them, of the whole tensor.
constexpr OperandForm in_scaled_blocks(Format format, std::int64_t block, Format scale, ScaleSource second) {
  OperandForm result = in_blocks(format, block, scale);
  result.encoding->second_scale = true;
  result.scales = second;
  return result;
}
/// Of products whose weights alone are elements.
constexpr LayerForm of_weights(Precision precision, std::string_view name, DataType type, OperandForm weight, int rank,
                               int opset, double usual_error) {
  return {precision, name, type, DataType::kUndefined, Rounding::kNone, {}, weight, rank, opset, usual_error, true};
}

constexpr LayerForm standing_in_for(Precision larger, LayerForm form) {
  form.stands_in_for = larger;
  return form;
}

constexpr auto make_forms() {
  using P = Precision;
  using T = DataType;
  using R = Rounding;
  constexpr Format kE4M3 = Format::kFloat8E4M3, kE2M1 = Format::kFloat4E2M1, kE8M0 = Format::kFloat8E8M0,
                   kInt8 = Format::kInt8, kInt4 = Format::kInt4, kHalf = Format::kFloat16;
  constexpr auto kOwn = ScaleSource::kOwn, kCalibrated = ScaleSource::kCalibrated;
  constexpr T kNone = T::kUndefined;
  constexpr bool kProducts = true;
  // precision, name, asked for by, stores, rounds to, activations, weights, rank, opset, usual error, products only
  return std::array{
      LayerForm{P::kFP32, "fp32", T::kFloat32, T::kFloat32, R::kNone, {}, {}, 6, 1, 0},
      LayerForm{P::kTF32, "tf32", kNone, T::kFloat32, R::kTF32, {}, {}, 5, 0, 5e-3, kProducts},
      LayerForm{P::kFP16, "fp16", T::kFloat16, T::kFloat16, R::kF16, {}, {}, 4, 1, 5e-3},
      LayerForm{P::kBF16, "bf16", T::kBFloat16, T::kBFloat16, R::kBF16, {}, {}, 4, 13, 3e-2},
      LayerForm{P::kFP8, "fp8", T::kFloat8E4M3, kNone, R::kNone, per_tensor(kE4M3), per_channel(kE4M3), 2, 19, 5e-2,
                kProducts},
      LayerForm{P::kINT8, "int8", T::kInt8, kNone, R::kNone, per_tensor(kInt8), per_channel(kInt8), 2, 13, 5e-2},
      LayerForm{P::kMXFP8, "mxfp8", kNone, kNone, R::kNone, in_blocks(kE4M3, 32, kE8M0), in_blocks(kE4M3, 32, kE8M0), 2,
                21, 5e-2, kProducts},
      LayerForm{P::kNVFP4, "nvfp4", T::kFloat4E2M1, kNone, R::kNone, in_scaled_blocks(kE2M1, 16, kE4M3, kCalibrated),
                in_scaled_blocks(kE2M1, 16, kE4M3, kOwn), 0, 23, 2e-1, kProducts},
      LayerForm{P::kMXFP4, "mxfp4", kNone, kNone, R::kNone, in_blocks(kE2M1, 32, kE8M0), in_blocks(kE2M1, 32, kE8M0), 0,
                24, 2e-1, kProducts},
      of_weights(P::kINT8Weights, "int8-weights", kNone, per_channel(kInt8), 3, 13, 5e-2),
      of_weights(P::kFP8Weights, "fp8-weights", kNone, per_channel(kE4M3), 3, 19, 5e-2),
      of_weights(P::kMXFP8Weights, "mxfp8-weights", kNone, in_blocks(kE4M3, 32, kE8M0), 3, 24, 5e-2),
      of_weights(P::kNVFP4Weights, "nvfp4-weights", kNone, in_scaled_blocks(kE2M1, 16, kE4M3, kOwn), 1, 23, 2e-1),
      of_weights(P::kMXFP4Weights, "mxfp4-weights", kNone, in_blocks(kE2M1, 32, kE8M0), 1, 24, 2e-1),
      of_weights(P::kINT4, "int4", T::kInt4, in_blocks(kInt4, 128, kHalf), 1, 21, 2e-1),
      standing_in_for(P::kINT4,
                      of_weights(P::kINT4Block64, "int4-64", kNone, in_blocks(kInt4, 64, kHalf), 1, 21, 2e-1)),
      of_weights(P::kINT4Block32, "int4-32", kNone, in_blocks(kInt4, 32, kHalf), 1, 21, 2e-1),
  };
}
constexpr auto kForms = make_forms();

constexpr bool in_order() {
  for (std::size_t i = 0; i < kForms.size(); ++i)
    if (kForms[i].precision != static_cast<Precision>(i)) return false;
  return true;
}
static_assert(in_order() && kForms.size() == kPrecisionCount);

}  // namespace

const LayerForm& form_of(Precision precision) noexcept { return kForms[static_cast<std::size_t>(precision)]; }
std::span<const LayerForm> layer_forms() noexcept { return kForms; }

bool LayerForm::is_weakly_typed() const noexcept {
  return is_float() || (is_quantized() && activation.encoding->granularity == Granularity::kTensor);
}

DataType LayerForm::read_type() const noexcept {
  return activation.encoding ? format_of(activation.encoding->format).type : stored;
}

double LayerForm::bytes(const OperandForm& operand) const noexcept {
  // What a form of weights alone has beside them is the next higher enabled float: two bytes, where it is worth while.
  if (!operand.encoding) return is_of_weights() ? 2.0 : static_cast<double>(size_of(stored));
  const Encoding& encoding = *operand.encoding;
  const double scales = encoding.granularity == Granularity::kBlock
                            ? format_of(encoding.scale).bits() / static_cast<double>(encoding.block)
                            : 0;
  return (format_of(encoding.format).bits() + scales) / 8.0;
}

Precision weights_alone(Precision precision) noexcept {
  const LayerForm& form = form_of(precision);
  if (!form.is_quantized()) return precision;
  const auto found = std::ranges::find_if(kForms, [&](const LayerForm& each) {
    return each.is_of_weights() && each.weight.encoding == form.weight.encoding;
  });
  return found == kForms.end() ? precision : found->precision;
}

std::string_view LayerForm::request() const noexcept {
  return is_float() && type != DataType::kUndefined ? name_of(type) : name;
}

std::string LayerForm::flag() const {
  // "int8-weights", "int4-64": a format, and how.
  const std::size_t dash = name.find('-');
  const std::string format = fmt::format("--{}", name.substr(0, dash));
  if (dash == std::string_view::npos) return format;
  const std::string_view how = name.substr(dash + 1);
  return how == "weights" ? format + " --weights-only" : fmt::format("{} --block-size {}", format, how);
}

std::string precision_list(std::string_view last_comma, bool (*accepts)(const LayerForm&)) {
  std::vector<std::string_view> names;
  for (const LayerForm& form : kForms)
    if (accepts == nullptr || accepts(form)) names.push_back(form.name);
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == names.size() ? last_comma : ", ", names[i]);
  return text;
}

std::string_view name_of(Precision precision) noexcept { return form_of(precision).name; }

std::optional<Precision> precision_named(std::string_view name) noexcept {
  const auto found = std::ranges::find(kForms, name, &LayerForm::name);
  return found == kForms.end() ? std::nullopt : std::optional(found->precision);
}

std::optional<Precision> precision_from_type(DataType type) noexcept {
  if (type == DataType::kUndefined) return std::nullopt;
  const auto found = std::ranges::find(kForms, type, &LayerForm::type);
  return found == kForms.end() ? std::nullopt : std::optional(found->precision);
}

DataType storage_of(Precision precision) noexcept {
  const DataType stored = form_of(precision).stored;
  return stored == DataType::kUndefined ? DataType::kFloat32 : stored;
}

Rounding rounding_of(Precision precision) noexcept { return form_of(precision).rounding; }

bool PrecisionSet::has_quantized() const noexcept {
  return std::ranges::any_of(kForms, [&](const LayerForm& form) { return has(form.precision) && form.is_quantized(); });
}

std::optional<Precision> PrecisionSet::larger_blocks(Precision p) const noexcept {
  const std::optional<Precision> larger = form_of(p).stands_in_for;
  return larger && has(*larger) ? larger : std::nullopt;
}

PrecisionSet with_smaller_blocks(PrecisionSet enabled) noexcept {
  for (const LayerForm& form : kForms)
    if (enabled.larger_blocks(form.precision)) enabled.set(form.precision);
  return enabled;
}

std::optional<Precision> int4_in_blocks(std::int64_t size) noexcept {
  const auto found = std::ranges::find_if(kForms, [&](const LayerForm& form) {
    return form.weight.encoding && form.weight.encoding->format == Format::kInt4 && form.weight.encoding->block == size;
  });
  return found == kForms.end() ? std::nullopt : std::optional(found->precision);
}

bool PrecisionSet::needs_calibration() const noexcept {
  return std::ranges::any_of(kForms, [&](const LayerForm& f) { return has(f.precision) && f.needs_calibration(); });
}

bool PrecisionSet::has_elements() const noexcept {
  return std::ranges::any_of(kForms, [&](const LayerForm& f) { return has(f.precision) && !f.is_float(); });
}

std::vector<Precision> PrecisionSet::members() const {
  std::vector<Precision> result;
  for (const LayerForm& form : kForms)
    if (has(form.precision)) result.push_back(form.precision);
  return result;
}

std::optional<Request> request_named(std::string_view name) {
  if (const auto type = data_type_from_name(name)) return Request(*type);
  if (const auto precision = precision_named(name)) return Request(*precision);
  return std::nullopt;
}

}  // namespace ulpscope
