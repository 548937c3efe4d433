#include "backend/cpu/program.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "backend/cpu/program_kernels.h"
#include "core/parallel.h"

namespace ulpscope::cpu {

ProgramBuilder::ProgramBuilder(Shape domain, int row_dims) : domain_(std::move(domain)), row_dims_(row_dims) {}

Register ProgramBuilder::input(const std::vector<std::int64_t>& strides, Rounding rounding) {
  const Register target = static_cast<Register>(registers_.size());
  registers_.push_back({Kind::kFull, static_cast<int>(inputs_.size())});
  inputs_.push_back({strides, rounding, target});
  const std::size_t row_begin = domain_.size() - static_cast<std::size_t>(row_dims_);
  if (row_dims_ > 0 && std::all_of(strides.begin() + static_cast<std::ptrdiff_t>(row_begin), strides.end(),
                                   [](std::int64_t s) { return s == 0; }))
    registers_.back().kind = Kind::kRow;
  return target;
}

Register ProgramBuilder::constant(float value) {
  registers_.push_back({Kind::kConstant, -1, value});
  return static_cast<Register>(registers_.size()) - 1;
}

Register ProgramBuilder::apply(Instruction instruction, Register a, Register b, float p, float q) {
  const auto kind_of = [&](Register r) { return r < 0 ? Kind::kConstant : registers_[r].kind; };
  Kind kind = std::max({kind_of(a), kind_of(b), row_dims_ > 0 ? Kind::kRow : Kind::kFull});
  if (is_row_instruction(instruction)) kind = Kind::kRow;
  const Register target = static_cast<Register>(registers_.size());
  registers_.push_back({kind});
  steps_.push_back({instruction, target, a, b, p, q});
  return target;
}

void ProgramBuilder::output(Register source, Rounding rounding) {
  // A value that no instruction computed, or that is handed out twice, goes through a copy.
  const bool computed = std::ranges::any_of(steps_, [&](const Step& s) { return s.target == source; });
  const bool taken = std::ranges::any_of(outputs_, [&](const Output& o) { return o.source == source; });
  if (!computed || taken) source = apply(Instruction::kCopy, source);
  outputs_.push_back({source, rounding});
}

// Named, since what has it is known outside of this file.
inline namespace program_kernel {

constexpr std::int64_t kTileElements = 1536;  // 6 KiB a register: a handful of them fit the first-level cache

struct Access {
  std::vector<std::int64_t> outer;  ///< Strides of the outer dimensions.
  std::int64_t row = 0, column = 0;
  Rounding rounding = Rounding::kNone;
  int target = -1;
  bool repeated = false;  ///< See is_repeated().
};

}  // namespace program_kernel

class ProgramKernel final : public Kernel {
 public:
  using Kind = ProgramBuilder::Kind;

  /// Nothing when the rows cannot be expressed.
  static std::unique_ptr<ProgramKernel> make(const ProgramBuilder& b) {
    auto kernel = std::unique_ptr<ProgramKernel>(new ProgramKernel);
    if (!kernel->collapse(b)) return nullptr;
    kernel->assign_storage(b);
    return kernel;
  }

  std::string name() const override { return "program"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    if (rows_ * inner_ * outer_count_ == 0) return;
    std::vector<const float*> in(inputs.size());
    std::vector<float*> out(outputs.size());
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = inputs[i]->data<float>();
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = outputs[i]->data<float>();
    const std::int64_t row_tiles = (rows_ + tile_rows_ - 1) / tile_rows_;
    const std::int64_t column_tiles = (inner_ + tile_columns_ - 1) / tile_columns_;
    const std::int64_t tiles = outer_count_ * row_tiles * column_tiles;
    parallel_for(tiles, items_per_task(tiles, tile_rows_ * tile_columns_), [&](std::int64_t begin, std::int64_t end) {
      Scratch& scratch = scratch_for_thread();
      load_repeated(in, scratch);
      for (std::int64_t tile = begin; tile < end; ++tile) {
        const std::int64_t column_tile = tile % column_tiles;
        const std::int64_t row_tile = tile / column_tiles % row_tiles;
        run_tile(in, out, tile / column_tiles / row_tiles, row_tile * tile_rows_, column_tile * tile_columns_, scratch);
      }
    });
  }

 private:
  struct Scratch {
    std::vector<float> values;
    std::vector<float*> registers;
  };

  struct Loop {
    std::int64_t extent;
    std::vector<std::int64_t> strides;  ///< One per input.
  };

