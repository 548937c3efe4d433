#include "graph/op.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/network.h"
#include "ulpscope/error.h"

namespace ulpscope {

ErrorPlace place_of(std::string_view stage, const Layer& layer) {
  return {std::string(stage), layer.name, std::string(layer.op->name)};
}

namespace {

std::vector<std::int64_t> to_integers(const Tensor& tensor, const Layer& layer, int index) {
  std::vector<std::int64_t> result(static_cast<std::size_t>(tensor.size()));
  if (tensor.type() == DataType::kInt64) {
    const auto values = tensor.values<std::int64_t>();
    result.assign(values.begin(), values.end());
  } else if (tensor.type() == DataType::kInt32) {
    const auto values = tensor.values<std::int32_t>();
    result.assign(values.begin(), values.end());
  } else {
    throw Error(ErrorCode::kInvalidFile,
                fmt::format("expected integers as input {}, got {}", index, name_of(tensor.type())),
                place_of("infer", layer));
  }
  return result;
}

}  // namespace

TypeSet OpDef::types_of(int i) const noexcept {
  for (int k = std::min(i, static_cast<int>(types.size()) - 1); k >= 0; --k)
    if (const TypeSet set = types[k]; !set.empty()) return set;
  return {};
}

int LayerContext::opset() const noexcept { return layer_->opset; }
const Attributes& LayerContext::attributes() const noexcept { return layer_->attributes; }

void LayerContext::fail(const std::string& message) const { throw Error(code_, message, place_of(stage_, *layer_)); }

DataType InferContext::type(int i) const {
  if (!has_input(i)) fail(fmt::format("input {} is missing", i));
  return inputs_[i].type;
}

const Shape& InferContext::shape(int i) const {
  if (!has_input(i)) fail(fmt::format("input {} is missing", i));
  const Input& input = inputs_[i];
  if (input.shape == nullptr) throw NotKnownYet{};
  return *input.shape;
}

const Tensor& InferContext::value(int i) const {
  if (!has_input(i)) fail(fmt::format("input {} is missing", i));
  const Input& input = inputs_[i];
  if (input.value == nullptr) throw NotKnownYet{};
  return *input.value;
}

std::vector<std::int64_t> InferContext::input_ints(int i) const { return to_integers(value(i), *layer_, i); }

void InferContext::set_type(int i, DataType type) {
  if (has_output(i)) outputs_[i].type = type;
}

void InferContext::set_shape(int i, Shape shape) {
  for (std::int64_t dim : shape)
    if (dim < 0) fail(fmt::format("output {} would have the impossible shape {}", i, to_string(shape)));
  if (has_output(i)) outputs_[i].shape = std::move(shape);
}

bool combines_elements(const Layer& layer) { return layer.attributes.text("reduction", "none") != "none"; }

bool depends_on_elements(const Layer& layer) { return layer.op->compares || combines_elements(layer); }

std::vector<std::int64_t> KernelContext::input_ints(int i) const { return to_integers(input(i), *layer_, i); }

SubgraphRunner& KernelContext::runner() const {
  if (runner_ == nullptr) throw InternalError(fmt::format("layer '{}' needs a sub-graph runner", layer_->name));
  return *runner_;
}

void run_kernel(KernelContext& context) {
  try {
    context.layer().op->run(context);
  } catch (const Error& error) {  // attributes do not know whose they are
    throw error.at(place_of("run", context.layer()));
  }
}

}  // namespace ulpscope
