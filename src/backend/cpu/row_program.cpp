#include <algorithm>

#include "backend/cpu/program.h"
#include "backend/cpu/program_kernels.h"
#include "backend/cpu/program_tiles.h"
#include "backend/cpu/thread_memory.h"
#include "core/parallel.h"

namespace ulpscope::cpu {
namespace {

class RowProgram final : public Kernel {
 public:
  using Kind = ProgramForm::Kind;

  RowProgram(ProgramTiles tiles, const ProgramForm& form) : tiles_(std::move(tiles)) { assign_storage(form); }

  std::string name() const override { return "program"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    std::vector<const float*> in(inputs.size());
    std::vector<float*> out(outputs.size());
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = inputs[i]->data<float>();
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = outputs[i]->data<float>();
    parallel_for(tiles_.count(), items_per_task(tiles_.count(), tiles_.elements()),
                 [&](std::int64_t begin, std::int64_t end) {
                   Scratch& scratch = scratch_for_thread();
                   for (std::size_t i = 0; i < in.size(); ++i)
                     if (tiles_.is_repeated(i))
                       tiles_.load_repeated(i, in[i], place_of(static_cast<std::size_t>(inputs_[i].target), scratch));
                   for (std::int64_t tile = begin; tile < end; ++tile) run_tile(in, out, tiles_.tile(tile), scratch);
                 });
  }

 private:
  struct Scratch {
    ThreadMemory memory;
    float* values = nullptr;
    std::vector<float*> registers;
  };

  /// Gives every register a place; places are reused when their value is read for the last time.
  void assign_storage(const ProgramForm& form) {
    registers_ = form.registers;
    steps_ = form.steps;
    inputs_ = form.inputs;
    outputs_ = form.outputs;
    const ProgramKernels& kernels = program_kernels();
    for (const auto& step : steps_) {
      Functions f{};
      if (is_row_instruction(step.instruction))
        f.reduce = kernels.reduce(step.instruction);
      else if (is_binary_instruction(step.instruction)) {
        f.binary = kernels.binary(step.instruction);
        f.binary_scalar = kernels.binary_scalar(step.instruction);
        f.scalar_binary = kernels.scalar_binary(step.instruction);
      } else
        f.unary = kernels.unary(step.instruction);
      functions_.push_back(f);
    }
    const std::size_t count = registers_.size();
    std::vector<int> last_use(count, -1);
    for (std::size_t s = 0; s < steps_.size(); ++s)
      for (int r : {steps_[s].a, steps_[s].b})
        if (r >= 0) last_use[r] = static_cast<int>(s);
    for (const auto& output : outputs_) last_use[output.source] = static_cast<int>(steps_.size());
    subtracts_.assign(steps_.size(), 0);
    for (std::size_t s = 0; s + 1 < steps_.size(); ++s) {
      if (!is_exp_of_difference(s, last_use)) continue;
      subtracts_[s + 1] = 1;
      for (int r : {steps_[s].a, steps_[s].b}) last_use[r] = std::max(last_use[r], static_cast<int>(s) + 1);
    }
    place_.assign(count, -1);
    output_of_.assign(count, -1);
    for (std::size_t o = 0; o < outputs_.size(); ++o) output_of_[outputs_[o].source] = static_cast<int>(o);
    std::vector<int> free;
    const auto allocate = [&](std::size_t r) {
      if (free.empty()) {
        place_[r] = places_++;
      } else {
        place_[r] = free.back();
        free.pop_back();
      }
    };
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      allocate(static_cast<std::size_t>(inputs_[i].target));
      if (tiles_.is_repeated(i)) last_use[inputs_[i].target] = static_cast<int>(steps_.size());  // Never reused.
    }
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      allocate(static_cast<std::size_t>(steps_[s].target));
      for (int r : {steps_[s].a, steps_[s].b})
        if (r >= 0 && place_[r] >= 0 && last_use[r] == static_cast<int>(s)) {
          if (std::ranges::find(free, place_[r]) == free.end()) free.push_back(place_[r]);
        }
    }
    // A full output may be written where it belongs as soon as it is computed only if no input is read after that.
    std::size_t last_input_read = 0;
    for (std::size_t s = 0; s < steps_.size(); ++s)
      for (int r : {steps_[s].a, steps_[s].b})
        if (r >= 0 && registers_[r].input >= 0) last_input_read = s;
    direct_output_from_ = last_input_read;
  }

