#include "backend/cpu/join.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <ranges>
#include <set>

#include "backend/cpu/byte_store.h"
#include "ulpscope/error.h"

namespace ulpscope::cpu {
namespace {

class Joiner {
 public:
  Joiner(Steps& made, std::map<int, ProgramForm> programs, std::map<int, SumsMaker> sums)
      : made_(made), programs_(std::move(programs)), sums_(std::move(sums)) {
    readers_.resize(made.slots.size());
    for (std::size_t i = 0; i < made.steps.size(); ++i)
      for (const int slot : made.steps[i].inputs)
        if (slot >= 0) readers_[slot].insert(static_cast<int>(i));
    pinned_.assign(made.slots.size(), 0);
    for (const int slot : made.outputs) pinned_[slot] = 1;
    for (const Slot& slot : made.slots)
      if (slot.alias >= 0) pinned_[slot.alias] = 1;
  }

  void run() {
    quantize_once();
    std::vector<int> place(made_.steps.size());  // Of each step among those that are left.
    std::vector<int> kept;
    for (int i = 0; i < static_cast<int>(made_.steps.size()); ++i) {
      if (!kept.empty() && join(kept.back(), i))
        kept.back() = i;
      else
        kept.push_back(i);
      place[static_cast<std::size_t>(i)] = static_cast<int>(kept.size()) - 1;
    }
    std::vector<int> left(kept.size());  // The same of steps that were kept so far.
    std::vector<Step> steps;
    for (std::size_t n = 0; n < kept.size(); ++n) {
      const int number = static_cast<int>(steps.size());
      left[n] = number;
      if (auto both = n + 1 < kept.size() ? step_of_bytes(kept[n], kept[n + 1]) : std::nullopt) {
        left[++n] = number;
        steps.push_back(*std::move(both));
      } else {
        steps.push_back(finish(kept[n]));
      }
    }
    std::erase_if(made_.values, [&](const StoredValue& value) { return dropped_.contains(value.slot); });
    for (StoredValue& value : made_.values)
      value.step = left[static_cast<std::size_t>(place[static_cast<std::size_t>(value.step)])];
    made_.steps = std::move(steps);
  }

 private:
  Step finish(int i) {
    Step step = made_.steps[static_cast<std::size_t>(i)];
    if (const auto found = programs_.find(i); found != programs_.end()) {
      check_bounds(step, found->second);
      step.kernel = ProgramBuilder(found->second).finish();
    }
    if (const auto found = sums_.find(i); found != sums_.end())
      step.kernel = found->second({.type = DataType::kFloat32});
    if (step.kernel == nullptr) throw InternalError("a step has no kernel");
    return step;
  }

  /// Step i with the program k behind it, if that makes bytes of its sums, which nothing else reads.
  std::optional<Step> step_of_bytes(int i, int k) {
    const auto maker = sums_.find(i);
    const auto program = programs_.find(k);
    if (maker == sums_.end() || program == programs_.end()) return std::nullopt;
    const Step &x = made_.steps[static_cast<std::size_t>(i)], &y = made_.steps[static_cast<std::size_t>(k)];
    const int slot = x.outputs[0];
    if (y.outputs.size() != 1 || is_left(slot, k) || share_memory(x.inputs, y.outputs[0])) return std::nullopt;
    std::vector<Tensor> constants;
    for (const int input : y.inputs) constants.push_back(made_.slots[input].constant);
    const auto sums = std::ranges::find(y.inputs, slot) - y.inputs.begin();
    const auto form = bytes_of_sums(program->second, static_cast<std::size_t>(sums), constants);
    if (!form) return std::nullopt;
    check_bounds(y, program->second);
    std::shared_ptr<const Kernel> kernel = maker->second(*form);
    if (kernel == nullptr) return std::nullopt;
    dropped_.insert(slot);
    return Step{std::move(kernel), x.inputs, y.outputs, x.layer};
  }

  /// Throws InternalError where a program would read or write beyond what its slots have.
  void check_bounds(const Step& step, const ProgramForm& form) const {
    const auto check = [&](int slot, std::int64_t needed, const char* what) {
      const Slot& s = made_.slots[slot];
      if (!s.dynamic && needed > num_elements(s.shape))
        throw InternalError(
            fmt::format("a program {} {} elements of a tensor that has {}", what, needed, num_elements(s.shape)));
    };
    for (std::size_t n = 0; n < form.inputs.size(); ++n) check(step.inputs[n], extent(form, form.inputs[n]), "reads");
    for (std::size_t o = 0; o < form.outputs.size(); ++o)
      check(step.outputs[o], form.count_of(form.outputs[o].source), "writes");
  }

  /// Elements from the first one that the input reads to the last one, both included.
  static std::int64_t extent(const ProgramForm& form, const ProgramForm::Input& input) {
    std::int64_t last = 0;
    for (std::size_t d = 0; d < form.domain.size(); ++d) {
      if (form.domain[d] == 0) return 0;
      last += (form.domain[d] - 1) * input.strides[d];
    }
    return last + 1;
  }

