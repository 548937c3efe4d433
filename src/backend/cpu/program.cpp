#include "backend/cpu/program.h"

#include <algorithm>

#include "backend/cpu/program_tiles.h"
#include "ops/common.h"

namespace ulpscope::cpu {

bool ProgramForm::Input::is_dense(const Shape& domain) const {
  std::int64_t step = 1;
  for (std::size_t d = domain.size(); d-- > 0;) {
    if (domain[d] != 1 && strides[d] != step) return false;
    step *= domain[d];
  }
  return true;
}

std::int64_t ProgramForm::count_of(Register r) const {
  const std::size_t rows = domain.size() - static_cast<std::size_t>(row_dims);
  return ops::product(domain, 0, registers[r].kind == Kind::kFull ? domain.size() : rows);
}

ProgramBuilder::ProgramBuilder(Shape domain, int row_dims) {
  form_.domain = std::move(domain);
  form_.row_dims = row_dims;
}

Register ProgramBuilder::input(const std::vector<std::int64_t>& strides, Rounding rounding) {
  const auto target = static_cast<Register>(form_.registers.size());
  form_.registers.push_back({ProgramForm::Kind::kFull, static_cast<int>(form_.inputs.size())});
  form_.inputs.push_back({strides, rounding, target});
  const std::size_t row_begin = form_.domain.size() - static_cast<std::size_t>(form_.row_dims);
  if (form_.row_dims > 0 && std::all_of(strides.begin() + static_cast<std::ptrdiff_t>(row_begin), strides.end(),
                                        [](std::int64_t s) { return s == 0; }))
    form_.registers.back().kind = ProgramForm::Kind::kRow;
  return target;
}

Register ProgramBuilder::constant(float value) {
  form_.registers.push_back({ProgramForm::Kind::kConstant, -1, value});
  return static_cast<Register>(form_.registers.size()) - 1;
}

Register ProgramBuilder::apply(Instruction instruction, Register a, Register b, float p, float q) {
  using Kind = ProgramForm::Kind;
  const auto kind_of = [&](Register r) { return r < 0 ? Kind::kConstant : form_.registers[r].kind; };
  Kind kind = std::max({kind_of(a), kind_of(b), form_.row_dims > 0 ? Kind::kRow : Kind::kFull});
  if (is_row_instruction(instruction)) kind = Kind::kRow;
  const auto target = static_cast<Register>(form_.registers.size());
  form_.registers.push_back({kind});
  form_.steps.push_back({instruction, target, a, b, p, q});
  return target;
}

/// A value that no instruction computed, or that is two outputs, goes through a copy.
Register ProgramBuilder::computed(Register source) {
  const bool made = std::ranges::any_of(form_.steps, [&](const auto& s) { return s.target == source; });
  const bool taken = std::ranges::any_of(form_.outputs, [&](const auto& o) { return o.source == source; });
  return made && !taken ? source : apply(Instruction::kCopy, source);
}

void ProgramBuilder::output(Register source, Rounding rounding) {
  form_.outputs.push_back({computed(source), rounding, std::nullopt});
}

void ProgramBuilder::output_integers(Register source, const ProgramForm::Integers& integers) {
  form_.outputs.push_back({computed(source), Rounding::kNone, integers});
}

bool ProgramBuilder::can_finish() const { return ProgramTiles::make(form_).has_value(); }

std::unique_ptr<Kernel> ProgramBuilder::finish() const {
  return form_.row_dims > 0 ? make_row_program(form_) : make_block_program(form_);
}

}  // namespace ulpscope::cpu
