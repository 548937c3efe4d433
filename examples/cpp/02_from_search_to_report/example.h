// What the examples share: inputs for needs_constraints.onnx, and messages of errors.
#pragma once

#include <ulpscope/ulpscope.h>

#include <cstdio>
#include <random>
#include <vector>

/// Inputs by name; use data of your own.
inline std::vector<ulpscope::TensorsByName> make_samples(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<ulpscope::TensorsByName> samples;
  for (int i = 0; i < count; ++i) {
    ulpscope::Tensor x(ulpscope::DataType::kFloat32, {1, 1, 256, 256});
    for (std::int64_t k = 0; k < x.size(); ++k)
      x.data<float>()[k] = 1.0f + static_cast<float>(random() % 1024) / 1024.0f;
    samples.push_back({{"x", x}});
  }
  return samples;
}

template <typename Body>
int run_example(const Body& body) {
  try {
    body();
    return 0;
  } catch (const ulpscope::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
