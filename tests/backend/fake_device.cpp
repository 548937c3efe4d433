#include "backend/fake_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <set>
#include <stdexcept>
#include <thread>

#include "backend/cuda/view.h"
#include "backend/cuda_elements.h"

namespace ulpscope::cuda::fake {
namespace {

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

float tf32_if(bool tf32, double value) {
  const auto x = static_cast<float>(value);
  return tf32 ? round_to_tf32(x) : x;
}

}  // namespace

// --- The device
// ----------------------------------------------------------------------------------------------------------------

std::shared_ptr<const DeviceMemory> FakeDevice::constant(WeightCache&, const std::string& key,
                                                         const std::function<Tensor()>& make) {
  const Tensor value = make().clone();
  const auto [found, is_new] = constants_.try_emplace(key);
  auto& [tensor, memory] = found->second;
  if (!is_new) {
    if (tensor.bytes() != value.bytes() || std::memcmp(tensor.raw(), value.raw(), value.bytes()) != 0)
      throw std::runtime_error("different constants have one key: " + key);
    return memory;
  }
  tensor = value;
  memory = std::make_shared<const DeviceMemory>(reinterpret_cast<Address>(tensor.raw()), tensor.bytes());
  return memory;
}

std::shared_ptr<const DeviceMemory> FakeDevice::matrices(WeightCache& weights, const std::string& key,
                                                         std::span<const StoredMatrix> parts, DataType type,
                                                         const std::function<Tensor()>& make) {
  const Tensor value = make();
  const auto* bytes = static_cast<const unsigned char*>(value.raw());
  const auto* const end = bytes + value.bytes();
  for (const StoredMatrix& matrix : parts) {
    const Tensor own = matrix.elements.in_memory();
    const std::int64_t outer = matrix.turned ? matrix.columns : matrix.rows;
    for (std::int64_t i = 0; i < own.size(); ++i, bytes += size_of(type)) {
      const std::int64_t a = i / (own.size() / outer), b = i % (own.size() / outer);
      unsigned char expected[4] = {};
      elements::write(type, expected, own.data<float>()[matrix.turned ? b * matrix.columns + a : i]);
      if (bytes == end || std::memcmp(bytes, expected, size_of(type)) != 0)
        throw std::runtime_error("the matrices of a constant are not its elements: " + key);
    }
  }
  if (bytes != end) throw std::runtime_error("a constant has more elements than its matrices: " + key);
  return constant(weights, key, make);
}

std::size_t FakeDevice::constant_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [key, constant] : constants_) bytes += constant.first.bytes();
  return bytes;
}

bool FakeDevice::has_product(const MatrixProductSpec& spec) {
  if (!rules_.products) return false;
  if (spec.operands == DataType::kFloat8E4M3)
    return rules_.fp8 && spec.k % 16 == 0 && spec.n % 8 == 0 && spec.a.column_stride == 1 && spec.b.row_stride == 1 &&
           spec.alignment % 16 == 0 && !spec.residual && (!spec.bias || size_of(spec.result) == 2);
  if (spec.operands != DataType::kInt8) return true;
  return spec.k % 4 == 0 && spec.n % 4 == 0 && spec.a.row_stride % 4 == 0 && spec.b.column_stride % 4 == 0 &&
         spec.a.column_stride == 1 && spec.b.row_stride == 1 && spec.alignment % 4 == 0 &&
         spec.result == DataType::kInt32;
}

bool FakeDevice::has_convolution(const ConvolutionSpec& spec) {
  if (!rules_.convolutions || (!rules_.steps && !spec.steps.empty())) return false;
  if (spec.operands == DataType::kUInt8) throw std::runtime_error("cuDNN is asked for uint8");
  if (spec.operands == DataType::kInt8) return spec.weights[1] % 16 == 0 && spec.output[1] % 16 == 0;
  return true;
}

// --- Kernels
// ----------------------------------------------------------------------------------------------------------------

std::string KernelBank::key_of(const KernelSource& source) {
  return fmt::format("{} {} {} {} {}\n{}", source.grid[0], source.grid[1], source.grid[2], source.block, source.shared,
                     source.source);
}

bool KernelBank::can_run(const KernelSource& source) {
  return source.source.find("asm", prelude().size()) == std::string::npos;
}

void KernelBank::add(const KernelSource& source) {
  if (!can_run(source) || !numbers_.try_emplace(key_of(source), sources_.size()).second) return;
  sources_.push_back(source);
}

