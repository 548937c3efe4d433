// In the place of product.cpp, convolution.cpp and onednn_library.cpp, where oneDNN is not there.
#include "backend/cpu/integer_product.h"
#include "backend/cpu/layer_kernels.h"
#include "backend/cpu/packed_product.h"
#include "backend/cpu/product.h"

namespace ulpscope::cpu {

std::string onednn_version() { return {}; }

bool products_depend_on_threads() { return false; }

bool multiplies_bytes(std::int64_t) { return false; }

bool multiplies_in_tiles() { return false; }

std::unique_ptr<Kernel> make_short_matmul_kernel(const MatMulSpec& spec, const ObjectCache& cache) {
  if (spec.type_a != DataType::kFloat32) return make_integer_matmul_kernel(spec, cache);
  return make_packed_matmul_kernel(spec, cache);
}

std::unique_ptr<Kernel> make_convolution_kernel(const ConvolutionSpec& spec, const ObjectCache& cache) {
  if (auto product = make_pointwise_kernel(spec, cache)) return product;
  if (auto depthwise = make_depthwise_kernel(spec, cache)) return depthwise;
  return make_patch_convolution_kernel(spec, cache);
}

std::unique_ptr<Kernel> make_average_pool_kernel(const PoolSpec&) { return nullptr; }

}  // namespace ulpscope::cpu
