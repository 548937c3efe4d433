#include "runtime/plan_file.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "core/memory.h"
#include "core/messages.h"
#include "formats/numeric_format.h"
#include "runtime/plan_values.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMagic = "ULPSPLAN";
constexpr std::uint32_t kVersion = 3;
constexpr std::size_t kHeaderBytes = 8 + 4 + 4 + 8 + 8;
constexpr std::size_t kWeightAlignment = 64;
/// Of lists and objects in the description: graphs within graphs take six levels each.
constexpr int kMaxDepth = 256;

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
    Json json{{"name", n.name}, {"inputs", numbers(n.inputs)}, {"outputs", numbers(n.outputs)}};
    Json tensors = Json::array(), layers = Json::array();
    for (const TensorInfo& info : n.tensors) {
      Json t{{"name", info.name}, {"type", name_of(info.type)}};
      if (info.shape) t["shape"] = *info.shape;
      if (!info.dim_names.empty()) t["dims"] = info.dim_names;
      if (info.value) t["value"] = tensor(info.value);
      tensors.push_back(std::move(t));
    }
    for (const Layer& layer : n.layers) {
      Json l{{"name", layer.name},
             {"op", layer.op->name},
             {"domain", layer.op->domain},
             {"opset", layer.opset},
             {"inputs", numbers(layer.inputs)},
             {"outputs", numbers(layer.outputs)},
             {"nodes", layer.nodes}};
      if (layer.precision) l["precision"] = layer.precision->name();
      for (const auto& type : layer.output_types) l["output_types"].push_back(type ? name_of(*type) : "");
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
  static std::vector<std::int32_t> numbers(const std::vector<TensorId>& ids) {
    std::vector<std::int32_t> result;
    for (TensorId id : ids) result.push_back(id.number());
    return result;
  }

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

/// Stops the parser, which calls itself for every level, before it runs out of stack.
class DepthLimit : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool start_object(std::size_t) override { return ++depth_ <= kMaxDepth; }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(std::size_t) override { return ++depth_ <= kMaxDepth; }
  bool end_array() override { return --depth_ >= 0; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;  // the parser that follows says it
  }
  bool exceeded() const { return depth_ > kMaxDepth; }

 private:
  int depth_ = 0;
};

class Reader {
 public:
  Reader(std::shared_ptr<const void> owner, std::span<std::byte> weights, const OpRegistry& ops)
      : owner_(std::move(owner)), weights_(weights), ops_(ops) {}

  std::shared_ptr<Network> network(const Json& json) const {
    auto n = std::make_shared<Network>();
    n->name = json.at("name").get<std::string>();
    for (const Json& t : json.at("tensors").get_ref<const Json::array_t&>()) n->add_tensor(tensor_info(t));
    for (const Json& l : json.at("layers").get_ref<const Json::array_t&>()) n->add_layer(layer(l, *n));
    n->inputs = ids(json.at("inputs"), *n, 0);
    n->outputs = ids(json.at("outputs"), *n, 0);
    for (std::size_t i = 0; i < n->inputs.size(); ++i)
      if (n->tensor(n->inputs[i]).value || std::ranges::count(n->inputs, n->inputs[i]) != 1)
        plan::fail("the input '{}' is a constant, or comes twice", n->tensor(n->inputs[i]).name);
    n->check();
    return n;
  }

 private:
  Tensor tensor(const Json& json) const {
    const DataType type = plan::data_type(json.at("type"));
    Shape shape = plan::shape_of(json.at("shape"), 0);
    const auto offset =
        static_cast<std::uint64_t>(plan::integer(json.at("offset"), 0, std::numeric_limits<std::int64_t>::max()));
    const std::optional<std::uint64_t> bytes = bytes_of(type, shape);
    if (type == DataType::kUndefined || offset % kWeightAlignment != 0 || offset > weights_.size() || !bytes ||
        *bytes > weights_.size() - offset)
      plan::fail("a weight lies outside of the file");
    Tensor result = Tensor::borrow(type, std::move(shape), weights_.data() + offset, owner_);
    // One element per byte, in the low bits.
    const NumericFormat* format = format_of(type);
    const int bits = type == DataType::kBool ? 1 : format != nullptr ? format->bits() : 8;
    const auto* elements = static_cast<const std::uint8_t*>(result.raw());
    if (bits < 8 && std::any_of(elements, elements + *bytes, [&](std::uint8_t byte) { return byte >> bits != 0; }))
      plan::fail("a weight has elements that are none of type {}", name_of(type));
    return result;
  }

