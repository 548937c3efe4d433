// What an operator is: its rules and its reference kernel. One OpDef per operator; src/ops has the definitions.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/op_traits.h"
#include "ulpscope/error.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

class Network;
struct Layer;
class InferContext;
struct Accumulator;
class KernelContext;
class AdjointContext;

/// Whether and how an operator takes part in mixed precision (docs/numerics.md).
enum class PrecisionRule : std::uint8_t {
  kCompute,   ///< Float arithmetic with a precision of its own.
  kMovement,  ///< Moves, selects or views values: follows the type of its input; nothing is rounded.
  kFixed,     ///< No float arithmetic (integers, booleans, shapes, comparisons of any type): never lowered.
};

/// What fusion may do with an operator.
enum class OpKind : std::uint8_t {
  kOther,          ///< A group of its own.
  kPointwise,      ///< Element by element with ONNX (NumPy) broadcasting; one output.
  kContraction,    ///< A sum of products with an fp32 accumulator: MatMul, Gemm, Conv, ConvTranspose.
  kReduction,      ///< ReduceX: accumulates in fp32 over some axes.
  kNormalization,  ///< LayerNormalization, BatchNormalization, InstanceNormalization, ...
  kSoftmax,        ///< Softmax and LogSoftmax.
  kPooling,        ///< AveragePool, MaxPool, GlobalAveragePool, ...
  kMovement,       ///< Reshape, Transpose, Concat, Gather, ...
  kConstant,       ///< A value known when the network is read.
  kControl,        ///< Has sub-graphs: If, Loop, Scan.
};

/// Whether an operator reads and makes elements of types that only hold values (`is_storage_only`).
enum class StorageTypes : std::uint8_t {
  kByKind,   ///< As its kind says: kMovement (without a `reduction`), kConstant and kControl do.
  kTaken,    ///< It converts, quantizes or inspects them.
  kRefused,  ///< It moves values, but computes with some.
};

inline constexpr int kAnyNumber = 1 << 20;

/// The definition of an operator. Immutable, with static lifetime.
struct OpDef {
  std::string_view name;
  std::string_view domain = "";  ///< "" is ai.onnx.
  int since_version = 1;         ///< The first opset (of the domain) that has it.
  struct Range {
    int min, max;
  };
  Range inputs{1, 1};
  Range outputs{1, 1};
  /// The element types that the kernel takes as input i, as it holds them (`physical_type`). An empty set: those of the
  /// input before; no set at all: any.
  std::array<TypeSet, 9> types{};
  PrecisionRule precision = PrecisionRule::kCompute;
  OpKind kind = OpKind::kOther;
  Function function = Function::kNone;
  std::array<Coefficient, 2> coefficients{};  ///< Of `function`; the first without an attribute ends them.
  Exactness exactness = Exactness::kRounds;
  /// Bit i: input i is a weight (a constant prepared with the layer, no Constant layer of its own), when it is an
  /// initializer. Also for small integer parameters such as shapes, axes and pads.
  std::uint32_t weights = 0;
  StorageTypes storage_types = StorageTypes::kByKind;
  /// Bit i: input i is a parameter of the operator (scales, a region, a ratio) and not data: read as it is, never
  /// rounded.
  std::uint32_t parameters = 0;
  /// Bit i: input i only chooses among the elements of other inputs: a condition, a mask, indices.
  std::uint32_t selects = 0;
  /// Every element of every output is an element of input 0.
  bool moves_values = false;
  /// Moreover, output 0 has all of them in the same order: only the shape differs.
  bool views = false;
  /// Which elements it moves depends on what they are.
  bool compares = false;
  /// Output 0 holds the values of input 0 in another type.
  bool casts = false;
  /// Output 0 repeats one value in a shape that is an input.
  bool fills = false;
  /// Looks at the shapes of its inputs alone.
  bool reads_shape_only = false;
  /// Integer outputs are quantized values, not indices or lengths.
  bool yields_quantized = false;
  /// Types and shapes of the outputs. Called when the network is read, and again with concrete shapes.
  void (*infer)(InferContext&) = nullptr;
  /// The reference kernel. Floats narrower than float32 arrive and leave as float32, integers of less than 8 bits as 8
  /// bits (`physical_type`); the engine rounds. Accumulates in fp32 or wider.
  void (*run)(KernelContext&) = nullptr;
  /// The vector-Jacobian product (graph/adjoint.h): writes the layers that turn the gradients of the outputs into those
  /// of the inputs. Null: no derivative, or one that says nothing (0 almost everywhere).
  void (*adjoint)(AdjointContext&) = nullptr;
  /// The axes that a layer reduces or normalizes over, ascending and in [0, rank), for the rank of input 0 and the
  /// elements of the input that lists them (null: absent or not known). Nothing: not known, or they do not fit.
  /// Whether reduced dimensions stay is the attribute `keepdims` (default 1). Null: the operator has no such axes.
  std::optional<std::vector<std::int64_t>> (*axes)(const Layer&, std::int64_t rank, const Tensor* given) = nullptr;
  /// How a layer takes operands that are multiplied by powers of two. Null: kNone.
  Scaling (*scaling)(const Layer&) = nullptr;
  /// The products that a layer adds up, for the shapes of its inputs (null: absent or not known; the first two are not)
  /// and of its output 0. Null: no operator of products.
  double (*multiply_adds)(const Layer&, std::span<const Shape* const> inputs, const Shape& output) = nullptr;
  /// True when running the layer twice may give different values. `inputs`: null where they are not known. Null: never.
  bool (*is_random)(std::span<const Tensor* const> inputs) = nullptr;
  /// What formal input `formal` of a sub-graph is. Null: only captured values are known.
  BodyInput (*body_input)(const Layer&, int formal) = nullptr;

