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
  QuantizeKernel(const Quantization& q, IntegerForm form)
      : scale_(q.scale), low_(q.lowest()), high_(q.largest()), form_(form) {}
  std::string name() const override { return "quantization"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const Tensor& in = *inputs[0];
    const bool bytes = form_ == IntegerForm::kBytes;
    const DataType type = !bytes ? DataType::kFloat32 : low_ < 0 ? DataType::kInt8 : DataType::kUInt8;
    if (!*outputs[0]) *outputs[0] = Tensor(type, in.shape());
    parallel_for(in.size(), items_per_task(in.size(), 1), [&](std::int64_t begin, std::int64_t end) {
      const float* from = in.data<float>() + begin;
      const auto count = static_cast<std::size_t>(end - begin);
      if (bytes)
        quantize_bytes(from, static_cast<std::uint8_t*>(outputs[0]->raw()) + begin, count, scale_, low_, high_);
      else
        quantize_array(from, outputs[0]->data<float>() + begin, count, scale_, low_, high_,
                       form_ == IntegerForm::kDequantized);
    });
  }

 private:
  const float scale_, low_, high_;
  const IntegerForm form_;
};

class ElementKernel final : public Kernel {
 public:
  ElementKernel(const Encoding& encoding, float scale, bool back) : encoding_(encoding), scale_(scale), back_(back) {}
  std::string name() const override { return "elements"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const Tensor& in = *inputs[0];
    if (!*outputs[0]) *outputs[0] = Tensor(DataType::kFloat32, in.shape());
    const bool blocks = encoding_.granularity == Granularity::kBlock;
    quantize_activation(encoding_, blocks ? ScaleLayout(encoding_, in.shape()) : ScaleLayout(), in, scale_,
                        outputs[0]->data<float>(), back_);
  }

 private:
  const Encoding encoding_;
  const float scale_;
  const bool back_;
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

std::unique_ptr<Kernel> make_rounding_kernel(Rounding rounding) { return std::make_unique<RoundKernel>(rounding); }

std::unique_ptr<Kernel> make_quantize_kernel(const Quantization& quantization, IntegerForm form) {
  return std::make_unique<QuantizeKernel>(quantization, form);
}

std::unique_ptr<Kernel> make_element_kernel(const Encoding& encoding, float scale, bool back) {
  return std::make_unique<ElementKernel>(encoding, scale, back);
}

std::unique_ptr<Kernel> make_integer_sum_kernel() { return std::make_unique<IntegerSumKernel>(); }

}  // namespace ulpscope
