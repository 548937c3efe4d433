#include "backend/cuda/program_source.h"

#include <fmt/format.h>

#include "backend/cuda/element_source.h"
#include "backend/cuda/program_layout.h"
#include "core/messages.h"

namespace ulpscope::cuda {
namespace {

using Kind = Program::Kind;

constexpr const char* kEach = "#pragma unroll\nfor (int e = 0; e < {}; ++e) ";
constexpr int kPiece = 16;  ///< Chunks of a thread that are summed before the sum is added to that of all.

/// What a reduction begins with, how an element `x` joins `to`, and how two results become one.
struct Reduction {
  const char* initial;
  const char* add;
  const char* join;
};

Reduction reduction_of(Instruction instruction) {
  switch (instruction) {
    case Instruction::kReduceMax:
      return {"-INFINITE", "larger({to}, {x})", "larger({to}, {x})"};
    case Instruction::kReduceMin:
      return {"INFINITE", "smaller({to}, {x})", "smaller({to}, {x})"};
    case Instruction::kReduceSumSquare:
      return {"0.0f", "fmaf({x}, {x}, {to})", "{to} + {x}"};
    case Instruction::kReduceL1:
      return {"0.0f", "{to} + fabsf({x})", "{to} + {x}"};
    default:
      return {"0.0f", "{to} + {x}", "{to} + {x}"};
  }
}

std::string joined(const char* form, const std::string& to, const std::string& x) {
  return fmt::format("{} = {};\n", to, fmt::format(fmt::runtime(form), fmt::arg("to", to), fmt::arg("x", x)));
}

/// Writes the body of a kernel for one layout. Variables: q, the group; t, the thread in it; b<operand>, offsets of the
/// group; r<register>: of a thread, with [c] per chunk kept, with [e] per element of a vector; a<register>: parts of a
/// reduction.
class BodyWriter {
 public:
  BodyWriter(const ProgramSpec& spec, const ProgramStages& stages, const ProgramLayout& layout)
      : spec_(spec), values_(spec.program.values), stages_(stages), l_(layout), lane_(values_.size()) {
    for (std::size_t r = 0; r < values_.size(); ++r) {
      const Program::Value& v = values_[r];
      if (v.kind == Kind::kLoad)
        lane_[r] = l_.vector_dimension() != nullptr && l_.vector_dimension()->strides[v.load] != 0;
      else if (v.kind == Kind::kResult)
        lane_[r] = is_row(r) ? l_.across : lane_[v.a] || (v.b >= 0 && lane_[v.b]);
    }
  }

  std::string write() {
    const char* index = l_.wide ? "i64" : "u32";
    text_ += coordinate_code(l_.outer, "q", "x", l_.across ? l_.vector : 1, l_.wide);
    for (std::size_t i = 0; i < spec_.inputs.size() + spec_.outputs.size(); ++i)
      text_ += fmt::format("const {} b{} = {};\n", index, i, offset_code(l_.outer, i, "x", l_.wide));
    if (l_.kept != 0)
      for (std::size_t r = 0; r < values_.size(); ++r)
        if (is_element(r)) text_ += fmt::format("float r{}[{}]{};\n", r, l_.kept, lanes(r));
    for (int stage = 0; stage <= stages_.last; ++stage) write_stage(stage);
    return std::move(text_);
  }

 private:
  bool is_row(std::size_t r) const {
    return values_[r].kind == Kind::kResult && is_row_instruction(values_[r].instruction);
  }
  /// Computed chunk by chunk.
  bool is_element(std::size_t r) const { return stages_.needed[r] && stages_.along_row[r]; }
  std::string lanes(std::size_t r) const { return lane_[r] ? fmt::format("[{}]", l_.vector) : ""; }

  std::string name(Register r, bool whole = false) const {
    if (r < 0) return "";
    if (values_[r].kind == Kind::kConstant) return literal(values_[r].constant);
    return fmt::format("r{}{}{}", r, stages_.along_row[r] && l_.kept != 0 ? "[c]" : "",
                       lane_[r] && !whole ? "[e]" : "");
  }

  // --- Loops ---

  void statement(const std::string& code) {
    close_lanes();
    text_ += code;
  }
  /// A statement for each element of a vector; adjacent ones share a loop.
  void lane_statement(const std::string& code) {
    if (!in_lanes_) text_ += fmt::format(fmt::runtime(kEach), l_.vector) + "{\n";
    in_lanes_ = true;
    text_ += code;
  }
  void close_lanes() {
    if (in_lanes_) text_ += "}\n";
    in_lanes_ = false;
  }