  bool is_weight(std::size_t i) const noexcept { return i < 32 && (weights >> i & 1u) != 0; }
  bool is_parameter(std::size_t i) const noexcept { return i < 32 && (parameters >> i & 1u) != 0; }
  /// The types that the kernel takes as input `i`. Empty: any.
  TypeSet types_of(int i) const noexcept;
};

/// The operators that a network may contain. Implemented by src/ops; a parameter here, so that import does not depend
/// on it.
class OpRegistry {
 public:
  virtual ~OpRegistry() = default;
  /// Null when there is no such operator in any version.
  virtual const OpDef* find(std::string_view domain, std::string_view name) const = 0;
  /// An operator that another program carries out, for layers of which `find` knows nothing. Null: none does.
  virtual const OpDef* find_elsewhere(std::string_view domain, std::string_view name) const {
    static_cast<void>(domain), static_cast<void>(name);
    return nullptr;
  }
  virtual std::span<const OpDef> all() const = 0;
};

/// Whether a layer that moves elements combines some of them (`reduction`), too.
bool combines_elements(const Layer& layer);

/// Whether a layer that moves elements looks at them, or combines them.
bool depends_on_elements(const Layer& layer);

/// Where a layer is, for Error.
ErrorPlace place_of(std::string_view stage, const Layer& layer);

/// Thrown by InferContext when a shape or value is asked for that is not known yet. The driver catches it: what was set
/// before stays, the rest is found at run time. No operator catches it.
struct NotKnownYet {};

/// What is said about one layer, whoever asks.
class LayerContext {
 public:
  const Layer& layer() const noexcept { return *layer_; }
  int opset() const noexcept;
  const class Attributes& attributes() const noexcept;

  /// Throws Error with the layer's name in front.
  [[noreturn]] void fail(const std::string& message) const;
  template <typename... T>
    requires(sizeof...(T) > 0)
  [[noreturn]] void fail(fmt::format_string<T...> text, T&&... values) const {
    fail(fmt::format(text, std::forward<T>(values)...));
  }

 protected:
  /// `stage` and `code`: of errors.
  LayerContext(const Layer* layer, const char* stage, ErrorCode code) : layer_(layer), stage_(stage), code_(code) {}
  const Layer* layer_;

 private:
  const char* stage_;
  ErrorCode code_;
};

/// What `OpDef::infer` sees. Output 0 has the type of input 0 unless the operator says another (sub-graphs say their
/// own). REQUIRES: set the type of every other output before asking for a shape or a value. Its errors are of the file.
class InferContext : public LayerContext {
 public:
  struct Input {
    bool present = false;
    DataType type = DataType::kUndefined;
    const Shape* shape = nullptr;   ///< Null: not known. Has no -1.
    const Tensor* value = nullptr;  ///< Null: not known.
    bool declared = false;  ///< The type is the network's; a kernel that infers while it runs knows the physical one.
  };
  struct Output {
    bool wanted = false;
    DataType type = DataType::kUndefined;
    std::optional<Shape> shape;
  };

  InferContext(const Layer& layer, std::span<const Input> inputs, std::span<Output> outputs)
      : LayerContext(&layer, "infer", ErrorCode::kInvalidFile), inputs_(inputs), outputs_(outputs) {}

