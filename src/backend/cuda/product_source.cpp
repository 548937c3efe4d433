// One warp group loads, two multiply: while one of them has the tensor cores, the other one runs the program on the
// sums that it has in registers. Operands come through the tensor memory accelerator in boxes of 128 bytes, whose words
// it swaps so that wgmma reads them without conflicts of banks (PTX ISA 8.0, "Matrix multiply-accumulate operation
// using wgmma", "Tensor copy").
#include "backend/cuda/product_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "backend/cuda/dimensions.h"
#include "backend/cuda/eight_code.h"
#include "backend/cuda/warp_groups.h"
#include "core/division.h"

namespace ulpscope::cuda {
namespace {

constexpr int kBoxBytes = 128;          ///< Of a row.
constexpr int kMostShared = 227 << 10;  ///< Of a block.
constexpr int kMostStages = 8;

constexpr const char* kProductFunctions = R"(
// Tells the barrier at that place of a block of the cluster.
DEVICE void arrive(u32 barrier, u32 block) {
  asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
               "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" :: "r"(barrier), "r"(block) : "memory");
}
// To the same place of all blocks of the cluster, each of which is told.
DEVICE void load_box_for_all(u32 to, const TensorMap* map, u32 barrier, int column, int row) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
               "[%1, {%4, %5}], [%2], %3;"
               :: "r"(to), "l"(map), "r"(barrier), "h"((u16)((1 << CLUSTER) - 1)), "r"(column), "r"(row) : "memory");
}
DEVICE u32 block_of_cluster() { u32 x; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(x)); return x; }
DEVICE void meet_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
)";