  /// Programs that quantize what they read read instead what an earlier step quantized in the same way.
  void quantize_once() {
    struct Quantized {
      int source, slot, step;
      float scale, is_unsigned;
    };
    std::vector<Quantized> known;
    for (auto& [i, form] : programs_) {
      Step& step = made_.steps[static_cast<std::size_t>(i)];
      for (std::size_t k = 0; k < form.inputs.size(); ++k) {
        const int slot = step.inputs[k];
        const ProgramForm::Step* quantization = only_quantization(form, form.inputs[k]);
        if (quantization == nullptr) continue;
        const auto found = std::ranges::find_if(known, [&](const Quantized& q) {
          return q.source == slot && q.scale == quantization->p && q.is_unsigned == quantization->q;
        });
        if (found == known.end() || is_written(slot, found->step, i) || is_written(found->slot, found->step, i))
          continue;
        step.inputs[k] = found->slot;
        readers_[found->slot].insert(i);
        if (std::ranges::find(step.inputs, slot) == step.inputs.end()) readers_[slot].erase(i);
        for (ProgramForm::Step& s : form.steps)
          if (s.a == form.inputs[k].target) s = {Instruction::kCopy, s.target, s.a, -1, 0, 0};
      }
      if (form.inputs.size() == 1 && form.steps.size() == 1 && form.outputs.size() == 1 && !form.outputs[0].integers &&
          form.outputs[0].rounding == Rounding::kNone && form.inputs[0].is_dense(form.domain) &&
          form.steps[0].instruction == Instruction::kFakeQuantize && !share_memory(step.inputs[0], step.outputs[0]))
        known.push_back({step.inputs[0], step.outputs[0], i, form.steps[0].p, form.steps[0].q});
    }
  }

  /// All that is done with the input is to quantize it, in one way.
  static const ProgramForm::Step* only_quantization(const ProgramForm& form, const ProgramForm::Input& input) {
    if (form.row_dims > 0 || input.rounding != Rounding::kNone) return nullptr;
    const ProgramForm::Step* found = nullptr;
    for (const ProgramForm::Step& s : form.steps) {
      if (s.a != input.target && s.b != input.target) continue;
      if (s.instruction != Instruction::kFakeQuantize || (found != nullptr && (found->p != s.p || found->q != s.q)))
        return nullptr;
      found = &s;
    }
    return found;
  }

  /// One may be a view of the other.
  bool share_memory(int a, int b) const {
    return a >= 0 && b >= 0 && root_of(made_.slots, a) == root_of(made_.slots, b);
  }
  bool share_memory(const std::vector<int>& slots, int slot) const {
    return std::ranges::any_of(slots, [&](int s) { return share_memory(s, slot); });
  }

  /// By a step between the two.
  bool is_written(int slot, int after, int before) const {
    for (int i = after + 1; i < before; ++i)
      if (share_memory(made_.steps[static_cast<std::size_t>(i)].outputs, slot)) return true;
    return false;
  }

  /// The second of two neighbors takes in the first, if it reads what that computes, element by element.
  bool join(int i, int k) {
    const auto first = programs_.find(i), second = programs_.find(k);
    if (first == programs_.end() || second == programs_.end()) return false;
    const ProgramForm &a = first->second, &b = second->second;
    const Step &x = made_.steps[static_cast<std::size_t>(i)], &y = made_.steps[static_cast<std::size_t>(k)];
    if (a.row_dims > 0 || b.row_dims > 0 || a.domain != b.domain) return false;
    bool reads = false;
    for (std::size_t o = 0; o < x.outputs.size(); ++o) {
      if (made_.slots[x.outputs[o]].dynamic) return false;
      for (std::size_t n = 0; n < y.inputs.size(); ++n) {
        if (!share_memory(y.inputs[n], x.outputs[o])) continue;
        if (y.inputs[n] != x.outputs[o]) return false;  // A view may have its elements elsewhere in the domain.
        if (a.outputs[o].integers || a.outputs[o].rounding != Rounding::kNone ||
            b.inputs[n].rounding != Rounding::kNone || !b.inputs[n].is_dense(b.domain))
          return false;
        reads = true;
      }
    }
    if (!reads) return false;
    for (const int slot : y.outputs)
      if (share_memory(x.inputs, slot) || share_memory(x.outputs, slot)) return false;
    // A step that works in place must not run for another output where the store has what it would work on already.
    std::vector<int> outputs = y.outputs;
    std::ranges::copy_if(x.outputs, std::back_inserter(outputs), [&](int slot) { return is_left(slot, k); });
    const auto in_place = [&](int slot) {
      return share_memory(x.inputs, slot) || (share_memory(y.inputs, slot) && !share_memory(x.outputs, slot));
    };
    if (outputs.size() > 1 && std::ranges::any_of(outputs, in_place)) return false;
    combine(i, k);
    return true;
  }