  /// Runs `body` for every chunk of the thread. `pieces`: for rows that are read again, where parts of a sum are begun
  /// and added.
  template <typename Body, typename Begin, typename End>
  void each_chunk(Begin begin_piece, Body body, End end_piece) {
    const char* index = l_.wide ? "i64" : "u32";
    if (l_.row.empty()) {
      begin_piece();
      statement("{ constexpr int c = 0;\n");
      body();
      statement("}\n");
      end_piece();
      return;
    }
    const std::string chunks = literal(l_.chunks, l_.wide), threads = literal(l_.threads, l_.wide);
    if (l_.kept != 0) {
      begin_piece();
      statement(fmt::format("#pragma unroll\nfor (int c = 0; c < {}; ++c) {{\nconst {} j = ({})c * {} + t;\n", l_.kept,
                            index, index, threads));
      const std::int64_t whole = l_.chunks / l_.threads;
      statement(whole == l_.kept ? "{\n" : fmt::format("if (c < {} || j < {}) {{\n", whole, chunks));
    } else {
      statement(fmt::format("for ({} piece = t; piece < {}; piece += {} * {}) {{\n", index, chunks, kPiece, threads));
      begin_piece();
      statement(fmt::format("#pragma unroll 4\nfor (int k = 0; k < {}; ++k) {{\nconst {} j = piece + k * {};\n", kPiece,
                            index, threads));
      statement(fmt::format("if (j < {}) {{\n", chunks));
    }
    statement(coordinate_code(l_.row, "j", "y", l_.across ? 1 : l_.vector, l_.wide));
    body();
    statement("}\n}\n");
    end_piece();
    if (l_.kept == 0) statement("}\n");
  }

  // --- Memory ---

  /// An address expression: operand's element at the thread's place, `lane` elements further.
  std::string address(std::size_t operand, bool in_row, bool is_output, int element_bytes, const std::string& lane) {
    std::string offset = fmt::format("b{}", operand);
    if (in_row) {
      const std::string more = offset_code(l_.row, operand, "y", l_.wide);
      if (more != "0") offset += " + " + more;
    }
    if (!lane.empty()) offset += " + " + lane;
    const std::size_t number = is_output ? operand - spec_.inputs.size() : operand;
    return fmt::format("{}{} + (i64)({}({})) * {}", is_output ? "o" : "i", number, l_.wide ? "i64" : "i32", offset,
                       element_bytes);
  }

  std::string lane_offset(std::int64_t stride) const {
    return fmt::format("({})e * {}", l_.wide ? "i64" : "u32", literal(stride, l_.wide));
  }

  void write_load(Register r) {
    const auto operand = static_cast<std::size_t>(values_[r].load);
    const ProgramInput& in = spec_.inputs[operand];
    const std::string type = type_code(in.type);
    const int bytes = static_cast<int>(size_of(in.type));
    const auto one = [&](const std::string& lane) {
      return rounded_code(
          in.rounding,
          fmt::format("load_one<{}>({})", type, address(operand, stages_.along_row[r], false, bytes, lane)), in.type);
    };
    if (!lane_[r]) return statement(fmt::format("{} = {};\n", name(r), one("")));
    const std::int64_t stride = l_.vector_dimension()->strides[operand];
    if (stride != 1) return lane_statement(fmt::format("{} = {};\n", name(r), one(lane_offset(stride))));
    statement(fmt::format("load<{}, {}, {}>({}, {});\n", type, l_.vector, l_.words[operand],
                          address(operand, stages_.along_row[r], false, bytes, ""), name(r, true)));
    if (const std::string code = rounded_code(in.rounding, name(r), in.type); code != name(r))
      lane_statement(fmt::format("{} = {};\n", name(r), code));
  }