constexpr const char* kProductKernel = R"(
  extern __shared__ u8 memory[];
  constexpr int A_BYTES = ROWS * 128, B_BYTES = COLUMNS * 128, STAGE = A_BYTES + B_BYTES;
  constexpr int STEPS = (K + DEPTH - 1) / DEPTH, COLUMN_TILES = (N + COLUMNS - 1) / COLUMNS;
  constexpr int ROW_TILES = (M + ROWS * CLUSTER - 1) / (ROWS * CLUSTER), TILES = COLUMN_TILES * ROW_TILES;
  constexpr int RING = STAGES / RINGS;
  const u32 first = (shared_address(memory) + 1023) & ~1023u;
  const u32 full = first + STAGES * STAGE, empty = full + STAGES * 8;
  float* const staging = (float*)(memory + (empty + STAGES * 8 - shared_address(memory)));
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32;
  const u32 block = block_of_cluster();
  const int cluster = blockIdx.x / CLUSTER, clusters = gridDim.x / CLUSTER;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      init_barrier(full + s * 8, 1);
      init_barrier(empty + s * 8, 4 * CLUSTER);  // The warps of the group that reads it, in every block.
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  meet_cluster();
  begin();
  if (group == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    const int ring = threadIdx.x / 32 - 8, last = ring * RING + RING;
    if (ring < RINGS && lane == 0) {
      int stage = last - RING;
      u32 phase = 0;
      for (int tile = cluster + ring * clusters; tile < TILES; tile += RINGS * clusters) {
        const int row = (tile % ROW_TILES * CLUSTER + block) * ROWS, column = tile / ROW_TILES * COLUMNS;
        for (int step = 0; step < STEPS; ++step) {
          const u32 to = first + stage * STAGE, barrier = full + stage * 8;
          wait(empty + stage * 8, phase ^ 1);
          expect(barrier, STAGE);
          load_box(to, &map_a, barrier, step * DEPTH, row);
          if (CLUSTER == 1)
            load_box(to + A_BYTES, &map_b, barrier, step * DEPTH, column);
          else
            load_box_for_all(to + A_BYTES + block * (B_BYTES / CLUSTER), &map_b, barrier, step * DEPTH,
                             column + block * (COLUMNS / CLUSTER));
          if (++stage == last) stage = last - RING, phase ^= 1;
        }
      }
    }
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int warp = threadIdx.x / 32 % 4;
    float* const own = staging + threadIdx.x / 32 * (16 * PITCH);
    SUM sums[ROWS / 64][COLUMNS / 2];
    int turn = 0;
    for (int tile = cluster; tile < TILES; tile += clusters, ++turn) {
      if (turn % 2 != group) continue;
      const long long done = (long long)(turn / RINGS) * STEPS;
      const int last = group % RINGS * RING + RING;
      int stage = last - RING + (int)(done % RING);
      u32 phase = (u32)(done / RING & 1);
MULTIPLY      const int first_row = (tile % ROW_TILES * CLUSTER + block) * ROWS + warp * 16;
      const int first_column = tile / ROW_TILES * COLUMNS;
      constexpr int PARTS = COLUMNS / PART, EIGHTS = PART / 8;
      // The program stands here once, however many parts there are: instructions have a cache, too.
#pragma unroll 1
      for (int part = 0; part < ROWS / 64 * PARTS; ++part) {
        __syncwarp();
#pragma unroll
        for (int p = 0; p < ROWS / 64 * PARTS; ++p)
          if (p == part)
#pragma unroll
            for (int j = 0; j < EIGHTS; ++j) {
              // Words of 16 bytes change places in every other 32 columns, so that eight lanes read eight banks.
              float* const to = own + (lane >> 2) * PITCH + j * 8 + ((lane & 3) * 2 ^ (j & 4));
              const SUM* const from = sums[p / PARTS] + (p % PARTS * EIGHTS + j) * 4;
              *(float2*)to = make_float2((float)from[0], (float)from[1]);
              *(float2*)(to + 8 * PITCH) = make_float2((float)from[2], (float)from[3]);
            }
        __syncwarp();
        const int eighth = lane % EIGHTS, column = first_column + part % PARTS * PART + eighth * 8;
        if (column < N) {
LOADS
          // What is read of all rows is asked for before any of it is waited for.
          constexpr int APART = 32 / EIGHTS;
          float all[16 / APART][8];
#pragma unroll
          for (int t = 0; t < 16 / APART; ++t) {
            const float* const from = own + (lane / EIGHTS + t * APART) * PITCH + eighth * 8;
            const float4 low = *(const float4*)(from + (eighth & 4)), high = *(const float4*)(from + ((eighth & 4) ^ 4));
            all[t][0] = low.x, all[t][1] = low.y, all[t][2] = low.z, all[t][3] = low.w;
            all[t][4] = high.x, all[t][5] = high.y, all[t][6] = high.z, all[t][7] = high.w;
          }
#pragma unroll
          for (int t = 0; t < 16 / APART; ++t) {
            const u32 own_row = first_row + part / PARTS * 64 + lane / EIGHTS + t * APART;
            const u32 row = own_row < M ? own_row : M - 1;
            const float (&given)[8] = all[t];
COMPUTE
            if (own_row < M) {
STORE
            }
          }
        }
      }
    }
  }
  // No block ends while another one of its cluster may write to it.
  meet_cluster();
}
)";

/// All products of a tile one after the other, and one group multiplies at a time.
constexpr const char* kContinuous = R"(
      if (turn > 0) asm volatile("bar.sync %0, 256;" :: "r"(1 + group) : "memory");
      u32 read = 0;
      for (int step = 0; step < STEPS; ++step) {
        wait(full + stage * 8, phase);
        const u64 a = box_at(first + stage * STAGE), b = box_at(first + stage * STAGE + A_BYTES);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int h = 0; h < ROWS / 64; ++h) multiply(sums[h], a + h * 512 + i * 2, b + i * 2, step + i > 0);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        // The products of the step before are done: its operands may be replaced.
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (step > 0 && lane < CLUSTER) arrive(read, lane);
        read = empty + stage * 8;
        if (++stage == last) stage = last - RING, phase ^= 1;
      }
      if (tile + clusters < TILES) asm volatile("bar.arrive %0, 256;" :: "r"(2 - group) : "memory");
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
      if (lane < CLUSTER) arrive(read, lane);
)";

