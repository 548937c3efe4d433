#include "precision/fingerprint.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <variant>

#include "core/file.h"

namespace ulpscope {
namespace {

class Hash {
 public:
  Hash() : state_(XXH3_createState()) {
    if (!state_) throw std::bad_alloc();
    XXH3_64bits_reset(state_.get());
  }
  void bytes(const void* data, std::size_t size) {
    number(static_cast<std::int64_t>(size));
    if (size != 0) XXH3_64bits_update(state_.get(), data, size);
  }
  void text(std::string_view value) { bytes(value.data(), value.size()); }
  void number(std::int64_t value) { XXH3_64bits_update(state_.get(), &value, sizeof value); }
  void tensor(const Tensor& value) {
    number(static_cast<std::int64_t>(value.type()));
    number(value.rank());
    for (const std::int64_t dimension : value.shape()) number(dimension);
    bytes(value.raw(), value.bytes());
  }
  std::string digest() const { return fmt::format("xxh3:{:016x}", XXH3_64bits_digest(state_.get())); }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

}  // namespace

std::string hash_of_file(const std::filesystem::path& path) {
  const auto file = MappedFile::open(path);
  const std::span<const std::byte> bytes = std::as_const(*file).bytes();
  return fmt::format("xxh3:{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

std::string hash_of_text(std::string_view text) {
  return fmt::format("xxh3:{:016x}", XXH3_64bits(text.data(), text.size()));
}

std::string hash_of_samples(std::span<const TensorMap> samples) {
  if (samples.empty()) return {};
  Hash hash;
  for (const TensorMap& sample : samples) {
    hash.number(static_cast<std::int64_t>(sample.size()));
    for (const NamedTensor& each : sample) {
      hash.text(each.name);
      hash.tensor(each.tensor);
    }
  }
  return hash.digest();
}

namespace {

void add_network(Hash& hash, const Network& network);

void add_attributes(Hash& hash, const Attributes& attributes) {
  hash.number(static_cast<std::int64_t>(attributes.all().size()));
  for (const auto& [name, attribute] : attributes.all()) {
    hash.text(name);
    hash.number(static_cast<std::int64_t>(attribute.index()));
    std::visit(
        [&](const auto& value) {
          using T = std::decay_t<decltype(value)>;
          if constexpr (std::is_same_v<T, Tensor>) {
            hash.tensor(value);
          } else if constexpr (std::is_same_v<T, Subgraph>) {
            add_network(hash, *value.network);
            for (const int capture : value.captures) hash.number(capture);
          } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
            hash.number(static_cast<std::int64_t>(value.size()));
            for (const std::string& each : value) hash.text(each);
          } else if constexpr (std::is_arithmetic_v<T>) {
            hash.bytes(&value, sizeof value);
          } else {  // A text, or a list of numbers.
            hash.bytes(value.data(), value.size() * sizeof value[0]);
          }
        },
        attribute);
  }
}

void add_network(Hash& hash, const Network& network) {
  const auto ids = [&](const std::vector<TensorId>& list) {
    hash.number(static_cast<std::int64_t>(list.size()));
    for (const TensorId id : list) hash.number(id);
  };
  const auto type = [&](const std::optional<DataType>& value) {
    hash.number(value ? static_cast<std::int64_t>(*value) : -1);
  };
  for (const Layer& layer : network.layers) {
    hash.text(layer.name);
    hash.text(layer.op->name);
    add_attributes(hash, layer.attributes);
    ids(layer.inputs);
    ids(layer.outputs);
    type(layer.precision);
    for (const std::optional<DataType>& each : layer.output_types) type(each);
  }
  for (const TensorInfo& info : network.tensors) {
    hash.text(info.name);
    hash.number(static_cast<std::int64_t>(info.type));
    if (info.value) hash.tensor(info.value);
  }
  ids(network.inputs);
  ids(network.outputs);
}

}  // namespace

std::string hash_of_network(const Network& network) {
  Hash hash;
  add_network(hash, network);
  return hash.digest();
}

}  // namespace ulpscope
