// Searches on small networks.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/build_helpers.h"
#include "precision/search.h"

namespace ulpscope::testing {

inline Tensor values_in(Shape shape, double low, double high, std::uint32_t seed) {
  Tensor result(DataType::kFloat32, std::move(shape));
  std::uint32_t state = seed * 2654435761u + 12345u;
  for (std::int64_t i = 0; i < result.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    result.data<float>()[i] = static_cast<float>(low + (high - low) * (state >> 8) / double(1 << 24));
  }
  return result;
}

inline SearchData data_for(std::shared_ptr<const Network> network, const std::string& input, const Shape& shape,
                           double low, double high) {
  SearchData data;
  data.network = std::move(network);
  for (std::uint32_t s = 0; s < 3; ++s) data.samples.push_back({{input, values_in(shape, low, high, s + 1)}});
  for (std::uint32_t s = 0; s < 4; ++s) data.held_out.push_back({{input, values_in(shape, low, high, s + 50)}});
  return data;
}

/// The fewest layers, without repairs, which would mend the overflows that tests plant for it to find.
inline SearchTask fp16_search(Fusion fusion = Fusion::kNone) {
  SearchTask options;
  options.repair = false;
  options.objective = Objective::kSmallest;
  options.build = fp16_options(ConstraintMode::kObey, fusion, true);
  return options;
}

inline std::unique_ptr<Criterion> allclose(double atol, double rtol) {
  CompareOptions options;
  options.atol = atol;
  options.rtol = rtol;
  return make_tolerance_criterion(options);
}

inline std::vector<std::string> kept(const Answer& answer) {
  std::vector<std::string> names;
  for (const KeptLayer& layer : answer.kept) names.push_back(layer.name);
  return names;
}

inline Answer run(const SearchData& data, const Criterion& criterion, const SearchTask& options) {
  Journal journal;
  return search_precisions(data, criterion, options, journal);
}

inline std::map<std::string, KeptLayer> kept_rows(const Answer& answer) {
  std::map<std::string, KeptLayer> rows;
  for (const KeptLayer& layer : answer.kept) rows[layer.name] = layer;
  return rows;
}

/// x * x, and what follows it, of one kind of samples to search on and others held out.
inline SearchData squares(std::initializer_list<double> searched, std::initializer_list<double> held_out) {
  Model model;
  model.input("x", {64});
  model.node("Mul", {"x", "x"}, {"square"}, "Square");
  model.node("Sqrt", {"square"}, {"y"}, "Root");
  model.output("y");
  SearchData data;
  data.network = model.load();
  std::uint32_t seed = 0;
  for (const double size : searched) data.samples.push_back({{"x", values_in({64}, size / 2, size, ++seed)}});
  for (const double size : held_out) data.held_out.push_back({{"x", values_in({64}, size / 2, size, ++seed)}});
  return data;
}

}  // namespace ulpscope::testing