/// The sums of the 128 products of each step are added to others in float32. Both groups multiply, each on stages of
/// its own: while one adds, the other one has the tensor cores.
constexpr const char* kRestarting = R"(
#pragma unroll
      for (int h = 0; h < ROWS / 64; ++h)
#pragma unroll
        for (int j = 0; j < COLUMNS / 2; ++j) sums[h][j] = 0;
      for (int step = 0; step < STEPS; ++step) {
        wait(full + stage * 8, phase);
        const u64 a = box_at(first + stage * STAGE), b = box_at(first + stage * STAGE + A_BYTES);
#pragma unroll
        for (int h = 0; h < ROWS / 64; ++h) {
          float part[COLUMNS / 2];
          asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
          for (int i = 0; i < 4; ++i) multiply(part, a + h * 512 + i * 2, b + i * 2, i > 0);
          asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
          await_products(part);
          if (h == ROWS / 64 - 1 && lane < CLUSTER) arrive(empty + stage * 8, lane);
#pragma unroll
          for (int j = 0; j < COLUMNS / 2; ++j) sums[h][j] += part[j];
        }
        if (++stage == last) stage = last - RING, phase ^= 1;
      }
)";

/// Columns of k in a box.
int depth_of(const MatrixProductSpec& product) { return kBoxBytes / static_cast<int>(size_of(product.operands)); }

/// Sums of fp8 as cuBLASLt's without fast accumulation are; the CPU's are in formats/accumulator.h.
bool restarts(const MatrixProductSpec& product) { return product.operands == DataType::kFloat8E4M3 && !product.fast; }

/// Columns that a warp stages at a time; floats from row to row of these.
int part_of(const ProductTile& tile) { return std::gcd(tile.columns, 64); }
int pitch_of(const ProductTile& tile) { return part_of(tile) + 8; }

/// Groups that have stages of their own.
int rings_of(const FusedProductSpec& spec) { return restarts(spec.product) ? 2 : 1; }

int stages_of(const ProductTile& tile, int rings) {
  const int staging = 8 * 16 * pitch_of(tile) * 4, stage = (tile.rows + tile.columns) * kBoxBytes;
  return std::min(kMostStages, (kMostShared - 1024 - staging) / (stage + 16)) / rings * rings;
}

/// A guess at cycles, by which the best of all tiles was among the first five in 40 of 43 products of transformers on
/// an H200: the products of all tiles of a block and the last one's program, or the tiles of one group.
double cost_of(const FusedProductSpec& spec, const ProductTile& tile, int processors) {
  const MatrixProductSpec& p = spec.product;
  const std::int64_t row_tiles = divided_up(p.m, tile.rows * tile.cluster) * tile.cluster;
  const std::int64_t blocks = std::max(1, processors / tile.cluster) * tile.cluster;
  const auto rounds = static_cast<double>(divided_up(row_tiles * divided_up(p.n, tile.columns), blocks));
  const double elements = static_cast<double>(tile.rows) * tile.columns;
  const double loaded = tile.rows + tile.columns / static_cast<double>(tile.cluster);
  const double step = std::max({elements / 32, loaded * 2.5, 100.0}) * (tile.cluster > 1 ? 1.3 : 1);
  const double product = static_cast<double>(divided_up(p.k, depth_of(p))) * step, program = elements / 5;
  return std::max(rounds * product + program, std::ceil(rounds / 2) * (product + program));
}

}  // namespace

std::string ProductTile::text() const {
  return fmt::format("{}x{}{}", rows, columns, cluster > 1 ? fmt::format(" clusters of {}", cluster) : "");
}

