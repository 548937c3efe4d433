// Pooling of images that lie channel by channel. Windows of few columns have loops of their own, which read rows where
// they are. For others each channel is copied with its pads, such that what all outputs read at a place of the window
// lies side by side: one long row for each place.
#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "backend/cpu/layer_kernels.h"
#include "backend/cpu/thread_memory.h"
#include "core/parallel.h"
#include "core/vector_clones.h"
#include "ops/window.h"

namespace ulpscope::cpu {
namespace {

using Index = std::int64_t;
using Triple = std::array<Index, 3>;

/// The last three entries, with `absent` in front of fewer.
Triple triple_of(std::span<const Index> values, Index absent) {
  Triple result{absent, absent, absent};
  std::ranges::copy(values, result.end() - static_cast<std::ptrdiff_t>(values.size()));
  return result;
}

/// NaN where there is one; the later one of equals, as Instruction::kMax, or the first one, as the reference kernel.
template <bool first>
ULPSCOPE_VECTOR_CLONES void keep_larger(float* __restrict out, const float* __restrict in, Index count) {
  for (Index i = 0; i < count; ++i)
    if constexpr (first)
      out[i] = (in[i] > out[i]) | (in[i] != in[i]) ? in[i] : out[i];
    else
      out[i] = (out[i] > in[i]) | (out[i] != out[i]) ? out[i] : in[i];
}

/// The same of two numbers.
template <bool first>
inline float larger_of(float a, float b) {
  if constexpr (first) return b > a ? b : a;
  return a > b ? a : b;
}

/// out[i] = the largest of in[i * step] to in[i * step + kernel - 1], all of which are numbers.
template <bool first, int kernel, int step>
ULPSCOPE_VECTOR_CLONES void row_maxima(const float* __restrict in, Index count, float* __restrict out) {
  const auto largest_of = [&]<int... k>(std::integer_sequence<int, k...>, const float* window) {
    float largest = window[0];
    ((largest = larger_of<first>(largest, window[k + 1])), ...);
    return largest;
  };
  for (Index i = 0; i < count; ++i) out[i] = largest_of(std::make_integer_sequence<int, kernel - 1>{}, in + i * step);
}

/// Elements of a row that are computed: whole vectors, where `room` has them. What is too much, the next row
/// overwrites.
inline Index whole_vectors(Index width, Index room) { return std::min((width + 15) / 16 * 16, room); }

/// out[y * width + i] = the largest of in[y * step + offsets[k] + i], all of which are numbers; `room`: elements of
/// `out`.
template <bool first, std::size_t rows>
ULPSCOPE_VECTOR_CLONES void column_maxima(const float* in, Index step, std::array<Index, rows> offsets, Index count,
                                          Index width, Index room, float* __restrict out) {
  for (Index y = 0; y < count; ++y, in += step, out += width, room -= width) {
    const Index end = whole_vectors(width, room);
    for (Index i = 0; i < end; ++i) {
      float largest = in[offsets[0] + i];
      for (std::size_t k = 1; k < rows; ++k) largest = larger_of<first>(largest, in[offsets[k] + i]);
      out[i] = largest;
    }
  }
}

/// What lies side by side: `before` pads, `count` elements of an image, and pads again, `length` in all.
struct PaddedRow {
  Index before, count, length;
};

/// `room`: elements that there are from `in` on. So many more than the rows have are written as fill up a vector.
ULPSCOPE_VECTOR_CLONES void pad_rows(const float* in, Index step, Index room, Index rows, const PaddedRow& form,
                                     float pad, float* __restrict out) {
  for (Index y = 0; y < rows; ++y, in += step, room -= step, out += form.length) {
    const Index end = whole_vectors(form.count, room);
    for (Index i = 0; i < end; ++i) out[form.before + i] = in[i];
    for (Index i = 0; i < form.before; ++i) out[i] = pad;
    for (Index i = form.before + form.count; i < form.length; ++i) out[i] = pad;
  }
}

/// Adds, row by row, in[i * step] to in[i * step + kernel - 1] to sums[i].
template <typename Sum, int kernel, int step>
ULPSCOPE_VECTOR_CLONES void add_windows(const float* const* rows, Index count_rows, Index count, Sum* __restrict sums) {
  const auto added = [&]<int... k>(std::integer_sequence<int, k...>, Sum sum, const float* window) {
    ((sum += static_cast<Sum>(window[k])), ...);
    return sum;
  };
  for (Index r = 0; r < count_rows; ++r) {
    const float* __restrict in = rows[r];
    for (Index i = 0; i < count; ++i)
      sums[i] = added(std::make_integer_sequence<int, kernel>{}, sums[i], in + i * step);
  }
}

/// Calls function(kernel, step) with constants; false where there are no loops for them.
template <typename Function>
bool with_window(Index kernel, Index step, const Function& function) {
  const auto with_step = [&](auto k) {
    if (step == 1) function(k, std::integral_constant<int, 1>{});
    if (step == 2) function(k, std::integral_constant<int, 2>{});
    return step <= 2;
  };
  if (kernel == 4 && step == 4) {
    function(std::integral_constant<int, 4>{}, std::integral_constant<int, 4>{});
    return true;
  }
  if (kernel == 2) return with_step(std::integral_constant<int, 2>{});
  if (kernel == 3) return with_step(std::integral_constant<int, 3>{});
  if (kernel == 5) return with_step(std::integral_constant<int, 5>{});
  return false;
}

/// Adds element i of each of four rows, in their order, to sums[i].
template <typename Sum>
ULPSCOPE_VECTOR_CLONES void add_four(const float* const* rows, Index at, Index count, Sum* __restrict sums) {
  const float *a = rows[0] + at, *b = rows[1] + at, *c = rows[2] + at, *d = rows[3] + at;
  for (Index i = 0; i < count; ++i)
    sums[i] = (((sums[i] + static_cast<Sum>(a[i])) + static_cast<Sum>(b[i])) + static_cast<Sum>(c[i])) +
              static_cast<Sum>(d[i]);
}
template <typename Sum>
ULPSCOPE_VECTOR_CLONES void add(Sum* __restrict sums, const float* __restrict in, Index count) {
  for (Index i = 0; i < count; ++i) sums[i] += static_cast<Sum>(in[i]);
}

template <typename Sum>
ULPSCOPE_VECTOR_CLONES void divide(const Sum* sums, const float* counts, float factor, Index count, float* out) {
  for (Index i = 0; i < count; ++i) out[i] = static_cast<float>(sums[i]) / (counts[i] * factor);
}

ULPSCOPE_VECTOR_CLONES void split_pairs(const float* in, Index count, float* even, float* odd) {
  for (Index i = 0; i < count; ++i) {
    even[i] = in[2 * i];
    odd[i] = in[2 * i + 1];
  }
}

/// Calls function(begin, count) for parts of so many elements that stay in the nearest cache.
template <typename Function>
void for_parts(Index count, const Function& function) {
  constexpr Index kPart = 2048;
  for (Index at = 0; at < count; at += kPart) function(at, std::min(kPart, count - at));
}

class DensePool : public Kernel {
 public:
  explicit DensePool(const PoolSpec& spec, float pad)
      : planes_(spec.input[0] * spec.input[1]),
        pad_(pad),
        in_(triple_of(std::span(spec.input).subspan(2), 1)),
        out_(triple_of(std::span(spec.output).subspan(2), 1)),
        kernel_(triple_of(spec.kernel, 1)),
        strides_(triple_of(spec.strides, 1)),
        dilations_(triple_of(spec.dilations, 1)),
        pads_(triple_of(spec.pads_begin, 0)) {
    for (std::size_t d = 0; d < 3; ++d) {
      padded_[d] = (out_[d] - 1) * strides_[d] + (kernel_[d] - 1) * dilations_[d] + 1;
      phase_[d] = padded_[d] / strides_[d] + 1;
    }
    slice_ = strides_[1] * phase_[1] * phase_[2];
    plane_ = padded_[0] * slice_;
    const Index reach = in_[2] + pads_[2] - kernel_[2];  // Of the last window that is inside.
    first_ = std::min(out_[2], (std::max<Index>(pads_[2], 0) + strides_[2] - 1) / strides_[2]);
    last_ = reach < 0 ? first_ : std::clamp(reach / strides_[2] + 1, first_, out_[2]);
    has_loops_ = dilations_[2] == 1 && with_window(kernel_[2], strides_[2], [](auto, auto) {});
  }

  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const float* in = inputs[0]->data<float>();
    float* out = outputs[0]->data<float>();
    const Index image = in_[0] * in_[1] * in_[2], result = out_[0] * out_[1] * out_[2];
    const Index rows = strides_[2] * plane_, staged = strides_[2] == 1 ? 0 : rows;
    parallel_for(planes_, items_per_task(planes_, rows), [&](Index begin, Index end) {
      // Behind the last row there is room for what is read beyond it, and is no part of any output, whatever it is.
      thread_local ThreadMemory memory;
      float* const spread = memory.floats(static_cast<std::size_t>(rows + slice_ + staged + work_size()));
      float *const stage = spread + rows + slice_, *const work = stage + staged;
      for (Index p = begin; p < end; ++p) {
        if (has_loops_ && pool_in_place(in + p * image, work, out + p * result)) continue;
        spread_plane(in + p * image, stage, spread);
        pool(spread, work, out + p * result);
      }
    });
  }

