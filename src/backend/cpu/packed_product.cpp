#include "backend/cpu/packed_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "backend/cpu/packed_columns.h"
#include "backend/cpu/product_pieces.h"
#include "backend/cpu/program_kernels.h"
#include "backend/cpu/thread_memory.h"
#include "core/file.h"
#include "core/instruction_set.h"
#include "core/memory.h"
#include "core/parallel.h"

namespace ulpscope::cpu {
namespace {

using Index = std::int64_t;

constexpr Index kRowsInPlace = 3;  ///< So few read b once: it is not worth packing.

bool has_onednn() { return !onednn_version().empty(); }

/// The matrices of a batch, one after the other, in packed form.
struct PackedWeights {
  Index matrices, matrix;  ///< How many, and elements of one in `values`.
  Index offset;            ///< To the first element of the slice of k.
  Columns form;            ///< Without values.
  Index k, n;

  PreparedObject pack(const Tensor& values) const {
    const Index size = packed_size(k, n), panel = program_kernels().product.panel;
    const std::size_t bytes = static_cast<std::size_t>(matrices * size) * sizeof(float);
    std::shared_ptr<std::byte> memory = allocate_elements(bytes);
    float* const to = reinterpret_cast<float*>(memory.get());
    const Index panels = (n + panel - 1) / panel;
    parallel_for(matrices * panels, std::max<Index>(1, (1 << 16) / (k * panel + 1)), [&](Index first, Index last) {
      for (Index i = first; i < last; ++i) {
        Columns b = form;
        b.values = values.data<float>() + i / panels * matrix + offset;
        const Index column = i % panels * panel;
        pack_columns(b, k, column, std::min(column + panel, n), to + i / panels * size + column * k);
      }
    });
    MappedFile::release(values.raw(), values.bytes());
    return {std::move(memory), bytes};
  }
};

class PackedMatMul final : public Kernel {
 public:
  PackedMatMul(const MatMulSpec& spec, const ObjectCache& cache, std::vector<PostOp> post_ops)
      : spec_(spec),
        post_ops_(std::move(post_ops)),
        k_(spec.k_end != 0 ? spec.k_end - spec.k_begin : spec.k),
        offset_a_(spec.k_begin * (spec.transpose_a ? spec.m : 1)),
        offset_b_(spec.k_begin * (spec.transpose_b ? 1 : spec.n)),
        in_place_(!spec.constant_b && !spec.transpose_b && spec.m <= kRowsInPlace),
        pieces_(spec, k_, panel()) {
    spec_.constant_b = {};
    for (const PostOp& op : post_ops_) functions_.push_back(program_kernels().unary(instruction_of(op.kind)));
    if (!spec.constant_b) return;
    const Index count = std::accumulate(spec.batch_b.begin(), spec.batch_b.end(), Index{1}, std::multiplies<>());
    const PackedWeights weights{count, spec.k * spec.n, offset_b_, columns_of(nullptr), k_, spec.n};
    weights_ = cache(fmt::format("packed columns|{}|{} x {} x {}{}|k {}, {}", spec.key_b, count, spec.k, spec.n,
                                 spec.transpose_b ? " transposed" : "", spec.k_begin, k_),
                     [weights, values = spec.constant_b] { return weights.pack(values()); });
  }

  std::string name() const override { return fmt::format("packed product, {}", program_kernels().name); }

  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    std::shared_ptr<const void> held;
    if (weights_) held = weights_();
    Operands operands;
    operands.a = inputs[0]->data<float>();
    if (held)
      operands.packed = static_cast<const float*>(held.get());
    else
      operands.b = inputs[1]->data<float>();
    operands.out = outputs[0]->data<float>();
    operands.addends = inputs.subspan(held ? 1 : 2);
    pieces_.for_each([&](const ProductPieces::Piece& piece) { run_piece(operands, piece); });
  }

 private:
  struct Operands {
    const float *a = nullptr, *b = nullptr, *packed = nullptr;
    float* out = nullptr;
    Index first = 0;  ///< Of the matrix in the results.
    std::span<const Tensor* const> addends;
  };

  static Index panel() { return program_kernels().product.panel; }

  Columns columns_of(const float* b) const { return {b, spec_.transpose_b ? spec_.k : spec_.n, spec_.transpose_b}; }

  void run_piece(const Operands& whole, const ProductPieces::Piece& piece) const {
    const auto [matrix, rows, columns] = piece;
    Operands operands = whole;
    operands.a += pieces_.matrix_of(spec_.batch_a, matrix) * spec_.m * spec_.k + offset_a_;
    operands.first = matrix * spec_.m * spec_.n;
    const Index b = pieces_.matrix_of(spec_.batch_b, matrix);
    if (operands.packed != nullptr) {
      operands.packed += b * packed_size(k_, spec_.n) + columns.begin * k_;
      return multiply(operands, rows, columns, operands.packed, 0);
    }
    operands.b += b * spec_.k * spec_.n + offset_b_;
    const Columns form = columns_of(operands.b);
    Range left = columns;
    if (in_place_) {
      const Index end = columns.begin + (columns.end - columns.begin) / lanes() * lanes();
      if (end != columns.begin) multiply(operands, rows, {columns.begin, end}, form.at(columns.begin), form.stride);
      left.begin = end;
    }
    // As many columns as the second-level cache holds beside rows of a.
    constexpr Index kElements = 1 << 16;
    const Index chunk = std::max<Index>(1, kElements / (std::max<Index>(k_, 1) * panel())) * panel();
    thread_local ThreadMemory memory;
    for (Index column = left.begin; column < left.end; column += chunk) {
      const Index end = std::min(column + chunk, left.end);
      float* const packed = memory.floats(static_cast<std::size_t>(packed_size(k_, end - column)));
      pack_columns(form, k_, column, end, packed);
      multiply(operands, rows, {column, end}, packed, 0);
    }
  }

