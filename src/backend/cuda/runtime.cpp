#include "backend/cuda/runtime.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <thread>

#include "backend/cuda/nvrtc.h"
#include "core/messages.h"
#include "core/parallel.h"
#include "formats/stored_elements.h"
#include "ulpscope/error.h"

namespace ulpscope::cuda {

Runtime& Runtime::get() {
  // Never destroyed, as the device.
  static Runtime* const runtime = new Runtime;
  return *runtime;
}

MatrixLibrary& Runtime::matrices() {
  if (matrices_ == nullptr) matrices_ = std::make_unique<MatrixLibrary>();
  return *matrices_;
}

ConvolutionLibrary& Runtime::convolutions() {
  if (convolutions_ == nullptr) convolutions_ = std::make_unique<ConvolutionLibrary>(device_.stream());
  return *convolutions_;
}

namespace {

void warn_of_slow_convolutions(const Error& error) {
  log_once(LogLevel::kWarning, "convolutions run as generated kernels, which are slower: {}", error.what());
}

}  // namespace

void Runtime::start() {
  // Large files, which need nothing of the driver to be opened.
  std::thread libraries([] {
    for (std::string (*const version)() : {&MatrixLibrary::version, &ConvolutionLibrary::version, &nvrtc_version}) try {
        version();
      } catch (const Error&) {
        // Whoever needs it says so.
      }
  });
  try {
    Device::get();
  } catch (...) {
    libraries.join();
    throw;
  }
  libraries.join();
  const auto lock = Device::get().lock();
  get().matrices();
}

std::string Runtime::cudnn_version() {
  try {
    return ConvolutionLibrary::version();
  } catch (const Error& error) {
    warn_of_slow_convolutions(error);
    return "none";
  }
}

TacticCache& Runtime::tactics() {
  if (tactics_ == nullptr) {
    int version = 0;
    driver().driver_version(&version);
    tactics_ = std::make_unique<TacticCache>(fmt::format("{}-driver{}-cublas{}-cudnn{}", device_.name(), version,
                                                         MatrixLibrary::version(), cudnn_version()));
  }
  return *tactics_;
}

const std::string& Runtime::identity() {
  if (identity_.empty())
    identity_ = fmt::format("{}, cuBLASLt {}, cuDNN {}", device_.name(), MatrixLibrary::version(), cudnn_version());
  return identity_;
}

namespace {

/// What no plan uses gives way to it.
std::shared_ptr<const DeviceMemory> weight_memory(WeightCache& weights, std::size_t bytes) {
  weights.make_device_room(bytes);
  try {
    return std::make_shared<const DeviceMemory>(bytes);
  } catch (const Error&) {
    weights.drop_unused_on_device();
  }
  return std::make_shared<const DeviceMemory>(bytes);
}

}  // namespace

std::shared_ptr<const DeviceMemory> Runtime::constant(WeightCache& weights, const std::string& key,
                                                      const std::function<Tensor()>& make) {
  return std::static_pointer_cast<const DeviceMemory>(weights.get_object(key, [&] {
    const Tensor value = make();
    Tensor keep;
    const void* const elements = stored_elements(value, keep);
    const auto memory = weight_memory(weights, value.bytes());
    device_.upload(memory->address(), elements, value.bytes());
    device_.wait();
    return PreparedObject{memory, memory->bytes(), true};
  }));
}

std::shared_ptr<const DeviceMemory> Runtime::matrices(WeightCache& weights, const std::string& key,
                                                      std::span<const StoredMatrix> parts, DataType type,
                                                      const std::function<Tensor()>&) {
  return std::static_pointer_cast<const DeviceMemory>(weights.get_object(key, [&] {
    std::int64_t elements = 0;
    for (const StoredMatrix& matrix : parts) elements += matrix.rows * matrix.columns;
    const auto memory = weight_memory(weights, static_cast<std::size_t>(elements) * size_of(type));
    Address to = memory->address();
    for (const StoredMatrix& matrix : parts) {
      put_matrix(matrix, type, to);
      to += static_cast<Address>(matrix.rows * matrix.columns) * size_of(type);
    }
    device_.wait();
    return PreparedObject{memory, memory->bytes(), true};
  }));
}

/// As many rows at a time as the workspace holds.
void Runtime::put_matrix(const StoredMatrix& matrix, DataType type, Address to) {
  Tensor keep;
  const auto* const elements = static_cast<const std::byte*>(stored_elements(matrix.elements, keep));
  const std::size_t row = static_cast<std::size_t>(matrix.columns) * sizeof(float);
  const std::int64_t most = std::max<std::int64_t>(1, static_cast<std::int64_t>((kWorkspace - kMatrixPartBytes) / row));
  const auto workspace = device_.workspace(std::max(kWorkspace, kMatrixPartBytes + row));
  for (std::int64_t first = 0; first < matrix.rows; first += most) {
    const MatrixPart part{std::min(most, matrix.rows - first), matrix.columns, first, matrix.rows, matrix.turned};
    const Address at = workspace->address();
    device_.upload(at, &part, sizeof part);
    device_.upload(at + kMatrixPartBytes, elements + static_cast<std::size_t>(first) * row,
                   static_cast<std::size_t>(part.rows) * row);
    const NamedSource source(matrix_source(type, part));
    device_.launch(source, device_.function(source), std::array{at, to});
  }
  release_elements(matrix.elements);
}

std::string text_of(const ConvolutionSpec& s) {
  std::string steps;
  for (const ConvolutionStep& step : s.steps)
    steps += fmt::format(" {}{}", static_cast<int>(step.kind), name_of(step.type));
  return fmt::format("convolution {} by {} to {} strides {} dilations {} pads {} {} groups {} {}{}->{}{}",
                     fmt::join(s.input, "x"), fmt::join(s.weights, "x"), fmt::join(s.output, "x"),
                     fmt::join(s.strides, ","), fmt::join(s.dilations, ","), fmt::join(s.pads_begin, ","),
                     fmt::join(s.pads_end, ","), s.groups, name_of(s.operands), s.tf32 ? " tf32" : "",
                     name_of(s.stored), steps);
}

bool Runtime::has_product(const MatrixProductSpec& spec) {
  const std::string key = spec.text();
  if (tactics().find(key)) return true;
  const auto known = has_.find(key);
  if (known != has_.end()) return known->second;
  return has_[key] = !matrices().products(spec, 1, kWorkspace).empty();
}

bool Runtime::knows(const ConvolutionSpec& spec) {
  const std::string key = text_of(spec);
  return has_.contains(key) || tactics().find(key).has_value();
}

bool Runtime::has_convolution(const ConvolutionSpec& spec) {
  const std::string key = text_of(spec);
  if (tactics().find(key)) return true;
  if (!has_.contains(key)) look_for({&spec, 1});
  return has_[key];
}

void Runtime::look_for(std::span<const ConvolutionSpec> specs) {
  std::vector<std::vector<std::unique_ptr<ConvolutionPlan>>> found(specs.size());
  if (has_cudnn())
    run_tasks(0, specs.size(), share_threads(specs.size(), 0, 0), [&](std::size_t i) {
      device_.enter();
      found[i] = plans_of(specs[i]);
    });
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::string key = text_of(specs[i]);
    has_[key] = !found[i].empty();
    if (!found[i].empty()) candidates_[key] = std::move(found[i]);
  }
}

