// Where tensors and weights lie on the device: the steps and buffers of a plan as they grow, the place of each tensor,
// and generated programs, which are all that moves and converts elements.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/cuda/lowering.h"
#include "backend/cuda/program_source.h"
#include "backend/cuda/stored_matrix.h"
#include "backend/cuda/view.h"
#include "backend/prepared_constants.h"

namespace ulpscope::cuda {

/// The narrowest type that holds all values of this rounding; float32 for kNone and tf32.
DataType type_of(Rounding rounding);
/// What is left of a rounding for elements that are stored in this type: all of it, or kNone where the type holds no
/// other values.
Rounding missing_rounding(DataType type, Rounding rounding);
Pointer pointer(const View& view);

/// A program as it grows: inputs are bound to memory one by one.
class ProgramAssembly {
 public:
  ProgramAssembly(Shape domain, int row_dims);
  Register input(const View& view, std::vector<std::int64_t> strides, Rounding rounding);
  Register input(ProgramInput input, const Pointer& from);
  Program& program() { return spec_.program; }
  const Shape& domain() const { return spec_.domain; }
  void output(Register source, const View& view, std::vector<std::int64_t> strides, Rounding rounding,
              std::optional<Quantization> quantization = {});
  void output(ProgramOutput output, const Pointer& to);
  /// Splits the dimensions of the domain into finer ones (FineStrides), over which input 0 has these strides.
  /// REQUIRES: no rows.
  void refine(const FineStrides& first);
  KernelStep finish() &&;

  const ProgramSpec& spec() const { return spec_; }
  const std::vector<Pointer>& reads() const { return reads_; }
  const std::vector<Pointer>& writes() const { return writes_; }

 private:
  ProgramSpec spec_;
  std::vector<Pointer> reads_, writes_;
};

/// Steps and the memory that they work on, in the order in which they are added.
class StepList {
 public:
  StepList(WeightCache& weights, LoweringTarget& target) : weights_(weights), target_(target) {}

  /// The layer of the steps that follow.
  void begin(LayerId layer) { layer_ = layer; }
  /// What host steps that follow carry out, for their cache keys; null: they copy for the caller. Returns the one
  /// before.
  const KernelDescription* begin(const KernelDescription* kernel) { return std::exchange(kernel_, kernel); }
  LayerId layer() const { return layer_; }

  template <typename Work>
  void add(Work work) {
    if constexpr (std::is_same_v<Work, HostStep>)
      if (kernel_ != nullptr) work.computes = identity_of(*kernel_);
    made_.steps.push_back({std::move(work), layer_});
  }
  /// A generated kernel that writes one view.
  void add_kernel(KernelSource source, std::vector<Pointer> reads, const View& result) {
    add(KernelStep{shared(std::move(source)), std::move(reads), {pointer(result)}});
  }
  /// Copies elements of that shape from one view to another, each to its type.
  void add_copy(const View& from, const View& to, const Shape& shape);
  /// Sets all of the buffer that it is in to zeros.
  void add_clear(const View& view);
  Step& last() { return made_.steps.back(); }

  View new_view(DataType type, const Shape& shape, std::vector<std::int64_t> strides);
  /// Memory of the caller's tensor of that number (Buffer::callers), row-major.
  View callers_view(DataType type, const Shape& shape, std::size_t number);
  /// Makes the caller's tensor of that number the memory of the view's buffer. False where that cannot be: the buffer
  /// is no part of the arena, or holds more than these elements in row-major order.
  bool give_to_caller(const View& view, const Shape& shape, std::size_t number);
  /// Makes the buffer of the view, which is alone in it, so many elements longer.
  void extend(const View& view, std::int64_t elements);
  /// A constant as `type`, from the float32 elements that `values` gives when the cache does not have it. `stored`: its
  /// parts, where they are matrices of a file.
  View constant_memory(const std::string& key, DataType type, const ConstantSource& values,
                       std::span<const StoredMatrix> stored = {});
  int new_host(DataType type, const std::optional<Shape>& shape);
  int new_input(DataType type, const std::optional<Shape>& shape, std::size_t index);
  /// A value of the host that is known beforehand.
  int host_constant(Tensor value);
  const HostValue& host(int value) const { return made_.host[value]; }

  /// All of it, with these values as outputs: in the order in which they run, with lifetimes.
  Steps finish(std::vector<int> outputs) &&;

