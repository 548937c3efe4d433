// A small front end to src/compare for tests in Python, which hold its answers against NumPy's and Polygraphy's.
#include <charconv>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <map>

#include "compare/array_text.h"
#include "compare/comparison.h"
#include "compare/data_loader.h"
#include "compare/json_files.h"
#include "compare/metrics.h"
#include "compare/postprocess.h"
#include "compare/random_state.h"
#include "compare/statistics.h"
#include "compare/validate.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

using namespace ulpscope;

namespace {

using Arguments = std::vector<std::string>;

void print_line(LogLevel level, std::string_view message) {
  static const std::map<LogLevel, char> letters = {{LogLevel::kUltraVerbose, 'U'}, {LogLevel::kSuperVerbose, 'S'},
                                                   {LogLevel::kExtraVerbose, 'X'}, {LogLevel::kVerbose, 'V'},
                                                   {LogLevel::kInfo, 'I'},         {LogLevel::kWarning, 'W'},
                                                   {LogLevel::kError, 'E'},        {LogLevel::kCritical, '!'}};
  // Levels between two have the letter of the lower one.
  std::cout << '[' << std::prev(letters.upper_bound(level))->second << "] ";
  for (char c : message) std::cout << c << (c == '\n' ? "    " : "");
  std::cout << '\n';
}

std::vector<InputBinding> parse_bindings(const Arguments& arguments) {
  std::vector<InputBinding> bindings;
  for (const std::string& argument : arguments) {  // name:type:[shape]
    const NameAndText outer = split_name(argument);
    const NameAndText inner = split_name(outer.name);
    bindings.push_back(
        {inner.name, *data_type_from_name(inner.text), parse_shapes("binding", {"x:" + outer.text})[0].second});
  }
  return bindings;
}

/// Values of "--key value..." up to the next option.
std::map<std::string, Arguments> parse_options(const Arguments& arguments) {
  std::map<std::string, Arguments> options;
  std::string key;
  for (const std::string& argument : arguments) {
    if (argument.starts_with("--")) {
      key = argument;
      options[key];
    } else {
      options[key].push_back(argument);
    }
  }
  return options;
}

std::string exact(double value) {
  char buffer[64];
  return {buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr};
}

int run(const std::string& command, const Arguments& rest) {
  auto options = parse_options(rest);
  const auto given = [&](const std::string& key) { return options.contains(key); };
  const Arguments& files = options[""];
  if (given("--verbose")) set_log_level(LogLevel::kVerbose);

  if (command == "compare" || command == "validate") {
    RunResults results;
    for (const std::string& file : files)
      for (auto& runner : load_results(file)) results.push_back(std::move(runner));
    if (given("--postprocess")) apply_top_k(results, parse_top_k("--postprocess", options["--postprocess"]));
    if (command == "validate") return validate(results).passed ? 0 : 1;
    CompareOptions compare;
    if (given("--atol")) compare.atol = parse_numbers("--atol", options["--atol"]);
    if (given("--rtol")) compare.rtol = parse_numbers("--rtol", options["--rtol"]);
    if (given("--check-error-stat"))
      compare.error_stat = parse_strings("--check-error-stat", options["--check-error-stat"]);
    if (given("--error-quantile"))
      compare.error_quantile = parse_numbers("--error-quantile", options["--error-quantile"]);
    if (given("--index-tolerance"))
      compare.index_tolerance = parse_integers("--index-tolerance", options["--index-tolerance"]);
    if (given("--l2-threshold")) compare.l2_tolerance = parse_numbers("--l2-threshold", options["--l2-threshold"]);
    if (given("--cosine-similarity-threshold"))
      compare.cosine_similarity_threshold =
          parse_numbers("--cosine-similarity-threshold", options["--cosine-similarity-threshold"]);
    if (given("--psnr-threshold"))
      compare.psnr_tolerance = parse_numbers("--psnr-threshold", options["--psnr-threshold"]);
    if (given("--snr-threshold")) compare.snr_tolerance = parse_numbers("--snr-threshold", options["--snr-threshold"]);
    compare.infinities_compare_equal = given("--infinities-compare-equal");
    compare.check_shapes = !given("--no-shape-check");
    compare.fail_fast = given("--fail-fast");
    const std::string name = given("--compare") ? options["--compare"].at(0) : "simple";
    return compare_accuracy(results, {compare_function(name, compare)}, {.fail_fast = compare.fail_fast}).passed() ? 0
                                                                                                                   : 1;
  }
  if (command == "copy-results") {
    save_results(files.at(1), load_results(files.at(0)));
    return 0;
  }
  if (command == "copy-inputs") {
    save_inputs(files.at(1), load_inputs(files.at(0)));
    return 0;
  }
  if (command == "generate") {  // OUT --bindings ... --seed N --iterations N --val-range ... --input-shapes ...
    DataLoaderOptions loader;
    if (given("--seed")) loader.seed = std::stoll(options["--seed"].at(0));
    if (given("--iterations")) loader.iterations = std::stoll(options["--iterations"].at(0));
    if (given("--val-range")) loader.val_range = parse_ranges("--val-range", options["--val-range"]);
    if (given("--input-shapes")) loader.input_shapes = parse_shapes("--input-shapes", options["--input-shapes"]);
    save_inputs(files.at(0), generate_inputs(loader, parse_bindings(options["--bindings"])));
    return 0;
  }
  if (command == "randint") {  // OUT, one tensor per "type:[low,high,seed,count]"
    TensorMap map;
    for (const std::string& word : options["--draw"]) {
      const auto& [type, text] = split_name(word);
      const OptionValue value = parse_value(text);
      const auto at = [&value = value](std::size_t i) { return std::get<std::int64_t>(value.items.at(i)); };
      RandomState random(static_cast<std::uint32_t>(at(2)));
      map.push_back(
          {type + std::to_string(map.size()), random.randint(at(0), at(1), {at(3)}, *data_type_from_name(type))});
    }
    save_inputs(files.at(0), {map});
    return 0;
  }
  if (command == "statistics") {  // each tensor of an inputs file: name and numbers with all digits
    const TensorMap map = load_inputs(files.at(0)).at(0);
    for (const NamedTensor& entry : map) {
      const Statistics s = compute_statistics(entry.tensor);
      std::cout << entry.name;
      for (double value :
           {s.mean, s.std_dev, s.variance, s.median, s.min, s.max, s.avg_magnitude, quantile_of(entry.tensor, 0.9),
            quantile_of(entry.tensor, 0.99), quantile_of(entry.tensor, 0.123)})
        std::cout << ' ' << exact(value);
      std::cout << '\n';
    }
    return 0;
  }
  if (command == "metrics") {  // GOLDEN CANDIDATE [--k N] [--level X]: per tensor and metric a value with all digits
    const TensorMap golden = load_inputs(files.at(0)).at(0), candidate = load_inputs(files.at(1)).at(0);
    MetricParameters parameters;
    if (given("--k")) parameters.k = std::stoll(options["--k"].at(0));
    if (given("--level")) parameters.iou_level = std::stod(options["--level"].at(0));
    for (std::size_t i = 0; i < golden.size(); ++i) {
      for (const std::string& name : metric_names()) {
        std::cout << golden[i].name << ' ' << name << ' ';
        try {
          std::cout << exact(
              compute_metric(*metric_from_name(name), golden[i].tensor, candidate.at(i).tensor, parameters));
        } catch (const Error&) {
          std::cout << "refused";
        }
        std::cout << '\n';
      }
    }
    return 0;
  }
  if (command == "tolerance") {  // GOLDEN CANDIDATE --atol X --rtol X: per tensor the share used and the largest error
    const TensorMap golden = load_inputs(files.at(0)).at(0), candidate = load_inputs(files.at(1)).at(0);
    Tolerance tolerance;
    tolerance.atol = std::stod(options["--atol"].at(0));
    tolerance.rtol = std::stod(options["--rtol"].at(0));
    if (given("--stat")) tolerance.statistic = options["--stat"].at(0);
    for (std::size_t i = 0; i < golden.size(); ++i) {
      const ToleranceUse use = share_of_tolerance(golden[i].tensor, candidate.at(i).tensor, tolerance);
      std::cout << golden[i].name << ' ' << exact(use.used) << ' ' << exact(use.absolute_error) << '\n';
    }
    return 0;
  }
  if (command == "text") {
    const TensorMap map = load_inputs(files.at(0)).at(0);
    for (const NamedTensor& entry : map) std::cout << entry.name << '\n' << array_text(entry.tensor) << '\n';
    return 0;
  }
  std::cerr << "unknown command " << command << '\n';
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  set_log_sink(print_line);
  try {
    return run(argc > 1 ? argv[1] : "", Arguments(argv + std::min(argc, 2), argv + argc));
  } catch (const Error& error) {
    print_line(LogLevel::kCritical, error.what());
    return 1;
  }
}
