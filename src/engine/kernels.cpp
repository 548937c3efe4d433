#include "engine/kernels.h"

#include <bit>

namespace ulpscope {
namespace {

/// Numbers, one after the other.
class Writer {
 public:
  template <typename T>
  void put(T value) {
    if constexpr (std::is_same_v<T, float>)
      put(std::bit_cast<std::uint32_t>(value));
    else
      text.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <typename... Ts>
  void put_all(Ts... values) {
    (put(values), ...);
  }

  void put(const Operand& o) {
    put_all(o.tensor, o.rounding, o.first, o.integers, o.quantization.scale, o.quantization.is_unsigned, o.exact);
  }
  void put(const Store& s) { put_all(s.tensor, s.rounding, s.exact); }

  void put(const ProgramKernel& kernel) {
    put(kernel.row_dims);
    for (LayerId id : kernel.layers) put(id);
    for (const Program::Value& v : kernel.program.values)
      put_all(v.kind, v.load, v.constant, v.instruction, v.a, v.b, v.p, v.q);
    for (const Load& load : kernel.loads) {
      put_all(load.source, load.normalization, load.per_channel);
      put(load.operand);
    }
    for (const auto& output : kernel.outputs) {
      put(output.source);
      put(output.store);
    }
  }

  void put(const ProductKernel& kernel) {
    put_all(kernel.layer, kernel.integers, kernel.normalization, kernel.result);
    for (const Operand& operand : kernel.operands) put(operand);
    put(kernel.epilogue);
  }

  void put(const LayerKernel& kernel) {
    put_all(kernel.layer, kernel.open);
    for (Precision precision : kernel.bodies) put(precision);
    for (const Operand& operand : kernel.operands) put(operand);
    for (const Store& store : kernel.outputs) put(store);
  }

  std::string text;
};

}  // namespace

std::string identity_of(const KernelDescription& kernel) {
  Writer writer;
  writer.put(kernel.index());
  std::visit([&](const auto& described) { writer.put(described); }, kernel);
  return std::move(writer.text);
}

}  // namespace ulpscope
