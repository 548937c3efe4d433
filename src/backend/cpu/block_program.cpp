// Programs without rows: a list of operations on blocks of numbers, which stay in registers from one to the next.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "backend/cpu/program.h"
#include "backend/cpu/program_kernels.h"
#include "backend/cpu/program_tiles.h"
#include "backend/cpu/thread_memory.h"
#include "core/parallel.h"

namespace ulpscope::cpu {
namespace {

/// The operations. Their places: the inputs, the outputs, and behind them blocks of scratch.
struct BlockCode {
  std::vector<BlockOp> ops;
  int scratch = 0;
};

class BlockCompiler {
 public:
  explicit BlockCompiler(const ProgramForm& form)
      : form_(form),
        kernels_(program_kernels().block),
        read_back_(form.registers.size(), 0),
        output_of_(form.registers.size(), -1) {
    for (std::size_t o = 0; o < form.outputs.size(); ++o) output_of_[form.outputs[o].source] = static_cast<int>(o);
  }

  BlockCode compile() {
    emit();  // Tells what is read back.
    emit();
    add(kernels_.end());
    return std::move(code_);
  }

 private:
  bool is_constant(Register r) const { return form_.registers[r].kind == ProgramForm::Kind::kConstant; }
  float value(Register r) const { return form_.registers[r].value; }

  BlockOp& add(BlockOp::Function function, int place = -1) {
    code_.ops.push_back({.function = function, .place = place});
    return code_.ops.back();
  }

  /// Where the register's numbers are, from now on: they do not stay in the block.
  int place_of(Register r, std::size_t step) {
    read_back_[r] = 1;
    if (const int input = form_.registers[r].input; input >= 0) {
      last_input_read_ = step;
      return input;
    }
    return places_[r];
  }

  void bring(Register r, std::size_t step) {
    if (block_ == r) return;
    if (is_constant(r))
      add(kernels_.fill()).p = value(r);
    else
      add(kernels_.load(), place_of(r, step));
    block_ = r;
  }

  void emit() {
    code_ = {};
    block_ = -1;
    const std::size_t before = last_input_read_;
    last_input_read_ = 0;
    places_.assign(form_.registers.size(), -1);
    std::vector<int> late;
    for (std::size_t s = 0; s < form_.steps.size(); ++s) {
      compute(form_.steps[s], s);
      block_ = form_.steps[s].target;
      keep(block_, s >= before, late);
    }
    for (const int o : late) {
      bring(form_.outputs[static_cast<std::size_t>(o)].source, form_.steps.size());
      store(o);
    }
  }

  void compute(const ProgramForm::Step& step, std::size_t s) {
    if (!is_binary_instruction(step.instruction)) {
      bring(step.a, s);
      if (step.instruction == Instruction::kCopy) return;
      if (step.instruction == Instruction::kFakeQuantize) return quantize({to_bytes(step.p, step.q != 0.0f)}, -1);
      BlockOp& op = add(kernels_.unary(step.instruction));
      op.p = step.p;
      op.q = step.q;
      return;
    }
    const BlockBinary binary = kernels_.binary(step.instruction);
    if (is_constant(step.b)) {
      bring(step.a, s);
      add(binary.with_number).p = value(step.b);
    } else if (is_constant(step.a)) {
      bring(step.b, s);
      add(binary.number_with).p = value(step.a);
    } else if (block_ == step.b && block_ != step.a) {
      add(binary.place_with, place_of(step.a, s));
    } else {
      bring(step.a, s);
      add(binary.with_place, place_of(step.b, s));
    }
  }

  /// Stored in a place, or times their scale again.
  void quantize(const ProgramForm::Integers& integers, int place) {
    const float zero = static_cast<float>(integers.zero), scale = integers.by.scale;
    const float least = integers.by.lowest() - zero, most = integers.by.largest() - zero;
    const Inverse inverse = inverse_of(scale, least, most);
    const auto kernel = place < 0            ? kernels_.quantize
                        : integers.as_floats ? kernels_.store_integers
                                             : kernels_.store_bytes;
    BlockOp& op = add(kernel(inverse.exists), place);
    op.p = scale;
    op.r = inverse.r;
    op.s = inverse.s;
    op.least = least;
    op.most = most;
    op.zero = integers.zero;
  }

