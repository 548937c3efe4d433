// One number for each window, or for each channel.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/parallel.h"
#include "core/vector_clones.h"
#include "ops/adjoint_linear.h"
#include "ops/adjoint_values.h"
#include "ops/common.h"
#include "ops/extremes.h"
#include "ops/window.h"

namespace ulpscope::ops {
namespace {

/// For every output position of every plane (batch and channel): calls reduce(plane, output index within the plane,
/// first, last) where first and last are the ranges [first[d], last[d]) of kernel positions that lie inside of the
/// input. Kernel position k of output o reads input o * stride + k * dilation - pads_begin. Does not throw.
template <typename Reduce>
void for_each_window(std::int64_t planes, const Window3& w, Reduce&& reduce) noexcept {
  using Triple = Window3::Triple;
  parallel_for(planes, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t plane = begin; plane < end; ++plane) {
      std::int64_t index = 0;
      Triple at{}, first{}, last{};
      const auto clip = [&](std::size_t d) {
        const std::int64_t offset = at[d] * w.strides[d] - w.pads_begin[d];
        const OutputRange inside = valid_outputs(w.kernel[d], w.input[d], w.dilations[d], offset);
        first[d] = inside.begin;
        last[d] = inside.end;
      };
      for (at[0] = 0; at[0] < w.output[0]; ++at[0]) {
        clip(0);
        for (at[1] = 0; at[1] < w.output[1]; ++at[1]) {
          clip(1);
          for (at[2] = 0; at[2] < w.output[2]; ++at[2], ++index) {
            clip(2);
            reduce(plane, index, at, first, last);
          }
        }
      }
    }
  });
}

/// Calls visit(offset within the input plane) for the kernel positions [first, last) of the window at output `at`.
template <typename Visit>
void visit_window(const Window3& w, const Window3::Triple& at, const Window3::Triple& first,
                  const Window3::Triple& last, Visit&& visit) {
  for (std::int64_t kz = first[0]; kz < last[0]; ++kz) {
    const std::int64_t z = at[0] * w.strides[0] + kz * w.dilations[0] - w.pads_begin[0];
    for (std::int64_t ky = first[1]; ky < last[1]; ++ky) {
      const std::int64_t y = at[1] * w.strides[1] + ky * w.dilations[1] - w.pads_begin[1];
      const std::int64_t row = (z * w.input[1] + y) * w.input[2];
      for (std::int64_t kx = first[2]; kx < last[2]; ++kx)
        visit(row + at[2] * w.strides[2] + kx * w.dilations[2] - w.pads_begin[2]);
    }
  }
}

/// Where reduce() of run_windows is.
struct WindowPlace {
  const Window3::Triple &at, &first, &last;  ///< As for_each_window has them.
  std::int64_t input, output;                ///< Offsets of the plane in input 0, of the element in output 0.
};

/// output 0 = reduce(plane of input 0, geometry, place) for every window.
template <typename Types, typename Reduce>
void run_windows(KernelContext& ctx, const Reduce& reduce) {
  const WindowGeometry g = pool_geometry(ctx.layer(), ctx.input(0).shape());
  const Window3 w = to_window3(ctx.layer(), g);
  const std::int64_t in_volume = Window3::volume(w.input), out_volume = Window3::volume(w.output);
  with_type(Types{}, ctx, ctx.input(0).type(), [&]<typename T>(T) {
    const T* x = ctx.input(0).data<T>();
    T* out = ctx.output(0).data<T>();
    for_each_window(g.batch * g.in_channels, w,
                    [&](std::int64_t plane, std::int64_t index, const auto& at, const auto& first, const auto& last) {
                      const WindowPlace place{at, first, last, plane * in_volume, plane * out_volume + index};
                      out[place.output] = reduce(x + place.input, w, place);
                    });
  });
}

/// Output 0, and output 1 where there is one, have an element for each window.
void infer_pool(InferContext& ctx) {
  ctx.set_type(1, DataType::kInt64);
  const Shape shape = pool_geometry(ctx.layer(), ctx.shape(0)).output_shape();
  ctx.set_shape(0, shape);
  ctx.set_shape(1, shape);
}