  /// Somebody reads what is in the slot after that step.
  bool is_left(int slot, int step) const {
    return pinned_[slot] != 0 || readers_[slot].upper_bound(step) != readers_[slot].end();
  }

  /// Step k becomes both programs: what b reads of a's outputs are a's registers now, so these values stay in
  /// registers. It stands at k, since only there b's other inputs are known to be made. Outputs of a that somebody
  /// reads behind k are still stored; slots that nobody reads any more are dropped.
  void combine(int i, int k) {
    const ProgramForm a = std::move(programs_.at(i)), b = std::move(programs_.at(k));
    Step &x = made_.steps[static_cast<std::size_t>(i)], &y = made_.steps[static_cast<std::size_t>(k)];
    ProgramForm form = a;
    std::vector<int> inputs = x.inputs, outputs;
    form.outputs.clear();
    for (std::size_t o = 0; o < x.outputs.size(); ++o) {
      const int slot = x.outputs[o];
      if (is_left(slot, k)) {
        form.outputs.push_back(a.outputs[o]);
        outputs.push_back(slot);
      } else {
        dropped_.insert(slot);
      }
    }
    ProgramBuilder joined(std::move(form));
    std::vector<Register> registers(b.registers.size(), -1);
    for (std::size_t r = 0; r < b.registers.size(); ++r)
      if (b.registers[r].kind == ProgramForm::Kind::kConstant) registers[r] = joined.constant(b.registers[r].value);
    for (std::size_t n = 0; n < b.inputs.size(); ++n) {
      const int slot = y.inputs[n];
      const auto made = std::ranges::find(x.outputs, slot);
      Register& target = registers[b.inputs[n].target];
      if (made != x.outputs.end()) {
        target = a.outputs[static_cast<std::size_t>(made - x.outputs.begin())].source;
      } else {
        target = joined.input(b.inputs[n].strides, b.inputs[n].rounding);
        inputs.push_back(slot);
      }
    }
    for (const ProgramForm::Step& s : b.steps)
      registers[s.target] = joined.apply(s.instruction, registers[s.a], s.b < 0 ? -1 : registers[s.b], s.p, s.q);
    for (std::size_t o = 0; o < b.outputs.size(); ++o) {
      const auto& output = b.outputs[o];
      if (output.integers)
        joined.output_integers(unquantized(joined.form(), registers[output.source], *output.integers),
                               *output.integers);
      else
        joined.output(registers[output.source], output.rounding);
      outputs.push_back(y.outputs[o]);
    }
    programs_.erase(i);
    programs_.at(k) = joined.form();
    drop_unread(programs_.at(k));
    y.inputs = std::move(inputs);
    y.outputs = std::move(outputs);
  }

  /// What has the same integers as `r`, which may be these times their scale: the quotient of that is less than 1/8
  /// from the integer again.
  static Register unquantized(const ProgramForm& form, Register r, const ProgramForm::Integers& integers) {
    const float scale = integers.by.scale;
    for (std::size_t s = form.steps.size(); s-- > 0;) {
      const ProgramForm::Step& step = form.steps[s];
      if (step.target != r) continue;
      const bool is_same = step.instruction == Instruction::kFakeQuantize && step.p == scale && integers.zero == 0 &&
                           (step.q != 0) == integers.by.is_unsigned() && scale >= 0x1p-100f && scale <= 0x1p100f;
      if (is_same) return step.a;
      if (step.instruction != Instruction::kCopy) return r;
      r = step.a;
    }
    return r;
  }

  static void drop_unread(ProgramForm& form) {
    std::vector<char> read(form.registers.size(), 0);
    for (const ProgramForm::Output& output : form.outputs) read[output.source] = 1;
    std::vector<ProgramForm::Step> kept;
    for (const ProgramForm::Step& step : form.steps | std::views::reverse) {
      if (read[step.target] == 0) continue;
      for (const Register r : {step.a, step.b})
        if (r >= 0) read[r] = 1;
      kept.push_back(step);
    }
    form.steps.assign(kept.rbegin(), kept.rend());
  }

  Steps& made_;
  std::map<int, ProgramForm> programs_;
  std::map<int, SumsMaker> sums_;
  std::vector<std::set<int>> readers_;  ///< Per slot: the steps.
  std::vector<char> pinned_;            ///< Per slot: somebody reads it who is no step.
  std::set<int> dropped_;               ///< Slots that nobody writes any more.
};

}  // namespace

void join_programs(Steps& steps, std::map<int, ProgramForm> programs, std::map<int, SumsMaker> sums) {
  Joiner(steps, std::move(programs), std::move(sums)).run();
}

}  // namespace ulpscope::cpu
