#include "runtime/plan_file.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "core/memory.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMagic = "ULPSPLAN";
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kHeaderBytes = 8 + 4 + 4 + 8 + 8;
constexpr std::size_t kWeightAlignment = 64;

/// Weights in the order in which they are met; the description refers to them by offset.
class Writer {
 public:
  Json tensor(const Tensor& value) {
    Json json{{"type", name_of(value.type())}, {"shape", value.shape()}, {"offset", size_}};
    pieces_.push_back(value);
    size_ += (value.bytes() + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
    return json;
  }

  Json network(const Network& n) {
    Json json{{"name", n.name}, {"source", n.source}, {"inputs", n.inputs}, {"outputs", n.outputs}};
    Json tensors = Json::array(), layers = Json::array();
    for (const TensorInfo& info : n.tensors) {
      Json t{{"name", info.name}, {"type", static_cast<int>(info.type)}};
      if (info.shape) t["shape"] = *info.shape;
      if (!info.dim_names.empty()) t["dims"] = info.dim_names;
      if (info.value) t["value"] = tensor(info.value);
      tensors.push_back(std::move(t));
    }
    for (const Layer& layer : n.layers) {
      Json l{{"name", layer.name},     {"op", layer.op->name},     {"domain", layer.op->domain}, {"opset", layer.opset},
             {"inputs", layer.inputs}, {"outputs", layer.outputs}, {"nodes", layer.nodes}};
      if (layer.precision) l["precision"] = static_cast<int>(*layer.precision);
      for (const auto& type : layer.output_types) l["output_types"].push_back(type ? static_cast<int>(*type) : -1);
      Json attributes = Json::object();
      for (const auto& [name, value] : layer.attributes.all()) attributes[name] = attribute(value);
      l["attributes"] = std::move(attributes);
      layers.push_back(std::move(l));
    }
    json["tensors"] = std::move(tensors);
    json["layers"] = std::move(layers);
    return json;
  }

  const std::vector<Tensor>& pieces() const noexcept { return pieces_; }

 private:
  Json attribute(const Attribute& value) {
    Json json{{"kind", value.index()}};
    std::visit(
        [&](const auto& v) {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, Tensor>)
            json["value"] = tensor(v);
          else if constexpr (std::is_same_v<T, Subgraph>)
            json["value"] = {{"network", network(*v.network)}, {"captures", v.captures}};
          else
            json["value"] = v;
        },
        value);
    return json;
  }

  std::vector<Tensor> pieces_;
  std::uint64_t size_ = 0;
};

class Reader {
 public:
  Reader(std::shared_ptr<MappedFile> file, std::span<std::byte> weights, const OpRegistry& ops)
      : file_(std::move(file)), weights_(weights), ops_(ops) {}

  Tensor tensor(const Json& json) const {
    const auto type = data_type_from_name(json.at("type").get<std::string>());
    Shape shape = json.at("shape").get<Shape>();
    const auto offset = json.at("offset").get<std::uint64_t>();
    if (!type) throw Error(ErrorCode::kInvalidFile, "a weight has an unknown type");
    for (std::int64_t d : shape)
      if (d < 0) throw Error(ErrorCode::kInvalidFile, "a weight has a negative dimension");
    const std::optional<std::uint64_t> bytes = bytes_of(*type, shape);
    if (offset % kWeightAlignment != 0 || offset > weights_.size() || !bytes || *bytes > weights_.size() - offset)
      throw Error(ErrorCode::kInvalidFile, "a weight lies outside of the file");
    return Tensor::borrow(*type, std::move(shape), weights_.data() + offset, file_);
  }

  std::shared_ptr<Network> network(const Json& json) const {
    auto n = std::make_shared<Network>();
    n->name = json.at("name").get<std::string>();
    n->source = json.at("source").get<std::string>();
    for (const Json& t : json.at("tensors")) {
      TensorInfo info;
      info.name = t.at("name").get<std::string>();
      info.type = static_cast<DataType>(t.at("type").get<int>());
      if (t.contains("shape")) info.shape = t["shape"].get<Shape>();
      if (t.contains("dims")) info.dim_names = t["dims"].get<std::vector<std::string>>();
      if (t.contains("value")) info.value = tensor(t["value"]);
      n->add_tensor(std::move(info));
    }
    for (const Json& l : json.at("layers")) n->add_layer(layer(l));
    n->inputs = json.at("inputs").get<std::vector<TensorId>>();
    n->outputs = json.at("outputs").get<std::vector<TensorId>>();
    n->check();
    return n;
  }

