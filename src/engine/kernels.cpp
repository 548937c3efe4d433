#include "engine/kernels.h"

#include <bit>

namespace ulpscope {
namespace {

/// Numbers, one after the other. Every struct is taken apart as a whole: a new member does not compile until it is
/// written, or is said to have no say.
class Writer {
 public:
  template <typename T>
  void put(T value) {
    static_assert(std::has_unique_object_representations_v<T> || std::is_same_v<T, float>, "take it apart");
    if constexpr (std::is_same_v<T, float>)
      put(std::bit_cast<std::uint32_t>(value));
    else
      text.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <typename... Ts>
  void put_all(const Ts&... values) {
    (put(values), ...);
  }
  template <typename T>
  void put(const std::vector<T>& values) {
    put(values.size());
    for (const T& value : values) put(value);
  }

  void put(const Encoding& encoding) {
    const auto& [format, granularity, axis, block, scale, second_scale, rule] = encoding;
    put_all(format, granularity, axis, block, scale, second_scale, rule);
  }
  void put(const std::optional<Accumulator>& accumulator) {
    const auto [step, fraction, bits, restart, smallest_a, smallest_b] = accumulator.value_or(Accumulator{});
    put_all(step, fraction, bits, restart, smallest_a, smallest_b);
  }
  void put(const Operand& operand) {
    const auto& [tensor, rounding, first, encoding, scales, scale, exact, row_sums, channel_weights] = operand;
    put_all(tensor, rounding, first, encoding.has_value(), encoding.value_or(Encoding()), scales, scale, exact,
            row_sums);
    put(channel_weights == nullptr ? std::vector<float>() : channel_weights->mean_squares);
  }
  void put(const Store& store) {
    const auto& [tensor, rounding, exact, row_sums] = store;
    put_all(tensor, rounding, exact, row_sums);
  }
  void put(const Load& load) {
    const auto& [source, operand, normalization, per_channel] = load;
    put_all(source, operand, normalization, per_channel);
  }
  void put(const Program::Value& value) {
    const auto& [kind, load, constant, instruction, a, b, p, q] = value;
    put_all(kind, load, constant, instruction, a, b, p, q);
  }
  void put(const ProgramKernel::Output& output) {
    const auto& [source, store] = output;
    put_all(source, store);
  }
  void put(const ProgramKernel& kernel) {
    // The domain and what a softmax is taken of follow from the layers.
    const auto& [layers, domain, row_dims, program, loads, outputs, softmax_of] = kernel;
    put_all(row_dims, layers, program.values, loads, outputs);
  }
  void put(const ProductKernel& kernel) {
    const auto& [layer, operands, elements, accumulator, normalization, result, epilogue] = kernel;
    put_all(layer, elements, accumulator, normalization, result, operands, epilogue);
  }
  void put(const LayerKernel& kernel) {
    const auto& [layer, operands, outputs, open, accumulator, bodies] = kernel;
    put_all(layer, open, accumulator, bodies, operands, outputs);
  }

  std::string text;
};

Shape shape_of(const Specialization& spec, TensorId tensor, bool row_sums) {
  Shape shape = *spec.shape(tensor);
  if (row_sums) shape.back() = 1;
  return shape;
}

}  // namespace

Shape shape_of(const Specialization& spec, const Operand& operand) {
  return shape_of(spec, operand.tensor, operand.row_sums);
}

Shape shape_of(const Specialization& spec, const Store& store) { return shape_of(spec, store.tensor, store.row_sums); }

IdMap<TensorId, KernelUses> uses_of(const Schedule& schedule) {
  IdMap<TensorId, KernelUses> uses(schedule.storage.size());
  for (const std::vector<KernelDescription>& kernels : schedule.kernels)
    for (const KernelDescription& kernel : kernels) {
      const auto reads = [&](const Operand& operand) {
        if (operand.tensor == kNone) return;
        std::vector<const KernelDescription*>& readers = uses[operand.tensor].readers;
        if (readers.empty() || readers.back() != &kernel) readers.push_back(&kernel);
      };
      const auto program = [&](const ProgramKernel& described) {
        for (const Load& load : described.loads)
          if (load.source == Load::Source::kTensor) reads(load.operand);
        for (const auto& output : described.outputs)
          if (output.store.tensor != kNone) uses[output.store.tensor].producer = &kernel;
      };
      if (const auto* described = std::get_if<ProgramKernel>(&kernel)) {
        program(*described);
      } else if (const auto* product = std::get_if<ProductKernel>(&kernel)) {
        std::ranges::for_each(product->operands, reads);
        program(product->epilogue);
      } else {
        const auto& single = std::get<LayerKernel>(kernel);
        std::ranges::for_each(single.operands, reads);
        for (const Store& store : single.outputs)
          if (store.tensor != kNone) uses[store.tensor].producer = &kernel;
      }
    }
  return uses;
}

std::string identity_of(const KernelDescription& kernel) {
  Writer writer;
  writer.put(kernel.index());
  std::visit([&](const auto& described) { writer.put(described); }, kernel);
  return std::move(writer.text);
}

}  // namespace ulpscope