  int num_inputs() const noexcept { return static_cast<int>(inputs_.size()); }
  int num_outputs() const noexcept { return static_cast<int>(outputs_.size()); }
  /// False for an optional input that is absent, by position or by an empty name.
  bool has_input(int i) const noexcept { return i < num_inputs() && inputs_[i].present; }
  bool has_output(int i) const noexcept { return i < num_outputs() && outputs_[i].wanted; }

  /// The declared type (see Input::declared). Throws Error(kInvalidFile) when the input is absent.
  DataType type(int i) const;
  bool is_declared(int i) const noexcept { return has_input(i) && inputs_[i].declared; }
  /// Its shape is known. In operators that models are full of: to ask is cheaper than to catch NotKnownYet.
  bool has_shape(int i) const noexcept { return has_input(i) && inputs_[i].shape != nullptr; }
  /// The concrete shape. Throws NotKnownYet.
  const Shape& shape(int i) const;
  std::int64_t rank(int i) const { return static_cast<std::int64_t>(shape(i).size()); }
  /// The elements (dense). Throws NotKnownYet.
  const Tensor& value(int i) const;
  /// The elements of an int32 or int64 input as int64 (a scalar gives one). Throws NotKnownYet.
  std::vector<std::int64_t> input_ints(int i) const;

  /// No effect for an output that nobody wants.
  void set_type(int i, DataType type);
  void set_shape(int i, Shape shape);
  void set(int i, DataType type, Shape shape) {
    set_type(i, type);
    set_shape(i, std::move(shape));
  }

 private:
  std::span<const Input> inputs_;
  std::span<Output> outputs_;
};

/// Runs sub-graphs for If, Loop and Scan. Implemented by the engine.
class SubgraphRunner {
 public:
  virtual ~SubgraphRunner() = default;
  /// `attribute` names the graph of the running layer; `inputs` are its formal inputs, captured values are added by the
  /// runner. Returns the outputs, in physical types.
  virtual std::vector<Tensor> run(std::string_view attribute, std::span<const Tensor> inputs) = 0;
};

/// What `OpDef::run` sees. All tensors are dense and row-major, in physical types. Its errors are of values (an index,
/// say) that the kernel found wrong.
class KernelContext : public LayerContext {
 public:
  KernelContext(const Layer& layer, std::span<const Tensor* const> inputs, std::span<Tensor> outputs,
                std::span<const DataType> output_types, SubgraphRunner* runner,
                const Accumulator* accumulator = nullptr)
      : LayerContext(&layer, "run", ErrorCode::kInvalidArgument),
        inputs_(inputs),
        outputs_(outputs),
        output_types_(output_types),
        runner_(runner),
        accumulator_(accumulator) {}

  int num_inputs() const noexcept { return static_cast<int>(inputs_.size()); }
  int num_outputs() const noexcept { return static_cast<int>(outputs_.size()); }
  bool has_input(int i) const noexcept { return i < num_inputs() && inputs_[i] != nullptr; }
  const Tensor& input(int i) const noexcept { return *inputs_[i]; }
  /// The elements of an int32 or int64 input as int64.
  std::vector<std::int64_t> input_ints(int i) const;

  /// False for an output that nobody wants.
  bool has_output(int i) const noexcept { return i < num_outputs() && output_types_[i] != DataType::kUndefined; }
  /// Allocated with the inferred shape, except when `infer` left the shape open: then call `set_output`.
  Tensor& output(int i) const noexcept { return outputs_[i]; }
  /// For outputs whose shape only the kernel knows (NonZero, If, ...). The tensor has the physical type.
  void set_output(int i, Tensor tensor) const {
    if (has_output(i)) outputs_[i] = std::move(tensor);
  }
  /// The declared type (float16 although the tensor is float32 physically).
  DataType output_type(int i) const noexcept { return output_types_[i]; }

  SubgraphRunner& runner() const;
  /// What sums of float32 products are added up in; null: in float32.
  const Accumulator* accumulator() const noexcept { return accumulator_; }

 private:
  std::span<const Tensor* const> inputs_;
  std::span<Tensor> outputs_;
  std::span<const DataType> output_types_;
  SubgraphRunner* runner_;
  const Accumulator* accumulator_;
};

/// Runs the layer's kernel. Every Error that leaves it has a place: the layer, or one of a body that it runs.
void run_kernel(KernelContext& context);

}  // namespace ulpscope
