#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "backend/backends.h"
#include "backend/cuda/cuda_plan.h"
#include "backend/cuda/device.h"
#include "ulpscope/error.h"

namespace ulpscope::cuda {
namespace {

/// Blocks that callers gave back, for the next runs on the same stream: what that stream still does with them comes
/// before.
class FreeBlocks {
 public:
  std::unique_ptr<const DeviceMemory> take(std::size_t bytes, Stream stream) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = blocks_.lower_bound({stream, bytes});
      if (found != blocks_.end() && found->first.first == stream && found->first.second <= bytes + bytes / 4) {
        auto memory = std::move(found->second);
        blocks_.erase(found);
        bytes_ -= memory->bytes();
        return memory;
      }
    }
    return std::make_unique<const DeviceMemory>(bytes);
  }
  void give_back(std::unique_ptr<const DeviceMemory> memory, Stream stream) {
    const std::lock_guard lock(mutex_);
    if (bytes_ + memory->bytes() > kMost) return;  // Freeing waits for all streams.
    bytes_ += memory->bytes();
    const std::size_t bytes = memory->bytes();
    blocks_.emplace(std::pair(stream, bytes), std::move(memory));
  }

 private:
  static constexpr std::size_t kMost = std::size_t{256} << 20;
  std::mutex mutex_;
  std::multimap<std::pair<Stream, std::size_t>, std::unique_ptr<const DeviceMemory>> blocks_;
  std::size_t bytes_ = 0;
};

FreeBlocks& free_blocks() {
  static FreeBlocks* const blocks = new FreeBlocks;  // Tensors may outlive main().
  return *blocks;
}

class Block final : public DeviceOwner {
 public:
  Block(std::size_t bytes, Stream stream) : stream_(stream), memory_(free_blocks().take(bytes, stream)) {}
  ~Block() override {
    if (!shared_) free_blocks().give_back(std::move(memory_), stream_);
  }
  void used_on(void* other) override {
    const auto stream = static_cast<Stream>(other);
    if (stream == stream_) return;
    Device& device = Device::get();
    const auto lock = device.lock();
    device.let_wait(stream);
    shared_ = true;
  }
  Address address() const { return memory_->address(); }

 private:
  const Stream stream_;
  bool shared_ = false;  ///< What other streams do with it is not known.
  std::unique_ptr<const DeviceMemory> memory_;
};

class CudaSpace final : public DeviceSpace {
 public:
  int number() const override { return 0; }
  void check(CallerStream stream) const override {
    int status = kNotCapturing;
    Device::get().enter();
    if (driver().stream_is_capturing(static_cast<Stream>(stream), &status) != kSuccess || status != kNotCapturing)
      throw Error(ErrorCode::kInvalidArgument,
                  "[run] stream: it is being recorded (torch.cuda.graph?); a run records a graph of its own: call it "
                  "outside of the recording");
  }
  DeviceTensor allocate(DataType type, const Shape& shape, CallerStream stream) override {
    constexpr std::size_t kStep = 256;
    const std::size_t bytes = static_cast<std::size_t>(num_elements(shape)) * size_of(type);
    auto block = std::make_shared<Block>((bytes / kStep + 1) * kStep, static_cast<Stream>(stream));
    void* const data = reinterpret_cast<void*>(block->address());
    return {type, shape, data, number(), std::move(block)};
  }
  void upload(void* to, const void* from, std::size_t bytes, CallerStream stream) override {
    in_order(stream, [&](Device& device) {
      device.upload(reinterpret_cast<Address>(to), from, bytes);
      device.wait();
    });
  }
  void download(void* to, const void* from, std::size_t bytes, CallerStream stream) override {
    in_order(stream, [&](Device& device) { device.download(to, reinterpret_cast<Address>(from), bytes); });
  }

 private:
  template <typename Work>
  static void in_order(CallerStream stream, const Work& work) {
    Device& device = Device::get();
    const auto lock = device.lock();
    device.wait_for(static_cast<Stream>(stream));
    work(device);
    device.let_wait(static_cast<Stream>(stream));
  }
};

class CudaDeviceBackend final : public DeviceBackend {
 public:
  DeviceSpace& space() const override {
    Device::get();
    static CudaSpace space;
    return space;
  }
  std::shared_ptr<const DevicePlan> plan(std::shared_ptr<const Specialization> spec, Schedule schedule,
                                         WeightCache& weights, const IdMap<LayerId, GraphFunction>& subgraphs,
                                         const TacticReplay* replay) const override {
    if (!can_stay_on_device(*spec)) return nullptr;
    return std::make_shared<const CudaPlan>(std::move(spec), std::move(schedule), weights, subgraphs, replay,
                                            Ends::kDevice);
  }
};

}  // namespace

const DeviceBackend& cuda_device_backend() {
  static const CudaDeviceBackend backend;
  return backend;
}

}  // namespace ulpscope::cuda