  void write_store(std::size_t number, bool in_row) {
    const ProgramOutput& out = spec_.outputs[number];
    const std::size_t operand = spec_.inputs.size() + number;
    const std::string type = type_code(out.type), value = stored_code(out, name(out.source));
    const int bytes = static_cast<int>(size_of(out.type));
    const Dimension* vector = l_.vector_dimension();
    if (!in_row && !l_.across) {
      if (lane_[out.source]) throw InternalError("an output with one value per row has one per element");
      return statement(fmt::format("store_one<{}>({}, {});\n", type, address(operand, in_row, true, bytes, ""), value));
    }
    const std::int64_t stride = vector == nullptr ? 1 : vector->strides[operand];
    if (stride != 1)
      return lane_statement(fmt::format("store_one<{}>({}, {});\n", type,
                                        address(operand, in_row, true, bytes, lane_offset(stride)), value));
    statement(fmt::format("{{ float w[{}];\n", l_.vector));
    lane_statement(fmt::format("w[e] = {};\n", value));
    statement(fmt::format("store<{}, {}, {}>({}, w); }}\n", type, l_.vector, l_.words[operand],
                          address(operand, in_row, true, bytes, "")));
  }

  // --- Registers ---

  void write_value(Register r, bool declare) {
    const Program::Value& v = values_[r];
    if (v.kind == Kind::kConstant) return;
    if (declare) statement(fmt::format("float r{}{};\n", r, lanes(r)));
    if (v.kind == Kind::kLoad) return write_load(r);
    const std::string code = fmt::format(
        "{} = {};\n", name(r), instruction_code(spec_.program, r, [this](Register operand) { return name(operand); }));
    lane_[r] ? lane_statement(code) : statement(code);
  }

  /// What is computed in the chunks of a stage: all that `roots` want, less what is kept of earlier stages. Loads
  /// first.
  std::vector<Register> wanted(const std::vector<Register>& roots) const {
    std::vector<bool> marked(values_.size());
    for (Register root : roots) marked[root] = true;
    for (std::size_t r = values_.size(); r-- > 0;) {
      if (!marked[r] || is_row(r)) continue;
      if (values_[r].a >= 0) marked[values_[r].a] = true;
      if (values_[r].b >= 0) marked[values_[r].b] = true;
    }
    std::vector<Register> loads, results;
    for (std::size_t r = 0; r < values_.size(); ++r)
      if (marked[r] && is_element(r))
        (values_[r].kind == Kind::kLoad ? loads : results).push_back(static_cast<Register>(r));
    loads.insert(loads.end(), results.begin(), results.end());
    return loads;
  }

  /// Few enough to be read at once, before anything is computed.
  bool loads_fit() const {
    std::int64_t bytes = 0;
    for (std::size_t r = 0; r < values_.size(); ++r)
      if (is_element(r) && values_[r].kind == Kind::kLoad)
        bytes += static_cast<std::int64_t>(size_of(spec_.inputs[values_[r].load].type)) * l_.kept *
                 (lane_[r] ? l_.vector : 1);
    return bytes <= 256;
  }

  void write_elements(const std::vector<Register>& roots, int stage) {
    const std::vector<Register> all = wanted(roots);
    if (l_.kept == 0)
      for (Register r : all) statement(fmt::format("float r{}{};\n", r, lanes(r)));
    for (Register r : all)
      if (l_.kept == 0 || (stages_.first[r] == stage && !(early_ && values_[r].kind == Kind::kLoad)))
        write_value(r, false);
  }

  void write_stage(int stage) {
    std::vector<Register> rows, operands;
    for (std::size_t r = 0; r < values_.size(); ++r) {
      if (!stages_.needed[r]) continue;
      if (is_row(r) && stages_.stage[values_[r].a] == stage) {
        rows.push_back(static_cast<Register>(r));
        operands.push_back(values_[r].a);
      } else if (!is_row(r) && !stages_.along_row[r] && stages_.stage[r] == stage) {
        write_value(static_cast<Register>(r), true);
      }
    }
    if (stage == 0 && stages_.last > 0 && l_.kept != 0 && loads_fit()) {
      early_ = true;
      each_chunk([] {},
                 [&] {
                   for (std::size_t r = 0; r < values_.size(); ++r)
                     if (is_element(r) && values_[r].kind == Kind::kLoad) write_value(static_cast<Register>(r), false);
                 },
                 [] {});
    }
    if (!rows.empty()) write_reductions(rows, operands, stage);
    if (stage == stages_.last) write_outputs();
  }

