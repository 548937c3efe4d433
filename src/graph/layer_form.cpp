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

constexpr auto make_forms() {
  using P = Precision;
  using T = DataType;
  using R = Rounding;
  constexpr Format kE4M3 = Format::kFloat8E4M3, kInt8 = Format::kInt8;
  // precision, name, asked for by, stores, rounds to, activations, weights, rank, opset, usual error
  return std::array{
      LayerForm{P::kFP32, "fp32", T::kFloat32, T::kFloat32, R::kNone, {}, {}, 3, 1, 0},
      LayerForm{P::kTF32, "tf32", T::kUndefined, T::kFloat32, R::kTF32, {}, {}, 2, 0, 5e-3, true},
      LayerForm{P::kFP16, "fp16", T::kFloat16, T::kFloat16, R::kF16, {}, {}, 1, 1, 5e-3},
      LayerForm{P::kBF16, "bf16", T::kBFloat16, T::kBFloat16, R::kBF16, {}, {}, 1, 13, 3e-2},
      LayerForm{P::kFP8, "fp8", T::kFloat8E4M3, T::kUndefined, R::kNone, per_tensor(kE4M3), per_channel(kE4M3), 0, 19,
                5e-2, /*products_only=*/true, /*implemented=*/false},
      LayerForm{P::kINT8, "int8", T::kInt8, T::kUndefined, R::kNone, per_tensor(kInt8), per_channel(kInt8), 0, 13,
                5e-2},
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

DataType LayerForm::read_type() const noexcept {
  return activation.encoding ? format_of(activation.encoding->format).type : stored;
}

double LayerForm::bytes(const OperandForm& operand) const noexcept {
  return operand.encoding ? format_of(operand.encoding->format).bits() / 8.0 : static_cast<double>(size_of(stored));
}

std::string_view LayerForm::request() const noexcept { return type == DataType::kUndefined ? name : name_of(type); }

std::string LayerForm::flag() const { return fmt::format("--{}", name); }

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
