// Trials as differences: what is read is what was written, and large searches take little room.
#include "precision/trial_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "core/file.h"
#include "core/temporary_folder.h"
#include "precision/journal.h"
#include "ulpscope/error.h"

namespace ulpscope::testing {
namespace {

using json::Json;
using json::TrialCoder;
using Random = std::mt19937;

constexpr std::size_t kLayers = 5000, kTrials = 1124;

RaisedLayers::Table table_of(std::size_t count) {
  auto names = std::make_shared<std::vector<std::string>>();
  for (std::size_t i = 0; i < count; ++i)
    names->push_back("/encoder/layers." + std::to_string(i) + "/self_attn/MatMul");
  return names;
}

std::size_t below(Random& random, std::size_t count) { return random() % count; }

/// None, few, most or all layers; alone or in rows; sometimes an earlier set with changes.
RaisedLayers::Marks random_marks(Random& random, std::size_t count, const std::vector<Trial>& earlier) {
  RaisedLayers::Marks marks(count, 0);
  if (!earlier.empty() && random() % 2 == 0) {
    const RaisedLayers::Marks& base = earlier[below(random, earlier.size())].raised.marks();
    std::ranges::copy(base, marks.begin());
  }
  const std::size_t rows = below(random, 2) * below(random, count + 1);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t first = below(random, count);
    const std::size_t length = random() % 3 == 0 ? 1 + below(random, 1 + count / 4) : 1;
    const auto mark = static_cast<std::uint8_t>(random() % 7);
    for (std::size_t i = first; i < std::min(count, first + length); ++i) marks[i] = mark;
  }
  return marks;
}

Trial trial_of(RaisedLayers raised, double used) {
  Trial trial;
  trial.kind = TrialKind::kSearch;
  trial.raised = std::move(raised);
  trial.judgement = {used, used / 3, "logits", 2, {{"logits", used, used / 3, 2}}, ""};
  trial.margin = 0.137259837498123;
  trial.time_us = 3829.72983749;
  trial.cost_share = 0.387293847;
  trial.seconds = 0.2387498237;
  return trial;
}

void expect_same(const Trial& a, const Trial& b) {
  EXPECT_EQ(a.kind, b.kind);
  ASSERT_EQ(a.raised.layers(), b.raised.layers());
  EXPECT_EQ(a.repairs, b.repairs);
  EXPECT_EQ(a.joined, b.joined);
  EXPECT_EQ(a.validation, b.validation);
  EXPECT_EQ(a.margin, b.margin);
  EXPECT_EQ(a.samples_passed, b.samples_passed);
  EXPECT_EQ(a.sample_used, b.sample_used);
  EXPECT_EQ(a.judgement.used, b.judgement.used);
  EXPECT_EQ(a.judgement.value, b.judgement.value);
  EXPECT_EQ(a.judgement.worst_output, b.judgement.worst_output);
  EXPECT_EQ(a.judgement.worst_sample, b.judgement.worst_sample);
  EXPECT_EQ(a.judgement.problem, b.judgement.problem);
  ASSERT_EQ(a.judgement.outputs.size(), b.judgement.outputs.size());
  for (std::size_t i = 0; i < a.judgement.outputs.size(); ++i) {
    EXPECT_EQ(a.judgement.outputs[i].output, b.judgement.outputs[i].output);
    EXPECT_EQ(a.judgement.outputs[i].used, b.judgement.outputs[i].used);
    EXPECT_EQ(a.judgement.outputs[i].value, b.judgement.outputs[i].value);
    EXPECT_EQ(a.judgement.outputs[i].sample, b.judgement.outputs[i].sample);
  }
  EXPECT_EQ(a.time_us, b.time_us);
  EXPECT_EQ(a.cost_share, b.cost_share);
  EXPECT_EQ(a.seconds, b.seconds);
}

Trial random_trial(Random& random, const RaisedLayers::Table& table, const std::vector<Trial>& earlier) {
  Trial trial = trial_of({table, random_marks(random, table->size(), earlier)}, static_cast<double>(random()) / 1e9);
  if (random() % 4 == 0) trial.kind = TrialKind::kHoldOut;
  if (random() % 4 == 0) trial.margin = 1;
  if (random() % 8 == 0) trial.repairs = {"clamp mask:" + std::to_string(random() % 3)};
  if (random() % 8 == 0) trial.joined = static_cast<int>(random() % 3);
  if (random() % 8 == 0) trial.validation = static_cast<int>(random() % 3);
  if (random() % 4 == 0) trial.samples_passed = static_cast<int>(random() % 9);
  if (random() % 4 == 0) trial.sample_used = {0.1, std::numeric_limits<double>::infinity()};
  if (random() % 4 == 0) trial.judgement.problem = "output 'y': 1 NaN";
  if (random() % 4 == 0) trial.judgement.outputs.push_back({"output " + std::to_string(random() % 5), 0.1, 2.5, -1});
  if (random() % 8 == 0) trial.judgement.outputs.clear();
  if (random() % 8 == 0) trial.judgement.worst_output.clear();
  return trial;
}

TEST(TrialJson, ReadsWhatItWritesForRandomSets) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const RaisedLayers::Table table = table_of(1 + below(random, 60));
    // Some or none of the names are known before; another order makes other differences, but the same sets.
    std::vector<std::string> known(*table);
    std::ranges::shuffle(known, random);
    known.resize(below(random, known.size() + 1));
    TrialCoder writer(known), reader(known);
    std::vector<Trial> trials;
    for (int i = 0; i < 80; ++i) {
      trials.push_back(random_trial(random, random() % 9 == 0 ? table_of(table->size()) : table, trials));
      const Json line = Json::parse(writer.write(trials.back()).dump());
      const Trial read = reader.read(json::Reader(line, "line"));
      EXPECT_EQ(read.raised, trials.back().raised);
      Trial ordered = trials.back();
      ordered.raised = read.raised;  // In the order of the other table.
      expect_same(read, ordered);
    }
  }
}

