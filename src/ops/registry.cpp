#include "ops/registry.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <vector>

#include "ops/common.h"
#include "ops/scaling.h"

namespace ulpscope {

namespace ops {
#define ULPSCOPE_OPS(name) OpTable name();
#include "ops/ops.inc"
#undef ULPSCOPE_OPS
}  // namespace ops

namespace {

class Registry final : public OpRegistry {
 public:
  Registry() {
#define ULPSCOPE_OPS(name) std::ranges::move(ops::name(), std::back_inserter(defs_));
#include "ops/ops.inc"
#undef ULPSCOPE_OPS
    for (OpDef& def : defs_) def.scaling = ops::scaling_rule(def);
    std::ranges::sort(
        defs_, [](const OpDef& a, const OpDef& b) { return std::tie(a.domain, a.name) < std::tie(b.domain, b.name); });
  }

  const OpDef* find(std::string_view domain, std::string_view name) const override {
    if (domain == "ai.onnx") domain = "";
    const auto key = std::tie(domain, name);
    const auto found = std::lower_bound(defs_.begin(), defs_.end(), key, [](const OpDef& def, const auto& k) {
      return std::tie(def.domain, def.name) < k;
    });
    return found != defs_.end() && std::tie(found->domain, found->name) == key ? &*found : nullptr;
  }

  std::span<const OpDef> all() const override { return defs_; }

 private:
  std::vector<OpDef> defs_;
};

}  // namespace

const OpRegistry& op_registry() {
  static const Registry registry;
  return registry;
}

}  // namespace ulpscope
