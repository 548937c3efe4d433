#include "backend/reference_kernel.h"

#include <fmt/format.h>

#include <cstring>

#include "backend/prepared_constants.h"
#include "graph/inference.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

/// Adds the values that a body captures from the layer's own inputs.
class BoundSubgraphs final : public SubgraphRunner {
 public:
  BoundSubgraphs(const Layer& layer, std::span<const Tensor* const> inputs, const GraphFunction& graphs)
      : layer_(layer), inputs_(inputs), graphs_(graphs) {}

  std::vector<Tensor> run(std::string_view attribute, std::span<const Tensor> inputs) override {
    std::vector<Tensor> all(inputs.begin(), inputs.end());
    for (int capture : layer_.attributes.required_graph(attribute).captures) all.push_back(*inputs_[capture]);
    return graphs_(attribute, all);
  }

 private:
  const Layer& layer_;
  const std::span<const Tensor* const> inputs_;
  const GraphFunction& graphs_;
};

class ReferenceKernel final : public Kernel {
 public:
  ReferenceKernel(const Layer& layer, std::vector<DataType> types, std::vector<Rounding> rounding, bool static_shapes,
                  GraphFunction graphs, const std::optional<Accumulator>& accumulator)
      : layer_(layer),
        types_(std::move(types)),
        rounding_(std::move(rounding)),
        static_shapes_(static_shapes),
        graphs_(std::move(graphs)),
        accumulator_(accumulator) {}

  std::string name() const override { return "reference kernel"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    std::vector<Tensor> results(types_.size());
    for (std::size_t o = 0; o < outputs.size(); ++o)
      if (outputs[o] != nullptr) results[o] = *outputs[o];
    if (!static_shapes_) allocate(inputs, results);
    BoundSubgraphs subgraphs(layer_, inputs, graphs_);
    KernelContext context(layer_, inputs, results, types_, graphs_ ? &subgraphs : nullptr,
                          accumulator_ ? &*accumulator_ : nullptr);
    run_kernel(context);
    for (std::size_t o = 0; o < results.size(); ++o) {
      if (outputs[o] == nullptr) continue;
      if (results[o].type() == DataType::kFloat32) {
        float* values = results[o].data<float>();
        round_parallel(values, values, results[o].size(), rounding_[o]);
      }
      if (!static_shapes_) {
        *outputs[o] = std::move(results[o]);
      } else if (results[o].raw() != outputs[o]->raw()) {
        // The kernel made a tensor of its own, although the place was known.
        if (results[o].bytes() != outputs[o]->bytes())
          throw InternalError(fmt::format("layer '{}' made {} where {} was inferred", layer_.name,
                                          to_string(results[o].shape()), to_string(outputs[o]->shape())));
        if (results[o].bytes() != 0) std::memcpy(outputs[o]->raw(), results[o].raw(), results[o].bytes());
      }
    }
  }

 private:
  void allocate(std::span<const Tensor* const> inputs, std::vector<Tensor>& results) const {
    std::vector<InferContext::Input> known(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] != nullptr) known[i] = {true, inputs[i]->type(), &inputs[i]->shape(), inputs[i]};
    const std::vector<InferContext::Output> inferred = infer_layer(layer_, known);
    for (std::size_t o = 0; o < results.size(); ++o)
      if (types_[o] != DataType::kUndefined && o < inferred.size() && inferred[o].shape)
        results[o] = Tensor(physical_type(types_[o]), *inferred[o].shape);
  }

  const Layer& layer_;
  const std::vector<DataType> types_;
  const std::vector<Rounding> rounding_;
  const bool static_shapes_;
  const GraphFunction graphs_;
  const std::optional<Accumulator> accumulator_;
};

/// The reference kernel of a layer that has other operands than the network's.
class OwnLayerKernel final : public Kernel {
 public:
  OwnLayerKernel(Layer layer, DataType type, bool static_shapes, const std::optional<Accumulator>& accumulator)
      : layer_(std::move(layer)),
        kernel_(make_reference_kernel(layer_, {type}, {Rounding::kNone}, static_shapes, {}, accumulator)) {}
  std::string name() const override { return kernel_->name(); }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    kernel_->run(inputs, outputs);
  }

 private:
  const Layer layer_;
  const std::unique_ptr<Kernel> kernel_;
};

}  // namespace

std::unique_ptr<Kernel> make_reference_kernel(const Layer& layer, std::vector<DataType> types,
                                              std::vector<Rounding> rounding, bool static_shapes, GraphFunction graphs,
                                              const std::optional<Accumulator>& accumulator) {
  return std::make_unique<ReferenceKernel>(layer, std::move(types), std::move(rounding), static_shapes,
                                           std::move(graphs), accumulator);
}

std::unique_ptr<Kernel> make_reference_kernel(Layer layer, DataType type, bool static_shapes,
                                              const std::optional<Accumulator>& accumulator) {
  return std::make_unique<OwnLayerKernel>(std::move(layer), type, static_shapes, accumulator);
}

}  // namespace ulpscope