/// Every trial changes up to some dozens of layers of an earlier one.
std::vector<Trial> realistic_trials(unsigned seed) {
  Random random(seed);
  const RaisedLayers::Table table = table_of(kLayers);
  std::vector<Trial> trials;
  for (std::size_t i = 0; i < kTrials; ++i) {
    RaisedLayers::Marks marks(kLayers, 0);
    if (i == 0) {
      for (std::uint8_t& mark : marks) mark = random() % 20 == 0 ? 0 : RaisedLayers::mark_of(Precision::kFP32);
    } else {
      std::ranges::copy(trials[i - 1 - below(random, std::min<std::size_t>(i, 8))].raised.marks(), marks.begin());
      for (std::size_t change = below(random, 49); change > 0; --change) {
        std::uint8_t& mark = marks[below(random, kLayers)];
        mark = mark == 0 ? RaisedLayers::mark_of(Precision::kFP32) : std::uint8_t{0};
      }
    }
    trials.push_back(trial_of({table, std::move(marks)}, 0.13725983749812 + static_cast<double>(i)));
    if (i % 3 == 0) {
      trials.back().judgement.used = trials.back().judgement.outputs[0].used = std::numeric_limits<double>::infinity();
      trials.back().judgement.value = trials.back().judgement.outputs[0].value =
          std::numeric_limits<double>::infinity();
      trials.back().judgement.problem =
          "output 'logits', sample 2: 131072 NaN and 64 Inf where the golden output has other values";
    }
  }
  return trials;
}

AnswerFile answer_of(std::vector<Trial> trials) {
  AnswerFile file;
  Random random(5);
  const RaisedLayers::Table table = table_of(kLayers);
  for (const std::string& name : *table) {
    const double effect = std::generate_canonical<double, 53>(random);
    file.answer.sensitivities.push_back({name, "MatMul", effect, random() % 50 == 0});
  }
  file.answer.trials = std::move(trials);
  return file;
}

constexpr std::size_t kFiveMegabytes = 5'000'000;

TEST(TrialJson, AnswersOfLargeSearchesAreSmall) {
  const AnswerFile file = answer_of(realistic_trials(1));
  const std::string text = answer_to_json(file);
  EXPECT_LE(text.size(), kFiveMegabytes);
  const AnswerFile read = answer_from_json(text, "x");
  ASSERT_EQ(read.answer.trials.size(), kTrials);
  for (std::size_t i = 0; i < kTrials; ++i) expect_same(read.answer.trials[i], file.answer.trials[i]);
  ASSERT_EQ(read.answer.sensitivities.size(), kLayers);
  for (std::size_t i = 0; i < kLayers; ++i) {
    const auto &a = read.answer.sensitivities[i], &b = file.answer.sensitivities[i];
    ASSERT_TRUE(a.name == b.name && a.op == b.op && a.effect == b.effect && a.measured == b.measured);
  }
}

