// dump_arguments WORD...: how `ulpscope run` understands the words, or `ulpscope debug precision` those that follow
// @debug-precision, as JSON on stdout:
// {"options": {"--name": true | count | ["value", ...] | [["value", ...], ...]}, "runners": [...], "model": ...,
//  "unrecognized": [...]}, or {"error": message}.
#include <iostream>
#include <nlohmann/json.hpp>

#include "args/debug.h"
#include "args/logging.h"
#include "args/parser.h"
#include "tools/run_options.h"

int main(int argc, char** argv) {
  using namespace ulpscope::cli;
  using nlohmann::json;
  RunOptions options;
  DebugPrecisionArgs debug;
  const bool debugging = argc > 1 && std::string(argv[1]) == "@debug-precision";
  LoggingArgs logging;
  OptionTable table("ulpscope run", "");
  logging.declare(table);
  if (debugging)
    debug.declare(table);
  else
    options.declare(table);
  json out;
  try {
    const std::vector<std::string> words(argv + (debugging ? 2 : 1), argv + argc);
    const Arguments arguments = parse(table, words);
    out["unrecognized"] = arguments.unrecognized;
    out["help"] = arguments.help;
    out["model"] = nullptr;
    if (arguments.positional) out["model"] = *arguments.positional;
    json given = json::object();
    for (const auto& [option, values] : arguments.occurrences) {
      const std::string& name = option->names[0];
      if (std::holds_alternative<Ordered*>(option->target)) continue;
      if (std::holds_alternative<int*>(option->target)) {
        given[name] = given.value(name, 0) + 1;
      } else if (std::holds_alternative<Repeated*>(option->target)) {
        given[name].push_back(values);
      } else if (option->arity == Arity::kNone) {
        given[name] = true;
      } else {
        given[name] = values;
      }
    }
    out["options"] = given;
    // What the parser set, to see that nothing is lost on the way to the targets.
    out["runners"] = options.runners.runners;
    json parsed_values = json::object();
    for (const Option& option : table.options()) {
      const std::string& name = option.names[0];
      if (const auto* list = std::get_if<std::vector<std::string>*>(&option.target);
          list != nullptr && !(*list)->empty())
        parsed_values[name] = **list;
      if (const auto* text = std::get_if<std::optional<std::string>*>(&option.target); text != nullptr && **text)
        parsed_values[name] = json::array({***text});
      if (const auto* number = std::get_if<std::optional<int>*>(&option.target); number != nullptr && **number)
        parsed_values[name] = ***number;
      if (const auto* repeated = std::get_if<Repeated*>(&option.target); repeated != nullptr && !(*repeated)->empty())
        parsed_values[name] = **repeated;
      if (const auto* flag = std::get_if<bool*>(&option.target); flag != nullptr && **flag) parsed_values[name] = true;
      if (const auto* count = std::get_if<int*>(&option.target); count != nullptr && **count > 0)
        parsed_values[name] = **count;
    }
    const std::optional<std::string>& model = debugging ? debug.precision.model.model : options.model.model;
    if (model) parsed_values["MODEL"] = *model;
    out["parsed"] = parsed_values;
  } catch (const UsageError& error) {
    out = {{"error", error.what()}};
  }
  std::cout << out.dump() << "\n";
}