 protected:
  /// Floats that pool() works in.
  virtual Index work_size() const = 0;
  virtual void pool(const float* spread, float* work, float* out) const = 0;
  /// The same of the image itself, where has_loops_; false: not of this one.
  virtual bool pool_in_place(const float* image, float* work, float* out) const = 0;

  /// Calls function(row of the image) for the rows that output row (z, y) reads, in order.
  template <typename Function>
  void for_rows(Index z, Index y, const Function& function) const {
    for (Index kz = 0; kz < kernel_[0]; ++kz) {
      const Index iz = z * strides_[0] - pads_[0] + kz * dilations_[0];
      for (Index ky = 0; ky < kernel_[1] && iz >= 0 && iz < in_[0]; ++ky)
        if (const Index iy = y * strides_[1] - pads_[1] + ky * dilations_[1]; iy >= 0 && iy < in_[1])
          function(iz * in_[1] + iy);
    }
  }
  /// Calls function(output, first element, behind the last one) for the windows of a row that reach out of it.
  template <typename Function>
  void for_clipped(const Function& function) const {
    for (Index x = 0; x < out_[2]; ++x) {
      if (x == first_ && first_ != last_) x = last_;
      if (x == out_[2]) return;
      const Index at = x * strides_[2] - pads_[2];
      function(x, std::max<Index>(at, 0), std::min(at + kernel_[2], in_[2]));
    }
  }
  /// Where the first window that is inside of a row begins.
  Index first_element() const { return first_ * strides_[2] - pads_[2]; }

