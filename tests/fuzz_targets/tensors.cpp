// The elements of one tensor of an ONNX file: raw, typed and packed, or in a file beside it. The input is a TensorProto
// without its name.
#include <span>
#include <string>

#include "fuzz_target.h"
#include "onnx/import.h"
#include "onnx/wire.h"
#include "ops/registry.h"

namespace ulpscope::fuzz {
namespace {

using onnx_wire::append_bytes_field;
using onnx_wire::append_varint_field;

/// A model whose only node hands out the tensor.
std::string model_with(std::string_view tensor) {
  std::string node, value, graph, opset, model, initializer(tensor);
  append_bytes_field(initializer, 8, "w");
  append_bytes_field(node, 1, "w");
  append_bytes_field(node, 2, "y");
  append_bytes_field(node, 4, "Identity");
  append_bytes_field(value, 1, "y");
  append_bytes_field(graph, 1, node);
  append_bytes_field(graph, 2, "g");
  append_bytes_field(graph, 5, initializer);
  append_bytes_field(graph, 12, value);
  append_varint_field(opset, 2, 17);
  append_varint_field(model, 1, 8);
  append_bytes_field(model, 7, graph);
  append_bytes_field(model, 8, opset);
  return model;
}

}  // namespace
}  // namespace ulpscope::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ulpscope;
  static const fuzz::Folder folder;
  [[maybe_unused]] static const bool written = (write_file(folder / "w.bin", std::string(300, '\5')), true);
  const std::string model = fuzz::model_with(fuzz::as_text(data, size));
  for (const bool ignored : {false, true})
    fuzz::reads({ErrorCode::kInvalidFile, ErrorCode::kUnsupported, ErrorCode::kNotFound}, [&] {
      import_onnx(std::as_bytes(std::span(model)), "model.onnx", op_registry(), {folder.path(), ignored});
    });
  return 0;
}
