#include "runtime/measure_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "core/parallel.h"
#include "engine/cost.h"
#include "engine/group_times.h"
#include "engine/option_names.h"
#include "ops/layer_writer.h"
#include "runtime/measured_plan.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

/// Small numbers of both signs.
Tensor filled(const Shape& shape) {
  Tensor tensor(DataType::kFloat32, shape);
  for (std::int64_t i = 0; i < tensor.size(); ++i)
    tensor.data<float>()[i] = static_cast<float>(i * 7 % 13 - 6) * 0.125f;
  return tensor;
}

/// "x", and what `layer` makes of the one before, `count` times.
Network row_of_layers(const Shape& shape, int count, const std::function<TensorId(LayerWriter&, TensorId)>& layer) {
  Network network;
  LayerWriter writer(network, 13);
  TensorId last = writer.input("x", shape);
  for (int i = 0; i < count; ++i) {
    last = layer(writer, last);
    network.tensor(last).shape = shape;
  }
  network.outputs = {last};
  return network;
}

TensorId negated(LayerWriter& writer, TensorId last) { return writer.negate(last); }

BuildOptions plain_options(const std::string& backend, int threads) {
  BuildOptions build;
  build.backend = backend;
  build.threads = threads;
  build.fusion = Fusion::kNone;
  build.assume_lowest = true;
  return build;
}

/// The best of products of square matrices, until one takes long enough for its launch not to matter.
double measured_tflops(BuildOptions build, Precision precision) {
  constexpr double kLong = 2000;
  if (precision != Precision::kFP32) build.enabled.set(precision);
  build.scales = {{"x", 0.125f}, {"MatMul_0", 0.125f}};
  double best = 0;
  for (std::int64_t side = 256; side <= 8192; side *= 2) {
    const Tensor x = filled({side, side});
    const Network row = row_of_layers(x.shape(), 1, [&](LayerWriter& writer, TensorId last) {
      return writer.product(last, writer.initializer("w", x));
    });
    const double us = MeasuredPlan(row, build, {&x, 1}).longest_us();
    if (us > 0) best = std::max(best, 2.0 * std::pow(static_cast<double>(side), 3) / us * 1e-6);
    if (us > kLong) break;
  }
  return best;
}

/// Of a layer that reads and writes more than caches hold.
double measured_bandwidth(const BuildOptions& build) {
  constexpr std::int64_t kElements = 32 << 20;
  const Tensor x = filled({kElements});
  const Network row = row_of_layers(x.shape(), 1, &negated);
  return 2.0 * static_cast<double>(x.bytes()) / MeasuredPlan(row, build, {&x, 1}).longest_us() * 1e-3;
}

/// Of layers that do next to nothing, one after the other.
double measured_launch(const BuildOptions& build) {
  constexpr int kLayers = 64;
  const Tensor x = filled({8});
  return MeasuredPlan(row_of_layers(x.shape(), kLayers, &negated), build, {&x, 1}).whole_us() / kLayers;
}

/// Four digits behind the point say more than clocks do, and files stay readable.
double rounded(double us) { return std::round(us * 1e4) * 1e-4; }

/// Sums of times by kernel and precision.
using TimeSums = std::map<std::pair<std::string, std::string>, std::pair<double, int>>;

/// What casts of mixtures take, and what they would take as passes of their own.
struct CastTimes {
  double steps_us = 0;   ///< Of steps that do nothing else.
  double beyond_us = 0;  ///< What mixtures take beyond their groups, these steps included.
  double product_passes_us = 0, other_passes_us = 0;

  /// Where steps convert, they do so for products; what is left, if anything, others take on the way.
  void share_out(double factor, double converting_factor, Target& target) const {
    const auto share = [](double us, double passes) {
      return passes > 0 ? rounded(std::clamp(us / passes, 0.0, 2.0)) : 0.0;
    };
    const double passes = product_passes_us + other_passes_us;
    if (passes <= 0) return;
    const bool apart = steps_us > 0 && product_passes_us > 0;
    target.product_cast_share =
        apart ? share(converting_factor * steps_us, product_passes_us) : share(factor * beyond_us, passes);
    target.cast_share = apart ? share(factor * (beyond_us - steps_us), other_passes_us) : target.product_cast_share;
  }
};

/// One assignment.
struct MeasuredRun {
  double steps_us = 0;       ///< Of all steps by themselves,
  double converting_us = 0;  ///< of those that convert,
  double whole_us = 0;       ///< and of all as one run of the device; 0: it has no clock.
  double weights_mb = 0;     ///< As TimeModel::weights_mb().
};

/// How steps by themselves add up to a run: factor * other steps + converting_factor * those that convert +
/// weight_us_per_mb * max(0, weights - cached_mb).
struct StepScaling {
  double factor = 1, converting_factor = 1, weight_us_per_mb = 0, cached_mb = 0;
};

