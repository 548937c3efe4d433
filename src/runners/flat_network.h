// A network with the layers of its bodies among its own, as parsers of TensorRT leave them.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/network.h"

namespace ulpscope {

/// In front of an If, Loop or Scan are the layers of its bodies, those of then_branch before those of else_branch. What
/// a body takes from around it is the tensor there. Tensors have numbers: those of the network their ids, those of
/// bodies the next ones. The network outlives it.
class FlatNetwork {
 public:
  explicit FlatNetwork(const Network& network);

  /// By their ids in the network (Network::layer).
  const std::vector<LayerId>& layers() const noexcept { return layers_; }

  struct TensorPlace {
    const Network* network;  ///< The network, or a body.
    TensorId id;
    LayerId holder;  ///< The layer of the network whose body it is; kNone: none.

    const TensorInfo& info() const { return network->tensor(id); }
  };
  const std::vector<TensorPlace>& tensors() const noexcept { return tensors_; }

  /// Numbers of a layer's tensors; -1: absent.
  std::vector<std::int64_t> inputs(LayerId id) const { return numbers(id, &Layer::inputs); }
  std::vector<std::int64_t> outputs(LayerId id) const { return numbers(id, &Layer::outputs); }

 private:
  using Numbers = IdMap<TensorId, std::int64_t>;

  std::vector<std::int64_t> numbers(LayerId id, std::vector<TensorId> Layer::* which) const;
  void visit(const Network& graph, std::int64_t first, LayerId holder, Numbers numbers);
  Numbers number_body(const Body& body, const Layer& layer, LayerId holder, const Numbers& around);

  const Network& network_;
  std::vector<LayerId> layers_;
  std::vector<TensorPlace> tensors_;
  std::vector<Numbers> graphs_;           ///< Per graph,
  IdMap<LayerId, std::size_t> graph_of_;  ///< and which one a layer is in.
};

}  // namespace ulpscope
