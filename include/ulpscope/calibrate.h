// int8 calibration: the scale of every tensor, from what the network computes in fp32 on sample inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ulpscope/export.h"
#include "ulpscope/model.h"
#include "ulpscope/shape.h"

namespace ulpscope {

/// How the range of a tensor is found from the values that it had: TensorRT's calibrators.
enum class CalibrationAlgorithm : std::uint8_t {
  kEntropy2,  ///< IInt8EntropyCalibrator2, the default.
  kEntropy,   ///< IInt8EntropyCalibrator.
  kMinMax,    ///< IInt8MinMaxCalibrator.
  kLegacy,    ///< IInt8LegacyCalibrator: a quantile of the magnitudes.
};

/// What a quantile of magnitudes is taken at when nothing else is asked for.
inline constexpr double kDefaultQuantile = 0.99999;

struct CalibrationOptions {
  CalibrationAlgorithm algorithm = CalibrationAlgorithm::kEntropy2;
  double quantile = kDefaultQuantile;  ///< Of kLegacy; above 0, at most 1.
  int threads = 0;                     ///< 0: one per core. The scales do not depend on it.
  /// Bytes of activations that are kept for counting at a time, at most half of the model's memory_limit; a network
  /// with more is run several times per sample.
  std::size_t memory_limit = std::size_t{1} << 30;
};

struct Calibration {
  std::map<std::string, float> scales;  ///< Per tensor: threshold / 127.
  std::size_t samples = 0;
  std::map<std::string, Shape> first_shapes;  ///< Of the inputs, in the first sample.
};

/// The next sample, inputs by name; nothing at the end. One sample is in memory at a time.
using CalibrationSource = std::function<std::optional<TensorsByName>()>;
/// Called before sample 0, 1, ... is run; may throw to stop.
using CalibrationProgress = std::function<void(std::size_t sample)>;

/// Calibrates the model as it was read (repairs come later), and sets its scales. Shapes may differ between samples.
/// `options.threads` is that of the model. Throws Error(kInvalidArgument) without a sample, for one that does not fit
/// (says which) or a bad quantile; then the model is as it was.
ULPSCOPE_API Calibration calibrate(Model& model, const CalibrationSource& next, const CalibrationOptions& options = {},
                                   const CalibrationProgress& progress = nullptr);
ULPSCOPE_API Calibration calibrate(Model& model, std::span<const TensorsByName> samples,
                                   const CalibrationOptions& options = {});

/// Weights in int4 and nvfp4 take their scales by activations from now on: by the mean squares that the inputs of their
/// products have on these samples (docs/numerics.md). Does nothing for a model that allows neither, and for one that
/// was read with other `weight_scales`. `search` does it with its samples where nobody has. Throws
/// Error(kInvalidArgument) without a sample, and for one that does not fit.
ULPSCOPE_API void measure_activations(Model& model, std::span<const TensorsByName> samples);

/// What the scales of the model cost: the largest rel-l2 of an output, over these samples, of every layer that has a
/// form in int8 in that against float32. NaN where the outputs have no elements, infinite where something is not
/// finite. Throws Error(kInvalidArgument) without a sample, for one that does not fit, and for a model without int8.
ULPSCOPE_API double calibration_error(const Model& model, std::span<const TensorsByName> samples);

/// Whether the model has QuantizeLinear or DequantizeLinear nodes, which bring its scales: nothing is to be calibrated.
ULPSCOPE_API bool brings_scales(const Model& model);

/// TensorRT's calibration cache (docs/formats.md).
struct CalibrationCache {
  /// What the header says: "8601" and "EntropyCalibration2". Readers take every version and every algorithm.
  std::string version = "8601";
  std::string algorithm = "EntropyCalibration2";
  /// Per tensor: real value = scale * integer. Finite, normal, at most the largest float32 / 127.
  std::map<std::string, float> scales;
};

/// Sets the scales of the model to those of a cache, which `source` names in messages. Warns of tensors of int8 layers
/// that have none. Throws Error(kInvalidFile) when no name of the cache is one of the model.
ULPSCOPE_API void use_calibration(Model& model, const CalibrationCache& cache, const std::string& source);

/// Throws Error: kNotFound, kIo, kInvalidFile.
ULPSCOPE_API CalibrationCache read_calibration_cache(const std::filesystem::path& path);
/// Replaces the file as a whole. Throws Error(kIo).
ULPSCOPE_API void write_calibration_cache(const std::filesystem::path& path, const CalibrationCache& cache);
/// "EntropyCalibration2", "EntropyCalibration", "MinMaxCalibration", "LegacyCalibration": as calibration caches say.
ULPSCOPE_API std::string_view cache_name_of(CalibrationAlgorithm algorithm) noexcept;

}  // namespace ulpscope