  /// Where what outputs read at this place of the window begins, from the first one on: rows of phase_[2] elements.
  Index place_x(Index place) const { return offset(2, place, plane_, 1); }
  Index place_y(Index place) const { return offset(1, place, phase_[1] * phase_[2], phase_[2]); }
  Index results() const { return out_[1] * phase_[2]; }

  const Index planes_;
  const float pad_;
  const Triple in_, out_, kernel_, strides_, dilations_, pads_;
  Triple padded_, phase_;  ///< A dimension with its pads; of every `stride`-th element of it.
  Index slice_, plane_;    ///< Elements of some of the columns: of all rows, and of all slices.
  Index first_, last_;     ///< Outputs of a row whose windows are inside of it.
  bool has_loops_;         ///< For such windows of a row.

 private:
  Index offset(std::size_t d, Index place, Index of_phase, Index of_step) const {
    const Index at = place * dilations_[d];
    return at % strides_[d] * of_phase + at / strides_[d] * of_step;
  }

  /// Columns by their remainder by the stride, then slices, then rows by their remainder, then columns.
  void spread_plane(const float* image, float* stage, float* spread) const {
    const Index step = strides_[2], before = std::clamp<Index>(pads_[2], 0, padded_[2]);
    const Index skipped = std::max<Index>(-pads_[2], 0);
    const Index count = std::clamp<Index>(in_[2] - skipped, 0, padded_[2] - before);
    float* const target = step == 1 ? spread : stage;
    for (Index z = 0; z < padded_[0]; ++z)
      for (Index y = 0; y < padded_[1]; ++y) {
        const Index iz = z - pads_[0], iy = y - pads_[1];
        const Index row = z * slice_ + (y % strides_[1] * phase_[1] + y / strides_[1]) * phase_[2];
        float* const to = target + row * step;
        if (iz < 0 || iz >= in_[0] || iy < 0 || iy >= in_[1]) {
          std::fill_n(to, step * phase_[2], pad_);
          continue;
        }
        std::fill_n(to, before, pad_);
        std::copy_n(image + (iz * in_[1] + iy) * in_[2] + skipped, count, to + before);
        std::fill(to + before + count, to + step * phase_[2], pad_);
      }
    if (step == 2) return split_pairs(stage, plane_, spread, spread + plane_);
    for (Index s = 0; s < step && step != 1; ++s)
      for (Index i = 0; i < plane_; ++i) spread[s * plane_ + i] = stage[i * step + s];
  }
};

/// `first`: see keep_larger(). Of rows, then of columns, then of slices.
template <bool first>
class DenseMaxPool final : public DensePool {
 public:
  explicit DenseMaxPool(const PoolSpec& spec) : DensePool(spec, -std::numeric_limits<float>::infinity()) {}
  std::string name() const override { return "maxima of windows"; }

