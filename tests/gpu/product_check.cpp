// Products of matrices with the program behind them, as one kernel, on a GPU of sm_90, against their definition in
// float64, those of fp8 and int8 against the CPU's sums, every bit of them: every tile, for random sizes, orders of
// rows and programs, and for products of known networks. Not a test: it needs a GPU.
//   product_check [specs=30] [seed]
// One line per spec with the time of cuBLASLt into float32 and a kernel for the program, below it one per tile. Exit
// code 1 when one is wrong.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>
#include <thread>

#include "backend/cuda/device.h"
#include "backend/cuda/product_source.h"
#include "backend/cuda/runtime.h"
#include "backend/cuda_elements.h"
#include "formats/accumulator.h"
#include "ulpscope/error.h"

using namespace ulpscope;
using namespace ulpscope::cuda;

namespace {

/// What follows the sums.
enum class Behind { kBias, kBiasAndErf, kBiasAndResidual, kScaledRelu, kGelu };
constexpr const char* kNames[] = {"bias", "bias and erf", "bias and residual, twice", "scaled relu", "gelu"};

struct Case {
  std::int64_t outer = 1, inner = 128, n = 256, k = 64;  ///< Rows are outer x inner.
  DataType type = DataType::kFloat16;                    ///< Of operands; of fp8 and int8, float16 is stored.
  bool fast = false;
  Behind behind = Behind::kBias;
  bool turned = false;   ///< The rows of `a` lie with the outer dimension inside.
  std::int64_t gap = 0;  ///< Elements between the rows of results.
  std::int64_t rows() const { return outer * inner; }
  bool bytes() const { return size_of(type) == 1; }
  DataType wide() const { return bytes() ? DataType::kFloat16 : type; }
  std::string text() const {
    return fmt::format("{}x{} by {}x{} {}{}{}, {}{}", rows(), k, k, n, name_of(type), fast ? " fast" : "",
                       turned ? " turned" : "", kNames[static_cast<int>(behind)], gap != 0 ? ", with gaps" : "");
  }
};

class Operand {
 public:
  Operand(DataType type, std::int64_t count, float most, std::mt19937& random)
      : type_(type), bytes_(count * size_of(type)) {
    std::uniform_real_distribution<float> any(-most, most);
    for (std::int64_t i = 0; i < count; ++i) elements::write(type, &bytes_[i * size_of(type)], any(random));
    memory_ = std::make_unique<DeviceMemory>(bytes_.size());
    Device::get().upload(memory_->address(), bytes_.data(), bytes_.size());
    Device::get().wait();
  }
  double operator[](std::int64_t i) const { return elements::read(type_, &bytes_[i * size_of(type_)]); }
  Address address() const { return memory_->address(); }

 private:
  DataType type_;
  std::vector<unsigned char> bytes_;
  std::unique_ptr<DeviceMemory> memory_;
};

class Problem {
 public:
  Problem(const Case& what, std::mt19937& random)
      : case_(what),
        a_(what.type, what.rows() * what.k, what.type == DataType::kInt8 ? 100 : 2, random),
        b_(what.type, what.n * what.k,
           what.type == DataType::kInt8 ? 100
           : what.bytes()               ? 2
                                        : 0.1F,
           random),
        bias_(what.wide(), what.n, 1, random),
        residual_(what.wide(), what.rows() * what.n, 2, random),
        pitch_(what.n + what.gap),
        out_(what.rows() * pitch_ * 4),
        second_(what.rows() * what.n * 4),
        sums_(what.rows() * what.n * 4) {
    describe();
  }

  bool check() {
    Device& device = Device::get();
    const double apart = time_apart();
    fmt::print("{}: {:.1f} us in two\n", case_.text(), apart);
    bool right = true;
    for (const ProductTile& tile : product_tiles(spec_, device.multiprocessors())) {
      const FusedProductKernel kernel = fused_product_source(spec_, tile, device.multiprocessors());
      const cuda::Function function = device.function(NamedSource(kernel.source));
      const TensorMap maps[] = {device.boxes(kernel.a, a_.address()), device.boxes(kernel.b, b_.address())};
      const auto run = [&] { device.launch(kernel.source, function, pointers_, maps); };
      check_bytes(out_, 0xff);
      run();
      device.wait();
      const std::string verdict = judge();
      const double time = device.time(run, 10, 5);
      fmt::print("  {:<26} {:8.1f} us {:6.0f} TFLOPS  {}\n", tile.text(), time,
                 2e-6 * static_cast<double>(case_.rows() * case_.n * case_.k) / time, verdict);
      std::fflush(stdout);
      right &= verdict == "ok";
    }
    return right;
  }

