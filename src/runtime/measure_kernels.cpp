#include "runtime/measure_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <utility>

#include "backend/backend.h"
#include "core/division.h"
#include "core/messages.h"
#include "engine/assign.h"
#include "engine/cost.h"
#include "runtime/kernel_probes.h"
#include "runtime/measured_plan.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

/// A probe that asks for what its time is of.
struct AskingProbe {
  Network network;
  BuildOptions build;
  Shape input;
};

AskingProbe asking(KernelProbe probe, const ProbeTime& time, const std::string& backend) {
  BuildOptions build;
  build.backend = backend;
  build.assume_lowest = true;
  build.constraints = ConstraintMode::kPrefer;
  build.enabled = time.precisions;
  constexpr float kScale = 0.05f;
  for (const TensorInfo& tensor : probe.network.tensors)
    if (is_floating(tensor.type)) build.scales[tensor.name] = kScale;
  if (time.mixed) {
    std::mt19937 random(static_cast<std::uint32_t>(time.probe));
    for (Layer& layer : probe.network.layers)
      if (layer.op->precision == PrecisionRule::kCompute && (random() & 1u) != 0) layer.precision = Precision::kFP32;
  }
  return {std::move(probe.network), std::move(build), probe.input};
}

/// In which every network is measured, with how many networks pass until it is again.
struct Way {
  PrecisionSet precisions;
  bool mixed;
  int every, first;
};
const std::vector<Way>& ways(int probe) {
  static const std::vector<Way> kOfFewRows{{{Precision::kFP16}, false, 1, 0},
                                           {{Precision::kINT4, Precision::kFP16}, false, 1, 0},
                                           {{Precision::kINT4Block32, Precision::kFP16}, false, 2, 0},
                                           {{Precision::kINT8Weights, Precision::kFP16}, false, 1, 0},
                                           {{Precision::kFP8Weights, Precision::kFP16}, false, 1, 0},
                                           {{Precision::kNVFP4Weights, Precision::kFP16}, false, 1, 0}};
  static const std::vector<Way> kWays{{{}, false, 1, 0},
                                      {{Precision::kFP16}, false, 1, 0},
                                      {{Precision::kINT8}, false, 1, 0},
                                      {{Precision::kFP16}, true, 3, 0},
                                      {{Precision::kINT8, Precision::kFP16}, false, 3, 1},
                                      {{Precision::kFP8, Precision::kFP16}, false, 3, 0},
                                      {{Precision::kTF32}, false, 3, 2}};
  return probe >= kFirstOfFewRows && probe < kFirstOfGroups ? kOfFewRows : kWays;
}

/// What one time is of: per kind and precision the sums of the terms, and what memory takes of it.
struct ProbeWork {
  std::map<std::pair<KernelKind, Precision>, KernelTerms> sums{};
  double memory_us = 0;
};

/// Calls `use` with the times that the target tells, and with what the probe's layers have.
template <typename Use>
auto with_model(const ProbeTime& time, const Target& target, const Use& use) {
  const AskingProbe probe = asking(kernel_probe(time.probe), time, "cpu");
  const auto spec = specialize(probe.network, {probe.input});
  return use(TimeModel(*spec, probe.build.fusion, target), assign_precisions(*spec, probe.build));
}

ProbeWork work_of(const ProbeTime& time, const Target& target) {
  return with_model(time, target, [&](const TimeModel& model, const Assignment& assignment) {
    ProbeWork result;
    result.memory_us = target.weight_us_per_mb * std::max(0.0, model.weights_mb(assignment) - target.cached_mb);
    for (const KernelWork& work : model.kernels(assignment)) {
      KernelTerms& sum = result.sums[{work.kind, work.precision}];
      for (std::size_t t = 0; t < kKernelTerms; ++t) sum[t] += work.terms[t];
      result.memory_us += target.uncached_us(work);
    }
    return result;
  });
}

/// x >= 0 with the least sum of squares of rows * x - wanted, by going through its coordinates in turn. `weights`: of
/// rows.
std::vector<double> nonnegative_squares(const std::vector<std::vector<double>>& rows, const std::vector<double>& wanted,
                                        const std::vector<double>& weights) {
  const std::size_t n = rows.front().size();
  std::vector<std::vector<double>> a(n, std::vector<double>(n));
  std::vector<double> b(n), x(n);
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::size_t i = 0; i < n; ++i) {
      b[i] += weights[r] * rows[r][i] * wanted[r];
      for (std::size_t j = 0; j < n; ++j) a[i][j] += weights[r] * rows[r][i] * rows[r][j];
    }
  constexpr int kRounds = 20000;
  for (int round = 0; round < kRounds; ++round)
    for (std::size_t i = 0; i < n; ++i) {
      if (a[i][i] <= 0) continue;
      double rest = b[i];
      for (std::size_t j = 0; j < n; ++j) rest -= a[i][j] * x[j];
      x[i] = std::max(0.0, x[i] + rest / a[i][i]);
    }
  return x;
}

