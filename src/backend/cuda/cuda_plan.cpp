#include "backend/cuda/cuda_plan.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "backend/arena.h"
#include "backend/cuda/scout.h"
#include "backend/cuda/weight_budget.h"
#include "core/messages.h"

namespace ulpscope::cuda {
namespace {

constexpr std::size_t kArenaAlignment = 256;
constexpr int kRepeat = 5, kRounds = 3;  // Of a timing.

/// The candidate whose `run` takes the least time, and its microseconds; null when there are none.
template <typename Candidate, typename Run>
std::pair<std::shared_ptr<const Candidate>, double> fastest(std::vector<std::unique_ptr<Candidate>> candidates,
                                                            const Run& run) {
  std::pair<std::shared_ptr<const Candidate>, double> best;
  for (auto& candidate : candidates) {
    const double time = Device::get().time([&] { run(*candidate); }, kRepeat, kRounds);
    if (best.first == nullptr || time < best.second) best = {std::move(candidate), time};
  }
  return best;
}

/// The runtime; what a replay has an algorithm for need not be looked for in the libraries. The first convolution that
/// is not known makes it look for all that there are: cuDNN takes 0.1 s and more for each, mostly to compile.
class ReplayTarget final : public LoweringTarget {
 public:
  using Lower = std::function<void(LoweringTarget&)>;
  /// `lower`: as the lowering that this is the target of. All arguments outlive this.
  ReplayTarget(Runtime& runtime, const Replay& replay, Lower lower)
      : runtime_(runtime), replay_(replay), lower_(std::move(lower)) {}
  std::shared_ptr<const DeviceMemory> constant(WeightCache& weights, const std::string& key,
                                               const std::function<Tensor()>& make) override {
    return runtime_.constant(weights, key, make);
  }
  std::shared_ptr<const DeviceMemory> matrices(WeightCache& weights, const std::string& key,
                                               std::span<const StoredMatrix> parts, DataType type,
                                               const std::function<Tensor()>& make) override {
    return runtime_.matrices(weights, key, parts, type, make);
  }
  bool has_convolution(const ConvolutionSpec& spec) override {
    if (is_replayed(text_of(spec))) return true;
    if (lower_ && !runtime_.knows(spec)) look_ahead();
    return runtime_.has_convolution(spec);
  }
  bool has_product(const MatrixProductSpec& spec) override {
    return is_replayed(spec.text()) || runtime_.has_product(spec);
  }
  bool has_fused_products() override { return runtime_.has_fused_products(); }
  int warp_group_processors() override { return runtime_.warp_group_processors(); }
  bool is_hopper() override { return runtime_.is_hopper(); }

 private:
  bool is_replayed(const std::string& computes) const { return replay_.asks() && replay_.has(computes); }
  /// What cuDNN refuses brings other questions.
  void look_ahead() {
    constexpr int kRounds = 3;
    const Lower lower = std::exchange(lower_, nullptr);
    for (int round = 0; round < kRounds; ++round) {
      Scout scout(*this,
                  [this](const ConvolutionSpec& spec) { return is_replayed(text_of(spec)) || runtime_.knows(spec); });
      lower(scout);
      if (scout.unknown().empty()) return;
      runtime_.look_for(scout.unknown());
    }
  }

