// Targets that are measured: what this machine takes, as a file for ModelOptions::target.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "ulpscope/export.h"
#include "ulpscope/model.h"

namespace ulpscope {

struct MeasuredTarget {
  std::string name;  ///< "NVIDIA H200 (measured)".
  int kernels = 0;   ///< Of the model: different groups whose times the file has, over all precisions.
  int left_out = 0;  ///< Groups without a time of their own, which are estimated from the rates.
};

/// Called with what is measured now ("products in fp16"); may throw to stop.
using MeasuringProgress = std::function<void(const std::string& what)>;

/// Writes rates of products per precision, bandwidth and the cost of a launch to `file`, of a backend ("cpu", "cuda")
/// on so many threads (0: one per core). Takes some seconds, in which nothing else should run. Throws
/// Error(kUnsupported) where the backend has no device, Error(kIo).
ULPSCOPE_API MeasuredTarget measure_target(const std::filesystem::path& file, const std::string& backend = "cpu",
                                           int threads = 0, const MeasuringProgress& progress = nullptr);

/// Also the times of the groups of a model on a sample, in each of its precisions, on its backend. Throws
/// Error(kInvalidArgument) for a sample that does not fit.
ULPSCOPE_API MeasuredTarget measure_target(const std::filesystem::path& file, const Model& model,
                                           const TensorsByName& sample, const MeasuringProgress& progress = nullptr);

/// How measure_kernels() comes to a model.
struct KernelMeasuring {
  std::string backend = "cuda";
  int networks = 160;  ///< How many small networks of random sizes are measured, each in several precisions.
  /// Times that were measured before, on any machine: no device is needed, and nothing is measured. Empty: measure.
  std::filesystem::path load_times{};
  std::filesystem::path save_times{};  ///< Where to keep the times, written after every network; empty: nowhere.
  /// A known target whose rates the file takes (ModelOptions::target); empty: those of this machine, measured.
  std::string rates_of{};
};

/// Writes a target with a model of the kernels of a GPU: what each kind takes, by its sizes, fitted to many small
/// networks (docs/gpu.md). It needs no network of the user's. Takes some minutes, in which nothing else should run.
/// Throws Error(kUnsupported) where the backend has no device, Error(kInvalidFile) for `load_times`, Error(kIo).
ULPSCOPE_API MeasuredTarget measure_kernels(const std::filesystem::path& file, const KernelMeasuring& how,
                                            const MeasuringProgress& progress = nullptr);

}  // namespace ulpscope
