// What a search answers: layers to keep in higher precision, with reasons and evidence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulpscope/export.h"
#include "ulpscope/precision.h"
#include "ulpscope/raised_layers.h"
#include "ulpscope/repair.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// The verdict on the outputs of all samples.
struct Judgement {
  /// error / tolerance of the worst output and sample; infinity where something is not finite that should be. Passes at
  /// margin F if `used` <= F. For a higher-is-better metric the loss: 1 - x for top-k and iou, the ratio of amplitudes
  /// for psnr and snr (10^((threshold - x) / 20)).
  double used = 0;
  /// The value in the metric's own unit, at the worst output and sample (rel-l2, dB, ...).
  double value = 0;
  std::string worst_output;
  int worst_sample = -1;
  /// Per output, the worst sample: name, used, value.
  struct OutputError {
    std::string output;
    double used = 0, value = 0;
    int sample = -1;
  };
  std::vector<OutputError> outputs;
  /// Why `used` is infinite, for people: "output 'y', sample 3: 2 NaN and 1 Inf where the golden output is finite".
  /// Empty otherwise.
  std::string problem;
  bool passed(double margin = 1.0) const noexcept { return used <= margin; }
};

/// What a search wants little of.
enum class Objective : std::uint8_t {
  kFastest,   ///< Time on the target.
  kSmallest,  ///< Layers in higher precision.
  kCheapest,  ///< Multiply-adds in higher precision.
  kBits,      ///< Bits of weights,
  kError,     ///< or the error that a budget of these leaves.
};

/// What a trial was for, and so which samples it ran on.
enum class TrialKind : std::uint8_t {
  kSearch,         ///< Those of the search: a set that may be the answer,
  kLayer,          ///< one layer low, or a few,
  kShrink,         ///< a layer less,
  kFallback,       ///< another order of the layers,
  kRepair,         ///< or other repairs than the answer has.
  kHoldOut,        ///< Those of validation.
  kUntouched,      ///< One half of the untouched ones,
  kUntouchedRest,  ///< the other.
};
constexpr bool is_held_out(TrialKind kind) noexcept { return kind >= TrialKind::kHoldOut; }

/// One run of the network over all samples of its kind.
struct Trial {
  TrialKind kind = TrialKind::kSearch;
  RaisedLayers raised;  ///< Those above the lowest precision.
  Judgement judgement;
  double margin = 1;  ///< It passed if judgement.passed(margin).
  double seconds = 0;
  double time_us = 0;     ///< Estimated on the target.
  double cost_share = 0;  ///< Of the multiply-adds, in raised layers.
  /// Samples that pass by themselves; -1: the criterion judges them together only, or nobody counted.
  int samples_passed = -1;
  /// Held-out samples that had joined those of the search, and those of validation at that time.
  int joined = 0, validation = 0;
  /// Of the tolerance, per sample, to 4 digits; empty where they say nothing (a script, "hold-out", not finite).
  std::vector<double> sample_used{};
  /// The repairs in force, one word each ("clamp mask:32752"): the same layers on another network are another trial.
  std::vector<std::string> repairs;
};

