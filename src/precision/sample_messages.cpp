#include "precision/sample_messages.h"

#include <cstring>

#include "compare/tensor_map.h"
#include "core/messages.h"
#include "precision/answer_parts.h"
#include "runners/message.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

using json::Json;

constexpr std::uint64_t kAligned = 64;

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + kAligned - 1) / kAligned * kAligned; }

[[noreturn]] void fail_message(const char* what) {
  throw error_of(ErrorCode::kScript, "[workers] expected {}; are all of one version?", what);
}

template <typename T, typename List>
Tensor bytes_of(const List& list) {
  Tensor result(DataType::kUInt8, {static_cast<std::int64_t>(list.size())});
  auto* out = result.data<std::uint8_t>();
  for (const auto& each : list) *out++ = static_cast<std::uint8_t>(static_cast<T>(each));
  return result;
}

/// The elements, of this type.
template <typename T>
std::span<const T> elements(const Value& value, DataType type) {
  const Tensor& tensor = value.tensor();
  if (tensor.type() != type) fail_message("a list of another type");
  return {static_cast<const T*>(tensor.raw()), static_cast<std::size_t>(tensor.size())};
}

std::span<const std::uint8_t> bytes_in(const Value& value) { return elements<std::uint8_t>(value, DataType::kUInt8); }

/// As MessagePack that has the bits of all numbers, and names of any bytes.
Value packed(const Json& json) { return bytes_of<std::uint8_t>(Json::to_msgpack(json)); }

Json unpacked(const Value& value) {
  try {
    return Json::from_msgpack(bytes_in(value));
  } catch (const Json::exception&) {
    fail_message("a part of an answer");
  }
}

}  // namespace

Tensor to_bytes(const Value& value) {
  const PackedMessage packed = pack(value);
  const std::uint64_t head = sizeof(std::uint64_t), size = packed.message.size(), shared_at = aligned(head + size);
  Tensor result(DataType::kUInt8, {static_cast<std::int64_t>(shared_at + packed.shared_bytes)});
  auto* out = result.data<std::uint8_t>();
  std::memset(out, 0, static_cast<std::size_t>(result.size()));
  std::memcpy(out, &size, head);
  std::memcpy(out + head, packed.message.data(), size);
  for (const auto& [offset, tensor] : packed.tensors)
    if (tensor.bytes() > 0) std::memcpy(out + shared_at + offset, tensor.raw(), tensor.bytes());
  return result;
}

Value from_bytes(const Tensor& bytes) {
  const auto all = static_cast<std::uint64_t>(bytes.size());
  std::uint64_t size = 0;
  if (bytes.type() != DataType::kUInt8 || all < sizeof(size)) fail_message("a message");
  std::memcpy(&size, bytes.raw(), sizeof(size));
  if (size > all || aligned(sizeof(size) + size) > all) fail_message("a whole message");
  // Tensors stay in memory of their own, at its alignment.
  const std::uint64_t shared_at = aligned(sizeof(size) + size);
  auto shared = std::make_shared<Tensor>(DataType::kUInt8, Shape{static_cast<std::int64_t>(all - shared_at)});
  const auto* in = static_cast<const std::byte*>(bytes.raw());
  auto* out = reinterpret_cast<std::byte*>(shared->data<std::uint8_t>());
  if (all > shared_at) std::memcpy(out, in + shared_at, all - shared_at);
  return unpack({reinterpret_cast<const char*>(in) + sizeof(size), size}, {out, all - shared_at}, shared);
}

Value value_of(const Assignment& assignment) {
  Tensor scale(DataType::kFloat32, {static_cast<std::int64_t>(assignment.scale.size())});
  float* out = scale.data<float>();
  for (const float each : assignment.scale) *out++ = each;
  return Value::Map{{"precision", bytes_of<Precision>(assignment.precision)},
                    {"storage", bytes_of<DataType>(assignment.storage)},
                    {"pinned", bytes_of<char>(assignment.pinned)},
                    {"scale", std::move(scale)},
                    {"int8_output", static_cast<int>(assignment.int8_output)},
                    {"accumulation", static_cast<int>(assignment.accumulation)},
                    {"attention", static_cast<int>(assignment.attention)}};
}

Assignment assignment_from(const Value& value) {
  Assignment result;
  for (const std::uint8_t each : bytes_in(value["precision"])) {
    result.precision.push_back(static_cast<Precision>(each));
    result.reason.push_back({});
  }
  for (const std::uint8_t each : bytes_in(value["storage"])) result.storage.push_back(static_cast<DataType>(each));
  for (const std::uint8_t each : bytes_in(value["pinned"])) result.pinned.push_back(static_cast<char>(each));
  for (const float each : elements<float>(value["scale"], DataType::kFloat32)) result.scale.push_back(each);
  result.int8_output = static_cast<DataType>(value["int8_output"].integer());
  result.accumulation = static_cast<Accumulation>(value["accumulation"].integer());
  result.attention = static_cast<AttentionRule>(value["attention"].integer());
  return result;
}