/// The least squares solution of rows * x = targets; nothing where it is not determined.
template <std::size_t N>
std::optional<std::array<double, N>> least_squares(std::span<const std::array<double, N>> rows,
                                                   std::span<const double> targets) {
  std::array<std::array<double, N + 1>, N> a{};  // Normal equations.
  std::array<double, N> size{};
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::size_t i = 0; i < N; ++i) {
      for (std::size_t j = 0; j < N; ++j) a[i][j] += rows[r][i] * rows[r][j];
      a[i][N] += rows[r][i] * targets[r];
      size[i] += rows[r][i] * rows[r][i];
    }
  for (std::size_t i = 0; i < N; ++i) {
    // What is left of a column once the others are taken out; the matrix is symmetric and has no negative pivots.
    if (a[i][i] <= 1e-9 * size[i]) return std::nullopt;
    for (std::size_t k = 0; k < N; ++k) {
      if (k == i) continue;
      const double factor = a[k][i] / a[i][i];
      for (std::size_t j = i; j <= N; ++j) a[k][j] -= factor * a[i][j];
    }
  }
  std::array<double, N> result;
  for (std::size_t i = 0; i < N; ++i) result[i] = a[i][N] / a[i][i];
  return result;
}

/// A step by itself finds its weights in the cache, which a run with more of them does not; and steps that convert
/// overlap with their neighbors.
StepScaling scaling_of(std::span<const MeasuredRun> runs) {
  double steps = 0, whole = 0, most = 0;
  std::vector<double> wholes;
  for (const MeasuredRun& run : runs) {
    steps += run.steps_us;
    whole += run.whole_us;
    most = std::max(most, run.weights_mb);
    wholes.push_back(run.whole_us);
  }
  if (whole <= 0 || steps <= 0) return {};
  /// With converting steps at this share of others.
  const auto weighed = [&](double share) {
    StepScaling result;
    std::vector<std::array<double, 3>> rows;
    double sum = 0;
    for (const MeasuredRun& run : runs) {
      rows.push_back({run.steps_us - (1 - share) * run.converting_us, run.weights_mb, 1.0});
      sum += rows.back()[0];
    }
    result.factor = whole / sum;
    // What the weights explain begins at some size, and grows.
    if (const auto found = least_squares<3>(rows, wholes)) {
      const auto [factor, per_mb, constant] = *found;
      if (factor >= 0.5 && per_mb > 0 && constant <= 0 && -constant / per_mb < most)
        result = {.factor = factor, .weight_us_per_mb = per_mb, .cached_mb = -constant / per_mb};
    }
    result.converting_factor = share * result.factor;
    return result;
  };
  constexpr std::size_t kEnough = 12;
  if (runs.size() < kEnough) return weighed(1);
  std::vector<std::array<double, 4>> rows;
  for (const MeasuredRun& run : runs)
    rows.push_back({run.steps_us - run.converting_us, run.converting_us, run.weights_mb, 1.0});
  const auto found = least_squares<4>(rows, wholes);
  return weighed(found && (*found)[0] > 0 ? std::clamp((*found)[1] / (*found)[0], 0.3, 1.0) : 1.0);
}

/// Adds the groups of one assignment; returns how many have no time.
int add_times(const MeasuredPlan& measured, Fusion fusion, TimeSums& sums, MeasuredRun& run) {
  const Specialization& spec = measured.spec();
  const Grouping grouping = fuse(spec, measured.assignment(), fusion);
  std::vector<double> taken(grouping.groups.size(), 0);
  std::vector<char> has_steps(grouping.groups.size(), 0);
  for (const StepTime& step : measured.steps()) {
    run.steps_us += step.microseconds;
    if (step.converts) {
      run.converting_us += step.microseconds;
      continue;
    }
    const int group = step.layer == kNone ? int{kNone} : grouping.group_of[step.layer];
    if (group < 0) continue;
    taken[group] += step.microseconds;
    has_steps[group] = 1;
  }
  const std::optional<double> whole = measured.device_us();
  run.whole_us = whole.value_or(0);
  // The first of several that are computed as one has all of their time.
  for (const std::vector<std::size_t>& groups : products_of_one_operand(spec, grouping, &measured.assignment())) {
    double sum = 0;
    for (const std::size_t g : groups) sum += taken[g];
    for (const std::size_t g : groups) taken[g] = sum / static_cast<double>(groups.size()), has_steps[g] = 1;
  }
  int left_out = 0;
  const std::vector<int> together = count_together(spec, grouping, &measured.assignment());
  for (std::size_t g = 0; g < grouping.groups.size(); ++g) {
    const Group& group = grouping.groups[g];
    const std::string kernel = kernel_text(spec, group);
    // Values that stay where they are; or what another group computes on the way.
    const bool free = whole || std::ranges::all_of(group.layers, [&](LayerId id) {
                        return spec.network->layer(id).op->precision == PrecisionRule::kMovement;
                      });
    if (kernel.empty() || (!has_steps[g] && !free)) {
      ++left_out;
      continue;
    }
    const std::string_view precision = group_precision(spec, group, measured.assignment());
    auto& [sum, count] = sums[{kernel, timed_precision(precision, together[g])}];
    sum += taken[g];
    ++count;
  }
  return left_out;
}

