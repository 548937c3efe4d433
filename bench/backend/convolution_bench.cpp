// Convolutions of integers at one thread, on bytes and on floats, with the quantization of their input: what
// backend/cpu/choices.cpp decides between. The sums are the same.
#include <benchmark/benchmark.h>

#include <random>

#include "backend/conversion.h"
#include "backend/cpu/product.h"
#include "core/parallel.h"

namespace ulpscope::cpu {
namespace {

PreparedSource made_now(const std::string&, std::function<PreparedObject()> make) {
  return [object = make().object] { return object; };
}

Tensor integers(Shape shape) {
  Tensor tensor(DataType::kFloat32, std::move(shape));
  std::mt19937 random(1);
  for (std::int64_t i = 0; i < tensor.size(); ++i)
    tensor.data<float>()[i] = static_cast<float>(static_cast<int>(random() % 255) - 127);
  return tensor;
}

/// Arguments: channels in, out, extent of the square map, window, stride, groups.
void convolution(benchmark::State& state, bool bytes) {
  set_num_threads(1);
  const std::int64_t c = state.range(0), k = state.range(1), extent = state.range(2), window = state.range(3),
                     stride = state.range(4), groups = state.range(5), pad = window / 2;
  const std::int64_t out = (extent + 2 * pad - window) / stride + 1;
  ConvolutionSpec spec{.input = {1, c, extent, extent},
                       .output = {1, k, out, out},
                       .strides = {stride, stride},
                       .dilations = {1, 1},
                       .pads_begin = {pad, pad},
                       .pads_end = {pad, pad},
                       .groups = groups};
  spec.kernel = {k, c / groups, window, window};
  const Tensor weights = integers(spec.kernel);
  spec.weights = [weights, bytes] { return bytes ? weights.cast(DataType::kInt8) : weights; };
  if (bytes) spec.type = DataType::kInt8;
  const std::unique_ptr<Kernel> kernel = make_convolution_kernel(spec, made_now);
  if (kernel == nullptr) return state.SkipWithError("none");
  const Quantization quantization{.scale = 1.0f};
  const IntegerForm form = bytes ? IntegerForm::kBytes : IntegerForm::kFloats;
  const std::unique_ptr<Kernel> quantize = make_quantize_kernel(quantization, form);
  const Tensor values = integers(spec.input);
  Tensor x(bytes ? DataType::kInt8 : DataType::kFloat32, spec.input), y(DataType::kFloat32, spec.output);
  const Tensor* const in[] = {&values};
  const Tensor* const operands[] = {&x};
  Tensor *const quantized[] = {&x}, *const results[] = {&y};
  for (auto _ : state) {
    quantize->run(in, quantized);
    kernel->run(operands, results);
    benchmark::ClobberMemory();
  }
  state.SetLabel(kernel->name());
}

void depthwise(benchmark::internal::Benchmark* b) {
  b->ArgNames({"c", "k", "extent", "window", "stride", "groups"})->Unit(benchmark::kMicrosecond);
  for (const std::int64_t window : {3, 5, 7})
    for (const auto& [channels, extent] : {std::pair{16, 112}, {32, 56}, {96, 28}, {192, 14}, {576, 14}, {960, 7}})
      for (const std::int64_t stride : {1, 2}) b->Args({channels, channels, extent, window, stride, channels});
}
BENCHMARK_CAPTURE(convolution, bytes, true)->Apply(depthwise);
BENCHMARK_CAPTURE(convolution, floats, false)->Apply(depthwise);

void grouped_and_whole(benchmark::internal::Benchmark* b) {
  b->ArgNames({"c", "k", "extent", "window", "stride", "groups"})->Unit(benchmark::kMicrosecond);
  for (const std::int64_t window : {1, 3})
    for (const auto& [channels, extent] : {std::pair{8, 48}, {16, 28}, {32, 56}, {64, 28}, {128, 14}, {256, 7}})
      for (const std::int64_t groups : {1, channels / 8}) b->Args({channels, channels, extent, window, 1, groups});
}
BENCHMARK_CAPTURE(convolution, bytes, true)->Apply(grouped_and_whole);
BENCHMARK_CAPTURE(convolution, floats, false)->Apply(grouped_and_whole);

}  // namespace
}  // namespace ulpscope::cpu
