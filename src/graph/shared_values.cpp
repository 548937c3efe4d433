#include "graph/shared_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "core/tensor_source.h"

namespace ulpscope {
namespace {

/// Larger tensors go by their address.
constexpr std::size_t kNamedByElements = 256;

/// A tensor whose bytes somebody else keeps.
struct WeakTensor {
  explicit WeakTensor(const Tensor& tensor)
      : type(tensor.type()),
        shape(tensor.shape()),
        place(tensor.place()),
        deferred(TensorAccess::is_deferred(tensor)),
        buffer(tensor.buffer()) {}
  Tensor lock() const {
    auto owner = buffer.lock();
    return owner == nullptr ? Tensor() : TensorAccess::handle(type, shape, place, deferred, std::move(owner));
  }

  DataType type;
  Shape shape;
  const void* place;
  bool deferred;
  std::weak_ptr<const void> buffer;
};

bool same_buffer(const std::weak_ptr<const void>& a, const std::weak_ptr<const void>& b) {
  return !a.owner_before(b) && !b.owner_before(a);
}

struct Entry {
  std::vector<std::weak_ptr<const void>> sources;
  std::vector<WeakTensor> values;
};

std::mutex entries_mutex;
std::map<std::string, Entry>& entries() {
  static auto& all = *new std::map<std::string, Entry>;  // Never destroyed: networks may be static.
  return all;
}

std::vector<Tensor> find(const std::string& name, std::span<const Tensor* const> sources) {
  const auto found = entries().find(name);
  if (found == entries().end()) return {};
  const bool same = std::ranges::equal(sources, found->second.sources, [](const Tensor* tensor, const auto& buffer) {
    return !buffer.expired() && same_buffer(tensor->buffer(), buffer);
  });
  if (!same) return {};
  std::vector<Tensor> values;
  for (const WeakTensor& each : found->second.values) values.push_back(each.lock());
  return std::ranges::all_of(values, [](const Tensor& value) { return static_cast<bool>(value); })
             ? values
             : std::vector<Tensor>();
}

}  // namespace

std::optional<std::string> name_of_values(const Network& network, const Layer& layer,
                                          std::span<const Tensor* const> inputs) {
  std::string name = fmt::format("{} {}", static_cast<const void*>(layer.op), layer.opset);
  for (const auto& [key, attribute] : layer.attributes.all()) {
    name += fmt::format("|{}=", key);
    const bool plain = std::visit(
        [&]<typename T>(const T& value) {
          if constexpr (std::is_same_v<T, Tensor> || std::is_same_v<T, Subgraph>)
            return false;
          else
            return name += fmt::format("{}", value), true;
        },
        attribute);
    if (!plain) return std::nullopt;
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    name += '|';
    if (inputs[i] == nullptr) continue;
    const Tensor& value = *inputs[i];
    if (value.buffer().expired()) return std::nullopt;
    name += fmt::format("{} as {}{} ", ulpscope::name_of(value.type()),
                        ulpscope::name_of(network.tensor(layer.inputs[i]).type), to_string(value.shape()));
    if (value.bytes() <= kNamedByElements)
      name.append(static_cast<const char*>(value.raw()), value.bytes());
    else
      name += fmt::format("{}", value.place());
  }
  for (TensorId id : layer.outputs)
    name += id == kNone ? "|" : fmt::format("|{}", ulpscope::name_of(network.tensor(id).type));
  return name;
}

std::vector<Tensor> shared_values(const std::string& name, std::span<const Tensor* const> sources,
                                  const std::function<std::vector<Tensor>()>& make) {
  std::vector<const Tensor*> large;
  for (const Tensor* each : sources)
    if (each != nullptr && each->bytes() > kNamedByElements) large.push_back(each);
  {
    const std::lock_guard lock(entries_mutex);
    if (auto values = find(name, large); !values.empty()) return values;
  }
  std::vector<Tensor> made = make();
  Entry entry;
  for (const Tensor* each : large) entry.sources.push_back(each->buffer());
  for (const Tensor& each : made)
    if (each) entry.values.emplace_back(each);
  const std::lock_guard lock(entries_mutex);
  if (auto values = find(name, large); !values.empty()) return values;  // Another thread was faster.
  std::erase_if(entries(), [](const auto& each) {
    return std::ranges::any_of(each.second.values, [](const WeakTensor& value) { return value.buffer.expired(); });
  });
  if (entry.values.size() == made.size()) entries().insert_or_assign(name, std::move(entry));
  return made;
}

}  // namespace ulpscope
