// Option values of the form name:value, one per line.
#include "compare/name_values.h"

#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ulpscope;
  std::vector<std::string> arguments{""};
  for (const char c : fuzz::as_text(data, size))
    c == '\n' ? static_cast<void>(arguments.emplace_back()) : arguments.back().push_back(c);
  const auto parse = [&](auto function) {
    fuzz::reads({ErrorCode::kInvalidArgument}, [&] { function("--option", arguments); });
  };
  parse(parse_numbers);
  parse(parse_integers);
  parse(parse_strings);
  parse(parse_ranges);
  parse(parse_shapes);
  parse(parse_top_k);
  return 0;
}
