#include "backend/cuda/trace.h"

#include <algorithm>

#include "backend/cuda/view.h"
#include "backend/reference_kernel.h"
#include "ulpscope/error.h"

namespace ulpscope::cuda {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 26, kMostFloats = std::int64_t{1} << 24;

/// Strides that lead from every element to its place, when there are such.
std::optional<std::vector<std::int64_t>> strides_of(const std::int64_t* places, const Shape& shape) {
  const std::vector<std::int64_t> dense = ops::strides_of(shape);
  std::vector<std::int64_t> strides(shape.size(), 0);
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (shape[d] > 1) strides[d] = places[dense[d]] - places[0];
  // Rows at a time: a row begins where its index says, and goes on by the innermost stride.
  const std::size_t rank = shape.size();
  const std::int64_t length = rank == 0 ? 1 : shape[rank - 1], step = rank == 0 ? 0 : strides[rank - 1];
  for (std::int64_t row = 0; row * length < num_elements(shape); ++row) {
    std::int64_t expected = places[0], rest = row;
    for (std::size_t d = rank == 0 ? 0 : rank - 1; d-- > 0; rest /= shape[d]) expected += rest % shape[d] * strides[d];
    for (std::int64_t i = 0; i < length; ++i)
      if (places[row * length + i] != expected + i * step) return std::nullopt;
  }
  return strides;
}

/// What the operator makes of inputs whose elements are numbers, all of this type; nothing where it refuses.
std::optional<std::vector<Tensor>> run_on_numbers(const Layer& layer, const std::vector<Tensor>& parameters,
                                                  DataType type) {
  std::vector<const Tensor*> in;
  for (const Tensor& tensor : parameters) in.push_back(tensor ? &tensor : nullptr);
  std::vector<DataType> types;
  std::vector<Tensor> results(layer.outputs.size());
  std::vector<Tensor*> out;
  for (std::size_t o = 0; o < results.size(); ++o) {
    types.push_back(layer.outputs[o] == kNone ? DataType::kUndefined : type);
    out.push_back(layer.outputs[o] == kNone ? nullptr : &results[o]);
  }
  try {
    make_reference_kernel(layer, types, std::vector<Rounding>(types.size(), Rounding::kNone), false)->run(in, out);
  } catch (const Error&) {
    return std::nullopt;
  }
  return results;
}

/// Per output the row-major index of the element of input 0 that each of its elements is, int32.
std::optional<std::vector<Tensor>> trace_elements(const Layer& layer, const Shape& input,
                                                  std::vector<Tensor> parameters, bool as_floats) {
  if (num_elements(input) > (as_floats ? kMostFloats : kMostElements)) return std::nullopt;
  const DataType type = as_floats ? DataType::kFloat32 : DataType::kInt32;
  parameters[0] = numbered(type, input, 0);
  auto results = run_on_numbers(layer, parameters, type);
  if (results && as_floats)
    for (Tensor& result : *results)
      if (result) result = result.cast(DataType::kInt32);
  return results;
}

Trace places_of(const Tensor& elements, const Shape& input, std::span<const std::int64_t> strides) {
  Trace trace;
  if (!elements || elements.size() == 0) return trace;
  const Shape& output = elements.shape();
  trace.places = Tensor(DataType::kInt64, output);
  std::int64_t* places = trace.places.data<std::int64_t>();
  const bool dense = same_places(input, strides, ops::strides_of(input));
  for (std::int64_t i = 0; i < elements.size(); ++i) {
    std::int64_t rest = elements.data<std::int32_t>()[i], place = dense ? rest : 0;
    for (std::size_t d = dense ? 0 : input.size(); d-- > 0; rest /= input[d]) place += rest % input[d] * strides[d];
    places[i] = place;
  }
  trace.strides = strides_of(places, output);
  const auto [low, high] = std::minmax_element(places, places + elements.size());
  trace.extent = *high - *low + 1;
  trace.offset = trace.strides ? places[0] : *low;
  if (trace.strides)
    trace.places = {};
  else
    std::for_each(places, places + elements.size(), [first = trace.offset](std::int64_t& place) { place -= first; });
  return trace;
}

}  // namespace

Tensor numbered(DataType type, const Shape& shape, std::int64_t first) {
  Tensor numbers(type, shape);
  for (std::int64_t i = 0; i < numbers.size(); ++i)
    if (type == DataType::kFloat32)
      numbers.data<float>()[i] = static_cast<float>(first + i);
    else
      numbers.data<std::int32_t>()[i] = static_cast<std::int32_t>(first + i);
  return numbers;
}

std::vector<Trace> trace_places(const Layer& layer, const Shape& input, std::vector<Tensor> parameters, bool as_floats,
                                std::span<const std::int64_t> strides) {
  std::vector<Trace> traces;
  if (const auto elements = trace_elements(layer, input, std::move(parameters), as_floats))
    for (const Tensor& of_output : *elements) traces.push_back(places_of(of_output, input, strides));
  return traces;
}

std::optional<Tensor> trace_merged(const Layer& layer, std::span<const std::size_t> merged,
                                   std::span<const Shape> shapes, std::vector<Tensor> parameters) {
  // Counted from 1 on: zeros are those of the operator.
  std::int64_t count = 1;
  for (std::size_t i = 0; i < merged.size(); ++i) {
    if (count + num_elements(shapes[i]) > kMostElements) return std::nullopt;
    parameters[merged[i]] = numbered(DataType::kInt32, shapes[i], count);
    count += num_elements(shapes[i]);
  }
  const auto results = run_on_numbers(layer, parameters, DataType::kInt32);
  if (!results) return std::nullopt;
  Tensor places = (*results)[0].cast(DataType::kInt64);
  for (std::int64_t i = 0; i < places.size(); ++i) --places.data<std::int64_t>()[i];
  return places;
}

}  // namespace ulpscope::cuda
