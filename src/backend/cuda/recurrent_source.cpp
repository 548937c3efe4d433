// A few lanes have a unit of the hidden state: each adds up the products of its part of k for all gates and some
// sequences, the lanes exchange sums so that each has those of one sequence, and compute what follows from these.
#include "backend/cuda/recurrent_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "backend/cuda/element_source.h"

namespace ulpscope::cuda {
namespace {

using ops::RecurrentCell;

/// Rows of R that a kernel multiplies, and what it makes of the sums.
struct Part {
  std::int64_t first = 0, gates = 1;  ///< In the operator's order.
  const char* state = "0.0f";         ///< An element that is there before the sums, and
  const char* other = "0.0f";         ///< another one.
  const char* cell = "";              ///< Statements that compute; total(g): all that is added up for a gate.
  bool last = true;                   ///< Gives h(t).
};

constexpr const char* kLstm = R"(
    const float in = sigmoid(limited(total(0) + peep(0, state)));
    const float forget = INPUT_FORGET ? 1.0f - in : sigmoid(limited(total(2) + peep(2, state)));
    const float c = forget * state + in * tanhf(limited(total(3)));
    cell[at] = c;
    const float value = sigmoid(limited(total(1) + peep(1, c))) * tanhf(c);
)";
constexpr const char* kRnn = R"(
    const float value = RELU ? do_relu(limited(total(0))) : tanhf(limited(total(0)));
)";
constexpr const char* kLinearGru = R"(
    const float update = sigmoid(limited(total(0))), reset = sigmoid(limited(total(1)));
    const float candidate = tanhf(limited(from_input[o][2] + (sum[o][2] + candidate_bias) * reset + bias[2]));
    const float value = (1.0f - update) * candidate + update * state;
)";
constexpr const char* kGruGates = R"(
    gate[at] = sigmoid(limited(total(0)));
    scaled[at] = sigmoid(limited(total(1))) * state;
)";
constexpr const char* kGruCandidate = R"(
    const float value = (1.0f - other) * tanhf(limited(total(0))) + other * state;
)";

std::vector<Part> parts_of(const ops::RecurrentForm& form) {
  switch (form.cell) {
    case RecurrentCell::kLstm:
      return {{0, 4, "cell[at]", "0.0f", kLstm}};
    case RecurrentCell::kRnn:
      return {{0, 1, "0.0f", "0.0f", kRnn}};
    case RecurrentCell::kGru:
      if (form.linear_before_reset) return {{0, 3, "hidden[at]", "0.0f", kLinearGru}};
      return {{0, 2, "hidden[at]", "0.0f", kGruGates, false}, {2, 1, "before[at]", "gate[at]", kGruCandidate}};
  }
  return {};
}

constexpr const char* kSums = R"(
  constexpr int VECTOR = 16 / sizeof(Weight), CHUNKS = WIDTH / VECTOR;
  constexpr int HELD = ROWS > LANES ? ROWS / LANES : 1, SHARE = ROWS < LANES ? LANES / ROWS : 1;
  const int lane = threadIdx.x % LANES, place = blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
  const int unit = place < HIDDEN ? place : HIDDEN - 1, direction = blockIdx.y;  // Beyond the last: for nothing.
  const int first = blockIdx.z * ROWS, own = first + lane / SHARE * HELD;  // Sequences, and those of this lane.
  auto sequence = [&](int i) -> i64 { return i < BATCH ? i : BATCH - 1; };
  auto state_at = [&](int i) -> i64 { return (direction * (i64)BATCH + sequence(i)) * WIDTH; };
  auto limited = [&](float a) -> float { return CLIP > 0.0f ? clamp(a, -CLIP, CLIP) : a; };
)";

// Loads that wait for nothing come before the products.
constexpr const char* kProducts = R"(
  float from_input[HELD][GATES], states[HELD], others[HELD];
