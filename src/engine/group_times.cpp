#include "engine/group_times.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "ops/forms.h"

namespace ulpscope {
namespace {

struct AttributeText {
  std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(float value) const { return fmt::format("{}", value); }
  std::string operator()(const std::string& value) const { return value; }
  std::string operator()(const std::vector<std::int64_t>& values) const {
    return fmt::format("[{}]", fmt::join(values, ","));
  }
  std::string operator()(const std::vector<float>& values) const { return fmt::format("[{}]", fmt::join(values, ",")); }
  std::string operator()(const std::vector<std::string>& values) const {
    return fmt::format("[{}]", fmt::join(values, ","));
  }
  std::string operator()(const Tensor& value) const { return fmt::format("[{}]", fmt::join(value.shape(), "x")); }
  std::string operator()(const Subgraph&) const { return ""; }
};

class KernelText {
 public:
  KernelText(const Specialization& spec, const Group& group) : spec_(spec), group_(group) {}

  std::string text() {
    std::string result;
    for (const LayerId id : group_.layers) {
      const Layer& layer = spec_.network->layer(id);
      if (!layer.attributes.graphs().empty()) return "";
      result += fmt::format("{}{}{}", result.empty() ? "" : "; ", layer.op->name, attributes_of(layer));
      std::vector<std::string> inputs;
      for (const TensorId input : layer.inputs) inputs.push_back(input_text(input));
      result += fmt::format("({})", fmt::join(inputs, ", "));
      for (const TensorId output : present(layer.outputs)) {
        const std::string name = names_[output] = fmt::format("%{}", computed_++);
        result += fmt::format(" {}{}{}", name, shape_text(output), leaves(id, output) ? "*" : "");
      }
    }
    return known_ ? result : "";
  }

 private:
  static std::string attributes_of(const Layer& layer) {
    std::vector<std::string> parts;
    for (const auto& [name, value] : layer.attributes.all())
      parts.push_back(fmt::format("{}={}", name, std::visit(AttributeText{}, value)));
    return parts.empty() ? "" : fmt::format("{{{}}}", fmt::join(parts, " "));
  }

  std::string shape_text(TensorId id) {
    if (!spec_.shape(id)) {
      known_ = false;
      return "";
    }
    const DataType type = spec_.type(id);
    return fmt::format("[{}]{}", fmt::join(*spec_.shape(id), "x"),
                       is_floating(type) && type != DataType::kFloat64 ? "" : fmt::format(":{}", name_of(type)));
  }

  std::string input_text(TensorId id) {
    if (id == kNone) return "";
    if (spec_.is_constant(id)) return "w" + shape_text(id);
    if (const auto found = names_.find(id); found != names_.end()) return found->second;
    const std::string name = names_[id] = fmt::format("${}", read_++);
    return name + shape_text(id);
  }

  /// Whether a value in between is stored as well.
  bool leaves(LayerId layer, TensorId output) const {
    return layer != group_.layers.back() && leaves_group(spec_, group_, output);
  }

