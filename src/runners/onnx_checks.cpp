#include "runners/onnx_checks.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "core/messages.h"
#include "runners/onnxruntime_runner.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

/// False where it cannot check such a file.
bool check_by_onnx(Worker& worker, const std::filesystem::path& file, bool nodes_only = false) {
  return worker.call("onnx_check", Value::Map{{"path", file.string()}, {"nodes_only", nodes_only}}).boolean();
}

void run_by_onnxruntime(const std::shared_ptr<Worker>& worker, const std::filesystem::path& file,
                        const TensorMap& inputs, bool optimize = true) {
  // One run is over before more threads would help; while they wait they spin.
  const auto runner = make_onnxruntime_runner(file, {.threads = 1, .optimize = optimize}, worker);
  runner->activate();
  runner->infer(inputs);
}

/// `who` refused a file with this message, and `ask` asks it about the model that the file was made from.
template <typename Ask>
bool refuses_source(std::string_view who, const std::string& what, const OnnxChecks::Source& source, Ask&& ask) {
  if (!source.file) return false;
  try {
    ask();
    return false;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kScript || error.code() == ErrorCode::kInterrupted) throw;
    log_warning("[convert] Not checked by {}, which refuses the model itself, too: {}", who, what);
    return true;
  }
}

/// How the worker's process ended over what it was asked ("killed by signal 11 (Segmentation fault)"); empty: it did
/// not.
std::string crash_of(const std::string& what) {
  const std::size_t begin = what.find("killed by signal");
  return begin == std::string::npos ? std::string() : what.substr(begin, what.find(';', begin) - begin);
}

/// ONNX Runtime crashed over the file, or refused it (`how`). Its optimizations make it do so now and then: without
/// them it tells whether the file is right. False: it refuses it then, too.
bool runs_without_optimizations(const std::filesystem::path& file, const TensorMap& inputs, std::string_view how) {
  try {
    run_by_onnxruntime(Worker::start(), file, inputs, false);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInterrupted) throw;
    return false;
  }
  log_warning(
      "[convert] ONNX Runtime {} while it optimizes the typed model; without optimizations (ORT_DISABLE_ALL) it runs "
      "it",
      how);
  return true;
}

}  // namespace

std::string missing_in_onnxruntime(const std::string& what, bool has_bfloat16) {
  const auto says = [&](std::string_view text) { return what.find(text) != std::string::npos; };
  if (says("is under development and support for this is limited"))
    return "which does not have the opset of the model yet";
  if (says("is not a registered function/op")) return "which does not have TensorRT's operators: " + what;
  if (says("max supported IR version")) return "which does not have the IR version of the model yet";
  const bool lacks_kernel = says("NOT_IMPLEMENTED") || says("type is not supported");
  if (has_bfloat16 && (lacks_kernel || says("bfloat16"))) return "which has no CPU kernels for bfloat16";
  return lacks_kernel ? "which has no kernel for a layer: " + what : std::string();
}

OnnxChecks::OnnxChecks()
    : started_(std::async(std::launch::async, [] {
        Started result;
        try {
          WorkerOptions options = default_worker_options();
          options.one_thread = true;
          result.worker = Worker::start(std::move(options));
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
                                           bool has_bfloat16, const Source& source) {
  const Started started = started_.get();
  std::vector<std::string> done;
  if (started.worker == nullptr) {
    log_info("[convert] Not checked by onnx.checker and ONNX Runtime: " + started.missing);
    return done;
  }
  if (started.onnx) {
    try {
      if (check_by_onnx(*started.worker, file))
        done.emplace_back("onnx.checker");
      else
        log_info("[convert] Not checked by onnx.checker, which takes no inputs and outputs of unknown rank");
    } catch (const Error& error) {
      const auto ask = [&] {
        // The shapes that the source leaves open say nothing about its nodes.
        if (!check_by_onnx(*started.worker, source.file())) check_by_onnx(*started.worker, source.file(), true);
      };
      if (!refuses_source("onnx.checker", error.what(), source, ask))
        throw invalid_file("[convert] the typed model is refused: {}", error.what());
    }
  } else {
    log_info("[convert] Not checked by onnx.checker: the Python package onnx is not installed");
  }
  if (!started.onnxruntime) {
    log_info("[convert] Not run in ONNX Runtime: the Python package onnxruntime is not installed");
    return done;
  }
  try {
    run_by_onnxruntime(started.worker, file, inputs);
    done.emplace_back("ONNX Runtime");
  } catch (const Error& error) {
    const std::string what = error.what();
    const std::string crash = crash_of(what);
    const auto without = [&](const std::string& how) {
      if (!runs_without_optimizations(file, inputs, how)) return false;
      done.emplace_back("ONNX Runtime without its optimizations");
      return true;
    };
    if (!crash.empty()) {
      if (without(fmt::format("crashes ({})", crash))) return done;
      throw invalid_file("[convert] ONNX Runtime crashes over the typed model: {}", crash);
    }
    if (const std::string missing = missing_in_onnxruntime(what, has_bfloat16); !missing.empty()) {
      log_info("[convert] Not run in ONNX Runtime, " + missing);
      return done;
    }
    if (refuses_source("ONNX Runtime", what, source,
                       [&] { run_by_onnxruntime(started.worker, source.file(), source.inputs); }))
      return done;
    if (without(fmt::format("fails ({})", what))) return done;
    throw invalid_file("[convert] ONNX Runtime does not run the typed model: {}", what);
  }
  return done;
}

}  // namespace ulpscope
