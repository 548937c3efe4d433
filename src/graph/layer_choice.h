// Layers and precisions that people name: by layer or node name, operator or pattern.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/network.h"

namespace ulpscope {

/// Whether a layer can have a precision of its own: it has float arithmetic.
bool has_precision(const Layer& layer) noexcept;

/// The layers with float arithmetic that the words name: a layer or an ONNX node, else an operator ("Softmax"), else a
/// pattern of such names; in bodies of control flow, too, of which the If, Loop or Scan names all. In the order of
/// their ids, each once. Words that name only layers without a precision of their own (in lists of other tools, say)
/// have no effect, as one warning says. Throws Error(kInvalidArgument) naming the option, with similar names, for a
/// word that names nothing.
std::vector<LayerId> find_layers(const Network& network, const std::vector<std::string>& words,
                                 std::string_view option);

/// "NAME:TYPE" per word; names may have colons. `where` ("[options] --io-types") starts messages, `named` ("tensor") is
/// what the name is of. Throws Error(kInvalidArgument) for a word without a name, and for a type that is unknown or
/// none of `types` (empty: all are fine).
std::vector<std::pair<std::string, DataType>> parse_types(const std::vector<std::string>& words, std::string_view where,
                                                          std::string_view named, std::span<const DataType> types = {});

/// How "LAYER:TYPE" words are read.
struct LayerPrecisionRules {
  std::string_view where = "[options] --layer-precisions";  ///< Starts messages.
  bool (*accepts)(const LayerForm&) = nullptr;              ///< Null: also types that are no precision.
  bool warn_unknown = false;  ///< A word that names no layer is a warning, and else an error.
};

/// The layers that "LAYER:TYPE" words name, with what they ask for: the place where all of `--layer-precisions` is
/// read. LAYER is the name of a layer (which then is meant alone), or that of an ONNX node, an operator or a pattern of
/// such names. A later entry counts more: words that name a layer by itself come last, and else those that come later.
/// Layers that have no precision of their own may be named by themselves: lists of all layers do, and what only moves
/// values stores them in that type.
std::vector<std::pair<LayerId, Request>> find_layer_precisions(const Network& network,
                                                               const std::vector<std::string>& words,
                                                               const LayerPrecisionRules& rules);

/// What the layers of the network itself ask for (Layer::precision).
Requests own_requests(const Network& network);
/// From now on they ask for these; bodies become the network's own.
void set_requests(Network& network, const Requests& requests);

/// What to ask for, per layer: float32 for what `keep` names; nothing for what is lowered. `lower` (empty: all) keeps
/// all others, and lowers nothing of `keep`; `layer_precisions` names a type. Throws Error(kInvalidArgument) for
/// unknown layers and types, for a `lower` that `keep` leaves nothing of, and for a layer whose type one of them
/// contradicts.
Requests requested_types(const Network& network, const std::vector<std::string>& keep,
                         const std::vector<std::string>& lower, const std::vector<std::string>& layer_precisions);

}  // namespace ulpscope
