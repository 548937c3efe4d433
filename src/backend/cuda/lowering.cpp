#include "backend/cuda/lowering.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "backend/cuda/layers.h"
#include "backend/cuda/placement.h"
#include "backend/cuda/products.h"
#include "core/messages.h"

namespace ulpscope::cuda {
namespace {

/// Who lowers which kernel.
class Lowering {
 public:
  Lowering(const Specialization& spec, const Schedule& schedule, WeightCache& weights,
           const IdMap<LayerId, GraphFunction>& subgraphs, LoweringTarget& target)
      : spec_(spec),
        schedule_(schedule),
        constants_(spec, weights),
        uses_(uses_of(schedule)),
        steps_(weights, target),
        memory_(spec, constants_, steps_),
        parts_(spec, schedule, uses_, steps_, memory_),
        context_{spec, constants_, weights, target, uses_, steps_, memory_, parts_},
        programs_(context_),
        matrices_(context_),
        epilogues_(context_, programs_),
        products_(context_, matrices_, epilogues_),
        convolutions_(context_, matrices_, epilogues_),
        attentions_(context_, schedule, programs_),
        layers_(context_, subgraphs, programs_, epilogues_, matrices_) {}

  Steps run(Ends ends) {
    const Network& network = *spec_.network;
    for (std::size_t i = 0; i < network.inputs.size(); ++i) {
      const TensorId id = network.inputs[i];
      if (ends == Ends::kDevice)
        memory_.define_at(id, steps_.callers_view(spec_.type(id), *spec_.shape(id), i));
      else
        memory_.define_input(id, steps_.new_input(spec_.type(id), spec_.shape(id), i));
    }
    for (const std::vector<KernelDescription>& kernels : schedule_.kernels)
      for (const KernelDescription& kernel : kernels)
        if (!attentions_.is_part(kernel)) lower(kernel);
    steps_.begin(LayerId(kNone));
    std::vector<int> outputs;
    std::size_t number = network.inputs.size();
    for (const Operand& output : schedule_.outputs)
      if (ends == Ends::kDevice)
        memory_.put_output(output, number++);
      else
        outputs.push_back(memory_.host_value(output));
    if (const auto& names = layers_.on_host(); !names.empty())
      log_once(LogLevel::kWarning, "backend 'cuda': {} of {} layers run on the CPU, with copies there and back: {}",
               names.size(), network.layers.size(), fmt::join(names, ", "));
    return std::move(steps_).finish(std::move(outputs));
  }

 private:
  void lower(const KernelDescription& kernel) {
    const KernelDescription* const outer = steps_.begin(&kernel);
    std::visit([&](const auto& described) { lower(described); }, kernel);
    steps_.begin(outer);
  }
  void lower(const ProgramKernel& kernel) { programs_.lower(kernel); }
  void lower(const LayerKernel& kernel) { layers_.lower(kernel); }
  void lower(const ProductKernel& kernel) {
    steps_.begin(kernel.layer);
    if (products_.is_lowered(kernel)) return;
    if (num_elements(kernel.epilogue.domain) == 0) return programs_.define_empty(kernel.epilogue.outputs);
    if (const AttentionKernel* attention = attentions_.find(kernel)) {
      if (attentions_.lower(*attention)) return;
      for (const KernelDescription* part : attention->parts) lower(*part);
      steps_.begin(kernel.layer);
    }
    if (!products_.lower(kernel) && !convolutions_.lower(kernel)) layers_.lower_host(kernel);
  }

  const Specialization& spec_;
  const Schedule& schedule_;
  const PreparedConstants constants_;
  const IdMap<TensorId, KernelUses> uses_;
  StepList steps_;
  Placement memory_;
  ConcatParts parts_;
  const KernelLowering context_;
  Programs programs_;
  Matrices matrices_;
  Epilogues epilogues_;
  Products products_;
  Convolutions convolutions_;
  Attentions attentions_;
  Layers layers_;
};

}  // namespace

Steps lower(const Specialization& spec, const Schedule& schedule, WeightCache& weights,
            const IdMap<LayerId, GraphFunction>& subgraphs, LoweringTarget& target, Ends ends) {
  return Lowering(spec, schedule, weights, subgraphs, target).run(ends);
}

bool can_stay_on_device(const Specialization& spec) {
  const auto holds = [&](TensorId id) { return spec.shape(id).has_value() && !is_storage_only(spec.type(id)); };
  return std::ranges::all_of(spec.network->inputs, holds) && std::ranges::all_of(spec.network->outputs, holds);
}

}  // namespace ulpscope::cuda
