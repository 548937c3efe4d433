#include <algorithm>
#include <map>

#include "tools/gen_script.h"

namespace ulpscope::cli {
namespace {

std::string compare_function(const RunOptions& options, PythonScript& script, const std::string& name) {
  static const std::map<std::string, std::string> kTypes{{"simple", "SimpleCompareFunc"},
                                                         {"indices", "IndicesCompareFunc"},
                                                         {"l2", "L2CompareFunc"},
                                                         {"cosine_similarity", "CosineSimilarityCompareFunc"},
                                                         {"psnr", "PsnrCompareFunc"},
                                                         {"snr", "SnrCompareFunc"},
                                                         {"perceptual_metrics", "PerceptualMetricsCompareFunc"}};
  const ComparisonArgs& args = options.comparison;
  const std::string& type = kTypes.at(name);
  Call call(type);
  if (name == "simple") {
    call.named("rtol", dictionary(parse_numbers("--rtol", args.rtol)))
        .named("atol", dictionary(parse_numbers("--atol", args.atol)))
        .named("check_shapes", args.no_shape_check ? "False" : "")
        .flag("fail_fast", args.fail_fast)
        .named("check_error_stat", dictionary(parse_strings("--check-error-stat", args.check_error_stat)))
        .flag("infinities_compare_equal", args.infinities_compare_equal)
        .named("save_heatmaps", text_or_none(args.save_heatmaps))
        .flag("show_heatmaps", args.show_heatmaps)
        .named("save_error_metrics_plot", text_or_none(args.save_error_metrics_plot))
        .flag("show_error_metrics_plot", args.show_error_metrics_plot)
        .named("error_quantile", dictionary(parse_numbers("--error-quantile", args.error_quantile)));
    if (call.plain()) return "None";
  } else if (name == "indices") {
    call.named("index_tolerance", dictionary(parse_integers("--index-tolerance", args.index_tolerance)))
        .flag("fail_fast", args.fail_fast);
  }
  const auto threshold = [&](const char* metric, const std::vector<std::string>& words) {
    if (name == metric)
      call.named((name + "_threshold").c_str(), dictionary(parse_numbers("--" + name + "-threshold", words)));
  };
  if (name == "perceptual_metrics")
    call.named("lpips_threshold", dictionary(parse_numbers("--lpips-threshold", args.lpips_threshold)));
  threshold("l2", args.l2_threshold);
  threshold("cosine_similarity", args.cosine_similarity_threshold);
  threshold("psnr", args.psnr_threshold);
  threshold("snr", args.snr_threshold);
  script.add_import("polygraphy.comparator", type);
  script.comparison_lines.push_back(fmt::format("{}_compare_func = {}", name, call.text()));
  return name + "_compare_func";
}

}  // namespace

std::vector<std::string> comparison_code(const RunOptions& options, PythonScript& script) {
  const ComparisonArgs& args = options.comparison;
  if (args.script) return {script.invoke(*args.script, "compare_outputs")};
  std::vector<std::string> wanted;
  for (const std::string& name : args.compare.empty() ? std::vector<std::string>{"simple"} : args.compare) {
    std::vector<std::string> parts{name};
    if (name == "distance_metrics") parts = {"l2", "cosine_similarity"};
    if (name == "quality_metrics") parts = {"psnr", "snr"};
    for (const std::string& part : parts)
      if (std::ranges::find(wanted, part) == wanted.end()) wanted.push_back(part);
  }
  std::vector<std::string> result;
  for (const std::string& name : wanted) result.push_back(compare_function(options, script, name));
  return result;
}

std::string execution_code(const RunOptions& options, PythonScript& script,
                           const std::vector<std::string>& comparisons) {
  const ComparisonArgs& args = options.comparison;
  const InferenceArgs& inference = options.inference;
  script.add_import("polygraphy.comparator", "Comparator");
  script.add_import("polygraphy.exception", "PolygraphyException");
  const bool streaming = !args.sequential && !inference.warm_up && !inference.use_subprocess;
  std::string text;
  std::vector<std::string> runs;
  if (!options.runners.runners.empty()) {
    runs.emplace_back(streaming ? "run_stream" : "results");
    text += fmt::format(
        "# Runner Execution\n{} = {}\n\n", runs[0],
        Call("Comparator.run")
            .positional("runners")
            .named("warm_up", inference.warm_up ? std::to_string(*inference.warm_up) : "")
            .named("data_loader", script.data)
            .flag("use_subprocess", inference.use_subprocess)
            .named("save_inputs_path", text_or_none(inference.save_inputs))
            .named("save_outputs_path", text_or_none(inference.save_outputs))
            .named("save_input_blob_path",
                   inference.save_input_blob
                       ? python_string(inference.save_input_blob->empty() ? "." : *inference.save_input_blob)
                       : "")
            .flag("streaming", streaming)
            .text());
  }
  for (const std::string& path : args.load_outputs) {
    script.add_import("polygraphy.comparator", "RunResults");
    runs.push_back(
        streaming ? Call("RunResults.load_streaming").positional(python_string(path)).flag("allow_dirs", true).text()
                  : Call("RunResults.load").positional(python_string(path)).text());
  }
  text += fmt::format("# Comparison Inputs\nruns = [{}]\n\n", fmt::join(runs, ", "));
  if (inference.postprocess_script) {
    text += fmt::format("# Postprocessing\nruns = Comparator.postprocess(runs, {})\n\n",
                        script.invoke(*inference.postprocess_script, "postprocess_outputs"));
  } else if (!inference.postprocess.empty()) {
    script.add_import("polygraphy.comparator", "TopKPostprocessFunc");
    const PerName<TopK> top_k = parse_top_k("--postprocess", inference.postprocess);
    text += fmt::format("# Postprocessing\nruns = Comparator.postprocess(runs, TopKPostprocessFunc({}))\n\n",
                        dictionary(top_k.entries(), [](const TopK& each) {
                          return each.axis == -1 ? std::to_string(each.k) : fmt::format("({}, {})", each.k, each.axis);
                        }));
  }
  if (args.validate && streaming)
    text += "# Output Validation\nruns = Comparator.validate(runs, check_inf=True, check_nan=True)\n\n";
  const std::string accuracy = Call("Comparator.compare_accuracy")
                                   .positional("runs")
                                   .named("compare_func", fmt::format("[{}]", fmt::join(comparisons, ", ")))
                                   .flag("fail_fast", args.fail_fast)
                                   .flag("check_average", args.check_average)
                                   .text();
  if (args.save_accuracy_results) {
    text += fmt::format(
        "# Accuracy Comparison\naccuracy_results = {}\naccuracy_results.save({})\nsuccess = bool(accuracy_results)\n",
        accuracy, python_string(*args.save_accuracy_results));
  } else {
    text += fmt::format("# Accuracy Comparison\nsuccess = bool({})\n", accuracy);
  }
  if (args.validate && !streaming)
    text += "success &= all(Comparator.validate(runs, check_inf=True, check_nan=True))\n";
  return text + "\n# Report Results\nif not success:\n    raise PolygraphyException('FAILED')\n";
}

}  // namespace ulpscope::cli