  bool collapse(const ProgramBuilder& b) {
    const std::size_t row_begin = b.domain_.size() - static_cast<std::size_t>(b.row_dims_);
    std::vector<Loop> outer, row;
    const auto add = [&](std::vector<Loop>& loops, std::size_t d) {
      if (b.domain_[d] == 1) return;
      Loop loop{b.domain_[d], {}};
      for (const auto& input : b.inputs_) loop.strides.push_back(input.strides[d]);
      // Two loops are one when every input steps over the inner one evenly.
      if (!loops.empty()) {
        bool merge = true;
        for (std::size_t i = 0; i < loop.strides.size(); ++i)
          merge &= loops.back().strides[i] == loop.strides[i] * loop.extent;
        if (merge) {
          loops.back().extent *= loop.extent;
          loops.back().strides = loop.strides;
          return;
        }
      }
      loops.push_back(std::move(loop));
    };
    for (std::size_t d = 0; d < row_begin; ++d) add(outer, d);
    for (std::size_t d = row_begin; d < b.domain_.size(); ++d) add(row, d);
    if (row.size() > 1) return false;
    // What a reduction yields of nothing is the reference kernels' to say.
    if (!row.empty() && row.back().extent == 0) return false;
    const std::vector<std::int64_t> none(b.inputs_.size(), 0);
    has_rows_ = b.row_dims_ > 0;
    if (!has_rows_) {
      if (outer.empty()) outer.push_back({1, none});
      row.push_back(outer.back());
      outer.pop_back();
    }
    if (row.empty()) row.push_back({1, none});
    if (outer.empty()) outer.push_back({1, none});
    inner_ = row.back().extent;
    rows_ = outer.back().extent;
    outer_.clear();
    outer_count_ = 1;
    for (std::size_t i = 0; i + 1 < outer.size(); ++i) {
      outer_.push_back(outer[i].extent);
      outer_count_ *= outer[i].extent;
    }
    for (std::size_t i = 0; i < b.inputs_.size(); ++i) {
      Access access{{}, outer.back().strides[i], row.back().strides[i], b.inputs_[i].rounding, b.inputs_[i].target};
      for (std::size_t d = 0; d + 1 < outer.size(); ++d) access.outer.push_back(outer[d].strides[i]);
      inputs_.push_back(std::move(access));
    }
    tile_columns_ = has_rows_ ? inner_ : std::min(inner_, kTileElements);
    tile_rows_ = std::clamp<std::int64_t>(kTileElements / std::max<std::int64_t>(tile_columns_, 1), 1,
                                          std::max<std::int64_t>(rows_, 1));
    return true;
  }

  /// Gives every register a place; places are reused when their value is read for the last time.
  void assign_storage(const ProgramBuilder& b) {
    registers_ = b.registers_;
    steps_ = b.steps_;
    outputs_ = b.outputs_;
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
    for (Access& access : inputs_) {
      allocate(static_cast<std::size_t>(access.target));
      access.repeated = is_repeated(access);
      if (access.repeated) last_use[access.target] = static_cast<int>(steps_.size());  // Its place is never reused.
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

  Scratch& scratch_for_thread() const {
    thread_local Scratch scratch;
    const std::size_t place_size = place_elements();
    const std::size_t needed = place_size * static_cast<std::size_t>(places_);
    if (scratch.values.size() < needed) scratch.values.resize(needed);
    if (scratch.registers.size() < registers_.size()) scratch.registers.resize(registers_.size());
    return scratch;
  }

  std::size_t place_elements() const { return static_cast<std::size_t>((tile_rows_ * tile_columns_ + 31) / 16 * 16); }

  void run_tile(const std::vector<const float*>& in, const std::vector<float*>& out, std::int64_t outer,
                std::int64_t row, std::int64_t column, Scratch& scratch) const {
    const std::int64_t rows = std::min(tile_rows_, rows_ - row);
    const std::int64_t columns = std::min(tile_columns_, inner_ - column);
    const std::int64_t elements = rows * columns;
    for (std::size_t r = 0; r < registers_.size(); ++r) scratch.registers[r] = place_of(r, scratch);
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      if (!inputs_[i].repeated) load(inputs_[i], in[i], outer, row, column, rows, columns, scratch);
    const std::int64_t full_offset = (outer * rows_ + row) * inner_ + column;
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      const auto& step = steps_[s];
      const std::size_t target = static_cast<std::size_t>(step.target);
      const bool full = registers_[target].kind == Kind::kFull;
      if (const int o = output_of_[target];
          o >= 0 && full && s >= direct_output_from_ && (columns == inner_ || rows == 1) && outputs_.size() == 1)
        scratch.registers[target] = out[o] + full_offset;
      execute(step, functions_[s], rows, columns, scratch);
    }
    for (std::size_t o = 0; o < outputs_.size(); ++o) {
      const std::size_t source = static_cast<std::size_t>(outputs_[o].source);
      const float* values = scratch.registers[source];
      if (registers_[source].kind != Kind::kFull) {
        round_array(values, out[o] + outer * rows_ + row, static_cast<std::size_t>(rows), outputs_[o].rounding);
      } else if (columns == inner_ || rows == 1) {
        float* target = out[o] + full_offset;
        if (values != target || outputs_[o].rounding != Rounding::kNone)
          round_array(values, target, static_cast<std::size_t>(elements), outputs_[o].rounding);
      } else {
        for (std::int64_t r = 0; r < rows; ++r)
          round_array(values + r * columns, out[o] + full_offset + r * inner_, static_cast<std::size_t>(columns),
                      outputs_[o].rounding);
      }
    }
  }

  /// One value per column: the same in all rows of all tiles. Where it lies is good enough for a single row.
  bool is_repeated(const Access& access) const {
    if (tile_rows_ == 1 && access.column == 1 && access.rounding == Rounding::kNone) return false;
    return registers_[static_cast<std::size_t>(access.target)].kind == Kind::kFull && tile_columns_ == inner_ &&
           access.row == 0 && std::ranges::all_of(access.outer, [](std::int64_t stride) { return stride == 0; });
  }

  /// What is the same for all tiles, for as many rows as one has.
  void load_repeated(const std::vector<const float*>& in, Scratch& scratch) const {
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const Access& access = inputs_[i];
      if (!access.repeated) continue;
      float* const to = place_of(static_cast<std::size_t>(access.target), scratch);
      for (std::int64_t c = 0; c < inner_; ++c) to[c] = in[i][c * access.column];
      const std::int64_t count = tile_rows_ * inner_;
      for (std::int64_t known = inner_; known < count; known *= 2)
        std::copy_n(to, std::min(known, count - known), to + known);
      if (access.rounding != Rounding::kNone) round_array(to, to, static_cast<std::size_t>(count), access.rounding);
    }
  }

