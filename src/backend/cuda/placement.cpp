#include "backend/cuda/placement.h"

#include <fmt/format.h>

#include <utility>

#include "backend/conversion.h"
#include "backend/cuda/kernel_cache.h"
#include "ulpscope/error.h"

namespace ulpscope::cuda {

DataType type_of(Rounding rounding) {
  if (rounding == Rounding::kF16) return DataType::kFloat16;
  return rounding == Rounding::kBF16 ? DataType::kBFloat16 : DataType::kFloat32;
}

Rounding missing_rounding(DataType type, Rounding rounding) {
  return is_exact(type, rounding) ? Rounding::kNone : rounding;
}

Pointer pointer(const View& view) { return {view.buffer, view.offset * static_cast<std::int64_t>(size_of(view.type))}; }

DataType Placement::stored_type(const Store& store) const {
  const DataType declared = physical_type(spec_.type(store.tensor));
  return declared == DataType::kFloat32 ? type_of(store.rounding) : declared;
}

View Placement::define(const Store& store, std::vector<std::int64_t> strides) {
  if (store.row_sums) {
    View view = steps_.new_view(DataType::kFloat32, shape_of(spec_, store), std::move(strides));
    row_sums_[store.tensor].device = view;
    return view;
  }
  View view = steps_.new_view(stored_type(store), shape(store.tensor), std::move(strides));
  locations_[store.tensor].device = view;
  return view;
}

View Placement::define_output(const Store& store) {
  const Shape& dims = shape(store.tensor);
  leaving_.insert(store.tensor);
  View view = steps_.new_view(spec_.type(store.tensor), dims, ops::strides_of(dims));
  locations_[store.tensor].device = view;
  return view;
}

std::optional<View> Placement::define_exact(const Store& store, std::vector<std::int64_t> strides) {
  if (!store.exact) return std::nullopt;
  View view = steps_.new_view(DataType::kFloat32, shape(store.tensor), std::move(strides));
  exact_[store.tensor].device = view;
  return view;
}

void Placement::place(TensorId id, View view, const Shape& dims, std::vector<std::int64_t> order) {
  Location& location = locations_[id];
  if (auto plain = reshaped_strides(dims, view.strides, shape(id))) {
    view.strides = std::move(*plain);
    location.device = std::move(view);
  } else {
    location.fine = {std::move(view), dims};
    location.order = std::move(order);
  }
}

std::pair<View, Shape> Placement::fine_view(const Operand& operand) {
  if (!spec_.is_constant(operand.tensor))
    if (const Location& found = location(operand); !found.device && found.fine) return *found.fine;
  View view = device_view(operand);
  return {std::move(view), shape(operand.tensor)};
}

std::vector<std::int64_t> Placement::order_of(const Operand& operand) {
  const Location& found = location(operand);
  return found.order.empty() ? ops::strides_of(shape(operand.tensor)) : found.order;
}

bool Placement::alias(const Store& store, View view) {
  if (store.exact || !is_exact(view.type, store.rounding)) return false;
  locations_[store.tensor].device = std::move(view);
  return true;
}

Placement::Location& Placement::location(const Operand& operand) {
  Location& found = operand.exact      ? exact_.at(operand.tensor)
                    : operand.row_sums ? row_sums_.at(operand.tensor)
                                       : locations_[operand.tensor];
  if (!found.device && found.host < 0 && !found.fine)
    throw InternalError(fmt::format("'{}' is read before it is computed", spec_.network->tensor(operand.tensor).name));
  return found;
}

View Placement::constant_view(const Tensor& value, const std::string& key, DataType type) {
  View view = steps_.constant_memory(key, type, [&value] { return value; });
  view.strides = ops::strides_of(value.shape());
  return view;
}

View Placement::constant_view(const Tensor& value, DataType type) {
  return constant_view(value, hash_of({static_cast<const char*>(value.raw()), value.bytes()}), type);
}

View Placement::constant_view(const Operand& operand, DataType type) {
  return constant_view(constants_.get(operand), constants_.key(operand), type);
}

View Placement::device_view(const Operand& operand) {
  const TensorId id = operand.tensor;
  if (spec_.is_constant(id)) {
    const Operand as_stored{id, Rounding::kNone, operand.first};
    const Tensor& value = spec_.value(id);
    return constant_view(as_stored, value.type());
  }
  Location& found = location(operand);
  if (!found.device && found.fine) {
    // No strides of its own: the elements go where they have some.
    const auto& [from, dims] = *found.fine;
    const std::vector<std::int64_t> order = order_of(operand);
    View dense = copied(from, dims, from.type, Rounding::kNone, finer_strides(shape(id), order, dims), id);
    dense.strides = order;
    found.device = dense;
  }
  if (!found.device) {
    const HostValue& value = steps_.host(found.host);
    View view = steps_.new_view(value.type, value.shape, ops::strides_of(value.shape));
    steps_.add(UploadStep{found.host, pointer(view)});
    found.device = view;
  }
  return *found.device;
}

View Placement::copied(const View& from, const Shape& shape, DataType type, Rounding rounding,
                       std::vector<std::int64_t> strides, TensorId of) {
  View to = steps_.new_view(type, shape, std::move(strides));
  if (num_elements(shape) == 0) return to;
  const bool rounds = !is_exact(from.type, rounding);
  if (rounds && (type != type_of(rounding) || rounding == Rounding::kTF32)) {
    ProgramAssembly assembly(shape, 0);
    const Register value = assembly.input(from, from.strides, rounding);
    assembly.output(assembly.program().apply(Instruction::kCopy, value), to, to.strides, Rounding::kNone);
    steps_.add(std::move(assembly).finish());
  } else {
    steps_.add_copy(from, to, shape);
  }
  Step& step = steps_.last();
  step.converts = rounds || from.type != type;
  if (const LayerId maker = step.converts ? LayerId(kNone) : maker_of(of); maker != kNone) step.layer = maker;
  return to;
}

LayerId Placement::maker_of(TensorId id) const {
  if (id == kNone) return kNone;
  const Network& network = *spec_.network;
  LayerId producer = network.tensor(id).producer;
  while (producer != kNone && network.layer(producer).op->precision == PrecisionRule::kMovement &&
         network.layer(producer).input(0) != kNone && !spec_.is_constant(network.layer(producer).input(0)))
    producer = network.tensor(network.layer(producer).input(0)).producer;
  return producer;
}

View Placement::read_as(const Operand& operand, DataType type) {
  if (spec_.is_constant(operand.tensor)) return constant_view(operand, type);
  const View from = device_view(operand);
  if (from.type == type && is_exact(from.type, rounding_left(operand))) return from;
  const Shape& dims = shape(operand.tensor);
  return read_as(operand, type, strides_in_order_of(dims, from.strides, dims));
}

View Placement::read_as(const Operand& operand, DataType type, std::vector<std::int64_t> strides) {
  const Shape& dims = shape(operand.tensor);
  const auto key = std::make_tuple(operand.tensor, operand.exact, type, operand.rounding, strides);
  if (const auto found = copies_.find(key); found != copies_.end()) return found->second;
  const bool constant = spec_.is_constant(operand.tensor);
  if (!constant) {
    // Straight from the finer dimensions.
    const auto [fine, own] = fine_view(operand);
    if (own != dims) {
      View copy = copied(fine, own, type, operand.rounding, finer_strides(dims, strides, own), operand.tensor);
      copy.strides = std::move(strides);
      return copies_[key] = copy;
    }
  }
  const View from = constant ? constant_view(operand, type) : device_view(operand);
  const Rounding rounding = constant ? Rounding::kNone : rounding_left(operand);
  if (from.type == type && is_exact(from.type, rounding) && same_places(dims, from.strides, strides)) return from;
  return copies_[key] = copied(from, dims, type, rounding, std::move(strides), operand.tensor);
}

void Placement::put_output(const Operand& operand, std::size_t number) {
  const Shape& dims = shape(operand.tensor);
  const DataType type = spec_.type(operand.tensor);
  const View there = read_as(operand, type, ops::strides_of(dims));
  if (steps_.give_to_caller(there, dims, number)) return;
  const View to = steps_.callers_view(type, dims, number);
  if (num_elements(dims) > 0) steps_.add_copy(there, to, dims);
}

int Placement::host_value(const Operand& operand) {
  const TensorId id = operand.tensor;
  if (spec_.is_constant(id)) return steps_.host_constant(constants_.get(operand));
  Location& found = location(operand);
  const DataType type = physical_type(spec_.type(id));
  const bool rounds = type == DataType::kFloat32 && operand.rounding != Rounding::kNone;
  if (found.host >= 0 && !rounds) return found.host;
  if (found.host >= 0 && !found.device && !found.fine) {
    // A step that rounds: the reference kernel's rounding is that of its stores, so this one has no other place.
    const int rounded = steps_.new_host(type, spec_.shape(id));
    steps_.add(HostStep{make_rounding_kernel(operand.rounding), {found.host}, {rounded}});
    return rounded;
  }
  const View dense = read_as(operand, type, ops::strides_of(shape(id)));
  const int value = steps_.new_host(type, spec_.shape(id));
  steps_.add(DownloadStep{pointer(dense), value});
  if (!rounds) location(operand).host = value;
  return value;
}

int Placement::host_integers(const Operand& operand) {
  if (spec_.is_constant(operand.tensor)) return steps_.host_constant(constants_.dequantized(steps_.layer(), operand));
  const int source = host_value(operand.plain());
  const int result = steps_.new_host(DataType::kFloat32, spec_.shape(operand.tensor));
  steps_.add(HostStep{operand.is_of_bytes() ? make_quantize_kernel(operand.quantization(), IntegerForm::kDequantized)
                                            : make_element_kernel(*operand.encoding, operand.scale, true),
                      {source},
                      {result}});
  return result;
}

void Placement::define_host(const Store& store, int value) {
  locations_[store.tensor].host = value;
  if (!store.exact) return;
  exact_[store.tensor].host = value;
  const int rounded = steps_.new_host(spec_.type(store.tensor), steps_.host(value).shape);
  steps_.add(HostStep{make_rounding_kernel(store.rounding), {value}, {rounded}});
  locations_[store.tensor].host = rounded;
}

int Placement::buffer_of(TensorId id) const {
  const Location& found = locations_[id];
  return found.device ? found.device->buffer : found.fine ? found.fine->first.buffer : -1;
}

}  // namespace ulpscope::cuda