/// The bytes of a line but for its difference.
std::size_t constant_part(const std::string& line) {
  const std::string raised = Json::parse(line)["raised"].dump();
  return line.size() - raised.size();
}

TEST(TrialJson, JournalsOfLargeSearchesAreSmall) {
  const ulpscope::TemporaryFolder folder(std::filesystem::path(::testing::TempDir()) / "large_journal");
  const auto path = folder.path() / "x.jsonl";
  const std::vector<Trial> trials = realistic_trials(2);
  std::vector<std::string> names = *trials.front().raised.table();
  names.push_back("logits");
  Journal journal = Journal::create(path, {{"model", "m"}}, names);
  for (const Trial& trial : trials) journal.add(trial);
  const std::string text = read_file(path);
  EXPECT_LE(text.size(), kFiveMegabytes);
  // The first line says the margin for all.
  std::size_t longest = 0;
  for (std::size_t at = text.find('\n', text.find('\n') + 1) + 1; at < text.size(); at = text.find('\n', at) + 1)
    longest = std::max(longest, constant_part(text.substr(at, text.find('\n', at) - at)));
  EXPECT_LE(longest, 200u);
  const Journal read = Journal::resume(path, {{"model", "m"}});
  ASSERT_EQ(read.trials().size(), kTrials);
  for (std::size_t i = 0; i < kTrials; ++i) {
    expect_same(read.trials()[i], journal.trials()[i]);
    EXPECT_EQ(journal.trials()[i].raised, trials[i].raised);
    EXPECT_NE(read.find(TrialKind::kSearch, trials[i].raised), nullptr);
  }
}

TEST(TrialJson, UnrelatedSetsOfALargeSearchAreKept) {
  Random random(3);
  const RaisedLayers::Table table = table_of(kLayers);
  std::vector<Trial> trials;
  for (std::size_t i = 0; i < kTrials; ++i) {
    RaisedLayers::Marks marks(kLayers, 0);
    for (std::uint8_t& mark : marks) mark = random() % 2 == 0 ? 0 : RaisedLayers::mark_of(Precision::kFP16);
    trials.push_back(trial_of({table, std::move(marks)}, static_cast<double>(i)));
  }
  const AnswerFile file = answer_of(std::move(trials));
  const AnswerFile read = answer_from_json(answer_to_json(file), "x");
  for (std::size_t i = 0; i < kTrials; ++i)
    ASSERT_EQ(read.answer.trials[i].raised.layers(), file.answer.trials[i].raised.layers());
}

TEST(TrialJson, NamesOfAnAnswerAreInTheNetworksOrder) {
  const RaisedLayers::Table table = table_of(6);
  AnswerFile file;
  file.answer.sensitivities = {{(*table)[1], "Add", 1, false}, {(*table)[4], "Add", 1, false}};
  file.answer.trials = {trial_of({table, {0, 0, 1, 0, 0, 1}}, 1), trial_of({table_of(6), {0, 3, 3, 3}}, 2)};
  const auto& t = *table;
  EXPECT_EQ(Json::parse(answer_to_json(file))["names"], Json({t[1], t[2], t[3], t[4], t[5]}));
}

TEST(TrialJson, RefusesWhatTakesFarMoreThanItsFile) {
  Json names = Json::array();
  for (int i = 0; i < 40000; ++i) names.push_back(std::to_string(i));
  Json document = Json::parse(answer_to_json({}));
  document["names"] = names;
  const Json trial = {
      {"kind", "search"}, {"raised", {{"fp32", "39999"}}}, {"used", 1}, {"value", 1}, {"cost", {0, 0, 0}}};
  for (int i = 0; i < 8000; ++i) document["trials"].push_back(trial);
  try {
    answer_from_json(document.dump(), "x");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("expected trials that take at most 268435456 bytes"));
  }
}

}  // namespace
}  // namespace ulpscope::testing
