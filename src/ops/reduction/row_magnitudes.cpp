#include "ops/reduction/row_magnitudes.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ulpscope::ops {
namespace {

void infer_magnitudes(InferContext& ctx) { ctx.set(0, DataType::kInt32, {RowMagnitudes::kSize}); }

void run_magnitudes(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  std::int32_t* const counts = ctx.output(0).data<std::int32_t>();
  std::fill_n(counts, RowMagnitudes::kSize, 0);
  if (x.size() == 0) return;
  const std::int64_t length = x.shape().empty() ? 1 : x.shape().back();
  const float* v = x.data<float>();
  for (std::int64_t row = 0; row < x.size() / length; ++row, v += length) {
    double squares = 0;
    for (std::int64_t i = 0; i < length; ++i) {
      const float magnitude = std::fabs(v[i]);
      const float counted = magnitude < RowMagnitudes::kLargestCounted ? magnitude : 0.0F;
      const auto take = [&](int place, std::int32_t bits) { counts[place] = std::max(counts[place], bits); };
      const auto bits = std::bit_cast<std::int32_t>(magnitude);
      take(RowMagnitudes::kLargest, std::bit_cast<std::int32_t>(counted));
      if (bits != 0 && bits < RowMagnitudes::kInfinity) {
        take(RowMagnitudes::kLargestFinite, bits);
        take(RowMagnitudes::kSmallest, RowMagnitudes::kInfinity - bits);
      }
      squares += static_cast<double>(counted) * counted;
    }
    if (squares == 0) {
      ++counts[RowMagnitudes::kZeroRows];
      continue;
    }
    const double bits = 0.5 * std::log2(squares / static_cast<double>(length));
    const auto bin = std::lround((bits - RowMagnitudes::kFirstBit) * RowMagnitudes::kPerBit);
    ++counts[std::clamp<std::int64_t>(bin, 0, RowMagnitudes::kBins - 1)];
  }
}

}  // namespace

const OpDef& row_magnitudes() {
  static const OpDef definition = [] {
    OpDef def{.name = "RowMagnitudes", .domain = "ulpscope"};
    def.types = {TypeSet{DataType::kFloat32}};
    def.precision = PrecisionRule::kFixed;
    def.infer = infer_magnitudes;
    def.run = run_magnitudes;
    return def;
  }();
  return definition;
}

}  // namespace ulpscope::ops