/// Kernel positions of the window at `at` that lie inside of the input or its pads: windows that ceil_mode adds reach
/// beyond the pads, and what is there does not count.
std::int64_t positions_with_pads(const Window3& w, const Window3::Triple& at) {
  std::int64_t count = 1;
  for (std::size_t d = 0; d < 3; ++d) {
    const std::int64_t offset = at[d] * w.strides[d];
    const OutputRange r =
        valid_outputs(w.kernel[d], w.pads_begin[d] + w.input[d] + w.pads_end[d], w.dilations[d], offset);
    count *= r.end - r.begin;
  }
  return count;
}

void run_average_pool(KernelContext& ctx) {
  const bool include_pad = ctx.attributes().integer("count_include_pad", 0) != 0;
  run_windows<FloatTypes>(ctx, [&]<typename T>(const T* image, const Window3& w, const WindowPlace& place) {
    double sum = 0;
    std::int64_t count = 0;
    visit_window(w, place.at, place.first, place.last, [&](std::int64_t i) {
      sum += image[i];
      ++count;
    });
    if (include_pad) count = positions_with_pads(w, place.at);
    return count == 0 ? T{} : static_cast<T>(sum) / static_cast<T>(count);
  });
}

void adjoint_average_pool(AdjointContext& ctx) {
  const WindowGeometry g = pool_geometry(ctx.layer(), ctx.input_shape(0));
  const Window3 w = to_window3(ctx.layer(), g);
  const bool include_pad = ctx.attributes().integer("count_include_pad", 0) != 0;
  // One over the number of elements of each window.
  Shape windows{1, 1};
  windows.insert(windows.end(), g.output.begin(), g.output.end());
  Tensor shares(DataType::kFloat64, windows);
  double* share = shares.data<double>();
  for_each_window(1, w, [&](std::int64_t, std::int64_t index, const auto& at, const auto& first, const auto& last) {
    std::int64_t count = 1;
    for (std::size_t d = 0; d < 3; ++d) count *= std::max<std::int64_t>(0, last[d] - first[d]);
    if (include_pad && count > 0) count = positions_with_pads(w, at);
    share[index] = count == 0 ? 0 : 1 / static_cast<double>(count);
  });
  const bool same = std::all_of(share, share + shares.size(), [&](double s) { return s == share[0]; });
  const double factor = same && shares.size() > 0 ? share[0] : 1;
  const Value weighted = same ? gradient(ctx) : gradient(ctx) * Value{&ctx, ctx.constant(shares)};
  ctx.set(0, window_sums_adjoint(weighted, g, factor).id);
}

/// The parts of an Lp norm: the p-th root of the sum of |v|^p.
template <typename T>
T lp_power(T v, std::int64_t p) {
  v = std::abs(v);
  return p == 1 ? v : p == 2 ? v * v : std::pow(v, static_cast<T>(p));
}
template <typename T>
T lp_root(T sum, std::int64_t p) {
  return p == 1 ? sum : p == 2 ? std::sqrt(sum) : std::pow(sum, T{1} / static_cast<T>(p));
}

/// `visit` calls a function with each value.
template <typename T, typename Visit>
T lp_norm(std::int64_t p, const Visit& visit) {
  double sum = 0;
  visit([&](T v) { sum += lp_power(v, p); });
  const T norm = lp_root(static_cast<T>(sum), p);
  if (std::isnormal(norm)) return norm;
  // Where T does not hold the powers or their sum, it may hold the norm.
  sum = 0;
  visit([&](T v) { sum += lp_power(static_cast<double>(v), p); });
  return static_cast<T>(lp_root(sum, p));
}

void run_lp_pool(KernelContext& ctx) {
  const std::int64_t p = ctx.attributes().integer("p", 2);
  run_windows<FloatTypes>(ctx, [&]<typename T>(const T* image, const Window3& w, const WindowPlace& place) {
    return lp_norm<T>(p, [&](const auto& use) {
      visit_window(w, place.at, place.first, place.last, [&](std::int64_t i) { use(image[i]); });
    });
  });
}