  void write_reductions(const std::vector<Register>& rows, const std::vector<Register>& operands, int stage) {
    const auto start = [&](const char* prefix) {
      for (Register r : rows) {
        statement(fmt::format("float {}{}[{}];\n", prefix, r, l_.vector));
        lane_statement(fmt::format("{}{}[e] = {};\n", prefix, r, reduction_of(values_[r].instruction).initial));
      }
      close_lanes();
    };
    if (l_.kept == 0) start("s");
    each_chunk([&] { start("a"); },
               [&] {
                 write_elements(operands, stage);
                 for (Register r : rows)
                   lane_statement(
                       joined(reduction_of(values_[r].instruction).add, fmt::format("a{}[e]", r), name(values_[r].a)));
                 close_lanes();
               },
               [&] {
                 if (l_.kept != 0) return;
                 for (Register r : rows)
                   lane_statement(joined(reduction_of(values_[r].instruction).join, fmt::format("s{}[e]", r),
                                         fmt::format("a{}[e]", r)));
                 close_lanes();
               });
    for (Register r : rows) write_row_value(r);
  }

  /// From each thread's parts to the row's value, which all threads of the group get.
  void write_row_value(Register r) {
    const Reduction reduction = reduction_of(values_[r].instruction);
    const std::string parts = fmt::format("{}{}", l_.kept != 0 ? "a" : "s", r);
    statement(fmt::format("float r{}{};\n", r, lanes(r)));
    if (l_.across) {
      lane_statement(fmt::format("{} = {}[e];\n", name(r), parts));
    } else {
      for (int half = l_.vector / 2; half > 0; half /= 2)
        for (int e = 0; e < half; ++e)
          statement(joined(reduction.join, fmt::format("{}[{}]", parts, e), fmt::format("{}[{}]", parts, e + half)));
      statement(fmt::format("r{} = {}[0];\n", r, parts));
    }
    const int side = l_.across ? l_.groups_per_block : 1;
    // Lanes of a warp, then warps of the block.
    for (int distance = std::min(32, l_.threads * side) / 2; distance >= side; distance /= 2)
      each_lane(joined(reduction.join, name(r), fmt::format("__shfl_xor_sync(~0u, {}, {})", name(r), distance)));
    if (const int warps = l_.threads * side / 32; l_.threads > 1 && warps > 1) {
      statement(fmt::format("__shared__ float h{}[{}][{}];\n", r, warps, side * (l_.across ? l_.vector : 1)));
      l_.across ? join_warps_across(r, reduction, warps) : join_warps(r, reduction, warps);
    }
    if (values_[r].instruction == Instruction::kReduceMean)
      each_lane(fmt::format("{} = {} / {};\n", name(r), name(r), literal(static_cast<float>(count_of(l_.row)))));
    close_lanes();
  }

  void each_lane(const std::string& code) { l_.across ? lane_statement(code) : statement(code); }

  /// One row in the block: every warp adds up what all warps have, alike.
  void join_warps(Register r, const Reduction& reduction, int warps) {
    statement(fmt::format("if (threadIdx.x % 32 == 0) h{}[threadIdx.x / 32][0] = r{};\n__syncthreads();\n", r, r));
    statement(
        fmt::format("r{} = threadIdx.x % 32 < {} ? h{}[threadIdx.x % 32][0] : {};\n", r, warps, r, reduction.initial));
    for (int distance = 16; distance > 0; distance /= 2)
      statement(
          joined(reduction.join, fmt::format("r{}", r), fmt::format("__shfl_xor_sync(~0u, r{}, {})", r, distance)));
  }

  /// Groups side by side: the first lanes of each warp hold its parts of all groups.
  void join_warps_across(Register r, const Reduction& reduction, int warps) {
    const std::string place = fmt::format("[g * {} + e]", l_.vector);
    statement("__syncthreads();\n");  // Another reduction may still be read.
    statement(fmt::format("if (threadIdx.x % 32 < {}) {{\n", l_.groups_per_block));
    lane_statement(fmt::format("h{}[threadIdx.x / 32]{} = {};\n", r, place, name(r)));
    statement("}\n__syncthreads();\n");
    lane_statement(fmt::format("{} = h{}[0]{};\n", name(r), r, place));
    statement(fmt::format("#pragma unroll 4\nfor (int w = 1; w < {}; ++w) {{\n", warps));
    lane_statement(joined(reduction.join, name(r), fmt::format("h{}[w]{}", r, place)));
    statement("}\n");
  }

  bool is_per_row(const ProgramOutput& out, std::size_t operand) const {
    if (l_.row.empty()) return false;
    for (const Dimension& d : l_.row)
      if (d.strides[operand] != 0) return false;
    if (stages_.along_row[out.source]) throw InternalError("an output with one value per row has one per element");
    return true;
  }