  const Specialization& spec_;
  const Group& group_;
  std::map<TensorId, std::string> names_;
  int read_ = 0, computed_ = 0;
  bool known_ = true;
};

}  // namespace

std::string kernel_text(const Specialization& spec, const Group& group) { return KernelText(spec, group).text(); }

std::string_view group_precision(const Specialization& spec, const Group& group, const Assignment& assignment) {
  for (const LayerId id : group.layers)
    if (spec.numeric[id] && spec.network->layer(id).op->precision == PrecisionRule::kCompute)
      return name_of(assignment.precision[id]);
  const Layer& last = spec.network->layer(group.layers.back());
  for (const TensorId output : present(last.outputs)) return name_of(assignment.storage[output]);
  return "-";
}

namespace {

/// A product by a constant with nothing behind it but a bias.
bool is_plain_product(const Specialization& spec, const Group& group) {
  const Network& network = *spec.network;
  const Layer& product = network.layer(group.layers.front());
  if (!ops::matrix_form(product) || spec.is_constant(product.inputs[0]) || !spec.is_constant(product.inputs[1]))
    return false;
  return std::all_of(group.layers.begin() + 1, group.layers.end(), [&](LayerId id) {
    const Layer& layer = network.layer(id);
    return layer.op->function == Function::kAdd &&
           std::ranges::any_of(layer.inputs, [&](TensorId input) { return spec.is_constant(input); });
  });
}

}  // namespace

std::vector<std::vector<std::size_t>> products_of_one_operand(const Specialization& spec, const Grouping& grouping,
                                                              const Assignment* assignment) {
  /// By operand, in the order of the groups: runs of neighbors.
  struct Runs {
    std::vector<std::vector<std::size_t>> groups;
    std::string_view precision;  ///< Of the last run; of none: it has ended.
  };
  std::map<TensorId, Runs> readers;
  for (std::size_t g = 0; g < grouping.groups.size(); ++g) {
    const Group& group = grouping.groups[g];
    const Layer& layer = spec.network->layer(group.layers.front());
    if (!ops::matrix_form(layer)) continue;
    Runs& runs = readers[layer.inputs[0]];
    if (!is_plain_product(spec, group)) {
      runs.precision = {};
      continue;
    }
    const std::string_view precision = assignment == nullptr ? "any" : group_precision(spec, group, *assignment);
    if (runs.precision != precision) runs.groups.emplace_back();
    runs.groups.back().push_back(g);
    runs.precision = precision;
  }
  std::vector<std::vector<std::size_t>> result;
  for (auto& [operand, runs] : readers)
    for (std::vector<std::size_t>& groups : runs.groups)
      if (groups.size() > 1) result.push_back(std::move(groups));
  return result;
}

std::vector<int> count_together(const Specialization& spec, const Grouping& grouping, const Assignment* assignment) {
  std::vector<int> result(grouping.groups.size(), 1);
  for (const std::vector<std::size_t>& groups : products_of_one_operand(spec, grouping, assignment))
    for (const std::size_t g : groups) result[g] = static_cast<int>(groups.size());
  return result;
}

std::string timed_precision(std::string_view precision, int together) {
  return together > 1 ? fmt::format("{} x{}", precision, together) : std::string(precision);
}

std::optional<double> GroupTimes::find(const Group& group, std::string_view precision, int together) const {
  if (timed_ == nullptr) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto [known, is_new] = known_.try_emplace(group.layers, nullptr);
  if (is_new) {
    const auto found = timed_->find(kernel_text(spec_, group));
    if (found != timed_->end()) known->second = &found->second;
  }
  if (known->second == nullptr) return std::nullopt;
  auto time = known->second->find(timed_precision(precision, together));
  if (time == known->second->end()) time = known->second->find(precision);
  return time != known->second->end() ? std::optional(time->second) : std::nullopt;
}

std::optional<double> GroupTimes::find_like(const Group& group, std::string_view precision, int together) const {
  if (const auto us = find(group, precision, together)) return us;
  if (timed_ == nullptr || spec_.network->layer(group.layers.front()).op->multiply_adds == nullptr) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto [known, is_new] = products_.try_emplace({group.layers.front(), std::string(precision)});
  if (is_new) known->second = least_with_product(group, precision);
  return known->second;
}

std::optional<double> GroupTimes::least_with_product(const Group& group, std::string_view precision) const {
  std::string product = kernel_text(spec_, group);
  product.resize(std::min(product.size(), product.find("; ")));
  if (product.ends_with('*')) product.pop_back();
  std::optional<double> least;
  const std::string of_several = fmt::format("{} x", precision);
  for (auto each = timed_->lower_bound(product); each != timed_->end() && each->first.starts_with(product); ++each)
    for (const auto& [key, us] : each->second)
      if ((key == precision || key.starts_with(of_several)) && (!least || us < *least)) least = us;
  return product.empty() ? std::nullopt : least;
}

}  // namespace ulpscope
