#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/cpu/layer_kernels.h"
#include "backend/cpu/packed_columns.h"
#include "backend/cpu/program_kernels.h"
#include "backend/cpu/softmax_loops.h"
#include "backend/cpu/thread_memory.h"
#include "backend/prepared_constants.h"
#include "core/parallel.h"
#include "ops/contraction/attention_form.h"

namespace ulpscope::cpu {
namespace {

using Index = std::int64_t;
using Call = ops::AttentionCall<float>;

/// The loops on one row of scores.
class RowLoops {
 public:
  /// Softmax of softcap(scores) + bias; `bias` may be null. Not `any`: there is no key to see.
  void share(float* scores, Index count, float softcap, const float* bias, bool any) const {
    if (softcap > 0) {
      divide_(scores, scores, softcap, count);
      tanh_(scores, scores, count, 0, 0);
      multiply_(scores, scores, softcap, count);
    }
    if (!any) return std::fill_n(scores, count, 0.0f), void();
    if (bias != nullptr) add_(scores, scores, bias, count);
    softmax_.softmax(scores, count);
  }
  void multiply(float* values, Index count, float factor) const { multiply_(values, values, factor, count); }

 private:
  const SoftmaxLoops softmax_;
  const ProgramKernels& kernels_ = program_kernels();
  const ProgramKernels::Unary tanh_ = kernels_.unary(Instruction::kTanh);
  const ProgramKernels::Binary add_ = kernels_.binary(Instruction::kAdd);
  const ProgramKernels::BinaryScalar multiply_ = kernels_.binary_scalar(Instruction::kMul),
                                     divide_ = kernels_.binary_scalar(Instruction::kDiv);
};

/// What one thread works on: the keys and values of a head, packed, and rows of its scores.
class Head {
 public:
  explicit Head(const Call& call) : call_(call), s_(call.sizes) {
    // Scores of so many rows stay in the second-level cache.
    constexpr Index kElements = 1 << 16, kMost = 48;
    rows_ = std::clamp<Index>(kElements / s_.keys(), 6, kMost);
    thread_local ThreadMemory memory;
    const Index keys = packed_size(s_.size, s_.keys()), values = packed_size(s_.keys(), s_.v_size);
    const Index queries = round_to_line(rows_ * s_.size), scores = round_to_line(rows_ * s_.keys());
    keys_ = memory.floats(static_cast<std::size_t>(keys + values + queries + scores + s_.keys()));
    values_ = keys_ + keys;
    queries_ = values_ + values;
    scores_ = queries_ + queries;
    bias_ = scores_ + scores;
  }

  /// Queries [begin, end) of a head.
  void attend(Index b, Index h, Index begin, Index end) {
    const Index shared = h / s_.heads_of_one();
    if (const Index index = b * s_.kv_heads + shared; index != packed_) {
      packed_ = index;
      pack_columns({call_.keys.at(b, shared), call_.keys.row, true}, s_.size, 0, s_.keys(), keys_);
      loops_.multiply(keys_, packed_size(s_.size, s_.keys()), call_.root);
      pack_columns({call_.values.at(b, shared), call_.values.row, false}, s_.keys(), 0, s_.v_size, values_);
    }
    for (Index row = begin; row < end; row += rows_) attend_rows(b, h, row, std::min(rows_, end - row));
  }

 private:
  static Index round_to_line(Index elements) { return (elements + 15) / 16 * 16; }

  void attend_rows(Index b, Index h, Index first, Index count) {
    for (Index r = 0; r < count; ++r)
      std::copy_n(call_.q.at(b, h) + (first + r) * call_.q.row, s_.size, queries_ + r * s_.size);
    loops_.multiply(queries_, count * s_.size, call_.root);
    multiply(queries_, s_.size, keys_, scores_, s_.keys(), count, s_.keys());
    const bool biased = !call_.bias.is_nothing();
    for (Index r = 0; r < count; ++r) {
      const bool any = !biased || call_.bias.fill(b, h, first + r, bias_);
      loops_.share(scores_ + r * s_.keys(), s_.keys(), call_.softcap, biased ? bias_ : nullptr, any);
    }
    multiply(scores_, s_.keys(), values_, call_.y.at(b, h) + first * call_.y.row, call_.y.row, count, s_.v_size);
  }

  static void multiply(const float* a, Index k, const float* packed, float* out, Index out_stride, Index rows,
                       Index columns) {
    ProductPart part{};
    part.a = a;
    part.a_stride = part.k = k;
    part.b = packed;
    part.out = out;
    part.out_stride = out_stride;
    part.rows = rows;
    part.columns = columns;
    program_kernels().product.multiply(part);
  }

  const Call& call_;
  const ops::AttentionSizes& s_;
  const RowLoops loops_;
  Index rows_;  ///< At a time.
  float *keys_, *values_, *queries_, *scores_, *bias_;
  Index packed_ = -1;  ///< Whose keys and values they are.
};

void attend(const Call& call) {
  constexpr Index kQueries = 96;  // So many are worth packing keys and values for.
  const ops::AttentionSizes& s = call.sizes;
  const Index parts = (s.queries + kQueries - 1) / kQueries, tasks = s.batch * s.q_heads * parts;
  const Index threads = num_threads();
  parallel_for(tasks, threads == 1 ? tasks : std::max<Index>(1, tasks / (4 * threads)), [&](Index begin, Index end) {
    Head head(call);
    for (Index task = begin; task < end; ++task) {
      const Index index = task / parts, first = task % parts * kQueries;
      head.attend(index / s.q_heads, index % s.q_heads, first, std::min(first + kQueries, s.queries));
    }
  });
}

class AttentionKernel final : public Kernel {
 public:
  AttentionKernel(const Layer& layer, std::vector<DataType> types, std::vector<Rounding> rounding,
                  std::unique_ptr<Kernel> reference)
      : layer_(layer), types_(std::move(types)), rounding_(std::move(rounding)), reference_(std::move(reference)) {}

  std::string name() const override { return fmt::format("attention, {}", program_kernels().name); }

  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    if (inputs[0]->type() != DataType::kFloat32) return reference_->run(inputs, outputs);
    std::vector<Tensor> results(types_.size());
    for (std::size_t o = 0; o < outputs.size(); ++o)
      if (outputs[o] != nullptr) results[o] = *outputs[o];
    KernelContext context(layer_, inputs, results, types_, nullptr);
    const Call call(context);
    const ops::AttentionSizes& s = call.sizes;
    if (call.exposed != nullptr || call.y.data == nullptr ||
        std::min({s.batch, s.queries, s.keys(), s.size, s.v_size}) == 0)
      return reference_->run(inputs, outputs);
    attend(call);
    for (std::size_t o = 0; o < results.size(); ++o)
      if (results[o])
        round_parallel(results[o].data<float>(), results[o].data<float>(), results[o].size(), rounding_[o]);
  }

 private:
  const Layer& layer_;
  const std::vector<DataType> types_;
  const std::vector<Rounding> rounding_;
  const std::unique_ptr<Kernel> reference_;
};

}  // namespace

std::unique_ptr<Kernel> make_attention_kernel(const Layer& layer, std::vector<DataType> types,
                                              std::vector<Rounding> rounding, std::unique_ptr<Kernel> reference) {
  if (!ops::is_attention(layer)) return reference;
  return std::make_unique<AttentionKernel>(layer, std::move(types), std::move(rounding), std::move(reference));
}

}  // namespace ulpscope::cpu
