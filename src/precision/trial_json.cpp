#include "precision/trial_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <limits>
#include <string_view>

#include "graph/repair.h"

namespace ulpscope::json {
namespace {

using Marks = RaisedLayers::Marks;

/// Earlier trials that one may be told from.
constexpr std::size_t kBases = 32;
/// A file may say in few bytes what takes many in memory.
constexpr std::size_t kMostBytes = std::size_t{1} << 28;
constexpr std::size_t kNotThere = std::numeric_limits<std::size_t>::max();
constexpr std::uint8_t kSame = 255;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr char kDropped[] = "dropped";
constexpr std::array<std::string_view, 8> kKinds = {"search", "layer",    "shrink",    "fallback",
                                                    "repair", "hold-out", "untouched", "untouched-rest"};

/// Per layer what it becomes, or kSame.
Marks changes(const Marks& from, const Marks& to) {
  const std::size_t common = std::min(from.size(), to.size());
  Marks result(std::max(from.size(), to.size()));
  for (std::size_t i = 0; i < common; ++i) result[i] = from[i] == to[i] ? kSame : to[i];
  for (std::size_t i = common; i < to.size(); ++i) result[i] = to[i] == 0 ? kSame : to[i];
  for (std::size_t i = common; i < from.size(); ++i) result[i] = from[i] == 0 ? kSame : 0;
  return result;
}

/// Ranges of layers that become the same; any number of at least `enough` where there are so many.
std::size_t range_count(const Marks& from, const Marks& to, std::size_t enough) {
  static constexpr std::size_t kBlock = 256;
  std::array<std::uint8_t, kBlock> was, is;
  std::array<std::uint8_t, kBlock + 1> change;  // The first is the last of the block before.
  change[0] = kSame;
  const auto load = [](const Marks& marks, std::size_t begin, auto& block) {
    const std::size_t there = begin < marks.size() ? std::min(kBlock, marks.size() - begin) : 0;
    std::copy_n(marks.data() + (there > 0 ? begin : 0), there, block.begin());
    std::fill(block.begin() + there, block.end(), std::uint8_t{0});
  };
  std::size_t count = 0;
  for (std::size_t begin = 0; begin < std::max(from.size(), to.size()) && count < enough; begin += kBlock) {
    load(from, begin, was);
    load(to, begin, is);
    for (std::size_t i = 0; i < kBlock; ++i) change[i + 1] = was[i] == is[i] ? kSame : is[i];
    std::uint16_t starts = 0;
    for (std::size_t i = 0; i < kBlock; ++i)
      starts = static_cast<std::uint16_t>(starts + (change[i + 1] != kSame && change[i + 1] != change[i]));
    count += starts;
    change[0] = change[kBlock];
  }
  return count;
}

std::string key_of(std::uint8_t mark) {
  return mark == 0 ? kDropped : std::string(name_of(static_cast<Precision>(mark - 1)));
}

/// "0-4 7": calls `visit(first, last)` for each range of numbers below `count`.
template <typename F>
void read_ranges(const Reader& reader, std::size_t count, F visit) {
  const std::string text = reader.text();
  const char *at = text.data(), *const end = at + text.size();
  const auto number = [&] {
    std::size_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value >= count)
      reader.fail(fmt::format("ranges of layers such as \"0-4 7\", below {}", count));
    at = next;
    return value;
  };
  while (at != end) {
    const std::size_t first = number();
    std::size_t last = first;
    if (at != end && *at == '-') {
      ++at;
      last = number();
    }
    if (last < first || (at != end && *at++ != ' ')) reader.fail("ranges of layers such as \"0-4 7\"");
    visit(first, last);
  }
}

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

/// The worst output is the only one.
bool tells_all(const Judgement& judgement) {
  if (judgement.outputs.size() != (judgement.worst_output.empty() ? 0u : 1u)) return false;
  if (judgement.outputs.empty()) return true;
  const Judgement::OutputError& only = judgement.outputs.front();
  return only.output == judgement.worst_output && only.sample == judgement.worst_sample &&
         same_bits(only.used, judgement.used) && same_bits(only.value, judgement.value);
}

/// A list of so many values.
std::vector<Reader> values_of(const Reader& reader, std::size_t count, const char* expected) {
  std::vector<Reader> values;
  reader.each([&](const Reader& each) { values.push_back(each); });
  if (values.size() != count) reader.fail(expected);
  return values;
}

std::vector<std::string> to_repairs(const Reader& reader) {
  std::vector<std::string> words = to_texts(reader);
  std::ranges::transform(words, words.begin(), in_current_spelling);
  return words;
}

}  // namespace

