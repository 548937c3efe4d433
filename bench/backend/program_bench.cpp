// Our own loops at one thread: rounding, pointwise chains, rows and reorders, in bytes read and written per second.
#include <benchmark/benchmark.h>

#include <vector>

#include "backend/conversion.h"
#include "backend/cpu/layer_kernels.h"
#include "backend/cpu/program.h"
#include "backend/reference_kernel.h"
#include "core/parallel.h"

namespace ulpscope::cpu {
namespace {

Tensor filled(Shape shape) {
  Tensor tensor(DataType::kFloat32, std::move(shape));
  float* out = tensor.data<float>();
  for (std::int64_t i = 0; i < tensor.size(); ++i) out[i] = static_cast<float>(i % 1021) * 0.01f - 5.0f;
  return tensor;
}

void run(benchmark::State& state, const Kernel& kernel, const std::vector<Tensor>& inputs, Shape output) {
  set_num_threads(1);
  Tensor result = filled(std::move(output));
  std::vector<const Tensor*> in;
  std::size_t bytes = result.bytes();
  for (const Tensor& input : inputs) {
    in.push_back(&input);
    bytes += input.bytes();
  }
  Tensor* const out[] = {&result};
  for (auto _ : state) {
    kernel.run(in, out);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * static_cast<std::int64_t>(state.iterations()));
}

/// 64 KiB stays in the second-level cache, 64 MiB in none.
void sizes(benchmark::internal::Benchmark* b) { b->ArgName("floats")->Arg(1 << 14)->Arg(1 << 24); }

void rounding(benchmark::State& state, Rounding how) {
  run(state, *make_rounding_kernel(how), {filled({state.range(0)})}, {state.range(0)});
}
BENCHMARK_CAPTURE(rounding, fp16, Rounding::kF16)->Apply(sizes);
BENCHMARK_CAPTURE(rounding, bf16, Rounding::kBF16)->Apply(sizes);
BENCHMARK_CAPTURE(rounding, tf32, Rounding::kTF32)->Apply(sizes);

void unary(benchmark::State& state, Instruction instruction) {
  ProgramBuilder program({state.range(0)});
  program.output(program.apply(instruction, program.input({1}, Rounding::kNone)), Rounding::kNone);
  run(state, *program.finish(), {filled({state.range(0)})}, {state.range(0)});
}
BENCHMARK_CAPTURE(unary, copy, Instruction::kCopy)->Apply(sizes);
BENCHMARK_CAPTURE(unary, relu, Instruction::kRelu)->Apply(sizes);
BENCHMARK_CAPTURE(unary, exp, Instruction::kExp)->Apply(sizes);
BENCHMARK_CAPTURE(unary, erf, Instruction::kErf)->Apply(sizes);
BENCHMARK_CAPTURE(unary, tanh, Instruction::kTanh)->Apply(sizes);
BENCHMARK_CAPTURE(unary, gelu, Instruction::kGelu)->Apply(sizes);
BENCHMARK_CAPTURE(unary, hard_swish, Instruction::kHardSwish)->Apply(sizes);

/// relu(a + b), with what fp16 rounds: both operands and the result.
void add_relu(benchmark::State& state, Rounding how) {
  ProgramBuilder program({state.range(0)});
  const int sum = program.apply(Instruction::kAdd, program.input({1}, how), program.input({1}, how));
  program.output(program.apply(Instruction::kRelu, sum), how);
  run(state, *program.finish(), {filled({state.range(0)}), filled({state.range(0)})}, {state.range(0)});
}
BENCHMARK_CAPTURE(add_relu, fp32, Rounding::kNone)->Apply(sizes);
BENCHMARK_CAPTURE(add_relu, fp16, Rounding::kF16)->Apply(sizes);

/// exp(x - max) / sum over rows of `width`.
void softmax(benchmark::State& state) {
  const std::int64_t width = state.range(0), rows = (1 << 20) / width;
  ProgramBuilder program({rows, width}, 1);
  const int x = program.input({width, 1}, Rounding::kNone);
  const int e =
      program.apply(Instruction::kExp, program.apply(Instruction::kSub, x, program.apply(Instruction::kReduceMax, x)));
  program.output(program.apply(Instruction::kDiv, e, program.apply(Instruction::kReduceSum, e)), Rounding::kNone);
  run(state, *program.finish(), {filled({rows, width})}, {rows, width});
}
BENCHMARK(softmax)->ArgName("width")->Arg(64)->Arg(1024);

/// (x - mean) / sqrt(variance + epsilon) * scale + shift over rows of `width`.
void layer_norm(benchmark::State& state) {
  const std::int64_t width = state.range(0), rows = (1 << 20) / width;
  ProgramBuilder program({rows, width}, 1);
  const int x = program.input({width, 1}, Rounding::kNone);
  const int scale = program.input({0, 1}, Rounding::kNone), shift = program.input({0, 1}, Rounding::kNone);
  const int centered = program.apply(Instruction::kSub, x, program.apply(Instruction::kReduceMean, x));
  const int variance = program.apply(Instruction::kReduceMean, program.apply(Instruction::kSquare, centered));
  const int factor =
      program.apply(Instruction::kRsqrt, program.apply(Instruction::kAdd, variance, program.constant(1e-5f)));
  const int scaled = program.apply(Instruction::kMul, program.apply(Instruction::kMul, centered, factor), scale);
  program.output(program.apply(Instruction::kAdd, scaled, shift), Rounding::kNone);
  run(state, *program.finish(), {filled({rows, width}), filled({width}), filled({width})}, {rows, width});
}
BENCHMARK(layer_norm)->ArgName("width")->Arg(384)->Arg(1024);

void reorder(benchmark::State& state, Layout to) {
  const Shape shape{1, state.range(0), 64, 64};
  run(state, *make_reorder_kernel(shape, to, Rounding::kNone), {filled(shape)}, shape);
}
BENCHMARK_CAPTURE(reorder, to_channels_last, Layout::kChannelsLast)->ArgName("channels")->Arg(3)->Arg(64)->Arg(512);
BENCHMARK_CAPTURE(reorder, to_dense, Layout::kDense)->ArgName("channels")->Arg(3)->Arg(64)->Arg(512);

}  // namespace
}  // namespace ulpscope::cpu
