// A parsed file with the types of a TypedChanges. Private to src/onnx.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "onnx/export.h"
#include "onnx/model_file.h"

namespace ulpscope {

/// TypedExporter::write. `source_folder`: where the file's external data lies.
ExportReport write_typed(const onnx_model::ModelFile& file, const Network& network,
                         const std::filesystem::path& source_folder, const TypedChanges& changes,
                         const std::filesystem::path& folder, const std::string& name,
                         std::optional<std::uint64_t> limit);

namespace onnx_model {

/// Per node of a graph its layer in the graph's network; kNone for a Constant and for a call of a function.
std::vector<LayerId> layers_of_nodes(const onnx::GraphProto& graph, const Network& network);

}  // namespace onnx_model
}  // namespace ulpscope
