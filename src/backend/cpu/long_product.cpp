// Matrix products whose sums are long.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/cpu/product.h"
#include "backend/cpu/thread_memory.h"
#include "core/parallel.h"

namespace ulpscope::cpu {
namespace {

/// A long sum as the sum of short ones.
std::unique_ptr<Kernel> make_summed_matmul(MatMulSpec spec, const ObjectCache& cache) {
  constexpr std::int64_t kSum = 4096;
  std::int64_t results = spec.m * spec.n;
  for (std::size_t d = 0; d < spec.batch_a.size(); ++d) results *= std::max(spec.batch_a[d], spec.batch_b[d]);
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (std::int64_t k = 0; k < spec.k; k += kSum) {
    spec.k_begin = k;
    spec.k_end = std::min(k + kSum, spec.k);
    kernels.push_back(make_short_matmul_kernel(spec, cache));
    spec.bias = {};
  }
  std::string name = fmt::format("{} sums, {}", kernels.size(), kernels[0]->name());
  auto run = [=, kernels = std::move(kernels)](Kernel::Inputs inputs, Kernel::Outputs outputs) {
    thread_local ThreadMemory memory;
    Tensor part = Tensor::borrow(DataType::kFloat32, {}, memory.floats(static_cast<std::size_t>(results)), nullptr);
    Tensor* const to = &part;
    const float* const from = part.data<float>();
    float* const sums = outputs[0]->data<float>();
    kernels[0]->run(inputs, outputs);
    for (std::size_t i = 1; i < kernels.size(); ++i) {
      kernels[i]->run(inputs, {&to, 1});
      parallel_for(results, items_per_task(results, 1), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) sums[r] += from[r];
      });
    }
  };
  return make_kernel(std::move(name), std::move(run));
}

}  // namespace

bool is_long_sum(const MatMulSpec& spec) {
  constexpr std::int64_t kLongest = 32768;
  return spec.type_a == DataType::kFloat32 && spec.k_end == 0 && spec.k > kLongest;
}

std::unique_ptr<Kernel> make_matmul_kernel(const MatMulSpec& spec, const ObjectCache& cache) {
  return is_long_sum(spec) ? make_summed_matmul(spec, cache) : make_short_matmul_kernel(spec, cache);
}

}  // namespace ulpscope::cpu
