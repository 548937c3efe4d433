#include <algorithm>
#include <cstring>

#include "backend/cpu/layer_kernels.h"
#include "core/parallel.h"

namespace ulpscope::cpu {
namespace {

/// out(outer, output, inner) from in(outer, input, inner), by the table of one axis.
struct Pass {
  ops::ResampledAxis table;
  std::int64_t outer, input, output, inner;

  std::int64_t size() const { return outer * output * inner; }
  void run(const float* in, float* out) const {
    if (inner == 1) {
      parallel_each(outer, items_per_task(outer, output * table.taps),
                    [&](std::int64_t row) { compute_row(in + row * input, out + row * output); });
      return;
    }
    const std::int64_t rows = outer * output;
    parallel_each(rows, items_per_task(rows, inner * table.taps), [&](std::int64_t row) {
      compute(in + row / output * input * inner, row % output, out + row * inner);
    });
  }

 private:
  /// A row of single elements.
  void compute_row(const float* in, float* out) const {
    const std::int32_t* index = table.index.data<std::int32_t>();
    const float* weight = table.weight.data<float>();
    for (std::int64_t at = 0; at < output; ++at, index += table.taps, weight += table.taps) {
      float sum = table.taps == 1 ? in[index[0]] : 0.0f;
      for (std::int64_t k = 0; k < table.taps && table.taps > 1; ++k)
        if (weight[k] != 0) sum += weight[k] * in[index[k]];
      out[at] = sum;
    }
  }

  /// `inner` elements side by side.
  void compute(const float* in, std::int64_t at, float* out) const {
    const std::int32_t* index = table.index.data<std::int32_t>() + at * table.taps;
    const float* weight = table.weight.data<float>() + at * table.taps;
    if (table.taps == 1) {
      std::memcpy(out, in + index[0] * inner, static_cast<std::size_t>(inner) * sizeof(float));
      return;
    }
    constexpr std::int64_t kBlock = 1024;  // Elements that stay in the first-level cache.
    for (std::int64_t begin = 0; begin < inner; begin += kBlock) {
      const std::int64_t count = std::min(kBlock, inner - begin);
      float* sums = out + begin;
      std::fill_n(sums, count, 0.0f);
      for (std::int64_t k = 0; k < table.taps; ++k) {
        if (weight[k] == 0) continue;
        const float* values = in + index[k] * inner + begin;
        for (std::int64_t i = 0; i < count; ++i) sums[i] += weight[k] * values[i];
      }
    }
  }
};

}  // namespace

std::unique_ptr<Kernel> make_resample_kernel(Shape shape, std::vector<ops::ResampledAxis> axes) {
  std::vector<Pass> passes;
  for (ops::ResampledAxis& a : axes) {
    const auto at = shape.begin() + a.axis;
    const std::int64_t output = a.index.shape()[0];
    passes.push_back(
        {std::move(a), num_elements({shape.begin(), at}), *at, output, num_elements({at + 1, shape.end()})});
    *at = output;
  }
  return make_kernel("resampled", [passes = std::move(passes)](Kernel::Inputs inputs, Kernel::Outputs outputs) {
    const float* in = inputs[0]->data<float>();
    std::vector<float> made, next;
    for (std::size_t i = 0; i + 1 < passes.size(); ++i) {
      next.resize(static_cast<std::size_t>(passes[i].size()));
      passes[i].run(in, next.data());
      made.swap(next);
      in = made.data();
    }
    if (passes.empty())
      std::memcpy(outputs[0]->raw(), in, inputs[0]->bytes());
    else
      passes.back().run(in, outputs[0]->data<float>());
  });
}

}  // namespace ulpscope::cpu