enum class ReasonKind : std::uint8_t {
  kOverflow,      ///< Values beyond the largest of the type.
  kUnderflow,     ///< Values that vanish.
  kCancellation,  ///< Rounded operands that cancel (or values so large that the type's steps lose what is added).
  kSaturation,    ///< int8: values clipped by the scale's range.
  kResolution,    ///< int8: the scale's steps are coarse for most of the values.
  kRounding,      ///< Many small roundings.
  kMeasured,      ///< Has no derivative: found by trying.
  kRequested,     ///< The user keeps it.
  kSingular,  ///< A difference that has lost its digits feeds a function that is singular near 0 (or Repair::keeps).
  kFaster,    ///< Accuracy does not ask for it: it saves time.
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
  /// Everything in the lowest precisions without repairs, but for what was asked to stay: what is to be had without an
  /// answer.
  struct Lowest {
    Judgement judgement;  ///< On the samples of the search that it was tried on,
    int samples = 0;      ///< so many.
    /// On all others, those that joined the search included; nothing where it fails before, there are none, or the
    /// search ended.
    std::optional<Judgement> held_out;
    int held_out_samples = 0, held_out_passed = 0;
    std::string first_output;  ///< The first in the network's order that fails; empty where none does.
    /// The first layer that makes an infinity or a NaN of finite values; empty where none does, or it is not known.
    std::string layer, op;
    bool passed() const noexcept { return judgement.passed() && (!held_out || held_out->passed()); }
  };
  std::optional<Lowest> lowest;  ///< Nothing in files of earlier releases, and where the search ended before.
  int candidates = 0;
  std::string criterion;
  double margin = 0.5;
  Judgement search;  ///< Of the answer, on the search samples.
  /// On the samples that nothing was chosen by, or those of validation where there are no others; nothing where there
  /// are none, or the search ended before.
  std::optional<Judgement> held_out;
  int search_samples = 0, held_out_samples = 0, held_out_passed = 0;
  /// Of the first sample, by input: where sizes are open, what an engine of the answer is built for. Empty in files of
  /// earlier releases.
  std::map<std::string, Shape> input_shapes;
  int joined_samples = 0;      ///< Of the search samples, those that were held out until they failed.
  int validation_samples = 0;  ///< Held-out samples that took part in the choice, since sets failed on them.
  double cost_share = 0;       ///< Of the multiply-adds that stay in higher precision.
  double time_us = 0;          ///< Estimated on the target: the answer,
  double time_low_us = 0;      ///< everything low,
  double time_high_us = 0;     ///< everything in the highest precision.
  /// Of `time_us`, what casts between precisions take. Not known of other sets than the search's own.
  struct Casts {
    int count = 0;
    double time_us = 0;
  };
  std::optional<Casts> casts;
  std::string target;
  std::string target_hash;  ///< Of the figures of a target that is a file ("xxh3:..."); empty for the others.
  std::vector<Trial> trials;
  /// The best set of each objective among those that were proven: that pass like the answer, which is one of them.
  struct ProvenSet {
    Objective objective = Objective::kFastest;
    int trial = -1;  ///< Index into `trials`: its layers, error, time and cost.
  };
  std::vector<ProvenSet> sets;
  /// What chose the set of this answer; nothing in files of earlier releases, and where a trial was asked for by
  /// number.
  std::optional<Objective> objective;
  /// The predicted curve of error against time, from the fastest assignment to everything in the highest precision.
  struct CurvePoint {
    double time_us = 0;
    double used = 0;  ///< Of the tolerance, as predicted and corrected by the trials; may be infinite.
    int raised = 0;   ///< Layers in higher precision.
  };
  std::vector<CurvePoint> curve;
  /// Where formats of constant weights were chosen by their bits; nothing elsewhere, and for sets other than the
  /// search's own.
  struct Bits {
    double budget = 0;          ///< Per weight; 0: there was none.
    bool has_tolerance = true;  ///< False: the threshold of the criterion is 1, and nothing had to meet it.
    struct Layer {
      std::string name;
      Precision format = Precision::kFP32;
      std::int64_t block = 0;  ///< Weights that share a scale; 0: an output channel, or all, or there are no scales.
      std::int64_t weights = 0, bits = 0;  ///< Codes, scales and zero points.
    };
    std::vector<Layer> layers;  ///< All candidates, in network order.
    /// Some of the least errors that bits are predicted to allow, from the fewest bits per weight on.
    struct Point {
      double bits = 0;
      double used = 0;  ///< Of the tolerance, as predicted and corrected by the trials.
    };
    std::vector<Point> curve;

    std::int64_t weights() const noexcept;
    std::int64_t bits() const noexcept;
    double per_weight() const noexcept;
  };
  std::optional<Bits> bits;
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
  /// floor(log2 |x|) of the values that are finite and not 0.
  struct Magnitudes {
    int smallest = 0, largest = 0;
  };
  struct NetworkLayer {
    std::string name, op;
    /// Of kept layers when nothing is raised; of others what they run in (the bias of a kept product follows it).
    /// Nothing for layers without float arithmetic.
    std::optional<Precision> low{};
    /// Of the layers that it reads values of, indices into `network`, all smaller than its own.
    std::vector<int> inputs{};
    /// Estimated on the target in each precision that it may have, casts left out.
    std::map<Precision, double> time_us{};
    std::optional<Magnitudes> magnitudes{};  ///< Of its first output in float32, on the first sample.
  };
  /// With its repairs and without folded constants, in network order. Empty in files of earlier releases.
  std::vector<NetworkLayer> network;
};

/// Version of the schema that is written. Version 1 is read as well.
inline constexpr int kAnswerVersion = 2;

/// How the network of an answer is made of its file, beside precisions, fusion, kept layers and repairs.
struct BuildRecord {
  /// Layers that nothing is said about take the lowest precision; else one that costs less on the target.
  bool assume_lowest = false;
  std::string target;                                                   ///< As it was given; empty: none was.
  std::string external_data_dir;                                        ///< The same.
  std::vector<std::pair<std::string, std::string>> layer_precisions{};  ///< What layers were asked for: name, type.
  std::vector<std::string> clamp_constants{};                           ///< "NAME" or "NAME:LIMIT".
  /// What else the program did to the network, as an option of `run` ("--trt-outputs"), and its values.
  struct Change {
    std::string option;
    std::vector<std::string> values;
  };
  std::vector<Change> changes{};
};

