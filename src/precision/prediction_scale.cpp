#include "precision/prediction_scale.h"

#include <cmath>

namespace ulpscope {

void PredictionScale::note(double predicted, double measured) {
  const double logarithm = std::log(predicted), ratio = std::log(measured) - logarithm;
  if (std::isfinite(logarithm) && std::isfinite(ratio)) logarithms_[logarithm] = ratio;
}

double PredictionScale::corrected(double predicted) const {
  if (logarithms_.empty() || !(predicted > 0) || std::isinf(predicted)) return predicted;
  const double logarithm = std::log(predicted);
  const auto above = logarithms_.lower_bound(logarithm);
  if (above == logarithms_.begin()) return predicted * std::exp(above->second);
  const auto below = std::prev(above);
  if (above == logarithms_.end()) return predicted * std::exp(below->second);
  const double share = (logarithm - below->first) / (above->first - below->first);
  return predicted * std::exp(std::lerp(below->second, above->second, share));
}

double PredictionScale::prediction_of(double use) const {
  if (logarithms_.empty()) return use;
  const auto measured = [](const auto& pair) { return pair.first + pair.second; };
  const double logarithm = std::log(use);
  // From above, down to where a measured use is within it.
  auto above = logarithms_.end();
  while (above != logarithms_.begin() && measured(*std::prev(above)) > logarithm) --above;
  if (above == logarithms_.begin()) return std::exp(logarithm - above->second);
  const auto below = std::prev(above);
  if (above == logarithms_.end()) return std::exp(logarithm - below->second);
  const double share = (logarithm - measured(*below)) / (measured(*above) - measured(*below));
  return std::exp(std::lerp(below->first, above->first, share));
}

}  // namespace ulpscope
