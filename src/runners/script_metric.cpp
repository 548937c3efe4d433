#include "runners/script_metric.h"

#include <algorithm>

#include "runners/tensor_values.h"

namespace ulpscope {
namespace {

/// Searches judge with their own samples and with held-out ones, as a whole or in part.
constexpr std::size_t kMaxKept = 4;

Value samples_value(std::span<const TensorMap> samples) {
  Value::Array result;
  for (const TensorMap& sample : samples) result.push_back(value_of(sample));
  return result;
}

ScriptMetric::Values values_from(const Value& value) {
  ScriptMetric::Values result;
  if (value.is_null()) return result;
  for (const Value& entry : value.array()) result.emplace_back(entry.array().at(0).text(), entry.array().at(1).real());
  return result;
}

bool same_tensors(std::span<const TensorMap> a, std::span<const TensorMap> b) {
  const auto same = [](const NamedTensor& x, const NamedTensor& y) {
    return x.name == y.name && x.tensor.raw() == y.tensor.raw() && x.tensor.type() == y.tensor.type() &&
           x.tensor.shape() == y.tensor.shape();
  };
  return std::ranges::equal(a, b,
                            [&](const TensorMap& x, const TensorMap& y) { return std::ranges::equal(x, y, same); });
}

}  // namespace

ScriptMetric::ScriptMetric(ScriptHost& host, ScriptName script) : host_(host), script_(std::move(script)) {}

ScriptMetric::~ScriptMetric() {
  for (const Kept& kept : kept_) forget(kept);
}

void ScriptMetric::forget(const Kept& kept) noexcept {
  try {
    if (kept.worker->alive()) kept.worker->call("close_metric", Value::Map{{"handle", kept.handle}});
  } catch (...) {
    // The worker is gone, and the outputs with it.
  }
}

ScriptMetric::Kept& ScriptMetric::keep(std::span<const TensorMap> golden) {
  std::erase_if(kept_, [](const Kept& kept) { return !kept.worker->alive(); });
  const auto found = std::ranges::find_if(kept_, [&](const Kept& kept) { return same_tensors(kept.golden, golden); });
  if (found != kept_.end()) {
    std::rotate(found, found + 1, kept_.end());
    return kept_.back();
  }
  if (kept_.size() == kMaxKept) {
    forget(kept_.front());
    kept_.erase(kept_.begin());
  }
  Kept kept;
  kept.worker = host_.data_worker();
  const Value opened = kept.worker->call(
      "open_metric",
      Value::Map{{"path", script_.path}, {"function", script_.function}, {"golden", samples_value(golden)}});
  kept.handle = opened["handle"].integer();
  kept.higher_is_better = opened["higher_is_better"].boolean();
  kept.best = values_from(opened["best"]);
  kept.golden.assign(golden.begin(), golden.end());
  kept_.push_back(std::move(kept));
  return kept_.back();
}

ScriptMetric::Result ScriptMetric::evaluate(std::span<const TensorMap> golden, std::span<const TensorMap> candidate) {
  const std::lock_guard lock(mutex_);
  const Kept& kept = keep(golden);
  const Value values = kept.worker->call("run_metric", Value::Map{{"path", script_.path},
                                                                  {"function", script_.function},
                                                                  {"handle", kept.handle},
                                                                  {"candidate", samples_value(candidate)}});
  return {values_from(values), kept.higher_is_better, kept.best};
}

}  // namespace ulpscope
