// Products of few rows by constants of a few bits each, whose packed bits alone are read. Of more rows, the constants
// are dequantized once into the type of the product.
#include "backend/cuda/narrow_source.h"
#include "backend/cuda/products.h"
#include "engine/narrow_limits.h"
#include "ops/forms.h"

namespace ulpscope::cuda {

std::optional<Products::Narrow> Products::narrow_of(const ProductKernel& kernel) const {
  const auto form = ops::matrix_form(layer(kernel.layer));
  const Operand &a = kernel.operands[0], &b = kernel.operands[1];
  if (!form || kernel.elements || form->transpose_a || spec_.is_constant(a.tensor) || !spec_.is_constant(b.tensor))
    return std::nullopt;
  const Shape &a_shape = shape(a.tensor), &domain = kernel.epilogue.domain;
  const DataType type = type_of(a.rounding);
  if (a_shape.size() < 2 || domain.size() != a_shape.size() || num_elements(domain) == 0 ||
      type != type_of(b.rounding) || type == DataType::kFloat32)
    return std::nullopt;
  // Asked first: it is what rules out nearly all products of searches.
  if (num_elements(domain) / domain.back() > kMostNarrowRows) return std::nullopt;
  const auto weights = narrow_weights(spec_, constants_, kernel);
  if (!weights) return std::nullopt;
  NarrowProductSpec spec{.m = num_elements(domain) / domain.back(),
                         .n = weights->n,
                         .k = weights->k,
                         .type = type,
                         .format = weights->format,
                         .block = weights->block,
                         .half_scales = weights->half_scales,
                         .program = {}};
  if (!has_narrow_source(spec) || domain.back() != spec.n || a_shape.back() != spec.k) return std::nullopt;
  return Narrow{std::move(spec), *weights};
}

bool Products::lower_narrow(const ProductKernel& kernel) {
  auto found = narrow_of(kernel);
  if (!found) return false;
  auto& [spec, weights] = *found;
  const auto form = ops::matrix_form(layer(kernel.layer));
  const Operand& a = kernel.operands[0];
  const Shape& domain = kernel.epilogue.domain;
  const View x = memory_.read_as(a, spec.type, ops::strides_of(shape(a.tensor)));
  if (alignment_of(x) % 16 != 0) return false;
  KernelStep step;
  step.reads = {pointer(x)};
  const std::string key = weights.key + "|packed";
  // Made twice at most, when nobody has them.
  step.reads.push_back(pointer(steps_.constant_memory(
      key, DataType::kUInt8, [spec, make = weights.make] { return packed_elements(spec, make()); })));
  step.reads.push_back(pointer(steps_.constant_memory(
      key + " scales", scale_type(spec), [spec, make = weights.make] { return packed_scales(spec, make()); })));
  const ProductResults results = results_of(kernel, *form);
  ProgramAssembly assembly(domain, 0);
  // Load 0 is the sum; the kernel has it in a register.
  const View sum{-1, DataType::kFloat32, 0, ops::strides_of(domain)};
  const Register raw = assembly.input(sum, sum.strides, Rounding::kNone);
  epilogues_.assemble(kernel, results, raw, sum.strides, assembly);
  spec.program = assembly.spec();
  step.source = shared(narrow_product_source(spec));
  step.reads.insert(step.reads.end(), assembly.reads().begin() + 1, assembly.reads().end());
  step.writes = assembly.writes();
  steps_.add(std::move(step));
  return true;
}

}  // namespace ulpscope::cuda
