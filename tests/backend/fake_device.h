// A GPU that is not there: constants lie in this machine's memory, the steps of a plan run on this processor, and what
// they read and write is watched.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cuda/checkpoints.h"
#include "backend/cuda/lowering.h"
#include "backend/cuda_shim.h"

namespace ulpscope::cuda::fake {

/// What the libraries of a GPU take.
struct Rules {
  bool products = true;      ///< cuBLASLt: all that its interface can say; int8 in multiples of 4.
  bool convolutions = true;  ///< cuDNN: no int8 but with channels in multiples of 16.
  bool steps = true;         ///< And what follows the sums.
  bool fp8 = true;           ///< cuBLASLt: fp8, k in multiples of 16, n of 8.
  bool fused = true;         ///< Products with a program may be one kernel; they are run one after the other.
};

/// Answers for cuBLASLt and cuDNN; keeps constants for as long as it lives.
class FakeDevice final : public LoweringTarget {
 public:
  explicit FakeDevice(Rules rules = {}) : rules_(rules) {}
  /// Makes the elements each time: throws std::runtime_error when one key names different ones.
  std::shared_ptr<const DeviceMemory> constant(WeightCache& weights, const std::string& key,
                                               const std::function<Tensor()>& make) override;
  /// Throws std::runtime_error when the parts are not what `make` gives.
  std::shared_ptr<const DeviceMemory> matrices(WeightCache& weights, const std::string& key,
                                               std::span<const StoredMatrix> parts, DataType type,
                                               const std::function<Tensor()>& make) override;
  bool has_convolution(const ConvolutionSpec& spec) override;
  bool has_product(const MatrixProductSpec& spec) override;
  bool has_fused_products() override { return rules_.fused; }
  /// None: their threads wait for each other, and here runs one after the other.
  int warp_group_processors() override { return 0; }
  bool is_hopper() override { return rules_.fp8; }
  std::size_t constant_bytes() const;

 private:
  const Rules rules_;
  std::map<std::string, std::pair<Tensor, std::shared_ptr<const DeviceMemory>>> constants_;
};

/// The generated kernels of many plans, compiled together as C++.
class KernelBank {
 public:
  void add(const KernelSource& source);
  /// What the compiler says; empty on success.
  std::string compile(const std::string& compiler);
  std::size_t size() const { return sources_.size(); }
  /// What went wrong; empty: nothing. REQUIRES: added and compiled.
  std::string run(const KernelSource& source, std::vector<void*> arguments) const;
  /// Kernels with instructions of a GPU alone (tensor cores) cannot be run here.
  static bool can_run(const KernelSource& source);

 private:
  static std::string key_of(const KernelSource& source);
  std::vector<KernelSource> sources_;
  std::map<std::string, std::size_t> numbers_;
  std::vector<std::unique_ptr<shim::Kernels>> libraries_;
  std::size_t per_library_ = 1;
};

/// A schedule as the CUDA backend would run it. Throws std::runtime_error, naming the step, when one does what it must
/// not: pointers outside of their buffers, addresses less aligned than promised, strides that a library does not take,
/// bytes written outside of what the step writes. A read or write behind the end of a buffer, or one that is not
/// aligned, ends the process with the name of the step.
class FakePlan {
 public:
  /// Adds its kernels to the bank. All arguments outlive the plan.
  FakePlan(std::string name, const Specialization& spec, const Schedule& schedule, WeightCache& weights,
           const IdMap<LayerId, GraphFunction>& subgraphs, FakeDevice& device, KernelBank& bank,
           Ends ends = Ends::kHost);
  /// There is a kernel that can be run on a GPU only.
  bool can_run() const;
  /// Memory holds bytes of `poison` until it is written. With a store, a run begins at the last checkpoint that it has,
  /// and keeps what lies in memory at those behind it. Inputs and outputs are of physical types with Ends::kDevice,
  /// too: what the steps read and write are tensors of declared types, at addresses that are aligned to 16 bytes and no
  /// more.
  std::vector<Tensor> run(std::span<const Tensor> inputs, unsigned char poison, ActivationStore* store = nullptr);
  /// How many steps of the device the last run left out.
  std::size_t skipped() const { return skipped_; }
  const Steps& steps() const { return steps_; }

 private:
  struct Guarded;
  unsigned char* address(const Pointer& pointer) const;
  void place_callers(std::span<const Tensor> inputs, unsigned char poison);
  std::vector<Tensor> callers_outputs(std::size_t number);
  unsigned char* callers_address(std::size_t number) const;
  bool may_write(const Buffer& buffer) const;
  std::size_t bytes_of(const Buffer& buffer) const;
  void run(const KernelStep& step);
  void run(const ProductStep& step);
  void expect_rows(const FusedProductSpec& spec) const;
  void run(const ConvolveStep& step);
  void run(const HostStep& step);
  void run(const ProductProgramStep& step);
  void run(const ClearStep& step);
  void run(const UploadStep& step);
  void run(const DownloadStep& step);
  void take_from(ActivationStore& store, const Checkpoint& checkpoint);
  void keep_in(ActivationStore& store, const Checkpoint& checkpoint) const;
  /// Memory and values as they are before the first step.
  void prepare(std::span<const Tensor> inputs, unsigned char poison);
  /// Element `index` behind a pointer, within the buffer.
  unsigned char* element(const Pointer& pointer, DataType type, std::int64_t index) const;
  double read(const Pointer& pointer, DataType type, std::int64_t index) const;
  void write(const Pointer& pointer, DataType type, std::int64_t index, double value) const;
  void expect(bool condition, std::string_view what) const;

  const std::string name_;
  const Specialization& spec_;
  KernelBank& bank_;
  Steps steps_;
  std::size_t arena_bytes_ = 0;
  std::vector<unsigned char> memory_;
  unsigned char* arena_ = nullptr;
  std::vector<Tensor> host_;
  const Ends ends_;
  mutable std::vector<std::vector<unsigned char>> callers_;  ///< With Ends::kDevice: by Buffer::callers.
  std::string where_;  ///< The step that runs.
  std::size_t skipped_ = 0;
};

}  // namespace ulpscope::cuda::fake
