#include "backend/cuda/lowering.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "backend/conversion.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cuda {

Steps lower(const Specialization& spec, const Schedule& schedule, WeightCache& weights,
            const IdMap<LayerId, GraphFunction>& subgraphs, LoweringTarget& target) {
  return Lowering(spec, schedule, weights, subgraphs, target).run();
}

DataType type_of(Rounding rounding) {
  if (rounding == Rounding::kF16) return DataType::kFloat16;
  return rounding == Rounding::kBF16 ? DataType::kBFloat16 : DataType::kFloat32;
}

Rounding missing_rounding(DataType type, Rounding rounding) {
  return is_exact(type, rounding) ? Rounding::kNone : rounding;
}

Tensor zero_padded(const Tensor& values, const Shape& shape) {
  Tensor result(DataType::kFloat32, shape);
  float* const end = result.data<float>() + result.size();
  std::fill(values ? std::copy_n(values.data<float>(), values.size(), result.data<float>()) : result.data<float>(), end,
            0.0f);
  return result;
}

Lowering::Lowering(const Specialization& spec, const Schedule& schedule, WeightCache& weights,
                   const IdMap<LayerId, GraphFunction>& subgraphs, LoweringTarget& target)
    : spec_(spec),
      schedule_(schedule),
      network_(*spec.network),
      weights_(weights),
      constants_(spec, weights),
      subgraphs_(subgraphs),
      target_(target),
      locations_(network_.tensors.size()),
      uses_(uses_of(schedule)) {
  for (AttentionKernel& attention : attentions_of(spec, schedule, uses_)) {
    deferred_.insert(attention.parts.begin(), attention.parts.end());
    attentions_[attention.values] = std::move(attention);
  }
}

Steps Lowering::run() {
  for (std::size_t i = 0; i < network_.inputs.size(); ++i) {
    const TensorId id = network_.inputs[i];
    locations_[id].host = new_host(spec_.type(id), spec_.shape(id));
    made_.host.back().input = static_cast<int>(i);
  }
  made_.steps.reserve(2 * network_.layers.size());
  find_parts();
  for (const std::vector<KernelDescription>& kernels : schedule_.kernels)
    for (const KernelDescription& kernel : kernels)
      if (!deferred_.contains(&kernel)) lower(kernel);
  current_ = kNone;
  for (const Operand& output : schedule_.outputs) made_.outputs.push_back(host_value(output));
  if (!host_layers_.empty())
    log_once(LogLevel::kWarning,
             fmt::format("backend 'cuda': {} of {} layers run on the CPU, with copies there and back: {}",
                         host_layers_.size(), network_.layers.size(), fmt::join(host_layers_, ", ")));
  hoist_host_steps();
  find_lifetimes();
  return std::move(made_);
}

void Lowering::lower(const KernelDescription& kernel) {
  const KernelDescription* const outer = std::exchange(described_, &kernel);
  std::visit([&](const auto& described) { lower(described); }, kernel);
  described_ = outer;
}

// --- Memory
// ----------------------------------------------------------------------------------------------------------------

int Lowering::new_buffer(std::size_t bytes) {
  made_.buffers.push_back({bytes, {}, nullptr, {}});
  return static_cast<int>(made_.buffers.size()) - 1;
}

View Lowering::new_view(DataType type, const Shape& shape, std::vector<std::int64_t> strides) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) last += (shape[d] - 1) * strides[d];
  const std::size_t elements = num_elements(shape) == 0 ? 0 : static_cast<std::size_t>(last + 1);
  return {new_buffer(elements * size_of(type)), type, 0, std::move(strides)};
}

int Lowering::new_host(DataType type, const std::optional<Shape>& shape) {
  HostValue value;
  value.type = physical_type(type);
  if (shape) value.shape = *shape;
  made_.host.push_back(std::move(value));
  return static_cast<int>(made_.host.size()) - 1;
}

int Lowering::host_constant(Tensor value) {
  made_.host.push_back({std::move(value)});
  return static_cast<int>(made_.host.size()) - 1;
}

Pointer Lowering::pointer(const View& view) {
  return {view.buffer, view.offset * static_cast<std::int64_t>(size_of(view.type))};
}

View Lowering::define(const Store& store, std::vector<std::int64_t> strides) {
  const DataType declared = physical_type(spec_.type(store.tensor));
  const DataType type = declared == DataType::kFloat32 ? type_of(store.rounding) : declared;
  View view = new_view(type, shape(store.tensor), std::move(strides));
  locations_[store.tensor].device = view;
  return view;
}

