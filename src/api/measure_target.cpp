#include "runtime/measure_target.h"

#include "api/loaded_model.h"
#include "core/file.h"
#include "core/messages.h"
#include "core/parallel.h"
#include "runtime/measure_kernels.h"
#include "ulpscope/target.h"

namespace ulpscope {
namespace {

constexpr char kProgram[] = "ulpscope " ULPSCOPE_VERSION;

MeasureProgress or_silent(const MeasuringProgress& progress) {
  return progress ? progress : [](const std::string&) {};
}

void check_name(const std::filesystem::path& file) {
  if (!is_target_file(file.string()))
    throw invalid_argument("[target] '{}': expected a file name that ends in .json, by which --target knows files",
                           file.string());
}

}  // namespace

MeasuredTarget measure_target(const std::filesystem::path& file, const std::string& backend, int threads,
                              const MeasuringProgress& progress) {
  check_name(file);
  const Target target =
      measure_rates(backend, checked_threads(threads, "[target] threads"), kProgram, or_silent(progress));
  write_file(file, target_to_json(target));
  return {target.name};
}

MeasuredTarget measure_target(const std::filesystem::path& file, const Model& model, const TensorsByName& sample,
                              const MeasuringProgress& progress) {
  check_name(file);
  const LoadedModel& loaded = ModelAccess::loaded(model);
  const std::vector<TensorMap> fitted = fitted_samples(*loaded.network, {&sample, 1});
  std::vector<Tensor> inputs;
  for (const NamedTensor& each : fitted.front()) inputs.push_back(each.tensor);
  Target target = measure_rates(loaded.build.backend, loaded.build.threads, kProgram, or_silent(progress));
  const GroupCount count = measure_groups(*loaded.network, loaded.build, inputs, target, or_silent(progress));
  write_file(file, target_to_json(target));
  return {target.name, count.kernels, count.left_out};
}

MeasuredTarget measure_kernels(const std::filesystem::path& file, const KernelMeasuring& how,
                               const MeasuringProgress& given) {
  check_name(file);
  const MeasuringProgress progress = or_silent(given);
  ProbeTimes times;
  if (how.load_times.empty()) {
    const auto keep = [&](const ProbeTimes& so_far) {
      if (!how.save_times.empty()) write_file(how.save_times, probe_times_to_json(so_far));
    };
    times = measure_probes(how.backend, how.networks, kProgram, progress, keep);
  } else {
    times = probe_times_from_json(read_file(how.load_times), how.load_times.string());
  }
  Target target = how.rates_of.empty() ? measure_rates(how.backend, 0, kProgram, progress) : find_target(how.rates_of);
  progress("the model of its kernels");
  target.origin = times.origin;
  target.kernels = std::make_shared<KernelModel>(fit_kernels(times, target));
  target.cast_share = target.product_cast_share = 1;
  write_file(file, target_to_json(target));
  return {target.name, target.kernels->networks};
}

}  // namespace ulpscope