Value value_of(const Judgement& judgement) { return packed(json::from_judgement(judgement)); }

Judgement judgement_from(const Value& value) {
  const Json json = unpacked(value);
  return json::to_judgement({json, "[workers]"});
}

Value value_of(const SampleEffects& effects) {
  Tensor squares(DataType::kFloat64, {static_cast<std::int64_t>(effects.mean_squares.size())});
  std::memcpy(squares.data<double>(), effects.mean_squares.data(), squares.bytes());
  return Value::Map{{"squares", std::move(squares)},
                    {"overflows", bytes_of<char>(effects.overflows)},
                    {"incomplete", bytes_of<char>(effects.incomplete)}};
}

SampleEffects effects_from(const Value& value) {
  SampleEffects result;
  const auto squares = elements<double>(value["squares"], DataType::kFloat64);
  result.mean_squares.assign(squares.begin(), squares.end());
  for (const std::uint8_t each : bytes_in(value["overflows"])) result.overflows.push_back(static_cast<char>(each));
  for (const std::uint8_t each : bytes_in(value["incomplete"])) result.incomplete.push_back(static_cast<char>(each));
  return result;
}

Value value_of(std::span<const Repair> repairs) {
  Json list = Json::array();
  for (const Repair& repair : repairs) list.push_back(json::from_repair(repair));
  return packed(list);
}

std::vector<Repair> repairs_from(const Value& value) {
  std::vector<Repair> result;
  const Json list = unpacked(value);
  json::Reader(list, "[workers]").each([&](const json::Reader& each) { result.push_back(json::to_repair(each)); });
  return result;
}

Value value_of(const std::map<std::string, float>& scales) {
  Value::Array result;
  for (const auto& [name, scale] : scales) result.emplace_back(Value::Array{name, static_cast<double>(scale)});
  return result;
}

std::map<std::string, float> scales_from(const Value& value) {
  std::map<std::string, float> result;
  for (const Value& each : value.array())
    result.emplace(each.array().at(0).text(), static_cast<float>(each.array().at(1).real()));
  return result;
}

namespace {

/// What a prediction asks, as it was answered elsewhere.
class ToldCriterion final : public Criterion {
 public:
  explicit ToldCriterion(const Value& value) : sensitivity_(static_cast<Sensitivity>(value["sensitivity"].integer())) {
    for (const Value& each : value["outputs"].array()) {
      const auto& parts = each.array();
      outputs_[parts.at(0).text()] = {parts.at(1).real(), parts.at(2).real(), parts.at(3).real(),
                                      parts.at(4).boolean()};
    }
  }
  std::string description() const override { return "of another process"; }
  Judgement judge(std::span<const TensorMap>, std::span<const TensorMap>) const override {
    throw InternalError("this criterion judges where the search runs");
  }
  Sensitivity sensitivity() const override { return sensitivity_; }
  double atol(const std::string& output) const override { return outputs_.at(output).atol; }
  double rtol(const std::string& output) const override { return outputs_.at(output).rtol; }
  double threshold(const std::string& output) const override { return outputs_.at(output).threshold; }
  bool judges(const std::string& output) const override {
    const auto found = outputs_.find(output);
    return found != outputs_.end() && found->second.judged;
  }

 private:
  struct Output {
    double atol, rtol, threshold;
    bool judged;
  };
  Sensitivity sensitivity_;
  std::map<std::string, Output> outputs_;
};

}  // namespace

Value prediction_value(const Criterion& criterion, std::span<const std::string> outputs) {
  Value::Array list;
  for (const std::string& name : outputs)
    list.emplace_back(Value::Array{name, criterion.atol(name), criterion.rtol(name), criterion.threshold(name),
                                   criterion.judges(name)});
  return Value::Map{{"sensitivity", static_cast<int>(criterion.sensitivity())}, {"outputs", std::move(list)}};
}

std::unique_ptr<Criterion> criterion_from(const Value& value) { return std::make_unique<ToldCriterion>(value); }

Value value_of_error(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  return Value::Map{{"error", std::string(error.what())},
                    {"code", known == nullptr ? -1 : static_cast<int>(known->code())}};
}

void throw_error_in(const Value& result) {
  const Value& text = result["error"];
  if (text.is_null()) return;
  const std::int64_t code = result["code"].integer();
  throw Error(code < 0 ? ErrorCode::kScript : static_cast<ErrorCode>(code), text.text());
}

}  // namespace ulpscope
