#include "precision/weight_loss.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace ulpscope {

WeightLoss weight_loss(const Tensor& values, const Tensor& stored, const ScaleLayout& layout) {
  struct Share {
    double error = 0, sum = 0, largest = 0;
    std::int64_t count = 0;
  };
  std::vector<Share> shares(static_cast<std::size_t>(std::max<std::int64_t>(num_elements(layout.scales), 1)));
  double errors = 0, squares = 0;
  for (std::int64_t i = 0; i < values.size(); ++i) {
    const double x = values.data<float>()[i], d = static_cast<double>(stored.data<float>()[i]) - x;
    Share& share = shares[static_cast<std::size_t>(layout.index(i))];
    share.error += d * d;
    share.sum += std::abs(x);
    share.largest = std::max(share.largest, std::abs(x));
    ++share.count;
    errors += d * d;
    squares += x * x;
  }
  WeightLoss result;
  if (squares > 0) result.relative = std::sqrt(errors / squares);
  if (const auto worst = std::ranges::max_element(shares, {}, &Share::error); worst != shares.end() && worst->sum > 0)
    result.peak = worst->largest * static_cast<double>(worst->count) / worst->sum;
  return result;
}

}  // namespace ulpscope
