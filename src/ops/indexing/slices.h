// The slices that tuples of indices choose. Private to src/ops/indexing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "core/parallel.h"
#include "ops/common.h"
#include "ops/movement.h"

namespace ulpscope::ops {

/// The slices of the data that index tuples, input 1, choose. The first `batch_dims` dimensions of the data are those
/// of the indices.
class Slices {
 public:
  Slices(const KernelContext& ctx, const Shape& data, std::size_t batch_dims)
      : ctx_(ctx), tuples_(ctx.input(1)), depth_(static_cast<std::size_t>(tuples_.shape().back())) {
    const std::vector<std::int64_t> strides = strides_of(data);
    for (std::size_t k = batch_dims; k < batch_dims + depth_; ++k) axes_.push_back({data[k], strides[k]});
    if (tuples_.type() != DataType::kInt64) narrow_ = ctx.input_ints(1);
    values_ = tuples_.type() == DataType::kInt64 ? tuples_.data<std::int64_t>() : narrow_.data();
    batches_ = product(data, 0, batch_dims);
    per_batch_ = product(data, batch_dims, data.size());
    per_batch_tuples_ = product(tuples_.shape(), batch_dims, tuples_.shape().size() - 1);
  }

  /// Calls function(row, offset of the slice in the data) for each tuple; not `in_order`: on several threads.
  template <bool in_order, typename Function>
  void for_each(const Function& function) const {
    constexpr std::int64_t kBlock = 1 << 15;
    std::vector<std::int64_t> offsets(static_cast<std::size_t>(std::min(kBlock, batches_ * per_batch_tuples_)));
    for (std::int64_t first = 0; first < batches_ * per_batch_tuples_; first += kBlock) {
      const std::int64_t count = std::min(kBlock, batches_ * per_batch_tuples_ - first);
      std::atomic<bool> all_inside = true;
      const auto each = items_per_task(count, static_cast<std::int64_t>(depth_));
      parallel_for(count, each, [&](std::int64_t begin, std::int64_t end) {
        if (!find(first + begin, end - begin, offsets.data() + begin)) all_inside = false;
      });
      if (!all_inside) fail(first, count);
      const auto call = [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) function(first + i, offsets[static_cast<std::size_t>(i)]);
      };
      if constexpr (in_order)
        call(0, count);
      else
        parallel_for(count, each, call);
    }
  }

 private:
  struct Axis {
    std::int64_t size, stride;
  };

  /// Where tuples [first, first + count) point to; false where one of them points beyond the data.
  bool find(std::int64_t first, std::int64_t count, std::int64_t* offsets) const {
    const std::int64_t* value = values_ + first * static_cast<std::int64_t>(depth_);
    bool all_inside = true;
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t at = batches_ == 1 ? 0 : (first + i) / per_batch_tuples_ * per_batch_;
      for (const Axis& axis : axes_) {
        const std::int64_t index = *value + (*value < 0 ? axis.size : 0);
        ++value;
        const bool inside = static_cast<std::uint64_t>(index) < static_cast<std::uint64_t>(axis.size);
        all_inside &= inside;
        at += inside ? index * axis.stride : 0;
      }
      offsets[i] = at;
    }
    return all_inside;
  }

  void fail(std::int64_t first, std::int64_t count) const {
    const auto depth = static_cast<std::int64_t>(depth_);
    for (std::int64_t i = first * depth; i < (first + count) * depth; ++i)
      normalize_index(ctx_, values_[i], axes_[static_cast<std::size_t>(i % depth)].size);
  }

  const KernelContext& ctx_;
  const Tensor& tuples_;
  const std::size_t depth_;
  std::vector<Axis> axes_;
  std::vector<std::int64_t> narrow_;  ///< Of int32.
  const std::int64_t* values_ = nullptr;
  std::int64_t batches_ = 1, per_batch_ = 0, per_batch_tuples_ = 0;
};

}  // namespace ulpscope::ops
