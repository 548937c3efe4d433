#include "engine/kernel_model.h"

namespace ulpscope {

std::string_view name_of(KernelKind kind) noexcept {
  static constexpr std::array<std::string_view, kKernelKinds> kNames{"product",
                                                                     "narrow product",
                                                                     "convolution",
                                                                     "irregular convolution",
                                                                     "grouped convolution",
                                                                     "tiled convolution",
                                                                     "depthwise convolution",
                                                                     "attention",
                                                                     "long attention",
                                                                     "recurrent",
                                                                     "pointwise",
                                                                     "row",
                                                                     "window",
                                                                     "move",
                                                                     "view",
                                                                     "cast",
                                                                     "run"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::optional<KernelKind> kernel_kind_named(std::string_view name) noexcept {
  for (std::size_t k = 0; k < kKernelKinds; ++k)
    if (name_of(static_cast<KernelKind>(k)) == name) return static_cast<KernelKind>(k);
  return std::nullopt;
}

std::string_view name_of(KernelTerm term) noexcept {
  static constexpr std::array<std::string_view, kKernelTerms> kNames{"call",      "depth",   "gop",       "mb",
                                                                     "weight_mb", "program", "program_mb"};
  return kNames[static_cast<std::size_t>(term)];
}

bool multiplies(KernelKind kind) noexcept { return kind <= KernelKind::kRecurrent; }

KernelWork cast_work(double elements, double bytes_per_element) {
  KernelWork work{.kind = KernelKind::kCast};
  work.terms[static_cast<std::size_t>(KernelTerm::kCall)] = 1;
  work.terms[static_cast<std::size_t>(KernelTerm::kMb)] = elements * bytes_per_element * 1e-6;
  return work;
}

KernelWork run_work() {
  KernelWork work{.kind = KernelKind::kRun};
  work.terms[static_cast<std::size_t>(KernelTerm::kCall)] = 1;
  return work;
}

KernelWork launch_of(const KernelWork& work) {
  KernelWork launch{.kind = work.kind, .precision = work.precision};
  for (const KernelTerm term : {KernelTerm::kCall, KernelTerm::kProgram})
    launch.terms[static_cast<std::size_t>(term)] = work.terms[static_cast<std::size_t>(term)];
  return launch;
}

namespace {

/// Whose factors a precision takes that has none of its own.
std::optional<Precision> nearest(const KernelModel& model, KernelKind kind, Precision p) {
  const auto has = [&](Precision each) { return model.us.contains({kind, each}); };
  if (has(p)) return p;
  const LayerForm& form = form_of(p);
  // Weights alone: the same elements in other blocks.
  if (form.is_of_weights())
    for (const LayerForm& each : layer_forms())
      if (each.is_of_weights() && each.weight.encoding->format == form.weight.encoding->format && has(each.precision))
        return each.precision;
  // Integers and floats of 8 bits and fewer go the way of int8; what is stored narrow and multiplied as a float that of
  // fp16.
  if (form.is_quantized() && has(Precision::kINT8)) return Precision::kINT8;
  if ((form.is_of_weights() || form.read_type() != DataType::kFloat32) && has(Precision::kFP16))
    return Precision::kFP16;
  return has(Precision::kFP32) ? std::optional(Precision::kFP32) : std::nullopt;
}

}  // namespace

double KernelModel::operator()(const KernelWork& work, std::span<const double> rates) const {
  const Precision own = multiplies(work.kind) ? work.precision : Precision::kFP32;
  KernelKind kind = work.kind;
  std::optional<Precision> like = nearest(*this, kind, own);
  if (!like && kind == KernelKind::kLong) like = nearest(*this, kind = KernelKind::kAttention, own);
  if (!like && (kind == KernelKind::kGrouped || kind == KernelKind::kIrregular))
    like = nearest(*this, kind = KernelKind::kConvolution, own);
  if (!like && (kind == KernelKind::kTiled || kind == KernelKind::kNarrow))
    like = nearest(*this, kind = KernelKind::kProduct, own);
  if (!like) return 0;
  const KernelTerms& factors = us.at({kind, *like});
  const double rate = rates[static_cast<std::size_t>(own)], known = rates[static_cast<std::size_t>(*like)];
  const double slower = rate > 0 && known > 0 ? known / rate : 1;
  double sum = 0;
  for (std::size_t t = 0; t < kKernelTerms; ++t) {
    const bool arithmetic =
        t == static_cast<std::size_t>(KernelTerm::kDepth) || t == static_cast<std::size_t>(KernelTerm::kGop);
    sum += work.terms[t] * factors[t] * (arithmetic ? slower : 1);
  }
  return sum;
}

}  // namespace ulpscope
