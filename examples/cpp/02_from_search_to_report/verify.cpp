// Whether the answer holds on samples that the search has not seen.
#include "example.h"

int main() {
  return run_example([] {
    const auto model = ulpscope::Model::from_file("needs_constraints.onnx", {.fusion = "none"});
    const auto answer = ulpscope::read_answer("needs_constraints.answer.json");
    const ulpscope::Judgement judged = ulpscope::verify(model, answer, make_samples(3, 7));
    for (const auto& each : judged.outputs)
      std::printf("%s: error %.2g in sample %d\n", each.output.c_str(), each.value, each.sample);
    std::printf("%s\n", judged.passed() ? "passed" : "failed");
  });
}
