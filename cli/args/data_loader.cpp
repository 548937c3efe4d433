#include "args/data_loader.h"

#include "core/messages.h"

namespace ulpscope::cli {
void DataLoaderArgs::declare(OptionTable& table) {
  table.section("Data Loader", "loading or generating input data for inference.");
  table.value({"--seed"}, seed, "N", "Seed of generated inputs (default: 1); equal to NumPy's RandomState");
  table.list({"--val-range"}, val_range, "[NAME:][MIN,MAX]", "Range of generated values (default: [0,1])");
  table.ours().value({"--int-min"}, int_min, "X", "Older form of --val-range");
  table.ours().value({"--int-max"}, int_max, "X", "Older form of --val-range");
  table.ours().value({"--float-min"}, float_min, "X", "Older form of --val-range");
  table.ours().value({"--float-max"}, float_max, "X", "Older form of --val-range");
  table.value({"--iterations", "--iters"}, iterations, "N", "Sets of inputs to generate and run (default: 1)");
  table.words({"--data-loader-backend-module"}, Arity::kOne, "NAME", "Module that generates inputs")
      .choose({"numpy", "torch"})
      .ignore("inputs are those of NumPy");
  table
      .list({"--load-inputs", "--load-input-data"}, load_inputs, "FILE",
            "Read inputs from these files (JSON, or folders of such files; .npz, with an array per input, which may be "
            "stacked samples; .npy), one after another; the other data options have no effect then")
      .exclude("--data-loader-script");
  table
      .value({"--data-loader-script"}, script, "FILE.py[:FUNC]",
             "Python function `load_data` that yields a dictionary of arrays per iteration")
      .exclude("--load-inputs");
  table.ours();
  table.words({"--data-loader-func-name"}, Arity::kOne, "FUNC", "Older form of --data-loader-script FILE.py:FUNC")
      .names_function_of("--data-loader-script");
}

void DataLoaderArgs::warn_of_unused() const {
  if (generates()) return;
  const auto warn = [](bool given, const char* option) {
    if (given) log_warning("[options] {} has no effect: the inputs are loaded, not generated", option);
  };
  warn(seed.has_value(), "--seed");
  warn(!val_range.empty(), "--val-range");
  warn(iterations.has_value(), "--iterations");
}

PerName<ValueRange> DataLoaderArgs::ranges() const {
  PerName<ValueRange> ranges = parse_ranges("--val-range", val_range);
  // The older options hold for all inputs, of integers and of floats. Generated data has one range for both.
  const auto low = float_min ? float_min : int_min;
  const auto high = float_max ? float_max : int_max;
  if ((low || high) && ranges.find("") == nullptr) ranges.set("", {low.value_or(0.0), high.value_or(1.0)});
  return ranges;
}

}  // namespace ulpscope::cli
