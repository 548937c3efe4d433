#include "precision/json_values.h"

#include <limits>

namespace ulpscope::json {

Json from_judgement(const Judgement& judgement) {
  Json outputs = Json::array();
  for (const Judgement::OutputError& each : judgement.outputs)
    outputs.push_back({{"output", each.output},
                       {"used", from_double(each.used)},
                       {"value", from_double(each.value)},
                       {"sample", each.sample}});
  return {{"used", from_double(judgement.used)},    {"value", from_double(judgement.value)},
          {"worst_output", judgement.worst_output}, {"worst_sample", judgement.worst_sample},
          {"problem", judgement.problem},           {"outputs", std::move(outputs)}};
}

int to_sample(const Reader& reader) {
  return reader.integer(-1, std::numeric_limits<int>::max(), "the number of a sample");
}

int to_count(const Reader& reader) { return reader.integer(0, 1'000'000'000, "a count"); }

Judgement to_judgement(const Reader& reader) {
  Judgement result;
  result.used = reader.at("used").real();
  result.value = reader.at("value").real();
  result.worst_output = reader.at("worst_output").text();
  result.worst_sample = to_sample(reader.at("worst_sample"));
  result.problem = reader.at("problem").text();
  reader.at("outputs").each([&](const Reader& each) {
    result.outputs.push_back(
        {each.at("output").text(), each.at("used").real(), each.at("value").real(), to_sample(each.at("sample"))});
  });
  return result;
}

}  // namespace ulpscope::json
