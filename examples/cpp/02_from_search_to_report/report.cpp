// Writes a page about the answer.
#include <fstream>

#include "example.h"

int main() {
  return run_example([] {
    const auto answer = ulpscope::read_answer("needs_constraints.answer.json");
    std::ofstream("report.html") << ulpscope::report(answer, {.output = "report.html", .typed = "typed.onnx"});
  });
}
