// Inputs and results as JSON, with arrays in base64.
#include "compare/json_files.h"
#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ulpscope;
  const std::string_view text = fuzz::as_text(data, size);
  const auto allowed = {ErrorCode::kInvalidFile, ErrorCode::kUnsupported};
  // What could be read can be written, and that be read again.
  fuzz::reads(allowed, [&] {
    const auto inputs = inputs_from_json(text, "[load] inputs.json");
    if (inputs_from_json(inputs_to_json(inputs), "[load] again").size() != inputs.size()) fuzz::finding("lost inputs");
  });
  fuzz::reads(allowed, [&] {
    const auto results = results_from_json(text, "[load] outputs.json");
    if (results_from_json(results_to_json(results), "[load] again").size() != results.size())
      fuzz::finding("lost results");
  });
  return 0;
}
