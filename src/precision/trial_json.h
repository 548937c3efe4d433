// Trials one after the other, in an answer or a journal: each is told as what differs from an earlier one
// (docs/formats.md).
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "precision/json_values.h"

namespace ulpscope::json {

/// Writes and reads trials in their order. Those that were read count as earlier ones for those that are written.
class TrialCoder {
 public:
  /// Of layers and outputs, distinct.
  explicit TrialCoder(const std::vector<std::string>& names = {});

  /// What is not in the table of names yet comes with the trial.
  Json write(const Trial& trial);
  /// Throws Error(kInvalidFile).
  Trial read(const Reader& reader);
  /// The same for version 1 of the formats, where each trial lists all of its layers.
  Trial read_version_1(const Reader& reader);

  const std::vector<std::string>& names() const noexcept { return *names_; }
  /// Adds the names of a list.
  void read_names(const Reader& reader);
  /// The number of a name, which is added if it is not there.
  std::size_t number_of(const std::string& name);
  /// The name of that number.
  const std::string& name_at(const Reader& number) const;
  /// The names of a list of numbers.
  std::vector<std::string> read_layers(const Reader& reader) const;
  /// By the table here; nothing if a layer is not in it.
  std::optional<RaisedLayers::Marks> marks_of(const RaisedLayers& raised) const;
  /// Those of the latest trial.
  const RaisedLayers::Marks& latest() const { return sets_.back(); }

 private:
  void add(const std::string& name);
  RaisedLayers::Marks translate(const RaisedLayers& raised);
  Json from_raised(const RaisedLayers::Marks& marks) const;
  RaisedLayers to_raised(const Reader& reader) const;
  void read_error(const Reader& reader, Judgement& judgement) const;
  void write_error(const Judgement& judgement, Json& json);
  void remember(const Trial& trial, RaisedLayers::Marks marks, const Reader* reader);

  std::shared_ptr<std::vector<std::string>> names_ = std::make_shared<std::vector<std::string>>();
  std::unordered_map<std::string, std::size_t> numbers_;
  std::vector<RaisedLayers::Marks> sets_;  ///< Of the trials so far.
  std::size_t bytes_ = 0;                  ///< Of the trials, where their JSON need not have as many.
  RaisedLayers::Table translated_;         ///< The table of the latest trial, and its names' numbers here.
  std::vector<std::size_t> translation_;
  // As in the latest trial, unless the next one says otherwise.
  double margin_ = 1;
  std::vector<std::string> repairs_;
  int joined_ = 0, validation_ = 0;
};

}  // namespace ulpscope::json