  static Index lanes() { return program_kernels().product.lanes; }

  /// Rows in blocks: more of them where columns come from beyond the second-level cache.
  void multiply(const Operands& operands, Range rows, Range columns, const float* b, Index b_stride) const {
    constexpr Index kDepth = 1024, kCache = 1 << 16, kBlock = 48, kLargeBlock = 384;
    const Index width = columns.end - columns.begin;
    const Index most = std::min(k_, kDepth) * width > kCache ? kLargeBlock : kBlock;
    thread_local ThreadMemory memory;
    for (Index row = rows.begin; row < rows.end; row += most) {
      const Index count = std::min(most, rows.end - row);
      ProductPart part{};
      part.a = operands.a + row * spec_.k;
      part.a_stride = spec_.k;
      if (spec_.transpose_a && spec_.m > 1) {
        float* const turned = memory.floats(static_cast<std::size_t>(count * k_));
        program_kernels().product.transpose(operands.a + row, spec_.m, k_, count, turned, k_);
        part.a = turned;
        part.a_stride = k_;
      }
      part.b = b;
      part.b_stride = b_stride;
      part.bias = spec_.bias ? spec_.bias.data<float>() + columns.begin : nullptr;
      const Index first = operands.first + row * spec_.n + columns.begin;
      part.out = operands.out + first;
      part.out_stride = spec_.n;
      part.rows = count;
      part.columns = width;
      part.k = k_;
      program_kernels().product.multiply(part);
      for (Index r = 0; r < count && !post_ops_.empty(); ++r) apply_post_ops(operands, first + r * spec_.n, width);
    }
  }

  void apply_post_ops(const Operands& operands, Index first, Index count) const {
    float* const out = operands.out + first;
    std::size_t addend = 0;
    for (std::size_t i = 0; i < post_ops_.size(); ++i) {
      const PostOp& op = post_ops_[i];
      if (op.kind == PostOp::Kind::kAddTensor)
        add_(out, out, operands.addends[addend++]->data<float>() + first, count);
      else
        functions_[i](out, out, count, op.p, op.q);
    }
  }

  MatMulSpec spec_;  ///< Without constant_b.
  const std::vector<PostOp> post_ops_;
  std::vector<ProgramKernels::Unary> functions_;  ///< Per post-op.
  const ProgramKernels::Binary add_ = program_kernels().binary(Instruction::kAdd);
  const Index k_, offset_a_, offset_b_;
  const bool in_place_;  ///< b is not packed.
  const ProductPieces pieces_;
  PreparedSource weights_;
};

}  // namespace

std::unique_ptr<Kernel> make_packed_matmul_kernel(const MatMulSpec& spec, const ObjectCache& cache,
                                                  std::vector<PostOp> post_ops) {
  if (spec.type_a != DataType::kFloat32 || spec.type_b != DataType::kFloat32 || spec.panels_b) return nullptr;
  constexpr Index kSomeRows = 16, kLargeMatrix = 1 << 18;
  const bool read_once = spec.m <= kSomeRows && spec.k * spec.n > kLargeMatrix;
  if (has_onednn() && !spec.constant_b && (read_once || (spec.transpose_b && spec.m <= kRowsInPlace))) return nullptr;
  return std::make_unique<PackedMatMul>(spec, cache, std::move(post_ops));
}

std::unique_ptr<Kernel> make_pointwise_kernel(const ConvolutionSpec& spec, const ObjectCache& cache) {
  const auto are = [](const std::vector<Index>& values, Index value) {
    return std::ranges::all_of(values, [&](Index v) { return v == value; });
  };
  constexpr Index kFewChannels = 32;  // Below, tiles take longer to begin and to end than to fill.
  const Index out = spec.kernel[0], in = spec.kernel[1];
  const bool is_faster = !has_onednn() || (products_depend_on_threads() && std::min(in, out) >= kFewChannels &&
                                           instruction_set() != InstructionSet::kBaseline);
  if (!is_faster || spec.transposed || spec.groups != 1 || spec.type != DataType::kFloat32 ||
      num_elements(spec.kernel) != out * in || !are(spec.strides, 1) || !are(spec.pads_begin, 0) ||
      !are(spec.pads_end, 0))
    return nullptr;
  MatMulSpec product;
  product.m = num_elements(spec.output) / out;
  product.k = in;
  product.n = out;
  product.transpose_b = true;
  product.constant_b = spec.weights;
  product.key_b = spec.key;
  product.bias = spec.bias;
  if (is_long_sum(product)) return nullptr;
  return make_packed_matmul_kernel(product, cache, spec.post_ops);
}

}  // namespace ulpscope::cpu
