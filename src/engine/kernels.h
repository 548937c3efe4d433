// Kernel descriptions: what has to be computed, read, rounded and stored, as plain data, and nothing about how. Fusion
// says which layers belong together; describe() decides here, once, what that means; backends carry it out. What a
// backend cannot do in one piece it may split where the description stays true: the same roundings, no others.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/fusion.h"
#include "engine/specialization.h"
#include "formats/accumulator.h"
#include "formats/quantized.h"
#include "formats/rounding.h"
#include "graph/layer_form.h"
#include "graph/program.h"
#include "graph/scale_choice.h"

namespace ulpscope {

/// A tensor as a kernel reads it.
struct Operand {
  TensorId tensor = kNone;              ///< kNone: an optional operand that is absent.
  Rounding rounding = Rounding::kNone;  ///< Every element is rounded to this before it is used.
  Rounding first = Rounding::kNone;     ///< To this first, if it comes from a Constant layer stored in a narrow type.
  /// Read as elements of this, times their scales; nothing: as numbers. Scales per channel are those of the output
  /// channels of a product.
  std::optional<Encoding> encoding;
  ScaleSource scales = ScaleSource::kNone;
  float scale = 0;     ///< kCalibrated: that of the tensor.
  bool exact = false;  ///< What Store::exact left, not what is stored for others.
  bool row_sums = false;  ///< What Store::row_sums left, instead of the tensor.
  /// Constant weights in blocks of least error: what their errors count; null: the same.
  SharedChannelWeights channel_weights{};

  bool is_encoded() const noexcept { return encoding.has_value(); }
  /// Its elements are integers of 8 bits with one scale, or one per channel. REQUIRES: is_encoded().
  bool is_of_bytes() const noexcept { return encoding->format == Format::kInt8 || encoding->format == Format::kUInt8; }
  /// They are fp8 e4m3 without blocks: one scale, or one per channel. REQUIRES: is_encoded().
  bool is_of_e4m3() const noexcept {
    return encoding->format == Format::kFloat8E4M3 && encoding->granularity != Granularity::kBlock;
  }
  /// REQUIRES: calibrated scales, one for the tensor.
  Quantization quantization() const noexcept { return {scale, encoding->format}; }
  /// What sums of its elements are multiplied by; 1 of blocks, whose scales are in what is summed. REQUIRES: no
  /// constant.
  float outer_scale() const noexcept { return encoding->granularity == Granularity::kBlock ? 1 : scale; }
  /// The same as numbers: not rounded, and not quantized.
  Operand plain() const { return {.tensor = tensor, .first = first, .exact = exact}; }

  friend bool operator==(const Operand&, const Operand&) = default;
};

/// A tensor as a kernel leaves it.
struct Store {
  TensorId tensor = kNone;  ///< kNone: unused output.
  Rounding rounding = Rounding::kNone;
  /// Other kernels of the group read the values as they were computed: these are kept beside the rounded ones.
  bool exact = false;
  /// Not the tensor, but one float32 per row of it, which others of the group read: the sum of what the kernel
  /// computed.
  bool row_sums = false;
};

/// What a register of a program is loaded with, broadcast to the program's domain.
struct Load {
  enum class Source : std::uint8_t {
    kTensor,  ///< `operand`.
    kScale,   ///< What the inference BatchNormalization `normalization` multiplies by, rounded by operand.rounding;
    kShift,   ///< and what it adds: both from its constant parameters, see engine/scale_shift.h.
    kResult,  ///< In an epilogue: what the product computed, before anything is rounded.
  };
  Source source = Source::kTensor;
  Operand operand;
  LayerId normalization = kNone;
  /// One value per channel (dimension 1 of the domain), instead of NumPy's broadcasting.
  bool per_channel = false;