  /// Step `s` takes a number from each row, and all that is done with the difference is the Exp behind it, whose loop
  /// subtracts by itself.
  bool is_exp_of_difference(std::size_t s, const std::vector<int>& last_use) const {
    const auto &difference = steps_[s], &power = steps_[s + 1];
    return difference.instruction == Instruction::kSub && power.instruction == Instruction::kExp &&
           power.a == difference.target && last_use[power.a] == static_cast<int>(s) + 1 &&
           registers_[power.target].kind == Kind::kFull && registers_[difference.a].kind == Kind::kFull &&
           registers_[difference.b].kind == Kind::kRow;
  }

  Scratch& scratch_for_thread() const {
    thread_local Scratch scratch;
    scratch.values = scratch.memory.floats(place_elements() * static_cast<std::size_t>(places_));
    if (scratch.registers.size() < registers_.size()) scratch.registers.resize(registers_.size());
    return scratch;
  }

  std::size_t place_elements() const { return static_cast<std::size_t>((tiles_.elements() + 31) / 16 * 16); }

  float* place_of(std::size_t r, Scratch& scratch) const {
    return place_[r] < 0 ? nullptr : scratch.values + static_cast<std::size_t>(place_[r]) * place_elements();
  }

  void run_tile(const std::vector<const float*>& in, const std::vector<float*>& out, const ProgramTiles::Tile& tile,
                Scratch& scratch) const {
    for (std::size_t r = 0; r < registers_.size(); ++r) scratch.registers[r] = place_of(r, scratch);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      float*& place = scratch.registers[static_cast<std::size_t>(inputs_[i].target)];
      if (!tiles_.is_repeated(i)) place = const_cast<float*>(tiles_.load(i, in[i], tile, place));
    }
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      const auto& step = steps_[s];
      const auto target = static_cast<std::size_t>(step.target);
      if (const int o = output_of_[target];
          o >= 0 && registers_[target].kind == Kind::kFull && s >= direct_output_from_ && outputs_.size() == 1)
        scratch.registers[target] = out[o] + tiles_.offset(tile);
      if (s + 1 < steps_.size() && subtracts_[s + 1] != 0) continue;
      if (subtracts_[s] != 0)
        exp_of_differences(s, tile.rows, tile.columns, scratch);
      else
        execute(step, functions_[s], tile.rows, tile.columns, scratch);
    }
    for (std::size_t o = 0; o < outputs_.size(); ++o) {
      const auto source = static_cast<std::size_t>(outputs_[o].source);
      const float* values = scratch.registers[source];
      const bool full = registers_[source].kind == Kind::kFull;
      float* target = out[o] + (full ? tiles_.offset(tile) : tiles_.first_row(tile));
      if (values != target || outputs_[o].rounding != Rounding::kNone)
        round_array(values, target, static_cast<std::size_t>(full ? tile.elements() : tile.rows), outputs_[o].rounding);
    }
  }

  struct Functions {
    ProgramKernels::Unary unary = nullptr;
    ProgramKernels::Binary binary = nullptr;
    ProgramKernels::BinaryScalar binary_scalar = nullptr;
    ProgramKernels::ScalarBinary scalar_binary = nullptr;
    ProgramKernels::Reduce reduce = nullptr;
  };

  void execute(const ProgramForm::Step& step, const Functions& f, std::int64_t rows, std::int64_t columns,
               Scratch& scratch) const {
    const auto kind = [&](int r) { return registers_[r].kind; };
    const auto at = [&](int r) { return scratch.registers[r]; };
    const auto value = [&](int r) { return registers_[r].value; };
    float* out = at(step.target);
    const bool full = kind(step.target) == Kind::kFull;
    const std::int64_t count = full ? rows * columns : rows;
    if (f.reduce != nullptr) {
      reduce(step, f, rows, columns, scratch);
    } else if (f.unary != nullptr) {
      unary(step, f, count, columns, full, scratch);
    } else if (kind(step.b) == Kind::kConstant && kind(step.a) == Kind::kConstant) {
      std::fill(out, out + count, value(step.a));
      f.binary_scalar(out, out, value(step.b), count);
    } else if (kind(step.b) == Kind::kConstant) {
      if (full && kind(step.a) == Kind::kRow)
        spread(at(step.a), out, rows, columns), f.binary_scalar(out, out, value(step.b), count);
      else
        f.binary_scalar(out, at(step.a), value(step.b), count);
    } else if (kind(step.a) == Kind::kConstant) {
      if (full && kind(step.b) == Kind::kRow)
        spread(at(step.b), out, rows, columns), f.scalar_binary(out, value(step.a), out, count);
      else
        f.scalar_binary(out, value(step.a), at(step.b), count);
    } else if (!full || kind(step.a) == kind(step.b)) {
      f.binary(out, at(step.a), at(step.b), count);
    } else if (kind(step.b) == Kind::kRow) {
      for (std::int64_t r = 0; r < rows; ++r)
        f.binary_scalar(out + r * columns, at(step.a) + r * columns, at(step.b)[r], columns);
    } else {
      for (std::int64_t r = 0; r < rows; ++r)
        f.scalar_binary(out + r * columns, at(step.a)[r], at(step.b) + r * columns, columns);
    }
  }

  void exp_of_differences(std::size_t s, std::int64_t rows, std::int64_t columns, Scratch& scratch) const {
    const float *from = scratch.registers[steps_[s - 1].a], *numbers = scratch.registers[steps_[s - 1].b];
    float* out = scratch.registers[steps_[s].target];
    for (std::int64_t r = 0; r < rows; ++r)
      functions_[s].unary(out + r * columns, from + r * columns, columns, numbers[r], 0);
  }

  static void spread(const float* row_values, float* out, std::int64_t rows, std::int64_t columns) {
    for (std::int64_t r = rows; r-- > 0;) std::fill(out + r * columns, out + (r + 1) * columns, row_values[r]);
  }

  void unary(const ProgramForm::Step& step, const Functions& f, std::int64_t count, std::int64_t columns, bool full,
             Scratch& scratch) const {
    const auto& source = registers_[step.a];
    float* out = scratch.registers[step.target];
    if (source.kind == Kind::kConstant) {
      std::fill(out, out + count, source.value);
      f.unary(out, out, count, step.p, step.q);
    } else if (full && source.kind == Kind::kRow) {
      spread(scratch.registers[step.a], out, count / columns, columns);
      f.unary(out, out, count, step.p, step.q);
    } else {
      f.unary(out, scratch.registers[step.a], count, step.p, step.q);
    }
  }

  void reduce(const ProgramForm::Step& step, const Functions& f, std::int64_t rows, std::int64_t columns,
              Scratch& scratch) const {
    const auto& source = registers_[step.a];
    float* out = scratch.registers[step.target];
    if (source.kind == Kind::kFull) {
      const float* in = scratch.registers[step.a];
      for (std::int64_t r = 0; r < rows; ++r) out[r] = f.reduce(in + r * columns, columns);
      return;
    }
    // All values of a row are equal.
    thread_local std::vector<float> expanded;
    expanded.resize(static_cast<std::size_t>(columns));
    for (std::int64_t r = 0; r < rows; ++r) {
      std::ranges::fill(expanded, source.kind == Kind::kConstant ? source.value : scratch.registers[step.a][r]);
      out[r] = f.reduce(expanded.data(), columns);
    }
  }

  ProgramTiles tiles_;
  std::vector<ProgramForm::Input> inputs_;
  std::vector<ProgramForm::RegisterInfo> registers_;
  std::vector<ProgramForm::Step> steps_;
  std::vector<Functions> functions_;
  std::vector<char> subtracts_;  ///< Per step: an Exp that does what the step before it describes, too.
  std::vector<ProgramForm::Output> outputs_;
  std::vector<int> place_;      ///< Per register: which piece of scratch; -1 for constants.
  std::vector<int> output_of_;  ///< Per register: which output it is.
  int places_ = 0;
  std::size_t direct_output_from_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_row_program(const ProgramForm& form) {
  auto tiles = ProgramTiles::make(form);
  if (!tiles) return nullptr;
  return std::make_unique<RowProgram>(std::move(*tiles), form);
}

}  // namespace ulpscope::cpu
