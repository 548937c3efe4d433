#include "backend/cpu/limits.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "backend/cpu/product.h"
#include "ops/movement.h"

namespace ulpscope::cpu {
namespace {

template <typename Function>
double least_microseconds(int runs, Function&& function) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    function();
    const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
    least = std::min(least, taken.count());
  }
  return least;
}

Tensor ones(const Shape& shape) {
  Tensor tensor(DataType::kFloat32, shape);
  std::fill_n(tensor.data<float>(), tensor.size(), 1.0f);
  return tensor;
}

}  // namespace

MachineLimits measure_limits() {
  constexpr std::int64_t kSide = 512, kCopied = 24 << 20;
  MatMulSpec spec;
  spec.m = spec.n = spec.k = kSide;
  spec.constant_b = [] { return ones({kSide, kSide}); };
  const auto kernel = make_matmul_kernel(spec, [](const std::string&, std::function<PreparedObject()> make) {
    return PreparedSource([object = make().object] { return object; });
  });
  const Tensor a = ones({kSide, kSide});
  Tensor product = ones({kSide, kSide});
  const Tensor* const in = &a;
  Tensor* const out = &product;
  const double multiplied = least_microseconds(30, [&] { kernel->run({&in, 1}, {&out, 1}); });
  const Tensor from = ones({kCopied});
  Tensor to = ones({kCopied});
  const double copied = least_microseconds(5, [&] { ops::copy_bytes(from.raw(), to.raw(), from.bytes()); });
  return {static_cast<double>(kSide * kSide * kSide) / multiplied, 2.0 * static_cast<double>(from.bytes()) / copied};
}

}  // namespace ulpscope::cpu
