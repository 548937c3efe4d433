#include "onnx/import.h"

#include "core/file.h"
#include "onnx/importer.h"
#include "onnx/model_file.h"
#include "onnx/tensor_reader.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

std::shared_ptr<Network> with_files(std::shared_ptr<Network> network, const onnx_model::TensorReader& reader,
                                    std::shared_ptr<const MappedFile> model) {
  network->files = reader.files();
  if (model != nullptr) network->files.push_back(std::move(model));
  // Systems bring in up to 2 MiB around each byte that was looked at.
  for (const auto& file : network->files) MappedFile::release(file->bytes().data(), file->bytes().size());
  for (const auto& file : network->files) file->check_unchanged();
  return network;
}

}  // namespace

std::shared_ptr<Network> import_onnx(const std::filesystem::path& path, const OpRegistry& ops,
                                     const ImportOptions& options) {
  onnx_model::ModelFile file;
  const std::shared_ptr<MappedFile> mapping = onnx_model::map_model(path, file);
  std::filesystem::path folder = onnx_model::external_data_folder(path, options.external_data_dir);
  onnx_model::TensorReader reader(file, std::move(folder), options.ignore_external_data);
  try {
    onnx_model::read_model(std::as_const(*mapping).bytes(), file);
    return with_files(onnx_model::Importer(file, ops, reader, options.outputs).run(), reader, mapping);
  } catch (const Error& error) {
    mapping->check_unchanged();  // Then that is the reason.
    throw error.of_file(file.source);
  }
}

std::shared_ptr<Network> import_onnx(std::span<const std::byte> bytes, const std::string& source, const OpRegistry& ops,
                                     const ImportOptions& options) {
  onnx_model::ModelFile file;
  file.source = source;
  onnx_model::read_model(bytes, file);
  const std::filesystem::path folder =
      options.external_data_dir.empty() ? std::filesystem::path(".") : options.external_data_dir;
  onnx_model::TensorReader reader(file, folder, options.ignore_external_data);
  return with_files(onnx_model::Importer(file, ops, reader, options.outputs).run(), reader, nullptr);
}

}  // namespace ulpscope
