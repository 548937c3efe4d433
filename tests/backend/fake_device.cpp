#include "backend/fake_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "backend/cuda_elements.h"

namespace ulpscope::cuda::fake {

std::shared_ptr<const DeviceMemory> FakeDevice::constant(WeightCache&, const std::string& key,
                                                         const std::function<Tensor()>& make) {
  const Tensor value = make().clone();
  const auto [found, is_new] = constants_.try_emplace(key);
  auto& [tensor, memory] = found->second;
  if (!is_new) {
    if (tensor.bytes() != value.bytes() || std::memcmp(tensor.raw(), value.raw(), value.bytes()) != 0)
      throw std::runtime_error("different constants have one key: " + key);
    return memory;
  }
  tensor = value;
  memory = std::make_shared<const DeviceMemory>(reinterpret_cast<Address>(tensor.raw()), tensor.bytes());
  return memory;
}

std::shared_ptr<const DeviceMemory> FakeDevice::matrices(WeightCache& weights, const std::string& key,
                                                         std::span<const StoredMatrix> parts, DataType type,
                                                         const std::function<Tensor()>& make) {
  const Tensor value = make();
  const auto* bytes = static_cast<const unsigned char*>(value.raw());
  const auto* const end = bytes + value.bytes();
  for (const StoredMatrix& matrix : parts) {
    const Tensor own = matrix.elements.in_memory();
    const std::int64_t outer = matrix.turned ? matrix.columns : matrix.rows;
    for (std::int64_t i = 0; i < own.size(); ++i, bytes += size_of(type)) {
      const std::int64_t a = i / (own.size() / outer), b = i % (own.size() / outer);
      unsigned char expected[4] = {};
      elements::write(type, expected, own.data<float>()[matrix.turned ? b * matrix.columns + a : i]);
      if (bytes == end || std::memcmp(bytes, expected, size_of(type)) != 0)
        throw std::runtime_error("the matrices of a constant are not its elements: " + key);
    }
  }
  if (bytes != end) throw std::runtime_error("a constant has more elements than its matrices: " + key);
  return constant(weights, key, make);
}

std::size_t FakeDevice::constant_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [key, constant] : constants_) bytes += constant.first.bytes();
  return bytes;
}

bool FakeDevice::has_product(const MatrixProductSpec& spec) {
  if (!rules_.products) return false;
  if (spec.operands == DataType::kFloat8E4M3)
    return rules_.fp8 && spec.k % 16 == 0 && spec.n % 8 == 0 && spec.a.column_stride == 1 && spec.b.row_stride == 1 &&
           spec.alignment % 16 == 0 && !spec.residual && (!spec.bias || size_of(spec.result) == 2);
  if (spec.operands != DataType::kInt8) return true;
  return spec.k % 4 == 0 && spec.n % 4 == 0 && spec.a.row_stride % 4 == 0 && spec.b.column_stride % 4 == 0 &&
         spec.a.column_stride == 1 && spec.b.row_stride == 1 && spec.alignment % 4 == 0 &&
         spec.result == DataType::kInt32;
}

bool FakeDevice::has_convolution(const ConvolutionSpec& spec) {
  if (!rules_.convolutions || (!rules_.steps && !spec.steps.empty())) return false;
  if (spec.operands == DataType::kUInt8) throw std::runtime_error("cuDNN is asked for uint8");
  if (spec.operands == DataType::kInt8) return spec.weights[1] % 16 == 0 && spec.output[1] % 16 == 0;
  return true;
}

std::string KernelBank::key_of(const KernelSource& source) {
  return fmt::format("{} {} {} {} {}\n{}", source.grid[0], source.grid[1], source.grid[2], source.block, source.shared,
                     source.source);
}

bool KernelBank::can_run(const KernelSource& source) {
  return source.source.find("asm", prelude().size()) == std::string::npos;
}

void KernelBank::add(const KernelSource& source) {
  if (!can_run(source) || !numbers_.try_emplace(key_of(source), sources_.size()).second) return;
  sources_.push_back(source);
}

std::string KernelBank::compile(const std::string& compiler) {
  constexpr std::size_t kPieces = 4, kThreads = 2;
  per_library_ = std::max<std::size_t>(1, (sources_.size() + kPieces - 1) / kPieces);
  libraries_.resize((sources_.size() + per_library_ - 1) / per_library_);
  const auto work = [&](std::size_t thread) {
    for (std::size_t i = thread; i < libraries_.size(); i += kThreads) {
      const auto begin = sources_.begin() + static_cast<std::ptrdiff_t>(i * per_library_);
      const auto end =
          sources_.begin() + static_cast<std::ptrdiff_t>(std::min(sources_.size(), (i + 1) * per_library_));
      libraries_[i] = std::make_unique<shim::Kernels>(std::vector<KernelSource>(begin, end), compiler);
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  for (const auto& library : libraries_)
    if (!library->error().empty()) return library->error();
  return "";
}

std::string KernelBank::run(const KernelSource& source, std::vector<void*> arguments) const {
  const std::size_t number = numbers_.at(key_of(source));
  return libraries_.at(number / per_library_)->run(number % per_library_, std::move(arguments));
}

}  // namespace ulpscope::cuda::fake
