// The types that --io-types asks for.

#include <algorithm>

#include "convert/convert.h"
#include "convert/lowerable.h"
#include "core/messages.h"
#include "graph/name_match.h"

namespace ulpscope {

std::vector<std::pair<TensorId, DataType>> find_io_types(const Network& network,
                                                         const std::map<std::string, DataType>& io_types) {
  std::vector<std::string> names;
  for (const auto* ids : {&network.inputs, &network.outputs})
    for (const TensorId id : *ids) names.push_back(network.tensor(id).name);
  std::vector<std::pair<TensorId, DataType>> result;
  for (const auto& [name, type] : io_types) {
    if (std::ranges::find(names, name) == names.end())
      throw invalid_argument("[convert] --io-types: expected an input or output of the network, got '{}'{}", name,
                             did_you_mean(name, names));
    const TensorId id = network.find_tensor(name);
    if (!is_lowerable(type) || !is_lowerable(network.tensor(id).type))
      throw invalid_argument(
          "[convert] --io-types: '{}' is {}, expected a change between float32, float16 and bfloat16, got {}", name,
          name_of(network.tensor(id).type), name_of(type));
    result.emplace_back(id, type);
  }
  return result;
}

}  // namespace ulpscope
