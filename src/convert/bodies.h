// The types of graphs that layers run: the bodies of If, Loop and Scan.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/options.h"
#include "engine/specialization.h"
#include "graph/assignment.h"
#include "onnx/export.h"

namespace ulpscope {

struct BodyOptions {
  Fusion fusion = Fusion::kFull;
  IdMap<LayerId, char> frozen;  ///< As CastOptions::frozen, of all layers.
  /// Whether the file can have a layer, of Network::layer(), in a narrow float type.
  std::function<bool(LayerId, DataType)> expressible;
};

/// What changes in the bodies of a network under an assignment; those that stay as they are are left out. What goes in
/// and comes out keeps the declared types, so that both branches of an If, and what a loop hands on, agree in them.
/// Adds to `prepared` a sentence per kind of prepared constants.
std::vector<TypedBody> type_bodies(const Specialization& spec, const Assignment& assignment, const BodyOptions& options,
                                   std::vector<std::string>& prepared);

/// A BatchNormalization went into a convolution, here or in a body, so that the file's bits are those of one level.
bool absorbs_any(const TypedChanges& changes);

}  // namespace ulpscope
