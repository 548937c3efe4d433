// What a search answers: layers to keep in higher precision, with reasons and evidence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/assignment.h"
#include "precision/criterion.h"
#include "precision/journal.h"

namespace ulpscope {

enum class ReasonKind : std::uint8_t {
  kOverflow,      ///< Values beyond the largest of the type.
  kUnderflow,     ///< Values that vanish.
  kCancellation,  ///< Rounded operands that cancel (or values so large that the type's steps lose what is added).
  kSaturation,    ///< int8: values clipped by the scale's range.
  kResolution,    ///< int8: the scale's steps are coarse for most of the values.
  kRounding,      ///< Many small roundings.
  kMeasured,      ///< Has no derivative: found by trying.
  kRequested,     ///< The user keeps it.
};

struct Reason {
  ReasonKind kind = ReasonKind::kRounding;
  std::string tensor;      ///< Where it shows.
  std::int64_t count = 0;  ///< Elements concerned, over all samples,
  std::int64_t total = 0;  ///< of these.
  double largest = 0;      ///< The largest magnitude there (underflow: the smallest that vanishes).
  double share = 0;        ///< Of the squared error of the lowest precision, as predicted.
  std::string text;        ///< One sentence.

  /// The precision that the layer would have without the search; none where nothing was looked at (kRequested).
  std::optional<Precision> low;
  /// How many elements of `tensor` have floor(log2 |x|) = first_exponent + index, over all samples. Zeros, infinities
  /// and NaN are not in it. Empty where nothing was looked at.
  int first_exponent = 0;
  std::vector<std::int64_t> exponents;
};

struct KeptLayer {
  std::string name, op;
  std::vector<std::string> nodes;  ///< ONNX node names.
  Precision precision = Precision::kFP32;
  double effect = 0;  ///< Predicted: share of the tolerance that it uses alone, as an amplitude; may be infinite.
  Reason reason;
};

/// A change that costs no precision, made before any layer is raised.
struct Repair {
  std::string kind;  ///< "clamp" (a constant), "scale-shift" (a BatchNormalization), "unfold", "equalise" and
                     ///< "equalise-copy" (channels, in constants or by an added layer).
  std::string name;  ///< Layer or tensor.
  double limit = 0;  ///< clamp: magnitudes are at most this. equalise: the int8 scale of the tensor.
  std::string text;  ///< One sentence.
  std::vector<std::int8_t> exponents{};  ///< equalise: channels are divided by 2^e.
};

struct Answer {
  enum class Verdict : std::uint8_t {
    kFound,         ///< Passes on the search samples at the margin, and on the held-out ones, where there are any.
    kNotReachable,  ///< Not even with every candidate raised.
    kUnverified,    ///< A limit or an interruption came before; the best so far.
    kFailsHeldOut,  ///< Passes on the search samples, not on the held-out ones, whatever is raised.
  };
  Verdict verdict = Verdict::kUnverified;
  std::string message;  ///< The verdict in one sentence.
  std::vector<KeptLayer> kept;
  std::vector<std::string> following;  ///< Movement layers that carry higher precision because of them.
  std::vector<Repair> repairs;
  int candidates = 0;
  std::string criterion;
  double margin = 0.5;
  Judgement search;                   ///< Of the answer, on the search samples.
  std::optional<Judgement> held_out;  ///< On the others.
  int search_samples = 0, held_out_samples = 0, held_out_passed = 0;
  double cost_share = 0;    ///< Of the multiply-adds that stay in higher precision.
  double time_us = 0;       ///< Estimated on the target: the answer,
  double time_low_us = 0;   ///< everything low,
  double time_high_us = 0;  ///< everything in the highest precision.
  std::string target;
  std::vector<Trial> trials;  ///< The error-against-time curve.
  std::int64_t evaluations = 0, held_out_evaluations = 0;
  double seconds = 0;           ///< In all,
  double held_out_seconds = 0;  ///< of these for held-out samples.
  /// Per candidate, in network order, for the picture of sensitivities.
  struct Sensitivity {
    std::string name, op;
    double effect = 0;
    bool measured = false;
  };
  std::vector<Sensitivity> sensitivities;
};

}  // namespace ulpscope
