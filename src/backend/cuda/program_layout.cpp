#include "backend/cuda/program_layout.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/division.h"

namespace ulpscope::cuda {
namespace {

// What keeps a large GPU busy: two blocks for each of some 132 multiprocessors, and 1024 threads.
constexpr std::int64_t kFewBlocks = 264, kManyThreads = 132 * 1024;
constexpr std::int64_t kRegisters = 64;  ///< Values of a row that a thread keeps, at most.

std::int64_t power_above(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)));
}

bool is_row(const Program::Value& v) { return v.kind == Program::Kind::kResult && is_row_instruction(v.instruction); }

struct OperandFacts {
  std::int64_t bytes;  ///< Touched.
  int element;         ///< Bytes of one.
  int alignment;
};

/// Chooses the parts of a layout one after the other.
class LayoutPlan {
 public:
  LayoutPlan(const ProgramSpec& spec, bool has_rows) : spec_(spec), rank_(spec.inputs.size() + spec.outputs.size()) {
    std::vector<const std::vector<std::int64_t>*> strides;
    for (const ProgramInput& in : spec.inputs) add(strides, in.strides, in.type, in.alignment);
    for (const ProgramOutput& out : spec.outputs) add(strides, out.strides, out.type, out.alignment);
    Dimensions dims = dimensions_of(spec.domain, strides);
    // Of two operands of one size the output counts more.
    std::iota(rank_.begin(), rank_.end(), 0);
    std::rotate(rank_.begin(), rank_.begin() + static_cast<std::ptrdiff_t>(spec.inputs.size()), rank_.end());
    std::stable_sort(rank_.begin(), rank_.end(),
                     [&](std::size_t a, std::size_t b) { return facts_[a].bytes > facts_[b].bytes; });
    const auto middle = dims.end() - (has_rows ? spec.row_dims : 0);
    layout_.row = canonical(Dimensions(middle, dims.end()), rank_);
    layout_.outer = canonical(Dimensions(dims.begin(), middle), rank_);
  }

  /// Per load: whether it moves along the row.
  std::vector<bool> along_row() const {
    std::vector<bool> result;
    for (std::size_t i = 0; i < spec_.inputs.size(); ++i)
      result.push_back(
          std::any_of(layout_.row.begin(), layout_.row.end(), [&](const Dimension& d) { return d.strides[i] != 0; }));
    return result;
  }

  ProgramLayout finish(int live) {
    live_ = std::max(live, 1);
    choose_direction();
    choose_vector();
    if (layout_.row.empty())
      share_pointwise();
    else if (layout_.across)
      share_across();
    else
      share_along();
    choose_words();
    return std::move(layout_);
  }

 private:
  void add(std::vector<const std::vector<std::int64_t>*>& all, const std::vector<std::int64_t>& strides, DataType type,
           int alignment) {
    all.push_back(&strides);
    OperandFacts facts{static_cast<std::int64_t>(size_of(type)), static_cast<int>(size_of(type)), alignment};
    for (std::size_t d = 0; d < spec_.domain.size(); ++d) facts.bytes *= strides[d] != 0 ? spec_.domain[d] : 1;
    facts_.push_back(facts);
  }

