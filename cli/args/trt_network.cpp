#include "args/trt_network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "args/value_checks.h"
#include "core/messages.h"
#include "core/text.h"
#include "graph/layer_choice.h"
#include "graph/name_match.h"

namespace ulpscope::cli {

void TrtNetworkArgs::declare_parser(OptionTable& table) {
  table.section("TensorRT Plugin Loading", "loading TensorRT plugins.");
  table.words({"--plugins"}, Arity::kSome, "FILE", "Plugin libraries").ignore("plugins are code for a GPU");

  table.section("ONNX-TRT Parser Flags", "TensorRT's ONNX parser.");
  table.words({"--onnx-flags"}, Arity::kSome, "FLAG", "Flags of TensorRT's parser").ignore("the importer has no flags");
  table.words({"--plugin-instancenorm"}, Arity::kNone, "", "InstanceNorm as a plugin").ignore("there is one form only");
  table.words({"--enable-uint8-asymmetric-quantization-dla"}, Arity::kNone, "", "For the deep learning accelerator")
      .ignore("means nothing to this engine");
}

void TrtNetworkArgs::declare_outputs(OptionTable& table) {
  table.list({"--trt-outputs"}, outputs, "NAME",
             "Tensors that the engine hands out instead of the model's outputs: "
             "names, patterns (conv_*), or `mark all` (or '*') for all outputs of all layers");
  table.list({"--trt-exclude-outputs"}, exclude_outputs, "NAME", "Outputs to leave out; patterns too");
  table.list({"--trt-outputs-by-type"}, outputs_by_type, "TYPE",
             "Also hand out the outputs of all layers of these operators (Conv, MatMul, ...)");
}

void TrtNetworkArgs::declare_types(OptionTable& table) {
  table.words({"--decomposable-attentions"}, Arity::kNone, "", "Allow attention layers to be decomposed")
      .ignore("see --fusion");
  table.list({"--tensor-dtypes", "--tensor-datatypes"}, tensor_dtypes, "TENSOR:TYPE",
             "Types of network inputs and outputs");
  table.value({"--all-tensor-dtypes", "--all-tensor-datatypes"}, all_tensor_dtypes, "TYPE",
              "Type of all inputs and outputs that --tensor-dtypes does not name and that hold floats (of a type of "
              "integers: that hold integers)");
  table.words({"--tensor-formats"}, Arity::kSome, "TENSOR:[FORMAT,..]", "Formats of inputs and outputs")
      .ignore("tensors are handed over in row-major order")
      .verify(named_check("[FORMAT,..]"));
  table.words({"--all-tensor-formats"}, Arity::kSome, "FORMAT", "Formats of all inputs and outputs")
      .ignore("tensors are handed over in row-major order");
  table.list({"--trt-network-postprocess-script", "--trt-npps"}, postprocess_scripts, "FILE.py[:FUNC]",
             "Python functions `postprocess(network)` that edit the network after it was read, in this order");
}

void TrtNetworkArgs::declare_typing(OptionTable& table, bool& strongly_typed) {
  table.flag({"--strongly-typed"}, strongly_typed, "Types are those written in the file, as in TensorRT 11");
  table.words({"--mark-debug"}, Arity::kSome, "NAME", "Debug tensors").ignore("use --trt-outputs");
  table.words({"--mark-unfused-tensors-as-debug-tensors"}, Arity::kNone, "", "Debug tensors")
      .ignore("use --trt-outputs");
}

void TrtNetworkArgs::declare(OptionTable& table, bool& strongly_typed, bool engine) {
  declare_parser(table);
  table.section("TensorRT Network Loading", "the network that the engine is built from.");
  declare_outputs(table);
  table.list({"--layer-precisions"}, layer_precisions, "LAYER:TYPE",
             fmt::format("{}, ... Set --precision-constraints too. A layer's precision is not the type of its output",
                         kLayerPrecisionsHelp));
  declare_types(table);
  table.ours().list(
      {"--clamp-constants"}, clamp_constants, "NAME[:LIMIT]",
      "Limit the magnitudes of these constants (initializers, outputs of Constant nodes), such as attention masks "
      "of -3.4e38 that float16 cannot hold (default limit: 32752, half of its largest value)");
  table.ours().value(
      {"--repairs"}, repairs, "ANSWER.json",
      "Do the repairs of an answer of `precision search` again: clamped constants, scaled regions, equalized "
      "channels");
  declare_typing(table, strongly_typed);

  if (!engine) return;
  table.section("TensorRT Engine", "writing and running engines.");
  table.value({"--save-engine"}, save_engine, "FILE", "Write the engine; it can be the MODEL of a later run");
  table.words({"--load-runtime"}, Arity::kOne, "FILE", "A lean runtime").ignore("means nothing to this engine");
  table.words({"--dla-workspace-allocation-strategy"}, Arity::kOne, "NAME", "For the deep learning accelerator")
      .ignore("means nothing to this engine");
  table.words({"--optimization-profile"}, Arity::kOne, "N", "Profile to run with")
      .whole_numbers()
      .ignore("all profiles hold at once");
  table.words({"--allocation-strategy"}, Arity::kOne, "NAME", "When activation memory is allocated")
      .ignore("memory is planned for the shapes at hand")
      .choose({"static", "profile", "runtime"});
  table.words({"--weight-streaming-budget"}, Arity::kOne, "BYTES", "For --weight-streaming")
      .ignore("means nothing to this engine")
      .verify(bytes_or_percent_check());
}

void TrtNetworkArgs::apply_layer_precisions(Network& network) const {
  for (const auto& [id, type] : find_layer_precisions(network, layer_precisions, {.warn_unknown = true}))
    network.layer(id).precision = type;
}

void TrtNetworkArgs::mark_outputs_by_type(Network& network) const {
  if (outputs_by_type.empty()) return;
  std::vector<TensorId> marked = outputs.empty() ? std::vector<TensorId>{} : network.outputs;
  for (const std::string& type : outputs_by_type) {
    bool found = false;
    std::vector<std::string> known;
    for (const Layer& layer : network.layers) {
      const std::string op(layer.op->name);
      if (std::ranges::find(known, op) == known.end()) known.push_back(op);
      if (lower_case(op) != lower_case(type)) continue;
      found = true;
      for (TensorId output : present(layer.outputs))
        if (std::ranges::find(marked, output) == marked.end()) marked.push_back(output);
    }
    if (!found)
      throw invalid_argument("[outputs] --trt-outputs-by-type: the network has no layer of type '{}'; it has {}", type,
                             fmt::join(known, ", "));
  }
  network.outputs = std::move(marked);
}

void TrtNetworkArgs::apply_tensor_types(Network& network) const {
  if (all_tensor_dtypes) {
    const auto parsed = parse_types({"*:" + *all_tensor_dtypes}, "[options] --all-tensor-dtypes", "tensor");
    const DataType type = parsed.front().second;
    for (const auto* list : {&network.inputs, &network.outputs})
      for (const TensorId id : *list)
        if (is_floating(network.tensor(id).type) == is_floating(type) &&
            is_integer(network.tensor(id).type) == is_integer(type))
          network.tensor(id).type = type;
  }
  for (const auto& [name, type] : parse_types(tensor_dtypes, "[options] --tensor-dtypes", "tensor")) {
    const TensorId id = network.find_tensor(name);
    const bool input = id != kNone && std::ranges::find(network.inputs, id) != network.inputs.end();
    if (!input && (id == kNone || !network.is_output(id))) {
      std::vector<std::string> names;
      for (const TensorId each : network.inputs) names.push_back(network.tensor(each).name);
      for (const TensorId each : network.outputs) names.push_back(network.tensor(each).name);
      throw invalid_argument("[network] --tensor-dtypes: expected an input or output of the network, got '{}'{}", name,
                             did_you_mean(name, names));
    }
    network.tensor(id).type = type;
  }
}

}  // namespace ulpscope::cli