  float* place_of(std::size_t r, Scratch& scratch) const {
    return place_[r] < 0 ? nullptr : scratch.values.data() + static_cast<std::size_t>(place_[r]) * place_elements();
  }

  void load(const Access& access, const float* base, std::int64_t outer, std::int64_t row, std::int64_t column,
            std::int64_t rows, std::int64_t columns, Scratch& scratch) const {
    std::int64_t offset = row * access.row + column * access.column;
    for (std::size_t d = outer_.size(); d-- > 0;) {
      offset += outer % outer_[d] * access.outer[d];
      outer /= outer_[d];
    }
    const float* source = base + offset;
    const std::size_t target_index = static_cast<std::size_t>(access.target);
    float* target = scratch.registers[target_index];
    std::int64_t count = rows * columns;
    if (registers_[target_index].kind == Kind::kRow) {
      count = rows;
      if (access.row == 1 && access.rounding == Rounding::kNone) {
        scratch.registers[target_index] = const_cast<float*>(source);
        return;
      }
      for (std::int64_t r = 0; r < rows; ++r) target[r] = source[r * access.row];
    } else if (access.column == 1 && (rows == 1 || access.row == columns)) {
      if (access.rounding == Rounding::kNone) {
        scratch.registers[target_index] = const_cast<float*>(source);
        return;
      }
      round_array(source, target, static_cast<std::size_t>(count), access.rounding);
      return;
    } else {
      for (std::int64_t r = 0; r < rows; ++r) {
        float* to = target + r * columns;
        const float* from = source + r * access.row;
        if (access.row == 0 && r > 0)
          std::memcpy(to, target, static_cast<std::size_t>(columns) * sizeof(float));
        else if (access.column == 1)
          std::memcpy(to, from, static_cast<std::size_t>(columns) * sizeof(float));
        else if (access.column == 0)
          std::fill(to, to + columns, *from);
        else
          for (std::int64_t c = 0; c < columns; ++c) to[c] = from[c * access.column];
      }
    }
    if (access.rounding != Rounding::kNone)
      round_array(target, target, static_cast<std::size_t>(count), access.rounding);
  }

  struct Functions {
    ProgramKernels::Unary unary = nullptr;
    ProgramKernels::Binary binary = nullptr;
    ProgramKernels::BinaryScalar binary_scalar = nullptr;
    ProgramKernels::ScalarBinary scalar_binary = nullptr;
    ProgramKernels::Reduce reduce = nullptr;
  };

  void execute(const ProgramBuilder::Step& step, const Functions& f, std::int64_t rows, std::int64_t columns,
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

  static void spread(const float* row_values, float* out, std::int64_t rows, std::int64_t columns) {
    for (std::int64_t r = rows; r-- > 0;) std::fill(out + r * columns, out + (r + 1) * columns, row_values[r]);
  }

  void unary(const ProgramBuilder::Step& step, const Functions& f, std::int64_t count, std::int64_t columns, bool full,
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

  void reduce(const ProgramBuilder::Step& step, const Functions& f, std::int64_t rows, std::int64_t columns,
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

  bool has_rows_ = false;
  std::int64_t inner_ = 1, rows_ = 1, outer_count_ = 1;
  Shape outer_;
  std::int64_t tile_rows_ = 1, tile_columns_ = 1;
  std::vector<Access> inputs_;
  std::vector<ProgramBuilder::RegisterInfo> registers_;
  std::vector<ProgramBuilder::Step> steps_;
  std::vector<Functions> functions_;
  std::vector<ProgramBuilder::Output> outputs_;
  std::vector<int> place_;      ///< Per register: which piece of scratch; -1 for constants.
  std::vector<int> output_of_;  ///< Per register: which output it is.
  int places_ = 0;
  std::size_t direct_output_from_ = 0;
};

std::unique_ptr<Kernel> ProgramBuilder::finish() { return ProgramKernel::make(*this); }

}  // namespace ulpscope::cpu