 private:
  void hoist_host_steps();
  void find_lifetimes();

  WeightCache& weights_;
  LoweringTarget& target_;
  Steps made_;
  LayerId layer_ = kNone;
  const KernelDescription* kernel_ = nullptr;
};

/// Where the values of tensors are, as their producers left them, and copies of them in other types and orders.
class Placement {
 public:
  Placement(const Specialization& spec, const PreparedConstants& constants, StepList& steps)
      : spec_(spec), constants_(constants), steps_(steps), locations_(spec.network->tensors.size()) {}

  // --- What a step leaves
  /// Makes room for the tensor of a store, with these strides, in the type that holds what is stored.
  View define(const Store& store, std::vector<std::int64_t> strides);
  /// The same for an output of the network, which the step rounds: row-major, of its declared type.
  View define_output(const Store& store);
  /// A second place, for the exact values, where Store::exact asks for it.
  std::optional<View> define_exact(const Store& store, std::vector<std::int64_t> strides);
  /// Makes this view the place of the tensor. REQUIRES: the type that define() would give it.
  void define_at(TensorId id, View view) { locations_[id].device = std::move(view); }
  DataType stored_type(const Store& store) const;
  /// The tensor is a value of the host, exact and rounded.
  void define_host(const Store& store, int value);
  void define_input(TensorId id, int value) { locations_[id].host = value; }
  /// Puts an output, in its declared type, into the caller's tensor of that number: it is computed there, or copied.
  void put_output(const Operand& operand, std::size_t number);
  /// Says that the tensor's elements have these strides over finer dimensions. `order`: Location::order.
  void place(TensorId id, View view, const Shape& dims, std::vector<std::int64_t> order = {});
  /// Makes the tensor a view of what is there already; false where it would need another rounding.
  bool alias(const Store& store, View view);

  // --- What a step reads
  /// The tensor's elements on the device, as its producer left them; uploads those of the host.
  View device_view(const Operand& operand);
  /// The same over the finer dimensions that they may have: no copy is made for strides over the tensor's own.
  std::pair<View, Shape> fine_view(const Operand& operand);
  /// Location::order, of all dimensions.
  std::vector<std::int64_t> order_of(const Operand& operand);
  /// The same in exactly this type (of `operand.rounding`: type_of it), each element rounded; makes a copy where
  /// needed.
  View read_as(const Operand& operand, DataType type);
  /// The same with these strides.
  View read_as(const Operand& operand, DataType type, std::vector<std::int64_t> strides);
  /// A copy. One that only moves elements of the tensor `of` counts as a step of the layer that computed them, since it
  /// is needed for where that one put them.
  View copied(const View& from, const Shape& shape, DataType type, Rounding rounding, std::vector<std::int64_t> strides,
              TensorId of = kNone);
  View constant_view(const Tensor& value, const std::string& key, DataType type);
  /// Named by its bytes.
  View constant_view(const Tensor& value, DataType type);
  View constant_view(const Operand& operand, DataType type);
  /// A value of the host: physical type, rounded.
  int host_value(const Operand& operand);
  /// An operand as 8-bit integers times their scale, on the host.
  int host_integers(const Operand& operand);

  /// Elements of tensors with one scale: by tensor, Operand::exact, scale, format, type, domain, and strides over that.
  using Elements =
      std::map<std::tuple<TensorId, bool, float, Format, DataType, Shape, std::vector<std::int64_t>>, View>;
  Elements& elements() { return elements_; }

  bool is_on_device(TensorId id) const { return locations_[id].device || locations_[id].fine; }
  /// -1: it is not on the host.
  int host_of(TensorId id) const { return locations_[id].host; }
  /// -1: it is not on the device.
  int buffer_of(TensorId id) const;

 private:
  struct Location {
    std::optional<View> device;
    int host = -1;
    /// On the device, where no strides over the tensor's own dimensions exist: strides are over these finer ones.
    std::optional<std::pair<View, Shape>> fine;
    /// Where `fine` is: the strides that a copy without finer dimensions is given; empty: row-major ones.
    std::vector<std::int64_t> order;
  };
  Location& location(const Operand& operand);
  /// What an element of the operand is still to be rounded to when it is read.
  Rounding rounding_left(const Operand& operand) const {
    return leaving_.contains(operand.tensor) ? Rounding::kNone : operand.rounding;
  }
  /// The layer that computed the elements, others having moved them; kNone: they are the caller's.
  LayerId maker_of(TensorId id) const;
  const Shape& shape(TensorId id) const { return *spec_.shape(id); }