/// Nothing where the CPU takes part, or where the device does not run it: the others tell enough.
std::optional<double> time_of(const AskingProbe& probe, const Tensor& x, const std::string& name) {
  try {
    return MeasuredPlan(probe.network, probe.build, {&x, 1}).device_us();
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kInterrupted) throw;
    log_warning("[target] {}: left out: {}", name, e.what());
    return std::nullopt;
  }
}

double at_share(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

}  // namespace

ProbeTimes measure_probes(const std::string& backend, int probes, const std::string& program,
                          const MeasureProgress& progress, const std::function<void(const ProbeTimes&)>& done) {
  const DeviceDescription device = find_backend(backend).device();
  ProbeTimes result{{program, date_of_today(), backend, device.name, 0, device.libraries}, {}};
  // One of few rows, and one of groups, for so many others.
  constexpr int kOthers = 8;
  std::vector<int> numbers(static_cast<std::size_t>(probes));
  std::iota(numbers.begin(), numbers.end(), 0);
  for (int i = 0; i < divided_up(probes, kOthers); ++i) {
    numbers.push_back(kFirstOfFewRows + i);
    numbers.push_back(kFirstOfGroups + i);
  }
  for (std::size_t place = 0; place < numbers.size(); ++place) {
    const int number = numbers[place];
    const KernelProbe probe = kernel_probe(number);
    progress(fmt::format("{} of {}: {}", place + 1, numbers.size(), probe.name));
    for (const Way& way : ways(number)) {
      if (number % way.every != way.first) continue;
      ProbeTime time{number, way.precisions, way.mixed, 0};
      const AskingProbe asked = asking(kernel_probe(number), time, backend);
      Tensor x(DataType::kFloat32, asked.input);
      for (std::int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = static_cast<float>(i * 7 % 13 - 6) * 0.125f;
      const std::optional<double> us = time_of(asked, x, probe.name);
      if (!us) continue;
      time.us = *us;
      result.times.push_back(time);
    }
    done(result);
  }
  return result;
}

double estimate_probe(const ProbeTime& time, const Target& target) {
  return with_model(time, target,
                    [](const TimeModel& model, const Assignment& assignment) { return model(assignment); });
}

KernelModel fit_kernels(const ProbeTimes& measured, const Target& given) {
  constexpr std::size_t kFewest = 20;
  if (measured.times.size() < kFewest)
    throw invalid_argument("[target] expected times of {} networks or more, got {}", kFewest, measured.times.size());
  Target target = given;
  target.kernels = std::make_shared<KernelModel>();  // What is stored between kernels is as such targets have it.
  std::vector<ProbeWork> works;
  std::map<std::pair<std::pair<KernelKind, Precision>, std::size_t>, std::size_t> columns;
  for (const ProbeTime& time : measured.times) {
    works.push_back(work_of(time, target));
    for (const auto& [kernel, terms] : works.back().sums)
      for (std::size_t t = 0; t < kKernelTerms; ++t)
        if (terms[t] > 0) columns.try_emplace({kernel, t}, columns.size());
  }
  // Nothing computes faster than the target's peak, however few of the probes show it.
  std::vector<double> least(columns.size());
  for (const auto& [place, column] : columns)
    if (const double rate = target.rate(place.first.second);
        place.second == static_cast<std::size_t>(KernelTerm::kGop) && rate > 0)
      least[column] = 1e3 / rate;
  std::vector<std::vector<double>> rows;
  std::vector<double> wanted;
  for (std::size_t r = 0; r < works.size(); ++r) {
    const double us = measured.times[r].us;
    wanted.push_back(1 - works[r].memory_us / us);
    rows.emplace_back(columns.size(), 0.0);
    for (const auto& [kernel, terms] : works[r].sums)
      for (std::size_t t = 0; t < kKernelTerms; ++t)
        if (terms[t] > 0) rows.back()[columns.at({kernel, t})] = terms[t] / us;
    for (std::size_t c = 0; c < least.size(); ++c) wanted.back() -= rows.back()[c] * least[c];
  }
  std::vector<double> weights(rows.size(), 1.0), errors(rows.size());
  std::vector<double> factors;
  // What lies far off counts less the next time: single kernels are what they are.
  constexpr int kTimes = 6;
  constexpr double kClose = 0.1;
  for (int time = 0; time < kTimes; ++time) {
    factors = nonnegative_squares(rows, wanted, weights);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      double estimated = 0;
      for (std::size_t c = 0; c < factors.size(); ++c) estimated += rows[r][c] * factors[c];
      errors[r] = std::abs(estimated - wanted[r]);
      weights[r] = 1 / std::max(errors[r], kClose);
    }
  }
  KernelModel model;
  for (const auto& [place, column] : columns) model.us[place.first][place.second] = least[column] + factors[column];
  model.networks = static_cast<int>(rows.size());
  model.median_error = at_share(errors, 0.5);
  model.large_error = at_share(errors, 0.9);
  return model;
}

}  // namespace ulpscope
