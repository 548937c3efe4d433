#include "tools/tool.h"

namespace ulpscope::cli {
namespace {

constexpr ToolEntry kTools[] = {
    {"run", make_run_tool},
    {"convert", make_convert_tool},
    {"inspect model", make_inspect_model_tool},
    {"inspect data", make_inspect_data_tool},
    {"inspect diff", make_inspect_diff_tool},
    {"report", make_report_tool},
    {"verify", make_verify_tool},
    {"template trt-network", make_trt_network_template_tool},
    {"template trt-config", make_trt_config_template_tool},
    {"template onnx-gs", make_onnx_gs_template_tool},
    {"precision bisect", make_precision_bisect_tool},
    {"precision linear", make_precision_linear_tool},
    {"precision worst-first", make_precision_worst_first_tool},
    {"debug precision", make_debug_precision_tool},
    {"debug reduce", make_debug_reduce_tool},
    {"precision search", make_precision_search_tool},
    {"target measure", make_target_measure_tool},
};

}  // namespace

std::span<const ToolEntry> tools() { return kTools; }

}  // namespace ulpscope::cli
