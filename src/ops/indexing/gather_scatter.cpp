// Elements and slices that indices choose: read, written, or combined with others.
#include <algorithm>
#include <string>

#include "core/parallel.h"
#include "formats/stored_elements.h"
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"
#include "ops/indexing/element_indices.h"
#include "ops/indexing/slices.h"
#include "ops/movement.h"
#include "ops/placing.h"

namespace ulpscope::ops {
namespace {

/// Fails unless `indices` has the rank of `data` and, outside of `axis`, no dimension is larger.
template <typename Context>
void check_element_indices(const Context& ctx, const Shape& data, const Shape& indices, std::size_t axis) {
  bool fits = data.size() == indices.size();
  for (std::size_t d = 0; fits && d < data.size(); ++d) fits = d == axis || indices[d] <= data[d];
  if (!fits)
    ctx.fail("indices of shape {} do not fit data of shape {} along axis {}", to_string(indices), to_string(data),
             axis);
}

/// The gradient added up in zeros of this shape, at the slices that index tuples choose.
TensorId scatter_slices(AdjointContext& ctx, const Shape& shape, TensorId tuples, TensorId updates) {
  return ctx.add("ScatterND", {zeros(ctx, shape).id, tuples, updates}, {{"reduction", std::string("add")}});
}

void infer_gather(InferContext& ctx) {
  const Shape &data = ctx.shape(0), &indices = ctx.shape(1);
  const auto axis = static_cast<std::ptrdiff_t>(axis_of(ctx, 0));
  Shape result(data.begin(), data.begin() + axis);
  result.insert(result.end(), indices.begin(), indices.end());
  result.insert(result.end(), data.begin() + axis + 1, data.end());
  ctx.set_shape(0, std::move(result));
}

/// out[i] = row[indices[i]].
template <typename Word>
void pick(const Word* __restrict row, const std::int64_t* __restrict indices, std::int64_t count,
          Word* __restrict out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = row[indices[i]];
}

void run_gather(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  Tensor& out = ctx.output(0);
  const auto [outer, size, inner] = around(in.shape(), axis_of(ctx, 0));
  std::vector<std::int64_t> indices = ctx.input_ints(1);
  for (std::int64_t& index : indices) index = normalize_index(ctx, index, size);
  if (out.size() == 0) return;
  const std::int64_t count = static_cast<std::int64_t>(indices.size());
  const std::size_t bytes = static_cast<std::size_t>(inner) * size_of(in.type());
  const std::int64_t grain = std::max<std::int64_t>(1, (1 << 17) / static_cast<std::int64_t>(bytes));
  const auto place = [&](std::int64_t i) {
    return (i / count * size + indices[static_cast<std::size_t>(i % count)]) * inner;
  };
  // Rows of a table that is not in memory.
  const auto source = has_parts(in) ? in.source() : nullptr;
  if (inner == 1 && source == nullptr)
    return with_word(in.type(), [&]<typename Word>(Word) {
      parallel_for(outer * count, grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end;) {
          const std::int64_t row = i / count, first = i % count, some = std::min(count - first, end - i);
          const Word* const from = static_cast<const Word*>(in.raw()) + row * size;
          if (some > size / 8 && row + 1 < outer) prefetch_row(from + size, size);
          pick(from, indices.data() + first, some, static_cast<Word*>(out.raw()) + i);
          i += some;
        }
      });
    });
  parallel_for(outer * count, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t from = place(i);
      if (source != nullptr)
        source->read(from, inner, element(out, i * inner));
      else
        std::memcpy(element(out, i * inner), element(in, from), bytes);
    }
  });
}

