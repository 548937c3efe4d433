// Convolutions on a GPU against their definition in float64: every plan of cuDNN and the generated kernel, for random
// specs and for layers of known networks. Not a test: it needs a GPU, and takes minutes.
//   convolution_check [specs=40] [seed] [plans=6]
// One line per spec and, below it, one per way of computing it. Exit code 1 when one is wrong.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "backend/cuda/convolution.h"
#include "backend/cuda/nvrtc.h"
#include "backend/cuda_elements.h"
#include "backend/random_convolutions.h"
#include "ulpscope/error.h"

using namespace ulpscope;
using namespace ulpscope::cuda;
using namespace ulpscope::cuda::random_convolutions;
using Kind = ConvolutionStep::Kind;

namespace {

/// The driver, as much of it as is needed.
struct Driver {
  Driver() : library(dlopen("libcuda.so.1", RTLD_NOW)) {
    if (library == nullptr) throw std::runtime_error("no libcuda.so.1");
    void* context = nullptr;
    int device = 0, major = 0, minor = 0;
    call("cuInit", 0u);
    call("cuDeviceGet", &device, 0);
    call("cuDevicePrimaryCtxRetain", &context, device);
    call("cuCtxSetCurrent", context);
    call("cuDeviceGetAttribute", &major, 75, device);
    call("cuDeviceGetAttribute", &minor, 76, device);
    architecture = fmt::format("sm_{}{}", major, minor);
    call("cuStreamCreate", &stream, 0u);
    call("cuEventCreate", &begin, 0u);
    call("cuEventCreate", &end, 0u);
  }
  template <typename... Arguments>
  void call(const char* name, Arguments... arguments) const {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
    if (function == nullptr) throw std::runtime_error(fmt::format("no {}", name));
    if (const int result = function(arguments...); result != 0)
      throw std::runtime_error(fmt::format("{} failed: {}", name, result));
  }
  /// Microseconds, the mean of `repeats`.
  template <typename Work>
  double time(int repeats, const Work& work) const {
    call("cuEventRecord", begin, stream);
    for (int i = 0; i < repeats; ++i) work();
    call("cuEventRecord", end, stream);
    call("cuStreamSynchronize", stream);
    float milliseconds = 0;
    call("cuEventElapsedTime", &milliseconds, begin, end);
    return milliseconds * 1e3 / repeats;
  }
  void* library;
  void *stream = nullptr, *begin = nullptr, *end = nullptr;
  std::string architecture;
};

struct Memory {
  Memory(const Driver& of, std::size_t size) : driver(of), bytes(size) {
    driver.call("cuMemAlloc_v2", &address, std::max<std::size_t>(size, 1));
  }
  Memory(const Driver& of, const Elements& from) : Memory(of, from.bytes.size()) {
    driver.call("cuMemcpyHtoD_v2", address, static_cast<const void*>(from.bytes.data()), bytes);
  }
  ~Memory() { driver.call("cuMemFree_v2", address); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void fill() const { driver.call("cuMemsetD8_v2", address, static_cast<unsigned char>(0xff), bytes); }
  std::vector<unsigned char> read() const {
    std::vector<unsigned char> all(bytes);
    driver.call("cuMemcpyDtoH_v2", static_cast<void*>(all.data()), address, bytes);
    return all;
  }
  const Driver& driver;
  std::size_t bytes;
  unsigned long long address = 0;
};

double value_at(const unsigned char* bytes, DataType type) {
  std::uint16_t half = 0;
  std::int32_t integer = 0;
  float single = 0;
  std::memcpy(&half, bytes, 2);
  if (type == DataType::kFloat16) return f16_value(half);
  if (type == DataType::kBFloat16) return bf16_value(half);
  std::memcpy(&integer, bytes, 4);
  std::memcpy(&single, bytes, 4);
  return type == DataType::kInt32 ? integer : single;
}

/// The correctly rounded value, and the distance to its neighbour.
std::pair<double, double> rounded(double value, DataType type) {
  if (type == DataType::kInt32) return {value, 0};
  const float single = static_cast<float>(value), odd = round_to_odd(value);
  const double r = type == DataType::kFloat16    ? round_to_f16(odd)
                   : type == DataType::kBFloat16 ? round_to_bf16(odd)
                                                 : single;
  return {r, elements::unit_at(type, r)};
}

struct Verdict {
  double equal = 0, worst = 0;  ///< The fraction of equal elements; the largest error as a part of its bound.
  bool right = false;
  std::size_t where = 0;
  double got = 0, want = 0;
};

/// A spec with its data, on both sides.
struct Problem {
  Problem(const Driver& of, ConvolutionSpec what, std::mt19937& random)
      : driver(of),
        spec(std::move(what)),
        x(random_elements(num_elements(spec.input), spec.operands, spec.tf32, random)),
        weights(random_elements(num_elements(spec.weights), spec.operands, spec.tf32, random)),
        sums(direct(spec, x, weights, std::max(1u, std::thread::hardware_concurrency()))),
        device_x(of, x),
        device_weights(of, weights),
        y(of, static_cast<std::size_t>(num_elements(spec.output)) * size_of(spec.stored)) {
    for (const ConvolutionStep& step : spec.steps) {
      const bool bias = step.kind == Kind::kBias, binary = bias || step.kind == Kind::kResidual;
      operands.push_back(
          random_elements(binary ? bias ? spec.output[1] : num_elements(spec.output) : 0, step.type, false, random));
      device_operands.push_back(binary ? std::make_unique<Memory>(of, operands.back()) : nullptr);
    }
  }
  Verdict verdict() const;
  KernelSource kernel() const;

