#include "convert/bodies.h"

#include <algorithm>
#include <iterator>

#include "convert/casts.h"
#include "convert/integer_export.h"
#include "convert/lowerable.h"
#include "convert/normalizations.h"

namespace ulpscope {
namespace {

bool lowers_any(const Specialization& spec, const Assignment& assignment) {
  return std::ranges::any_of(all_layers(spec), [&](const LayerPlace& place) {
    return place.numeric() && is_narrow(assignment.precision[place.id]);
  });
}

/// Groups, and with them what may take another type than its own, are known where all shapes are.
bool has_all_shapes(const Specialization& spec) {
  return std::ranges::all_of(spec.inferred.shapes, [](const auto& shape) { return shape.has_value(); });
}

class BodyTyper {
 public:
  BodyTyper(const BodyOptions& options, std::vector<std::string>& prepared) : options_(options), prepared_(prepared) {}

  /// `first`: what the ids of this network's layers begin with.
  std::vector<TypedBody> run(const Specialization& spec, const Assignment& assignment, LayerId first) const {
    std::vector<TypedBody> result;
    const std::vector<Body> bodies = spec.network->bodies();
    for (std::size_t b = 0; b < bodies.size(); ++b) {
      const auto& inner = spec.bodies[b];
      if (inner == nullptr) continue;
      const Assignment own = assignment_of_body(assignment, bodies[b], inner->inferred, true, false);
      if (!lowers_any(*inner, own)) continue;
      result.push_back({bodies[b].holder, std::string(bodies[b].attribute),
                        changes(*inner, own, LayerId(first.number() + bodies[b].first.number()))});
    }
    return result;
  }

 private:
  TypedChanges changes(const Specialization& spec, const Assignment& assignment, LayerId first) const {
    const auto place = [first](LayerId id) { return LayerId(first.number() + id.number()); };
    CastOptions casts;
    for (LayerId id : spec.network->layers.ids()) casts.frozen.push_back(options_.frozen[place(id)]);
    casts.expressible = [&](LayerId id, DataType type) { return options_.expressible(place(id), type); };
    casts.free_selection = has_all_shapes(spec);
    TypedChanges result;
    result.typing = place_casts(spec, assignment, casts);
    IntegerExport integers(spec);
    std::ranges::move(prepare_normalizations(spec, assignment, options_.fusion, result, integers),
                      std::back_inserter(prepared_));
    const Readings readings = find_element_readers(spec, assignment);
    for (LayerId id : spec.network->layers.ids())
      if (is_typed_with_integers(assignment, readings, id)) integers.add(assignment, readings, id, result);
    result.computed_constants = computed_constants(spec, result.typing);
    result.bodies = run(spec, assignment, first);
    return result;
  }

  const BodyOptions& options_;
  std::vector<std::string>& prepared_;
};

}  // namespace

bool absorbs_any(const TypedChanges& changes) {
  return !changes.absorbed.empty() ||
         std::ranges::any_of(changes.bodies, [](const TypedBody& body) { return absorbs_any(body.changes); });
}

std::vector<TypedBody> type_bodies(const Specialization& spec, const Assignment& assignment, const BodyOptions& options,
                                   std::vector<std::string>& prepared) {
  return BodyTyper(options, prepared).run(spec, assignment, LayerId(0));
}

}  // namespace ulpscope
