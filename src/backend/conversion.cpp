#include "backend/conversion.h"

#include "backend/prepared_constants.h"
#include "core/parallel.h"
#include "formats/convert.h"

namespace ulpscope {

std::unique_ptr<Kernel> make_rounding_kernel(Rounding rounding) {
  return make_kernel("rounding", [=](Kernel::Inputs inputs, Kernel::Outputs outputs) {
    if (!*outputs[0]) *outputs[0] = Tensor(DataType::kFloat32, inputs[0]->shape());
    const float* from = inputs[0]->data<float>();
    const DataType type = outputs[0]->type();
    if (type == DataType::kFloat32) return round_parallel(from, outputs[0]->data<float>(), inputs[0]->size(), rounding);
    auto* to = static_cast<std::byte*>(outputs[0]->raw());
    parallel_for(inputs[0]->size(), items_per_task(inputs[0]->size(), 1), [&](std::int64_t begin, std::int64_t end) {
      convert_elements(DataType::kFloat32, from + begin, type, to + static_cast<std::size_t>(begin) * size_of(type),
                       static_cast<std::size_t>(end - begin), {});
    });
  });
}

std::unique_ptr<Kernel> make_quantize_kernel(const Quantization& quantization, IntegerForm form) {
  const float scale = quantization.scale, low = quantization.lowest(), high = quantization.largest();
  return make_kernel("quantization", [=](Kernel::Inputs inputs, Kernel::Outputs outputs) {
    const Tensor& in = *inputs[0];
    const bool bytes = form == IntegerForm::kBytes;
    const DataType type = !bytes ? DataType::kFloat32 : low < 0 ? DataType::kInt8 : DataType::kUInt8;
    if (!*outputs[0]) *outputs[0] = Tensor(type, in.shape());
    parallel_for(in.size(), items_per_task(in.size(), 1), [&](std::int64_t begin, std::int64_t end) {
      const float* from = in.data<float>() + begin;
      const auto count = static_cast<std::size_t>(end - begin);
      if (bytes)
        quantize_bytes(from, static_cast<std::uint8_t*>(outputs[0]->raw()) + begin, count, scale, low, high);
      else
        quantize_array(from, outputs[0]->data<float>() + begin, count, scale, low, high,
                       form == IntegerForm::kDequantized);
    });
  });
}

std::unique_ptr<Kernel> make_element_kernel(const Encoding& encoding, float scale, bool back) {
  return make_kernel("elements", [=](Kernel::Inputs inputs, Kernel::Outputs outputs) {
    const Tensor& in = *inputs[0];
    if (!*outputs[0]) *outputs[0] = Tensor(DataType::kFloat32, in.shape());
    const bool blocks = encoding.granularity == Granularity::kBlock;
    quantize_activation(encoding, blocks ? ScaleLayout(encoding, in.shape()) : ScaleLayout(), in, scale,
                        outputs[0]->data<float>(), back);
  });
}

std::unique_ptr<Kernel> make_integer_sum_kernel() {
  return make_kernel("sum of integers", [](Kernel::Inputs inputs, Kernel::Outputs outputs) {
    float* out = outputs[0]->data<float>();
    constexpr std::int64_t kGrain = 1 << 14;
    parallel_for(outputs[0]->size(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        double sum = 0;  // integers below 2^53: exact
        for (const Tensor* input : inputs) sum += static_cast<double>(input->data<float>()[i]);
        out[i] = static_cast<float>(sum);
      }
    });
  });
}

}  // namespace ulpscope