bool has_fused_source(const FusedProductSpec& spec) {
  constexpr std::int64_t kFewRows = 32;
  const MatrixProductSpec& p = spec.product;
  const std::size_t rank = spec.program.domain.size();
  constexpr std::array kTypes{DataType::kFloat16, DataType::kBFloat16, DataType::kFloat8E4M3, DataType::kInt8};
  if (std::ranges::find(kTypes, p.operands) == kTypes.end()) return false;
  if (p.batch != 1 || p.m < kFewRows || p.k < depth_of(p) || rank < 2 || spec.program.domain[rank - 1] % 8 != 0)
    return false;
  // Boxes begin at words of 16 bytes; coordinates and indices of rows are 32-bit integers.
  if (p.alignment < 16 || p.a.column_stride != 1 || p.b.row_stride != 1) return false;
  const auto boxed = [&](std::int64_t stride) { return stride > 0 && stride % (depth_of(p) / 8) == 0; };
  return boxed(p.a.row_stride) && boxed(p.b.column_stride) && std::max({p.m, p.n, p.k}) <= std::int64_t{1} << 30;
}

namespace {

/// All there are: sums of 128 x 128 or fewer leave a thread registers for the program, or for the sums of a step.
std::vector<ProductTile> all_tiles() {
  std::vector<ProductTile> tiles;
  for (int rows : {64, 128})
    for (int columns : {32, 48, 64, 96, 128, 192, 256})
      for (int cluster : {1, 2})
        if (rows * columns <= 128 * 128) tiles.push_back({rows, columns, cluster});
  return tiles;
}

}  // namespace

std::vector<ProductTile> product_tiles(const FusedProductSpec& spec, int processors) {
  constexpr std::size_t kTimed = 5;
  std::vector<ProductTile> tiles = all_tiles();
  // What a thread of a group has in registers while it multiplies.
  constexpr int kMostSums = 192;
  std::erase_if(tiles, [&](const ProductTile& tile) {
    const int sums = tile.columns / 2 * (tile.rows / 64 + (restarts(spec.product) ? 1 : 0));
    return (tile.cluster > 1 && spec.product.m <= tile.rows) || sums > kMostSums;
  });
  std::ranges::stable_sort(tiles, {}, [&](const ProductTile& tile) { return cost_of(spec, tile, processors); });
  tiles.resize(std::min(tiles.size(), kTimed));
  return tiles;
}

std::optional<ProductTile> tile_of(std::string_view text) {
  for (const ProductTile& tile : all_tiles())
    if (tile.text() == text) return tile;
  return std::nullopt;
}

namespace {

/// Rows of results in the order of memory, in as few dimensions as all operands of the program allow.
Dimensions rows_of(const FusedProductSpec& spec) {
  const ProgramSpec& program = spec.program;
  const std::size_t row_dims = program.domain.size() - 1;
  std::vector<std::vector<std::int64_t>> strides{spec.row_strides};
  const auto without_last = [&](const std::vector<std::int64_t>& all) {
    strides.emplace_back(all.begin(), all.end() - 1);
  };
  for (std::size_t i = 1; i < program.inputs.size(); ++i) without_last(program.inputs[i].strides);
  for (const ProgramOutput& output : program.outputs) without_last(output.strides);
  std::vector<const std::vector<std::int64_t>*> pointers;
  for (const auto& of : strides) pointers.push_back(&of);
  return canonical(
      dimensions_of({program.domain.begin(), program.domain.begin() + static_cast<std::ptrdiff_t>(row_dims)}, pointers),
      {0});
}

/// The program for eight columns at once, over these rows.
VectorizedProgramSource program_over(const Dimensions& rows, const ProgramSpec& program) {
  const auto merged = [&](std::size_t operand, const std::vector<std::int64_t>& of) {
    std::vector<std::int64_t> result;
    for (const Dimension& d : rows) result.push_back(d.strides[operand]);
    result.push_back(of.back());
    return result;
  };
  std::vector<ProgramInput> inputs = program.inputs;
  std::vector<ProgramOutput> outputs = program.outputs;
  inputs[0].strides.assign(rows.size() + 1, 0);
  std::size_t operand = 1;
  for (std::size_t i = 1; i < inputs.size(); ++i, ++operand)
    inputs[i].strides = merged(operand, program.inputs[i].strides);
  for (ProgramOutput& output : outputs) output.strides = merged(operand++, output.strides);
  std::vector<std::string> index;
  for (std::size_t d = 0; d < rows.size(); ++d) index.push_back(fmt::format("(long long)x{}", d));
  index.emplace_back("(long long)column");
  const std::size_t along = rows.size();
  return VectorizedProgramSource(program.program, std::move(inputs), std::move(outputs), along, std::move(index));
}

}  // namespace

