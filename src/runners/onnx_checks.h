// What other software says of an ONNX file: the onnx package's checker, and ONNX Runtime.
#pragma once

#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "compare/tensor_map.h"
#include "runners/worker.h"

namespace ulpscope {

/// Why ONNX Runtime cannot run a file that it refused with this message, though the file is right ("which has no CPU
/// kernels for bfloat16"); empty: the file is wrong, as far as the message says.
std::string missing_in_onnxruntime(const std::string& what, bool has_bfloat16);

/// Starts Python at once and loads the packages there while the caller does something else. What is not installed is
/// logged and left out.
class OnnxChecks {
 public:
  OnnxChecks();
  ~OnnxChecks();

  /// The model that a file was made from.
  struct Source {
    std::function<std::filesystem::path()> file;  ///< Where it lies; asked for when it is needed. Null: in no file.
    TensorMap inputs;
  };

  /// The full check of onnx.checker; then loads the file in ONNX Runtime and runs it on the inputs. Returns what was
  /// done ("onnx.checker", "ONNX Runtime"). What refuses the source as well says nothing about the file: that is
  /// logged, and passes, and so does a file of an opset or IR version that ONNX Runtime lacks, or with bfloat16 that it
  /// has no kernels for. What runs without ONNX Runtime's optimizations alone passes with a warning. Throws
  /// Error(kInvalidFile) with what they say.
  std::vector<std::string> check(const std::filesystem::path& file, const TensorMap& inputs, bool has_bfloat16,
                                 const Source& source);

 private:
  struct Started {
    std::shared_ptr<Worker> worker;  ///< Null: there is none.
    std::string missing;
    bool onnx = false, onnxruntime = false;
  };
  std::future<Started> started_;
};

}  // namespace ulpscope
