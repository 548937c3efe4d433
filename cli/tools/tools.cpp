#include "tools/tool.h"

namespace ulpscope::cli {
namespace {

constexpr ToolEntry kTools[] = {
    {"run", "Run inference and compare results across backends.", make_run_tool},
    {"convert", "Write the strongly typed mixed-precision model.", make_convert_tool},
    {"inspect model", "Show what is in a model or engine, layer by layer.", make_inspect_model_tool},
    {"inspect data", "Show statistics and values of saved inputs and results.", make_inspect_data_tool},
    {"inspect diff", "Show how two engines, sets of layer precisions or results differ.", make_inspect_diff_tool},
    {"report", "Write a page that shows the answer of a search.", make_report_tool},
    {"verify", "Check on other data whether an answer of `precision search` holds.", make_verify_tool},
    {"template trt-network", "Write a script that defines or edits a network.", make_trt_network_template_tool},
    {"template trt-config", "Write a script that makes a builder configuration.", make_trt_config_template_tool},
    {"template onnx-gs", "Write a script that edits an ONNX model.", make_onnx_gs_template_tool},
    {"precision bisect", "Find the first or last N layers to keep in higher precision, by bisection.",
     make_precision_bisect_tool},
    {"precision linear", "The same, one layer more per try.", make_precision_linear_tool},
    {"precision worst-first", "Find layers to keep in higher precision, those whose errors grow most first.",
     make_precision_worst_first_tool},
    {"debug precision", "Find the first or last N layers to keep in higher precision, judged by a command.",
     make_debug_precision_tool},
    {"debug reduce", "Reduce a model to the smallest part that still fails.", make_debug_reduce_tool},
    {"precision search", "Find the layers that need more precision, with reasons.", make_precision_search_tool},
    {"target measure", "Measure what this machine takes, for --target.", make_target_measure_tool},
};

}  // namespace

std::span<const ToolEntry> tools() { return kTools; }

}  // namespace ulpscope::cli
