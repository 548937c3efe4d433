#include "ops/movement/padded_axes.h"

#include "core/parallel.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

/// A row of the result along `axis`, whose elements are `inner` words each; `in`: a row of the input, null for none.
template <typename Word>
void pad_row(const PaddedAxis& axis, std::int64_t inner, const Word* in, Word value, Word* out) {
  if (in == nullptr || axis.inside() == 0) return std::fill_n(out, axis.length() * inner, value), void();
  const auto outside = [&](std::int64_t begin, std::int64_t end) {
    if (axis.mode == PaddedAxis::Mode::kConstant)
      std::fill_n(out + begin * inner, (end - begin) * inner, value);
    else
      for (std::int64_t i = begin; i < end; ++i) std::copy_n(in + axis.source(i) * inner, inner, out + i * inner);
  };
  const std::int64_t end = axis.before + axis.size;
  outside(0, axis.before);
  std::copy_n(in + axis.cut * inner, axis.size * inner, out + axis.before * inner);
  outside(end, axis.length());
}

/// Row by row along the last axis that has pads.
template <typename Word>
void pad_tensor(const Tensor& in, const std::vector<PaddedAxis>& axes, Word value, Tensor& out) {
  std::size_t last = axes.size();
  const auto is_whole = [&](std::size_t d) {
    return axes[d].size == in.shape()[d] && axes[d].length() == axes[d].size;
  };
  while (last > 1 && is_whole(last - 1)) --last;
  if (last == 0) return copy_bytes(in.raw(), out.raw(), out.bytes());
  --last;
  const std::int64_t inner = product(in.shape(), last + 1, axes.size()), length = axes[last].length() * inner;
  const std::vector<std::int64_t> strides = strides_of(in.shape());
  const Word* from = static_cast<const Word*>(in.raw());
  Word* to = static_cast<Word*>(out.raw());
  const std::int64_t rows = product(out.shape(), 0, last);
  parallel_for(rows, items_per_task(rows, length), [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t> index(last);
    for (std::int64_t d = static_cast<std::int64_t>(last) - 1, rest = begin; d >= 0; --d) {
      const auto axis = static_cast<std::size_t>(d);
      index[axis] = rest % axes[axis].length();
      rest /= axes[axis].length();
    }
    for (std::int64_t row = begin; row < end; ++row) {
      std::int64_t at = 0;
      for (std::size_t d = 0; d < last && at >= 0; ++d) {
        const std::int64_t source = axes[d].source(index[d]);
        at = source < 0 ? -1 : at + source * strides[d];
      }
      pad_row(axes[last], inner, at < 0 ? nullptr : from + at, value, to + row * length);
      for (std::size_t d = last; d-- > 0; index[d] = 0)
        if (++index[d] < axes[d].length()) break;
    }
  });
}

}  // namespace

std::vector<PaddedAxis> padded_axes(const Shape& in, const std::vector<std::int64_t>& begin,
                                    const std::vector<std::int64_t>& end, const std::string& mode) {
  using Mode = PaddedAxis::Mode;
  const Mode kind = mode == "reflect" ? Mode::kReflect
                    : mode == "edge"  ? Mode::kEdge
                    : mode == "wrap"  ? Mode::kWrap
                                      : Mode::kConstant;
  std::vector<PaddedAxis> axes;
  for (std::size_t d = 0; d < in.size(); ++d) {
    const auto positive = [](std::int64_t pad) { return std::max<std::int64_t>(pad, 0); };
    const std::int64_t cut = positive(-begin[d]), before = positive(begin[d]), after = positive(end[d]);
    axes.push_back({kind, before, in[d] - cut - positive(-end[d]), after, cut});
  }
  return axes;
}

void pad_elements(const Tensor& in, const std::vector<PaddedAxis>& axes, const Tensor& value, Tensor& out) {
  with_word(out.type(),
            [&]<typename Word>(Word) { pad_tensor(in, axes, value ? load_word<Word>(value.raw(), 0) : Word{}, out); });
}

}  // namespace ulpscope::ops
