// Writes the strongly typed model of the answer, checked on samples.
#include "example.h"

int main() {
  return run_example([] {
    const auto model = ulpscope::Model::from_file("needs_constraints.onnx", {.fusion = "none"});
    ulpscope::ConvertOptions options;
    options.answer = ulpscope::read_answer("needs_constraints.answer.json");
    const auto made = ulpscope::convert(model, "typed.onnx", make_samples(2, 1), options);
    std::printf("%d layer(s) lowered, %d cast(s) added, %d run(s) equal in every bit\n", made.lowered, made.casts,
                made.checked);
  });
}
