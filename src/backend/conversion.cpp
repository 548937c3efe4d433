#include "backend/conversion.h"

#include <algorithm>

#include "backend/prepared_constants.h"
#include "core/parallel.h"

namespace ulpscope {

namespace {

class RoundKernel final : public Kernel {
 public:
  explicit RoundKernel(Rounding rounding) : rounding_(rounding) {}
  std::string name() const override { return "rounding"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    if (!*outputs[0]) *outputs[0] = Tensor(DataType::kFloat32, inputs[0]->shape());
    round_parallel(inputs[0]->data<float>(), outputs[0]->data<float>(), inputs[0]->size(), rounding_);
  }

 private:
  const Rounding rounding_;
};

class QuantizeKernel final : public Kernel {
 public:
  explicit QuantizeKernel(const QuantizeSpec& spec) : spec_(spec) {}
  std::string name() const override { return "quantization"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const Tensor& in = *inputs[0];
    if (!*outputs[0]) *outputs[0] = Tensor(DataType::kFloat32, in.shape());
    float* out = outputs[0]->data<float>();
    constexpr std::int64_t kGrain = 1 << 15;
    parallel_for(in.size(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      quantize_array(in.data<float>() + begin, out + begin, static_cast<std::size_t>(end - begin), spec_.scale,
                     spec_.low, spec_.high, spec_.dequantize);
    });
  }

 private:
  const QuantizeSpec spec_;
};

class QuantizeBytesKernel final : public Kernel {
 public:
  explicit QuantizeBytesKernel(const QuantizeSpec& spec) : spec_(spec) {}
  std::string name() const override { return "quantization"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const Tensor& in = *inputs[0];
    if (!*outputs[0]) *outputs[0] = Tensor(spec_.low < 0 ? DataType::kInt8 : DataType::kUInt8, in.shape());
    auto* out = static_cast<std::uint8_t*>(outputs[0]->raw());
    constexpr std::int64_t kGrain = 1 << 15, kBlock = 512;
    parallel_for(in.size(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      float integers[kBlock];
      for (std::int64_t first = begin; first < end; first += kBlock) {
        const std::int64_t count = std::min(kBlock, end - first);
        quantize_array(in.data<float>() + first, integers, static_cast<std::size_t>(count), spec_.scale, spec_.low,
                       spec_.high, false);
        // Two's complement: the bytes of int8, too.
        for (std::int64_t i = 0; i < count; ++i)
          out[first + i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(integers[i]));
      }
    });
  }

 private:
  const QuantizeSpec spec_;
};

class IntegerSumKernel final : public Kernel {
 public:
  std::string name() const override { return "sum of integers"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    float* out = outputs[0]->data<float>();
    constexpr std::int64_t kGrain = 1 << 14;
    parallel_for(outputs[0]->size(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        double sum = 0;  // integers below 2^53: exact
        for (const Tensor* input : inputs) sum += static_cast<double>(input->data<float>()[i]);
        out[i] = static_cast<float>(sum);
      }
    });
  }
};

}  // namespace

QuantizeSpec quantize_spec(const Quantization& q, bool dequantize) {
  return {q.scale, q.is_unsigned ? 0.0f : -128.0f, q.is_unsigned ? 255.0f : 127.0f, dequantize};
}

std::unique_ptr<Kernel> make_rounding_kernel(Rounding rounding) { return std::make_unique<RoundKernel>(rounding); }

std::unique_ptr<Kernel> make_quantize_kernel(const QuantizeSpec& spec) {
  return std::make_unique<QuantizeKernel>(spec);
}

std::unique_ptr<Kernel> make_quantize_bytes_kernel(const QuantizeSpec& spec) {
  return std::make_unique<QuantizeBytesKernel>(spec);
}

std::unique_ptr<Kernel> make_integer_sum_kernel() { return std::make_unique<IntegerSumKernel>(); }

}  // namespace ulpscope
