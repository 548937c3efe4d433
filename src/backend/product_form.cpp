#include "backend/product_form.h"

#include <algorithm>

namespace ulpscope {
namespace {

std::optional<MatrixShape> matmul_shape(Shape a, Shape b) {
  if (a.size() < 2 || b.size() < 2) return std::nullopt;
  MatrixShape spec;
  spec.m = a[a.size() - 2];
  spec.k = a.back();
  spec.n = b.back();
  const bool b_is_matrix = std::all_of(b.begin(), b.end() - 2, [](std::int64_t d) { return d == 1; });
  if (b_is_matrix) {
    // The rows of all batches are rows of one matrix.
    for (std::size_t d = 0; d + 2 < a.size(); ++d) spec.m *= a[d];
    return spec;
  }
  const std::size_t rank = std::max(a.size(), b.size()) - 2;
  for (Shape* s : {&a, &b})
    while (s->size() < rank + 2) s->insert(s->begin(), 1);
  spec.batch_a.assign(a.begin(), a.end() - 2);
  spec.batch_b.assign(b.begin(), b.end() - 2);
  if (spec.batch_a == spec.batch_b) {
    const std::int64_t count = num_elements(spec.batch_a);
    spec.batch_a = spec.batch_b = {count};
  }
  if (rank > 4 && spec.batch_a.size() != 1) return std::nullopt;
  return spec;
}

}  // namespace

std::optional<MatrixShape> matrix_shape(const ops::MatrixForm& form, const Shape& a, const Shape& b,
                                        const Shape& results) {
  if (form.plain) return matmul_shape(a, b);
  return MatrixShape{.m = results[0],
                     .n = results[1],
                     .k = form.transpose_a ? a[0] : a[1],
                     .transpose_a = form.transpose_a,
                     .transpose_b = form.transpose_b};
}

std::optional<std::vector<Shape>> float_shapes(const Specialization& spec, const LayerKernel& kernel) {
  std::vector<Shape> shapes;
  for (const Operand& operand : kernel.operands) {
    if (operand.tensor == kNone || operand.is_encoded() || !spec.is_held_as_float(operand.tensor)) return std::nullopt;
    shapes.push_back(*spec.shape(operand.tensor));
  }
  return shapes;
}

Operand addend_of(const ProductKernel& product, const ops::MatrixForm& form) {
  return product.operands.size() > 2 && form.beta != 0.0f ? product.operands[2] : Operand{};
}

const Program::Value* only_use(const ProgramKernel& epilogue, Register value, Register* user) {
  for (const auto& output : epilogue.outputs)
    if (output.source == value) return nullptr;
  const Program::Value* found = nullptr;
  for (std::size_t r = 0; r < epilogue.program.values.size(); ++r) {
    const Program::Value& v = epilogue.program.values[r];
    if (v.kind != Program::Kind::kResult || (v.a != value && v.b != value)) continue;
    if (found != nullptr || v.a == v.b) return nullptr;
    found = &v;
    *user = static_cast<Register>(r);
  }
  return found;
}

const Load* addend(const ProgramKernel& epilogue, const Program::Value& add, Register value) {
  if (add.instruction != Instruction::kAdd) return nullptr;
  const Program::Value& other = epilogue.program.values[add.a == value ? add.b : add.a];
  if (other.kind != Program::Kind::kLoad) return nullptr;
  const Load& load = epilogue.loads[other.load];
  return load.source == Load::Source::kTensor ? &load : nullptr;
}

const Load* computed_addend(const Specialization& spec, const ProgramKernel& epilogue, const Program::Value& add,
                            Register value) {
  const Load* load = addend(epilogue, add, value);
  const bool is_whole = load != nullptr && !load->per_channel && !load->operand.is_encoded() &&
                        !spec.is_constant(load->operand.tensor) && *spec.shape(load->operand.tensor) == epilogue.domain;
  return is_whole ? load : nullptr;
}

}  // namespace ulpscope
