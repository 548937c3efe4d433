#include "graph/attributes.h"

#include "core/messages.h"

namespace ulpscope {

template <typename T>
const T* Attributes::find(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return nullptr;
  const T* value = std::get_if<T>(&found->second);
  if (value == nullptr) throw invalid_file("attribute '{}' has another kind of value than the operator defines", name);
  return value;
}

namespace {
[[noreturn]] void throw_missing(std::string_view name) { throw invalid_file("attribute '{}' is missing", name); }
}  // namespace

std::int64_t Attributes::integer(std::string_view name, std::int64_t default_value) const {
  const auto* value = find<std::int64_t>(name);
  return value ? *value : default_value;
}

float Attributes::real(std::string_view name, float default_value) const {
  const auto* value = find<float>(name);
  return value ? *value : default_value;
}

std::string Attributes::text(std::string_view name, std::string_view default_value) const {
  const auto* value = find<std::string>(name);
  return value ? *value : std::string(default_value);
}

std::vector<std::int64_t> Attributes::ints(std::string_view name, std::vector<std::int64_t> default_value) const {
  const auto* value = find<std::vector<std::int64_t>>(name);
  return value ? *value : std::move(default_value);
}

std::vector<float> Attributes::reals(std::string_view name, std::vector<float> default_value) const {
  const auto* value = find<std::vector<float>>(name);
  return value ? *value : std::move(default_value);
}

std::vector<std::string> Attributes::texts(std::string_view name) const {
  const auto* value = find<std::vector<std::string>>(name);
  return value ? *value : std::vector<std::string>{};
}

std::int64_t Attributes::required_integer(std::string_view name) const {
  const auto* value = find<std::int64_t>(name);
  if (value == nullptr) throw_missing(name);
  return *value;
}

std::vector<std::int64_t> Attributes::required_ints(std::string_view name) const {
  const auto* value = find<std::vector<std::int64_t>>(name);
  if (value == nullptr) throw_missing(name);
  return *value;
}

Tensor Attributes::required_tensor(std::string_view name) const {
  const auto* value = find<Tensor>(name);
  if (value == nullptr) throw_missing(name);
  return *value;
}

std::vector<const Subgraph*> Attributes::graphs() const {
  std::vector<const Subgraph*> result;
  for (const auto& [name, value] : values_)
    if (const auto* graph = std::get_if<Subgraph>(&value)) result.push_back(graph);
  return result;
}

const Subgraph& Attributes::required_graph(std::string_view name) const {
  const auto* value = find<Subgraph>(name);
  if (value == nullptr) throw_missing(name);
  return *value;
}

}  // namespace ulpscope