 private:
  Layer layer(const Json& l) const {
    Layer result;
    result.name = l.at("name").get<std::string>();
    const auto op = l.at("op").get<std::string>(), domain = l.at("domain").get<std::string>();
    result.op = ops_.find(domain, op);
    if (result.op == nullptr)
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("layer '{}' has the operator {}, which this version does not have", result.name, op));
    result.opset = l.at("opset").get<int>();
    result.inputs = l.at("inputs").get<std::vector<TensorId>>();
    result.outputs = l.at("outputs").get<std::vector<TensorId>>();
    result.nodes = l.at("nodes").get<std::vector<std::string>>();
    if (l.contains("precision")) result.precision = static_cast<DataType>(l["precision"].get<int>());
    if (l.contains("output_types"))
      for (const Json& type : l["output_types"])
        result.output_types.push_back(type.get<int>() < 0 ? std::nullopt
                                                          : std::optional(static_cast<DataType>(type.get<int>())));
    for (const auto& [name, value] : l.at("attributes").items()) result.attributes.set(name, attribute(value));
    return result;
  }

  Attribute attribute(const Json& json) const {
    const Json& value = json.at("value");
    switch (json.at("kind").get<int>()) {
      case 0:
        return value.get<std::int64_t>();
      case 1:
        return value.get<float>();
      case 2:
        return value.get<std::string>();
      case 3:
        return value.get<std::vector<std::int64_t>>();
      case 4:
        return value.get<std::vector<float>>();
      case 5:
        return value.get<std::vector<std::string>>();
      case 6:
        return tensor(value);
      case 7:
        return Subgraph{network(value.at("network")), value.at("captures").get<std::vector<int>>()};
      default:
        throw Error(ErrorCode::kInvalidFile, "an attribute has an unknown kind");
    }
  }

  std::shared_ptr<MappedFile> file_;
  std::span<std::byte> weights_;
  const OpRegistry& ops_;
};

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
T get(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

}  // namespace

