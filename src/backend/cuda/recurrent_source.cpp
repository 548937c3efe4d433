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
  const char* cell = "";              ///< Statements that compute; sum[o][g]: all that is added up for a gate.
  bool last = true;                   ///< Gives h(t).
};

constexpr const char* kLstm = R"(
    const float in = sigmoid(limited(sum[o][0] + peep(0, state)));
    const float forget = INPUT_FORGET ? 1.0f - in : sigmoid(limited(sum[o][2] + peep(2, state)));
    const float c = forget * state + in * tanhf(limited(sum[o][3]));
    cell[at] = c;
    const float value = sigmoid(limited(sum[o][1] + peep(1, c))) * tanhf(c);
)";
constexpr const char* kRnn = R"(
    const float value = RELU ? do_relu(limited(sum[o][0])) : tanhf(limited(sum[o][0]));
)";
constexpr const char* kLinearGru = R"(
    const float update = sigmoid(limited(sum[o][0])), reset = sigmoid(limited(sum[o][1]));
    const float candidate = tanhf(limited(other + sum[o][2] * reset));
    const float value = (1.0f - update) * candidate + update * state;
)";
constexpr const char* kGruGates = R"(
    gate[at] = sigmoid(limited(sum[o][0]));
    scaled[at] = sigmoid(limited(sum[o][1])) * state;
)";
constexpr const char* kGruCandidate = R"(
    const float value = (1.0f - other) * tanhf(limited(sum[o][0])) + other * state;
)";

std::vector<Part> parts_of(const ops::RecurrentForm& form) {
  switch (form.cell) {
    case RecurrentCell::kLstm:
      return {{0, 4, "cell[at]", "0.0f", kLstm}};
    case RecurrentCell::kRnn:
      return {{0, 1, "0.0f", "0.0f", kRnn}};
    case RecurrentCell::kGru:
      if (form.linear_before_reset) return {{0, 3, "hidden[at]", "", kLinearGru}};
      return {{0, 2, "hidden[at]", "0.0f", kGruGates, false}, {2, 1, "before[at]", "gate[at]", kGruCandidate}};
  }
  return {};
}

constexpr const char* kIndices = R"(
  constexpr int VECTOR = 16 / sizeof(Weight), CHUNKS = WIDTH / VECTOR;
  constexpr int HELD = ROWS > LANES ? ROWS / LANES : 1, SHARE = ROWS < LANES ? LANES / ROWS : 1;
  const int lane = threadIdx.x % LANES, place = blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
  const int unit = place < HIDDEN ? place : HIDDEN - 1, direction = blockIdx.y;  // Beyond the last: for nothing.
  const int first = blockIdx.z * ROWS, own = first + lane / SHARE * HELD;  // Sequences, and those of this lane.
  auto sequence = [&](int i) -> i64 { return i < BATCH ? i : BATCH - 1; };
  auto state_at = [&](int i) -> i64 { return (direction * (i64)BATCH + sequence(i)) * WIDTH; };
  auto limited = [&](float a) -> float { return CLIP > 0.0f ? clamp(a, -CLIP, CLIP) : a; };
)";

// A step takes little longer than a load, so that loads are waited for all at once: none may move behind __syncwarp(),
// and a single block per multiprocessor leaves the compiler the registers for that.
constexpr const char* kProducts = R"(
  float added[HELD][GATES], states[HELD], others[HELD];
#pragma unroll
  for (int o = 0; o < HELD; ++o) {
    const float* const from_input = x + sequence(own + o) * SUM_STRIDE + unit;
    const i64 at = state_at(own + o) + unit;
#pragma unroll
    for (int g = 0; g < GATES; ++g) added[o][g] = added_of(from_input, g);
    states[o] = state_of(at);
    others[o] = other_of(from_input, at);
  }
  const u8* const weights = r_ + ((direction * (i64)ALL + FIRST) * HIDDEN + unit) * (WIDTH * (i64)sizeof(Weight));
  // What is added to the products goes into the sums of one lane: at once where it is waited for with all else.
  constexpr bool ONCE = CHUNKS <= LANES * PARTS;
  auto first_sum = [&](int i, int g) -> float {
    return lane == i / HELD * SHARE ? added[i % HELD][g] + bias[g] : 0.0f;
  };
  float sum[ROWS][GATES];