  friend bool operator==(const Load&, const Load&) = default;
};

/// Pointwise layers, and reductions, softmax and normalization over rows; values between them are not rounded.
struct ProgramKernel {
  std::vector<LayerId> layers;
  Shape domain;
  int row_dims = 0;  ///< How many innermost dimensions form the rows that reductions work over; 0: no reductions.
  Program program;
  std::vector<Load> loads;
  struct Output {
    Register source;
    Store store;  ///< Of the shape of the domain, or (one value per row) of the domain with its rows at size 1 or gone.
  };
  std::vector<Output> outputs;
  /// What a Softmax is taken of whose result is all that is left, and which is all that works on rows; else -1. In an
  /// attention by AttentionRule::kFlash two things are left: exponentials as the tensor that the result is, and the
  /// sums of their rows.
  Register softmax_of = -1;
};

/// A sum of products (MatMul, Gemm, Conv, ConvTranspose; OpDef says which) with an exact multiplication and an fp32
/// accumulator (or another one), and a program on its results. With elements: sums of these (of blocks, of what they
/// stand for), times float32(scale of a * scale of b), plus the bias, each rounded to float32; then the program. A
/// scale per channel of float elements comes first, then that of a. Sums of integers are exact, and the nearest float32
/// of each is taken.
struct ProductKernel {
  LayerId layer = kNone;
  std::vector<Operand> operands;           ///< As the layer's inputs.
  bool elements = false;                   ///< Operands 0 and 1 are read as elements.
  std::optional<Accumulator> accumulator;  ///< What the products are added up in; nothing: float32.
  /// With elements: those of both are integers, whose sums are exact.
  bool sums_bytes() const noexcept { return elements && operands[0].is_of_bytes() && operands[1].is_of_bytes(); }
  /// A BatchNormalization in inference form that is multiplied into constant weights and bias: in float32 (weights) and
  /// double (bias), which are rounded after that. kNone: there is none.
  LayerId normalization = kNone;
  TensorId result = kNone;  ///< What the layer, or its normalization, computes.
  ProgramKernel epilogue;   ///< Load 0 is the result; stores it, too, where it is wanted. No rows.
};

/// One layer by itself, as its operator defines it.
struct LayerKernel {
  LayerId layer = kNone;
  std::vector<Operand> operands;             ///< As the layer's inputs; elements: times their scales again.
  std::vector<Store> outputs;                ///< As the layer's outputs.
  bool open = false;                         ///< Shapes are known at run time only.
  std::optional<Accumulator> accumulator{};  ///< Of a contraction, as in ProductKernel.
  std::vector<Precision> bodies;             ///< Of all layers in its bodies.
};

using KernelDescription = std::variant<ProductKernel, ProgramKernel, LayerKernel>;

/// The shape of what is read or left: the tensor's, but for sums of its rows, whose last dimension is 1. REQUIRES: it
/// is known.
Shape shape_of(const Specialization& spec, const Operand& operand);
Shape shape_of(const Specialization& spec, const Store& store);

/// Everything that is run for one network under one assignment.
struct Schedule {
  Grouping grouping;
  /// Per group, in their order, its kernels in theirs.
  std::vector<std::vector<KernelDescription>> kernels;
  std::vector<Operand> outputs;       ///< The network's outputs, in the types that callers get.
  IdMap<TensorId, DataType> storage;  ///< Per tensor: the type whose numbers its elements are, once stored.
};

/// Who makes a tensor, and who reads it, each kernel once.
struct KernelUses {
  const KernelDescription* producer = nullptr;
  std::vector<const KernelDescription*> readers;
};

/// Per tensor. They point into the schedule.
IdMap<TensorId, KernelUses> uses_of(const Schedule& schedule);

/// The bytes of everything that a kernel's values depend on, but for the values that it reads.
std::string identity_of(const KernelDescription& kernel);

/// Decides it, from the groups that fuse() made for this assignment.
Schedule describe(const Specialization& spec, const Assignment& assignment, Grouping grouping);

}  // namespace ulpscope