TrialCoder::TrialCoder(const std::vector<std::string>& names) {
  for (const std::string& name : names) number_of(name);
}

void TrialCoder::add(const std::string& name) {
  numbers_.emplace(name, names_->size());
  names_->push_back(name);
}

void TrialCoder::read_names(const Reader& reader) {
  reader.each([&](const Reader& each) { add(each.text()); });
}

std::size_t TrialCoder::number_of(const std::string& name) {
  const auto found = numbers_.find(name);
  if (found != numbers_.end()) return found->second;
  add(name);
  return names_->size() - 1;
}

const std::string& TrialCoder::name_at(const Reader& number) const {
  const std::int64_t last = std::ssize(*names_) - 1;
  return (*names_)[number.integer<std::size_t>(0, last, fmt::format("the number of a name, below {}", names_->size()))];
}

std::vector<std::string> TrialCoder::read_layers(const Reader& reader) const {
  std::vector<std::string> names;
  std::size_t bytes = 0;  // A file may say the same long name again and again.
  reader.each([&](const Reader& each) {
    names.push_back(name_at(each));
    bytes += names.back().size();
    if (bytes > kMostBytes) each.fail("shorter names");
  });
  return names;
}

std::optional<Marks> TrialCoder::marks_of(const RaisedLayers& raised) const {
  if (raised.table() == names_) return raised.marks();
  Marks marks;
  for (std::size_t i = 0; i < raised.marks().size(); ++i) {
    if (raised.marks()[i] == 0) continue;
    const auto found = numbers_.find((*raised.table())[i]);
    if (found == numbers_.end()) return std::nullopt;
    if (found->second >= marks.size()) marks.resize(found->second + 1, 0);
    marks[found->second] = raised.marks()[i];
  }
  return marks;
}

/// The same where names may be added; quick for trials of one table.
Marks TrialCoder::translate(const RaisedLayers& raised) {
  if (raised.table() == names_) return raised.marks();
  if (translated_ != raised.table()) translation_.clear();
  translated_ = raised.table();
  translation_.resize(std::max(translation_.size(), raised.marks().size()), kNotThere);
  Marks marks;
  for (std::size_t i = 0; i < raised.marks().size(); ++i) {
    if (raised.marks()[i] == 0) continue;
    std::size_t& number = translation_[i];
    if (number == kNotThere) number = number_of((*raised.table())[i]);
    if (number >= marks.size()) marks.resize(number + 1, 0);
    marks[number] = raised.marks()[i];
  }
  return marks;
}

void TrialCoder::remember(const Trial& trial, Marks marks, const Reader* reader) {
  bytes_ += marks.size() + trial.judgement.worst_output.size();
  for (const std::string& repair : trial.repairs) bytes_ += sizeof repair + repair.size();
  for (const Judgement::OutputError& each : trial.judgement.outputs) bytes_ += each.output.size();
  if (reader != nullptr && bytes_ > kMostBytes)
    reader->fail(fmt::format("trials that take at most {} bytes", kMostBytes));
  sets_.push_back(std::move(marks));
  margin_ = trial.margin;
  repairs_ = trial.repairs;
  joined_ = trial.joined;
  validation_ = trial.validation;
}

