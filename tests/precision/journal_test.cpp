// The journal: what is written is what is read, whatever happened in between.
#include "precision/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "compare/log_capture.h"
#include "core/file.h"
#include "ulpscope/error.h"

namespace ulpscope::testing {
namespace {

using ::testing::HasSubstr;

const Fingerprint kMade = {{"model", "xxh3:01"}, {"metric", "rel-l2 <= 0.01"}, {"margin", "0.5"}};

Trial trial_of(RaisedLayers raised, double used, TrialKind kind = TrialKind::kSearch) {
  Trial trial;
  trial.kind = kind;
  trial.raised = std::move(raised);
  trial.judgement.used = used;
  trial.judgement.value = used / 3.0;
  trial.judgement.worst_output = "y";
  trial.judgement.worst_sample = 2;
  trial.judgement.problem = "output 'y': 1 NaN";
  trial.judgement.outputs = {{"y", used, used / 3.0, 2}, {"z", 0.1, -0.0, 0}};
  trial.margin = 1.0 / 3.0;
  trial.seconds = 0.1 + 1e-9;
  trial.time_us = 200.0 / 3.0;
  trial.cost_share = 5e-324;
  return trial;
}

class JournalFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("journal_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    path_ = folder_ / "x.journal.jsonl";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string resume_error(const Fingerprint& fingerprint = kMade) {
    try {
      Journal::resume(path_, fingerprint);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  }

  void write_two() {
    Journal journal = Journal::create(path_, kMade);
    journal.add(trial_of({}, 3.0));
    journal.add(trial_of({{"Add", Precision::kFP32}}, 0.25));
  }

  std::filesystem::path folder_, path_;
};

bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b)); }

TEST_F(JournalFile, KeepsWhatDecidesToTheBitAndRoundsTheRest) {
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<Trial> trials = {trial_of({}, infinity),
                               trial_of({{"a \"b\"\n", Precision::kFP32}, {"\xc3\xa4", Precision::kFP16}}, 0.1),
                               trial_of({{"c", Precision::kFP32}}, std::nan("")),
                               trial_of({{"c", Precision::kFP32}}, -infinity, TrialKind::kHoldOut)};
  trials[1].repairs = {"clamp mask:32752"};
  Journal journal = Journal::create(path_, kMade);
  for (const Trial& trial : trials) journal.add(trial);
  const Journal read = Journal::resume(path_, kMade);
  ASSERT_EQ(read.trials().size(), trials.size());
  EXPECT_EQ(read.resumed(), trials.size());
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const Trial &a = trials[i], &b = read.trials()[i], &kept = journal.trials()[i];
    EXPECT_EQ(a.kind, b.kind);
    EXPECT_EQ(a.raised, b.raised);
    EXPECT_EQ(a.repairs, b.repairs);
    EXPECT_TRUE(same_bits(a.judgement.used, b.judgement.used));
    EXPECT_TRUE(same_bits(a.margin, b.margin));
    EXPECT_EQ(b.judgement.worst_output, "y");
    EXPECT_EQ(b.judgement.worst_sample, 2);
    EXPECT_EQ(b.judgement.problem, "output 'y': 1 NaN");
    ASSERT_EQ(b.judgement.outputs.size(), 2u);
    EXPECT_TRUE(std::signbit(b.judgement.outputs[1].value));
    EXPECT_EQ(b.time_us, 66.6667);
    EXPECT_EQ(b.seconds, 0.1);
    // A search that goes on sees what the first one saw.
    EXPECT_TRUE(same_bits(kept.judgement.value, b.judgement.value) && same_bits(kept.cost_share, b.cost_share));
    EXPECT_TRUE(same_bits(kept.judgement.outputs[0].used, b.judgement.outputs[0].used));
  }
}

TEST_F(JournalFile, KeepsTheWorstOutputsOfWhatFails) {
  Journal journal;
  Trial trial = trial_of({}, 0.25);
  trial.judgement.outputs = {{"a", 0.1, 1, 0}, {"b", 0.2, 1, 0}, {"c", 0.05, 1, 0}, {"y", 0.25, 1, 0}};
  journal.add(trial);
  EXPECT_EQ(journal.trials().back().judgement.outputs.size(), 4u);
  trial.margin = 0.2;
  trial.raised = {{"Add", Precision::kFP32}};
  journal.add(trial);
  std::vector<std::string> names;
  for (const auto& each : journal.trials().back().judgement.outputs) names.push_back(each.output);
  EXPECT_THAT(names, ::testing::ElementsAre("y", "b", "a"));
}

TEST_F(JournalFile, FindsTrialsByTheirLayersSamplesAndRepairs) {
  Journal journal;
  Trial repaired = trial_of({}, 0.3);
  repaired.repairs = {"clamp mask:32752"};
  journal.add(trial_of({}, 1));
  journal.add(trial_of({}, 2, TrialKind::kHoldOut));
  journal.add(trial_of({{"a", Precision::kFP16}}, 3, TrialKind::kFallback));
  journal.add(repaired);
  EXPECT_EQ(journal.find(TrialKind::kSearch, {})->judgement.used, 1);
  EXPECT_EQ(journal.find(TrialKind::kHoldOut, {})->judgement.used, 2);
  EXPECT_EQ(journal.find(TrialKind::kSearch, {{"a", Precision::kFP16}})->judgement.used, 3);
  EXPECT_EQ(journal.find(TrialKind::kSearch, {{"a", Precision::kFP32}}), nullptr);
  EXPECT_EQ(journal.find(TrialKind::kHoldOut, {{"a", Precision::kFP16}}), nullptr);
  EXPECT_EQ(journal.find(TrialKind::kShrink, {}, {"clamp mask:32752"})->judgement.used, 0.3);
  EXPECT_EQ(journal.find(TrialKind::kShrink, {}, {"clamp other:32752"}), nullptr);
}