std::optional<View> Lowering::define_exact(const Store& store, std::vector<std::int64_t> strides) {
  if (!store.exact) return std::nullopt;
  View view = new_view(DataType::kFloat32, shape(store.tensor), std::move(strides));
  exact_[store.tensor].device = view;
  return view;
}

void Lowering::place(TensorId id, View view, const Shape& dims, std::vector<std::int64_t> order) {
  Location& location = locations_[id];
  if (auto plain = reshaped_strides(dims, view.strides, shape(id))) {
    view.strides = std::move(*plain);
    location.device = std::move(view);
  } else {
    location.fine = {std::move(view), dims};
    location.order = std::move(order);
  }
}

std::pair<View, Shape> Lowering::fine_view(const Operand& operand) {
  if (!spec_.is_constant(operand.tensor))
    if (const Location& found = location(operand); !found.device && found.fine) return *found.fine;
  View view = device_view(operand);
  return {std::move(view), shape(operand.tensor)};
}

std::vector<std::int64_t> Lowering::order_of(const Operand& operand) {
  const Location& found = location(operand);
  return found.order.empty() ? ops::strides_of(shape(operand.tensor)) : found.order;
}

bool Lowering::alias(const Store& store, View view) {
  if (store.exact || !is_exact(view.type, store.rounding)) return false;
  locations_[store.tensor].device = std::move(view);
  return true;
}

Lowering::Location& Lowering::location(const Operand& operand) {
  Location& found = operand.exact ? exact_.at(operand.tensor) : locations_[operand.tensor];
  if (!found.device && found.host < 0 && !found.fine)
    throw InternalError(fmt::format("'{}' is read before it is computed", network_.tensor(operand.tensor).name));
  return found;
}

// --- Constants
// ----------------------------------------------------------------------------------------------------------------

View Lowering::constant_memory(const std::string& key, DataType type, const ConstantSource& values,
                               std::span<const StoredMatrix> stored) {
  Buffer buffer;
  const std::string name = fmt::format("cuda|{}|{}", key, name_of(type));
  buffer.name = activation_key(name);
  const auto make = [&] {
    const Tensor value = values();
    return value.type() == type ? value : value.cast(type);
  };
  buffer.constant =
      stored.empty() ? target_.constant(weights_, name, make) : target_.matrices(weights_, name, stored, type, make);
  made_.buffers.push_back(std::move(buffer));
  return {static_cast<int>(made_.buffers.size()) - 1, type, 0, {}};
}

View Lowering::constant_view(const Tensor& value, const std::string& key, DataType type) {
  View view = constant_memory(key, type, [&value] { return value; });
  view.strides = ops::strides_of(value.shape());
  return view;
}

std::string Lowering::content_key(const Tensor& tensor) {
  return hash_of({static_cast<const char*>(tensor.raw()), tensor.bytes()});
}

std::string Lowering::constant_key(const Operand& operand) const {
  return fmt::format("{}|{}|{}", constants_.key(operand.tensor), static_cast<int>(operand.first),
                     static_cast<int>(operand.rounding));
}

View Lowering::constant_view(const Operand& operand, DataType type) {
  return constant_view(constants_.get(operand), constant_key(operand), type);
}

// --- Reading
// ----------------------------------------------------------------------------------------------------------------

View Lowering::device_view(const Operand& operand) {
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
    const HostValue& value = made_.host[found.host];
    View view = new_view(value.type, value.shape, ops::strides_of(value.shape));
    add(UploadStep{found.host, pointer(view)});
    found.device = view;
  }
  return *found.device;
}

void Lowering::add_copy(const View& from, const View& to, const Shape& shape) {
  add(KernelStep{
      shared_copy({from.type, shape, from.strides}, {to.type, shape, to.strides}), {pointer(from)}, {pointer(to)}});
}

View Lowering::copied(const View& from, const Shape& shape, DataType type, Rounding rounding,
                      std::vector<std::int64_t> strides, TensorId of) {
  View to = new_view(type, shape, std::move(strides));
  if (num_elements(shape) == 0) return to;
  const bool rounds = !is_exact(from.type, rounding);
  if (rounds && (type != type_of(rounding) || rounding == Rounding::kTF32)) {
    ProgramAssembly assembly(shape, 0);
    const Register value = assembly.input(from, from.strides, rounding);
    assembly.output(assembly.program().apply(Instruction::kCopy, value), to, to.strides, Rounding::kNone);
    add(std::move(assembly).finish());
  } else {
    add_copy(from, to, shape);
  }
  Step& step = made_.steps.back();
  step.converts = rounds || from.type != type;
  if (const LayerId maker = step.converts ? LayerId(kNone) : maker_of(of); maker != kNone) step.layer = maker;
  return to;
}