 private:
  bool twice() const { return case_.behind == Behind::kBiasAndResidual; }
  DataType stored() const { return case_.behind == Behind::kScaledRelu ? DataType::kFloat32 : case_.wide(); }

  void describe() {
    const std::int64_t n = case_.n, k = case_.k;
    spec_.product = {.m = case_.rows(), .n = n, .k = k, .operands = case_.type};
    spec_.product.fast = case_.fast;
    spec_.product.a = {k, 1, 0};
    spec_.product.b = {1, k, 0};
    spec_.product.d = {n, 1, 0};
    spec_.program.domain = {case_.outer, case_.inner, n};
    spec_.row_strides =
        case_.turned ? std::vector<std::int64_t>{1, case_.outer} : std::vector<std::int64_t>{case_.inner, 1};
    std::vector<ProgramInput>& inputs = spec_.program.inputs;
    std::vector<ProgramOutput>& outputs = spec_.program.outputs;
    Program& program = spec_.program.program;
    const std::vector<std::int64_t> by_row{spec_.row_strides[0] * n, spec_.row_strides[1] * n, 1};
    const std::vector<std::int64_t> dense{case_.inner * n, n, 1}, with_gaps{case_.inner * pitch_, pitch_, 1};
    inputs.push_back({case_.type == DataType::kInt8 ? DataType::kInt32 : DataType::kFloat32, by_row});
    Register x = program.load(0);
    const auto bias = [&] {
      inputs.push_back({case_.wide(), {0, 0, 1}});
      pointers_.push_back(bias_.address());
      x = program.apply(Instruction::kAdd, x, program.load(static_cast<int>(inputs.size()) - 1));
    };
    switch (case_.behind) {
      case Behind::kBias:
        bias();
        break;
      case Behind::kBiasAndErf: {
        bias();
        const Register part =
            program.apply(Instruction::kErf, program.apply(Instruction::kDiv, x, program.constant(1.41421354F)));
        x = program.apply(Instruction::kMul, x, program.apply(Instruction::kAdd, part, program.constant(1)));
        x = program.apply(Instruction::kMul, x, program.constant(0.5F));
        break;
      }
      case Behind::kBiasAndResidual:
        bias();
        inputs.push_back({case_.wide(), dense});
        pointers_.push_back(residual_.address());
        x = program.apply(Instruction::kAdd, x, program.load(2));
        break;
      case Behind::kScaledRelu:
        x = program.apply(Instruction::kRelu, program.apply(Instruction::kMul, x, program.constant(0.75F)));
        break;
      case Behind::kGelu:
        x = program.apply(Instruction::kGelu, x);
        break;
    }
    outputs.push_back({x, stored(), with_gaps, Rounding::kNone});
    pointers_.push_back(out_.address());
    if (!twice()) return;
    outputs.push_back({x, DataType::kFloat32, dense, Rounding::kNone});
    pointers_.push_back(second_.address());
  }

  double time_apart() {
    Runtime& runtime = Runtime::get();
    MatrixProductSpec product = spec_.product;
    product.result = case_.type == DataType::kInt8 ? DataType::kInt32 : DataType::kFloat32;
    const KernelSource program = program_source(spec_.program);
    const cuda::Function function = runtime.device().function(NamedSource(program));
    std::vector<Address> pointers{sums_.address()};
    pointers.insert(pointers.end(), pointers_.begin(), pointers_.end());
    const auto workspace = runtime.device().workspace(Runtime::kWorkspace);
    double best = 1e30;
    for (const auto& each : runtime.matrices().products(product, Runtime::kProducts, Runtime::kWorkspace))
      best = std::min(best, runtime.device().time(
                                [&] {
                                  each->run({a_.address(), b_.address(), sums_.address()}, workspace->address(),
                                            runtime.device().stream());
                                  runtime.device().launch(program, function, pointers);
                                },
                                10, 5));
    return best;
  }

