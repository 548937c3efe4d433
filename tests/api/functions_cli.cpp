// The public functions on a model and samples, with the files that the program would write.
//   functions_cli MODEL INPUTS.json FOLDER PRECISION... [--keep NAME] [--threshold X] [--bytes]
#include <ulpscope/ulpscope.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "compare/json_files.h"

namespace {

using namespace ulpscope;

std::vector<TensorsByName> load(const std::string& path) {
  std::vector<TensorsByName> samples;
  for (const TensorMap& each : load_inputs(path)) {
    TensorsByName& sample = samples.emplace_back();
    for (const auto& [name, tensor] : each) sample.emplace(name, tensor);
  }
  return samples;
}

Model load_model(const std::string& path, const ModelOptions& options, bool bytes) {
  if (!bytes) return Model::from_file(path, options);
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> content{std::istreambuf_iterator<char>(file), {}};
  return Model::from_bytes(std::as_bytes(std::span(content)), options, path);
}

int run(const std::vector<std::string>& words) {
  const std::filesystem::path folder = words[2];
  ModelOptions model_options{.precisions = {}, .fusion = "none"};
  SearchOptions search_options;
  search_options.objective = Objective::kSmallest;
  bool bytes = false;
  for (std::size_t i = 3; i < words.size(); ++i) {
    if (words[i] == "--keep")
      search_options.keep.push_back(words[++i]);
    else if (words[i] == "--threshold")
      search_options.criterion = {.metric = "rel-l2", .threshold = std::stod(words[++i])};
    else if (words[i] == "--bytes")
      bytes = true;
    else
      model_options.precisions.push_back(precision_named(words[i]).value());
  }
  Model model = load_model(words[0], model_options, bytes);
  const std::vector<TensorsByName> samples = load(words[1]);
  if (model_options.precisions.back() == Precision::kINT8) {
    const Calibration made = calibrate(model, samples, {.algorithm = CalibrationAlgorithm::kMinMax});
    search_options.calibration_cache = folder / "int8.cache";
    write_calibration_cache(
        search_options.calibration_cache,
        {.algorithm = std::string(cache_name_of(CalibrationAlgorithm::kMinMax)), .scales = made.scales});
  }
  search_options.answer_path = folder / "answer.json";
  search_options.journal = folder / "journal.jsonl";
  AnswerFile answer = search(model, samples, search_options);
  answer.inputs = {words[1]};
  write_answer(answer.path, answer);
  const ConvertedModel made = convert(model, folder / "typed.onnx", samples, {.answer = answer});
  std::ofstream(folder / "layers.txt") << made.layer_precisions;
  const Judgement judged = verify(model, read_answer(answer.path), samples);
  std::printf("passed %d used %.17g value %.17g worst %s outputs %zu plan %zu\n", judged.passed(), judged.used,
              judged.value, judged.worst_output.c_str(), judged.outputs.size(),
              plan_search(model, samples, search_options).candidates.size());
  std::ofstream(folder / "report.html") << report(answer,
                                                  {.output = folder / "report.html", .typed = folder / "typed.onnx"});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  set_log_sink([](LogLevel level, std::string_view text) {
    if (level >= LogLevel::kWarning) std::cerr << text << "\n";
  });
  try {
    return run({argv + 1, argv + argc});
  } catch (const Error& error) {
    std::fprintf(stderr, "%d: %s\n", static_cast<int>(error.code()), error.what());
    return 1;
  }
}