#pragma unroll
  for (int i = 0; i < ROWS; ++i)
#pragma unroll
    for (int g = 0; g < GATES; ++g) sum[i][g] = ONCE ? first_sum(i, g) : 0.0f;
  for (int begin = lane; begin < CHUNKS + lane; begin += LANES * PARTS) {
    auto there = [&](int p) -> bool { return CHUNKS % (LANES * PARTS) == 0 || begin + p * LANES < CHUNKS; };
    u32 words[PARTS][GATES][4];
    float h[PARTS][ROWS][VECTOR];
#pragma unroll
    for (int p = 0; p < PARTS; ++p)
      if (there(p)) {
        const int chunk = begin + p * LANES;
#pragma unroll
        for (int g = 0; g < GATES; ++g)
          fetch<16, 16>(weights + g * (HIDDEN * (i64)WIDTH * (i64)sizeof(Weight)) + chunk * 16, words[p][g]);
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
          load<float, VECTOR, 16>((const u8*)(hidden + state_at(first + i) + chunk * VECTOR), h[p][i]);
      }
    __syncwarp();
#pragma unroll
    for (int p = 0; p < PARTS; ++p)
      if (there(p))
#pragma unroll
        for (int e = 0; e < VECTOR; ++e)
#pragma unroll
          for (int g = 0; g < GATES; ++g)
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
              sum[i][g] = fmaf(Element<Weight>::value(pick<sizeof(Weight)>(words[p][g], e)), h[p][i][e], sum[i][g]);
  }
  if (!ONCE)
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
      for (int g = 0; g < GATES; ++g) sum[i][g] += first_sum(i, g);
  // Its own value again, so that the compiler does not load it just before the end, when everything would wait for it.
#pragma unroll
  for (int o = 0; o < HELD; ++o) states[o] = __shfl_xor_sync(~0u, states[o], 0);
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
)";

/// How the work is split. Units and sequences are independent of each other.
struct Split {
  std::int64_t rows = 1;   ///< Sequences whose sums a thread adds up: what it reads of R is read for all of them.
  std::int64_t lanes = 1;  ///< Per unit; a power of 2.
  std::int64_t parts = 1;  ///< Words of R per gate that a thread waits for at once, with the states they meet.
  std::int64_t threads = 32;
};

Split split_of(const RecurrentStepSpec& spec) {
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
  split.parts = std::min((chunks + split.lanes - 1) / split.lanes, std::max<std::int64_t>(1, 4 / split.rows));
  split.threads = 256;
  while (split.threads > 64 && units * split.lanes < 128 * split.threads) split.threads /= 2;
  return split;
}

/// The arguments of a kernel, and statements that name what they point to.
struct Arguments {
  std::string list, names;

  void add(const char* type, const std::string& name) {
    const bool writes = std::string_view(type) == "float";
    list += fmt::format("{}{}u8* {}_", list.empty() ? "" : ", ", writes ? "" : "const ", name);
    names += fmt::format("  {}* const {} = ({}*){}_;\n", type, name, type, name);
  }
  void reads(const std::string& name) { add("const float", name); }
  void writes(const std::string& name) { add("float", name); }
};

/// A value that the kernel has once for each of the directions.
std::string of_direction(const RecurrentStepSpec& spec, const char* name) {
  return spec.form.sizes.directions == 2 ? fmt::format("(direction == 0 ? {}0_ : {}1_)", name, name)
                                         : fmt::format("{}0_", name);
}