 private:
  static constexpr Index kMostRows = 5, kBatch = 2048, kSpare = 16;  ///< Elements of rows at a time; of a vector.

  /// Elements of a row with its pads, such that one row's maxima lie behind the other's.
  Index row_length() const { return (padded_[2] + strides_[2] - 1) / strides_[2] * strides_[2]; }
  Index maxima_of_slice() const { return padded_[1] * (std::max(row_length(), in_[2]) / strides_[2] + 1) + kSpare; }
  Index work_size() const override {
    const Index in_place = kBatch + row_length() + kSpare + maxima_of_slice() + padded_[0] * out_[1] * out_[2] + kSpare;
    return std::max(plane_ + padded_[0] * results(), in_place);
  }

  bool pool_in_place(const float* image, float* work, float* out) const override {
    if (kernel_[0] > kMostRows || kernel_[1] > kMostRows) return false;
    float *const rows = work, *const maxima = rows + kBatch + row_length() + kSpare;
    const Index size = out_[1] * out_[2];
    const bool flat = kernel_[0] == 1 && strides_[0] == 1 && pads_[0] == 0;
    float* const slices = flat ? out : maxima + maxima_of_slice();
    for (Index z = 0; z < padded_[0]; ++z) {
      float* const to = slices + z * size;
      if (z < pads_[0] || z - pads_[0] >= in_[0]) {
        std::fill_n(to, size, pad_);
        continue;
      }
      const Index step = take_rows(image, z - pads_[0], rows, maxima);
      if (step == 0) return false;
      const Index room = flat ? (padded_[0] - z) * size : size + kSpare;
      take_columns(kernel_[1], dilations_[1] * step, [&](const auto& offsets) {
        column_maxima<first>(maxima, strides_[1] * step, offsets, out_[1], out_[2], room, to);
      });
    }
    for (Index z = 0; z < out_[0] && !flat; ++z)
      take_columns(kernel_[0], dilations_[0] * size, [&](const auto& offsets) {
        column_maxima<first>(slices + z * strides_[0] * size, 0, offsets, 1, size, size, out + z * size);
      });
    return true;
  }

  /// Calls function(where each of `count` rows begins).
  template <typename Function>
  static void take_columns(Index count, Index step, const Function& function) {
    const auto call = [&]<std::size_t... k>(std::index_sequence<k...>) {
      function(std::array<Index, sizeof...(k)>{static_cast<Index>(k) * step...});
    };
    if (count == 1) call(std::make_index_sequence<1>{});
    if (count == 2) call(std::make_index_sequence<2>{});
    if (count == 3) call(std::make_index_sequence<3>{});
    if (count == 4) call(std::make_index_sequence<4>{});
    if (count == 5) call(std::make_index_sequence<5>{});
  }