void adjoint_gather(AdjointContext& ctx) {
  if (!ctx.wants(0)) return;
  const Shape &shape = ctx.input_shape(0), &places = ctx.input_shape(1);
  const auto rank = static_cast<std::int64_t>(shape.size()), chosen = static_cast<std::int64_t>(places.size());
  const auto d = axis_of(ctx, 0);
  const auto axis = static_cast<std::int64_t>(d);
  const Value g = gradient(ctx);
  // One place known beforehand: zeros around it.
  if (const Tensor* known = ctx.input_value(1); known != nullptr && known->size() == 1) {
    const std::int64_t index = normalize_index(ctx, ctx.input_ints(1)[0], shape[d]);
    std::vector<std::int64_t> front(shape.size(), 0), back(shape.size(), 0);
    Shape one = shape;
    one[d] = 1;
    front[d] = index;
    back[d] = shape[d] - 1 - index;
    return ctx.set(0, pad(reshape(g, one), front, back).id);
  }
  // With the axis in front, rows are added up at their places.
  std::vector<std::int64_t> forwards, backwards;
  for (std::int64_t k = 0; k < chosen; ++k) forwards.push_back(axis + k);
  for (std::int64_t k = 0; k < rank + chosen - 1; ++k)
    if (k < axis || k >= axis + chosen) forwards.push_back(k);
  Shape rows = shape;
  std::rotate(rows.begin(), rows.begin() + axis, rows.begin() + axis + 1);
  for (std::int64_t k = 0; k < rank; ++k) backwards.push_back(k == axis ? 0 : k < axis ? k + 1 : k);
  Shape pointers = places;
  pointers.push_back(1);
  const TensorId sums = scatter_slices(ctx, rows, ctx.reshape(ctx.input(1), pointers), transpose(g, forwards).id);
  ctx.set(0, transpose({&ctx, sums}, backwards).id);
}

void infer_gather_elements(InferContext& ctx) {
  ctx.set_shape(0, ctx.shape(1));
  check_element_indices(ctx, ctx.shape(0), ctx.shape(1), axis_of(ctx, 0));
}

void run_gather_elements(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  void* out = ctx.output(0).raw();
  const ElementIndices indices(ctx, in.shape());
  std::atomic<bool> fit = true;
  with_word(in.type(), [&]<typename Word>(Word) {
    const std::int64_t rows = indices.rows();
    parallel_for(rows, items_per_task(rows, ctx.output(0).shape().back()), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        if (!indices.gather(row, static_cast<const Word*>(in.raw()), static_cast<Word*>(out))) fit = false;
    });
  });
  if (!fit) indices.check();
}

void adjoint_gather_elements(AdjointContext& ctx) {
  if (!ctx.wants(0)) return;
  ctx.set(0, scatter_add(gradient(ctx), ctx.input(1), ctx.input_shape(0), axis_of(ctx, 0)).id);
}

struct GatherLayout {
  std::size_t batch_dims;
  std::size_t depth;  ///< Length of an index tuple.
};

template <typename Context>
GatherLayout gather_layout(const Context& ctx, const Shape& data, const Shape& indices) {
  const std::int64_t batch = ctx.attributes().integer("batch_dims", 0);
  const auto fits = [&] {
    if (batch < 0 || batch >= static_cast<std::int64_t>(std::min(data.size(), indices.size()))) return false;
    if (indices.back() < 0 || indices.back() > static_cast<std::int64_t>(data.size()) - batch) return false;
    return std::equal(data.begin(), data.begin() + batch, indices.begin());
  };
  if (!fits())
    ctx.fail("indices of shape {} do not fit data of shape {} with batch_dims {}", to_string(indices), to_string(data),
             batch);
  return {static_cast<std::size_t>(batch), static_cast<std::size_t>(indices.back())};
}

void infer_gather_nd(InferContext& ctx) {
  const Shape &data = ctx.shape(0), &indices = ctx.shape(1);
  const GatherLayout layout = gather_layout(ctx, data, indices);
  Shape result(indices.begin(), indices.end() - 1);
  result.insert(result.end(), data.begin() + static_cast<std::ptrdiff_t>(layout.batch_dims + layout.depth), data.end());
  ctx.set_shape(0, std::move(result));
}

void run_gather_nd(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  Tensor& out = ctx.output(0);
  const Shape& data = in.shape();
  const auto [batch_dims, depth] = gather_layout(ctx, data, ctx.input(1).shape());
  if (out.size() == 0) return;
  const std::int64_t slice = product(data, batch_dims + depth, data.size());
  const Slices slices(ctx, data, batch_dims);
  if (slice == 1)
    return with_word(in.type(), [&]<typename Word>(Word) {
      slices.for_each<false>(
          [&](std::int64_t row, std::int64_t from) { store_word(out.raw(), row, load_word<Word>(in.raw(), from)); });
    });
  const std::size_t bytes = static_cast<std::size_t>(slice) * size_of(in.type());
  slices.for_each<false>(
      [&](std::int64_t row, std::int64_t from) { std::memcpy(element(out, row * slice), element(in, from), bytes); });
}

