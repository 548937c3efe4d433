#include "onnx/type_support.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>

namespace ulpscope {
namespace {

constexpr int kFloat16 = 1, kBFloat16 = 2, kSameAsBefore = 4;

struct Version {
  int since;  ///< Opset.
  int flags;  ///< kFloat16 | kBFloat16 | kSameAsBefore: a node of the version before means the same.
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

}  // namespace

bool onnx_accepts(std::string_view domain, std::string_view op, int opset, DataType type) noexcept {
  if (type == DataType::kFloat32 || (!domain.empty() && domain != "ai.onnx")) return true;
  const Operator* found = find(domain, op);
  if (found == nullptr) return false;
  int flags = 0;
  for (const Version& version : found->versions)
    if (version.since != 0 && version.since <= opset) flags = version.flags;
  return (flags & flag_of(type)) != 0;
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