  /// Bytes of operands that are contiguous along the dimension.
  std::int64_t contiguous(const Dimension& d) const {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < facts_.size(); ++i) bytes += d.strides[i] == 1 ? facts_[i].bytes : 0;
    return bytes;
  }

  void choose_direction() {
    layout_.across = layout_.row.empty() ||
                     (!layout_.outer.empty() && contiguous(layout_.outer.back()) > contiguous(layout_.row.back()));
  }

  int word(std::size_t operand, int vector) const {
    return word_bytes({&layout_.outer, &layout_.row}, *layout_.vector_dimension(), operand, vector,
                      facts_[operand].element, facts_[operand].alignment);
  }

  bool fits(int vector, std::size_t largest) const {
    const Dimension& last = *layout_.vector_dimension();
    const bool divides = last.size % vector == 0;
    const bool has_tail = layout_.row.empty() && layout_.outer.size() == 1 && last.size > vector;
    return (divides || has_tail) && word(largest, vector) == std::min(16, vector * facts_[largest].element);
  }

  void choose_vector() {
    const Dimension* last = layout_.vector_dimension();
    if (last == nullptr) return;
    int smallest = 16;
    std::size_t largest = rank_.size();
    for (std::size_t operand : rank_) {
      if (last->strides[operand] != 1) continue;
      if (largest == rank_.size()) largest = operand;
      smallest = std::min(smallest, facts_[operand].element);
    }
    if (largest == rank_.size()) return;
    layout_.vector = std::clamp(16 / smallest, 4, 8);
    const std::int64_t count = count_of(layout_.outer);
    while (layout_.vector > 1 &&
           (!fits(layout_.vector, largest) || (layout_.row.empty() && count / layout_.vector < kManyThreads / 8)))
      layout_.vector /= 2;
  }

  void share_pointwise() {
    const std::int64_t count = count_of(layout_.outer);
    layout_.groups = count / layout_.vector;
    layout_.tail = count % layout_.vector;
    layout_.groups_per_block = 256;
    while (layout_.groups_per_block > 64 && divided_up(layout_.groups, layout_.groups_per_block) < kFewBlocks)
      layout_.groups_per_block /= 2;
  }

  bool keep(std::int64_t chunks_per_thread, std::int64_t limit) {
    layout_.kept = chunks_per_thread * layout_.vector * live_ <= limit ? static_cast<int>(chunks_per_thread) : 0;
    return layout_.kept != 0;
  }

  /// Rows along which vectors lie: parts of a warp, warps, or a block for one row.
  void share_along() {
    ProgramLayout& l = layout_;
    l.groups = count_of(l.outer);
    l.chunks = count_of(l.row) / l.vector;
    const std::int64_t comfortable = std::max<std::int64_t>(1, kRegisters / 2 / (l.vector * live_));
    std::int64_t threads = std::min<std::int64_t>(32, power_above(l.chunks));
    if (l.chunks > threads * comfortable) threads = 32 * divided_up(l.chunks, 32 * comfortable);
    while (threads >= 32 && threads < 1024 && threads < l.chunks && l.groups * threads < kManyThreads / 2)
      threads += 32;
    if (threads > 512 && !keep(divided_up(l.chunks, threads), threads > 1024 ? 0 : kRegisters / 2)) threads = 512;
    if (!keep(divided_up(l.chunks, threads), threads > 512 ? kRegisters / 2 : kRegisters) && l.groups < kFewBlocks)
      threads = 1024;
    l.threads = static_cast<int>(threads);
    l.groups_per_block = std::max(1, threads > 32 ? 1 : 128 / l.threads);
    while (l.groups_per_block > 1 && l.groups_per_block * l.threads > 32 &&
           divided_up(l.groups, l.groups_per_block) < kFewBlocks)
      l.groups_per_block /= 2;
  }

  /// Vectors of neighboring rows: consecutive threads take consecutive ones.
  void share_across() {
    ProgramLayout& l = layout_;
    l.groups = count_of(l.outer) / l.vector;
    l.chunks = count_of(l.row);
    const int element = facts_[rank_.front()].element;
    std::int64_t side = std::min<std::int64_t>(32, power_above(l.groups)), threads = 1;
    while (side > 1 && side * l.vector * element > 32 && divided_up(l.groups, side) < kFewBlocks) side /= 2;
    const std::int64_t most = divided_up(l.groups, side) < kFewBlocks ? 1024 : 512;
    while (threads * 2 <= l.chunks && threads * 2 * side <= most &&
           (threads * side < 128 || l.groups * threads < kManyThreads ||
            divided_up(l.chunks, threads) * l.vector * live_ > kRegisters))
      threads *= 2;
    if (threads == 1) side = 128;
    side = std::max(side, 32 / threads);
    keep(divided_up(l.chunks, threads), threads * side > 512 ? kRegisters / 2 : kRegisters);
    l.threads = static_cast<int>(threads);
    l.groups_per_block = static_cast<int>(side);
  }

  void choose_words() {
    std::int64_t reach = num_elements(spec_.domain);
    for (std::size_t i = 0; i < facts_.size(); ++i) {
      layout_.words.push_back(layout_.vector_dimension() == nullptr ? facts_[i].element : word(i, layout_.vector));
      reach = std::max(reach, reach_of(layout_.outer, i) + reach_of(layout_.row, i));
    }
    layout_.wide = reach >= (std::int64_t{1} << 31) - 65536;  // Clear of the last index by more than a block.
  }

  const ProgramSpec& spec_;
  std::vector<OperandFacts> facts_;
  std::vector<std::size_t> rank_;  ///< Operands, the largest first.
  ProgramLayout layout_;
  std::int64_t live_ = 1;
};