  void write_outputs() {
    std::vector<std::size_t> once, all;
    std::vector<Register> roots;
    for (std::size_t o = 0; o < spec_.outputs.size(); ++o) {
      (is_per_row(spec_.outputs[o], spec_.inputs.size() + o) ? once : all).push_back(o);
      if (all.size() > roots.size()) roots.push_back(spec_.outputs[o].source);
    }
    if (!once.empty()) {
      statement("if (alive && t == 0) {\n");
      for (std::size_t o : once) write_store(o, false);
      statement("}\n");
    }
    if (all.empty()) return;
    each_chunk([] {},
               [&] {
                 write_elements(roots, stages_.last);
                 statement("if (alive) {\n");
                 for (std::size_t o : all) write_store(o, true);
                 statement("}\n");
               },
               [] {});
  }

  const ProgramSpec& spec_;
  const std::vector<Program::Value>& values_;
  const ProgramStages& stages_;
  const ProgramLayout& l_;
  std::vector<bool> lane_;  ///< Differs from element to element of a vector.
  std::string text_;
  bool in_lanes_ = false;
  bool early_ = false;  ///< All loads have been read.
};

void check_outputs(const ProgramSpec& spec) {
  if (spec.outputs.empty()) throw InternalError("a program of the CUDA backend has no output");
  for (const ProgramOutput& out : spec.outputs)
    if (out.quantization
            ? size_of(out.type) != 1 && (out.type != DataType::kFloat16 || out.quantization->is_integer())
            : out.type != DataType::kFloat32 && out.type != DataType::kFloat16 && out.type != DataType::kBFloat16)
      throw unsupported(
          "[build] backend 'cuda': expected a program that stores float32, float16 or bfloat16, got {}; try the "
          "backend 'cpu'",
          name_of(out.type));
}

std::string program_header(const ProgramSpec& spec, int threads) {
  std::string parameters;
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) parameters += fmt::format("const u8* i{}, ", i);
  for (std::size_t o = 0; o < spec.outputs.size(); ++o) parameters += fmt::format("u8* o{}, ", o);
  parameters.resize(parameters.size() - 2);
  return fmt::format("\nextern \"C\" __global__ void __launch_bounds__({}) kernel({}) {{\nbegin();\n", threads,
                     parameters);
}

}  // namespace

KernelSource program_source(const ProgramSpec& spec) {
  check_outputs(spec);
  const auto [stages, l] = plan_program(spec);
  const int threads = l.threads * l.groups_per_block;
  const char* index = l.wide ? "i64" : "u32";
  std::string text = prelude() + program_header(spec, threads);
  const int group = l.across ? l.groups_per_block : l.threads;
  text += fmt::format("const u32 g = threadIdx.x {} {}u, t = threadIdx.x {} {}u;\n", l.across ? '%' : '/', group,
                      l.across ? '/' : '%', group);
  text += fmt::format("{} q = ({})blockIdx.x * {} + g;\n", index, index, literal(l.groups_per_block, l.wide));
  const std::string groups = literal(l.groups, l.wide);
  const bool exact = l.groups % l.groups_per_block == 0;
  if (l.tail != 0) {
    ProgramLayout rest = l;
    const std::int64_t first = l.groups * l.vector;
    rest.vector = 1;
    for (std::size_t i = 0; i < rest.words.size(); ++i)
      rest.words[i] = static_cast<int>(
          size_of(i < spec.inputs.size() ? spec.inputs[i].type : spec.outputs[i - spec.inputs.size()].type));
    text += fmt::format("constexpr bool alive = true;\nif (q >= {}) {{\nq += {};\nif (q >= {}) return;\n", groups,
                        literal(first - l.groups, l.wide), literal(first + l.tail, l.wide));
    text += BodyWriter(spec, stages, rest).write() + "return;\n}\n";
  } else if (exact) {
    text += "constexpr bool alive = true;\n";
  } else if (l.threads == 1 || (!l.across && l.threads == 32)) {
    text += fmt::format("if (q >= {}) return;\nconstexpr bool alive = true;\n", groups);
  } else {
    // All threads take part in what the block does together.
    text += fmt::format("const bool alive = q < {};\nif (!alive) q = {};\n", groups, literal(l.groups - 1, l.wide));
  }
  text += BodyWriter(spec, stages, l).write() + "}\n";
  KernelSource source{std::move(text)};
  source.grid[0] = static_cast<unsigned>((l.groups + l.tail + l.groups_per_block - 1) / l.groups_per_block);
  source.block = static_cast<unsigned>(threads);
  return source;
}

}  // namespace ulpscope::cuda
