// Few long rows, as of a mean over an image or of a group normalization, would leave most of the GPU idle: their
// reductions are taken over pieces of rows first, then over the pieces.
#include <algorithm>
#include <functional>

#include "backend/cuda/placement.h"

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

/// Appends parts of a program to another one, with values of rows that were computed before as loads.
class RowSplitter {
 public:
  /// Turns strides over the whole domain into those over the domain of `to`.
  using Strides = std::function<std::vector<std::int64_t>(const std::vector<std::int64_t>&)>;
  /// All arguments outlive it; `rows` stays as it is.
  RowSplitter(const ProgramAssembly& whole, const std::map<Register, View>& rows, ProgramAssembly& to, Strides strides)
      : whole_(whole),
        rows_(rows),
        to_(to),
        strides_(std::move(strides)),
        made_(whole.spec().program.values.size(), -1) {}

  /// What `r` needs, where it is not there yet.
  Register append(Register r) {
    if (r < 0 || made_[r] >= 0) return r < 0 ? -1 : made_[r];
    const Program::Value& value = whole_.spec().program.values[r];
    if (const auto row = rows_.find(r); row != rows_.end()) {
      std::vector<std::int64_t> own(whole_.spec().domain.size(), 0);
      std::copy(row->second.strides.begin(), row->second.strides.end(), own.begin());
      return made_[r] = to_.input(row->second, strides_(own), Rounding::kNone);
    }
    if (value.kind == Program::Kind::kConstant) return made_[r] = to_.program().constant(value.constant);
    if (value.kind == Program::Kind::kLoad) {
      ProgramInput input = whole_.spec().inputs[value.load];
      input.strides = strides_(input.strides);
      return made_[r] = to_.input(std::move(input), whole_.reads()[value.load]);
    }
    const Register a = append(value.a), b = append(value.b);
    return made_[r] = to_.program().apply(value.instruction, a, b, value.p, value.q);
  }

 private:
  const ProgramAssembly& whole_;
  const std::map<Register, View>& rows_;
  ProgramAssembly& to_;
  const Strides strides_;
  std::vector<Register> made_;
};

namespace {

/// The row instructions of a program: those that need no other, those that need the first ones, and so on.
std::vector<std::vector<Register>> reductions_in_turn(const Program& program) {
  std::vector<std::vector<Register>> turns;
  std::vector<std::size_t> turn(program.values.size(), 0);
  for (std::size_t r = 0; r < program.values.size(); ++r) {
    const Program::Value& value = program.values[r];
    if (value.kind != Program::Kind::kResult) continue;
    for (const Register operand : {value.a, value.b})
      if (operand >= 0) turn[r] = std::max(turn[r], turn[operand]);
    if (!is_row_instruction(value.instruction)) continue;
    if (turns.size() == turn[r]) turns.emplace_back();
    turns[turn[r]++].push_back(static_cast<Register>(r));
  }
  return turns;
}

}  // namespace

/// Few long rows would keep few blocks busy: pieces of each row are reduced on their own, then the pieces. Reductions
/// that need others go in turns, and what they read is computed again in each turn.
void Programs::add(ProgramAssembly assembly) {
  const ProgramSpec& spec = assembly.spec();
  const auto pieces = pieces_of(spec);
  if (!pieces) return steps_.add(std::move(assembly).finish());
  const std::size_t outer = spec.domain.size() - static_cast<std::size_t>(spec.row_dims);
  const Shape leading(spec.domain.begin(), spec.domain.begin() + static_cast<std::ptrdiff_t>(outer));
  Shape counted = leading;
  counted.push_back(pieces->domain[outer]);
  std::int64_t length = 1;
  for (std::size_t d = outer; d < spec.domain.size(); ++d) length *= spec.domain[d];
  std::map<Register, View> rows;
  for (const std::vector<Register>& turn : reductions_in_turn(spec.program)) {
    ProgramAssembly partial(pieces->domain, pieces->row_dims), whole(counted, 1);
    RowSplitter splitter(assembly, rows, partial,
                         [&](const std::vector<std::int64_t>& own) { return pieces->strides(own); });
    std::map<Register, View> made;
    for (const Register r : turn) {
      const Program::Value& value = spec.program.values[r];
      const bool mean = value.instruction == Instruction::kReduceMean;
      const Instruction instruction = mean ? Instruction::kReduceSum : value.instruction;
      const View part = steps_.new_view(DataType::kFloat32, counted, ops::strides_of(counted));
      std::vector<std::int64_t> over(pieces->domain.size(), 0);
      std::copy(part.strides.begin(), part.strides.end(), over.begin());
      partial.output(partial.program().apply(instruction, splitter.append(value.a)), part, over, Rounding::kNone);
      const View row = steps_.new_view(DataType::kFloat32, leading, ops::strides_of(leading));
      const bool extreme = instruction == Instruction::kReduceMax || instruction == Instruction::kReduceMin;
      Register sum = whole.program().apply(extreme ? instruction : Instruction::kReduceSum, whole.input(part, part.strides, Rounding::kNone));
      if (mean)
        sum = whole.program().apply(Instruction::kDiv, sum, whole.program().constant(static_cast<float>(length)));
      over.assign(counted.size(), 0);
      std::copy(row.strides.begin(), row.strides.end(), over.begin());
      whole.output(sum, row, over, Rounding::kNone);
      made[r] = row;
    }
    steps_.add(std::move(partial).finish());
    steps_.add(std::move(whole).finish());
    rows.merge(made);
  }
  // What is stored: of rows, and of all elements.
  for (const bool of_rows : {true, false}) {
    ProgramAssembly last(of_rows ? leading : spec.domain, 0);
    const auto strides = [&](const std::vector<std::int64_t>& own) {
      return of_rows ? std::vector<std::int64_t>(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(outer)) : own;
    };
    RowSplitter splitter(assembly, rows, last, strides);
    for (std::size_t o = 0; o < spec.outputs.size(); ++o) {
      ProgramOutput output = spec.outputs[o];
      const bool row = std::all_of(output.strides.begin() + static_cast<std::ptrdiff_t>(outer), output.strides.end(),
                                   [](std::int64_t stride) { return stride == 0; });
      if (row != of_rows) continue;
      output.source = last.program().apply(Instruction::kCopy, splitter.append(output.source));
      output.strides = strides(output.strides);
      last.output(std::move(output), assembly.writes()[o]);
    }
    if (!last.spec().outputs.empty()) steps_.add(std::move(last).finish());
  }
}

}  // namespace ulpscope::cuda