std::string KernelBank::compile(const std::string& compiler) {
  constexpr std::size_t kPieces = 4, kThreads = 2;
  per_library_ = std::max<std::size_t>(1, (sources_.size() + kPieces - 1) / kPieces);
  libraries_.resize((sources_.size() + per_library_ - 1) / per_library_);
  const auto work = [&](std::size_t thread) {
    for (std::size_t i = thread; i < libraries_.size(); i += kThreads) {
      const auto begin = sources_.begin() + static_cast<std::ptrdiff_t>(i * per_library_);
      const auto end =
          sources_.begin() + static_cast<std::ptrdiff_t>(std::min(sources_.size(), (i + 1) * per_library_));
      libraries_[i] = std::make_unique<shim::Kernels>(std::vector<KernelSource>(begin, end), compiler);
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  for (const auto& library : libraries_)
    if (!library->error().empty()) return library->error();
  return "";
}

std::string KernelBank::run(const KernelSource& source, std::vector<void*> arguments) const {
  const std::size_t number = numbers_.at(key_of(source));
  return libraries_.at(number / per_library_)->run(number % per_library_, std::move(arguments));
}

// --- A plan
// ----------------------------------------------------------------------------------------------------------------

namespace {

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

/// Every index of the program's domain finds its sum where the product puts that of its row.
void FakePlan::expect_rows(const FusedProductSpec& spec) const {
  const Shape& domain = spec.program.domain;
  const std::size_t rows = domain.size() - 1;
  expect(spec.row_strides.size() == rows && spec.program.inputs[0].strides.size() == rows + 1, "other dimensions");
  std::vector<std::int64_t> at(domain.size(), 0);
  std::set<std::int64_t> seen;
  for (bool more = num_elements(domain) > 0; more;) {
    std::int64_t row = 0, element = 0;
    for (std::size_t d = 0; d < rows; ++d) row += at[d] * spec.row_strides[d];
    for (std::size_t d = 0; d <= rows; ++d) element += at[d] * spec.program.inputs[0].strides[d];
    expect(row >= 0 && row < spec.product.m && element == row * spec.product.d.row_stride + at[rows],
           "a row that is not that of the product");
    seen.insert(row);
    more = false;
    for (std::size_t d = domain.size(); d-- > 0 && !more;) {
      more = ++at[d] < domain[d];
      if (!more) at[d] = 0;
    }
  }
  expect(static_cast<std::int64_t>(seen.size()) == spec.product.m, "rows that nobody wants");
}

void FakePlan::run(const ProductStep& step) {
  const MatrixProductSpec& s = step.spec;
  expect(s.m > 0 && s.n > 0 && s.k > 0 && s.batch > 0, "an empty product");
  for (const Pointer* pointer : {&step.a, &step.b, &step.d, &step.residual})
    expect(reinterpret_cast<std::uintptr_t>(address(*pointer)) % static_cast<unsigned>(s.alignment) == 0 ||
               pointer->buffer < 0,
           "an address that is less aligned than promised");
  const auto is_matrix = [](const MatrixOperand& o, std::int64_t rows, std::int64_t columns) {
    return (o.column_stride == 1 && (o.row_stride >= columns || rows == 1)) ||
           (o.row_stride == 1 && (o.column_stride >= rows || columns == 1));
  };
  expect(is_matrix(s.a, s.m, s.k) && is_matrix(s.b, s.k, s.n), "strides that are no matrix's");
  expect(s.d.column_stride == 1 && s.d.row_stride >= s.n, "a result whose rows are apart");
  expect(adds_bias_before_rounding(s), "a bias that may be added to rounded sums");
  expect((step.bias.buffer >= 0) == s.bias && (step.residual.buffer >= 0) == s.residual, "operands that are not there");
  const DataType sum_type = s.operands == DataType::kFloat64 ? DataType::kFloat64 : DataType::kFloat32;
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t j = 0; j < s.n; ++j) {
        double sum = 0;
        for (std::int64_t l = 0; l < s.k; ++l) {
          const double x = read(step.a, s.operands, b * s.a.batch_stride + i * s.a.row_stride + l * s.a.column_stride),
                       y = read(step.b, s.operands, b * s.b.batch_stride + l * s.b.row_stride + j * s.b.column_stride);
          sum +=
              s.operands == DataType::kFloat64 ? x * y : static_cast<double>(tf32_if(s.tf32, x)) * tf32_if(s.tf32, y);
        }
        const std::int64_t to = b * s.d.batch_stride + i * s.d.row_stride + j;
        if (s.operands == DataType::kInt8) {
          expect(s.result == DataType::kInt32 && std::fabs(sum) < 0x1p31, "a sum that is no int32");
          write(step.d, s.result, to, sum);
          continue;
        }
        const auto rounded = [&](double v) { return sum_type == DataType::kFloat64 ? v : static_cast<float>(v); };
        double value = rounded(sum);
        if (s.operands == DataType::kFloat8E4M3) value = rounded(static_cast<float>(value) * step.factor);
        if (s.bias) value = rounded(value + read(step.bias, s.result, j));
        if (s.residual) value = rounded(value + read(step.residual, s.result, to));
        if (s.relu && value <= 0) value = 0;
        write(step.d, s.result, to, value);
      }
}

namespace {

float stepped(ConvolutionStep::Kind kind, float value, float operand) {
  using Kind = ConvolutionStep::Kind;
  const double x = value;
  switch (kind) {
    case Kind::kBias:
    case Kind::kResidual:
      return value + operand;
    case Kind::kRelu:
      return value <= 0 ? 0.0f : value;
    case Kind::kSigmoid:
      return static_cast<float>(1 / (1 + std::exp(-x)));
    case Kind::kTanh:
      return static_cast<float>(std::tanh(x));
    case Kind::kSwish:
      return static_cast<float>(x / (1 + std::exp(-x)));
    case Kind::kGelu:
      return static_cast<float>(x * 0.5 * (1 + std::erf(x * std::sqrt(0.5))));
  }
  return value;
}

}  // namespace

void FakePlan::run(const ConvolveStep& step) {
  const ConvolutionSpec& s = step.spec;
  const std::size_t spatial = s.strides.size();
  expect(s.input.size() == spatial + 2 && s.weights.size() == spatial + 2 && s.output.size() == spatial + 2,
         "shapes of different ranks");
  expect(s.weights[0] == s.output[1] && s.weights[1] * s.groups == s.input[1] && s.output[1] % s.groups == 0 &&
             s.input[0] == s.output[0],
         "channels that do not fit");
  expect(step.steps.size() == s.steps.size(), "steps without operands");
  for (std::size_t d = 0; d < spatial; ++d) {
    const std::int64_t reach = (s.weights[d + 2] - 1) * s.dilations[d] + 1;
    expect(s.pads_begin[d] >= 0 && s.pads_end[d] >= 0 &&
               s.output[d + 2] == (s.input[d + 2] + s.pads_begin[d] + s.pads_end[d] - reach) / s.strides[d] + 1,
           "windows that do not fit");
  }
  for (const Pointer* pointer : {&step.x, &step.weights, &step.y})
    expect(reinterpret_cast<std::uintptr_t>(address(*pointer)) % 16 == 0, "an address that is not aligned");
  const std::vector<std::int64_t> x_strides = channels_last_strides(s.input),
                                  w_strides = channels_last_strides(s.weights),
                                  y_strides = channels_last_strides(s.output);
  const std::int64_t per_group = s.weights[1], outputs = s.output[1] / s.groups;
  const auto next = [](const Shape& shape, std::vector<std::int64_t>& at, std::size_t first) {
    for (std::size_t d = shape.size(); d-- > first;) {
      if (++at[d] < shape[d]) return true;
      at[d] = 0;
    }
    return false;
  };
  std::vector<std::int64_t> at(s.output.size(), 0);
  do {
    double sum = 0;
    std::vector<std::int64_t> tap(s.weights.size(), 0);
    do {
      std::int64_t x = at[0] * x_strides[0], w = at[1] * w_strides[0];
      bool inside = true;
      for (std::size_t d = 0; d < spatial; ++d) {
        const std::int64_t place = at[d + 2] * s.strides[d] - s.pads_begin[d] + tap[d + 2] * s.dilations[d];
        inside &= place >= 0 && place < s.input[d + 2];
        x += place * x_strides[d + 2];
        w += tap[d + 2] * w_strides[d + 2];
      }
      for (std::int64_t c = 0; inside && c < per_group; ++c)
        sum += static_cast<double>(tf32_if(s.tf32, read(step.x, s.operands, x + at[1] / outputs * per_group + c))) *
               tf32_if(s.tf32, read(step.weights, s.operands, w + c));
    } while (next(s.weights, tap, 2));
    std::int64_t to = 0;
    for (std::size_t d = 0; d < at.size(); ++d) to += at[d] * y_strides[d];
    if (s.stored == DataType::kInt32) {
      expect(s.steps.empty() && std::fabs(sum) < 0x1p31, "a sum that is no int32");
      write(step.y, s.stored, to, sum);
      continue;
    }
    auto value = static_cast<float>(sum);
    for (std::size_t i = 0; i < s.steps.size(); ++i) {
      const auto& [kind, type] = s.steps[i];
      const bool bias = kind == ConvolutionStep::Kind::kBias, reads = bias || kind == ConvolutionStep::Kind::kResidual;
      expect((step.steps[i].buffer >= 0) == reads, "an operand that is not there");
      value = stepped(kind, value, reads ? static_cast<float>(read(step.steps[i], type, bias ? at[1] : to)) : 0.0f);
    }
    write(step.y, s.stored, to, value);
  } while (next(s.output, at, 0));
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

std::vector<Tensor> FakePlan::run(std::span<const Tensor> inputs, unsigned char poison, ActivationStore* store) {
  using Bytes = std::vector<unsigned char>;
  const std::vector<Checkpoint> checkpoints = store != nullptr ? checkpoints_of_all(steps_) : std::vector<Checkpoint>{};
  const auto begin = std::find_if(checkpoints.rbegin(), checkpoints.rend(), [&](const Checkpoint& checkpoint) {
    return std::ranges::all_of(checkpoint.values, [&](const auto& value) { return store->contains(value.key); });
  });
  const std::size_t begins = begin == checkpoints.rend() ? 0 : begin->step;
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
  for (std::size_t i = 0; i < steps_.steps.size(); ++i) {
    const Step& step = steps_.steps[i];
    where_ = fmt::format("{}, step {} (kind {}) of {}", name_, i, step.work.index(),
                         step.layer == kNone ? "the outputs" : spec_.network->layer(step.layer).name);
    if (i < begins && runs_on_device(step)) {
      ++skipped_;
      continue;
    }
    if (begins > 0 && i == begins)
      for (const auto& [key, number] : begin->values) {
        const Buffer& buffer = steps_.buffers[static_cast<std::size_t>(number)];
        const Bytes& kept = *store->find<Bytes>(key);
        expect(kept.size() == buffer.bytes, "one name for activations of two sizes");
        std::ranges::copy(kept, arena_ + buffer.place.offset);
      }
    for (const Checkpoint& checkpoint : checkpoints)
      if (checkpoint.step == i)
        for (const auto& [key, number] : checkpoint.values) {
          const Buffer& buffer = steps_.buffers[static_cast<std::size_t>(number)];
          const unsigned char* const bytes = arena_ + buffer.place.offset;
          const auto* known = store->find<Bytes>(key);
          expect(known == nullptr || std::ranges::equal(*known, std::span(bytes, buffer.bytes)),
                 "one name for two activations");
          store->put(key, Bytes(bytes, bytes + buffer.bytes), buffer.bytes);
        }
    for (const Buffer& buffer : steps_.buffers)
      if (buffer.is_in_arena() && buffer.place.first == static_cast<int>(i))
        std::memset(arena_ + buffer.place.offset, poison, buffer.bytes);
    if (const auto* kernel = std::get_if<KernelStep>(&step.work)) {
      run(*kernel);
    } else if (const auto* product = std::get_if<ProductStep>(&step.work)) {
      run(*product);
    } else if (const auto* both = std::get_if<ProductProgramStep>(&step.work)) {
      expect(both->program.reads[0].buffer == both->product.d.buffer,
             "a program that does not read the product's results");
      expect_rows(both->spec);
      run(both->product);
      run(both->program);
    } else if (const auto* convolution = std::get_if<ConvolveStep>(&step.work)) {
      run(*convolution);
    } else if (const auto* host = std::get_if<HostStep>(&step.work)) {
      run(*host);
    } else if (const auto* clear = std::get_if<ClearStep>(&step.work)) {
      const Buffer& buffer = steps_.buffers[static_cast<std::size_t>(clear->to.buffer)];
      expect(clear->to.bytes + static_cast<std::int64_t>(clear->bytes) <= static_cast<std::int64_t>(bytes_of(buffer)),
             "clears more than there is");
      std::memset(address(clear->to), 0, clear->bytes);
    } else if (const auto* upload = std::get_if<UploadStep>(&step.work)) {
      const Tensor& value = host_[static_cast<std::size_t>(upload->host)];
      expect(static_cast<bool>(value), "uploads a value that is not there");
      expect(upload->to.bytes + static_cast<std::int64_t>(value.bytes()) <=
                 static_cast<std::int64_t>(bytes_of(steps_.buffers[static_cast<std::size_t>(upload->to.buffer)])),
             "uploads more than there is room for");
      if (value.bytes() > 0) std::memcpy(address(upload->to), value.raw(), value.bytes());
    } else {
      const DownloadStep& download = std::get<DownloadStep>(step.work);
      const HostValue& value = steps_.host[static_cast<std::size_t>(download.host)];
      Tensor result(value.type, value.shape);
      const std::size_t bytes = bytes_of(steps_.buffers[static_cast<std::size_t>(download.from.buffer)]);
      expect(download.from.bytes + static_cast<std::int64_t>(result.bytes()) <= static_cast<std::int64_t>(bytes),
             "downloads more than there is");
      if (result.bytes() > 0) std::memcpy(result.raw(), address(download.from), result.bytes());
      host_[static_cast<std::size_t>(download.host)] = std::move(result);
    }
  }
  if (ends_ == Ends::kDevice) return callers_outputs(inputs.size());
  std::vector<Tensor> results;
  for (int value : steps_.outputs) results.push_back(host_[static_cast<std::size_t>(value)].clone());
  return results;
}

}  // namespace ulpscope::cuda::fake
