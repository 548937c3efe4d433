#include "onnx/type_support.h"

#include <algorithm>
#include <iterator>

namespace ulpscope {
namespace {

constexpr int kFloat16 = 1, kBFloat16 = 2, kSameAsBefore = 4, kBodyRefusesFloat16 = 8, kBodyRefusesBFloat16 = 16;

struct Version {
  int since;  ///< Opset.
  /// kFloat16 | kBFloat16 | kSameAsBefore: a node of the version before means the same. kBodyRefuses...: the schema has
  /// the type, but the function that defines the operator has constants in float, with which it does not go.
  int flags;
};

struct Operator {
  std::string_view name;
  Version versions[16];
};

constexpr Operator kOperators[] = {
#include "onnx_operators.inc"
};

const Operator* find(std::string_view domain, std::string_view op) noexcept {
  if (!domain.empty() && domain != "ai.onnx") return nullptr;
  const auto* found = std::lower_bound(std::begin(kOperators), std::end(kOperators), op,
                                       [](const Operator& a, std::string_view b) { return a.name < b; });
  return found != std::end(kOperators) && found->name == op ? found : nullptr;
}

int flag_of(DataType type) noexcept {
  return type == DataType::kFloat16 ? kFloat16 : type == DataType::kBFloat16 ? kBFloat16 : 0;
}

int flags_at(const Operator& op, int opset) noexcept {
  int flags = 0;
  for (const Version& version : op.versions)
    if (version.since != 0 && version.since <= opset) flags = version.flags;
  return flags;
}

}  // namespace

bool onnx_accepts(std::string_view domain, std::string_view op, int opset, DataType type) noexcept {
  if (type == DataType::kFloat32 || (!domain.empty() && domain != "ai.onnx")) return true;
  const Operator* found = find(domain, op);
  return found != nullptr && (flags_at(*found, opset) & flag_of(type)) != 0;
}

bool onnx_defines_in_float(std::string_view domain, std::string_view op, int opset, DataType type) noexcept {
  const Operator* found = find(domain, op);
  const int flag = type == DataType::kFloat16 ? kBodyRefusesFloat16 : kBodyRefusesBFloat16;
  return found != nullptr && (flags_at(*found, opset) & flag) != 0;
}

int onnx_accepts_since(std::string_view domain, std::string_view op, int opset, DataType type) noexcept {
  if (onnx_accepts(domain, op, opset, type)) return opset;
  const Operator* found = find(domain, op);
  if (found == nullptr) return 0;
  for (const Version& version : found->versions)
    if (version.since > opset && (version.flags & flag_of(type)) != 0) return version.since;
  return 0;
}

bool onnx_means_the_same(std::string_view domain, std::string_view op, int from, int to) noexcept {
  if (!domain.empty() && domain != "ai.onnx") return true;
  const Operator* found = find(domain, op);
  if (found == nullptr) return from == to;
  for (const Version& version : found->versions)
    if (version.since > from && version.since <= to && (version.flags & kSameAsBefore) == 0) return false;
  return true;
}

}  // namespace ulpscope