  const Driver& driver;
  ConvolutionSpec spec;
  Elements x, weights;
  Sums sums;
  std::vector<Elements> operands;
  Memory device_x, device_weights, y;
  std::vector<std::unique_ptr<Memory>> device_operands;
};

/// 99 % correctly rounded, as far as float32 can tell (in types that it has digits to spare for), and none further than
/// 1 ulp and the error of float32 sums.
Verdict Problem::verdict() const {
  const std::vector<unsigned char> bytes = y.read();
  Verdict v;
  std::size_t equal = 0, well_rounded = 0;
  const std::size_t count = sums.sum.size();
  for (std::size_t i = 0; i < count; ++i) {
    double want = sums.sum[i], magnitude = sums.magnitude[i];
    for (std::size_t s = 0; s < spec.steps.size(); ++s) {
      const std::vector<double>& values = operands[s].values;
      const double operand = values.empty() ? 0 : values[values.size() == count ? i : i % values.size()];
      want = step_of(spec.steps[s].kind, want, operand);
      magnitude += std::fabs(operand);
    }
    const auto [correct, unit] = rounded(want, spec.stored);
    const double got = value_at(bytes.data() + i * size_of(spec.stored), spec.stored);
    const bool exact = spec.operands == DataType::kInt8 && spec.steps.empty();
    const double bound = exact ? unit / 2 : unit + 0x1p-20 * magnitude;
    const double error = std::fabs(got - (exact ? correct : want));
    const double part = got == correct || (std::isinf(got) && std::fabs(want) > 65400) ? 0
                        : bound > 0                                                    ? error / bound
                                                                                       : 1e9;
    equal += got == correct ? 1 : 0;
    well_rounded += got == correct || error <= unit / 2 + 0x1p-23 * magnitude ? 1 : 0;
    if (!(part <= v.worst)) {
      v.worst = std::isnan(part) ? 1e9 : part;
      v.where = i;
      v.got = got;
      v.want = want;
    }
  }
  v.equal = static_cast<double>(equal) / static_cast<double>(count);
  const bool digits_to_spare = spec.stored == DataType::kFloat16 || spec.stored == DataType::kBFloat16;
  v.right = v.worst <= 1 &&
            (!digits_to_spare || static_cast<double>(count - well_rounded) <= 0.01 * static_cast<double>(count) + 3);
  return v;
}

KernelSource Problem::kernel() const {
  Program program;
  std::vector<ProgramInput> loads;
  Register r = program.load(0);
  std::vector<std::int64_t> strides(spec.output.size(), 1);
  std::int64_t next = spec.output[1];
  for (std::size_t i = strides.size(); i-- > 2; next *= spec.output[i]) strides[i] = next;
  strides[0] = next;
  for (const ConvolutionStep& step : spec.steps) {
    switch (step.kind) {
      case Kind::kBias:
      case Kind::kResidual: {
        ProgramInput& load = loads.emplace_back();
        load.type = step.type;
        load.strides = strides;
        if (step.kind == Kind::kBias) {
          load.strides.assign(strides.size(), 0);
          load.strides[1] = 1;
        }
        const Register operand = program.load(static_cast<int>(loads.size()));
        r = program.apply(Instruction::kAdd, r, operand);
        break;
      }
      case Kind::kRelu:
        r = program.apply(Instruction::kRelu, r);
        break;
      case Kind::kSigmoid:
        r = program.apply(Instruction::kSigmoid, r);
        break;
      case Kind::kTanh:
        r = program.apply(Instruction::kTanh, r);
        break;
      case Kind::kSwish:
        r = program.apply(Instruction::kSwish, r, -1, 1);
        break;
      case Kind::kGelu:
        r = program.apply(Instruction::kGelu, r);
        break;
    }
  }
  const ProgramOutput output{.source = r, .type = spec.stored, .strides = strides};
  return convolution_source(spec, program, loads, std::span(&output, 1));
}

std::string describe(const ConvolutionSpec& spec) {
  static const char* const names[] = {"bias", "residual", "relu", "sigmoid", "tanh", "swish", "gelu"};
  std::string steps;
  for (const ConvolutionStep& step : spec.steps)
    steps += fmt::format(
        " {}{}", names[static_cast<int>(step.kind)],
        step.kind == Kind::kBias || step.kind == Kind::kResidual ? fmt::format(":{}", name_of(step.type)) : "");
  return fmt::format("x{} w{} groups {} {}{}->{} strides {} dilations {} pads {}{}{}", to_string(spec.input),
                     to_string(spec.weights), spec.groups, name_of(spec.operands), spec.tf32 ? "(tf32)" : "",
                     name_of(spec.stored), to_string(spec.strides), to_string(spec.dilations),
                     to_string(spec.pads_begin), to_string(spec.pads_end), steps);
}

bool report(const std::string& way, double microseconds, const Verdict& v) {
  fmt::print("    {:<44} {:9.1f} us  equal {:8.4f} %  worst {:6.3f} of the bound  {}\n", way, microseconds,
             100 * v.equal, v.worst, v.right ? "ok" : "WRONG");
  if (!v.right) fmt::print("      element {}: got {:.9g}, want {:.9g}\n", v.where, v.got, v.want);
  std::fflush(stdout);
  return v.right;
}

/// Functions of results that are stored in float32 are not asked of cuDNN: it approximates them. Nor are sums of int8
/// that it gets wrong.
bool is_asked_of_cudnn(const ConvolutionSpec& spec) {
  if (spec.operands == DataType::kInt8 && spec.weights[1] % kIntegerChannels != 0) return false;
  return spec.stored != DataType::kFloat32 || std::ranges::all_of(spec.steps, [](const ConvolutionStep& step) {
           return step.kind == Kind::kBias || step.kind == Kind::kResidual || step.kind == Kind::kRelu;
         });
}

bool check_plans(const Problem& p, ConvolutionLibrary& library, const Memory& workspace, std::size_t limit) {
  bool right = true;
  ConvolutionOperands operands{p.device_x.address, p.device_weights.address, p.y.address, {}};
  for (const auto& memory : p.device_operands) operands.steps.push_back(memory == nullptr ? 0 : memory->address);
  try {
    const auto plans = library.plans(p.spec, limit, workspace.bytes);
    if (plans.empty()) fmt::print("    cuDNN: no plan\n");
    for (const auto& plan : plans) {
      p.y.fill();
      plan->run(operands, workspace.address);
      p.driver.call("cuStreamSynchronize", p.driver.stream);
      const Verdict v = p.verdict();
      const std::vector<unsigned char> bits = p.y.read();
      const double time = p.driver.time(20, [&] { plan->run(operands, workspace.address); });
      right = report(plan->tactic(), time, v) && right;
      if (&plan != &plans.front()) continue;
      const auto again = library.plan(p.spec, plan->tactic());
      if (again != nullptr) {
        p.y.fill();
        again->run(operands, workspace.address);
        p.driver.call("cuStreamSynchronize", p.driver.stream);
      }
      if (again == nullptr || p.y.read() != bits || again->tactic() != plan->tactic()) {
        fmt::print("    {}: WRONG: {}\n", plan->tactic(),
                   again == nullptr ? "no plan from its tactic" : "other bits from its tactic");
        right = false;
      }
    }
  } catch (const Error& error) {
    fmt::print("    cuDNN: WRONG: {}\n", error.what());
    right = false;
  }
  return right;
}

bool check_kernel(const Problem& p) {
  if (p.spec.stored == DataType::kInt32) return true;  // No program stores it.
  try {
    const KernelSource source = p.kernel();
    const std::string code = compile(source.source, p.driver.architecture);
    void *module = nullptr, *function = nullptr;
    p.driver.call("cuModuleLoadData", &module, static_cast<const void*>(code.data()));
    p.driver.call("cuModuleGetFunction", &function, module, "kernel");
    const Memory weights(p.driver, for_generated_kernel(p.spec, p.weights));
    std::vector<unsigned long long> pointers{p.device_x.address, weights.address};
    for (const auto& memory : p.device_operands)
      if (memory != nullptr) pointers.push_back(memory->address);
    pointers.push_back(p.y.address);
    std::vector<void*> arguments;
    for (unsigned long long& pointer : pointers) arguments.push_back(&pointer);
    const auto run = [&] {
      p.driver.call("cuLaunchKernel", function, source.grid[0], source.grid[1], source.grid[2], source.block, 1u, 1u,
                    source.shared, p.driver.stream, arguments.data(), static_cast<void**>(nullptr));
    };
    p.y.fill();
    run();
    p.driver.call("cuStreamSynchronize", p.driver.stream);
    const Verdict v = p.verdict();
    const bool right = report("generated kernel", p.driver.time(20, run), v);
    p.driver.call("cuModuleUnload", module);
    return right;
  } catch (const Error& error) {
    fmt::print("    generated kernel: WRONG: {}\n", error.what());
    return false;
  }
}

void add_random_steps(ConvolutionSpec& spec, std::mt19937& random) {
  const Kind activations[] = {Kind::kRelu, Kind::kSigmoid, Kind::kTanh, Kind::kSwish, Kind::kGelu};
  const DataType operand = spec.operands == DataType::kInt8 || random() % 2 == 0 ? DataType::kFloat32 : spec.operands;
  const auto form = random() % 5;
  if (form > 0) spec.steps.push_back({Kind::kBias, operand});
  if (form == 2) spec.steps.push_back({Kind::kResidual, spec.stored});
  if (form == 2) spec.steps.push_back({Kind::kRelu});
  if (form > 2) spec.steps.push_back({activations[random() % 5]});
  if (form == 0 && spec.operands == DataType::kInt8 && random() % 2 == 0) spec.stored = DataType::kInt32;
}

/// A square layer at batch 8 that keeps its size, or halves it.
ConvolutionSpec layer(std::int64_t channels, std::int64_t outputs, std::int64_t groups, std::int64_t extent,
                      std::int64_t taps, std::int64_t stride, DataType type, std::vector<ConvolutionStep> steps) {
  const std::int64_t half = taps / 2, to = (extent + 2 * half - taps) / stride + 1;
  ConvolutionSpec spec{.input = {8, channels, extent, extent},
                       .weights = {outputs, channels / groups, taps, taps},
                       .output = {8, outputs, to, to},
                       .strides = {stride, stride},
                       .dilations = {1, 1},
                       .pads_begin = {half, half},
                       .pads_end = {half, half}};
  spec.groups = groups;
  spec.operands = type;
  spec.stored = type == DataType::kInt8 ? DataType::kFloat16 : type;
  spec.steps = std::move(steps);
  return spec;
}

std::vector<ConvolutionSpec> known_layers() {
  const DataType h = DataType::kFloat16;
  const ConvolutionStep bias{Kind::kBias, h}, relu{Kind::kRelu}, residual{Kind::kResidual, h}, swish{Kind::kSwish};
  std::vector<ConvolutionSpec> all{
      layer(64, 64, 1, 56, 3, 1, h, {bias, relu}),
      layer(64, 64, 1, 56, 3, 1, h, {{Kind::kBias}, relu}),
      layer(64, 256, 1, 56, 1, 1, h, {bias, residual, relu}),
      layer(3, 64, 1, 224, 7, 2, h, {bias, relu}),
      layer(4, 64, 1, 224, 7, 2, h, {bias, relu}),
      layer(96, 96, 96, 56, 3, 1, h, {bias, relu}),
      layer(96, 96, 96, 112, 3, 2, h, {bias, relu}),
      layer(144, 144, 144, 56, 5, 2, h, {bias, swish}),
      layer(384, 384, 384, 14, 7, 1, h, {bias}),
      layer(128, 128, 32, 56, 3, 1, h, {bias, relu}),
      layer(64, 64, 1, 56, 3, 1, DataType::kBFloat16, {{Kind::kBias, DataType::kBFloat16}, relu}),
      layer(64, 64, 1, 56, 3, 1, DataType::kFloat32, {{Kind::kBias}, relu}),
      layer(64, 64, 1, 56, 3, 1, DataType::kInt8, {{Kind::kBias}, relu})};
  all.push_back(all[11]);
  all.back().tf32 = true;
  return all;
}

int check(int specs, std::uint32_t seed, std::size_t plans) {
  const Driver driver;
  ConvolutionLibrary library(driver.stream);
  const Memory workspace(driver, std::size_t{64} << 20);
  std::mt19937 random(seed);
  fmt::print("{} cuDNN {} NVRTC {}; seed {}\n", driver.architecture, library.version(), nvrtc_version(), seed);
  std::vector<ConvolutionSpec> all = known_layers();
  for (int i = 0; i < specs; ++i) add_random_steps(all.emplace_back(random_spec(random, 160, 24)), random);
  int wrong = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    fmt::print("{}: {}\n", i, describe(all[i]));
    const Problem problem(driver, all[i], random);
    const bool planned = !is_asked_of_cudnn(problem.spec) || check_plans(problem, library, workspace, plans);
    const bool generated = check_kernel(problem);
    wrong += planned && generated ? 0 : 1;
  }
  fmt::print("{} of {} specs wrong (seed {})\n", wrong, all.size(), seed);
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  try {
    const auto number = [&](int i, unsigned long otherwise) {
      return count > i ? std::strtoul(words[i], nullptr, 10) : otherwise;
    };
    return check(static_cast<int>(number(1, 40)), static_cast<std::uint32_t>(number(2, std::random_device{}())),
                 number(3, 6));
  } catch (const std::exception& error) {
    fmt::print("stopped: {}\n", error.what());
    return 1;
  }
}
