// Runs a model in FP32 and in FP16 on ones, and prints how far the outputs are apart.
//   run_a_model MODEL.onnx
#include <ulpscope/ulpscope.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

// Ones for every input; dynamic dimensions become 1.
std::vector<ulpscope::Tensor> ones(const std::vector<ulpscope::TensorSpec>& specs) {
  std::vector<ulpscope::Tensor> result;
  for (const ulpscope::TensorSpec& spec : specs) {
    ulpscope::Shape shape = spec.shape.value();  // Models may leave even the rank open.
    std::replace(shape.begin(), shape.end(), std::int64_t{-1}, std::int64_t{1});
    ulpscope::Tensor tensor(ulpscope::DataType::kFloat32, shape);
    std::fill_n(tensor.data<float>(), tensor.size(), 1.0f);
    result.push_back(tensor.cast(spec.type));
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: run_a_model MODEL.onnx\n");
    return 2;
  }
  try {
    const auto exact = ulpscope::OnnxEngine::from_file(argv[1]);
    const auto half =
        ulpscope::OnnxEngine::from_file(argv[1], {.precision = ulpscope::Precision::kFP16, .fusion = "none"});
    const auto inputs = ones(exact.inputs());
    const auto expected = exact.run(inputs);
    const auto actual = half.run(inputs);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (expected[i].type() != ulpscope::DataType::kFloat32) continue;
      double largest = 0;
      for (std::int64_t k = 0; k < expected[i].size(); ++k) {
        largest = std::max<double>(largest, std::abs(actual[i].data<float>()[k] - expected[i].data<float>()[k]));
      }
      std::printf("%s: the largest difference between FP32 and FP16 is %g\n", exact.outputs()[i].name.c_str(), largest);
    }
    for (const auto& layer : half.layers()) std::printf("  %s: %s\n", layer.name.c_str(), layer.precision.c_str());
  } catch (const ulpscope::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