  int output_place(int o) const { return static_cast<int>(form_.inputs.size()) + o; }

  void store(int o) {
    const auto& output = form_.outputs[static_cast<std::size_t>(o)];
    if (output.integers)
      quantize(*output.integers, output_place(o));
    else
      add(kernels_.store(), output_place(o));
  }

  /// What the block holds now goes to where it is read again. `inputs_done`: an output may lie where an input does.
  void keep(Register r, bool inputs_done, std::vector<int>& late) {
    const int o = output_of_[r];
    const bool now = o >= 0 && (form_.outputs[static_cast<std::size_t>(o)].is_bytes() || inputs_done);
    if (now) store(o);
    if (now && !form_.outputs[static_cast<std::size_t>(o)].integers) places_[r] = output_place(o);
    if (o >= 0 && !now) late.push_back(o);
    if (places_[r] >= 0 || (read_back_[r] == 0 && (o < 0 || now))) return;
    places_[r] = static_cast<int>(form_.inputs.size() + form_.outputs.size()) + code_.scratch++;
    add(kernels_.store(), places_[r]);
  }

  const ProgramForm& form_;
  const BlockKernels& kernels_;
  BlockCode code_;
  Register block_ = -1;  ///< Which register the block is.
  std::size_t last_input_read_ = 0;
  std::vector<char> read_back_;  ///< Per register: something reads it from its place.
  std::vector<int> places_;      ///< Per register that no input has.
  std::vector<int> output_of_;   ///< Per register.
};

class BlockProgram final : public Kernel {
 public:
  BlockProgram(ProgramTiles tiles, const ProgramForm& form)
      : kernels_(program_kernels().block),
        tiles_(std::move(tiles)),
        inputs_(form.inputs.size()),
        outputs_(form.outputs),
        code_(BlockCompiler(form).compile()),
        only_quantizes_(form.steps.size() == 1 && (form.steps[0].instruction == Instruction::kFakeQuantize ||
                                                   (outputs_.size() == 1 && outputs_[0].integers))) {
    for (std::size_t p = 0; p < inputs_ + outputs_.size(); ++p) {
      sizes_.push_back(p >= inputs_ && outputs_[p - inputs_].is_bytes() ? 1 : sizeof(float));
      steps_.push_back(static_cast<std::ptrdiff_t>(sizes_[p]) * kernels_.elements);
    }
  }

  std::string name() const override { return only_quantizes_ ? "quantization" : "program"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    static std::atomic<std::uint64_t> runs{0};
    const std::uint64_t number = ++runs;
    const std::int64_t tiles = tiles_.count();
    parallel_for(tiles, items_per_task(tiles, tiles_.elements()), [&](std::int64_t begin, std::int64_t end) {
      Workspace& work = workspace_for_thread();
      for (std::size_t i = 0; i < inputs_ && work.run != number; ++i)
        if (tiles_.is_repeated(i)) tiles_.load_repeated(i, inputs[i]->data<float>(), tile_place(work, i));
      work.run = number;
      for (std::int64_t tile = begin; tile < end; ++tile) run_tile(inputs, outputs, tiles_.tile(tile), work);
    });
  }

 private:
  struct Workspace {
    ThreadMemory memory;
    std::byte* begin = nullptr;
    std::vector<std::byte*> places;
    std::vector<std::byte*> targets;  ///< Of the last numbers of a tile.
    std::uint64_t run = 0;            ///< That the repeated inputs are of.
  };

  std::size_t block_bytes() const { return static_cast<std::size_t>(kernels_.elements) * sizeof(float); }
  std::size_t tile_bytes() const {
    return (static_cast<std::size_t>(tiles_.elements()) * sizeof(float) + 63) / 64 * 64;
  }

