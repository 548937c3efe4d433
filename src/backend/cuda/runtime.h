// The GPU with its libraries and what is known of it: one per process.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/convolution.h"
#include "backend/cuda/device.h"
#include "backend/cuda/lowering.h"
#include "backend/cuda/matrix_product.h"
#include "backend/cuda/tactics.h"

namespace ulpscope::cuda {

/// Made on the first call that needs it. Whoever uses it holds Device::mutex().
class Runtime final : public LoweringTarget {
 public:
  static Runtime& get();
  /// Opens the device and the libraries, each beside the others; throws what the first plan would throw.
  static void start();

  Device& device() { return device_; }
  MatrixLibrary& matrices();
  ConvolutionLibrary& convolutions();
  TacticCache& tactics();
  /// As in PlanTactics: the GPU, and the libraries whose algorithms it runs.
  const std::string& identity();

  std::shared_ptr<const DeviceMemory> constant(WeightCache& weights, const std::string& key,
                                               const std::function<Tensor()>& make) override;
  std::shared_ptr<const DeviceMemory> matrices(WeightCache& weights, const std::string& key,
                                               std::span<const StoredMatrix> parts, DataType type,
                                               const std::function<Tensor()>& make) override;
  bool has_convolution(const ConvolutionSpec& spec) override;
  /// has_convolution() needs not ask cuDNN, which compiles some of its kernels for that.
  bool knows(const ConvolutionSpec& spec);
  /// Asks cuDNN for all of them, on all threads.
  void look_for(std::span<const ConvolutionSpec> specs);
  bool has_product(const MatrixProductSpec& spec) override;
  bool has_fused_products() override { return is_hopper(); }
  int warp_group_processors() override { return is_hopper() ? device_.multiprocessors() : 0; }
  bool is_hopper() override { return device_.architecture() == "sm_90a"; }

  /// Plans to choose from: those that has_convolution() made, which takes seconds, once; else new ones.
  std::vector<std::unique_ptr<ConvolutionPlan>> candidates(const ConvolutionSpec& spec);
  /// What its tactic() names, made once; null: the library does not take it.
  std::shared_ptr<const MatrixLibrary::Product> made(const MatrixProductSpec& spec, const std::string& algorithm);
  std::shared_ptr<const ConvolutionPlan> made(const ConvolutionSpec& spec, const std::string& algorithm);
  /// The chosen algorithm; null: none is known yet.
  std::shared_ptr<const MatrixLibrary::Product> chosen(const MatrixProductSpec& spec);
  std::shared_ptr<const ConvolutionPlan> chosen(const ConvolutionSpec& spec);
  void choose(const MatrixProductSpec& spec, std::shared_ptr<const MatrixLibrary::Product> product,
              double microseconds);
  void choose(const ConvolutionSpec& spec, std::shared_ptr<const ConvolutionPlan> plan, double microseconds);

  /// Bytes of workspace that an algorithm may ask for.
  static constexpr std::size_t kWorkspace = std::size_t{64} << 20;
  /// Algorithms that are timed.
  static constexpr int kProducts = 8, kConvolutions = 4;

 private:
  Runtime() = default;
  std::string cudnn_version();  ///< Or "none", with a warning.
  bool has_cudnn();             ///< With a warning where it is missing.
  std::vector<std::unique_ptr<ConvolutionPlan>> plans_of(const ConvolutionSpec& spec) const;
  void put_matrix(const StoredMatrix& matrix, DataType type, Address to);
  Device& device_ = Device::get();
  std::unique_ptr<MatrixLibrary> matrices_;
  std::unique_ptr<ConvolutionLibrary> convolutions_;
  std::unique_ptr<TacticCache> tactics_;
  std::string identity_;
  using Named = std::pair<std::string, std::string>;  ///< What is computed, and the algorithm.
  std::map<Named, std::shared_ptr<const MatrixLibrary::Product>> products_;
  std::map<Named, std::shared_ptr<const ConvolutionPlan>> plans_;
  std::map<std::string, std::vector<std::unique_ptr<ConvolutionPlan>>> candidates_;
  std::map<std::string, bool> has_;  ///< Answers of has_product() and has_convolution().
};

/// Names a convolution among tactics.
std::string text_of(const ConvolutionSpec& spec);
inline std::string text_of(const MatrixProductSpec& spec) { return spec.text(); }

}  // namespace ulpscope::cuda