  TensorInfo tensor_info(const Json& t) const {
    TensorInfo info;
    info.name = t.at("name").get<std::string>();
    info.type = plan::data_type(t.at("type"));
    if (t.contains("shape")) info.shape = plan::shape_of(t["shape"], -1);
    if (t.contains("dims")) info.dim_names = t["dims"].get<std::vector<std::string>>();
    if (t.contains("value")) info.value = tensor(t["value"]);
    if (!info.dim_names.empty() && (!info.shape || info.dim_names.size() != info.shape->size()))
      plan::fail("tensor '{}' has {} names of dimensions, which do not fit its shape", info.name,
                 info.dim_names.size());
    if (info.value && (info.value.type() != info.type || (info.shape && *info.shape != info.value.shape())))
      plan::fail("tensor '{}' has elements that do not fit its type and shape", info.name);
    return info;
  }

  /// `lowest`: kNone where a tensor may be absent, else 0.
  static std::vector<TensorId> ids(const Json& json, const Network& n, std::int64_t lowest) {
    const auto values = plan::integers(json, lowest, static_cast<std::int64_t>(n.tensors.size()) - 1);
    return {values.begin(), values.end()};
  }

  Layer layer(const Json& l, const Network& n) const {
    Layer result;
    result.name = l.at("name").get<std::string>();
    const auto op = l.at("op").get<std::string>(), domain = l.at("domain").get<std::string>();
    result.op = ops_.find(domain, op);
    if (result.op == nullptr)
      throw unsupported("layer '{}' has the operator {}, which this version does not have", result.name, op);
    result.opset =
        static_cast<int>(plan::integer(l.at("opset"), result.op->since_version, std::numeric_limits<int>::max()));
    result.inputs = ids(l.at("inputs"), n, kNone);
    result.outputs = ids(l.at("outputs"), n, kNone);
    result.nodes = l.at("nodes").get<std::vector<std::string>>();
    if (l.contains("precision")) result.precision = plan::request(l["precision"]);
    if (l.contains("output_types"))
      for (const Json& type : l["output_types"].get_ref<const Json::array_t&>())
        result.output_types.push_back(type == "" ? std::nullopt : std::optional(plan::data_type(type)));
    for (const auto& [name, value] : l.at("attributes").get_ref<const Json::object_t&>())
      result.attributes.set(name, attribute(value, result));
    check_layer(result, n);
    return result;
  }

  static void check_layer(const Layer& layer, const Network& n) {
    const auto fits = [](std::size_t count, OpDef::Range range, bool any_more) {
      return count >= static_cast<std::size_t>(range.min) && (any_more || count <= static_cast<std::size_t>(range.max));
    };
    const bool control = layer.op->kind == OpKind::kControl;  // takes captured values besides
    if (!fits(layer.inputs.size(), layer.op->inputs, control) ||
        !fits(layer.outputs.size(), layer.op->outputs, false) || layer.output_types.size() > layer.outputs.size())
      plan::fail("layer '{}' ({}) has {} inputs and {} outputs, which is not what its operator takes", layer.name,
                 layer.op->name, layer.inputs.size(), layer.outputs.size());
    for (TensorId id : present(layer.outputs))
      if (static_cast<bool>(n.tensor(id).value) != (layer.op->kind == OpKind::kConstant))
        plan::fail("layer '{}' ({}) does not fit what it writes: '{}'", layer.name, layer.op->name, n.tensor(id).name);
  }

  Attribute attribute(const Json& json, const Layer& layer) const {
    const Json& value = json.at("value");
    switch (plan::integer(json.at("kind"), 0, static_cast<std::int64_t>(std::variant_size_v<Attribute>) - 1)) {
      case 0:
        return plan::integers(Json::array({value})).front();
      case 1:
        return plan::real(value);
      case 2:
        return value.get<std::string>();
      case 3:
        return plan::integers(value);
      case 4:
        return plan::reals(value);
      case 5:
        return value.get<std::vector<std::string>>();
      case 6:
        return tensor(value);
      default:
        return subgraph(value, layer);
    }
  }

  Subgraph subgraph(const Json& json, const Layer& layer) const {
    Subgraph result{network(json.at("network")), {}};
    for (std::int64_t capture : plan::integers(json.at("captures"), 0, std::ssize(layer.inputs) - 1)) {
      if (layer.inputs[capture] == kNone) plan::fail("layer '{}' passes an absent value to its sub-graph", layer.name);
      result.captures.push_back(static_cast<int>(capture));
    }
    if (result.captures.size() > result.network->inputs.size())
      plan::fail("a sub-graph of layer '{}' has fewer inputs than are passed to it", layer.name);
    return result;
  }

