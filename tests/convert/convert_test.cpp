// Typed files of random networks under random assignments: convert itself compares them bit by bit.
#include "convert/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "core/file.h"
#include "core/parallel.h"
#include "engine/assign.h"
#include "engine/build_helpers.h"
#include "engine/int8.h"
#include "engine/random_network.h"
#include "onnx-ml.pb.h"
#include "onnx/import.h"
#include "ops/registry.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

onnx::TensorProto to_proto(const Tensor& tensor, const std::string& name) {
  onnx::TensorProto proto;
  proto.set_name(name);
  for (std::int64_t dim : tensor.shape()) proto.add_dims(dim);
  switch (tensor.type()) {
    case DataType::kInt64:
      proto.set_data_type(onnx::TensorProto::INT64);
      break;
    case DataType::kBool:
      proto.set_data_type(onnx::TensorProto::BOOL);
      break;
    default:
      proto.set_data_type(onnx::TensorProto::FLOAT);
  }
  proto.set_raw_data(tensor.raw(), tensor.bytes());
  return proto;
}

void add_attribute(onnx::NodeProto& node, const std::string& name, const Attribute& value) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    attribute.set_type(onnx::AttributeProto::INT);
    attribute.set_i(*integer);
  } else if (const auto* real = std::get_if<float>(&value)) {
    attribute.set_type(onnx::AttributeProto::FLOAT);
    attribute.set_f(*real);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    attribute.set_type(onnx::AttributeProto::STRING);
    attribute.set_s(*text);
  } else if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&value)) {
    attribute.set_type(onnx::AttributeProto::INTS);
    for (std::int64_t i : *integers) attribute.add_ints(i);
  } else if (const auto* reals = std::get_if<std::vector<float>>(&value)) {
    attribute.set_type(onnx::AttributeProto::FLOATS);
    for (float f : *reals) attribute.add_floats(f);
  } else if (const auto* tensor = std::get_if<Tensor>(&value)) {
    attribute.set_type(onnx::AttributeProto::TENSOR);
    *attribute.mutable_t() = to_proto(*tensor, "");
  } else {
    FAIL() << "an attribute of another kind";
  }
}

/// The file that the network could have come from.
std::string to_file(const Network& network, int opset) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(opset);
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.set_name("random");
  const auto describe = [&](onnx::ValueInfoProto& info, TensorId id) {
    info.set_name(network.tensor(id).name);
    auto* type = info.mutable_type()->mutable_tensor_type();
    type->set_elem_type(onnx::TensorProto::FLOAT);
    if (!network.tensor(id).shape) return;
    for (std::int64_t dim : *network.tensor(id).shape) type->mutable_shape()->add_dim()->set_dim_value(dim);
  };
  for (TensorId id : network.inputs) describe(*graph.add_input(), id);
  for (TensorId id : network.outputs) describe(*graph.add_output(), id);
  for (const TensorInfo& info : network.tensors)
    if (info.value) *graph.add_initializer() = to_proto(info.value, info.name);
  for (const Layer& layer : network.layers) {
    if (layer.op->kind == OpKind::kConstant) continue;
    onnx::NodeProto& node = *graph.add_node();
    node.set_op_type(std::string(layer.op->name));
    node.set_name(layer.name);
    for (TensorId id : layer.inputs) node.add_input(id == kNone ? "" : network.tensor(id).name);
    for (TensorId id : layer.outputs) node.add_output(id == kNone ? "" : network.tensor(id).name);
    for (const auto& [name, value] : layer.attributes.all()) add_attribute(node, name, value);
  }
  return model.SerializeAsString();
}

std::filesystem::path scratch(const std::string& name) {
  return std::filesystem::path(::testing::TempDir()) / ("ulpscope_" + name + ".onnx");
}

int opset_of(const Network& network) {
  int opset = 0;
  for (const Layer& layer : network.layers) opset = std::max(opset, layer.opset);
  return opset;
}

struct Case {
  std::string bytes;
  std::shared_ptr<Network> network;
  std::shared_ptr<const Specialization> spec;
  TypedModelOptions options;
  ExportReport file;  ///< Of the last conversion.

  explicit Case(const testing::RandomNetwork& made, Network& network_made)
      : bytes(to_file(network_made, opset_of(network_made))),
        network(import_onnx(std::as_bytes(std::span(bytes)), "random", op_registry())) {
    spec = specialize(*network, made.input_shapes());
    options.samples.emplace_back();
    for (std::size_t i = 0; i < network->inputs.size(); ++i)
      options.samples[0].push_back({network->tensor(network->inputs[i]).name, made.inputs()[i]});
  }