#pragma unroll
  for (int o = 0; o < HELD; ++o) {
#pragma unroll
    for (int g = 0; g < GATES; ++g) from_input[o][g] = x[sequence(own + o) * SUM_STRIDE + (FIRST + g) * HIDDEN + unit];
    const i64 at = state_at(own + o) + unit;
    states[o] = state_of(at);
    others[o] = other_of(at);
  }
  const u8* const r = r_ + ((direction * (i64)ALL + FIRST) * HIDDEN + unit) * (WIDTH * (i64)sizeof(Weight));
  float sum[ROWS][GATES] = {};
  for (int begin = lane; begin < CHUNKS + lane; begin += LANES * PARTS) {
    auto there = [&](int p) -> bool { return CHUNKS % (LANES * PARTS) == 0 || begin + p * LANES < CHUNKS; };
    u32 words[PARTS][GATES][4];
#pragma unroll
    for (int p = 0; p < PARTS; ++p)
      if (there(p))
#pragma unroll
        for (int g = 0; g < GATES; ++g)
          fetch<16, 16>(r + g * (HIDDEN * (i64)WIDTH * (i64)sizeof(Weight)) + (begin + p * LANES) * 16, words[p][g]);
#pragma unroll
    for (int p = 0; p < PARTS; ++p)
      if (there(p))
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
          float h[VECTOR];
          load<float, VECTOR, 16>((const u8*)(hidden + state_at(first + i) + (begin + p * LANES) * VECTOR), h);
#pragma unroll
          for (int e = 0; e < VECTOR; ++e)
#pragma unroll
            for (int g = 0; g < GATES; ++g)
              sum[i][g] = fmaf(Element<Weight>::value(pick<sizeof(Weight)>(words[p][g], e)), h[e], sum[i][g]);
        }
  }
  // Halves the sequences of a lane while it has several.
  int count = ROWS;
#pragma unroll
  for (int distance = LANES / 2; distance > 0; distance /= 2) {
    const bool several = count > 1, upper = (lane & distance) != 0;
    if (several) count /= 2;
#pragma unroll
    for (int i = 0; i < (ROWS + 1) / 2; ++i)
      if (i < count)
#pragma unroll
        for (int g = 0; g < GATES; ++g) {
          const float low = sum[i][g], high = sum[(i + count) % ROWS][g];
          sum[i][g] = several && upper ? high : low;
          sum[i][g] += __shfl_xor_sync(~0u, several && !upper ? high : low, distance);
        }
  }
#pragma unroll
  for (int o = 0; o < HELD; ++o) {
    if (place >= HIDDEN || lane % SHARE != 0 || own + o >= BATCH) continue;
    const i64 at = state_at(own + o) + unit;
    const float state = states[o], other = others[o];
    auto total = [&](int g) -> float { return from_input[o][g] + sum[o][g] + bias[g]; };
)";

/// How the work is split. Units and sequences are independent of each other.
struct Split {
  std::int64_t rows = 1;   ///< Sequences whose sums a thread adds up: what it reads of R is read for all of them.
  std::int64_t lanes = 1;  ///< Per unit; a power of 2.
  std::int64_t parts = 1;  ///< Words of R per gate that a thread waits for at once.
  std::int64_t threads = 32;
};

Split split_of(const RecurrentStepSpec& spec, std::int64_t gates) {
  const ops::RecurrentSizes& s = spec.form.sizes;
  constexpr std::int64_t kBusyThreads = 128 * 8 * 32;  // Eight warps for each of 128 multiprocessors.
  const auto chunks = recurrent_width(s.hidden) * static_cast<std::int64_t>(size_of(spec.weights)) / 16;
  Split split;
  split.rows = std::min<std::int64_t>(8, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(s.batch))));
  const std::int64_t units = s.hidden * s.directions * ((s.batch + split.rows - 1) / split.rows);
  split.lanes =
      std::min<std::int64_t>(32, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(chunks))));
  // Fewer lanes read less of the state and exchange less, where there is enough to do.
  while (split.rows > 1 && split.lanes > 8 && units * split.lanes / 2 >= kBusyThreads) split.lanes /= 2;
  split.parts = std::min((chunks + split.lanes - 1) / split.lanes,
                         split.rows == 1 ? (gates > 2 ? std::int64_t{4} : std::int64_t{8}) : std::int64_t{2});
  split.threads = 256;
  while (split.threads > 64 && units * split.lanes < 128 * split.threads) split.threads /= 2;
  return split;
}

