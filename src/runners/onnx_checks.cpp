#include "runners/onnx_checks.h"

#include <fmt/format.h>

#include "runners/onnxruntime_runner.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope {

OnnxChecks::OnnxChecks()
    : started_(std::async(std::launch::async, [] {
        Started result;
        try {
          result.worker = Worker::start();
          const Value found = result.worker->call("onnx_prepare");
          result.onnx = found["onnx"].boolean();
          result.onnxruntime = found["onnxruntime"].boolean();
        } catch (const Error& error) {
          result.worker = nullptr;
          result.missing = error.what();
        }
        return result;
      })) {}

OnnxChecks::~OnnxChecks() {
  if (started_.valid()) started_.wait();
}

std::vector<std::string> OnnxChecks::check(const std::filesystem::path& file, const TensorMap& inputs,
                                           bool has_bfloat16) {
  const Started started = started_.get();
  std::vector<std::string> done;
  if (started.worker == nullptr) {
    log_info("[convert] Not checked by onnx.checker and ONNX Runtime: " + started.missing);
    return done;
  }
  if (started.onnx) {
    try {
      Value::Map args{{"path", file.string()}};
      started.worker->call("onnx_check", std::move(args));
    } catch (const Error& error) {
      throw Error(ErrorCode::kInvalidFile, fmt::format("[convert] the typed model is refused: {}", error.what()));
    }
    done.emplace_back("onnx.checker");
  } else {
    log_info("[convert] Not checked by onnx.checker: the Python package onnx is not installed");
  }
  if (!started.onnxruntime) {
    log_info("[convert] Not run in ONNX Runtime: the Python package onnxruntime is not installed");
    return done;
  }
  try {
    const auto runner = make_onnxruntime_runner(file, {}, started.worker);
    runner->activate();
    runner->infer(inputs);
    done.emplace_back("ONNX Runtime");
  } catch (const Error& error) {
    const std::string what = error.what();
    if (has_bfloat16 &&
        (what.find("NOT_IMPLEMENTED") != std::string::npos || what.find("bfloat16") != std::string::npos)) {
      log_info("[convert] Not run in ONNX Runtime, which has no CPU kernels for bfloat16");
      return done;
    }
    throw Error(ErrorCode::kInvalidFile, fmt::format("[convert] ONNX Runtime does not run the typed model: {}", what));
  }
  return done;
}

}  // namespace ulpscope
