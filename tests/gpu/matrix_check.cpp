// cuBLASLt's products, with what of an epilogue is left to it, on a GPU against their definition in float64: every
// algorithm that it offers, for random sizes, also odd ones, orders of memory, types and epilogues. Not a test: it
// needs a GPU.
//   matrix_check [specs=60] [seed] [all]
// One line per spec, below it one per algorithm that is wrong. Exit code 1 when there is one. With `all` also those
// that lowering does not ask for, since some algorithms round before they add the bias.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/runtime.h"
#include "backend/cuda_elements.h"
#include "ulpscope/error.h"

using namespace ulpscope;
using namespace ulpscope::cuda;

namespace {

/// Elements in the memory of both sides.
class Elements {
 public:
  Elements(DataType type, std::int64_t count) : type_(type), bytes_(static_cast<std::size_t>(count) * size_of(type)) {
    memory_ = std::make_unique<DeviceMemory>(bytes_.size());
  }
  Elements(DataType type, std::int64_t count, float most, std::mt19937& random) : Elements(type, count) {
    std::uniform_real_distribution<float> any(-most, most);
    for (std::int64_t i = 0; i < count; ++i) elements::write(type, &bytes_[place(i)], any(random));
    Device::get().upload(memory_->address(), bytes_.data(), bytes_.size());
    Device::get().wait();
  }
  double operator[](std::int64_t i) const { return elements::read(type_, &bytes_[place(i)]); }
  Address address() const { return memory_->address(); }
  void clear() { check(driver().set_bytes(address(), 0xff, memory_->bytes(), Device::get().stream()), "clear memory"); }
  void download() { Device::get().download(bytes_.data(), address(), bytes_.size()); }

 private:
  std::size_t place(std::int64_t i) const { return static_cast<std::size_t>(i) * size_of(type_); }
  DataType type_;
  std::vector<unsigned char> bytes_;
  std::unique_ptr<DeviceMemory> memory_;
};

std::int64_t reach(const MatrixOperand& operand, std::int64_t rows, std::int64_t columns, std::int64_t batch) {
  return (rows - 1) * operand.row_stride + (columns - 1) * operand.column_stride + (batch - 1) * operand.batch_stride +
         1;
}

MatrixProductSpec random_spec(std::mt19937& random) {
  const auto any = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const auto size = [&](double most) {
    const auto n =
        static_cast<std::int64_t>(std::exp(std::uniform_real_distribution<double>(0, std::log(most))(random)));
    return any(0, 1) != 0 ? (n + 7) / 8 * 8 : n;
  };
  MatrixProductSpec spec{.m = size(1200), .n = size(700), .k = size(900), .batch = any(0, 3) == 0 ? any(2, 4) : 1};
  constexpr DataType kTypes[]{DataType::kFloat16, DataType::kBFloat16, DataType::kFloat32};
  spec.operands = spec.result = kTypes[any(0, 2)];
  if (any(0, 2) == 0) spec.result = DataType::kFloat32;
  const bool turned_a = any(0, 4) == 0, turned_b = any(0, 2) != 0;
  const std::int64_t gap = any(0, 4) == 0 ? 8 : 0;
  spec.a =
      turned_a ? MatrixOperand{1, spec.m, spec.m * spec.k} : MatrixOperand{spec.k + gap, 1, spec.m * (spec.k + gap)};
  spec.b = turned_b ? MatrixOperand{1, spec.k, spec.k * spec.n} : MatrixOperand{spec.n, 1, spec.k * spec.n};
  spec.d = {spec.n + gap, 1, spec.m * (spec.n + gap)};
  // As lowering asks: what is added has the type of the results.
  spec.bias = any(0, 1) != 0;
  spec.residual = any(0, 2) == 0;
  spec.relu = any(0, 2) == 0;
  return spec;
}

/// Algorithms that are wrong; each is said.
int check_spec(const MatrixProductSpec& spec, std::mt19937& random) {
  Runtime& runtime = Runtime::get();
  const auto algorithms = runtime.matrices().products(spec, Runtime::kProducts, Runtime::kWorkspace);
  fmt::print("{}: {} algorithms\n", spec.text(), algorithms.size());
  if (algorithms.empty()) return 0;
  const Elements a(spec.operands, reach(spec.a, spec.m, spec.k, spec.batch), 2, random),
      b(spec.operands, reach(spec.b, spec.k, spec.n, spec.batch), 0.5F, random), bias(spec.result, spec.n, 1, random),
      residual(spec.result, reach(spec.d, spec.m, spec.n, spec.batch), 2, random);
  Elements d(spec.result, reach(spec.d, spec.m, spec.n, spec.batch));
  const auto workspace = runtime.device().workspace(Runtime::kWorkspace);
  // Some rows, the last ones among them.
  std::vector<std::int64_t> rows;
  for (int i = 0; i < 24; ++i) rows.push_back(std::uniform_int_distribution<std::int64_t>(0, spec.m - 1)(random));
  rows.push_back(spec.m - 1);
  int wrong = 0;
  for (const auto& algorithm : algorithms) {
    d.clear();
    algorithm->run({a.address(), b.address(), d.address(), bias.address(), residual.address()}, workspace->address(),
                   runtime.device().stream());
    runtime.device().wait();
    d.download();
    std::int64_t off = 0, count = 0;
    double worst = 0;
    for (std::int64_t batch = 0; batch < spec.batch; ++batch)
      for (const std::int64_t m : rows)
        for (std::int64_t n = 0; n < spec.n; ++n, ++count) {
          double want = 0, magnitude = 0;
          for (std::int64_t k = 0; k < spec.k; ++k) {
            const double product = a[batch * spec.a.batch_stride + m * spec.a.row_stride + k * spec.a.column_stride] *
                                   b[batch * spec.b.batch_stride + k * spec.b.row_stride + n * spec.b.column_stride];
            want += product;
            magnitude += std::fabs(product);
          }
          const std::int64_t place = batch * spec.d.batch_stride + m * spec.d.row_stride + n;
          if (spec.bias) want += bias[n], magnitude += std::fabs(bias[n]);
          if (spec.residual) want += residual[place], magnitude += std::fabs(residual[place]);
          if (spec.relu) want = std::max(0.0, want);
          const double unit = elements::unit_at(spec.result, want);
          const double error = std::fabs(d[place] - want);
          off += error <= unit / 2 + 0x1p-20 * magnitude ? 0 : 1;
          worst = std::max(worst, std::isnan(error) ? INFINITY : error / unit);
        }
    if (off == 0) continue;
    ++wrong;
    fmt::print("  WRONG: {} of {} are not well rounded, {:.2f} ulp at most: {}\n", off, count, worst,
               algorithm->tactic());
  }
  return wrong;
}

}  // namespace

int main(int argc, char** argv) try {
  const int count = argc > 1 ? std::atoi(argv[1]) : 60;
  const unsigned seed = argc > 2 ? static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)) : std::random_device()();
  fmt::print("seed {}\n", seed);
  Device::get().enter();
  std::mt19937 random(seed);
  int wrong = 0;
  const bool all = argc > 3 && std::strcmp(argv[3], "all") == 0;
  for (int i = 0; i < count; ++i) {
    MatrixProductSpec spec = random_spec(random);
    if (!all && !adds_bias_before_rounding(spec)) spec.bias = false;
    wrong += check_spec(spec, random);
  }
  fmt::print("{} wrong\n", wrong);
  return wrong == 0 ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
