// Input data: generated as Polygraphy generates it, or loaded and adapted to the network.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compare/name_values.h"
#include "compare/tensor_map.h"
#include "graph/network.h"

namespace ulpscope {

/// An input that data is wanted for, or an output.
struct InputBinding {
  std::string name;
  DataType type = DataType::kUndefined;
  std::optional<Shape> shape;  ///< Nothing: any rank; -1 for a dynamic dimension.
  bool has_default = false;    ///< Data need not have it, and is not generated for it.
};

/// The inputs of a network, in its order.
std::vector<InputBinding> input_bindings(const Network& network);

/// Says once that constants of the model keep their values where this data has others (DefaultValue): for all that
/// works on the network as it is.
void warn_of_kept_defaults(const TensorMap& data, const Network& network);

struct DataLoaderOptions {
  std::int64_t seed = 1;
  std::int64_t iterations = 1;
  /// [0, 1] where nothing is said.
  PerName<ValueRange> val_range;
  /// `--input-shapes`; names may have the wildcards of fnmatch. For an integer input of one static dimension, as many
  /// values as it has elements are its *values*.
  std::vector<std::pair<std::string, Shape>> input_shapes;
  /// Shapes for dynamic inputs that `input_shapes` does not name (a profile's minimum). By exact name.
  std::vector<std::pair<std::string, Shape>> default_shapes;
};

/// Inputs for one iteration, from a generator that was seeded with seed + iteration, in the order of the bindings. The
/// same for every call. Logs warnings for names that match no input and for shapes that cannot be used.
/// Narrow floats are rounded once from float64. Throws Error(kInvalidArgument) for a type that is not numeric or bool,
/// for bounds that the type cannot hold, and for an input of any rank whose shape is in none of the options.
TensorMap generate_inputs(const DataLoaderOptions& options, const std::vector<InputBinding>& bindings,
                          std::int64_t iteration);

/// All iterations.
std::vector<TensorMap> generate_inputs(const DataLoaderOptions& options, const std::vector<InputBinding>& bindings);

/// Throws Error(kInvalidArgument) with `where` it comes from if the data lacks an input, by the rules of adapt_inputs.
void check_present(const TensorMap& loaded, const std::vector<InputBinding>& bindings, const std::string& where);

/// Loaded data made to fit the bindings, in their order: found by name (a similar name with a warning), cast to the
/// type, permuted or reshaped to the shape (warnings). Those with a default are there if the data has their very name.
/// Extra names are ignored.
/// Throws Error(kInvalidArgument) naming an input that is missing or cannot be made to fit.
TensorMap adapt_inputs(const TensorMap& loaded, const std::vector<InputBinding>& bindings);

}  // namespace ulpscope
