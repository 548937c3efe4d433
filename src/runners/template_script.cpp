#include "runners/template_script.h"

#include <fmt/format.h>

#include <filesystem>

namespace ulpscope {
namespace {

/// A Python string literal.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n')
      result += "\\n";
    else
      result += c;
  }
  return result + "\"";
}

}  // namespace

std::string trt_network_template(const std::string& model) {
  std::string text =
      "#!/usr/bin/env python3\n"
      "\"\"\"Creates a network. Give this file to ulpscope as the model: ulpscope run <this file> --trt ...\"\"\"\n"
      "\n"
      "import tensorrt as trt\n"
      "from polygraphy import func\n";
  if (model.empty()) {
    text +=
        "from polygraphy.backend.trt import CreateNetwork\n"
        "\n"
        "\n"
        "@func.extend(CreateNetwork())\n"
        "def load_network(builder, network):\n"
        "    # Add inputs and layers, and mark the outputs. Nothing needs to be returned. This network doubles its "
        "input:\n"
        "    x = network.add_input(\"x\", trt.float32, (1, 4))\n"
        "    doubled = network.add_elementwise(x, x, trt.ElementWiseOperation.SUM)\n"
        "    doubled.name = \"double\"\n"
        "    doubled.get_output(0).name = \"y\"\n"
        "    network.mark_output(doubled.get_output(0))\n";
    return text;
  }
  text += fmt::format(
      "from polygraphy.backend.trt import NetworkFromOnnxPath\n"
      "\n"
      "load_model = NetworkFromOnnxPath({})\n"
      "\n"
      "\n"
      "@func.extend(load_model)\n"
      "def load_network(builder, network, parser):\n"
      "    # Edit the network here. Nothing needs to be returned. For example, keep softmax layers in float32\n"
      "    # (with --fp16 --precision-constraints obey):\n"
      "    for layer in network:\n"
      "        if layer.type == trt.LayerType.SOFTMAX:\n"
      "            layer.precision = trt.float32\n"
      "            layer.set_output_type(0, trt.float32)\n",
      quoted(model));
  return text;
}

std::string onnx_gs_template(const std::string& model) {
  const std::filesystem::path path(model);
  const std::string edited =
      (path.parent_path() / (path.stem().string() + "_updated" + path.extension().string())).string();
  return fmt::format(
      "#!/usr/bin/env python3\n"
      "\"\"\"Edits an ONNX model. Needs two packages: python3 -m pip install onnx onnx-graphsurgeon\"\"\"\n"
      "\n"
      "import onnx\n"
      "import onnx_graphsurgeon as gs\n"
      "\n"
      "graph = gs.import_onnx(onnx.load({}))\n"
      "\n"
      "# graph.inputs and graph.outputs are lists that can be changed; graph.tensors() has every tensor by name.\n"
      "for node in graph.nodes:\n"
      "    print(f\"{{node.name}} ({{node.op}}): {{[t.name for t in node.inputs]}} -> {{[t.name for t in "
      "node.outputs]}}\")\n"
      "\n"
      "# Removes what no output needs, and puts nodes behind those that they read.\n"
      "graph.cleanup().toposort()\n"
      "onnx.save(gs.export_onnx(graph), {})\n",
      quoted(model), quoted(edited));
}

}  // namespace ulpscope
