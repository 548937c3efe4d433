// An ONNX file into a network: protobuf, graphs, functions, types.
#include <span>

#include "fuzz_target.h"
#include "onnx/import.h"
#include "ops/registry.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ulpscope;
  fuzz::reads({ErrorCode::kInvalidFile, ErrorCode::kUnsupported, ErrorCode::kNotFound},
              [&] { import_onnx(std::as_bytes(std::span(data, size)), "model.onnx", op_registry(), {"/nowhere"}); });
  return 0;
}
