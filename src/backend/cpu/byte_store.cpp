#include "backend/cpu/byte_store.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/division.h"

namespace ulpscope::cpu {
namespace {

std::vector<std::int64_t> in_panels(std::int64_t groups, std::int64_t columns, std::int64_t panel) {
  std::vector<std::int64_t> result;
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t c = 0; c < round_up(columns, panel); ++c) result.push_back(c < columns ? g * columns + c : -1);
  return result;
}

/// A scale that gives the same bytes, and never NaN: times 0, infinity does; NaN counts as 0.
float finite(float scale) {
  constexpr float kMost = std::numeric_limits<float>::max();
  return std::isnan(scale) ? 0.0f : std::clamp(scale, -kMost, kMost);
}

}  // namespace

ByteStore::ByteStore(const Requantization& by, const std::vector<std::int64_t>& channels)
    : scales_(channels.size()), offset_(channels.size()), bias_(channels.size()) {
  for (std::size_t i = 0; i < channels.size(); ++i) {
    if (channels[i] < 0) continue;
    const auto c = static_cast<std::size_t>(channels[i]);
    scales_[i] = finite(by.scales[c]);
    if (!by.offset.empty()) offset_[i] = by.offset[c];
    if (!by.bias.empty()) bias_[i] = by.bias[c];
  }
  form_.zero = by.zero;
  form_.step = by.step;
  form_.least = by.low();
  form_.most = by.high();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (by.offset.empty() && by.step == 1 && by.least == -kInfinity && by.most == kInfinity) {
    form_.quotient = ByteForm::Quotient::kNone;
    form_.low = by.low();
    form_.high = by.high();
    return;
  }
  form_.low = by.least;
  form_.high = by.most;
  const Inverse inverse = inverse_of(by.step, by.low(), by.high());
  form_.quotient = inverse.exists ? ByteForm::Quotient::kInverse : ByteForm::Quotient::kDivision;
  form_.r = inverse.r;
  form_.s = inverse.s;
  if (!inverse.exists) return;
  form_.low = std::clamp(by.least, by.low() * by.step, by.high() * by.step);
  form_.high = std::clamp(by.most, by.low() * by.step, by.high() * by.step);
}

ByteStore::ByteStore(const Requantization& by, std::int64_t groups, std::int64_t columns, std::int64_t panel)
    : ByteStore(by, in_panels(groups, columns, panel)) {}

ByteForm ByteStore::from(std::int64_t place) const {
  ByteForm form = form_;
  form.scales = scales_.data() + place;
  form.bias = offset_.data() + place;
  return form;
}

void ByteStore::add_bias(std::int64_t place, std::vector<std::int32_t>& start) const {
  for (std::size_t i = 0; i < start.size(); ++i)
    start[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(start[i]) +
                                         static_cast<std::uint32_t>(bias_[static_cast<std::size_t>(place) + i]));
}

}  // namespace ulpscope::cpu