  TypedModel run(const BuildOptions& build, const Requests& requested, const std::string& name) {
    const Assignment assignment = assign_precisions(*spec, build, &requested);
    return write_typed_model(*spec, std::as_bytes(std::span(bytes)), assignment, {}, options, scratch(name));
  }

  /// False where a file cannot say it. Throws InternalError for other bits.
  bool converts(const BuildOptions& build, const Requests& requested, const std::string& name, std::uint32_t seed) {
    try {
      const TypedModel result = run(build, requested, name);
      EXPECT_GT(result.checked, 0) << "seed " << seed;
      file = result.file;
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << "seed " << seed << ": " << error.what();
      return false;
    }
  }
};

/// Of `choices` random numbers, two stand for float32 and one for `other`; the rest is the engine's choice.
Requests random_requests(const Network& network, std::mt19937& random, std::uint32_t choices,
                         std::optional<DataType> other) {
  Requests requested(network.layers.size());
  for (LayerId l : requested.ids()) {
    if (network.layers[l].op->precision != PrecisionRule::kCompute) continue;
    const std::uint32_t choice = random() % choices;
    if (choice < 2) requested[l] = DataType::kFloat32;
    if (choice == 2) requested[l] = other;
  }
  return requested;
}

class RandomTypedNetworks : public ::testing::TestWithParam<Fusion> {};

TEST_P(RandomTypedNetworks, ComputeTheBitsOfTheAssignment) {
  int converted = 0;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    testing::RandomNetwork made(seed);
    Case test(made, made.network());
    test.options.fusion = GetParam();
    std::mt19937 random(seed);
    BuildOptions build = testing::fp16_options(ConstraintMode::kObey, GetParam(), true);
    build.enabled.set(Precision::kBF16, seed % 3 == 0);
    const auto other = build.enabled.has(Precision::kBF16) ? std::optional(DataType::kBFloat16) : std::nullopt;
    try {
      converted += test.converts(build, random_requests(*test.network, random, 6, other), "random", seed);
    } catch (const InternalError& error) {
      ADD_FAILURE() << "seed " << seed << ": " << error.what();
    }
  }
  EXPECT_GE(converted, 170);
}

/// int8 with and without a narrow float type around it; scales of made-up sizes for everything that can have one.
TEST_P(RandomTypedNetworks, ComputeTheBitsOfTheAssignmentInInt8) {
  int converted = 0, quantized = 0;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    testing::RandomNetwork made(seed);
    Case test(made, made.network());
    test.options.fusion = GetParam();
    std::mt19937 random(seed);
    BuildOptions build = testing::fp16_options(ConstraintMode::kObey, GetParam(), true);
    build.enabled.set(Precision::kINT8);
    build.enabled.set(Precision::kFP16, seed % 3 != 0);
    build.enabled.set(Precision::kBF16, seed % 3 == 2);
    for (const TensorId id : int8_tensors(*test.spec))
      build.scales[test.network->tensor(id).name] = 0.004f + 0.0001f * static_cast<float>(random() % 400);
    const auto other = build.enabled.has(Precision::kFP16) ? std::optional(DataType::kFloat16) : std::nullopt;
    try {
      if (!test.converts(build, random_requests(*test.network, random, 8, other), "int8", seed)) continue;
      ++converted;
      quantized += test.file.quantized > 0 ? 1 : 0;
      EXPECT_EQ(test.file.quantizers, test.file.quantized + test.file.stored_weights > 0) << "seed " << seed;
    } catch (const InternalError& error) {
      ADD_FAILURE() << "seed " << seed << ": " << error.what();
    }
  }
  EXPECT_GE(converted, 40);
  EXPECT_GE(quantized, 30);
}

INSTANTIATE_TEST_SUITE_P(Levels, RandomTypedNetworks,
                         ::testing::Values(Fusion::kNone, Fusion::kPointwise, Fusion::kFull));

TEST(Convert, LeavesNothingBehindWhenTheFileIsRefused) {
  testing::RandomNetwork made(3);
  Case test(made, made.network());
  BuildOptions build;
  build.enabled.set(Precision::kFP16);
  build.assume_lowest = true;
  const auto path = scratch("refused");
  write_file(path, std::string_view("before"));
  test.options.check = [](const std::filesystem::path&, const ExportReport&) {
    throw Error(ErrorCode::kInvalidFile, "refused");
  };
  const Requests requested(test.network->layers.size());
  EXPECT_THROW(test.run(build, requested, "refused"), Error);
  EXPECT_EQ(read_file(path), "before");
  for (const auto& entry : std::filesystem::directory_iterator(path.parent_path()))
    EXPECT_EQ(entry.path().filename().string().find(".ulpscope_refused"), std::string::npos) << entry.path();
  std::filesystem::remove(path);
}