/// Every layer as low as it may be, but for those that ask for float32.
BuildOptions lowest_options(const BuildOptions& given, Precision precision) {
  BuildOptions build = given;
  build.enabled = build.on_request = {};
  if (precision != Precision::kFP32) build.enabled.set(precision);
  // What a layer stores that reads elements is a narrow float where there is one.
  for (const Precision p : given.enabled.members())
    if (!is_float(precision) && is_rung(form_of(p)) && storage_of(p) != DataType::kFloat32) build.enabled.set(p);
  build.assume_lowest = true;
  build.constraints = ConstraintMode::kPrefer;
  return build;
}

}  // namespace

std::string date_of_today() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  char text[16];
  std::tm parts{};
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d", gmtime_r(&now, &parts))};
}

Target measure_rates(const std::string& backend, int threads, const std::string& program,
                     const MeasureProgress& progress) {
  set_num_threads(threads);
  const DeviceDescription device = find_backend(backend).device();
  const BuildOptions build = plain_options(backend, threads);
  Target target;
  target.name = fmt::format("{} (measured)", device.name);
  target.origin = Target::Origin{program, date_of_today(), backend, device.name, num_threads(), device.libraries};
  for (const LayerForm& form : layer_forms()) {
    if (form.products_only && !form.is_float()) continue;  // Emulated: nobody has them so.
    progress(fmt::format("products in {}", form.name));
    target.tflops[static_cast<std::size_t>(form.precision)] = measured_tflops(build, form.precision);
  }
  progress("bandwidth");
  target.bandwidth_gb_per_s = measured_bandwidth(build);
  progress("launches");
  target.launch_us = rounded(measured_launch(build));
  return target;
}

GroupCount measure_groups(const Network& network, const BuildOptions& given, std::span<const Tensor> inputs,
                          Target& target, const MeasureProgress& progress) {
  // At most; fewer when they bring nothing new. What a group takes depends on its neighbors somewhat: a mean of many.
  constexpr int kMixtures = 32;
  constexpr std::chrono::seconds kLongEnough(30);
  set_num_threads(given.threads);
  auto timed =
      target.timed != nullptr ? std::make_shared<TimedKernels>(*target.timed) : std::make_shared<TimedKernels>();
  GroupCount count;
  Network free = network;
  for (Layer& layer : free.layers) {
    layer.precision.reset();
    layer.output_types.clear();
  }
  CastTimes casts;
  TimeSums sums;
  std::vector<MeasuredRun> runs;
  /// Returns how many times are new.
  const auto measure = [&](const Network& asking, const BuildOptions& build) {
    const std::size_t known = sums.size();
    const MeasuredPlan measured(asking, build, inputs);
    MeasuredRun& run = runs.emplace_back();
    count.left_out = std::max(count.left_out, add_times(measured, build.fusion, sums, run));
    for (const auto& [key, sum] : sums) (*timed)[key.first][key.second] = sum.first / sum.second;
    target.timed = timed;
    const TimeModel model(measured.spec(), build.fusion, target);
    const TimeModel::Casts passes = model.casts(measured.assignment());
    run.weights_mb = model.weights_mb(measured.assignment());
    casts.steps_us += run.converting_us;
    casts.beyond_us += run.steps_us - (model(measured.assignment()) - passes.total_us);
    casts.product_passes_us += passes.product_passes_us;
    casts.other_passes_us += passes.other_passes_us;
    return sums.size() - known;
  };
  std::vector<Precision> lowest{Precision::kFP32};
  for (const Precision p : given.enabled.members()) lowest.push_back(p);
  for (const Precision p : lowest) {
    progress(fmt::format("groups in {}", name_of(p)));
    measure(free, lowest_options(given, p));
  }
  casts = {};  // Of mixtures alone, where casts are many.
  std::mt19937 random(1);
  for (const Precision p : lowest) {
    if (p == Precision::kFP32) continue;
    progress(fmt::format("groups of mixtures of {} and fp32", name_of(p)));
    const auto start = std::chrono::steady_clock::now();
    for (int mixture = 0; mixture < kMixtures; ++mixture) {
      Network mixed = free;
      for (Layer& layer : mixed.layers)
        if (layer.op->precision == PrecisionRule::kCompute && (random() & 1u) != 0) layer.precision = Precision::kFP32;
      if (measure(mixed, lowest_options(given, p)) == 0 || std::chrono::steady_clock::now() - start > kLongEnough)
        break;
    }
  }
  const StepScaling scaling = scaling_of(runs);
  for (const auto& [key, sum] : sums)
    (*timed)[key.first][key.second] = rounded(scaling.factor * sum.first / sum.second);
  casts.share_out(scaling.factor, scaling.converting_factor, target);
  target.weight_us_per_mb = rounded(scaling.weight_us_per_mb);
  target.cached_mb = rounded(scaling.cached_mb);
  count.kernels = static_cast<int>(timed->size());
  target.timed = std::move(timed);
  return count;
}

}  // namespace ulpscope