void adjoint_gather_nd(AdjointContext& ctx) {
  if (!ctx.wants(0)) return;
  const Shape &data = ctx.input_shape(0), &indices = ctx.input_shape(1);
  const auto [batch_dims, depth] = gather_layout(ctx, data, indices);
  // The dimensions of the batch are one more index in front of each tuple.
  const std::int64_t batches = product(data, 0, batch_dims), tuples = product(indices, batch_dims, indices.size() - 1);
  Tensor numbers(DataType::kInt64, {batches, tuples, 1});
  for (std::int64_t i = 0; i < numbers.size(); ++i) numbers.data<std::int64_t>()[i] = i / tuples;
  const Value given{&ctx, ctx.reshape(ctx.input(1), {batches, tuples, static_cast<std::int64_t>(depth)})};
  const Value wide{&ctx, ctx.add("Cast", {given.id}, {{"to", std::int64_t{7}}})};
  const Value pointers = concat(ctx, std::array{Value{&ctx, ctx.constant(numbers)}, wide}, 2);
  Shape rows{batches}, updates{batches, tuples};
  rows.insert(rows.end(), data.begin() + static_cast<std::ptrdiff_t>(batch_dims), data.end());
  updates.insert(updates.end(), data.begin() + static_cast<std::ptrdiff_t>(batch_dims + depth), data.end());
  const TensorId sums = scatter_slices(ctx, rows, pointers.id, ctx.reshape(ctx.gradient(0), updates));
  ctx.set(0, ctx.reshape(sums, data));
}

/// target[i] = reduction(target[i], updates[i]) for `count` elements; without a reduction, updates[i].
using Combine = void (*)(void* target, const void* updates, std::int64_t count);

template <typename T, typename Function>
void combine(void* target, const void* updates, std::int64_t count) {
  T* out = static_cast<T*>(target);
  const T* in = static_cast<const T*>(updates);
  for (std::int64_t i = 0; i < count; ++i) out[i] = Function{}(out[i], in[i]);
}

/// Output 0 is as input 0. Fails unless the attribute `reduction` is one that ONNX defines, for elements that it can
/// combine, and the updates (input 2) have the type of the data.
void infer_scatter(InferContext& ctx) {
  require_type_of_first(ctx, {2});
  const std::string name = ctx.attributes().text("reduction", "none");
  if (name != "none" && ctx.type(0) == DataType::kBool) ctx.fail("expected numbers for reduction {}, got bool", name);
  if (name != "none" && name != "add" && name != "mul" && name != "max" && name != "min")
    ctx.fail("expected reduction none, add, mul, max or min, got '{}'", name);
  ctx.set_shape(0, ctx.shape(0));
}

/// For elements of this type. Integers wrap around; NaN wins in max and min.
Combine find_combine(const KernelContext& ctx, DataType type) {
  const std::string name = ctx.attributes().text("reduction", "none");
  Combine result = nullptr;
  if (name == "none") {
    const auto replace = [](auto, auto b) { return b; };
    with_word(type, [&](auto word) { result = combine<decltype(word), decltype(replace)>; });
    return result;
  }
  with_type(NumericTypes{}, ctx, type, [&]<typename T>(T) {
    const auto add = [](T a, T b) { return plus(a, b); };
    const auto mul = [](T a, T b) { return times(a, b); };
    const auto max = [](T a, T b) { return b > a || b != b ? b : a; };
    const auto min = [](T a, T b) { return b < a || b != b ? b : a; };
    result = name == "add"   ? combine<T, decltype(add)>
             : name == "mul" ? combine<T, decltype(mul)>
             : name == "max" ? combine<T, decltype(max)>
                             : combine<T, decltype(min)>;
  });
  return result;
}

void infer_scatter_elements(InferContext& ctx) {
  infer_scatter(ctx);
  if (ctx.shape(1) != ctx.shape(2))
    ctx.fail("indices of shape {} and updates of shape {} differ", to_string(ctx.shape(1)), to_string(ctx.shape(2)));
  check_element_indices(ctx, ctx.shape(0), ctx.shape(1), axis_of(ctx, 0));
}

/// A copy of input 0 in which the elements that input 1 points at are combined with those of input 2, in order.
void run_scatter_elements(KernelContext& ctx) {
  run_copy(ctx);
  const Tensor& updates = ctx.input(2);
  Tensor& out = ctx.output(0);
  const ElementIndices indices(ctx, out.shape());
  indices.check();
  const auto place = [&](const auto& write) {
    for (std::int64_t row = 0; row < indices.rows(); ++row) indices.for_row(row, write);
  };
  if (ctx.attributes().text("reduction", "none") == "none")
    return with_word(out.type(), [&]<typename Word>(Word) {
      place([&](std::int64_t i, std::int64_t to) { store_word(out.raw(), to, load_word<Word>(updates.raw(), i)); });
    });
  const Combine combine = find_combine(ctx, out.type());
  place([&](std::int64_t i, std::int64_t to) { combine(element(out, to), element(updates, i), 1); });
}

