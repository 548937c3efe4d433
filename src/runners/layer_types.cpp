// Which TensorRT layer type an ONNX operator becomes (onnx-tensorrt's documentation of supported operators).
#include <ranges>
#include <string_view>
#include <unordered_map>

#include "graph/network.h"
#include "runners/network_exchange.h"

namespace ulpscope {
namespace {

struct Row {
  std::string_view type;
  std::string_view operators;  ///< Separated by blanks.
};

constexpr Row kRows[] = {
#include "tensorrt_layer_types.inc"
};

}  // namespace

std::string_view tensorrt_layer_type(const Layer& layer) {
  static const std::unordered_map<std::string_view, std::string_view> types = [] {
    std::unordered_map<std::string_view, std::string_view> result;
    for (const auto& [type, operators] : kRows)
      for (const auto& name : std::views::split(operators, ' '))
        result.emplace(std::string_view(name.begin(), name.end()), type);
    return result;
  }();
  const auto found = types.find(layer.op->name);
  return found == types.end() || !layer.op->domain.empty() ? "PLUGIN_V2" : found->second;
}

}  // namespace ulpscope
