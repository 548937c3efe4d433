// MelWeightMatrix, ai.onnx 17: triangular filters on the mel scale, for the bins of a one-sided DFT.
#include <cmath>
#include <vector>

#include "ops/indexing/to_index.h"
#include "ops/movement.h"
#include "ops/onnx_types.h"

namespace ulpscope::ops {
namespace {

// Inputs: num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz.
void infer_mel_weight_matrix(InferContext& ctx) {
  ctx.set_type(0, data_type_from_onnx(ctx.layer(), ctx.attributes().integer("output_datatype", 1)));
  const std::int64_t bins = single_integer(ctx, 0), length = single_integer(ctx, 1);
  if (bins < 0 || length < 0) ctx.fail(fmt::format("expected sizes >= 0, got {} and {}", bins, length));
  ctx.set_shape(0, {length / 2 + 1, bins});
}

double number(const KernelContext& ctx, int i) {
  if (ctx.input(i).size() != 1) ctx.fail(fmt::format("expected one element as input {}", i));
  return *ctx.input(i).cast(DataType::kFloat64).data<double>();
}

void run_mel_weight_matrix(KernelContext& ctx) {
  const std::int64_t bins = single_integer(ctx, 0), length = single_integer(ctx, 1), rows = length / 2 + 1;
  const double rate = number(ctx, 2);
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double low = mel(number(ctx, 3)), step = (mel(number(ctx, 4)) - low) / static_cast<double>(bins + 2);
  std::vector<std::int64_t> edges;  // In DFT bins; filter i rises from edge i to i + 1 and falls to i + 2.
  for (std::int64_t i = 0; i < bins + 2; ++i) {
    const double hertz = 700 * (std::pow(10, (low + static_cast<double>(i) * step) / 2595) - 1);
    edges.push_back(to_index(std::floor(static_cast<double>(length + 1) * hertz / rate)));
    if (!(rate > 0) || edges.back() < 0 || edges.back() > rows)
      ctx.fail("the edges in hertz are outside of the spectrum; try an upper edge of at most half of the sample rate");
  }
  Tensor matrix(DataType::kFloat64, {rows, bins});
  double* out = matrix.data<double>();
  std::fill(out, out + matrix.size(), 0.0);
  for (std::int64_t i = 0; i < bins; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t start = edges[at], peak = edges[at + 1], stop = edges[at + 2];
    const auto set = [&](std::int64_t row, double value) {
      if (row < rows) out[row * bins + i] = value;
    };
    if (peak == start)
      set(peak, 1);
    else
      for (std::int64_t j = start; j <= peak; ++j)
        set(j, static_cast<double>(j - start) / static_cast<double>(peak - start));
    for (std::int64_t j = peak; j < stop; ++j) set(j, static_cast<double>(stop - j) / static_cast<double>(stop - peak));
  }
  ctx.set_output(0, matrix.cast(physical_type(ctx.output_type(0))));
}

}  // namespace

OpDef mel_weight_matrix() {
  return {.name = "MelWeightMatrix",
          .since_version = 17,
          .inputs = {5, 5},
          .types = {kIndices, kIndices, kIndices, kFloats},
          .precision = PrecisionRule::kFixed,
          .weights = 0b11111,
          .infer = infer_mel_weight_matrix,
          .run = run_mel_weight_matrix};
}

}  // namespace ulpscope::ops
