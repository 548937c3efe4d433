// Attributes of a layer, as the ONNX node has them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ulpscope/tensor.h"

namespace ulpscope {

class Network;

/// A graph that is an attribute (the body of a Loop, a branch of an If). Its network's inputs are the formal inputs of
/// the ONNX graph, followed by one input per value that it uses from the enclosing graph.
struct Subgraph {
  std::shared_ptr<Network> network;
  /// For each captured value, in the order of the network's trailing inputs: which input of the enclosing layer has it.
  std::vector<int> captures;
};

using Attribute = std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>, std::vector<float>,
                               std::vector<std::string>, Tensor, Subgraph>;

class Attributes {
 public:
  void set(std::string name, Attribute value) { values_.insert_or_assign(std::move(name), std::move(value)); }
  bool has(std::string_view name) const { return values_.find(name) != values_.end(); }
  const std::map<std::string, Attribute, std::less<>>& all() const noexcept { return values_; }
  /// The bodies of control flow, by the names of their attributes.
  std::vector<const Subgraph*> graphs() const;

  /// The value, or the default when the attribute is absent. An attribute of another kind is an Error(kInvalidFile).
  std::int64_t integer(std::string_view name, std::int64_t default_value) const;
  float real(std::string_view name, float default_value) const;
  std::string text(std::string_view name, std::string_view default_value) const;
  std::vector<std::int64_t> ints(std::string_view name, std::vector<std::int64_t> default_value = {}) const;
  std::vector<float> reals(std::string_view name, std::vector<float> default_value = {}) const;
  std::vector<std::string> texts(std::string_view name) const;

  /// The value of an attribute that the operator's definition demands; Error(kInvalidFile) when it is absent.
  std::int64_t required_integer(std::string_view name) const;
  std::vector<std::int64_t> required_ints(std::string_view name) const;
  Tensor required_tensor(std::string_view name) const;
  const Subgraph& required_graph(std::string_view name) const;

 private:
  template <typename T>
  const T* find(std::string_view name) const;
  std::map<std::string, Attribute, std::less<>> values_;
};

}  // namespace ulpscope
