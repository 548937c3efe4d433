#include "backend/cuda/convolution_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "backend/strides.h"
#include "core/messages.h"

namespace ulpscope::cuda {
namespace {

using cudnn::Descriptor;
using cudnn::DescriptorType;
using cudnn::Field;
using cudnn::FieldType;

constexpr std::int64_t kFirstVirtual = 1000, kAlignment = 16;

cudnn::ElementType element_type(DataType type) {
  using T = DataType;
  using E = cudnn::ElementType;
  constexpr std::pair<T, E> kTypes[] = {{T::kFloat32, E::kFloat},
                                        {T::kFloat16, E::kHalf},
                                        {T::kBFloat16, E::kBFloat16},
                                        {T::kInt8, E::kInt8},
                                        {T::kInt32, E::kInt32}};
  for (const auto& [known, made] : kTypes)
    if (known == type) return made;
  throw unsupported(
      "[build] backend 'cuda': cuDNN: expected a convolution of float16, bfloat16, float32, int8 or int32, got {}; try "
      "another precision for this layer",
      name_of(type));
}

cudnn::PointwiseMode pointwise_mode(ConvolutionStep::Kind kind) {
  switch (kind) {
    case ConvolutionStep::Kind::kBias:
    case ConvolutionStep::Kind::kResidual:
      return cudnn::PointwiseMode::kAdd;
    case ConvolutionStep::Kind::kRelu:
      return cudnn::PointwiseMode::kRelu;
    case ConvolutionStep::Kind::kSigmoid:
      return cudnn::PointwiseMode::kSigmoid;
    case ConvolutionStep::Kind::kTanh:
      return cudnn::PointwiseMode::kTanh;
    case ConvolutionStep::Kind::kSwish:
      return cudnn::PointwiseMode::kSwish;
    case ConvolutionStep::Kind::kGelu:
      return cudnn::PointwiseMode::kGelu;
  }
  throw InternalError("a convolution's step of unknown kind");
}

/// cuDNN knows two and three spatial dimensions: one becomes the width of height 1.
ConvolutionSpec with_height(ConvolutionSpec spec) {
  if (spec.input.size() == 3) spec.add_dimension();
  return spec;
}

template <typename Integer>
bool parse(std::string_view& text, Integer& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return error == std::errc();
}

bool skip(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

void set_device(Descriptor& part, Field field, const ConvolutionDevice& device) {
  if (device.properties != nullptr) part.set(field, *device.properties);
}

void set_handle(Descriptor& part, Field field, const ConvolutionDevice& device) {
  if (device.handle != nullptr) part.set(field, FieldType::kHandle, 1, &device.handle);
}

ConvolutionTactic tactic_of(const Descriptor& config, const Descriptor& engine) {
  ConvolutionTactic tactic{.engine = engine.read_int64(Field::kEngineIndex)};
  for (const Descriptor& knob :
       config.read_descriptors(Field::kConfigKnobChoices, DescriptorType::kKnobChoice, "a knob's choice",
                               cudnn::kKnobs)) {  // How many there are is not told before.
    int type = 0;
    knob.read(Field::kKnobType, FieldType::kKnobType, 1, &type);
    tactic.knobs.emplace_back(type, knob.read_int64(Field::kKnobValue));
  }
  std::sort(tactic.knobs.begin(), tactic.knobs.end());
  return tactic;
}

}  // namespace

std::string text_of(const ConvolutionTactic& tactic) {
  std::string text = fmt::format("engine {}", tactic.engine);
  for (std::size_t i = 0; i < tactic.knobs.size(); ++i)
    text += fmt::format("{}{}={}", i == 0 ? " knobs " : ",", tactic.knobs[i].first, tactic.knobs[i].second);
  return text;
}

std::optional<ConvolutionTactic> tactic_from_string(const std::string& text) {
  std::string_view rest = text;
  ConvolutionTactic tactic;
  if (!skip(rest, "engine ") || !parse(rest, tactic.engine)) return std::nullopt;
  for (bool more = skip(rest, " knobs "); more; more = skip(rest, ",")) {
    auto& [type, value] = tactic.knobs.emplace_back();
    if (!parse(rest, type) || !skip(rest, "=") || !parse(rest, value)) return std::nullopt;
  }
  return rest.empty() ? std::optional(tactic) : std::nullopt;
}

ConvolutionGraph::ConvolutionGraph(const ConvolutionSpec& spec, const ConvolutionDevice& device)
    : spec_(with_height(spec)), device_(device) {
  const Descriptor& x = tensor(kX, spec_.input, spec_.operands, false);
  const Descriptor& weights = tensor(kWeights, spec_.weights, spec_.operands, false);
  // Sums of int8 are exact in int32. Only what leaves the graph is rounded.
  const DataType sum = spec_.operands == DataType::kInt8 ? DataType::kInt32 : DataType::kFloat32;
  struct Node {
    cudnn::PointwiseMode mode;
    const Descriptor* operand;
  };
  std::vector<Node> nodes;
  Shape per_channel(spec_.output.size(), 1);
  per_channel[1] = spec_.output[1];
  for (std::size_t i = 0; i < spec_.steps.size(); ++i) {
    const ConvolutionStep& step = spec_.steps[i];
    const bool bias = step.kind == ConvolutionStep::Kind::kBias;
    const bool binary = bias || step.kind == ConvolutionStep::Kind::kResidual;
    const std::int64_t id = kFirstStep + static_cast<std::int64_t>(i);
    nodes.push_back({pointwise_mode(step.kind),
                     binary ? &tensor(id, bias ? per_channel : spec_.output, step.type, false) : nullptr});
  }
  if (nodes.empty() && sum == DataType::kInt32 && spec_.stored != sum)
    nodes.push_back({cudnn::PointwiseMode::kIdentity, nullptr});
  const auto value = [&](std::size_t after) -> const Descriptor& {  // After so many nodes.
    if (after == nodes.size()) return tensor(kY, spec_.output, spec_.stored, false);
    return tensor(kFirstVirtual + static_cast<std::int64_t>(after), spec_.output, after == 0 ? sum : DataType::kFloat32,
                  true);
  };
  const Descriptor* current = &value(0);
  add_forward(x, weights, *current);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Descriptor& next = value(i + 1);
    add_pointwise(nodes[i].mode, *current, nodes[i].operand, next);
    current = &next;
  }
  graph_ = Descriptor(DescriptorType::kOperationGraph, "a convolution's operation graph");
  set_handle(graph_, Field::kGraphHandle, device_);
  graph_.set(Field::kGraphOperations, std::span<const cudnn::RawDescriptor>(operations_));
  graph_.finalize();
}

Descriptor& ConvolutionGraph::tensor(std::int64_t id, const Shape& shape, DataType type, bool is_virtual) {
  Descriptor& part =
      *parts_.emplace_back(std::make_unique<Descriptor>(DescriptorType::kTensor, "a convolution's tensor"));
  part.set(Field::kTensorElementType, element_type(type));
  part.set(Field::kTensorDimensions, shape);
  part.set(Field::kTensorStrides, channels_last_strides(shape));
  part.set(Field::kTensorId, id);
  part.set(Field::kTensorAlignment, kAlignment);
  part.set(Field::kTensorIsVirtual, FieldType::kBoolean, 1, &is_virtual);
  part.finalize();
  return part;
}

void ConvolutionGraph::add_forward(const Descriptor& x, const Descriptor& weights, const Descriptor& y) {
  Descriptor& convolution =
      *parts_.emplace_back(std::make_unique<Descriptor>(DescriptorType::kConvolution, "a convolution"));
  const auto mode = cudnn::ConvolutionMode::kCrossCorrelation;
  convolution.set(Field::kConvolutionComputeType,
                  spec_.operands == DataType::kInt8 ? cudnn::ElementType::kInt32 : cudnn::ElementType::kFloat);
  convolution.set(Field::kConvolutionMode, FieldType::kConvolutionMode, 1, &mode);
  convolution.set(Field::kConvolutionSpatialDims, static_cast<std::int64_t>(spec_.strides.size()));
  convolution.set(Field::kConvolutionDilations, spec_.dilations);
  convolution.set(Field::kConvolutionStrides, spec_.strides);
  convolution.set(Field::kConvolutionPrePaddings, spec_.pads_begin);
  convolution.set(Field::kConvolutionPostPaddings, spec_.pads_end);
  convolution.finalize();
  Descriptor& operation = *parts_.emplace_back(
      std::make_unique<Descriptor>(DescriptorType::kConvolutionForward, "a convolution's operation"));
  const float alpha = 1, beta = 0;
  operation.set(Field::kForwardConvolution, convolution);
  operation.set(Field::kForwardX, x);
  operation.set(Field::kForwardWeights, weights);
  operation.set(Field::kForwardY, y);
  operation.set(Field::kForwardAlpha, FieldType::kFloat, 1, &alpha);
  operation.set(Field::kForwardBeta, FieldType::kFloat, 1, &beta);
  operation.finalize();
  operations_.push_back(operation.get());
}

void ConvolutionGraph::add_pointwise(cudnn::PointwiseMode mode, const Descriptor& x, const Descriptor* operand,
                                     const Descriptor& y) {
  Descriptor& pointwise =
      *parts_.emplace_back(std::make_unique<Descriptor>(DescriptorType::kPointwise, "a convolution's epilogue"));
  pointwise.set(Field::kPointwiseMode, FieldType::kPointwiseMode, 1, &mode);
  pointwise.set(Field::kPointwisePrecision, cudnn::ElementType::kFloat);
  if (const double one = 1; mode == cudnn::PointwiseMode::kSwish)
    pointwise.set(Field::kPointwiseSwishBeta, FieldType::kDouble, 1, &one);
  pointwise.finalize();
  Descriptor& operation = *parts_.emplace_back(
      std::make_unique<Descriptor>(DescriptorType::kPointwiseOperation, "an operation of a convolution's epilogue"));
  operation.set(Field::kPointwiseDescriptor, pointwise);
  operation.set(Field::kPointwiseX, x);
  if (operand != nullptr) operation.set(Field::kPointwiseB, *operand);
  operation.set(Field::kPointwiseY, y);
  operation.finalize();
  operations_.push_back(operation.get());
}

bool ConvolutionGraph::keeps_rules(const Descriptor& engine) const {
  // cuDNN 9.19 adds a bias of float32 as tf32 in these (38 channels to 101, on an H200: 2^-12 off).
  constexpr std::int64_t kWholeWords = 4;
  if (const std::int64_t number = engine.read_int64(Field::kEngineIndex);
      spec_.tf32 && spec_.input[1] % kWholeWords != 0 && (number == 26 || number == 29))
    return false;
  std::array<cudnn::NumericalNote, cudnn::kNumericalNotes> notes{};
  const std::int64_t count = std::min(
      engine.read(Field::kEngineNumericalNotes, FieldType::kNumericalNote, cudnn::kNumericalNotes, notes.data()),
      cudnn::kNumericalNotes);
  const bool plain_float32 = spec_.operands == DataType::kFloat32 && !spec_.tf32;
  return std::all_of(notes.begin(), notes.begin() + count, [&](cudnn::NumericalNote note) {
    return note == cudnn::NumericalNote::kTensorCore && !plain_float32;
  });
}

std::vector<ConvolutionTactic> ConvolutionGraph::tactics(cudnn::HeuristicsMode mode) const {
  Descriptor heuristics(DescriptorType::kEngineHeuristics, "a convolution's heuristics");
  heuristics.set(Field::kHeuristicsGraph, graph_);
  heuristics.set(Field::kHeuristicsMode, FieldType::kHeuristicsMode, 1, &mode);
  set_device(heuristics, Field::kHeuristicsDevice, device_);
  std::vector<ConvolutionTactic> found;
  try {
    heuristics.finalize();
  } catch (const Error&) {
    return found;  // Modes know different graphs.
  }
  const std::int64_t count = heuristics.read(Field::kHeuristicsResults, FieldType::kDescriptor, 0, nullptr);
  for (const Descriptor& config : heuristics.read_descriptors(Field::kHeuristicsResults, DescriptorType::kEngineConfig,
                                                              "an engine's configuration", count)) {
    const auto engines = config.read_descriptors(Field::kConfigEngine, DescriptorType::kEngine, "an engine", 1);
    if (!engines.empty() && keeps_rules(engines.front())) found.push_back(tactic_of(config, engines.front()));
  }
  return found;
}

std::optional<ConvolutionExecution> ConvolutionGraph::build(const ConvolutionTactic& tactic) const {
  ConvolutionExecution made{{},
                            {DescriptorType::kEngine, "an engine"},
                            {DescriptorType::kEngineConfig, "an engine's configuration"},
                            {DescriptorType::kExecutionPlan, "a convolution's plan"}};
  try {
    made.engine.set(Field::kEngineGraph, graph_);
    made.engine.set(Field::kEngineIndex, tactic.engine);
    set_device(made.engine, Field::kEngineDevice, device_);
    made.engine.finalize();
    if (!keeps_rules(made.engine)) return std::nullopt;
    std::vector<cudnn::RawDescriptor> choices;
    for (const auto& [type, value] : tactic.knobs) {
      Descriptor& knob = made.knobs.emplace_back(DescriptorType::kKnobChoice, "a knob's choice");
      knob.set(Field::kKnobType, FieldType::kKnobType, 1, &type);
      knob.set(Field::kKnobValue, value);
      knob.finalize();
      choices.push_back(knob.get());
    }
    made.config.set(Field::kConfigEngine, made.engine);
    if (!choices.empty()) made.config.set(Field::kConfigKnobChoices, std::span<const cudnn::RawDescriptor>(choices));
    made.config.finalize();
    set_handle(made.plan, Field::kPlanHandle, device_);
    set_device(made.plan, Field::kPlanDevice, device_);
    made.plan.set(Field::kPlanConfig, made.config);
    made.plan.finalize();
  } catch (const Error&) {
    return std::nullopt;  // Heuristics suggest what then fails, for lack of shared memory for example.
  }
  return made;
}

}  // namespace ulpscope::cuda