/// Biases, and functions that name what a step reads beside R and the state. The candidate of a linear GRU adds Rb
/// before its product is scaled, W x and Wb behind it.
std::string parameter_code(const RecurrentStepSpec& spec, const Part& part) {
  const bool linear = spec.form.linear_before_reset;
  const auto bias = [&](std::int64_t row) {
    return spec.biased ? fmt::format("biases[(direction * (i64)ALL + {}) * HIDDEN + unit]", row) : std::string("0.0f");
  };
  std::string parameters = fmt::format("  float bias[{}];\n", part.gates);
  for (std::int64_t g = 0; g < part.gates; ++g)
    parameters += fmt::format(
        "  bias[{}] = {};\n", g,
        linear && spec.biased && g == 2 ? "candidate_biases[direction * (i64)HIDDEN + unit]" : bias(part.first + g));
  const std::string added = "from_input[(FIRST + g) * HIDDEN]";
  parameters += fmt::format(
      "  const float* const x = (const float*){};\n"
      "  auto added_of = [&](const float* from_input, int g) -> float {{ return {}; }};\n"
      "  auto state_of = [&](i64 at) -> float {{ return {}; }};\n"
      "  auto other_of = [&](const float* from_input, i64 at) -> float {{ return {}; }};\n",
      of_direction(spec, "x"), linear ? "g < 2 ? " + added + " : 0.0f" : added, part.state,
      linear ? "from_input[2 * HIDDEN] + " + bias(2) : part.other);
  if (spec.form.cell == RecurrentCell::kLstm)
    parameters += fmt::format("  auto peep = [&](int g, float c) -> float {{ return {}; }};\n",
                              spec.peepholes ? "peepholes[(direction * 3ll + g) * HIDDEN + unit] * c" : "0.0f");
  return parameters;
}

/// One step of a layer, or one part of it: a group of lanes adds up the products of a unit's gates for some rows of the
/// batch. Steps are kernels of their own, since the state of all units has to be there before the next one.
KernelSource source_of(const RecurrentStepSpec& spec, const Part& part) {
  const ops::RecurrentForm& form = spec.form;
  const ops::RecurrentSizes& s = form.sizes;
  const Split split = split_of(spec);
  const bool is_lstm = form.cell == RecurrentCell::kLstm, linear = form.linear_before_reset, two = s.directions == 2;

  Arguments arguments;
  arguments.reads("x0");
  if (two) arguments.reads("x1");
  arguments.reads("r");
  arguments.reads("hidden");
  if (spec.biased) arguments.reads("biases");
  if (spec.biased && linear) arguments.reads("candidate_biases");
  if (spec.peepholes) arguments.reads("peepholes");
  if (part.first > 0)
    for (const char* name : {"before", "gate"}) arguments.reads(name);
  if (part.last)
    arguments.writes("next");
  else
    for (const char* name : {"gate", "scaled"}) arguments.writes(name);
  if (is_lstm) arguments.writes("cell");
  std::string end = part.last ? "    next[at] = value;\n" : "";
  if (part.last && spec.y) {
    arguments.writes("y0");
    if (two) arguments.writes("y1");
    end += fmt::format("    store_one<{}>({} + (sequence(own + o) * {}ll + unit) * {}ll, {});\n",
                       type_code(spec.y->type), of_direction(spec, "y"), spec.y->stride, size_of(spec.y->type),
                       rounded_code(spec.y->rounding, "value", spec.y->type));
  }

  KernelSource result;
  result.source = prelude() +
                  fmt::format(
                      "\nextern \"C\" __global__ __launch_bounds__({}, 1) void kernel({}) {{\n  begin();\n"
                      "  typedef {} Weight;\n"
                      "  constexpr int HIDDEN = {}, WIDTH = {}, BATCH = {}, ALL = {}, FIRST = {}, GATES = {};\n"
                      "  constexpr int ROWS = {}, LANES = {}, PARTS = {}, THREADS = {};\n"
                      "  constexpr i64 SUM_STRIDE = {}ll;\n"
                      "  constexpr float CLIP = {};\n"
                      "  constexpr bool RELU = {}, INPUT_FORGET = {};\n",
                      split.threads, arguments.list, type_code(spec.weights), s.hidden, recurrent_width(s.hidden),
                      s.batch, form.gates, part.first, part.gates, split.rows, split.lanes, split.parts, split.threads,
                      spec.sum_stride, literal(form.clip), form.relu, form.input_forget) +
                  kIndices + arguments.names + parameter_code(spec, part) + kProducts + part.cell + end + "  }\n}\n";
  const std::int64_t units = split.threads / split.lanes;
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
