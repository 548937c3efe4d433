// How far off a prediction is, from what was measured.
#pragma once

#include <map>

namespace ulpscope {

/// Of the tolerance: what is predicted, corrected by how predictions near it fared. Between two of these the correction
/// is interpolated (linearly between logarithms), beyond them it is that of the nearest.
class PredictionScale {
 public:
  /// Ignores what has no ratio: zeros and what is not finite.
  void note(double predicted, double measured);
  void clear() { logarithms_.clear(); }
  double corrected(double predicted) const;
  /// The largest prediction that is `use` when it is corrected; use > 0.
  double prediction_of(double use) const;

 private:
  std::map<double, double> logarithms_;  ///< Of a prediction: of measured / predicted.
};

}  // namespace ulpscope
