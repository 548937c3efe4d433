// Few long rows, as of a mean over an image or of a group normalization, would leave most of the GPU idle: their
// reductions are taken over pieces of rows first, then over the pieces.
#include <algorithm>

#include "backend/cuda/lowering.h"

namespace ulpscope::cuda {
namespace {

constexpr std::int64_t kEnoughRows = 2048, kLongRow = 2048, kMostPieces = 512, kFewestPieces = 8;

/// The domain with its rows cut into pieces: one more dimension before those of the rows, and the strides for it.
struct Pieces {
  Shape domain;
  int row_dims = 0;
  std::size_t dimension = 0;  ///< That counts the pieces.
  std::int64_t cut = 0;       ///< > 0: the outermost row dimension is cut into pieces of this length.

  std::vector<std::int64_t> strides(const std::vector<std::int64_t>& own) const {
    std::vector<std::int64_t> result = own;
    if (cut > 0) result.insert(result.begin() + static_cast<std::ptrdiff_t>(dimension), own[dimension] * cut);
    return result;
  }
};

std::optional<Pieces> pieces_of(const ProgramSpec& spec) {
  if (spec.row_dims == 0) return std::nullopt;
  const std::size_t outer = spec.domain.size() - static_cast<std::size_t>(spec.row_dims);
  std::int64_t rows = 1, length = 1;
  for (std::size_t d = 0; d < spec.domain.size(); ++d) (d < outer ? rows : length) *= spec.domain[d];
  if (rows >= kEnoughRows || length < kLongRow) return std::nullopt;
  Pieces pieces{spec.domain, spec.row_dims, outer, 0};
  const std::int64_t first = spec.domain[outer];
  if (spec.row_dims > 1 && first >= kFewestPieces && first <= kMostPieces) {
    --pieces.row_dims;
    return pieces;
  }
  for (std::int64_t count = std::min(kMostPieces, first / 64); count >= kFewestPieces; --count) {
    if (first % count != 0) continue;
    pieces.cut = first / count;
    pieces.domain[outer] = pieces.cut;
    pieces.domain.insert(pieces.domain.begin() + static_cast<std::ptrdiff_t>(outer), count);
    return pieces;
  }
  return std::nullopt;
}

}  // namespace

/// One program of a spec, with values of rows that were computed before as loads.
class RowSplitter {
 public:
  RowSplitter(const ProgramAssembly& whole, const std::map<Register, View>& rows) : whole_(whole), rows_(rows) {}

  /// Appends what `wanted` needs; `strides` turns those of an input over the whole domain into those over the
  /// assembly's.
  template <typename Strides>
  Register append(ProgramAssembly& to, Register wanted, const Strides& strides) {
    std::vector<Register> made(whole_.spec().program.values.size(), -1);
    return make(to, wanted, strides, made);
  }

 private:
  template <typename Strides>
  Register make(ProgramAssembly& to, Register r, const Strides& strides, std::vector<Register>& made) {
    if (r < 0 || made[r] >= 0) return r < 0 ? -1 : made[r];
    const Program::Value& value = whole_.spec().program.values[r];
    if (const auto row = rows_.find(r); row != rows_.end()) {
      std::vector<std::int64_t> own(whole_.spec().domain.size(), 0);
      std::copy(row->second.strides.begin(), row->second.strides.end(), own.begin());
      return made[r] = to.input(row->second, strides(own), Rounding::kNone);
    }
    if (value.kind == Program::Kind::kConstant) return made[r] = to.program().constant(value.constant);
    if (value.kind == Program::Kind::kLoad) {
      ProgramInput input = whole_.spec().inputs[value.load];
      input.strides = strides(input.strides);
      return made[r] = to.input(std::move(input), whole_.reads()[value.load]);
    }
    const Register a = make(to, value.a, strides, made), b = make(to, value.b, strides, made);
    return made[r] = to.program().apply(value.instruction, a, b, value.p, value.q);
  }

  const ProgramAssembly& whole_;
  const std::map<Register, View>& rows_;
};

void Lowering::add_program(ProgramAssembly assembly) {
  const ProgramSpec& spec = assembly.spec();
  const auto pieces = pieces_of(spec);
  if (!pieces) return add(std::move(assembly).finish());
  const std::size_t outer = spec.domain.size() - static_cast<std::size_t>(spec.row_dims);
  const Shape leading(spec.domain.begin(), spec.domain.begin() + static_cast<std::ptrdiff_t>(outer));
  Shape counted = leading;
  counted.push_back(pieces->domain[outer]);
  std::int64_t length = 1;
  for (std::size_t d = outer; d < spec.domain.size(); ++d) length *= spec.domain[d];
  std::map<Register, View> rows;
  for (std::size_t r = 0; r < spec.program.values.size(); ++r) {
    const Program::Value& value = spec.program.values[r];
    if (value.kind != Program::Kind::kResult || !is_row_instruction(value.instruction)) continue;
    const Instruction instruction = value.instruction;
    const bool mean = instruction == Instruction::kReduceMean;
    const bool extreme = instruction == Instruction::kReduceMax || instruction == Instruction::kReduceMin;
    const View part = new_view(DataType::kFloat32, counted, ops::strides_of(counted));
    ProgramAssembly partial(pieces->domain, pieces->row_dims);
    const Register operand =
        RowSplitter(assembly, rows).append(partial, value.a, [&](const std::vector<std::int64_t>& own) {
          return pieces->strides(own);
        });
    std::vector<std::int64_t> over(pieces->domain.size(), 0);
    std::copy(part.strides.begin(), part.strides.end(), over.begin());
    partial.output(partial.program().apply(mean ? Instruction::kReduceSum : instruction, operand), part, over,
                   Rounding::kNone);
    add(std::move(partial).finish());
    const View row = new_view(DataType::kFloat32, leading, ops::strides_of(leading));
    ProgramAssembly whole(counted, 1);
    Register sum = whole.program().apply(extreme ? instruction : Instruction::kReduceSum,
                                         whole.input(part, part.strides, Rounding::kNone));
    if (mean) sum = whole.program().apply(Instruction::kDiv, sum, whole.program().constant(static_cast<float>(length)));
    over.assign(counted.size(), 0);
    std::copy(row.strides.begin(), row.strides.end(), over.begin());
    whole.output(sum, row, over, Rounding::kNone);
    add(std::move(whole).finish());
    rows[static_cast<Register>(r)] = row;
  }
  // What is stored: of rows, and of all elements.
  for (const bool of_rows : {true, false}) {
    ProgramAssembly last(of_rows ? leading : spec.domain, 0);
    const auto strides = [&](const std::vector<std::int64_t>& own) {
      return of_rows ? std::vector<std::int64_t>(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(outer)) : own;
    };
    for (std::size_t o = 0; o < spec.outputs.size(); ++o) {
      ProgramOutput output = spec.outputs[o];
      const bool row = std::all_of(output.strides.begin() + static_cast<std::ptrdiff_t>(outer), output.strides.end(),
                                   [](std::int64_t stride) { return stride == 0; });
      if (row != of_rows) continue;
      output.source =
          last.program().apply(Instruction::kCopy, RowSplitter(assembly, rows).append(last, output.source, strides));
      output.strides = strides(output.strides);
      last.output(std::move(output), assembly.writes()[o]);
    }
    if (!last.spec().outputs.empty()) add(std::move(last).finish());
  }
}

}  // namespace ulpscope::cuda