  /// Scratch, a block for each place of a tile that ends within one, and a tile for each input.
  Workspace& workspace_for_thread() const {
    thread_local Workspace work;
    const std::size_t blocks = static_cast<std::size_t>(code_.scratch) + sizes_.size();
    std::byte* const begin = work.memory.get(blocks * block_bytes() + inputs_ * tile_bytes());
    if (begin != work.begin) work.run = 0;
    work.begin = begin;
    work.places.resize(sizes_.size() + static_cast<std::size_t>(code_.scratch));
    for (int s = 0; s < code_.scratch; ++s)
      work.places[sizes_.size() + static_cast<std::size_t>(s)] = begin + static_cast<std::size_t>(s) * block_bytes();
    return work;
  }
  std::byte* rest_place(Workspace& work, std::size_t place) const {
    return work.begin + (static_cast<std::size_t>(code_.scratch) + place) * block_bytes();
  }
  float* tile_place(Workspace& work, std::size_t input) const {
    return reinterpret_cast<float*>(rest_place(work, sizes_.size()) + input * tile_bytes());
  }

  void run_tile(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs, const ProgramTiles::Tile& tile,
                Workspace& work) const {
    std::vector<std::byte*>& places = work.places;
    for (std::size_t i = 0; i < inputs_; ++i) {
      const float* values = tile_place(work, i);
      if (!tiles_.is_repeated(i)) values = tiles_.load(i, inputs[i]->data<float>(), tile, tile_place(work, i));
      places[i] = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(values));
    }
    for (std::size_t o = 0; o < outputs_.size(); ++o)
      places[inputs_ + o] = static_cast<std::byte*>(outputs[o]->raw()) +
                            static_cast<std::size_t>(tiles_.offset(tile)) * sizes_[inputs_ + o];
    const std::int64_t elements = tile.elements();
    const std::int64_t rest = elements % kernels_.elements;
    kernels_.run(code_.ops.data(), places.data(), steps_.data(), steps_.size(), elements / kernels_.elements);
    if (rest > 0) run_rest(static_cast<std::size_t>(rest), work);
    for (std::size_t o = 0; o < outputs_.size(); ++o) {
      if (outputs_[o].rounding == Rounding::kNone) continue;
      float* const values = outputs[o]->data<float>() + tiles_.offset(tile);
      round_array(values, values, static_cast<std::size_t>(elements), outputs_[o].rounding);
    }
  }

  /// The last numbers of a tile, fewer than a block.
  void run_rest(std::size_t count, Workspace& work) const {
    std::vector<std::byte*>& places = work.places;
    work.targets.assign(places.begin() + static_cast<std::ptrdiff_t>(inputs_),
                        places.begin() + static_cast<std::ptrdiff_t>(sizes_.size()));
    for (std::size_t p = 0; p < sizes_.size(); ++p) {
      std::byte* const rest = rest_place(work, p);
      if (p < inputs_) {
        std::memcpy(rest, places[p], count * sizes_[p]);
        std::memset(rest + count * sizes_[p], 0, block_bytes() - count * sizes_[p]);
      }
      places[p] = rest;
    }
    kernels_.run(code_.ops.data(), places.data(), steps_.data(), 0, 1);
    for (std::size_t o = 0; o < outputs_.size(); ++o)
      std::memcpy(work.targets[o], places[inputs_ + o], count * sizes_[inputs_ + o]);
  }

  const BlockKernels& kernels_;
  const ProgramTiles tiles_;
  const std::size_t inputs_;
  const std::vector<ProgramForm::Output> outputs_;
  const BlockCode code_;
  const bool only_quantizes_;
  std::vector<std::size_t> sizes_;     ///< Bytes of a number, per input and output;
  std::vector<std::ptrdiff_t> steps_;  ///< and of a block.
};

}  // namespace

std::unique_ptr<Kernel> make_block_program(const ProgramForm& form) {
  auto tiles = ProgramTiles::make(form);
  if (!tiles) return nullptr;
  return std::make_unique<BlockProgram>(std::move(*tiles), form);
}

}  // namespace ulpscope::cpu