  const Specialization& spec_;
  const PreparedConstants& constants_;
  StepList& steps_;
  IdMap<TensorId, Location> locations_;
  Elements elements_;
  std::set<TensorId> leaving_;             ///< Of define_output().
  std::map<TensorId, Location> exact_;     ///< Of stored tensors: the values that other kernels of their group read.
  std::map<TensorId, Location> row_sums_;  ///< See Store::row_sums.
  std::map<std::tuple<TensorId, bool, DataType, Rounding, std::vector<std::int64_t>>, View> copies_;
};

/// Results of generated kernels that only a Concat reads, and that lie in its result without gaps: they are computed
/// right there.
class ConcatParts {
 public:
  ConcatParts(const Specialization& spec, const Schedule& schedule, const IdMap<TensorId, KernelUses>& uses,
              StepList& steps, Placement& memory);

  /// As Placement::define(), in the whole; nothing where it has no place there.
  std::optional<View> define(const Store& store, const std::vector<std::int64_t>& strides);
  /// One row that is added to: holds zeros, in the whole or not.
  View define_cleared(const Store& store);
  bool has_whole(TensorId id) const { return wholes_.contains(id); }
  View whole_of(const Store& store);

 private:
  TensorId generated_part(TensorId id, const std::set<TensorId>& network_outputs,
                          const IdMap<TensorId, KernelUses>& uses) const;
  const Shape& shape(TensorId id) const { return *spec_.shape(id); }

  const Specialization& spec_;
  StepList& steps_;
  Placement& memory_;
  /// Of the results of Concat: whole, and where a part begins in it.
  struct Part {
    const Store* whole = nullptr;
    std::int64_t offset = 0;
  };
  std::map<TensorId, Part> parts_;
  std::map<TensorId, View> wholes_;  ///< That some part was computed into.
  std::set<TensorId> cleared_;       ///< Those that held zeros before any part.
};

/// What all that lower kernels share.
struct KernelLowering {
  const Layer& layer(LayerId id) const { return spec_.network->layer(id); }
  const Shape& shape(TensorId id) const { return *spec_.shape(id); }

  const Specialization& spec_;
  const PreparedConstants& constants_;
  WeightCache& weights_;
  LoweringTarget& target_;
  const IdMap<TensorId, KernelUses>& uses_;
  StepList& steps_;
  Placement& memory_;
  ConcatParts& parts_;
};

/// How products read a computed tensor as elements, row-major: what computes it may leave these beside it.
struct WantedElements {
  struct Form {
    Quantization quantization;
    DataType type = DataType::kInt8;
    friend bool operator==(const Form&, const Form&) = default;
  };
  std::vector<Form> forms;  ///< Each once.
  bool alone = false;       ///< Nobody reads anything else of the tensor.
};
WantedElements wanted_elements(const KernelLowering& context, const Store& store);
/// That of a QuantizeLinear, of 8-bit integers or fp8 with one constant scale, whose elements DequantizeLinear alone
/// reads; nothing of others.
std::optional<WantedElements::Form> quantizer_form(const KernelLowering& context, const LayerKernel& kernel);

/// Programs: loads are strided inputs of a generated kernel, in the type and order of what is there.
class Programs : KernelLowering {
 public:
  explicit Programs(const KernelLowering& context) : KernelLowering(context) {}

  void lower(const ProgramKernel& kernel);
  /// The program as one kernel, or as several where it has few long rows.
  void add(ProgramAssembly assembly);
  /// Places for outputs without elements.
  void define_empty(std::span<const ProgramKernel::Output> outputs);
  Register load(const ProgramKernel& kernel, const Load& load, ProgramAssembly& assembly);
  /// Appends what the kernel's outputs need, where `registers` has what is there already.
  void assemble(const ProgramKernel& kernel, ProgramAssembly& assembly, std::vector<Register>& registers);
  void store_outputs(const ProgramKernel& kernel, ProgramAssembly& assembly, const std::vector<Register>& registers,
                     const std::vector<std::int64_t>& order);
};

}  // namespace ulpscope::cuda