TEST(Convert, CanBeInterrupted) {
  testing::RandomNetwork made(3);
  Case test(made, made.network());
  BuildOptions build;
  build.enabled.set(Precision::kFP16);
  build.assume_lowest = true;
  test.options.interrupt = [] { throw Error(ErrorCode::kInterrupted, "Ctrl-C"); };
  const Requests requested(test.network->layers.size());
  EXPECT_THROW(test.run(build, requested, "interrupted"), Error);
  EXPECT_FALSE(std::filesystem::exists(scratch("interrupted")));
}

TEST(Convert, ChecksSamplesSideBySideAndReportsEachRunOnce) {
  testing::RandomNetwork made(3);
  Case test(made, made.network());
  const TensorMap first = test.options.samples.front();
  for (int s = 1; s < 7; ++s) {
    test.options.samples.push_back(first);
    for (NamedTensor& input : test.options.samples.back()) {
      if (input.tensor.type() != DataType::kFloat32) continue;
      Tensor other(DataType::kFloat32, input.tensor.shape());
      for (std::int64_t i = 0; i < other.size(); ++i)
        other.data<float>()[i] = input.tensor.data<float>()[i] * static_cast<float>(s + 1) / 8.0f;
      input.tensor = other;
    }
  }
  BuildOptions build;
  build.enabled.set(Precision::kFP16);
  build.assume_lowest = true;
  const Requests requested(test.network->layers.size());
  std::vector<TensorMap> outputs;
  for (const int threads : {1, 2, 3}) {
    const ScopedThreads scoped(threads);
    int runs = 0;
    bool here = true;
    test.options.interrupt = [&, caller = std::this_thread::get_id()] {
      ++runs;
      here &= std::this_thread::get_id() == caller;
    };
    const TypedModel result = test.run(build, requested, "side_by_side");
    EXPECT_EQ(result.checked, 3);  // Two samples, the first one without fusion, too.
    // The assignment runs on each, and one more call comes before the file is looked at by others.
    EXPECT_EQ(runs, 8 + 3 + 1);
    EXPECT_TRUE(here);
    ASSERT_EQ(result.outputs.size(), 7u);
    if (outputs.empty()) outputs = result.outputs;
    for (std::size_t s = 0; s < outputs.size(); ++s)
      for (std::size_t o = 0; o < outputs[s].size(); ++o)
        EXPECT_TRUE(
            std::ranges::equal(outputs[s][o].tensor.values<float>(), result.outputs[s][o].tensor.values<float>()))
            << threads << " threads, sample " << s;
  }
}

TEST(Convert, LargeModelsHaveExternalData) {
  testing::RandomNetwork made(5, 30);
  Case test(made, made.network());
  BuildOptions build;
  build.enabled.set(Precision::kFP16);
  build.assume_lowest = true;
  test.options.largest_model_file = 1;  // as if it were more than 2 GB
  const Requests requested(test.network->layers.size());
  const TypedModel result = test.run(build, requested, "external");
  EXPECT_GT(result.checked, 0);
  EXPECT_EQ(result.file.external, std::filesystem::exists(scratch("external").string() + ".data"));
}

TEST(Convert, HandsOutAndTakesInOtherTypes) {
  testing::RandomNetwork made(8);
  Case test(made, made.network());
  BuildOptions build;
  build.enabled.set(Precision::kFP16);
  build.assume_lowest = true;
  const Requests requested(test.network->layers.size());
  for (const auto* ids : {&test.network->inputs, &test.network->outputs})
    for (TensorId id : *ids) test.options.io_types[test.network->tensor(id).name] = DataType::kFloat16;
  const TypedModel result = test.run(build, requested, "io");
  EXPECT_GT(result.checked, 0);
  const auto typed = import_onnx(scratch("io"), op_registry());
  for (TensorId id : typed->inputs) EXPECT_EQ(typed->tensor(id).type, DataType::kFloat16);
  for (TensorId id : typed->outputs) EXPECT_EQ(typed->tensor(id).type, DataType::kFloat16);
  test.options.io_types["no such tensor"] = DataType::kFloat16;
  EXPECT_THROW(test.run(build, requested, "io"), Error);
}

}  // namespace
}  // namespace ulpscope