/// `spread` gives every element the sum of what the norms that it is part of have.
template <typename Spread>
void adjoint_of_norm(AdjointContext& ctx, const Spread& spread) {
  const double p = static_cast<double>(ctx.attributes().integer("p", 2));
  const Value x = input(ctx, 0), y = output(ctx);
  // |x|^(p - 1) sign(x) y^(1 - p); a norm of 0 counts as 1.
  const Value norm = y + (1 - sign(y));
  const Value share = p == 1 ? gradient(ctx) : gradient(ctx) * (p == 2 ? 1 / norm : power(norm, 1 - p));
  const Value own = p == 1 ? sign(x) : p == 2 ? x : sign(x) * power(abs(x), p - 1);
  ctx.set(0, (own * spread(share)).id);
}

void adjoint_lp_pool(AdjointContext& ctx) {
  adjoint_of_norm(
      ctx, [&](Value share) { return window_sums_adjoint(share, pool_geometry(ctx.layer(), ctx.input_shape(0))); });
}

using PooledTypes = TypeList<float, double, std::int8_t, std::uint8_t>;

void run_max_pool(KernelContext& ctx) {
  const bool column_major = ctx.attributes().integer("storage_order", 0) != 0;
  std::int64_t* indices = ctx.has_output(1) ? ctx.output(1).data<std::int64_t>() : nullptr;
  run_windows<PooledTypes>(ctx, [&]<typename T>(const T* image, const Window3& w, const WindowPlace& place) {
    using Limits = std::numeric_limits<T>;
    T best = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    std::int64_t where = -1;
    visit_window(w, place.at, place.first, place.last, [&](std::int64_t i) {
      // The first of equal elements wins; NaN is larger than everything.
      if (where >= 0 && !(image[i] > best) && image[i] == image[i]) return;
      if (best != best) return;
      best = image[i];
      where = i;
    });
    if (indices == nullptr) return best;
    if (column_major && where >= 0) {
      const std::int64_t column = where % w.input[2], row = where / w.input[2] % w.input[1];
      const std::int64_t slice = where / (w.input[2] * w.input[1]);
      where = (column * w.input[1] + row) * w.input[0] + slice;
    }
    indices[place.output] = where < 0 ? -1 : place.input + where;
    return best;
  });
}

void adjoint_max_pool(AdjointContext& ctx) {
  const WindowGeometry g = pool_geometry(ctx.layer(), ctx.input_shape(0));
  if (ctx.gradient(0) == kNone) return;
  std::vector<std::int64_t> pads = g.pads_begin;
  pads.insert(pads.end(), g.pads_end.begin(), g.pads_end.end());
  const std::vector<TensorId> again = ctx.add_multiple("MaxPool", std::array{ctx.input(0)}, 2,
                                                       {{"kernel_shape", g.kernel},
                                                        {"strides", g.strides},
                                                        {"dilations", g.dilations},
                                                        {"pads", pads},
                                                        {"ceil_mode", ctx.attributes().integer("ceil_mode", 0)}});
  ctx.set(0, scatter_flat(gradient(ctx), {&ctx, again[1]}, ctx.input_shape(0)).id);
}

/// The shape that MaxPool with these attributes would have started from; the indices refer to it.
template <typename Context>
Shape unpooled_shape(const Context& ctx, const Shape& x) {
  const Shape kernel = ctx.attributes().required_ints("kernel_shape");
  const std::size_t rank = kernel.size();
  if (x.size() != rank + 2)
    ctx.fail("'kernel_shape' {} does not fit an input of shape {}", to_string(kernel), to_string(x));
  Shape strides = ctx.attributes().ints("strides"), pads = ctx.attributes().ints("pads");
  if (strides.empty()) strides.assign(rank, 1);
  if (pads.empty()) pads.assign(2 * rank, 0);
  if (strides.size() != rank || pads.size() != 2 * rank)
    ctx.fail("expected {} strides and {} pads, got {} and {}", rank, 2 * rank, strides.size(), pads.size());
  Shape shape{x[0], x[1]};
  for (std::size_t i = 0; i < rank; ++i) {
    std::int64_t size = 0;
    if (__builtin_mul_overflow(x[i + 2] - 1, strides[i], &size) || __builtin_sub_overflow(size, pads[i], &size) ||
        __builtin_sub_overflow(size, pads[i + rank], &size) || __builtin_add_overflow(size, kernel[i], &size) ||
        size < 0)
      ctx.fail("'kernel_shape' {}, strides {} and pads {} do not fit an input of shape {}", to_string(kernel),
               to_string(strides), to_string(pads), to_string(x));
    shape.push_back(size);
  }
  return shape;
}

