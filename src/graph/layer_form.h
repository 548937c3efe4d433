// What running a layer in a precision means: one row per precision. Every list of precisions is made from these rows.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "formats/encoding.h"
#include "formats/rounding.h"
#include "ulpscope/data_type.h"
#include "ulpscope/precision.h"

namespace ulpscope {

/// Where the scales of an operand come from.
enum class ScaleSource : std::uint8_t {
  kNone,        ///< It has none: its elements are the numbers.
  kCalibrated,  ///< From calibration, or from the quantizer in the file.
  kOwn,         ///< From the values themselves: a constant's largest values, or the scales that the file has with it;
                ///< of an activation, those of its blocks at run time.
};

/// How a layer reads an operand.
struct OperandForm {
  std::optional<Encoding> encoding{};  ///< As elements of this; nothing: as numbers, rounded.
  ScaleSource scales = ScaleSource::kNone;
};

struct LayerForm {
  Precision precision;
  /// "fp16": the key in files; behind two dashes the flag, in capitals TensorRT's builder flag.
  std::string_view name;
  /// The type of tensors that asks for it (`layer.precision = type`); kUndefined: the name alone does.
  DataType type;
  DataType stored;    ///< What the layer stores; kUndefined: the next higher enabled float.
  Rounding rounding;  ///< What operands without an encoding are rounded to.
  OperandForm activation, weight;
  int rank;                    ///< From low to high. Among equals the earlier row is tried first.
  int opset;                   ///< That has its typed form in ONNX, operators aside; 0: ONNX has none.
  double usual_error;          ///< rel-l2 that networks in it usually keep; 0: of the highest precision.
  bool products_only = false;  ///< Other layers that are asked for it run in the highest.
  /// The form of larger blocks that it stands in for where a sum is no multiple of these.
  std::optional<Precision> stands_in_for{};

  /// It reads elements: of activations and of weights.
  bool is_quantized() const noexcept { return activation.encoding.has_value(); }
  /// Its constant weights are stored as elements, and read as numbers beside activations that are floats.
  bool is_of_weights() const noexcept { return weight.encoding.has_value() && !is_quantized(); }
  /// Neither of both: all its operands are floats.
  bool is_float() const noexcept { return !weight.encoding.has_value(); }
  /// Weakly typed networks of TensorRT have it: as a float, or as elements with one scale per tensor.
  bool is_weakly_typed() const noexcept;
  /// Its activations need scales that are calibrated.
  bool needs_calibration() const noexcept { return activation.scales == ScaleSource::kCalibrated; }
  /// The type in which it reads its activations on a target.
  DataType read_type() const noexcept;
  /// Bytes per element of an operand on a target.
  double bytes(const OperandForm& operand) const noexcept;
  /// How it is asked for in words, such as "float16".
  std::string_view request() const noexcept;
  std::string flag() const;
};

const LayerForm& form_of(Precision precision) noexcept;
/// In the order of Precision.
std::span<const LayerForm> layer_forms() noexcept;
/// "fp32, tf32 or fp16", of those that `accepts` (null: all).
std::string precision_list(std::string_view last_comma, bool (*accepts)(const LayerForm&) = nullptr);

/// The precision that `layer.precision = type` asks for; nothing for types that no float layer computes in.
std::optional<Precision> precision_from_type(DataType type) noexcept;
/// The type in which a layer of this precision stores its output (quantized: see Assignment::int8_output).
DataType storage_of(Precision precision) noexcept;
/// What happens to the values that a layer of this precision reads.
Rounding rounding_of(Precision precision) noexcept;
inline bool is_quantized(Precision precision) noexcept { return form_of(precision).is_quantized(); }
inline bool is_of_weights(Precision precision) noexcept { return form_of(precision).is_of_weights(); }
inline bool is_float(Precision precision) noexcept { return form_of(precision).is_float(); }
/// The same in weights alone, where there is such a form; else the precision itself.
Precision weights_alone(Precision precision) noexcept;
inline bool is_any(const LayerForm&) noexcept { return true; }
/// Layers may be raised to it.
inline bool is_rung(const LayerForm& form) noexcept { return form.stored != DataType::kUndefined; }

class PrecisionSet {
 public:
  constexpr PrecisionSet() = default;
  constexpr PrecisionSet(std::initializer_list<Precision> members) {
    for (const Precision each : members) set(each);
  }
  constexpr bool has(Precision p) const noexcept { return (bits_ & bit(p)) != 0; }
  constexpr void set(Precision p, bool member = true) noexcept { bits_ = member ? bits_ | bit(p) : bits_ & ~bit(p); }
  constexpr bool empty() const noexcept { return bits_ == 0; }
  bool has_quantized() const noexcept;
  /// Of one whose activations need scales that are calibrated.
  bool needs_calibration() const noexcept;
  /// Of one that stores weights as elements, activations too or not.
  bool has_elements() const noexcept;
  /// The member of larger blocks that `p` stands in for.
  std::optional<Precision> larger_blocks(Precision p) const noexcept;
  /// In the order of layer_forms().
  std::vector<Precision> members() const;
  constexpr PrecisionSet& operator|=(PrecisionSet other) noexcept {
    bits_ |= other.bits_;
    return *this;
  }
  friend constexpr bool operator==(PrecisionSet, PrecisionSet) = default;

 private:
  static constexpr std::uint32_t bit(Precision p) noexcept { return std::uint32_t{1} << static_cast<unsigned>(p); }
  std::uint32_t bits_ = 0;
};

/// With the forms that stand in for its members.
PrecisionSet with_smaller_blocks(PrecisionSet enabled) noexcept;
/// int4 in blocks of so many weights, where there is such a form.
std::optional<Precision> int4_in_blocks(std::int64_t size) noexcept;

/// What a layer is asked to run in: a precision, or a type that is none, which lists of all layers and scripts name too
/// (int32, bool, ...) and which only layers that work on that type, or store it, take.
class Request {
 public:
  Request(Precision precision) : what_(precision) {}  // NOLINT(google-explicit-constructor): both are requests
  Request(DataType type) {                            // NOLINT(google-explicit-constructor)
    if (const auto precision = precision_from_type(type))
      what_ = *precision;
    else
      what_ = type;
  }
  std::optional<Precision> precision() const noexcept {
    const auto* found = std::get_if<Precision>(&what_);
    return found != nullptr ? std::optional(*found) : std::nullopt;
  }
  /// The type that asks for the same; kUndefined: none does.
  DataType type() const noexcept {
    const auto* found = std::get_if<Precision>(&what_);
    return found != nullptr ? form_of(*found).type : std::get<DataType>(what_);
  }
  /// As in words, such as "float16".
  std::string_view name() const noexcept {
    const auto* found = std::get_if<Precision>(&what_);
    return found != nullptr ? form_of(*found).request() : name_of(std::get<DataType>(what_));
  }
  friend bool operator==(const Request&, const Request&) = default;

 private:
  std::variant<Precision, DataType> what_;
};

/// The reverse of Request::name; also takes every other name of a type or precision.
std::optional<Request> request_named(std::string_view name);

}  // namespace ulpscope