/// The kernel's text is one; shapes, tiles and the ring of stages are macros, and the epilogue's program is written
/// into it three times: what it loads, computes and stores.
FusedProductKernel fused_product_source(const FusedProductSpec& spec, const ProductTile& tile, int processors) {
  const MatrixProductSpec& p = spec.product;
  const ProgramSpec& program = spec.program;
  const Dimensions rows = rows_of(spec);
  const VectorizedProgramSource eight = program_over(rows, program);
  const int rings = rings_of(spec), stages = stages_of(tile, rings);
  std::string text = prelude();
  const auto define = [&](const char* name, std::int64_t value) {
    text += fmt::format("#define {} {}\n", name, value);
  };
  define("M", p.m);
  define("N", program.domain.back());
  define("K", p.k);
  define("ROWS", tile.rows);
  define("COLUMNS", tile.columns);
  define("CLUSTER", tile.cluster);
  define("STAGES", stages);
  define("RINGS", rings);
  define("DEPTH", depth_of(p));
  define("PART", part_of(tile));
  define("PITCH", pitch_of(tile));
  text += p.operands == DataType::kInt8 ? "#define SUM int\n" : "#define SUM float\n";
  text += warp_group_functions();
  text += kProductFunctions + multiply_code("multiply", p.operands, tile.columns);
  if (restarts(p)) text += await_code("await_products", tile.columns);
  text += fmt::format(
      "extern \"C\" __global__ void __cluster_dims__({}, 1, 1) __launch_bounds__(384, 1) kernel(\n"
      "    const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b",
      tile.cluster);
  for (std::size_t i = 1; i < program.inputs.size(); ++i) text += fmt::format(", const u8* __restrict__ in{}", i);
  for (std::size_t i = 0; i < program.outputs.size(); ++i) text += fmt::format(", u8* __restrict__ out{}", i);
  const std::string coordinates = coordinate_code(rows, "row", "x", 1, false);
  const std::string kernel = replaced(kProductKernel, "MULTIPLY", restarts(p) ? kRestarting : kContinuous);
  text += ") {" + replaced(replaced(replaced(kernel, "LOADS\n", eight.loads()), "COMPUTE\n",
                                    coordinates + eight.code("given[e]")),
                           "STORE\n", eight.stores());
  FusedProductKernel made;
  const std::int64_t tiles =
      divided_up(p.m, tile.rows * tile.cluster) * divided_up(program.domain.back(), tile.columns);
  made.source.source = std::move(text);
  made.source.grid[0] = static_cast<unsigned>(std::min<std::int64_t>(tiles, processors / tile.cluster) * tile.cluster);
  made.source.block = 384;
  made.source.shared = static_cast<unsigned>(1024 + stages * ((tile.rows + tile.columns) * kBoxBytes + 16) +
                                             8 * 16 * pitch_of(tile) * 4);
  made.a = {p.operands, p.m, p.k, p.a.row_stride, tile.rows};
  made.b = {p.operands, p.n, p.k, p.b.column_stride, tile.columns / tile.cluster};
  return made;
}

}  // namespace ulpscope::cuda