  /// The maxima of each row of a slice, with its pads, for every output of a row; gives the elements from row to row, 0
  /// where there is NaN.
  Index take_rows(const float* image, Index slice, float* rows, float* maxima) const {
    const bool as_they_lie = pads_[2] == 0 && padded_[2] <= in_[2] && in_[2] % strides_[2] == 0;
    const Index length = as_they_lie ? in_[2] : row_length(), step = length / strides_[2];
    const Index skipped = std::max<Index>(-pads_[2], 0), before = std::clamp<Index>(pads_[2], 0, padded_[2]);
    const PaddedRow form{before, std::clamp<Index>(in_[2] - skipped, 0, padded_[2] - before), length};
    const Index begin = std::clamp<Index>(pads_[1], 0, padded_[1]);
    const Index end = std::clamp<Index>(in_[1] + pads_[1], begin, padded_[1]);
    std::fill_n(maxima, begin * step, pad_);
    const Index batch = std::max<Index>(1, kBatch / length);
    for (Index y = begin, count; y < end; y += count) {
      count = std::min(batch, end - y);
      const Index first_of_rows = (slice * in_[1] + y - pads_[1]) * in_[2], at = first_of_rows + skipped;
      if (any_nan(image + first_of_rows, count * in_[2])) return 0;
      if (!as_they_lie) pad_rows(image + at, in_[2], in_[0] * in_[1] * in_[2] - at, count, form, pad_, rows);
      with_window(kernel_[2], strides_[2], [&](auto kernel, auto stride) {
        row_maxima<first, kernel, stride>(as_they_lie ? image + at : rows, (count * length - kernel) / stride + 1,
                                          maxima + y * step);
      });
    }
    std::fill_n(maxima + end * step, (padded_[1] - end) * step, pad_);
    return step;
  }
  void pool(const float* spread, float* work, float* out) const override {
    float *const rows = work, *const columns = work + plane_;
    take(kernel_[2], plane_, [&](Index k) { return spread + place_x(k); }, rows);
    for (Index z = 0; z < padded_[0]; ++z)
      take(kernel_[1], results(), [&](Index k) { return rows + z * slice_ + place_y(k); }, columns + z * results());
    for (Index z = 0; z < out_[0]; ++z) {
      const float* from = columns + z * strides_[0] * results();
      if (kernel_[0] != 1) {
        take(kernel_[0], results(), [&](Index k) { return from + k * dilations_[0] * results(); }, rows);
        from = rows;
      }
      for (Index y = 0; y < out_[1]; ++y, out += out_[2]) std::copy_n(from + y * phase_[2], out_[2], out);
    }
  }

  /// The largest of `count` rows of `size` elements.
  template <typename Row>
  static void take(Index count, Index size, const Row& row, float* out) {
    for_parts(size, [&](Index at, Index part) {
      std::copy_n(row(0) + at, part, out + at);
      for (Index k = 1; k < count; ++k) keep_larger<first>(out + at, row(k) + at, part);
    });
  }
};

/// Sums run over the window from its first element on.
template <typename Sum>
class DenseAveragePool final : public DensePool {
 public:
  explicit DenseAveragePool(const PoolSpec& spec)
      : DensePool(spec, 0), with_pads_(spec.form == ops::PoolForm::kAverageIncludingPads) {
    for (Index x = 0; x < out_[2]; ++x) counts_.push_back(static_cast<float>(count_inside(2, x)));
    some_empty_ = std::ranges::count(counts_, 0.0F) != 0;
  }
  std::string name() const override { return "means of windows"; }

