// Changes of a network that cost no precision, made before any layer is raised.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "ulpscope/export.h"

namespace ulpscope {

/// A part of a ScaleRegion, by which tensors hold their values times powers of two.
struct ScaleEdit {
  enum class Kind : std::uint8_t {
    kConstant,        ///< The constant that a layer reads as this input is multiplied by 2^exponent,
    kSharedConstant,  ///< a constant is, for all layers that read it,
    kInsertion,       ///< what a layer reads as this input is, by a layer that is added in front of it,
    kEpsilon,         ///< the epsilon of a normalization,
    kInt8Scale,       ///< or the int8 scale of a tensor whose values are, so that its integers stay the same.
  };
  Kind kind = Kind::kConstant;
  std::string name;  ///< The layer; kSharedConstant and kInt8Scale: the tensor.
  int input = 0;
  int exponent = 0;
};

// What a repair does, a struct for each kind. `kKind` is its word in files, messages and on the terminal; `visit`
// calls f(key, member) for everything that it consists of, by which answers and messages carry it.

/// A constant: finite magnitudes are at most `limit`.
struct Clamp {
  static constexpr char kKind[] = "clamp";
  double limit = 0;
  static void visit(auto& self, const auto& f) { f("limit", self.limit); }
};

/// A BatchNormalization, whose scale and shift are prepared in float32. Changes nothing in the network.
struct ScaleShift {
  static constexpr char kKind[] = "scale-shift";
  static void visit(auto&, const auto&) {}
};

/// Tensors of a region hold their values times powers of two.
struct ScaleRegion {
  static constexpr char kKind[] = "scale";
  int exponent = 0;  ///< Of the tensor that the repair is named after.
  std::vector<ScaleEdit> edits{};
  static void visit(auto& self, const auto& f) {
    f("limit", self.exponent);
    f("edits", self.edits);
  }
};

/// Channels of a tensor are divided by powers of two.
struct Equalize {
  static constexpr char kKind[] = "equalize";
  double scale = 0;                      ///< The int8 scale of the tensor.
  std::vector<std::int8_t> exponents{};  ///< Per channel e: it is divided by 2^e,
  bool copies = false;                   ///< by an added layer, "equalize-copy", not in constants.
  static void visit(auto& self, const auto& f) {
    f("limit", self.scale);
    f("exponents", self.exponents);
  }
};

/// Biases of int8 products take the mean error of their outputs; of typed models alone.
struct CorrectBiases {
  static constexpr char kKind[] = "correct-biases";
  static void visit(auto&, const auto&) {}
};

using RepairChange = std::variant<Clamp, ScaleShift, ScaleRegion, Equalize, CorrectBiases>;

struct Repair {
  std::string name;  ///< Layer or tensor.
  RepairChange change;
  std::string text{};  ///< One sentence.
  /// ScaleRegion: layers that have to stay in the highest precision with it. An answer has them among its kept layers.
  std::vector<std::string> keeps{};
  /// What it buys, with those that have the same numbers: the share of the tolerance that the answer uses on the
  /// samples of the search, without and with them. NaN where nobody measured it.
  double used_before = std::numeric_limits<double>::quiet_NaN(), used_after = used_before;
};

/// "clamp", "scale-shift", "scale", "equalize", "equalize-copy", "correct-biases".
ULPSCOPE_API std::string kind_of(const Repair& repair);

}  // namespace ulpscope
