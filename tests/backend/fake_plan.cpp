// Steps of a plan on this processor, and what they may read and write.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <stdexcept>

#include "backend/cuda_elements.h"
#include "backend/fake_device.h"

namespace ulpscope::cuda::fake {
namespace {

using Bytes = std::vector<unsigned char>;

constexpr std::size_t kArenaAlignment = 256;

/// What a crash is reported with.
char current_step[512] = "";

void report_crash(int signal) {
  const char text[] = "\nfake device: a generated kernel reads or writes where it must not: ";
  [[maybe_unused]] auto ignored = write(STDERR_FILENO, text, sizeof text - 1);
  ignored = write(STDERR_FILENO, current_step, std::strlen(current_step));
  ignored = write(STDERR_FILENO, "\n", 1);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// While generated code runs.
class CrashReport {
 public:
  explicit CrashReport(const std::string& where) {
    std::strncpy(current_step, where.c_str(), sizeof current_step - 1);
    for (std::size_t i = 0; i < std::size(kSignals); ++i) old_[i] = std::signal(kSignals[i], report_crash);
  }
  ~CrashReport() {
    for (std::size_t i = 0; i < std::size(kSignals); ++i) std::signal(kSignals[i], old_[i]);
  }

 private:
  static constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP};
  void (*old_[std::size(kSignals)])(int);
};

/// The kernel that a step generates; null: none.
const KernelStep* kernel_of(const Step& step) {
  if (const auto* both = std::get_if<ProductProgramStep>(&step.work)) return &both->program;
  return std::get_if<KernelStep>(&step.work);
}

}  // namespace

FakePlan::FakePlan(std::string name, const Specialization& spec, const Schedule& schedule, WeightCache& weights,
                   const IdMap<LayerId, GraphFunction>& subgraphs, FakeDevice& device, KernelBank& bank, Ends ends)
    : name_(std::move(name)),
      spec_(spec),
      bank_(bank),
      steps_(lower(spec, schedule, weights, subgraphs, device, ends)),
      ends_(ends) {
  std::vector<ArenaEntry> entries;
  for (const Buffer& buffer : steps_.buffers) entries.push_back(buffer.is_in_arena() ? buffer.place : ArenaEntry{});
  arena_bytes_ = place_in_arena(entries, kArenaAlignment);
  for (std::size_t i = 0; i < entries.size(); ++i) steps_.buffers[i].place.offset = entries[i].offset;
  for (const Step& step : steps_.steps)
    if (const KernelStep* kernel = kernel_of(step)) bank_.add(*kernel->source);
}

bool FakePlan::can_run() const {
  return std::ranges::all_of(steps_.steps, [](const Step& step) {
    const KernelStep* kernel = kernel_of(step);
    return kernel == nullptr || KernelBank::can_run(*kernel->source);
  });
}

void FakePlan::expect(bool condition, std::string_view what) const {
  if (!condition) throw std::runtime_error(fmt::format("{}: {}", where_, what));
}

std::size_t FakePlan::bytes_of(const Buffer& buffer) const {
  return buffer.constant ? buffer.constant->bytes() : buffer.bytes;
}

unsigned char* FakePlan::address(const Pointer& pointer) const {
  if (pointer.buffer < 0) return nullptr;
  const Buffer& buffer = steps_.buffers[static_cast<std::size_t>(pointer.buffer)];
  expect(pointer.bytes >= 0 && pointer.bytes <= static_cast<std::int64_t>(bytes_of(buffer)),
         "a pointer that is outside of its buffer");
  unsigned char* base = arena_ + buffer.place.offset;
  if (buffer.constant) base = reinterpret_cast<unsigned char*>(buffer.constant->address());
  if (buffer.callers >= 0) base = callers_address(static_cast<std::size_t>(buffer.callers));
  return base + pointer.bytes;
}

unsigned char* FakePlan::element(const Pointer& pointer, DataType type, std::int64_t index) const {
  expect(pointer.buffer >= 0, "a pointer to nothing");
  const auto size = static_cast<std::int64_t>(size_of(type));
  const std::int64_t at = pointer.bytes + index * size;
  const std::size_t bytes = bytes_of(steps_.buffers[static_cast<std::size_t>(pointer.buffer)]);
  expect(at >= 0 && at + size <= static_cast<std::int64_t>(bytes), "an element that is outside of its buffer");
  return address({pointer.buffer, at});
}

double FakePlan::read(const Pointer& pointer, DataType type, std::int64_t index) const {
  const unsigned char* at = element(pointer, type, index);
  return type == DataType::kFloat64 ? elements::bits_at<double>(at) : elements::read(type, at);
}

void FakePlan::write(const Pointer& pointer, DataType type, std::int64_t index, double value) const {
  const Buffer& buffer = steps_.buffers[static_cast<std::size_t>(pointer.buffer)];
  expect(may_write(buffer), "writes a constant or an input");
  unsigned char* at = element(pointer, type, index);
  type == DataType::kFloat64 ? elements::put_bits(at, value) : elements::write(type, at, value);
}

/// The buffers of a kernel, each as a copy of its own that ends where memory ends.
struct FakePlan::Guarded {
  explicit Guarded(const FakePlan& of) : plan(of) {}
  void* add(const Pointer& pointer, bool writes) {
    plan.expect(pointer.buffer >= 0, "a pointer to nothing");
    const Buffer& buffer = plan.steps_.buffers[static_cast<std::size_t>(pointer.buffer)];
    plan.expect(!writes || plan.may_write(buffer), "writes a constant or an input");
    plan.address(pointer);
    auto& [copy, written] = copies[pointer.buffer];
    written |= writes;
    if (copy == nullptr) {
      copy = std::make_unique<shim::GuardedBuffer>(plan.bytes_of(buffer), 16, 0);
      std::memcpy(copy->data(), plan.address({pointer.buffer, 0}), copy->size());
    }
    return copy->data() + pointer.bytes;
  }
  void put_back() {
    for (const auto& [buffer, entry] : copies) {
      const auto& [copy, written] = entry;
      unsigned char* home = plan.address({buffer, 0});
      if (written)
        std::memcpy(home, copy->data(), copy->size());
      else
        plan.expect(std::memcmp(home, copy->data(), copy->size()) == 0, "writes what it reads");
    }
  }
  const FakePlan& plan;
  std::map<int, std::pair<std::unique_ptr<shim::GuardedBuffer>, bool>> copies;
};

void FakePlan::run(const KernelStep& step) {
  const auto& [x, y, z] = step.source->grid;
  expect(x > 0 && y > 0 && z > 0 && y < 65536 && z < 65536 && x < (1u << 31), "a grid that cannot be launched");
  expect(step.source->block > 0 && step.source->block <= 1024, "more threads than a block has");
  Guarded guarded(*this);
  std::vector<void*> arguments;
  for (const Pointer& pointer : step.reads) arguments.push_back(guarded.add(pointer, false));
  for (const Pointer& pointer : step.writes) arguments.push_back(guarded.add(pointer, true));
  const CrashReport report(where_);
  const std::string failure = bank_.run(*step.source, std::move(arguments));
  expect(failure.empty(), failure);
  guarded.put_back();
}

void FakePlan::run(const HostStep& step) {
  std::vector<const Tensor*> in;
  std::vector<Tensor*> out;
  for (int value : step.inputs) {
    in.push_back(value < 0 ? nullptr : &host_[static_cast<std::size_t>(value)]);
    expect(value < 0 || *in.back(), "reads a value of the host that is not there");
  }
  for (int value : step.outputs) out.push_back(value < 0 ? nullptr : &host_[static_cast<std::size_t>(value)]);
  step.kernel->run(in, out);
}

namespace {

/// Where a store is of use: the one range of steps of the device; nothing where there are more of them.
std::vector<Checkpoint> checkpoints_of_all(const Steps& steps) {
  const auto first = std::ranges::find_if(steps.steps, runs_on_device);
  const auto last = std::find_if_not(first, steps.steps.end(), runs_on_device);
  if (std::any_of(last, steps.steps.end(), runs_on_device)) return {};
  return checkpoints_of(steps, static_cast<std::size_t>(first - steps.steps.begin()),
                        static_cast<std::size_t>(last - steps.steps.begin()));
}

}  // namespace

void FakePlan::run(const ProductProgramStep& step) {
  expect(step.program.reads[0].buffer == step.product.d.buffer, "a program that does not read the product's results");
  expect_rows(step.spec);
  run(step.product);
  run(step.program);
}

void FakePlan::run(const ClearStep& step) {
  const Buffer& buffer = steps_.buffers[static_cast<std::size_t>(step.to.buffer)];
  expect(step.to.bytes + static_cast<std::int64_t>(step.bytes) <= static_cast<std::int64_t>(bytes_of(buffer)),
         "clears more than there is");
  std::memset(address(step.to), 0, step.bytes);
}

void FakePlan::run(const UploadStep& step) {
  const Tensor& value = host_[static_cast<std::size_t>(step.host)];
  expect(static_cast<bool>(value), "uploads a value that is not there");
  expect(step.to.bytes + static_cast<std::int64_t>(value.bytes()) <=
             static_cast<std::int64_t>(bytes_of(steps_.buffers[static_cast<std::size_t>(step.to.buffer)])),
         "uploads more than there is room for");
  if (value.bytes() > 0) std::memcpy(address(step.to), value.raw(), value.bytes());
}

void FakePlan::run(const DownloadStep& step) {
  const HostValue& value = steps_.host[static_cast<std::size_t>(step.host)];
  Tensor result(value.type, value.shape);
  const std::size_t bytes = bytes_of(steps_.buffers[static_cast<std::size_t>(step.from.buffer)]);
  expect(step.from.bytes + static_cast<std::int64_t>(result.bytes()) <= static_cast<std::int64_t>(bytes),
         "downloads more than there is");
  if (result.bytes() > 0) std::memcpy(result.raw(), address(step.from), result.bytes());
  host_[static_cast<std::size_t>(step.host)] = std::move(result);
}

void FakePlan::take_from(ActivationStore& store, const Checkpoint& checkpoint) {
  for (const auto& [key, number] : checkpoint.values) {
    const Buffer& buffer = steps_.buffers[static_cast<std::size_t>(number)];
    const Bytes& kept = *store.find<Bytes>(key);
    expect(kept.size() == buffer.bytes, "one name for activations of two sizes");
    std::ranges::copy(kept, arena_ + buffer.place.offset);
  }
}

void FakePlan::keep_in(ActivationStore& store, const Checkpoint& checkpoint) const {
  for (const auto& [key, number] : checkpoint.values) {
    const Buffer& buffer = steps_.buffers[static_cast<std::size_t>(number)];
    const unsigned char* const bytes = arena_ + buffer.place.offset;
    const auto* known = store.find<Bytes>(key);
    expect(known == nullptr || std::ranges::equal(*known, std::span(bytes, buffer.bytes)),
           "one name for two activations");
    store.put(key, Bytes(bytes, bytes + buffer.bytes), buffer.bytes);
  }
}

void FakePlan::prepare(std::span<const Tensor> inputs, unsigned char poison) {
  skipped_ = 0;
  memory_.assign(arena_bytes_ + kArenaAlignment, poison);
  arena_ = memory_.data();
  while (reinterpret_cast<std::uintptr_t>(arena_) % kArenaAlignment != 0) ++arena_;
  if (ends_ == Ends::kDevice) place_callers(inputs, poison);
  host_.assign(steps_.host.size(), {});
  for (std::size_t i = 0; i < host_.size(); ++i) {
    const HostValue& value = steps_.host[i];
    host_[i] = value.constant     ? value.constant
               : value.input >= 0 ? inputs[static_cast<std::size_t>(value.input)]
                                  : Tensor{};
  }
}

std::vector<Tensor> FakePlan::run(std::span<const Tensor> inputs, unsigned char poison, ActivationStore* store) {
  const std::vector<Checkpoint> checkpoints = store != nullptr ? checkpoints_of_all(steps_) : std::vector<Checkpoint>{};
  const auto begin = std::find_if(checkpoints.rbegin(), checkpoints.rend(), [&](const Checkpoint& checkpoint) {
    return std::ranges::all_of(checkpoint.values, [&](const auto& value) { return store->contains(value.key); });
  });
  const std::size_t begins = begin == checkpoints.rend() ? 0 : begin->step;
  prepare(inputs, poison);
  for (std::size_t i = 0; i < steps_.steps.size(); ++i) {
    const Step& step = steps_.steps[i];
    where_ = fmt::format("{}, step {} (kind {}) of {}", name_, i, step.work.index(),
                         step.layer == kNone ? "the outputs" : spec_.network->layer(step.layer).name);
    if (i < begins && runs_on_device(step)) {
      ++skipped_;
      continue;
    }
    if (begins > 0 && i == begins) take_from(*store, *begin);
    for (const Checkpoint& checkpoint : checkpoints)
      if (checkpoint.step == i) keep_in(*store, checkpoint);
    for (const Buffer& buffer : steps_.buffers)
      if (buffer.is_in_arena() && buffer.place.first == static_cast<int>(i))
        std::memset(arena_ + buffer.place.offset, poison, buffer.bytes);
    std::visit([this](const auto& work) { run(work); }, step.work);
  }
  if (ends_ == Ends::kDevice) return callers_outputs(inputs.size());
  std::vector<Tensor> results;
  for (int value : steps_.outputs) results.push_back(host_[static_cast<std::size_t>(value)].clone());
  return results;
}

}  // namespace ulpscope::cuda::fake