  static void check_bytes(const DeviceMemory& memory, unsigned char value) {
    cuda::check(driver().set_bytes(memory.address(), value, memory.bytes(), Device::get().stream()), "clear memory");
  }

  /// "ok", or what is wrong: 99 % of the results have the bits of the rounded exact ones, as far as float32 can tell,
  /// the others are neighbours; gaps are as they were.
  std::string judge() {
    std::vector<unsigned char> out(out_.bytes()), second(second_.bytes());
    Device::get().download(out.data(), out_.address(), out.size());
    Device::get().download(second.data(), second_.address(), second.size());
    const std::int64_t n = case_.n, size = static_cast<std::int64_t>(size_of(stored()));
    // All columns of the rows at the edges of tiles, and of some others.
    std::vector<std::int64_t> rows(case_.rows());
    std::iota(rows.begin(), rows.end(), 0);
    std::mt19937 random(1);
    std::ranges::shuffle(rows, random);
    rows.resize(std::min<std::size_t>(rows.size(), static_cast<std::size_t>(40000000 / (n * case_.k) + 2)));
    for (std::int64_t edge :
         {std::int64_t{0}, std::int64_t{63}, std::int64_t{64}, std::int64_t{127}, std::int64_t{128}, case_.rows() - 1})
      if (edge < case_.rows()) rows.push_back(edge);
    std::vector<std::int64_t> off(rows.size());
    std::vector<std::string> wrong(rows.size());
    std::vector<std::thread> threads;
    const std::size_t share = std::max(1U, std::thread::hardware_concurrency());
    for (std::size_t t = 0; t < share; ++t)
      threads.emplace_back([&, t] {
        for (std::size_t i = t; i < rows.size(); i += share) off[i] = judge_row(rows[i], out, second, size, wrong[i]);
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& text : wrong)
      if (!text.empty()) return text;
    for (std::int64_t row = 0; row < case_.rows(); ++row)
      for (std::int64_t at = (row * pitch_ + n) * size; at < (row + 1) * pitch_ * size; ++at)
        if (out[at] != 0xff) return fmt::format("WRONG: byte {} behind row {} was written", at, row);
    const std::int64_t count = static_cast<std::int64_t>(rows.size()) * n;
    const std::int64_t others = std::accumulate(off.begin(), off.end(), std::int64_t{0});
    if (static_cast<double>(others) > 0.01 * static_cast<double>(count) + 3)
      return fmt::format("WRONG: {} of {} have other bits", others, count);
    return "ok";
  }

  /// How many results of a row (in the order of the domain) are not well rounded.
  std::int64_t judge_row(std::int64_t row, const std::vector<unsigned char>& out,
                         const std::vector<unsigned char>& second, std::int64_t size, std::string& wrong) const {
    const std::int64_t place = row / case_.inner * spec_.row_strides[0] + row % case_.inner * spec_.row_strides[1];
    std::int64_t off = 0;
    std::vector<float> of_a, of_b;
    for (std::int64_t c = 0; c < case_.n; ++c) {
      double sum = 0, magnitude = 0;
      if (case_.type == DataType::kFloat8E4M3) {
        of_a.clear(), of_b.clear();
        for (std::int64_t k = 0; k < case_.k; ++k) {
          of_a.push_back(static_cast<float>(a_[place * case_.k + k]));
          of_b.push_back(static_cast<float>(b_[c * case_.k + k]));
        }
        const auto accumulator = accumulator_of(case_.fast ? Accumulation::kHopperFast : Accumulation::kHopper,
                                                Format::kFloat8E4M3, Format::kFloat8E4M3);
        sum = sum_of_products(*accumulator, of_a.data(), of_b.data(), case_.k);
      } else {
        for (std::int64_t k = 0; k < case_.k; ++k) {
          const double product = a_[place * case_.k + k] * b_[c * case_.k + k];
          sum += product;
          magnitude += case_.bytes() ? 0 : std::fabs(product);
        }
        if (case_.bytes()) sum = static_cast<float>(sum);
      }
      if (case_.bytes()) magnitude = std::fabs(sum) / 8;
      const double bias = bias_[c];
      double want = sum;
      switch (case_.behind) {
        case Behind::kBias:
          want += bias;
          break;
        case Behind::kBiasAndErf:
          want = (sum + bias) * 0.5 * (1 + std::erf((sum + bias) / 1.41421354F));
          break;
        case Behind::kBiasAndResidual:
          want += bias + residual_[row * case_.n + c];
          break;
        case Behind::kScaledRelu:
          want = std::max(0.0, 0.75 * sum);
          break;
        case Behind::kGelu:
          want = sum * 0.5 * (1 + std::erf(sum / std::sqrt(2.0)));
          break;
      }
      magnitude += 3;
      const double got = elements::read(stored(), &out[(row * pitch_ + c) * size]);
      const double unit = elements::unit_at(stored(), want);
      const double error = std::fabs(got - want);
      if (!(error <= unit + 0x1p-20 * magnitude)) {
        wrong = fmt::format("WRONG: row {} column {}: got {:.9g}, want {:.9g}", row, c, got, want);
        return 0;
      }
      off += error > unit / 2 + 0x1p-22 * magnitude ? 1 : 0;
      if (twice() && !(std::fabs(elements::read(DataType::kFloat32, &second[(row * case_.n + c) * 4]) - want) <=
                       0x1p-20 * magnitude)) {
        wrong = fmt::format("WRONG: row {} column {} of the second output", row, c);
        return 0;
      }
    }
    return off;
  }

  Case case_;
  Operand a_, b_, bias_, residual_;
  std::int64_t pitch_;
  DeviceMemory out_, second_, sums_;
  FusedProductSpec spec_;
  std::vector<Address> pointers_;
};

Case random_case(std::mt19937& random) {
  const auto any = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const double rows = std::exp(std::uniform_real_distribution<double>(std::log(32.0), std::log(4000.0))(random));
  Case c;
  c.outer = any(1, 9);
  c.inner = static_cast<std::int64_t>(rows) / c.outer + 8;
  c.n = 8 * any(1, any(0, 1) != 0 ? 30 : 260);
  c.k = 16 * any(8, 100);
  constexpr std::array kTypes{DataType::kFloat16, DataType::kBFloat16, DataType::kFloat8E4M3, DataType::kInt8};
  c.type = kTypes[static_cast<std::size_t>(any(0, 3))];
  c.fast = c.type == DataType::kFloat8E4M3 && any(0, 1) == 1;
  c.behind = c.type == DataType::kInt8 ? Behind::kScaledRelu : static_cast<Behind>(any(0, 4));
  c.turned = any(0, 2) == 0;
  c.gap = any(0, 2) == 0 ? 8 * any(1, 4) : 0;
  return c;
}

}  // namespace

int main(int argc, char** argv) try {
  const int count = argc > 1 ? std::atoi(argv[1]) : 30;
  const unsigned seed = argc > 2 ? static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)) : std::random_device()();
  fmt::print("seed {}\n", seed);
  Device::get().enter();
  if (Device::get().architecture() != "sm_90a") {
    fmt::print("skipped: {} is {}, the kernel is for sm_90\n", Device::get().name(), Device::get().architecture());
    return 0;
  }
  std::mt19937 random(seed);
  int wrong = 0;
  // BERT-base and ViT-B/16 at batches of 1, 8 and 32; a Whisper encoder.
  for (const auto& [outer, inner, n, k] : {std::array<std::int64_t, 4>{1, 128, 3072, 768},
                                           {8, 128, 3072, 768},
                                           {32, 128, 3072, 768},
                                           {1, 197, 3072, 768},
                                           {8, 197, 3072, 768},
                                           {32, 197, 3072, 768},
                                           {1, 1500, 2048, 512}}) {
    for (const auto& [type, fast] : {std::pair(DataType::kFloat16, false), std::pair(DataType::kFloat8E4M3, false),
                                     std::pair(DataType::kFloat8E4M3, true), std::pair(DataType::kInt8, false)}) {
      Case c{outer, inner, n, k};
      c.type = type, c.fast = fast;
      // Sums of int8 overflow what is stored but behind a scale.
      c.behind = type == DataType::kInt8 ? Behind::kScaledRelu : Behind::kBiasAndErf;
      wrong += Problem(c, random).check() ? 0 : 1;
    }
  }
  for (int i = 0; i < count; ++i) wrong += Problem(random_case(random), random).check() ? 0 : 1;
  fmt::print("{} wrong\n", wrong);
  return wrong == 0 ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
