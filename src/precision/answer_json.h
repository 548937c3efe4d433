// answer.json: what a search answered, for other tools (docs/formats.md has the schema).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "precision/answer.h"

namespace ulpscope {

/// Version of the schema that is written, and the only one that is read.
inline constexpr int kAnswerVersion = 1;

/// An answer with what it is about.
struct AnswerFile {
  Answer answer;
  std::string program;  ///< "ulpscope 0.1.0": what wrote it.
  std::string model;    ///< The path as it was given.
  /// `hash_of_file` (precision/fingerprint.h) of the model; external data are not part of it.
  std::string model_hash;
  /// What was allowed: "fp16", "bf16", "int8", ...
  std::vector<std::string> precisions;
  /// "none", "pointwise", "full".
  std::string fusion;
  /// Words after `ulpscope run MODEL` that build and run the network of the answer (no inputs, no comparison).
  std::vector<std::string> run_options;
  /// The tolerance as options of `precision search`, and files of inputs and of golden results. Empty in files of
  /// earlier releases.
  std::vector<std::string> criterion_options, inputs;
  std::string golden;
  std::string calibration_cache;        ///< int8: the file of the scales; may be empty.
  std::map<std::string, float> scales;  ///< int8: the scale of each tensor, by name.
};

std::string answer_to_json(const AnswerFile& file);
/// `where` names the text in messages. Throws Error(kInvalidFile) naming the key: what is no answer, another version,
/// a value that does not fit.
AnswerFile answer_from_json(std::string_view text, const std::string& where);

/// Throws Error(kIo).
void write_answer(const std::filesystem::path& path, const AnswerFile& file);
/// Throws Error(kNotFound), Error(kIo), and what answer_from_json throws.
AnswerFile read_answer(const std::filesystem::path& path);

/// "found", "not-reachable", "unverified", "fails-held-out".
std::string_view name_of(Answer::Verdict verdict) noexcept;
/// "overflow", "underflow", "cancellation", "saturation", "resolution", "rounding", "measured", "requested".
std::string_view name_of(ReasonKind kind) noexcept;

}  // namespace ulpscope
