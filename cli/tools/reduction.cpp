#include "tools/reduction.h"

#include <bit>
#include <set>

namespace ulpscope::cli {
namespace {

/// What was tried so far.
class Tried {
 public:
  void add(ModelParts::Part part, bool passed) {
    if (passed) {
      good_.push_back(std::move(part));
    } else if (!bad_ || part.nodes.size() <= bad_->nodes.size()) {
      bad_ = std::move(part);
    }
  }

  Reduced result() {
    const ModelParts::Part *below = nullptr, *above = nullptr;
    for (const ModelParts::Part& part : good_) {
      if (part.nodes.empty()) continue;
      const std::size_t size = part.nodes.size();
      if (bad_ && size < bad_->nodes.size()) {
        if (below == nullptr || size >= below->nodes.size()) below = &part;
      } else if (above == nullptr || size < above->nodes.size()) {
        above = &part;
      }
    }
    const ModelParts::Part* good = below != nullptr ? below : above;
    Reduced reduced;
    if (good != nullptr) reduced.good = *good;
    reduced.bad = std::move(bad_);
    return reduced;
  }

 private:
  std::optional<ModelParts::Part> bad_;
  std::vector<ModelParts::Part> good_;
};

}  // namespace

Reduced reduce_part(std::size_t count, bool of_inputs, bool one_by_one,
                    const std::function<ModelParts::Part(std::size_t)>& part_at, const PartPasses& passes) {
  Tried tried;
  const auto attempt = [&](std::size_t index, std::ptrdiff_t remaining) {
    ModelParts::Part part = part_at(index);
    const bool passed = passes(part, static_cast<int>(remaining));
    tried.add(std::move(part), passed);
    return passed;
  };
  const auto all = static_cast<std::ptrdiff_t>(count);
  if (one_by_one) {
    for (std::ptrdiff_t i = 0; i < all; ++i) attempt(static_cast<std::size_t>(of_inputs ? i : all - 1 - i), all - i);
    return tried.result();
  }
  // The whole is taken to fail.
  std::ptrdiff_t good = of_inputs ? all : 0, bad = of_inputs ? 0 : all, next = all / 2;
  auto remaining = static_cast<std::ptrdiff_t>(std::bit_width(count));
  while (count > 0 && (good > bad ? good - bad : bad - good) > 1) {
    const bool passed = attempt(static_cast<std::size_t>(next), remaining--);
    (passed ? good : bad) = next;
    // Away from what was just tried.
    next = passed ? (good + bad + 1) / 2 : (good + bad) / 2;
  }
  return tried.result();
}

std::vector<std::string> crossing(const ModelParts& model, std::size_t node) {
  std::set<std::string> computed;
  std::vector<std::string> inputs;
  for (std::size_t n = node; n < model.nodes().size(); ++n) {
    for (const std::string& name : model.nodes()[n].inputs)
      if (!computed.contains(name)) {
        computed.insert(name);
        inputs.push_back(name);
      }
    computed.insert(model.nodes()[n].outputs.begin(), model.nodes()[n].outputs.end());
  }
  return inputs;
}

}  // namespace ulpscope::cli
