#include "backend/conversion.h"

#include "backend/prepared_constants.h"
#include "core/parallel.h"

namespace ulpscope {

namespace {

class RoundKernel final : public Kernel {
 public:
  explicit RoundKernel(Rounding rounding) : rounding_(rounding) {}
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

class IntegerSumKernel final : public Kernel {
 public:
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

std::unique_ptr<Kernel> make_integer_sum_kernel() { return std::make_unique<IntegerSumKernel>(); }

}  // namespace ulpscope
