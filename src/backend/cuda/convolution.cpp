#include "backend/cuda/convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/cuda/convolution_graph.h"
#include "backend/cuda/cudnn.h"
#include "backend/cuda/nvrtc.h"
#include "ulpscope/error.h"

namespace ulpscope::cuda {
// Named, since what has it is known outside of this file.
inline namespace convolution_library {

/// Destroys the handle with the last plan that runs on it.
struct CudnnHandle {
  explicit CudnnHandle(void* stream) {
    // cuDNN asks for NVRTC by its name alone: open, it is found wherever it lies.
    nvrtc_version();
    cudnn::check(cudnn::functions().create(&handle), "start");
    if (const int status = cudnn::functions().set_stream(handle, stream); status != cudnn::kSuccess) {
      cudnn::functions().destroy(handle);
      cudnn::check(status, "take a stream");
    }
  }
  ~CudnnHandle() { cudnn::functions().destroy(handle); }
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;
  cudnn::Handle handle = nullptr;
};

class CudnnPlan final : public ConvolutionPlan {
 public:
  CudnnPlan(std::shared_ptr<const CudnnHandle> handle, std::shared_ptr<const ConvolutionGraph> graph,
            const ConvolutionTactic& tactic, ConvolutionExecution execution)
      : handle_(std::move(handle)),
        graph_(std::move(graph)),
        tactic_(text_of(tactic)),
        execution_(std::move(execution)),
        workspace_bytes_(static_cast<std::size_t>(execution_.plan.read_int64(cudnn::Field::kPlanWorkspaceSize))) {}

  std::size_t workspace_bytes() const override { return workspace_bytes_; }
  std::string tactic() const override { return tactic_; }
  void run(const ConvolutionOperands& operands, std::uint64_t workspace) const override;

 private:
  std::shared_ptr<const CudnnHandle> handle_;
  std::shared_ptr<const ConvolutionGraph> graph_;
  std::string tactic_;
  ConvolutionExecution execution_;
  std::size_t workspace_bytes_;
};

void CudnnPlan::run(const ConvolutionOperands& operands, std::uint64_t workspace) const {
  std::vector<std::int64_t> ids{ConvolutionGraph::kX, ConvolutionGraph::kWeights, ConvolutionGraph::kY};
  std::vector<std::uint64_t> addresses{operands.x, operands.weights, operands.y};
  for (std::size_t i = 0; i < operands.steps.size(); ++i)
    if (operands.steps[i] != 0) {
      ids.push_back(ConvolutionGraph::kFirstStep + static_cast<std::int64_t>(i));
      addresses.push_back(operands.steps[i]);
    }
  static_assert(sizeof(std::uint64_t) == sizeof(void*));
  cudnn::Descriptor pack(cudnn::DescriptorType::kVariantPack, "the addresses of a convolution");
  pack.set(cudnn::Field::kVariantPackIds, ids);
  pack.set(cudnn::Field::kVariantPackPointers, cudnn::FieldType::kVoidPointer,
           static_cast<std::int64_t>(addresses.size()), addresses.data());
  pack.set(cudnn::Field::kVariantPackWorkspace, cudnn::FieldType::kVoidPointer, 1, &workspace);
  pack.finalize();
  const int status = cudnn::functions().execute(handle_->handle, execution_.plan.get(), pack.get());
  if (status != cudnn::kSuccess) cudnn::check(status, fmt::format("run a convolution with {}", tactic_));
}

}  // namespace convolution_library

struct ConvolutionLibrary::Impl {
  explicit Impl(void* stream) : handle(std::make_shared<const CudnnHandle>(stream)) {}
  std::unique_ptr<ConvolutionPlan> build(const std::shared_ptr<const ConvolutionGraph>& graph,
                                         const ConvolutionTactic& tactic) const {
    std::optional<ConvolutionExecution> made = graph->build(tactic);
    if (!made) return nullptr;
    return std::make_unique<CudnnPlan>(handle, graph, tactic, std::move(*made));
  }
  /// Null when cuDNN has nothing for such a graph.
  std::shared_ptr<const ConvolutionGraph> graph(const ConvolutionSpec& spec) const {
    try {
      return std::make_shared<const ConvolutionGraph>(spec, ConvolutionDevice{.handle = handle->handle});
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported) throw;
      return nullptr;
    }
  }
  std::shared_ptr<const CudnnHandle> handle;
};

ConvolutionLibrary::ConvolutionLibrary(void* stream) : impl_(std::make_unique<Impl>(stream)) {}
ConvolutionLibrary::~ConvolutionLibrary() = default;

std::vector<std::unique_ptr<ConvolutionPlan>> ConvolutionLibrary::plans(const ConvolutionSpec& spec, std::size_t limit,
                                                                        std::size_t workspace_limit) const {
  std::vector<std::unique_ptr<ConvolutionPlan>> all;
  const std::shared_ptr<const ConvolutionGraph> graph = impl_->graph(spec);
  if (graph == nullptr) return all;
  std::vector<ConvolutionTactic> tried;
  for (const auto mode : {cudnn::HeuristicsMode::kA, cudnn::HeuristicsMode::kB, cudnn::HeuristicsMode::kFallback}) {
    if (all.size() >= limit) break;
    for (const ConvolutionTactic& tactic : graph->tactics(mode)) {
      if (all.size() >= limit) break;
      if (std::find(tried.begin(), tried.end(), tactic) != tried.end()) continue;
      tried.push_back(tactic);
      std::unique_ptr<ConvolutionPlan> plan = impl_->build(graph, tactic);
      if (plan != nullptr && plan->workspace_bytes() <= workspace_limit) all.push_back(std::move(plan));
    }
  }
  return all;
}

std::unique_ptr<ConvolutionPlan> ConvolutionLibrary::plan(const ConvolutionSpec& spec, const std::string& tactic) {
  const std::optional<ConvolutionTactic> wanted = tactic_from_string(tactic);
  if (!wanted) return nullptr;
  const std::shared_ptr<const ConvolutionGraph> graph = impl_->graph(spec);
  return graph == nullptr ? nullptr : impl_->build(graph, *wanted);
}

std::string ConvolutionLibrary::version() {
  const std::size_t version = cudnn::functions().version();  // 91900
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace ulpscope::cuda
