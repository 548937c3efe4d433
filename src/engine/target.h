// GPUs as the cost model sees them.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/kernel_model.h"

namespace ulpscope {

/// Measured microseconds of groups, launch included: by kernel (engine/group_times.h), then by precision.
using TimedKernels = std::map<std::string, std::map<std::string, double, std::less<>>, std::less<>>;

/// Rates, and what is known of kernels beyond them: times of single ones (`timed`), else a model of all kinds
/// (`kernels`), else a roofline (Williams, Waterman and Patterson, 2009): time = launch + max(operations / rate, bytes
/// / bandwidth).
struct Target {
  /// Where the figures come from, if they were measured.
  struct Origin {
    std::string program, date;                     ///< "ulpscope 0.1.0", "2026-11-23".
    std::string backend, device;                   ///< "cuda", "NVIDIA H200".
    int threads = 0;                               ///< Of the CPU.
    std::map<std::string, std::string> libraries;  ///< Versions by name.
  };
  std::string name;
  std::array<double, kPrecisionCount> tflops{};  ///< Dense peak per Precision; 0: the GPU has no such arithmetic.
  double bandwidth_gb_per_s = 0;
  double launch_us = 0;
  int processors = 0;  ///< Streaming multiprocessors; 0: not known.
  /// Cost of a cast between groups, as a fraction of a separate pass over the tensor: of values that no product reads
  /// in the other type, and of those that one does.
  double cast_share = 1, product_cast_share = 1;
  /// What a run takes per megabyte of weights of products beyond those that a cache keeps from run to run. What a
  /// kernel reads and writes is in the cache up to the same size, where kernels are modelled.
  double weight_us_per_mb = 0, cached_mb = 0;
  std::optional<Origin> origin{};
  std::shared_ptr<const TimedKernels> timed{};   ///< Null: none is known.
  std::shared_ptr<const KernelModel> kernels{};  ///< Null: there is the roofline.

  bool has(Precision p) const noexcept { return rate(p) > 0; }
  /// Of its arithmetic: weights alone in a narrow format are multiplied as floats.
  double rate(Precision p) const noexcept;
  /// Microseconds of the work alone, without the launch.
  double work_us(double operations, double bytes, Precision p) const noexcept;
  /// Of a kernel, launch included. REQUIRES: `kernels`.
  double kernel_us(const KernelWork& work) const { return (*kernels)(work, tflops) + uncached_us(work); }
  /// What of it is memory: bytes beyond those that the cache keeps, at the bandwidth.
  double uncached_us(const KernelWork& work) const noexcept;
  /// Of a pass that gives a tensor of so many elements another type.
  double pass_us(double elements, double bytes_per_element) const;
  /// Everything that times depend on, as text.
  std::string figures() const;
};

/// One of `target_names()`, or the path of a JSON file of the same form (data/targets, schemas/target.schema.json).
/// Throws Error(kNotFound) listing the names, Error(kInvalidFile) naming the figure. A file is parsed once, unless it
/// changes.
Target find_target(const std::string& name);
std::vector<std::string> target_names();
/// Whether figures of that name may change: those of files do.
bool is_target_file(std::string_view name);

/// What `--target` asks for when the machine at hand is to be measured first.
inline constexpr std::string_view kMeasuredTarget = "measured";

/// The file that find_target() reads.
std::string target_to_json(const Target& target);
/// `where` names the text in messages. Throws Error(kInvalidFile).
Target target_from_json(std::string_view text, const std::string& where);

}  // namespace ulpscope