  Runtime& runtime_;
  const Replay& replay_;
  Lower lower_;  ///< Until it has looked ahead.
};

}  // namespace

CudaPlan::CudaPlan(std::shared_ptr<const Specialization> spec, Schedule schedule, WeightCache& weights,
                   const IdMap<LayerId, GraphFunction>& subgraphs, const TacticReplay* wanted, Ends ends)
    : Plan(std::move(spec), std::move(schedule)), weights_(weights) {
  Runtime& runtime = Runtime::get();
  const auto lock = runtime.device().lock();
  identity_ = runtime.identity();
  Replay replay(wanted, *spec_->network, schedule_.grouping, identity_);
  const auto lower_for = [&](LoweringTarget& target) {
    return lower(*spec_, schedule_, weights, subgraphs, target, ends);
  };
  ReplayTarget target(runtime, replay, lower_for);
  WeightBudget budget(target, weights_.device_limit());
  made_ = lower_for(budget);
  budget.check();
  compile_kernels(!replay.asks());
  place();
  const auto callers = ends == Ends::kDevice ? stand_in() : nullptr;
  choose_algorithms(replay);
  find_ranges();
  place_results();
}

CudaPlan::~CudaPlan() {
  const std::lock_guard lock(Device::get().mutex());
  ranges_.clear();
  stretches_.clear();
  recordings_.clear();
}

void CudaPlan::place() {
  std::vector<ArenaEntry> entries;
  for (const Buffer& buffer : made_.buffers) entries.push_back(buffer.is_in_arena() ? buffer.place : ArenaEntry{});
  arena_bytes_ = place_in_arena(entries, kArenaAlignment);
  for (std::size_t i = 0; i < entries.size(); ++i) made_.buffers[i].place.offset = entries[i].offset;
  arena_ = Device::get().arena(arena_bytes_);
}

Address CudaPlan::address(const Pointer& pointer) const {
  if (pointer.buffer < 0) return 0;
  const Buffer& buffer = made_.buffers[pointer.buffer];
  const Address base = buffer.constant       ? buffer.constant->address()
                       : buffer.callers >= 0 ? callers_[static_cast<std::size_t>(buffer.callers)]
                                             : arena_->address() + buffer.place.offset;
  return base + static_cast<Address>(pointer.bytes);
}

std::vector<SharedSource> CudaPlan::candidates_of(const ProductProgramStep& step) {
  Runtime& runtime = Runtime::get();
  const int processors = runtime.device().multiprocessors();
  const auto tactic = runtime.tactics().find(step.computes);
  const std::optional<ProductTile> tile = tactic ? tile_of(tactic->algorithm) : std::nullopt;
  if (tile) return {shared_product(step.spec, *tile, processors).source};
  std::vector<SharedSource> sources{step.program.source};
  if (tactic) return sources;
  for (const ProductTile& each : product_tiles(step.spec, processors))
    sources.push_back(shared_product(step.spec, each, processors).source);
  return sources;
}

void CudaPlan::compile_kernels(bool chooses) {
  std::vector<KernelStep*> kernels;
  std::vector<SharedSource> sources;
  for (Step& step : made_.steps)
    if (auto* kernel = std::get_if<KernelStep>(&step.work)) {
      kernels.push_back(kernel);
      sources.push_back(kernel->source);
    }
  // What is going to be timed is compiled with the rest, by all threads, not step by step.
  for (const Step& step : made_.steps)
    if (const auto* both = std::get_if<ProductProgramStep>(&step.work); both != nullptr && chooses)
      std::ranges::move(candidates_of(*both), std::back_inserter(sources));
  std::vector<const NamedSource*> all;
  for (const SharedSource& source : sources) all.push_back(source.get());
  const std::vector<Function> functions = Device::get().functions(all);
  for (std::size_t i = 0; i < kernels.size(); ++i) kernels[i]->function = functions[i];
}

void CudaPlan::choose_algorithms(Replay& replay) {
  Runtime& runtime = Runtime::get();
  workspace_ = runtime.device().workspace(Runtime::kWorkspace);
  const auto choose_for = [&](LayerId layer, auto& step, auto& chosen) {
    if (!replay.asks()) return choose(step);
    const std::string computes = text_of(step.spec);
    const std::string* algorithm = replay.algorithm(layer, computes);
    if (algorithm == nullptr) return choose(step);
    chosen = runtime.made(step.spec, *algorithm);
    if (chosen == nullptr) throw replay.refusal(layer, computes, *algorithm);
  };
  const auto choose_for_both = [&](LayerId layer, ProductProgramStep& step) {
    // Replays of other GPUs of the kind, and older ones, know of the product alone.
    const bool known = replay.has(step.computes), alone = !known && replay.has(step.product.spec.text());
    const std::string* algorithm = alone ? nullptr : replay.algorithm(layer, step.computes);
    if (algorithm == nullptr && !alone) return choose(step);
    if (algorithm != nullptr && !take(step, *algorithm)) throw replay.refusal(layer, step.computes, *algorithm);
    if (alone) take(step, std::string(ProductProgramStep::kApart));
    if (step.function == nullptr) choose_for(layer, step.product, step.product.product);
  };
  for (Step& step : made_.steps) {
    if (auto* product = std::get_if<ProductStep>(&step.work))
      choose_for(step.layer, *product, product->product);
    else if (auto* both = std::get_if<ProductProgramStep>(&step.work))
      choose_for_both(step.layer, *both);
    else if (auto* convolution = std::get_if<ConvolveStep>(&step.work))
      choose_for(step.layer, *convolution, convolution->plan);
    else if (const auto* kernel = std::get_if<KernelStep>(&step.work))
      replay.generated(step.layer, kernel->source->hash);
  }
  replay.report();
  runtime.tactics().save();
}

void CudaPlan::choose(ProductStep& step) {
  Runtime& runtime = Runtime::get();
  step.product = runtime.chosen(step.spec);
  if (step.product != nullptr) return;
  double time = 0;
  std::tie(step.product, time) =
      fastest(runtime.matrices().products(step.spec, Runtime::kProducts, Runtime::kWorkspace),
              [&, operands = operands_of(step)](const MatrixLibrary::Product& product) {
                product.run(operands, workspace_->address(), runtime.device().stream());
              });
  if (step.product == nullptr)
    throw unsupported("[build] backend 'cuda': cuBLASLt has no algorithm for {}", step.spec.text());
  runtime.choose(step.spec, step.product, time);
}

bool CudaPlan::take(ProductProgramStep& step, const std::string& algorithm) {
  Device& device = Device::get();
  if (algorithm == ProductProgramStep::kApart) {
    step.program.function = device.function(*step.program.source);
  } else {
    const auto tile = tile_of(algorithm);
    if (!tile) return false;
    step.fused = shared_product(step.spec, *tile, device.multiprocessors());
    step.function = device.function(*step.fused.source);
  }
  step.algorithm = algorithm;
  return true;
}

void CudaPlan::choose(ProductProgramStep& step) {
  Runtime& runtime = Runtime::get();
  Device& device = runtime.device();
  const auto known = runtime.tactics().find(step.computes);
  if (known && take(step, known->algorithm)) {
    if (step.function == nullptr) choose(step.product);
    return;
  }
  choose(step.product);
  std::vector<ProductTile> tiles = product_tiles(step.spec, device.multiprocessors());
  std::vector<SharedProduct> kernels;
  for (const ProductTile& tile : tiles) kernels.push_back(shared_product(step.spec, tile, device.multiprocessors()));
  std::vector<const NamedSource*> sources{step.program.source.get()};
  for (const SharedProduct& kernel : kernels) sources.push_back(kernel.source.get());
  device.functions(sources);
  std::string best;
  double least = 0;
  const auto time = [&](const std::string& algorithm) {
    ProductProgramStep candidate = step;
    take(candidate, algorithm);
    const double microseconds = device.time([&] { enqueue(candidate); }, kRepeat, kRounds);
    if (best.empty() || microseconds < least) std::tie(best, least) = std::pair(algorithm, microseconds);
  };
  time(std::string(ProductProgramStep::kApart));
  for (const ProductTile& tile : tiles) time(tile.text());
  take(step, best);
  runtime.tactics().put(step.computes, {best, least});
}

void CudaPlan::choose(ConvolveStep& step) {
  Runtime& runtime = Runtime::get();
  step.plan = runtime.chosen(step.spec);
  if (step.plan != nullptr) return;
  double time = 0;
  std::tie(step.plan, time) = fastest(
      runtime.candidates(step.spec),
      [&, operands = operands_of(step)](const ConvolutionPlan& plan) { plan.run(operands, workspace_->address()); });
  if (step.plan == nullptr) throw unsupported("[build] backend 'cuda': cuDNN has no plan for {}", text_of(step.spec));
  runtime.choose(step.spec, step.plan, time);
}

void CudaPlan::find_ranges() {
  for (std::size_t begin = 0; begin < made_.steps.size();) {
    std::size_t end = begin;
    while (end < made_.steps.size() && runs_on_device(made_.steps[end])) ++end;
    if (end > begin) ranges_.push_back({begin, end, nullptr});
    begin = std::max(end, begin + 1);
  }
}

void CudaPlan::place_results() {
  constexpr std::size_t kAlignment = 64;
  offsets_of_results_.assign(made_.host.size(), kNoPlace);
  std::vector<char> is_output(made_.host.size(), 0);
  for (int value : made_.outputs) is_output[value] = 1;
  std::size_t count = 0, bytes = 0;
  for (const Step& step : made_.steps) {
    const auto* download = std::get_if<DownloadStep>(&step.work);
    if (download == nullptr || is_output[download->host] == 0) continue;
    const HostValue& value = made_.host[download->host];
    const std::size_t size = static_cast<std::size_t>(num_elements(value.shape)) * size_of(value.type);
    offsets_of_results_[download->host] = bytes;
    bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
    ++count;
  }
  if (count >= kManyResults) bytes_of_results_ = bytes;
}

}  // namespace ulpscope::cuda
