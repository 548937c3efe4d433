// What an Attention reads, computes and writes, for those who carry it out.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/network.h"
#include "graph/op.h"
#include "ops/common.h"

namespace ulpscope::ops {

/// Its inputs and outputs by position.
struct AttentionPlaces {
  enum Input { kQ, kK, kV, kMask, kPastKey, kPastValue, kValidLengths };
  enum Output { kY, kPresentKey, kPresentValue, kScores };
};

/// Q, K and V are (batch, heads, sequence, size), or (batch, sequence, heads * size) when `packed`.
struct AttentionSizes {
  bool packed = false;
  std::int64_t batch = 0, q_heads = 0, kv_heads = 0, queries = 0, new_keys = 0, past = 0, size = 0, v_size = 0;

  std::int64_t keys() const { return past + new_keys; }
  /// Heads of queries that share keys and values.
  std::int64_t heads_of_one() const { return q_heads / kv_heads; }
  /// Offset of row (b, h, s) in a tensor of `heads` heads with `count` positions of `width` elements.
  std::int64_t row(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t heads, std::int64_t count,
                   std::int64_t width) const {
    return (packed ? (b * count + s) * heads + h : (b * heads + h) * count + s) * width;
  }
};

/// What is added to the scores: the mask input, causality, the sliding window and the lengths of the sequences.
template <typename T>
class AttentionBias {
 public:
  AttentionBias(const KernelContext& ctx, const AttentionSizes& s);

  /// Zeros for every query and key.
  bool is_nothing() const;
  /// The bias of one query, for all keys; false when every key is excluded.
  bool fill(std::int64_t b, std::int64_t h, std::int64_t query, T* bias) const;

 private:
  AttentionSizes sizes_;
  bool causal_ = false;
  std::int64_t left_ = -1, right_ = -1, columns_ = 0;
  std::vector<std::int64_t> lengths_;
  const bool* flags_ = nullptr;
  const T* values_ = nullptr;
  std::vector<std::int64_t> strides_;
};

/// One matrix for each head of each batch; strides in elements.
template <typename T>
struct AttentionRows {
  T* data = nullptr;
  std::int64_t batch = 0, head = 0, row = 0;
  T* at(std::int64_t b, std::int64_t h) const { return data + b * batch + h * head; }
};

/// T: float or double, the type of Q. Results of a query: softmax(softcap(root q (root K)') + bias) V.
template <typename T>
struct AttentionCall {
  /// Writes the caches that are outputs.
  explicit AttentionCall(KernelContext& ctx);
  AttentionCall(const AttentionCall&) = delete;
  AttentionCall& operator=(const AttentionCall&) = delete;

  AttentionSizes sizes;
  AttentionBias<T> bias;
  T root{}, softcap{};  ///< softcap up to 0: there is none.
  AttentionRows<const T> q, keys, values;
  AttentionRows<T> y;              ///< Without data: not wanted.
  T* exposed = nullptr;            ///< (batch, q_heads, queries, keys), as after
  std::int64_t exposed_stage = 0;  ///< 0: the product, 1: softcap, 2: bias, 3: softmax. Null: not wanted.

 private:
  std::vector<Tensor> held_;
};

bool is_attention(const Layer& layer);

}  // namespace ulpscope::ops