TEST_F(JournalFile, ReplacesAFileWhenTheFirstTrialIsFinished) {
  write_two();
  const std::string before = read_file(path_);
  Journal journal = Journal::create(path_, {{"model", "other"}});
  EXPECT_EQ(read_file(path_), before);
  journal.add(trial_of({}, 1));
  EXPECT_THAT(read_file(path_), HasSubstr("other"));
  EXPECT_EQ(Journal::resume(path_, {{"model", "other"}}).trials().size(), 1u);
}

TEST_F(JournalFile, DropsALastLineThatWasCutAndGoesOn) {
  write_two();
  const std::string whole = read_file(path_);
  const std::size_t second = whole.rfind('\n', whole.size() - 2) + 1;
  for (const std::size_t cut : {second + 1, second + 40, whole.size() - 1}) {
    write_file(path_, whole.substr(0, cut));
    LogCapture log;
    Journal journal = Journal::resume(path_, kMade);
    EXPECT_TRUE(log.has("line 3: dropped"));
    ASSERT_EQ(journal.trials().size(), 1u);
    journal.add(trial_of({{"Add", Precision::kFP32}}, 0.25));
    EXPECT_EQ(read_file(path_), whole);
  }
  // Nothing but a part of the first line, or nothing at all: started anew.
  for (const std::size_t cut : {std::size_t{0}, std::size_t{25}, whole.find('\n')}) {
    write_file(path_, whole.substr(0, cut));
    Journal journal = Journal::resume(path_, kMade);
    EXPECT_TRUE(journal.trials().empty());
    journal.add(trial_of({}, 3.0));
    EXPECT_EQ(read_file(path_), whole.substr(0, second));
  }
  std::filesystem::remove(path_);
  EXPECT_TRUE(Journal::resume(path_, kMade).trials().empty());
}

TEST_F(JournalFile, RefusesTheJournalOfAnotherSearch) {
  write_two();
  Fingerprint other = kMade;
  other[1].second = "rel-l2 <= 0.02";
  other[2].second = "1";
  EXPECT_THAT(resume_error(other), HasSubstr("metric: expected 'rel-l2 <= 0.02', got 'rel-l2 <= 0.01' in the journal"));
  other = kMade;
  other.emplace_back("fusion", "none");
  EXPECT_THAT(resume_error(other), HasSubstr("fusion: expected 'none', got nothing"));
  other = {kMade[0], kMade[1]};
  EXPECT_THAT(resume_error(other), HasSubstr("margin: expected nothing, got '0.5'"));
}

TEST_F(JournalFile, RefusesWhatIsNoJournal) {
  write_two();
  const std::string whole = read_file(path_);
  write_file(path_, "{\"lst\": []}\n");
  EXPECT_THAT(resume_error(), HasSubstr("line 1: expected a journal"));
  write_file(path_, "some text without an end");
  EXPECT_THAT(resume_error(), HasSubstr("line 1: expected a journal"));
  write_file(path_, "some text\nmore\n");
  EXPECT_THAT(resume_error(), HasSubstr("line 1: expected a line of JSON"));
  std::string damaged = whole;
  damaged[damaged.find('\n') + 1] = 'x';
  write_file(path_, damaged);
  EXPECT_THAT(resume_error(), HasSubstr("line 2: expected a line of JSON"));
  damaged = whole;
  damaged.replace(damaged.find("\"version\":2"), 11, "\"version\":7");
  write_file(path_, damaged);
  EXPECT_THAT(resume_error(), HasSubstr("expected version 2 of the format, got 7"));
  damaged = whole;
  damaged.replace(damaged.find("\"used\":3.0"), 10, "\"used\":\"a\"");
  write_file(path_, damaged);
  EXPECT_THAT(resume_error(), HasSubstr("line 2: used: expected a number, got 'a'"));
  damaged = whole;
  damaged.replace(damaged.find("\"version\":2"), 11, "\"version\":1");
  write_file(path_, damaged);
  EXPECT_THAT(resume_error(), HasSubstr("expected version 2 of the format, got 1; try without --continue"));
}

TEST_F(JournalFile, NoticesASecondWriter) {
  Journal first = Journal::create(path_, kMade);
  first.add(trial_of({}, 1));
  std::ofstream(path_, std::ios::app) << "more\n";
  EXPECT_THROW(first.add(trial_of({{"a", Precision::kFP32}}, 1)), Error);
  EXPECT_THROW(Journal::create(folder_ / "x.journal.jsonl" / "below", kMade).add(trial_of({}, 1)), Error);
}

}  // namespace
}  // namespace ulpscope::testing