/// None for the reductions mul, max and min. `gather` reads where `scatter` writes; both with these attributes.
void adjoint_scatter(AdjointContext& ctx, std::string_view scatter, std::string_view gather,
                     std::initializer_list<std::pair<std::string_view, Attribute>> attributes) {
  const std::string reduction = ctx.attributes().text("reduction", "none");
  if (reduction != "none" && reduction != "add") {
    ctx.leave_out(0);
    return ctx.leave_out(2);
  }
  const TensorId g = ctx.gradient(0);
  const auto without_updates = [&] {
    return ctx.add(scatter, {g, ctx.input(1), zeros(ctx, ctx.input_shape(2)).id}, attributes);
  };
  if (ctx.wants(0)) ctx.set(0, reduction == "add" ? g : without_updates());
  if (ctx.wants(2)) ctx.set(2, ctx.add(gather, {g, ctx.input(1)}, attributes));
}

void adjoint_scatter_elements(AdjointContext& ctx) {
  adjoint_scatter(ctx, "ScatterElements", "GatherElements", {{"axis", ctx.attributes().integer("axis", 0)}});
}
void adjoint_scatter_nd(AdjointContext& ctx) { adjoint_scatter(ctx, "ScatterND", "GatherND", {}); }

void infer_scatter_nd(InferContext& ctx) {
  infer_scatter(ctx);
  const Shape &data = ctx.shape(0), &indices = ctx.shape(1);
  if (indices.empty() || indices.back() > static_cast<std::int64_t>(data.size()))
    ctx.fail("indices of shape {} do not fit data of shape {}", to_string(indices), to_string(data));
  Shape expected(indices.begin(), indices.end() - 1);
  expected.insert(expected.end(), data.begin() + indices.back(), data.end());
  if (ctx.shape(2) != expected)
    ctx.fail("expected updates of shape {}, got {}", to_string(expected), to_string(ctx.shape(2)));
}

void run_scatter_nd(KernelContext& ctx) {
  run_copy(ctx);
  Tensor& out = ctx.output(0);
  const Tensor& updates = ctx.input(2);
  const Shape& data = out.shape();
  const std::int64_t slice = product(data, static_cast<std::size_t>(ctx.input(1).shape().back()), data.size());
  const Slices slices(ctx, data, 0);
  if (slice == 1 && ctx.attributes().text("reduction", "none") == "none")
    return with_word(out.type(), [&]<typename Word>(Word) {
      slices.for_each<true>(
          [&](std::int64_t t, std::int64_t to) { store_word(out.raw(), to, load_word<Word>(updates.raw(), t)); });
    });
  const Combine combine = find_combine(ctx, out.type());
  slices.for_each<true>(
      [&](std::int64_t t, std::int64_t to) { combine(element(out, to), element(updates, t * slice), slice); });
}

template <typename Context>
std::size_t written_axis(const Context& ctx) {
  const std::size_t axis = axis_of(ctx, -2);
  if (axis == 0) ctx.fail("axis 0 is the batch and cannot be written along");
  return axis;
}

void infer_tensor_scatter(InferContext& ctx) {
  const std::string mode = ctx.attributes().text("mode", "linear");
  if (mode != "linear" && mode != "circular") ctx.fail("expected mode linear or circular, got '{}'", mode);
  const Shape &cache = ctx.shape(0), &update = ctx.shape(1);
  require_type_of_first(ctx, {1});
  ctx.set_shape(0, cache);
  const std::size_t axis = written_axis(ctx);
  bool fits = cache.size() == update.size();
  for (std::size_t d = 0; fits && d < cache.size(); ++d)
    fits = d == axis ? update[d] <= cache[d] : update[d] == cache[d];
  if (!fits)
    ctx.fail("an update of shape {} does not fit a cache of shape {} along axis {}", to_string(update),
             to_string(cache), axis);
  if (ctx.has_input(2) && ctx.shape(2) != Shape{cache[0]})
    ctx.fail("expected write_indices of shape {}, got {}", to_string({cache[0]}), to_string(ctx.shape(2)));
}