  std::shared_ptr<const void> owner_;
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

/// Files without such a choice are those of earlier releases.
void put_scale_choice(const Assignment& assignment, Json& a) {
  if (assignment.scale_choice == ScaleChoice{}) return;
  a["weight_scales"] = static_cast<int>(assignment.scale_choice.weights);
  a["mx_scale_rule"] = static_cast<int>(assignment.scale_choice.mx);
  Json channels = Json::array();
  for (const auto& [id, weights] : assignment.channel_weights.items())
    if (weights != nullptr)
      channels.push_back({{"tensor", id.number()}, {"axis", weights->axis}, {"mean_squares", weights->mean_squares}});
  a["channel_weights"] = std::move(channels);
}

}  // namespace

void write_plan_file(const std::filesystem::path& path, const Network& network, const Assignment& assignment,
                     const BuildOptions& options) {
  Writer writer;
  Json description{{"network", writer.network(network)}};
  Json& a = description["assignment"];
  for (Precision p : assignment.precision) a["precision"].push_back(static_cast<int>(p));
  for (DataType t : assignment.storage) a["storage"].push_back(name_of(t));
  a["pinned"] = assignment.pinned;
  a["reason"] = assignment.reason;
  a["int8_output"] = name_of(assignment.int8_output);
  if (!assignment.scale.empty()) a["scale"] = assignment.scale;
  put_scale_choice(assignment, a);
  Json& o = description["options"];
  o = {{"constraints", static_cast<int>(options.constraints)},
       {"fusion", static_cast<int>(options.fusion)},
       {"accumulation", static_cast<int>(options.accumulation)},
       {"attention", static_cast<int>(options.attention)},
       {"assume_lowest", options.assume_lowest},
       {"strongly_typed", options.strongly_typed},
       {"target", options.target}};
  for (const LayerForm& form : layer_forms())
    if (form.precision != Precision::kFP32) o[std::string(form.name)] = options.enabled.has(form.precision);
  if (!options.typical_shapes.empty()) o["typical_shapes"] = options.typical_shapes;
  for (const Profile& p : options.profiles) o["profiles"].push_back({{"min", p.min}, {"opt", p.opt}, {"max", p.max}});
  const std::vector<std::uint8_t> packed = Json::to_msgpack(description);
  const std::string padding((kWeightAlignment - (kHeaderBytes + packed.size()) % kWeightAlignment) % kWeightAlignment,
                            '\0');
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
  const auto check_sources = [&] {
    for (const auto& file : network.files) file->check_unchanged();
  };
  try {
    write_file(path, pieces, check_sources);
  } catch (const Error&) {
    check_sources();  // Then that is the reason.
    throw;
  }
}

