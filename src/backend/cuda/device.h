// The GPU: memory, kernels and graphs on one stream.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/cuda/driver.h"
#include "backend/cuda/generated_sources.h"

namespace ulpscope::cuda {

/// Bytes on the device, freed with the object.
class DeviceMemory {
 public:
  /// Throws Error(kUnsupported) saying what was needed and what is free.
  explicit DeviceMemory(std::size_t bytes);
  /// Memory that somebody else owns, and keeps for as long as this lives.
  DeviceMemory(Address address, std::size_t bytes) : address_(address), bytes_(bytes), owned_(false) {}
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  Address address() const noexcept { return address_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  Address address_ = 0;
  std::size_t bytes_;
  bool owned_ = true;
};

/// A captured sequence of launches.
class LaunchGraph {
 public:
  explicit LaunchGraph(GraphExec exec) : exec_(exec) {}
  ~LaunchGraph();
  LaunchGraph(const LaunchGraph&) = delete;
  LaunchGraph& operator=(const LaunchGraph&) = delete;
  void launch() const;

 private:
  GraphExec exec_;
};

/// The first GPU that the driver shows (CUDA_VISIBLE_DEVICES chooses), of sm_80 or later. Everything runs on one
/// stream; whoever enqueues, captures or waits holds mutex().
class Device {
 public:
  /// Made on the first call. Throws Error(kUnsupported): no driver, no GPU, an old GPU, the reason of the driver.
  static Device& get();

  const std::string& name() const noexcept { return name_; }  ///< "NVIDIA H200"
  /// "sm_80"; "sm_90a": code for sm_90 and no later one.
  const std::string& architecture() const noexcept { return arch_; }
  int multiprocessors() const noexcept { return multiprocessors_; }
  Stream stream() const noexcept { return stream_; }
  std::recursive_mutex& mutex() noexcept { return mutex_; }
  /// Holds mutex(), and the context is that of the calling thread.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> lock();

  /// Makes the GPU's context that of the calling thread.
  void enter() const;

  /// Compiles or finds the kernel of a source: in this process, else on the disk (kernel_cache.h). Needs no mutex.
  Function function(const NamedSource& source);
  /// The same for many; compiles those that nobody compiled yet on all threads.
  std::vector<Function> functions(std::span<const NamedSource* const> sources);
  /// Enqueues it; `pointers` as KernelSource says, behind descriptors of matrices where it takes some.
  void launch(const KernelSource& source, Function function, std::span<const Address> pointers,
              std::span<const TensorMap> boxed = {}) const;
  /// Of the matrix at that address.
  TensorMap boxes(const BoxedMatrix& matrix, Address address) const;
  void upload(Address to, const void* from, std::size_t bytes) const;
  /// Waits until the bytes are there.
  void download(void* to, Address from, std::size_t bytes) const;
  void copy(Address to, Address from, std::size_t bytes) const;
  void wait() const;
  /// What is enqueued from here on begins when what that stream of somebody else has by now is done.
  /// REQUIRES: the stream is not being recorded.
  void wait_for(Stream other) const;
  /// What that stream gets from here on begins when what is enqueued by now is done.
  void let_wait(Stream other) const;

  /// What `enqueue` puts on the stream, to be launched as one.
  std::unique_ptr<LaunchGraph> capture(const std::function<void()>& enqueue) const;
  /// Microseconds of one call of `enqueue`: captured `repeat` times in one graph, the least of `rounds`.
  double time(const std::function<void()>& enqueue, int repeat, int rounds) const;

  /// Of one launch of a graph, the least of `rounds`.
  double time(const LaunchGraph& graph, int rounds) const;

  /// Scratch memory that steps share, one after the other; at least so many bytes, address aligned to 256. The block
  /// may be replaced by a larger one: graphs keep the one that they were captured with.
  std::shared_ptr<const DeviceMemory> workspace(std::size_t bytes);
  /// The same for the activations of plans.
  std::shared_ptr<const DeviceMemory> arena(std::size_t bytes);

  /// Memory that is taken and given back often: a block that somebody gave back, else a new one; null where little
  /// memory is left. Steps on the stream may still use what they used when it is given back.
  std::shared_ptr<const DeviceMemory> block(std::size_t bytes);
  /// Frees the blocks that were given back; false: there are none.
  bool drop_blocks();

 private:
  Device();
  std::string name_, arch_;
  int multiprocessors_ = 0;
  bool begins_early_ = false;  ///< Kernels are launched before the ones that they wait for have ended.
  Context context_ = nullptr;
  Stream stream_ = nullptr;
  Event before_ = nullptr, after_ = nullptr;  ///< Of the streams of others.
  std::recursive_mutex mutex_;
  std::mutex kernels_mutex_;
  std::unordered_map<std::string, Function> kernels_;  ///< By NamedSource::hash, as what follows.
  std::map<std::string, std::string> code_;            ///< Compiled, not yet loaded.
  std::shared_ptr<const DeviceMemory> workspace_, arena_;
  std::mutex blocks_mutex_;
  std::multimap<std::size_t, std::unique_ptr<const DeviceMemory>> blocks_;  ///< Given back, by their bytes.
};

}  // namespace ulpscope::cuda