bool Runtime::has_cudnn() {
  try {
    convolutions();
    return true;
  } catch (const Error& error) {
    warn_of_slow_convolutions(error);
    return false;
  }
}

std::vector<std::unique_ptr<ConvolutionPlan>> Runtime::plans_of(const ConvolutionSpec& spec) const {
  try {
    return convolutions_->plans(spec, kConvolutions, kWorkspace);
  } catch (const Error& error) {
    log_verbose(fmt::format("cuDNN: {}", error.what()));
    return {};
  }
}

std::vector<std::unique_ptr<ConvolutionPlan>> Runtime::candidates(const ConvolutionSpec& spec) {
  auto made = candidates_.extract(text_of(spec));
  return made.empty() ? convolutions().plans(spec, kConvolutions, kWorkspace) : std::move(made.mapped());
}

namespace {

/// `make` gives what is not there yet, or nothing; what asks for more than the workspace is none.
template <typename Made, typename Make>
std::shared_ptr<const Made> found_or_made(
    std::map<std::pair<std::string, std::string>, std::shared_ptr<const Made>>& known, const std::string& key,
    const std::string& algorithm, const Make& make) {
  if (const auto found = known.find({key, algorithm}); found != known.end()) return found->second;
  std::shared_ptr<const Made> result = make();
  if (result == nullptr || result->workspace_bytes() > Runtime::kWorkspace) return nullptr;
  return known[{key, algorithm}] = std::move(result);
}

}  // namespace

std::shared_ptr<const MatrixLibrary::Product> Runtime::made(const MatrixProductSpec& spec,
                                                            const std::string& algorithm) {
  return found_or_made(products_, spec.text(), algorithm, [&] { return matrices().product(spec, algorithm); });
}

std::shared_ptr<const ConvolutionPlan> Runtime::made(const ConvolutionSpec& spec, const std::string& algorithm) {
  return found_or_made(plans_, text_of(spec), algorithm, [&] { return convolutions().plan(spec, algorithm); });
}

std::shared_ptr<const MatrixLibrary::Product> Runtime::chosen(const MatrixProductSpec& spec) {
  const std::string key = spec.text();
  const auto tactic = tactics().find(key);
  if (!tactic) return nullptr;
  return found_or_made(products_, key, tactic->algorithm, [&] { return matrices().product(spec, tactic->algorithm); });
}

std::shared_ptr<const ConvolutionPlan> Runtime::chosen(const ConvolutionSpec& spec) {
  const auto tactic = tactics().find(text_of(spec));
  return tactic ? made(spec, tactic->algorithm) : nullptr;
}

void Runtime::choose(const MatrixProductSpec& spec, std::shared_ptr<const MatrixLibrary::Product> product,
                     double microseconds) {
  const std::string key = spec.text(), algorithm = product->tactic();
  tactics().put(key, {algorithm, microseconds});
  products_[{key, algorithm}] = std::move(product);
}

void Runtime::choose(const ConvolutionSpec& spec, std::shared_ptr<const ConvolutionPlan> plan, double microseconds) {
  const std::string key = text_of(spec), algorithm = plan->tactic();
  tactics().put(key, {algorithm, microseconds});
  plans_[{key, algorithm}] = std::move(plan);
}

}  // namespace ulpscope::cuda
