// What is wrong with the quantizers of an ONNX file, as it stands there: scales that are none, blocks that do not fit,
// forms that TensorRT's parser refuses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onnx/import.h"

namespace ulpscope {

struct QuantizationProblem {
  enum class Severity : std::uint8_t {
    kWarning,   ///< Allowed everywhere, and rarely wanted: accuracy is lost.
    kTensorRt,  ///< Allowed by ONNX; TensorRT's parser refuses it.
    kProblem,   ///< Values that mean nothing, or other ones than a runtime takes.
  };
  enum class Kind : std::uint8_t {
    kScaleValue,      ///< 0, negative, NaN or infinite.
    kDenormalScale,   ///< A number that its type holds with fewer bits.
    kVanishingBlock,  ///< The scale of a block of a scaled scale is 0.
    kUnroundedScale,  ///< Blocks of fp4 whose scales are no numbers of E4M3 under one scale.
    kScaleType,       ///< E8M0 or E4M3 where TensorRT wants a wider float.
    kDefaultAxis,     ///< Nothing says which axis the blocks of 4-bit floats lie along.
    kScaleShape,      ///< Scales that fit no axis.
    kSeveralBlocked,  ///< Blocks along more than one axis, or along none.
    kPartialBlock,    ///< The last block is shorter.
    kOddElements,     ///< Elements of 4 bits that do not fill their bytes.
    kCodeValue,       ///< Weights whose codes stand for NaN or an infinity.
    kUnusedCodes,     ///< No block reaches the largest value of its format.
    kSeveralScales,   ///< One tensor, quantized in different ways.
    kQuantizedAgain,  ///< Quantized in another way right after it came out of a DequantizeLinear.
    kType,            ///< A format that TensorRT does not quantize to.
    kComputedScale,   ///< Not known before the network runs.
    kAttribute,       ///< Of an operator of TensorRT, which has no other value than one, or does not read it.
  };
  Severity severity;
  Kind kind;
  std::string node;  ///< As layers are named: the node's name, else `node_of_<first output>`.
  std::string text;  ///< Without the node.
};

/// Of the main graph and the bodies in it, in the order of nodes; quantizers in model-local functions are not looked
/// at. Reads scales, and codes as far as needed. Throws Error: kNotFound, kIo, kInvalidFile.
std::vector<QuantizationProblem> check_quantization(const std::filesystem::path& path,
                                                    const ImportOptions& options = {});
/// The same from memory; `source` is used in messages, the folder of external data is that of the options.
std::vector<QuantizationProblem> check_quantization(std::span<const std::byte> model, const std::string& source,
                                                    const ImportOptions& options);

/// The first Relu all of whose values go to one QuantizeLinear to fp8, in the main graph or a body; empty: there is
/// none. ONNX Runtime 1.31 drops it as if these elements had no negative numbers. `source` is used in messages.
std::string relu_before_fp8(std::span<const std::byte> model, const std::string& source);

/// Warns of scales in the file that are no finite numbers above 0, or denormal: a line for each of both, with its first
/// node. Reads no codes.
void warn_of_scales(const std::filesystem::path& path, const ImportOptions& options);

/// "problem", "TensorRT", "warning".
std::string_view name_of(QuantizationProblem::Severity severity) noexcept;
/// "Quantization: 2 problems, 1 that TensorRT refuses, 3 warnings", and a line for each; empty where there is none.
std::string to_text(std::span<const QuantizationProblem> problems);

/// Holds a file that was written to the one that it was made from. What both have is a warning in one line; a problem
/// that only the written one has is thrown as InternalError.
void check_written_quantization(std::span<const QuantizationProblem> before, std::span<const QuantizationProblem> after,
                                const std::string& written);

}  // namespace ulpscope