// Inputs: X, I (int64 indices), output_shape.
void infer_max_unpool(InferContext& ctx) {
  require_type(ctx, 1, DataType::kInt64);
  const Shape shape = unpooled_shape(ctx, ctx.shape(0));
  ctx.set_shape(0, ctx.has_input(2) ? ctx.input_ints(2) : shape);
}

void run_max_unpool(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  const Shape shape = unpooled_shape(ctx, x.shape());
  const Shape& wanted = ctx.output(0).shape();
  if (wanted.size() != shape.size())
    ctx.fail("expected an output shape of {} dimensions, got {}", shape.size(), to_string(wanted));
  const std::int64_t total = num_elements(shape);
  const Tensor& given = ctx.input(1);
  if (given.size() != x.size()) ctx.fail("expected {} indices, one per value, got {}", x.size(), given.size());
  const Tensor converted = given.type() == DataType::kInt64 ? given : given.cast(DataType::kInt64);
  const std::span<const std::int64_t> indices(converted.data<std::int64_t>(), static_cast<std::size_t>(x.size()));
  const auto strides = strides_of(wanted);
  const bool same = wanted == shape;
  with_type(NumericTypes{}, ctx, x.type(), [&]<typename T>(T) {
    const T* in = x.data<T>();
    T* out = ctx.output(0).data<T>();
    std::fill(out, out + ctx.output(0).size(), T{});
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (indices[i] < 0 || indices[i] >= total)
        ctx.fail("index {} is outside of a tensor of shape {}", indices[i], to_string(shape));
      if (same) {
        out[indices[i]] = in[i];
        continue;
      }
      std::int64_t rest = indices[i], at = 0;
      bool inside = true;
      for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d]) {
        inside = inside && rest % shape[d] < wanted[d];
        at += rest % shape[d] * strides[d];
      }
      if (inside) out[at] = in[i];
    }
  });
}

/// (N, C, d...) to (N, C, 1...).
void infer_global_pool(InferContext& ctx) {
  Shape shape = ctx.shape(0);
  if (shape.size() < 2) ctx.fail("expected an input (N, C, ...), got shape {}", to_string(shape));
  for (std::size_t i = 2; i < shape.size(); ++i) shape[i] = 1;
  ctx.set_shape(0, std::move(shape));
}

/// out[plane] = reduce(elements of the plane, their number).
template <typename Reduce>
void run_global_pool(KernelContext& ctx, const Reduce& reduce) {
  const std::int64_t planes = ctx.output(0).size();
  const std::int64_t volume = planes == 0 ? 0 : ctx.input(0).size() / planes;
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&]<typename T>(T) {
    const T* x = ctx.input(0).data<T>();
    T* out = ctx.output(0).data<T>();
    parallel_each(planes, 8, [&](std::int64_t i) { out[i] = reduce(x + i * volume, volume); });
  });
}

constexpr std::int64_t kPlanes = 8;
/// One running sum for each of kPlanes planes.
ULPSCOPE_VECTOR_CLONES void add_planes(const float* x, std::int64_t count, double* out) {
  double sums[kPlanes] = {};
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t p = 0; p < kPlanes; ++p) sums[p] += x[p * count + i];
  std::copy_n(sums, kPlanes, out);
}

/// run_average() of float32, planes side by side.
void run_float_average(const Tensor& in, Tensor& out) {
  const std::int64_t planes = out.size(), count = in.size() / planes, blocks = planes / kPlanes;
  parallel_for(blocks, items_per_task(blocks, kPlanes * count), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * kPlanes; i < end * kPlanes; i += kPlanes) {
      double sums[kPlanes];
      add_planes(in.data<float>() + i * count, count, sums);
      for (std::int64_t p = 0; p < kPlanes; ++p)
        out.data<float>()[i + p] = static_cast<float>(sums[p]) / static_cast<float>(count);
    }
  });
}