 private:
  /// One long row is faster where outputs lie as the inputs do, and where windows overlap.
  bool pool_in_place(const float* image, float* work, float* out) const override {
    if (strides_[2] == 1 || kernel_[2] > strides_[2]) return false;
    Sum* const sums = sums_in(work);
    std::vector<const float*> rows;
    for (Index z = 0; z < out_[0]; ++z)
      for (Index y = 0; y < out_[1]; ++y, out += out_[2]) {
        std::fill_n(sums, out_[2], Sum{});
        rows.clear();
        for_rows(z, y, [&](Index row) { rows.push_back(image + row * in_[2]); });
        for_clipped([&](Index x, Index begin, Index end) {
          for (const float* row : rows)
            for (Index i = begin; i < end; ++i) sums[x] += static_cast<Sum>(row[i]);
        });
        for (const float*& row : rows) row += first_element();
        with_window(kernel_[2], strides_[2], [&](auto kernel, auto step) {
          add_windows<Sum, kernel, step>(rows.data(), static_cast<Index>(rows.size()), last_ - first_, sums + first_);
        });
        store(z, y, sums, out);
      }
    return true;
  }
  Sum* sums_in(float* work) const {
    return reinterpret_cast<Sum*>(work + (reinterpret_cast<std::uintptr_t>(work) % sizeof(Sum) != 0 ? 1 : 0));
  }
  void store(Index z, Index y, const Sum* sums, float* out) const {
    const Index read = count_inside(0, z) * count_inside(1, y);
    divide(sums, counts_.data(), static_cast<float>(read), out_[2], out);
    for (Index x = 0; x < out_[2] && (some_empty_ || read == 0); ++x)
      if (read == 0 || counts_[x] == 0) out[x] = 0;
  }
  Index work_size() const override { return results() * static_cast<Index>(sizeof(Sum) / sizeof(float)) + 1; }
  void pool(const float* spread, float* work, float* out) const override {
    Sum* const sums = sums_in(work);
    std::vector<const float*> places;
    for (Index z = 0; z < out_[0]; ++z) {
      places.clear();
      for (Index kz = 0; kz < kernel_[0]; ++kz)
        for (Index ky = 0; ky < kernel_[1]; ++ky)
          for (Index kx = 0; kx < kernel_[2]; ++kx)
            places.push_back(spread + place_x(kx) + (z * strides_[0] + kz * dilations_[0]) * slice_ + place_y(ky));
      for_parts(results(), [&](Index at, Index part) {
        std::fill_n(sums + at, part, Sum{});
        std::size_t i = 0;
        for (; i + 4 <= places.size(); i += 4) add_four(places.data() + i, at, part, sums + at);
        for (; i < places.size(); ++i) add(sums + at, places[i] + at, part);
      });
      for (Index y = 0; y < out_[1]; ++y, out += out_[2]) store(z, y, sums + y * phase_[2], out);
    }
  }

  /// Places of the window along a dimension that count.
  Index count_inside(std::size_t d, Index at) const {
    if (with_pads_) return kernel_[d];
    const ops::OutputRange inside = ops::valid_outputs(kernel_[d], in_[d], dilations_[d], at * strides_[d] - pads_[d]);
    return std::max<Index>(0, inside.end - inside.begin);
  }

  const bool with_pads_;
  std::vector<float> counts_;  ///< Of a row, for each of its outputs.
  bool some_empty_ = false;    ///< Some are 0.
};

}  // namespace

ULPSCOPE_VECTOR_CLONES bool any_nan(const float* in, std::int64_t count) {
  std::int32_t found = 0;
  for (std::int64_t i = 0; i < count; ++i) found |= static_cast<std::int32_t>(in[i] != in[i]);
  return found != 0;
}

std::unique_ptr<Kernel> make_dense_pool_kernel(const PoolSpec& spec) {
  const bool deep = spec.input.size() == 5;
  if (spec.form == ops::PoolForm::kMax && deep) return std::make_unique<DenseMaxPool<true>>(spec);
  if (spec.form == ops::PoolForm::kMax) return std::make_unique<DenseMaxPool<false>>(spec);
  if (deep || ops::averages_in_double(spec.kernel)) return std::make_unique<DenseAveragePool<double>>(spec);
  return std::make_unique<DenseAveragePool<float>>(spec);
}

}  // namespace ulpscope::cpu
