#include "backend/cpu/op_kernel.h"

#include <fmt/format.h>

#include <cstring>

#include "core/parallel.h"
#include "graph/inference.h"
#include "ulpscope/error.h"

namespace ulpscope::cpu {

void round_parallel(const float* in, float* out, std::int64_t count, Rounding rounding) {
  if (rounding == Rounding::kNone && in == out) return;
  constexpr std::int64_t kGrain = 1 << 15;
  parallel_for(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    round_array(in + begin, out + begin, static_cast<std::size_t>(end - begin), rounding);
  });
}

namespace {

/// Adds the values that a body captures from the layer's own inputs.
class BoundSubgraphs final : public SubgraphRunner {
 public:
  BoundSubgraphs(const Layer& layer, std::span<const Tensor* const> inputs, const GraphFunction& graphs)
      : layer_(layer), inputs_(inputs), graphs_(graphs) {}

  std::vector<Tensor> run(std::string_view attribute, std::span<const Tensor> inputs) override {
    std::vector<Tensor> all(inputs.begin(), inputs.end());
    for (int capture : layer_.attributes.required_graph(attribute).captures)
      all.push_back(*inputs_[static_cast<std::size_t>(capture)]);
    return graphs_(attribute, all);
  }

 private:
  const Layer& layer_;
  const std::span<const Tensor* const> inputs_;
  const GraphFunction& graphs_;
};

class OpKernel final : public Kernel {
 public:
  OpKernel(const Layer& layer, std::vector<DataType> types, std::vector<Rounding> rounding, bool static_shapes,
           GraphFunction graphs)
      : layer_(layer),
        types_(std::move(types)),
        rounding_(std::move(rounding)),
        static_shapes_(static_shapes),
        graphs_(std::move(graphs)) {}

  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    std::vector<Tensor> results(types_.size());
    for (std::size_t o = 0; o < outputs.size(); ++o)
      if (outputs[o] != nullptr) results[o] = *outputs[o];
    if (!static_shapes_) allocate(inputs, results);
    BoundSubgraphs subgraphs(layer_, inputs, graphs_);
    KernelContext context(layer_, inputs, results, types_, graphs_ ? &subgraphs : nullptr);
    layer_.op->run(context);
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
};

class RoundKernel final : public Kernel {
 public:
  explicit RoundKernel(Rounding rounding) : rounding_(rounding) {}
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    round_parallel(inputs[0]->data<float>(), outputs[0]->data<float>(), inputs[0]->size(), rounding_);
  }

 private:
  const Rounding rounding_;
};

class QuantiseKernel final : public Kernel {
 public:
  explicit QuantiseKernel(const QuantiseSpec& spec) : spec_(spec) {}
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const Tensor& in = *inputs[0];
    if (!*outputs[0]) *outputs[0] = Tensor(DataType::kFloat32, in.shape());
    float* out = outputs[0]->data<float>();
    constexpr std::int64_t kGrain = 1 << 15;
    parallel_for(in.size(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      quantise_array(in.data<float>() + begin, out + begin, static_cast<std::size_t>(end - begin), spec_.scale,
                     spec_.low, spec_.high, spec_.dequantise);
    });
  }

 private:
  const QuantiseSpec spec_;
};

class IntegerSumKernel final : public Kernel {
 public:
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    float* out = outputs[0]->data<float>();
    constexpr std::int64_t kGrain = 1 << 14;
    parallel_for(outputs[0]->size(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        double sum = 0;  // integers below 2^53: exact
        for (const Tensor* input : inputs) sum += static_cast<double>(input->data<float>()[i]);
        out[i] = static_cast<float>(sum);
      }
    });
  }
};

}  // namespace

std::unique_ptr<Kernel> make_op_kernel(const Layer& layer, std::vector<DataType> types, std::vector<Rounding> rounding,
                                       bool static_shapes, GraphFunction graphs) {
  return std::make_unique<OpKernel>(layer, std::move(types), std::move(rounding), static_shapes, std::move(graphs));
}

std::unique_ptr<Kernel> make_quantise_kernel(const QuantiseSpec& spec) {
  return std::make_unique<QuantiseKernel>(spec);
}

std::unique_ptr<Kernel> make_integer_sum_kernel() { return std::make_unique<IntegerSumKernel>(); }

std::unique_ptr<Kernel> make_round_kernel(Rounding rounding) { return std::make_unique<RoundKernel>(rounding); }

}  // namespace ulpscope::cpu
