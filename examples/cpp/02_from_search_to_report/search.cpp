// Finds the layers that need more precision than FP16, and writes the answer.
#include "example.h"

int main() {
  return run_example([] {
    const auto model = ulpscope::Model::from_file("needs_constraints.onnx", {.fusion = "none"});
    ulpscope::SearchOptions options;
    options.criterion = {.metric = "rel-l2", .threshold = 0.01};
    options.objective = ulpscope::Objective::kSmallest;  // The network is too small for FP16 to be faster.
    options.answer_path = "needs_constraints.answer.json";
    const ulpscope::AnswerFile answer = ulpscope::search(model, make_samples(4, 1), options);
    for (const ulpscope::KeptLayer& layer : answer.answer.kept)
      std::printf("%s stays in %s: %s\n", layer.name.c_str(), name_of(layer.precision).data(),
                  name_of(layer.reason.kind).data());
    ulpscope::write_answer(answer.path, answer);
  });
}