/// Marks what `root` is computed of, row by row of the list downwards.
void mark(const Program& program, Register root, std::vector<bool>& marked) {
  if (root < 0 || marked[root]) return;
  marked[root] = true;
  mark(program, program.values[root].a, marked);
  mark(program, program.values[root].b, marked);
}

void find_first(const Program& program, Register r, int stage, ProgramStages& stages) {
  if (r < 0 || !stages.along_row[r] || stages.first[r] <= stage) return;
  stages.first[r] = stage;
  find_first(program, program.values[r].a, stage, stages);
  find_first(program, program.values[r].b, stage, stages);
}

}  // namespace

ProgramStages stages_of(const ProgramSpec& spec, const std::vector<bool>& along_row) {
  const std::vector<Program::Value>& values = spec.program.values;
  const std::size_t n = values.size();
  ProgramStages s{std::vector<bool>(n), std::vector<bool>(n), std::vector<int>(n), std::vector<int>(n)};
  for (const ProgramOutput& out : spec.outputs) mark(spec.program, out.source, s.needed);
  for (std::size_t r = 0; r < n; ++r) {
    const Program::Value& v = values[r];
    if (v.kind == Program::Kind::kLoad) s.along_row[r] = along_row[v.load];
    if (v.kind != Program::Kind::kResult) continue;
    s.along_row[r] = !is_row(v) && (s.along_row[v.a] || (v.b >= 0 && s.along_row[v.b]));
    s.stage[r] = std::max(s.stage[v.a], v.b < 0 ? 0 : s.stage[v.b]) + (is_row(v) ? 1 : 0);
    if (s.needed[r]) s.last = std::max(s.last, s.stage[r]);
  }
  s.first.assign(n, s.last + 1);
  for (std::size_t r = 0; r < n; ++r)
    if (s.needed[r] && is_row(values[r])) find_first(spec.program, values[r].a, s.stage[values[r].a], s);
  for (const ProgramOutput& out : spec.outputs) find_first(spec.program, out.source, s.last, s);
  // The stage in which each value is used last.
  std::vector<int> until(n, -1);
  const auto use = [&](Register r, int stage) {
    if (r >= 0) until[r] = std::max(until[r], stage);
  };
  for (std::size_t r = 0; r < n; ++r) {
    if (!s.needed[r] || values[r].kind != Program::Kind::kResult) continue;
    const int stage = is_row(values[r]) ? s.stage[values[r].a] : s.first[r];
    use(values[r].a, stage);
    use(values[r].b, stage);
  }
  for (const ProgramOutput& out : spec.outputs) use(out.source, s.last);
  for (int stage = 0; stage < s.last; ++stage) {
    int live = 0;
    for (std::size_t r = 0; r < n; ++r)
      live += s.needed[r] && s.along_row[r] && s.first[r] <= stage && until[r] > stage ? 1 : 0;
    s.live = std::max(s.live, live);
  }
  return s;
}

PlannedProgram plan_program(const ProgramSpec& spec) {
  const auto& values = spec.program.values;
  bool has_rows = std::any_of(values.begin(), values.end(), is_row);
  for (const ProgramOutput& out : spec.outputs)
    for (std::size_t d = spec.domain.size() - spec.row_dims; d < spec.domain.size(); ++d)
      has_rows |= spec.domain[d] > 1 && out.strides[d] == 0;
  LayoutPlan plan(spec, has_rows);
  ProgramStages stages = stages_of(spec, plan.along_row());
  ProgramLayout layout = plan.finish(stages.live);
  return {std::move(stages), std::move(layout)};
}

}  // namespace ulpscope::cuda