void write_plan_file(const std::filesystem::path& path, const Network& network, const Assignment& assignment,
                     const BuildOptions& options) {
  Writer writer;
  Json description{{"network", writer.network(network)}};
  Json& a = description["assignment"];
  for (Precision p : assignment.precision) a["precision"].push_back(static_cast<int>(p));
  for (DataType t : assignment.storage) a["storage"].push_back(static_cast<int>(t));
  a["pinned"] = assignment.pinned;
  a["reason"] = assignment.reason;
  a["int8_output"] = static_cast<int>(assignment.int8_output);
  if (!assignment.scale.empty()) a["scale"] = assignment.scale;
  Json& o = description["options"];
  o = {{"tf32", options.tf32},
       {"fp16", options.fp16},
       {"bf16", options.bf16},
       {"int8", options.int8},
       {"fp8", options.fp8},
       {"constraints", static_cast<int>(options.constraints)},
       {"fusion", static_cast<int>(options.fusion)},
       {"assume_lowest", options.assume_lowest},
       {"strongly_typed", options.strongly_typed},
       {"target", options.target}};
  if (!options.typical_shapes.empty()) o["typical_shapes"] = options.typical_shapes;
  for (const Profile& p : options.profiles) o["profiles"].push_back({{"min", p.min}, {"opt", p.opt}, {"max", p.max}});
  const std::vector<std::uint8_t> packed = Json::to_msgpack(description);
  const std::string padding((kWeightAlignment - (kHeaderBytes + packed.size()) % kWeightAlignment) % kWeightAlignment, '\0');
  XXH3_state_t* hash = XXH3_createState();
  if (hash == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(hash);
  std::vector<std::string_view> pieces{
      std::string_view(), {reinterpret_cast<const char*>(packed.data()), packed.size()}, padding};
  const std::string zeros(kWeightAlignment, '\0');
  for (const Tensor& piece : writer.pieces()) {
    pieces.emplace_back(static_cast<const char*>(piece.raw()), piece.bytes());
    pieces.emplace_back(zeros.data(), (kWeightAlignment - piece.bytes() % kWeightAlignment) % kWeightAlignment);
  }
  for (std::size_t i = 1; i < pieces.size(); ++i) XXH3_64bits_update(hash, pieces[i].data(), pieces[i].size());
  std::string header(kMagic);
  put<std::uint32_t>(header, kVersion);
  put<std::uint32_t>(header, 0);
  put<std::uint64_t>(header, packed.size());
  put<std::uint64_t>(header, XXH3_64bits_digest(hash));
  XXH3_freeState(hash);
  pieces[0] = header;
  write_file(path, pieces);
}

PlanFile read_plan_file(const std::filesystem::path& path, const OpRegistry& ops) {
  const auto file = MappedFile::open(path);
  const std::span<std::byte> bytes = file->bytes();
  const auto refuse = [&](const std::string& why) -> Error {
    return {ErrorCode::kInvalidFile, fmt::format("[engine] {}: {}", path.string(), why)};
  };
  if (bytes.size() < kHeaderBytes || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    throw refuse(
        "not an engine of ulpscope: expected a file that starts with ULPSPLAN (engines of TensorRT cannot be read); "
        "build one with --save-engine");
  const auto version = get<std::uint32_t>(bytes, 8);
  if (version != kVersion)
    throw refuse(fmt::format("expected engine format version {}, got {}; build the engine again", kVersion, version));
  const auto described = get<std::uint64_t>(bytes, 16);
  if (described > bytes.size() - kHeaderBytes) throw refuse("the file is truncated");
  if (XXH3_64bits(bytes.data() + kHeaderBytes, bytes.size() - kHeaderBytes) != get<std::uint64_t>(bytes, 24))
    throw refuse("the checksum does not match: the file is damaged or truncated; build the engine again");
  try {
    const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data()) + kHeaderBytes;
    const Json description = Json::from_msgpack(begin, begin + described);
    const std::size_t weights_at = (kHeaderBytes + described + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
    const Reader reader(file, bytes.subspan(std::min(weights_at, bytes.size())), ops);
    PlanFile result;
    result.network = reader.network(description.at("network"));
    const Json& a = description.at("assignment");
    for (const Json& p : a.at("precision")) result.assignment.precision.push_back(static_cast<Precision>(p.get<int>()));
    for (const Json& t : a.at("storage")) result.assignment.storage.push_back(static_cast<DataType>(t.get<int>()));
    result.assignment.pinned = a.at("pinned").get<std::vector<char>>();
    result.assignment.reason = a.at("reason").get<std::vector<std::string>>();
    result.assignment.int8_output = static_cast<DataType>(a.at("int8_output").get<int>());
    if (a.contains("scale")) result.assignment.scale = a["scale"].get<std::vector<float>>();
    const Json& o = description.at("options");
    BuildOptions& options = result.options;
    options.tf32 = o.at("tf32").get<bool>();
    options.fp16 = o.at("fp16").get<bool>();
    options.bf16 = o.at("bf16").get<bool>();
    options.int8 = o.at("int8").get<bool>();
    options.fp8 = o.at("fp8").get<bool>();
    options.constraints = static_cast<ConstraintMode>(o.at("constraints").get<int>());
    options.fusion = static_cast<Fusion>(o.at("fusion").get<int>());
    options.assume_lowest = o.at("assume_lowest").get<bool>();
    options.strongly_typed = o.at("strongly_typed").get<bool>();
    options.target = o.at("target").get<std::string>();
    if (o.contains("typical_shapes")) options.typical_shapes = o["typical_shapes"].get<std::map<std::string, Shape>>();
    if (o.contains("profiles"))
      for (const Json& p : o["profiles"])
        options.profiles.push_back({p.at("min").get<std::map<std::string, Shape>>(),
                                    p.at("opt").get<std::map<std::string, Shape>>(),
                                    p.at("max").get<std::map<std::string, Shape>>()});
    if (result.assignment.precision.size() != result.network->layers.size() ||
        result.assignment.storage.size() != result.network->tensors.size() ||
        (!result.assignment.scale.empty() && result.assignment.scale.size() != result.network->tensors.size()))
      throw refuse("the assignment does not fit the network");
    return result;
  } catch (const nlohmann::json::exception& e) {
    throw refuse(fmt::format("the description is malformed: {}", e.what()));
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("[engine] {}: {}", path.string(), e.what()));
  }
}

}  // namespace ulpscope