LayerId Lowering::maker_of(TensorId id) const {
  if (id == kNone) return kNone;
  LayerId producer = network_.tensor(id).producer;
  while (producer != kNone && layer(producer).op->precision == PrecisionRule::kMovement &&
         layer(producer).input(0) != kNone && !spec_.is_constant(layer(producer).input(0)))
    producer = network_.tensor(layer(producer).input(0)).producer;
  return producer;
}

View Lowering::read_as(const Operand& operand, DataType type) {
  if (spec_.is_constant(operand.tensor)) return constant_view(operand, type);
  const View from = device_view(operand);
  if (from.type == type && is_exact(from.type, operand.rounding)) return from;
  const Shape& dims = shape(operand.tensor);
  return read_as(operand, type, strides_in_order_of(dims, from.strides, dims));
}

View Lowering::read_as(const Operand& operand, DataType type, std::vector<std::int64_t> strides) {
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
  const Rounding rounding = constant ? Rounding::kNone : operand.rounding;
  if (from.type == type && is_exact(from.type, rounding) && same_places(dims, from.strides, strides)) return from;
  return copies_[key] = copied(from, dims, type, rounding, std::move(strides), operand.tensor);
}

int Lowering::host_value(const Operand& operand) {
  const TensorId id = operand.tensor;
  if (spec_.is_constant(id)) return host_constant(constants_.get(operand));
  Location& found = location(operand);
  const DataType type = physical_type(spec_.type(id));
  const bool rounds = type == DataType::kFloat32 && operand.rounding != Rounding::kNone;
  if (found.host >= 0 && !rounds) return found.host;
  if (found.host >= 0 && !found.device && !found.fine) {
    // A step that rounds: the reference kernel's rounding is that of its stores, so this one has no other place.
    const int rounded = new_host(type, spec_.shape(id));
    add(HostStep{make_rounding_kernel(operand.rounding), {found.host}, {rounded}});
    return rounded;
  }
  const View dense = read_as(operand, type, ops::strides_of(shape(id)));
  const int value = new_host(type, spec_.shape(id));
  add(DownloadStep{pointer(dense), value});
  if (!rounds) location(operand).host = value;
  return value;
}

// --- Order
// ----------------------------------------------------------------------------------------------------------------

void Lowering::hoist_host_steps() {
  std::vector<char> early(made_.host.size(), 0);
  for (std::size_t i = 0; i < early.size(); ++i) early[i] = made_.host[i].constant || made_.host[i].input >= 0;
  const auto is_early = [&](const Step& step) {
    if (const auto* upload = std::get_if<UploadStep>(&step.work)) return early[upload->host] != 0;
    const auto* host = std::get_if<HostStep>(&step.work);
    if (host == nullptr) return false;
    if (!std::ranges::all_of(host->inputs, [&](int value) { return value < 0 || early[value] != 0; })) return false;
    for (int value : host->outputs)
      if (value >= 0) early[value] = 1;
    return true;
  };
  // What only network outputs need comes to the host when all is done.
  std::vector<char> read(made_.host.size(), 0);
  for (const Step& step : made_.steps) {
    if (const auto* upload = std::get_if<UploadStep>(&step.work)) read[upload->host] = 1;
    if (const auto* host = std::get_if<HostStep>(&step.work))
      for (int value : host->inputs)
        if (value >= 0) read[value] = 1;
  }
  const auto is_late = [&](const Step& step) {
    const auto* download = std::get_if<DownloadStep>(&step.work);
    return download != nullptr && read[download->host] == 0;
  };
  std::vector<int> turns;
  for (const Step& step : made_.steps) turns.push_back(is_early(step) ? 0 : is_late(step) ? 2 : 1);
  std::vector<Step> ordered;
  ordered.reserve(turns.size());
  for (const int turn : {0, 1, 2})
    for (std::size_t i = 0; i < turns.size(); ++i)
      if (turns[i] == turn) ordered.push_back(std::move(made_.steps[i]));
  made_.steps = std::move(ordered);
}

void Lowering::find_lifetimes() {
  for (std::size_t i = 0; i < made_.steps.size(); ++i)
    for_each_pointer(made_.steps[i], [&](const Pointer& pointer, bool) {
      if (pointer.buffer < 0 || made_.buffers[pointer.buffer].constant != nullptr) return;
      Buffer& buffer = made_.buffers[pointer.buffer];
      buffer.place.bytes = buffer.bytes;
      if (buffer.place.first < 0) buffer.place.first = static_cast<int>(i);
      buffer.place.last = static_cast<int>(i);
    });
}

}  // namespace ulpscope::cuda