Json TrialCoder::from_raised(const Marks& marks) const {
  std::size_t fewest = range_count({}, marks, kNotThere), base = kNotThere;
  const std::size_t first = sets_.size() - std::min(kBases, sets_.size());
  for (std::size_t k = sets_.size(); k-- > first && fewest > 0;)
    if (const std::size_t count = range_count(sets_[k], marks, fewest); count < fewest) {
      fewest = count;
      base = k;
    }
  const Marks chosen = changes(base == kNotThere ? Marks() : sets_[base], marks);
  std::array<std::string, 1 + kPrecisionCount> ranges;
  for (std::size_t i = 0; i < chosen.size();) {
    const std::size_t begin = i;
    while (i < chosen.size() && chosen[i] == chosen[begin]) ++i;
    if (chosen[begin] == kSame) continue;
    std::string& text = ranges[chosen[begin]];
    if (!text.empty()) text += ' ';
    text += std::to_string(begin);
    if (i - begin > 1) text += '-' + std::to_string(i - 1);
  }
  Json json = Json::object();
  if (base != kNotThere) json["base"] = base;
  for (std::size_t mark = 0; mark < ranges.size(); ++mark)
    if (!ranges[mark].empty()) json[key_of(static_cast<std::uint8_t>(mark))] = std::move(ranges[mark]);
  return json;
}

RaisedLayers TrialCoder::to_raised(const Reader& reader) const {
  Marks marks;
  if (reader.has("base")) {
    marks = sets_[reader.at("base").integer<std::size_t>(0, std::ssize(sets_) - 1, "the number of an earlier trial")];
  }
  reader.members([&](const std::string& key, const Reader& ranges) {
    if (key == "base") return;
    std::uint8_t mark = 0;
    while (key_of(mark) != key)
      if (++mark > kPrecisionCount) ranges.fail("a precision or \"dropped\" as the key");
    read_ranges(ranges, names_->size(), [&](std::size_t first, std::size_t last) {
      if (last >= marks.size()) marks.resize(last + 1, 0);
      std::fill(marks.begin() + static_cast<std::ptrdiff_t>(first),
                marks.begin() + static_cast<std::ptrdiff_t>(last) + 1, mark);
    });
  });
  return {names_, std::move(marks)};
}

void TrialCoder::write_error(const Judgement& judgement, Json& json) {
  const auto number = [&](const std::string& output) { return output.empty() ? Json(-1) : Json(number_of(output)); };
  if (judgement.used != kInfinity) json["used"] = from_double(judgement.used);
  json["value"] = from_double(judgement.value);
  if (!judgement.worst_output.empty() || judgement.worst_sample != -1)
    json["worst"] = {number(judgement.worst_output), judgement.worst_sample};
  if (!judgement.problem.empty()) json["problem"] = judgement.problem;
  if (tells_all(judgement)) return;
  Json& outputs = json["outputs"] = Json::array();
  for (const Judgement::OutputError& each : judgement.outputs)
    outputs.push_back(Json::array({number(each.output), from_double(each.used), from_double(each.value), each.sample}));
}

void TrialCoder::read_error(const Reader& reader, Judgement& judgement) const {
  const auto name = [&](const Reader& number) { return number.integer() == -1 ? std::string() : name_at(number); };
  judgement.used = reader.has("used") ? reader.at("used").real() : kInfinity;
  judgement.value = reader.at("value").real();
  if (reader.has("worst")) {
    const auto worst = values_of(reader.at("worst"), 2, "an output and a sample");
    judgement.worst_output = name(worst[0]);
    judgement.worst_sample = to_sample(worst[1]);
  }
  if (reader.has("problem")) judgement.problem = reader.at("problem").text();
  if (reader.has("outputs")) {
    reader.at("outputs").each([&](const Reader& row) {
      const auto values = values_of(row, 4, "an output, used, value and a sample");
      judgement.outputs.push_back({name(values[0]), values[1].real(), values[2].real(), to_sample(values[3])});
    });
  } else if (!judgement.worst_output.empty()) {
    judgement.outputs.push_back({judgement.worst_output, judgement.used, judgement.value, judgement.worst_sample});
  }
}