KernelSource source_of(const RecurrentStepSpec& spec, const Part& part) {
  const ops::RecurrentForm& form = spec.form;
  const ops::RecurrentSizes& s = form.sizes;
  const Split split = split_of(spec, part.gates);
  const bool is_lstm = form.cell == RecurrentCell::kLstm, two = s.directions == 2, candidate = part.first > 0;
  std::string arguments;
  const auto reads = [&](const std::string& name) {
    arguments += fmt::format("{}const u8* __restrict__ {}", arguments.empty() ? "" : ", ", name);
  };
  const auto writes = [&](const std::string& name) { arguments += fmt::format(", u8* __restrict__ {}", name); };
  std::string names;
  const auto states = [&](const char* type, const std::string& name) {
    names += fmt::format("  {}* const {} = ({}*){}_;\n", type, name, type, name);
  };
  reads("x0_");
  if (two) reads("x1_");
  reads("r_");
  reads("hidden_");
  states("const float", "hidden");
  std::string bias = fmt::format("  float bias[{}] = {{}};\n", part.gates);
  if (spec.biased) {
    reads("bias_");
    for (std::int64_t g = 0; g < part.gates; ++g)
      bias += fmt::format("  bias[{}] = ((const float*)bias_)[(direction * {}ll + {}) * HIDDEN + unit];\n", g,
                          form.gates, part.first + g);
  }
  if (form.linear_before_reset) {
    if (spec.biased) reads("candidate_bias_");
    bias += fmt::format("  const float candidate_bias = {};\n",
                        spec.biased ? "((const float*)candidate_bias_)[direction * (i64)HIDDEN + unit]" : "0.0f");
  }
  if (is_lstm) {
    if (spec.peepholes) {
      reads("peephole_");
      bias += "  float peephole[3];\n#pragma unroll\n";
      bias +=
          "  for (int g = 0; g < 3; ++g) peephole[g] = ((const float*)peephole_)[(direction * 3ll + g) * HIDDEN + "
          "unit];\n";
    }
    bias += fmt::format("  auto peep = [&](int g, float c) -> float {{ return {}; }};\n",
                        spec.peepholes ? "peephole[g] * c" : "0.0f");
  }
  if (candidate) {
    for (const char* name : {"before", "gate"}) {
      reads(fmt::format("{}_", name));
      states("const float", name);
    }
  }
  if (part.last) {
    writes("next_");
    states("float", "next");
    if (is_lstm) writes("cell_"), states("float", "cell");
  } else {
    for (const char* name : {"gate", "scaled"}) {
      writes(fmt::format("{}_", name));
      states("float", name);
    }
  }
  std::string end = part.last ? "    next[at] = value;\n" : "";
  if (part.last && spec.y) {
    writes("y0_");
    if (two) writes("y1_");
    end += fmt::format("    store_one<{}>({} + (sequence(own + o) * {}ll + unit) * {}ll, {});\n",
                       type_code(spec.y->type), two ? "(direction == 0 ? y0_ : y1_)" : "y0_", spec.y->stride,
                       size_of(spec.y->type), rounded_code(spec.y->rounding, "value", spec.y->type));
  }

  std::string text = fmt::format(
      "\nextern \"C\" __global__ __launch_bounds__({}) void kernel({}) {{\n"
      "  typedef {} Weight;\n"
      "  constexpr int HIDDEN = {}, WIDTH = {}, BATCH = {}, ALL = {}, FIRST = {}, GATES = {};\n"
      "  constexpr int ROWS = {}, LANES = {}, PARTS = {}, THREADS = {};\n"
      "  constexpr i64 SUM_STRIDE = {}ll;\n"
      "  constexpr float CLIP = {};\n"
      "  constexpr bool RELU = {}, INPUT_FORGET = {};\n",
      split.threads, arguments, type_code(spec.weights), s.hidden, recurrent_width(s.hidden), s.batch, form.gates,
      part.first, part.gates, split.rows, split.lanes, split.parts, split.threads, spec.sum_stride, literal(form.clip),
      form.relu, form.input_forget);
  text += kSums + names + bias;
  text += fmt::format(
      "  const float* const x = (const float*){};\n"
      "  auto state_of = [&](i64 at) -> float {{ return {}; }};\n"
      "  auto other_of = [&](i64 at) -> float {{ return {}; }};\n",
      two ? "(direction == 0 ? x0_ : x1_)" : "x0_", part.state, part.other);
  text += kProducts;
  text += part.cell + end + "  }\n}\n";

  const std::int64_t units = split.threads / split.lanes;
  KernelSource result;
  result.source = prelude() + text;
  result.grid = {static_cast<unsigned>((s.hidden + units - 1) / units), static_cast<unsigned>(s.directions),
                 static_cast<unsigned>((s.batch + split.rows - 1) / split.rows)};
  result.block = static_cast<unsigned>(split.threads);
  return result;
}

}  // namespace

std::int64_t recurrent_width(std::int64_t hidden) { return (hidden + 7) / 8 * 8; }

std::vector<KernelSource> recurrent_sources(const RecurrentStepSpec& spec) {
  std::vector<KernelSource> sources;
  for (const Part& part : parts_of(spec.form)) sources.push_back(source_of(spec, part));
  return sources;
}

}  // namespace ulpscope::cuda