void run_average(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  if (in.type() == DataType::kFloat32 && ctx.output(0).size() != 0 && ctx.output(0).size() % kPlanes == 0)
    return run_float_average(in, ctx.output(0));
  run_global_pool(ctx, []<typename T>(const T* x, std::int64_t count) {
    double sum = 0;  // One running sum in float32 drifts where terms are alike.
    for (std::int64_t i = 0; i < count; ++i) sum += x[i];
    return static_cast<T>(sum) / static_cast<T>(count);
  });
}

void adjoint_average(AdjointContext& ctx) {
  const Shape& shape = ctx.input_shape(0);
  ctx.set(0, ctx.broadcast_to(ctx.gradient(0), shape, 1 / static_cast<double>(product(shape, 2, shape.size()))));
}

void run_max(KernelContext& ctx) {
  run_global_pool(ctx, []<typename T>(const T* x, std::int64_t count) {
    if constexpr (std::is_same_v<T, float>) {
      const Extremes found = extremes_of(x, count);
      if (!found.has_nan && found.high != 0) return found.high;  // Else the order matters, for the sign of zero, too.
    }
    T best = -std::numeric_limits<T>::infinity();
    for (std::int64_t i = 0; i < count; ++i)
      if (x[i] > best || x[i] != x[i]) best = x[i];
    return best;
  });
}

void adjoint_max(AdjointContext& ctx) {
  const Value chosen = 1 - abs(sign(input(ctx, 0) - output(ctx)));
  ctx.set(0, (chosen * (gradient(ctx) / sum(chosen, axes_after(2, ctx.input_shape(0).size())))).id);
}

void run_lp(KernelContext& ctx) {
  run_global_pool(ctx, [p = ctx.attributes().integer("p", 2)]<typename T>(const T* x, std::int64_t count) {
    return lp_norm<T>(p, [&](const auto& use) { std::for_each_n(x, count, use); });
  });
}

void adjoint_lp(AdjointContext& ctx) {
  adjoint_of_norm(ctx, [](Value share) { return share; });
}

/// A row of the table.
OpDef global_pool(OpDef op, void (*run)(KernelContext&), void (*adjoint)(AdjointContext&)) {
  op.types = {kFloats};
  op.kind = OpKind::kPooling;
  op.infer = infer_global_pool;
  op.run = run;
  op.adjoint = adjoint;
  return op;
}

}  // namespace

OpTable pooling() {
  return {
      // AveragePool, ai.onnx 1, 7, 10, 11, 19, 22: the mean of each window.
      make_op({.name = "AveragePool", .types = {kFloats}, .kind = OpKind::kPooling, .function = Function::kAveragePool},
              infer_pool, run_average_pool, adjoint_average_pool),
      // LpPool, ai.onnx 1, 2, 11, 18, 22: the Lp norm of each window.
      make_op({.name = "LpPool", .types = {kFloats}, .kind = OpKind::kPooling}, infer_pool, run_lp_pool,
              adjoint_lp_pool),
      // MaxPool, ai.onnx 1, 8, 10, 11, 12, 22: the largest element of each window, and where it was.
      make_op({.name = "MaxPool",
               .outputs = {1, 2},
               .types = {set_of(PooledTypes{})},
               .kind = OpKind::kPooling,
               .function = Function::kMaxPool,
               .exactness = Exactness::kSelects},
              infer_pool, run_max_pool, adjoint_max_pool),
      // MaxUnpool, ai.onnx 9, 11, 22: puts values back to where MaxPool found them; zeros elsewhere.
      movement_op(
          {.name = "MaxUnpool", .since_version = 9, .inputs = {2, 3}, .types = {kNumbers, kIndices}, .weights = 0b100},
          infer_max_unpool, run_max_unpool),
      // GlobalAveragePool, ai.onnx 1, 22: the mean of each channel.
      global_pool({.name = "GlobalAveragePool", .function = Function::kGlobalAveragePool}, run_average,
                  adjoint_average),
      // GlobalMaxPool, ai.onnx 1, 22: the largest element of each channel.
      global_pool({.name = "GlobalMaxPool", .exactness = Exactness::kSelects}, run_max, adjoint_max),
      // GlobalLpPool, ai.onnx 1, 2, 22: the Lp norm of each channel.
      global_pool({.name = "GlobalLpPool"}, run_lp, adjoint_lp),
  };
}

}  // namespace ulpscope::ops