Json TrialCoder::write(const Trial& trial) {
  const std::size_t known = names_->size();
  Marks marks = translate(trial.raised);
  Json json = {{"kind", name_of(trial.kind)}, {"raised", from_raised(marks)}};
  write_error(trial.judgement, json);
  if (!same_bits(trial.margin, margin_)) json["margin"] = from_double(trial.margin);
  if (trial.repairs != repairs_) json["repairs"] = trial.repairs;
  if (trial.joined != joined_) json["joined"] = trial.joined;
  if (trial.validation != validation_) json["validation"] = trial.validation;
  if (trial.samples_passed != -1) json["samples_passed"] = trial.samples_passed;
  for (const double used : trial.sample_used) json["sample_used"].push_back(from_double(used));
  json["cost"] = {from_double(trial.cost_share), from_double(trial.time_us), from_double(trial.seconds)};
  for (std::size_t i = known; i < names_->size(); ++i) json["names"].push_back((*names_)[i]);
  remember(trial, std::move(marks), nullptr);
  return json;
}

Trial TrialCoder::read(const Reader& reader) {
  if (reader.has("names")) read_names(reader.at("names"));
  Trial trial;
  trial.kind = to_enum<TrialKind>(reader.at("kind"), kKinds);
  trial.raised = to_raised(reader.at("raised"));
  read_error(reader, trial.judgement);
  trial.margin = reader.has("margin") ? reader.at("margin").real() : margin_;
  trial.repairs = reader.has("repairs") ? to_repairs(reader.at("repairs")) : repairs_;
  trial.joined = reader.has("joined") ? to_sample(reader.at("joined")) : joined_;
  trial.validation = reader.has("validation") ? to_sample(reader.at("validation")) : validation_;
  if (reader.has("samples_passed")) trial.samples_passed = to_sample(reader.at("samples_passed"));
  if (reader.has("sample_used"))
    reader.at("sample_used").each([&](const Reader& each) { trial.sample_used.push_back(each.real()); });
  const auto cost = values_of(reader.at("cost"), 3, "a share of multiply-adds, microseconds and seconds");
  trial.cost_share = cost[0].real();
  trial.time_us = cost[1].real();
  trial.seconds = cost[2].real();
  remember(trial, trial.raised.marks(), &reader);
  return trial;
}

Trial TrialCoder::read_version_1(const Reader& reader) {
  Trial trial;
  trial.kind = to_enum<TrialKind>(reader.at("kind"), kKinds);
  trial.repairs = to_repairs(reader.at("repairs"));
  Marks marks;
  reader.at("raised").each([&](const Reader& pair) {
    const auto words = values_of(pair, 2, "a layer and its precision");
    const std::size_t number = number_of(words[0].text());
    if (number >= marks.size()) marks.resize(number + 1, 0);
    marks[number] = RaisedLayers::mark_of(to_precision(words[1]));
  });
  trial.raised = {names_, std::move(marks)};
  trial.judgement = to_judgement(reader.at("error"));
  trial.margin = reader.at("margin").real();
  if (reader.has("samples_passed")) trial.samples_passed = to_sample(reader.at("samples_passed"));
  if (reader.has("joined")) trial.joined = to_sample(reader.at("joined"));
  if (reader.has("validation")) trial.validation = to_sample(reader.at("validation"));
  if (reader.has("sample_used"))
    reader.at("sample_used").each([&](const Reader& each) { trial.sample_used.push_back(each.real()); });
  trial.seconds = reader.at("seconds").real();
  trial.time_us = reader.at("time_us").real();
  trial.cost_share = reader.at("cost_share").real();
  remember(trial, trial.raised.marks(), &reader);
  return trial;
}

}  // namespace ulpscope::json

std::string_view ulpscope::name_of(TrialKind kind) noexcept { return json::kKinds[static_cast<std::size_t>(kind)]; }
