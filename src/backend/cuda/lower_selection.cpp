// Layers that choose among elements, put them elsewhere or say something of each: gathers, scatters, pads, conditions.
#include <fmt/format.h>

#include "backend/cuda/layers.h"
#include "backend/cuda/trace.h"
#include "backend/reference_kernel.h"
#include "ops/placing.h"
#include "ops/predicates.h"
#include "ulpscope/error.h"

namespace ulpscope::cuda {
namespace {

/// Throws for an index outside of a dimension, as the operator does.
std::unique_ptr<Kernel> index_check(const Layer& layer, std::int64_t size) {
  return make_kernel("check of indices", [&layer, size](Kernel::Inputs inputs, Kernel::Outputs) {
    const Tensor indices = inputs[0]->cast(DataType::kInt64);
    for (std::int64_t index : indices.values<std::int64_t>())
      if (index < -size || index >= size)
        throw Error(ErrorCode::kInvalidArgument, fmt::format("index {} is outside of [{}, {}]", index, -size, size - 1),
                    place_of("run", layer));
  });
}

/// The places that a GatherElements or GatherND takes elements or slices from, as row-major numbers: the operator
/// itself, on numbers. Throws for an index outside of its dimension, as the operator does. `dims`: the leading
/// dimensions of the data that an index chooses a place of.
std::unique_ptr<Kernel> places_of_indices(const Layer& layer, const Shape& dims) {
  return make_kernel("places of indices",
                     [kernel = make_reference_kernel(layer, {DataType::kInt32}, {Rounding::kNone}, false),
                      numbers = numbered(DataType::kInt32, dims, 0)](Kernel::Inputs inputs, Kernel::Outputs outputs) {
                       const Tensor* const both[]{&numbers, inputs[0]};
                       kernel->run(both, outputs);
                     });
}

}  // namespace

bool Layers::lower_gather(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const TensorId data = l.inputs[0];
  const auto axis = ops::gather_axis(l, static_cast<std::int64_t>(spec_.shape(data)->size()));
  if (!axis || kernel.outputs[0].exact || spec_.is_constant(l.inputs[1])) return false;
  // An index outside of the dimension has to be an error, which a kernel on the device cannot raise.
  const int on_host = memory_.host_of(l.inputs[1]);
  if (on_host < 0) return false;
  steps_.add(HostStep{index_check(l, shape(data)[static_cast<std::size_t>(*axis)]), {on_host}, {}});
  const View from = memory_.device_view(kernel.operands[0]), indices = memory_.device_view(kernel.operands[1]);
  const View to = memory_.define(kernel.outputs[0], ops::strides_of(shape(l.outputs[0])));
  steps_.add_kernel(gather_source(strided(from, shape(data)), strided(indices, shape(l.inputs[1])),
                                  strided(to, shape(l.outputs[0])), *axis),
                    {pointer(from), pointer(indices)}, to);
  return true;
}

/// GatherElements and GatherND by indices that are on the host: their places are found there, in one dimension.
bool Layers::lower_chosen(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const TensorId data = l.inputs[0];
  if (l.inputs.size() != 2 || kernel.outputs[0].exact || spec_.is_constant(l.inputs[1])) return false;
  const auto leading = ops::gathered_dimensions(l, shape(data), shape(l.inputs[1]));
  constexpr std::int64_t kMostPlaces = std::int64_t{1} << 24;  // They are numbered on the host.
  if (!leading || *leading > shape(data).size()) return false;
  const auto split = shape(data).begin() + static_cast<std::ptrdiff_t>(*leading);
  const Shape chosen(shape(data).begin(), split), slice(split, shape(data).end());
  const int on_host = memory_.host_of(l.inputs[1]);
  if (on_host < 0 || num_elements(chosen) > kMostPlaces) return false;
  const Shape& to = shape(l.outputs[0]);
  const Shape rows(to.begin(), to.end() - static_cast<std::ptrdiff_t>(slice.size()));
  const int places = steps_.new_host(DataType::kInt32, rows);
  steps_.add(HostStep{places_of_indices(l, chosen), {on_host}, {places}});
  const View at = steps_.new_view(DataType::kInt32, rows, ops::strides_of(rows));
  steps_.add(UploadStep{places, pointer(at)});
  const DataType type = memory_.device_view(kernel.operands[0]).type;
  const View from =
      memory_.read_as({data, Rounding::kNone, kernel.operands[0].first}, type, ops::strides_of(shape(data)));
  const View result = memory_.define(kernel.outputs[0], ops::strides_of(to));
  Shape flat = slice;
  flat.insert(flat.begin(), num_elements(chosen));
  steps_.add_kernel(gather_source({from.type, flat, ops::strides_of(flat)}, strided(at, rows), strided(result, to), 0),
                    {pointer(from), pointer(at)}, result);
  return true;
}

/// Layers that put something around the elements of input 0, or leave some out.
bool Layers::lower_placed(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const TensorId input = l.inputs[0];
  const Store& store = kernel.outputs[0];
  if (spec_.is_constant(input) || store.exact) return false;
  const auto placed = ops::placed_axes(l, shape(input), spec_.type(input), spec_.known_inputs(l));
  if (!placed) return false;
  if (placed->axes.empty()) return keep_elements(kernel);
  const View from = memory_.device_view(kernel.operands[0]);
  const Shape& to = shape(l.outputs[0]);
  std::vector<Pointer> reads{pointer(from)};
  std::vector<std::size_t> axes;
  for (const ops::PlacedAxis& a : placed->axes) {
    axes.push_back(static_cast<std::size_t>(a.axis));
    reads.push_back(pointer(memory_.constant_view(a.index, DataType::kInt32)));
  }
  const View result = memory_.define(store, strides_in_order_of(shape(input), from.strides, to));
  steps_.add_kernel(
      place_source(strided(from, shape(input)), strided(result, to), axes, placed->fill.cast(result.type)),
      std::move(reads), result);
  return true;
}

/// Layers whose results are elements of one input or two, at places that are known: asks the operator itself which.
bool Layers::lower_merged(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const std::vector<std::size_t> merged = ops::merged_inputs(l);
  if (merged.empty() || kernel.outputs[0].exact) return false;
  std::vector<Shape> shapes;
  std::vector<Tensor> parameters(l.inputs.size());
  std::string key = fmt::format("{}{}|merged", weights_.scope(), kernel.layer.number());
  for (std::size_t i = 0; i < l.inputs.size(); ++i) {
    if (l.inputs[i] == kNone) continue;
    if (std::ranges::find(merged, i) != merged.end()) {
      shapes.push_back(shape(l.inputs[i]));
      key += " " + to_string(shapes.back());
      continue;
    }
    if (!spec_.is_constant(l.inputs[i])) return false;
    parameters[i] = spec_.value(l.inputs[i]);
    key += fmt::format(" {} {}", i, constants_.key(l.inputs[i]));
  }
  const auto places = std::static_pointer_cast<const Tensor>(weights_.get_object(key, [&] {
    auto made = std::make_shared<Tensor>(trace_merged(l, merged, shapes, std::move(parameters)).value_or(Tensor()));
    const std::size_t bytes = *made ? made->bytes() : 0;
    return PreparedObject{std::move(made), bytes};
  }));
  if (!*places) return false;
  const View at = memory_.constant_view(*places, key, DataType::kInt64);
  std::vector<View> views;
  for (const std::size_t i : merged) {
    const Operand& operand = kernel.operands[i];
    const DataType type = memory_.device_view(operand).type;
    views.push_back(memory_.read_as({operand.tensor, Rounding::kNone, operand.first}, type,
                                    ops::strides_of(shape(operand.tensor))));
  }
  const Shape& to = shape(l.outputs[0]);
  const View result = memory_.define(kernel.outputs[0], ops::strides_of(to));
  const View &a = views.front(), &b = views.back();
  steps_.add_kernel(merge_source(strided(a, shapes.front()), strided(b, shapes.back()), strided(result, to)),
                    {pointer(at), pointer(a), pointer(b)}, result);
  return true;
}

bool Layers::lower_where(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  if (!ops::is_where(l) || kernel.outputs[0].exact || !spec_.is_held_as_float(l.outputs[0])) return false;
  const Shape& to = shape(l.outputs[0]);
  std::vector<View> views;
  std::vector<Pointer> reads;
  std::vector<StridedTensor> operands;
  for (const Operand& operand : kernel.operands) {
    views.push_back(memory_.device_view({operand.tensor, Rounding::kNone, operand.first}));
    const Shape& dims = shape(operand.tensor);
    reads.push_back(pointer(views.back()));
    operands.push_back({views.back().type, to, broadcast_strides(dims, views.back().strides, to)});
  }
  const View result = memory_.define(kernel.outputs[0], ops::strides_of(to));
  steps_.add_kernel(where_source(operands[0], operands[1], operands[2], strided(result, to)), std::move(reads), result);
  return true;
}

/// Conditions: bool per element, of floats or of what is on the device.
bool Layers::lower_predicate(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const auto predicate = ops::predicate_of(l);
  if (!predicate || kernel.outputs[0].exact || kernel.operands.size() > 2) return false;
  const Shape& to = shape(l.outputs[0]);
  std::vector<Pointer> reads;
  std::vector<StridedTensor> inputs;
  std::vector<Rounding> load;
  for (const Operand& operand : kernel.operands) {
    if (operand.tensor == kNone || operand.is_encoded()) return false;
    const View view = memory_.device_view(operand);
    reads.push_back(pointer(view));
    inputs.push_back({view.type, to, broadcast_strides(shape(operand.tensor), view.strides, to)});
    load.push_back(missing_rounding(view.type, operand.rounding));
  }
  const View result = memory_.define(kernel.outputs[0], ops::strides_of(to));
  steps_.add_kernel(predicate_source(inputs, load, strided(result, to), *predicate), std::move(reads), result);
  return true;
}

bool Layers::lower_cumulative(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  if (!spec_.is_held_as_float(l.inputs[0]) || spec_.is_constant(l.inputs[0])) return false;
  if (kernel.operands[0].is_encoded() || kernel.outputs[0].exact) return false;
  const Shape& dims = shape(l.inputs[0]);
  const auto form = ops::cumulative_form(l, static_cast<std::int64_t>(dims.size()), spec_.known_inputs(l));
  if (!form) return false;
  const View from = memory_.device_view(kernel.operands[0]);
  const View to = memory_.define(kernel.outputs[0], strides_in_order_of(dims, from.strides, dims));
  steps_.add_kernel(cumulative_source(strided(from, dims), strided(to, dims), *form, kernel.operands[0].rounding,
                                      kernel.outputs[0].rounding),
                    {pointer(from)}, to);
  return true;
}

}  // namespace ulpscope::cuda