namespace {

void read_scale_choice(const Json& a, const Network& network, Assignment& result) {
  result.scale_choice = {plan::enumerator(a.at("weight_scales"), WeightScales::kActivations),
                         plan::enumerator(a.at("mx_scale_rule"), MxScaleRule::kOcp)};
  result.channel_weights.resize(network.tensors.size());
  for (const Json& each : a.at("channel_weights").get_ref<const Json::array_t&>()) {
    const auto id = plan::integers(Json::array({each.at("tensor")}), 0, std::ssize(network.tensors) - 1).front();
    const auto axis = plan::integers(Json::array({each.at("axis")}), 0, kMaxDepth).front();
    auto squares = plan::reals(each.at("mean_squares"));
    for (const float square : squares)
      if (!(square >= 0) || std::isinf(square)) plan::fail("expected mean squares of 0 and more, got {}", square);
    result.channel_weights[TensorId(id)] =
        std::make_shared<const ChannelWeights>(ChannelWeights{static_cast<int>(axis), std::move(squares)});
  }
}

Assignment read_assignment(const Json& a, const Network& network) {
  Assignment result;
  if (!network.layers.empty())
    for (const Json& p : a.at("precision").get_ref<const Json::array_t&>())
      result.precision.push_back(plan::enumerator(p, layer_forms().back().precision));
  if (!network.tensors.empty())
    for (const Json& t : a.at("storage").get_ref<const Json::array_t&>()) result.storage.push_back(plan::data_type(t));
  for (std::int64_t pinned : plan::integers(a.at("pinned"), 0, 1)) result.pinned.push_back(static_cast<char>(pinned));
  result.reason = IdMap<LayerId, std::string>(a.at("reason").get<std::vector<std::string>>());
  result.int8_output = plan::data_type(a.at("int8_output"));
  if (a.contains("scale")) result.scale = IdMap<TensorId, float>(plan::reals(a["scale"]));
  if (a.contains("weight_scales")) read_scale_choice(a, network, result);
  const std::size_t layers = network.num_all_layers(), tensors = network.tensors.size();
  if (result.precision.size() != layers || result.reason.size() != layers || result.storage.size() != tensors ||
      result.pinned.size() != tensors || (!result.scale.empty() && result.scale.size() != tensors))
    plan::fail("the assignment does not fit the network");
  for (float scale : result.scale)
    if (!(scale >= 0) || std::isinf(scale)) plan::fail("expected scales of 0 and more, got {}", scale);
  if (!is_floating(result.int8_output) || result.int8_output == DataType::kFloat64)
    plan::fail("int8 layers store {}, which none can", name_of(result.int8_output));
  for (TensorId t : network.tensors.ids()) {
    // Floats that layers compute in are stored as one another; all else as it is.
    const DataType type = network.tensors[t].type, storage = result.storage[t];
    const bool narrow = is_floating(type) && type != DataType::kFloat64 && !is_storage_only(type);
    if (type == DataType::kUndefined ||
        (narrow ? is_floating(storage) && storage != DataType::kFloat64 : storage == type))
      continue;
    plan::fail("tensor '{}' of type {} is stored as {}", network.tensors[t].name, name_of(type), name_of(storage));
  }
  return result;
}

BuildOptions read_options(const Json& o) {
  BuildOptions options;
  for (const LayerForm& form : layer_forms())
    if (form.precision != Precision::kFP32)
      options.enabled.set(form.precision, o.value(std::string(form.name), false));  // Older files lack newer ones.
  options.constraints = plan::enumerator(o.at("constraints"), ConstraintMode::kObey);
  options.fusion = plan::enumerator(o.at("fusion"), Fusion::kFull);
  if (o.contains("accumulation")) options.accumulation = plan::enumerator(o["accumulation"], Accumulation::kHopperFast);
  if (o.contains("attention")) options.attention = plan::enumerator(o["attention"], AttentionRule::kFlash);
  options.assume_lowest = o.at("assume_lowest").get<bool>();
  options.strongly_typed = o.at("strongly_typed").get<bool>();
  options.target = o.at("target").get<std::string>();
  if (o.contains("typical_shapes")) options.typical_shapes = plan::named_shapes(o["typical_shapes"]);
  if (o.contains("profiles"))
    for (const Json& p : o["profiles"].get_ref<const Json::array_t&>())
      options.profiles.push_back(
          {plan::named_shapes(p.at("min")), plan::named_shapes(p.at("opt")), plan::named_shapes(p.at("max"))});
  return options;
}

}  // namespace

PlanFile parse_plan(std::span<std::byte> bytes, std::shared_ptr<const void> owner, const std::string& source,
                    const OpRegistry& ops) {
  const auto refuse = [&](const std::string& why) -> Error {
    return {ErrorCode::kInvalidFile, fmt::format("[engine] {}: {}", source, why)};
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
    DepthLimit depth;
    Json::sax_parse(begin, begin + described, &depth, Json::input_format_t::msgpack);
    if (depth.exceeded()) throw refuse(fmt::format("the description is nested more than {} deep", kMaxDepth));
    const Json description = Json::from_msgpack(begin, begin + described);
    const std::size_t weights_at =
        (kHeaderBytes + described + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
    const Reader reader(std::move(owner), bytes.subspan(std::min(weights_at, bytes.size())), ops);
    PlanFile result;
    result.network = reader.network(description.at("network"));
    result.assignment = read_assignment(description.at("assignment"), *result.network);
    result.options = read_options(description.at("options"));
    result.assignment.accumulation = result.options.accumulation;
    result.assignment.attention = result.options.attention;
    return result;
  } catch (const nlohmann::json::exception& e) {
    throw refuse(fmt::format("the description is malformed: {}", e.what()));
  } catch (const Error& e) {
    if (std::string_view(e.what()).starts_with("[engine]")) throw;
    throw error_of(e.code(), "[engine] {}: {}; build the engine again", source, e.what());
  }
}

PlanFile read_plan_file(const std::filesystem::path& path, const OpRegistry& ops) {
  const auto file = MappedFile::open(path);
  PlanFile plan = file->read_whole([&] { return parse_plan(file->bytes(), file, path.string(), ops); });
  plan.network->files.push_back(file);
  return plan;
}

}  // namespace ulpscope