/// An answer with what it is about.
struct AnswerFile {
  Answer answer;
  std::string program;  ///< "ulpscope 0.1.0": what wrote it.
  std::string model;    ///< The path as it was given.
  /// "xxh3:" and 16 hexadecimal digits: XXH3 of the model's file, without external data.
  std::string model_hash;
  /// The same of the files that hold its external data; empty without such files, and in answers of earlier releases.
  std::string external_hash;
  /// What was allowed: "fp16", "bf16", "int8", ...
  std::vector<std::string> precisions;
  /// "none", "pointwise", "full".
  std::string fusion;
  /// What products of narrow floats were added up in: "fp32", "hopper", "hopper-fast".
  std::string accumulation = "fp32";
  /// What the second product of an attention in one group reads: "normalized", "flash".
  std::string attention = "normalized";
  BuildRecord build;
  /// The tolerance as options of `precision search`, and files of inputs and of golden results. Empty in files of
  /// earlier releases.
  std::vector<std::string> criterion_options, inputs;
  std::string golden;
  std::string calibration_cache;        ///< int8: the file of the scales; may be empty.
  std::map<std::string, float> scales;  ///< int8: the scale of each tensor, by name.
  /// As ModelOptions has them; empty where no format was allowed that they are about.
  std::string weight_scales, mx_scale_rule;
  /// For scales by activations, per product, by the layer's name: the mean square of each channel of its input that is
  /// summed over, float32.
  std::map<std::string, Tensor> mean_squares;
  std::filesystem::path path;           ///< Where it was read from, or will be written; no part of the file.
  /// Words behind `--answer PATH` that choose this set of it ("--trial", "3"); no part of the file.
  std::vector<std::string> set_options;
  /// The words behind `ulpscope` of the search that found it; no part of the file.
  std::vector<std::string> command;
};

/// Words after `ulpscope run MODEL` that build and run the network of the answer (no inputs, no comparison).
ULPSCOPE_API std::vector<std::string> run_options(const AnswerFile& file);

ULPSCOPE_API std::string answer_to_json(const AnswerFile& file);
/// The answer as people read it on a terminal: several lines without a newline at the end. Lists longer than a screen
/// are cut, unless `everything`.
ULPSCOPE_API std::string answer_text(const AnswerFile& file, bool everything = false);
/// The same of everything in the lowest precisions, with which answer_text begins: "All in FP16: 0.13 of the tolerance,
/// passes on 16 samples", and what keeps layers high all the same. Empty where it is not known.
ULPSCOPE_API std::string lowest_text(const AnswerFile& file);
/// Whether everything in the lowest precisions passes on all samples, held-out ones included, and layers are kept only
/// since it uses more of the tolerance than the search aimed at.
ULPSCOPE_API bool only_margin_keeps(const Answer& answer) noexcept;
/// "name:float32" per kept layer, one per line: words for `--layer-precisions`.
ULPSCOPE_API std::string layer_precisions_text(const Answer& answer);
/// `where` names the text in messages. Throws Error(kInvalidFile) naming the key: what is no answer, another version,
/// a value that does not fit.
ULPSCOPE_API AnswerFile answer_from_json(std::string_view text, const std::string& where);

/// Throws Error(kIo).
ULPSCOPE_API void write_answer(const std::filesystem::path& path, const AnswerFile& file);
/// Throws Error(kNotFound), Error(kIo), and what answer_from_json throws.
ULPSCOPE_API AnswerFile read_answer(const std::filesystem::path& path);

/// The answer with another one of its proven sets: layers, error and time. Reasons are those of
/// the answer where it keeps a layer, too; nodes and operators are not known for others, nor the layers that follow.
/// Throws Error(kInvalidArgument) where no set was proven for it.
ULPSCOPE_API AnswerFile with_set(AnswerFile file, Objective objective);

/// The same with the layers of a trial (an index into `trials`), whether it passed or not: `verdict` says which. Throws
/// Error(kInvalidArgument) for an index beyond them.
ULPSCOPE_API AnswerFile with_trial(AnswerFile file, std::size_t trial);
/// The answer as it is to be written to a path, with a calibration cache beside it where the old one was beside it.
ULPSCOPE_API AnswerFile moved_to(AnswerFile file, const std::filesystem::path& path);
/// The calibration cache beside an answer: ANSWER.calibration.cache.
ULPSCOPE_API std::filesystem::path cache_beside(std::filesystem::path answer_path);

/// "search", "layer", "shrink", "fallback", "repair", "hold-out", "untouched", "untouched-rest".
ULPSCOPE_API std::string_view name_of(TrialKind kind) noexcept;
/// "fastest", "smallest", "cheapest", "bits", "error".
ULPSCOPE_API std::string_view name_of(Objective objective) noexcept;
ULPSCOPE_API std::vector<std::string> objective_names();
/// Nothing where none has this name.
ULPSCOPE_API std::optional<Objective> objective_named(std::string_view name) noexcept;
/// "found", "not-reachable", "unverified", "fails-held-out".
ULPSCOPE_API std::string_view name_of(Answer::Verdict verdict) noexcept;
/// "constant", "shared-constant", "insertion", "epsilon", "int8-scale".
ULPSCOPE_API std::string_view name_of(ScaleEdit::Kind kind) noexcept;
/// "overflow", "underflow", "cancellation", "saturation", "resolution", "rounding", "measured", "requested",
/// "singular", "faster".
ULPSCOPE_API std::string_view name_of(ReasonKind kind) noexcept;

}  // namespace ulpscope
