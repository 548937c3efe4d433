// Products with weights of a few bits (MatMulNBits), of many rows.
#pragma once

#include <memory>

#include "backend/kernel.h"
#include "formats/rounding.h"
#include "graph/network.h"

namespace ulpscope::cpu {

/// `reference` itself for other layers than MatMulNBits. Else a kernel that unpacks some columns of the weights at a
/// time into the panels of packed products, and adds up as these do (ProductPart); few rows are left to `reference`,
/// which unpacks for less. Results are rounded by `rounding`, as those of `reference` are.
std::unique_ptr<Kernel> make_nbits_kernel(const Layer& layer, std::unique_ptr<Kernel> reference, Rounding rounding);

}  // namespace ulpscope::cpu
