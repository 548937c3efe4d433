#include "precision/fingerprint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <new>
#include <type_traits>
#include <variant>

#include "core/file.h"
#include "engine/option_names.h"
#include "engine/target.h"
#include "precision/objective.h"
#include "runners/script_host.h"

namespace ulpscope {
namespace {

struct FreeHash {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

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
    const Tensor elements = value.in_memory();
    bytes(elements.raw(), elements.bytes());
    MappedFile::release(elements.raw(), elements.bytes());
  }
  std::string digest() const { return fmt::format("xxh3:{:016x}", XXH3_64bits_digest(state_.get())); }

 private:
  std::unique_ptr<XXH3_state_t, FreeHash> state_;
};

std::string hash_of_content(const MappedFile& file) {
  constexpr std::size_t kPiece = std::size_t{8} << 20;
  const std::unique_ptr<XXH3_state_t, FreeHash> state(XXH3_createState());
  if (!state) throw std::bad_alloc();
  XXH3_64bits_reset(state.get());
  // Piece by piece: no more of the file is in memory.
  for (auto rest = file.bytes(); !rest.empty(); rest = rest.subspan(std::min(kPiece, rest.size()))) {
    const auto piece = rest.first(std::min(kPiece, rest.size()));
    XXH3_64bits_update(state.get(), piece.data(), piece.size());
    MappedFile::release(piece.data(), piece.size());
  }
  return fmt::format("xxh3:{:016x}", XXH3_64bits_digest(state.get()));
}

}  // namespace

std::string hash_of_file(const MappedFile& file) { return file.hash(hash_of_content); }

std::string hash_of_file(const std::filesystem::path& path) { return hash_of_file(*MappedFile::open(path)); }

std::string hash_of_bytes(std::span<const std::byte> bytes) {
  return fmt::format("xxh3:{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

std::string hash_of_text(std::string_view text) { return hash_of_bytes(std::as_bytes(std::span(text))); }

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
    for (const TensorId id : list) hash.number(id.number());
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
    type(layer.precision ? std::optional(layer.precision->type()) : std::nullopt);
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

Fingerprint fingerprint_of(const SearchTask& task, const SearchData& data, const CriterionOptions& criterion,
                           const Criterion& judge, const std::string& model_hash, const std::string& version) {
  const BuildOptions& build = task.build;
  const auto layer_names = [&](const std::vector<LayerId>& layers) {
    std::vector<std::string> names;
    for (const LayerId id : layers) names.push_back(data.network->layer(id).name);
    return fmt::format("{}", fmt::join(names, ", "));
  };
  std::vector<std::string_view> ladder;
  for (const Precision precision : task.ladder) ladder.push_back(name_of(precision));
  std::string scales, quantiles;
  for (const auto& [name, scale] : build.scales) scales += fmt::format("{}={} ", name, scale);
  for (const auto& [name, quantile] : criterion.error_quantile.entries())
    quantiles += fmt::format("{}{}={}", quantiles.empty() ? "" : " ", name, quantile);
  const auto yes_or_no = [](bool value) { return std::string(value ? "yes" : "no"); };
  Fingerprint result = {
      {"program", version},
      {"model", model_hash},
      {"network", hash_of_network(*data.network)},
      {"samples", hash_of_samples(data.samples)},
      {"held-out samples", hash_of_samples(data.held_out)},
      {"golden results", hash_of_samples(data.golden)},
      {"golden results of held-out samples", hash_of_samples(data.held_out_golden)},
      {"criterion", judge.description()},
      {"--error-quantile", quantiles},
      {"--infinities-compare-equal", yes_or_no(task.infinities_equal)},
      {"precisions", fmt::format("{}", fmt::join(enabled_precisions(build), " "))},
      {"--precision", fmt::format("{}", fmt::join(ladder, " "))},
      {"--fusion", std::string(name_of(build.fusion))},
      {"--accumulation", std::string(name_of(build.accumulation))},
      {"--attention", std::string(name_of(build.attention))},
      {"--target", build.target},
      {"--backend", build.backend},
      {"--cost-model", yes_or_no(!build.assume_lowest)},
      {"--margin", task.margin > 0 ? fmt::format("{}", task.margin) : "from the data"},
      {"--no-repair", yes_or_no(!task.repair)},
      {"--keep", layer_names(task.keep)},
      {"--lower", layer_names(task.lower)},
      {"int8 scales", scales.empty() ? scales : hash_of_text(scales)},
  };
  // Sets are others where layers begin in the formats of the fewest bits.
  if (rule_of(task.objective).of_formats) result.emplace_back("--objective", std::string(name_of(task.objective)));
  if (task.bits > 0) result.emplace_back("--bits", fmt::format("{}", task.bits));
  if (have_chosen_scales(build.enabled)) {
    TensorMap squares;
    for (const auto& [name, tensor] : build.mean_squares) squares.push_back({name, tensor});
    result.emplace_back("--weight-scales", std::string(name_of(build.scale_choice.weights)));
    result.emplace_back("mean squares of activations", hash_of_samples({&squares, 1}));
  }
  if (have_mx_scales(build.enabled))
    result.emplace_back("--mx-scale-rule", std::string(name_of(build.scale_choice.mx)));
  if (is_target_file(build.target))
    result.emplace_back("figures of --target", hash_of_text(find_target(build.target).figures()));
  if (criterion.metric_function) result.emplace_back("metric function", criterion.metric_function->identity);
  if (!criterion.metric_script.empty())
    result.emplace_back("metric script", hash_of_file(ScriptName::parse(criterion.metric_script, "metric").path));
  return result;
}

}  // namespace ulpscope
