#include "onnx/sparse_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/messages.h"
#include "onnx/functions.h"
#include "onnx/model_writer.h"
#include "onnx/tensor_reader.h"
#include "ulpscope/error.h"

namespace ulpscope::onnx_model {
namespace {

/// A few bytes could ask for any amount of memory: so many zeros are justified by nothing, and by each element.
constexpr std::int64_t kZeros = std::int64_t{1} << 20, kZerosPerElement = std::int64_t{1} << 12;

class Densifier {
 public:
  explicit Densifier(const ModelFile& file) : file_(file), reader_(file, ".", false) {}

  void run(onnx::GraphProto& graph) {
    for (const auto& sparse : graph.sparse_initializer()) {
      const std::string& name = sparse.values().name();
      onnx::TensorProto dense = made_dense(sparse, fmt::format("initializer '{}'", name));
      dense.set_name(name);
      *graph.add_initializer() = std::move(dense);
    }
    graph.clear_sparse_initializer();
    for (auto& node : *graph.mutable_node()) run(node);
  }

  void run(onnx::NodeProto& node) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) run(*attribute.mutable_g());
      if (!is_constant_node(node) || attribute.name() != "sparse_value" || !attribute.has_sparse_tensor()) continue;
      *attribute.mutable_t() =
          made_dense(attribute.sparse_tensor(), fmt::format("node '{}' (Constant)", node_name(node)));
      attribute.clear_sparse_tensor();
      attribute.set_name("value");
      attribute.set_type(onnx::AttributeProto::TENSOR);
    }
  }

 private:
  /// Indices are positions in the dense tensor, or have a row of coordinates for each element.
  onnx::TensorProto made_dense(const onnx::SparseTensorProto& sparse, const std::string& what) {
    const auto fail = [&](const std::string& message) {
      throw invalid_file("[import] {}: {}: {}", file_.source, what, message);
    };
    for (const auto* part : {&sparse.values(), &sparse.indices()})
      if (part->data_location() == onnx::TensorProto::EXTERNAL)
        throw unsupported("[import] {}: {}: sparse tensors in external data are not supported", file_.source, what);
    const Tensor values = reader_.read(sparse.values(), what).in_memory();
    const Tensor indices = reader_.read(sparse.indices(), what).in_memory();
    const Shape shape(sparse.dims().begin(), sparse.dims().end());
    const std::int64_t count = values.size(), rank = std::ssize(shape);
    const bool coordinates = indices.rank() == 2;
    if (values.rank() != 1 || indices.type() != DataType::kInt64 ||
        indices.shape() != (coordinates ? Shape{count, rank} : Shape{count}))
      fail(
          fmt::format("expected a list of values for the sparse tensor of shape {}, and an int64 index or {} for "
                      "each, got values {}{} and indices {}{}",
                      to_string(shape), rank, name_of(values.type()), to_string(values.shape()),
                      name_of(indices.type()), to_string(indices.shape())));
    std::int64_t extent = 1;  // without zeros
    for (const std::int64_t dim : shape)
      if (dim < 0 || __builtin_mul_overflow(extent, std::max<std::int64_t>(dim, 1), &extent) ||
          extent > kZeros + count * kZerosPerElement)
        fail(fmt::format("a sparse tensor of shape {} with {} elements: its dense form is impossibly large",
                         to_string(shape), count));
    Tensor dense(values.type(), shape);
    const std::size_t width = size_of(values.type());
    std::memset(dense.raw(), 0, dense.bytes());
    const auto* at = indices.data<std::int64_t>();
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t place = coordinates ? 0 : at[i];
      bool inside = place >= 0 && place < dense.size();
      for (std::int64_t d = 0; coordinates && d < rank; ++d) {
        const std::int64_t along = at[i * rank + d], dim = shape[static_cast<std::size_t>(d)];
        inside = inside && along >= 0 && along < dim;
        place = inside ? place * dim + along : 0;
      }
      if (!inside) fail(fmt::format("element {} of a sparse tensor of shape {} is outside of it", i, to_string(shape)));
      std::memcpy(static_cast<std::byte*>(dense.raw()) + static_cast<std::size_t>(place) * width,
                  static_cast<const std::byte*>(values.raw()) + static_cast<std::size_t>(i) * width, width);
    }
    onnx::TensorProto result;
    result.set_data_type(sparse.values().data_type());
    result.mutable_dims()->Assign(shape.begin(), shape.end());
    result.set_raw_data(packed_elements(dense));
    return result;
  }

  const ModelFile& file_;
  TensorReader reader_;
};

}  // namespace

void make_dense(ModelFile& file) {
  Densifier densifier(file);
  densifier.run(*file.proto.mutable_graph());
  for (auto& function : *file.proto.mutable_functions())
    for (auto& node : *function.mutable_node()) densifier.run(node);
}

}  // namespace ulpscope::onnx_model