void run_tensor_scatter(KernelContext& ctx) {
  run_copy(ctx);
  Tensor& out = ctx.output(0);
  const Tensor& update = ctx.input(1);
  if (update.size() == 0) return;
  const Shape& shape = out.shape();
  const std::size_t axis = written_axis(ctx);
  const std::int64_t capacity = shape[axis], length = update.shape()[axis];
  const bool circular = ctx.attributes().text("mode", "linear") == "circular";
  std::vector<std::int64_t> begins(static_cast<std::size_t>(shape[0]), 0);
  if (ctx.has_input(2)) begins = ctx.input_ints(2);
  for (std::int64_t& begin : begins) {
    if (begin < 0 || (!circular && begin > capacity - length))
      ctx.fail("{} entries cannot be written at index {} of a cache of {}", length, begin, capacity);
    begin %= capacity;
  }
  const std::int64_t prefixes = product(shape, 1, axis), row = product(shape, axis + 1, shape.size());
  const std::size_t bytes = static_cast<std::size_t>(row) * size_of(out.type());
  for (std::int64_t p = 0; p < shape[0] * prefixes; ++p) {
    const std::int64_t begin = begins[static_cast<std::size_t>(p / prefixes)];
    for (std::int64_t i = 0; i < length; ++i)
      std::memcpy(element(out, (p * capacity + (begin + i) % capacity) * row), element(update, (p * length + i) * row),
                  bytes);
  }
}

OpDef gather_op(std::string_view name, int since_version, Infer infer, Run run, Adjoint adjoint,
                Function function = Function::kNone) {
  return movement_op({.name = name,
                      .since_version = since_version,
                      .inputs = {2, 2},
                      .types = {kEverything, kIndices},
                      .function = function,
                      .selects = 0b10,
                      .moves_values = true},
                     infer, run, adjoint);
}

OpDef scatter_op(std::string_view name, int since_version, Infer infer, Run run, Adjoint adjoint) {
  return movement_op({.name = name,
                      .since_version = since_version,
                      .inputs = {3, 3},
                      .types = {kEverything, kIndices, kEverything},
                      .selects = 0b10},
                     infer, run, adjoint);
}

}  // namespace

std::vector<std::size_t> merged_inputs(const Layer& layer) {
  const bool scatters = layer.op->run == run_scatter_elements || layer.op->run == run_scatter_nd;
  if (scatters && layer.attributes.text("reduction", "none") == "none") return {0, 2};
  if (layer.op->run == run_tensor_scatter) return {0, 1};
  if (is_triangle(layer)) return {0};
  return {};
}

std::optional<std::size_t> gathered_dimensions(const Layer& layer, const Shape& data, const Shape& indices) {
  if (layer.op->run == run_gather_elements) return data.size();
  if (layer.op->run != run_gather_nd || indices.empty()) return std::nullopt;
  return static_cast<std::size_t>(layer.attributes.integer("batch_dims", 0) + indices.back());
}

OpTable gather_scatter() {
  return {
      // Gather, ai.onnx 1, 11, 13: slices of an axis, chosen by indices; negative ones count from the end.
      gather_op("Gather", 1, infer_gather, run_gather, adjoint_gather, Function::kGather),
      // GatherElements, ai.onnx 11, 13: one element per index along an axis (NumPy's take_along_axis).
      gather_op("GatherElements", 11, infer_gather_elements, run_gather_elements, adjoint_gather_elements),
      // GatherND, ai.onnx 11, 12 (batch_dims), 13: slices chosen by index tuples.
      gather_op("GatherND", 11, infer_gather_nd, run_gather_nd, adjoint_gather_nd),
      // ScatterElements, ai.onnx 11, 13, 16, 18 (reductions): writes or combines one element per index along an axis.
      scatter_op("ScatterElements", 11, infer_scatter_elements, run_scatter_elements, adjoint_scatter_elements),
      // Scatter, ai.onnx 9, 11: its former name.
      scatter_op("Scatter", 9, infer_scatter_elements, run_scatter_elements, adjoint_scatter_elements),
      // ScatterND, ai.onnx 11, 13, 16, 18 (reductions): writes or combines the slices that index tuples choose.
      scatter_op("ScatterND", 11, infer_scatter_nd, run_scatter_nd, adjoint_scatter_nd),
      // TensorScatter, ai.onnx 24: writes new entries into a key or value cache, at a place per sample.
      movement_op({.name = "TensorScatter",
                   .since_version = 24,
                   .inputs = {2, 3},
                   .types = {kEverything, kEverything, kIndices},
                   .selects = 0b100},
                  infer_tensor_scatter, run_tensor_scatter),
  };
}

}  // namespace ulpscope::ops
