#include "precision/broadcast_indices.h"

#include <algorithm>

#include "ops/common.h"

namespace ulpscope {

std::vector<std::int64_t> broadcast_indices(const Shape& shape, const Shape& to) {
  const std::vector<std::int64_t> strides = ops::broadcast_strides(shape, to);
  std::vector<std::int64_t> at(to.size(), 0);
  std::vector<std::int64_t> result(static_cast<std::size_t>(num_elements(to)));
  std::int64_t index = 0;
  for (std::int64_t& each : result) {
    each = index;
    for (std::size_t d = to.size(); d-- > 0;) {
      index += strides[d];
      if (++at[d] < to[d]) break;
      index -= strides[d] * to[d];
      at[d] = 0;
    }
  }
  return result;
}

BroadcastElements::BroadcastElements(const Tensor& tensor, const Shape& to) : from_(tensor.data<float>()) {
  const std::vector<std::int64_t> strides = ops::broadcast_strides(tensor.shape(), to);
  for (std::size_t d = to.size(); d-- > 0;) {
    if (to[d] == 1) continue;
    if (!dims_.empty() && strides[d] == dims_.back().stride * dims_.back().size)
      dims_.back().size *= to[d];
    else
      dims_.push_back({to[d], strides[d]});
  }
  if (dims_.empty()) dims_.push_back({1, 1});
}

const float* BroadcastElements::next(std::size_t count) {
  if (dims_.size() == 1 && dims_[0].stride == 1) {
    const float* const piece = from_;
    from_ += count;
    return piece;
  }
  piece_.resize(count);
  Dimension& inner = dims_[0];
  for (std::size_t done = 0; done < count;) {
    const std::int64_t run = std::min(inner.size - inner.at, static_cast<std::int64_t>(count - done));
    float* const to = piece_.data() + done;
    if (inner.stride == 0)
      std::fill_n(to, run, *from_);
    else
      std::copy_n(from_, run, to);
    done += static_cast<std::size_t>(run);
    from_ += run * inner.stride;
    inner.at += run;
    for (std::size_t d = 0; d < dims_.size() && dims_[d].at == dims_[d].size; ++d) {
      from_ -= dims_[d].size * dims_[d].stride;
      dims_[d].at = 0;
      if (d + 1 == dims_.size()) break;
      from_ += dims_[d + 1].stride;
      ++dims_[d + 1].at;
    }
  }
  return piece_.data();
}

}  // namespace ulpscope
