#include "formats/block_kernels.h"

#include "core/instruction_set.h"

namespace ulpscope {

ElementForm::ElementForm(const NumericFormat& format) noexcept
    : is_float(format.is_float),
      lowest(static_cast<float>(format.lowest())),
      largest(static_cast<float>(format.largest())),
      least_exponent((format.min_exponent() + 127) * (1 << 23)),
      shift((23 - format.mantissa_bits) * (1 << 23)) {}

const BlockKernels& block_kernels() noexcept {
#if defined(__x86_64__)
  switch (instruction_set()) {
    case InstructionSet::kAvx512:
      return block_kernels_avx512();
    case InstructionSet::kAvx2:
      return block_kernels_avx2();
    case InstructionSet::kBaseline:
      break;
  }
#endif
  return block_kernels_baseline();
}

}  // namespace ulpscope
