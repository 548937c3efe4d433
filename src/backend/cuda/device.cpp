#include "backend/cuda/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "backend/cuda/kernel_cache.h"
#include "core/memory.h"
#include "core/messages.h"
#include "core/parallel.h"
#include "ulpscope/data_type.h"

namespace ulpscope::cuda {
namespace {

constexpr std::size_t kDefaultShared = 48 << 10;  ///< More has to be asked for, per function.

/// A block of at least `bytes` in `kept`; what was there lives on with who uses it.
std::shared_ptr<const DeviceMemory> at_least(std::shared_ptr<const DeviceMemory>& kept, std::size_t bytes) {
  if (kept == nullptr || kept->bytes() < bytes) {
    kept = nullptr;
    kept = std::make_shared<const DeviceMemory>(std::max<std::size_t>(bytes, std::size_t{32} << 20));
  }
  return kept;
}

}  // namespace

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(std::max<std::size_t>(bytes, 256)) {
  Device::get().enter();
  Result result = driver().memory_allocate(&address_, bytes_);
  if (result == kOutOfMemory && Device::get().drop_blocks()) result = driver().memory_allocate(&address_, bytes_);
  if (result == kOutOfMemory) {
    std::size_t free = 0, total = 0;
    driver().memory_info(&free, &total);
    throw unsupported(
        "[run] backend 'cuda': {} more are needed on the GPU, {} of its {} are free; try smaller inputs, a smaller "
        "--memory-limit, ending other programs on the GPU, or the CPU (leave out --backend cuda)",
        to_size_string(bytes_), to_size_string(free), to_size_string(total));
  }
  check(result, "allocate memory");
}

DeviceMemory::~DeviceMemory() {
  if (!owned_) return;
  Device::get().enter();
  driver().memory_free(address_);
}

LaunchGraph::~LaunchGraph() { driver().graph_exec_destroy(exec_); }

void LaunchGraph::launch() const { check(driver().graph_launch(exec_, Device::get().stream()), "launch a graph"); }

Device& Device::get() {
  // Never destroyed: plans that outlive main() may still free what they have.
  static Device* const device = new Device;
  return *device;
}

Device::Device() {
  const Driver& d = driver();
  const Result ready = d.init(0);
  int count = 0;
  if (ready == kSuccess) d.device_count(&count);
  if (ready == kNoDevice || (ready == kSuccess && count == 0))
    throw Error(ErrorCode::kUnsupported,
                "[build] backend 'cuda': the driver shows no GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES, or leave "
                "out --backend cuda");
  check(ready, "start");
  int device = 0, major = 0, minor = 0;
  char name[256] = {};
  check(d.device_get(&device, 0), "open the first GPU");
  check(d.device_name(name, sizeof name - 1, device), "name the GPU");
  check(d.device_attribute(&major, DeviceAttribute::kComputeCapabilityMajor, device), "describe the GPU");
  check(d.device_attribute(&minor, DeviceAttribute::kComputeCapabilityMinor, device), "describe the GPU");
  check(d.device_attribute(&multiprocessors_, DeviceAttribute::kMultiprocessors, device), "describe the GPU");
  name_ = name;
  arch_ = fmt::format("sm_{}{}{}", major, minor, major == 9 ? "a" : "");
  int version = 0;
  check(d.driver_version(&version), "tell its version");
  begins_early_ = major >= 9 && version >= 12040;  // Recorded launches keep it since CUDA 12.4.
  if (major < 8)
    throw unsupported("[build] backend 'cuda': {} is {}; expected sm_80 (Ampere) or later; leave out --backend cuda",
                      name_, arch_);
  check(d.primary_context_retain(&context_, device), "make a context on the GPU");
  enter();
  check(d.stream_create(&stream_, kNonBlockingStream), "make a stream");
  for (Event* event : {&before_, &after_}) check(d.event_create(event, kEventWithoutTime), "make an event");
}

std::unique_lock<std::recursive_mutex> Device::lock() {
  std::unique_lock held(mutex_);
  enter();
  return held;
}

void Device::enter() const { check(driver().context_set_current(context_), "use its context"); }

Function Device::function(const NamedSource& source) {
  const std::lock_guard lock(kernels_mutex_);
  if (const auto found = kernels_.find(source.hash); found != kernels_.end()) return found->second;
  if (source.source.find("begin();") == std::string::npos)
    throw InternalError("a kernel does not wait for what it reads");
  enter();
  const auto compiled = code_.extract(source.hash);
  const std::string code = compiled.empty() ? cached_code(source.source, arch_) : std::move(compiled.mapped());
  Module module = nullptr;
  Function function = nullptr;
  check(driver().module_load(&module, code.data()), "load a kernel");
  check(driver().module_function(&function, module, "kernel"), "find a kernel");
  if (source.shared > kDefaultShared)
    check(driver().function_set_attribute(function, kMaxDynamicSharedMemory, static_cast<int>(source.shared)),
          "give a kernel its shared memory");
  return kernels_[source.hash] = function;
}

std::vector<Function> Device::functions(std::span<const NamedSource* const> sources) {
  std::vector<Function> found;
  std::map<std::string_view, const NamedSource*> distinct;
  {
    const std::lock_guard lock(kernels_mutex_);
    for (const NamedSource* source : sources) {
      const auto known = kernels_.find(source->hash);
      found.push_back(known != kernels_.end() ? known->second : nullptr);
      if (known == kernels_.end()) distinct.emplace(source->hash, source);
    }
  }
  if (distinct.empty()) return found;
  std::vector<const NamedSource*> missing;
  for (const auto& [hash, source] : distinct) missing.push_back(source);
  // The longest first, so that no thread is left alone with one of them.
  std::ranges::stable_sort(missing, std::ranges::greater(), [](const NamedSource* s) { return s->source.size(); });
  // The code lands in the cache of the disk or stays here until it is loaded.
  run_tasks(0, missing.size(), share_threads(missing.size(), 0, 0), [&](std::size_t i) {
    std::string code = cached_code(missing[i]->source, arch_);
    const std::lock_guard lock(kernels_mutex_);
    code_[missing[i]->hash] = std::move(code);
  });
  for (std::size_t i = 0; i < found.size(); ++i)
    if (found[i] == nullptr) found[i] = function(*sources[i]);
  return found;
}

void Device::launch(const KernelSource& source, Function function, std::span<const Address> pointers,
                    std::span<const TensorMap> boxed) const {
  std::vector<void*> arguments;
  for (const TensorMap& map : boxed) arguments.push_back(const_cast<TensorMap*>(&map));
  for (const Address& pointer : pointers) arguments.push_back(const_cast<Address*>(&pointer));
  // The kernel may begin while the last blocks of the one before it end: begin() of the prelude waits for its results.
  LaunchAttribute early{.id = kProgrammaticSerialization};
  early.value.flag = 1;
  const LaunchConfig config{{source.grid[0], source.grid[1], source.grid[2]},
                            {source.block, 1, 1},
                            source.shared,
                            stream_,
                            &early,
                            begins_early_ ? 1U : 0U};
  check(driver().launch(&config, function, arguments.data(), nullptr), "launch a kernel");
}

TensorMap Device::boxes(const BoxedMatrix& matrix, Address address) const {
  TensorMap map{};
  const auto count = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  const std::uint64_t bytes = size_of(matrix.type);
  std::vector<std::uint64_t> sizes{count(matrix.columns), count(matrix.rows)},
      strides{count(matrix.row_stride) * bytes};
  std::vector<std::uint32_t> box{static_cast<std::uint32_t>(128 / bytes), static_cast<std::uint32_t>(matrix.box_rows)};
  for (const auto& [many, stride] : matrix.many) {
    sizes.push_back(count(many));
    strides.push_back(count(stride) * bytes);
    box.push_back(1);
  }
  const std::vector<std::uint32_t> steps(sizes.size(), 1);
  const BoxElement element = bytes == 1                          ? BoxElement::kByte
                             : matrix.type == DataType::kFloat16 ? BoxElement::kFloat16
                                                                 : BoxElement::kBFloat16;
  check(driver().encode_boxes(&map, element, static_cast<std::uint32_t>(sizes.size()), reinterpret_cast<void*>(address),
                              sizes.data(), strides.data(), box.data(), steps.data(), kWordsInOrder, kSwizzle128,
                              kPromote256, kZerosOutside),
        "describe a matrix");
  return map;
}

void Device::upload(Address to, const void* from, std::size_t bytes) const {
  if (bytes > 0) check(driver().copy_to_device(to, from, bytes, stream_), "copy to the GPU");
}

void Device::download(void* to, Address from, std::size_t bytes) const {
  if (bytes > 0) check(driver().copy_to_host(to, from, bytes, stream_), "copy from the GPU");
  wait();
}

void Device::copy(Address to, Address from, std::size_t bytes) const {
  if (bytes > 0) check(driver().copy_on_device(to, from, bytes, stream_), "copy on the GPU");
}

void Device::wait() const { check(driver().stream_synchronize(stream_), "run a kernel"); }

void Device::wait_for(Stream other) const {
  check(driver().event_record(before_, other), "record an event");
  check(driver().stream_wait_event(stream_, before_, 0), "wait for a stream");
}

void Device::let_wait(Stream other) const {
  check(driver().event_record(after_, stream_), "record an event");
  check(driver().stream_wait_event(other, after_, 0), "wait for a stream");
}

std::unique_ptr<LaunchGraph> Device::capture(const std::function<void()>& enqueue) const {
  const Driver& d = driver();
  Graph graph = nullptr;
  check(d.stream_begin_capture(stream_, kCaptureThreadLocal), "record launches");
  try {
    enqueue();
  } catch (...) {
    d.stream_end_capture(stream_, &graph);
    if (graph != nullptr) d.graph_destroy(graph);
    throw;
  }
  check(d.stream_end_capture(stream_, &graph), "record launches");
  GraphExec exec = nullptr;
  const Result made = d.graph_instantiate(&exec, graph, 0);
  d.graph_destroy(graph);
  check(made, "prepare recorded launches");
  return std::make_unique<LaunchGraph>(exec);
}

double Device::time(const std::function<void()>& enqueue, int repeat, int rounds) const {
  const std::unique_ptr<LaunchGraph> graph = capture([&] {
    for (int i = 0; i < repeat; ++i) enqueue();
  });
  return time(*graph, rounds) / repeat;
}

double Device::time(const LaunchGraph& graph, int rounds) const {
  Event begin = nullptr, end = nullptr;
  check(driver().event_create(&begin, 0), "make an event");
  check(driver().event_create(&end, 0), "make an event");
  float least = std::numeric_limits<float>::max();
  for (int round = 0; round <= rounds; ++round) {
    check(driver().event_record(begin, stream_), "record an event");
    graph.launch();
    check(driver().event_record(end, stream_), "record an event");
    check(driver().event_synchronize(end), "run a kernel");
    float milliseconds = 0;
    check(driver().event_elapsed(&milliseconds, begin, end), "read an event");
    if (round > 0) least = std::min(least, milliseconds);  // The first one warms up.
  }
  driver().event_destroy(begin);
  driver().event_destroy(end);
  return static_cast<double>(least) * 1e3;
}

std::shared_ptr<const DeviceMemory> Device::workspace(std::size_t bytes) { return at_least(workspace_, bytes); }
std::shared_ptr<const DeviceMemory> Device::arena(std::size_t bytes) { return at_least(arena_, bytes); }

std::shared_ptr<const DeviceMemory> Device::block(std::size_t bytes) {
  constexpr std::size_t kStep = std::size_t{64} << 10, kLeftFree = std::size_t{1} << 30;
  bytes = (bytes + kStep - 1) / kStep * kStep;
  std::unique_ptr<const DeviceMemory> memory;
  {
    const std::lock_guard lock(blocks_mutex_);
    if (const auto found = blocks_.lower_bound(bytes); found != blocks_.end() && found->first <= bytes + bytes / 4) {
      memory = std::move(found->second);
      blocks_.erase(found);
    }
  }
  if (memory == nullptr) {
    std::size_t free = 0, total = 0;
    enter();
    check(driver().memory_info(&free, &total), "tell how much memory is free");
    if (free < bytes + kLeftFree) return nullptr;
    memory = std::make_unique<const DeviceMemory>(bytes);
  }
  return {memory.release(), [this](const DeviceMemory* given_back) {
            const std::lock_guard lock(blocks_mutex_);
            blocks_.emplace(given_back->bytes(), given_back);
          }};
}

bool Device::drop_blocks() {
  std::multimap<std::size_t, std::unique_ptr<const DeviceMemory>> dropped;
  const std::lock_guard lock(blocks_mutex_);
  dropped.swap(blocks_);
  return !dropped.empty();
}

}  // namespace ulpscope::cuda
