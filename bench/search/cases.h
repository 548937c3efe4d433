// The cases of the table of strategies: models of tests/models/make_models.py with their samples.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "compare/metrics.h"
#include "precision/search.h"

namespace ulpscope::bench {

struct Case {
  std::string name, model;
  Precision low;
  MetricKind metric;
  double threshold;
  std::string output;   ///< Judged alone; empty: all.
  bool large = false;  ///< Takes long: only where it is asked for by name.
};

inline const std::vector<Case>& all_cases() {
  static const std::vector<Case> cases{
      {"minilm_planted fp16, rel-max 1e-2", "minilm_planted", Precision::kFP16, MetricKind::kRelativeMax, 1e-2, ""},
      {"minilm fp16, rel-l2 1e-2", "minilm", Precision::kFP16, MetricKind::kRelativeL2, 1e-2, ""},
      {"minilm fp16, rel-l2 7e-4", "minilm", Precision::kFP16, MetricKind::kRelativeL2, 7e-4, ""},
      {"minilm int8, 1-cos 0.01", "minilm", Precision::kINT8, MetricKind::kOneMinusCos, 0.01, "sentence_embedding"},
      {"ocr_det fp16, rel-l2 1e-2", "ocr_det", Precision::kFP16, MetricKind::kRelativeL2, 1e-2, ""},
      {"ocr_det fp16, rel-l2 1.3e-3", "ocr_det", Precision::kFP16, MetricKind::kRelativeL2, 1.3e-3, ""},
      {"ocr_det int8, 1-cos 0.01", "ocr_det", Precision::kINT8, MetricKind::kOneMinusCos, 0.01, ""},
      {"ocr_cls fp16, 1-cos 1e-2", "ocr_cls", Precision::kFP16, MetricKind::kOneMinusCos, 1e-2, ""},
      {"smollm2 fp16, kl 1e-3", "smollm2", Precision::kFP16, MetricKind::kKl, 1e-3, "", true},
  };
  return cases;
}

/// A case with its data: golden outputs are computed by the search.
struct Loaded {
  SearchData data;
  SearchTask options;
  std::unique_ptr<Criterion> criterion;
  double calibration_seconds = 0;  ///< Of the wall clock, without reading files.
};

/// `models`: the folder of make_models.py. int8 cases are calibrated (largest magnitude) on the calibration samples.
Loaded load(const Case& which, const std::filesystem::path& models, int threads);

}  // namespace ulpscope::bench
