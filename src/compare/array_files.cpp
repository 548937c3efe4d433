#include "compare/array_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "compare/json_files.h"
#include "core/file.h"
#include "core/messages.h"

namespace ulpscope {
namespace {

TensorMap arrays_of(const std::filesystem::path& path, std::string_view text, std::span<const InputBinding> bindings) {
  const std::string where = "[load] " + path.string();
  TensorMap arrays;
  if (path.extension() == ".npy") {
    if (bindings.size() > 1)
      throw invalid_argument("{}: expected arrays for {} inputs, got one without a name; try an .npz file", where,
                             bindings.size());
    arrays.push_back({bindings.empty() ? path.stem().string() : bindings.front().name, decode_npy(text, where)});
    return arrays;
  }
  for (auto& [name, content] : files_of_npz(text, where)) {
    std::string input = name.ends_with(".npy") ? name.substr(0, name.size() - 4) : name;
    Tensor array = decode_npy(content, fmt::format("{}: array '{}'", where, input));
    arrays.push_back({std::move(input), std::move(array)});
  }
  return arrays;
}

/// Equal parts along the first axis, each with the shape given.
std::vector<Tensor> parts_of(const Tensor& array, std::int64_t count, const Shape& shape) {
  std::vector<Tensor> parts;
  const std::size_t size = count > 0 ? array.bytes() / static_cast<std::size_t>(count) : 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Tensor& part = parts.emplace_back(array.type(), shape);
    if (size > 0)
      std::memcpy(part.raw(), static_cast<const char*>(array.raw()) + static_cast<std::size_t>(i) * size, size);
  }
  return parts;
}

std::vector<Tensor> samples_of(const Tensor& array, const Shape* input) {
  const Shape& shape = array.shape();
  if (input != nullptr && shape.size() == input->size() + 1)
    return parts_of(array, shape.front(), Shape(shape.begin() + 1, shape.end()));
  const std::int64_t batch = input != nullptr && !input->empty() ? input->front() : 0;
  if (batch > 0 && shape.size() == input->size() && shape.front() > batch && shape.front() % batch == 0) {
    Shape part = shape;
    part.front() = batch;
    return parts_of(array, shape.front() / batch, part);
  }
  return {array};
}

}  // namespace

std::vector<TensorMap> load_samples(const std::filesystem::path& path, std::span<const InputBinding> bindings) {
  if (path.extension() != ".npz" && path.extension() != ".npy") return load_inputs(path);
  std::vector<TensorMap> samples;
  std::string first;
  const auto file = MappedFile::open(path);
  const std::string_view text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  for (const auto& [name, array] : file->read_whole([&] { return arrays_of(path, text, bindings); })) {
    const auto binding = std::ranges::find(bindings, name, &InputBinding::name);
    std::vector<Tensor> parts =
        samples_of(array, binding != bindings.end() && binding->shape ? &*binding->shape : nullptr);
    if (first.empty()) {
      first = name;
      samples.resize(parts.size());
    }
    if (parts.size() != samples.size())
      throw invalid_argument("[load] {}: expected as many samples of every input, got {} of '{}' and {} of '{}'",
                             path.string(), samples.size(), first, parts.size(), name);
    for (std::size_t s = 0; s < parts.size(); ++s) samples[s].push_back({name, std::move(parts[s])});
  }
  return samples;
}

}  // namespace ulpscope
