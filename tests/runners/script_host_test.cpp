#include "runners/script_host.h"

#include <gmock/gmock.h>

#include "graph/evaluate.h"
#include "graph/network_builder.h"
#include "ops/registry.h"
#include "runners/script_fixture.h"
#include "runners/template_script.h"

namespace ulpscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// x -> Mul(x, scale) -> "scaled" -> Add(scaled, bias) -> "y"
std::shared_ptr<Network> small_network() {
  testing::NetworkBuilder builder;
  builder.input("x");
  builder.network.tensor(builder.network.inputs[0]).shape = Shape{2, 3};
  builder.constant("scale", Tensor::of<float>({3}, {1, 2, 3}));
  builder.layer("Mul", {"x", "scale"}, {"scaled"}, "scaling");
  builder.constant("bias", Tensor::of<float>({1}, {10}));
  builder.layer("Add", {"scaled", "bias"}, {"y"}, "adding").precision = DataType::kFloat16;
  builder.output("y");
  for (TensorInfo& info : builder.network.tensors) info.type = DataType::kFloat32;
  return std::make_shared<Network>(std::move(builder.network));
}

class ScriptHostTest : public ScriptTest {
 protected:
  ScriptHost& host() {
    if (!host_) {
      ScriptHost::Callbacks callbacks;
      callbacks.ops = &op_registry();
      callbacks.import_path = [](const std::filesystem::path& path) -> std::shared_ptr<Network> {
        if (path != "model.onnx") throw Error(ErrorCode::kNotFound, "[onnx] " + path.string() + ": no such file");
        return small_network();
      };
      callbacks.import_bytes = [this](std::span<const std::byte> bytes) {
        imported_bytes_ = bytes.size();
        return small_network();
      };
      WorkerOptions options = ScriptTest::options();
      options.call_limit = limit_;
      host_ = std::make_unique<ScriptHost>(callbacks, options);
    }
    return *host_;
  }

  ScriptNetwork load(const std::string& body) { return host().load_network({write("net.py", body), "load_network"}); }

  std::shared_ptr<Network> postprocess(const std::string& body) {
    return host().postprocess_network({write("post.py", body), "postprocess"}, *small_network());
  }

  static std::vector<float> run(const Network& network, std::vector<Tensor> inputs) {
    const Tensor result = evaluate(network, inputs).at(0);
    const auto values = result.values<float>();
    return {values.begin(), values.end()};
  }

  std::unique_ptr<ScriptHost> host_;
  std::chrono::milliseconds limit_{0};
  std::size_t imported_bytes_ = 0;
};

TEST(ScriptNameTest, SplitsAtTheLastColonBeforeAName) {
  const auto parsed = [](const std::string& text) {
    const ScriptName name = ScriptName::parse(text, "main");
    return name.path + "|" + name.function;
  };
  EXPECT_EQ(parsed("a.py"), "a.py|main");
  EXPECT_EQ(parsed("a.py:run"), "a.py|run");
  EXPECT_EQ(parsed("C:/a.py:run_2"), "C:/a.py|run_2");
  EXPECT_EQ(parsed("dir:x/a.py"), "dir:x/a.py|main");
}

TEST_F(ScriptHostTest, PostprocessingSetsPrecisionsTypesNamesAndOutputs) {
  const auto network = postprocess(R"(
import tensorrt as trt

def postprocess(network):
    assert network.num_layers == len(network) == 4 and network.num_inputs == 1, network.num_layers
    layers = {layer.name: layer for layer in network}
    assert [layer.name for layer in network] == ["scale", "scaling", "bias", "adding"]
    assert layers["scaling"].type == trt.LayerType.ELEMENTWISE and layers["scale"].type == trt.LayerType.CONSTANT
    assert layers["scale"].weights.tolist() == [1.0, 2.0, 3.0]
    adding = layers["adding"]
    assert adding.precision_is_set and adding.precision == trt.float16 and str(adding.precision) == "DataType.HALF"
    adding.reset_precision()
    scaling = network.get_layer(1)
    assert not scaling.precision_is_set and tuple(scaling.get_output(0).shape) == (2, 3)
    scaling.precision = trt.float32
    scaling.set_output_type(0, trt.float16)
    scaling.name = "renamed"
    scaling.get_output(0).name = "between"
    network.mark_output(scaling.get_output(0))
    network.unmark_output(network.get_output(0))
)");
  EXPECT_EQ(network->find_layer("scaling"), kNone);
  const Layer& renamed = network->layer(network->find_layer("renamed"));
  EXPECT_EQ(renamed.precision, DataType::kFloat32);
  EXPECT_EQ(renamed.output_type(0), DataType::kFloat16);
  EXPECT_FALSE(network->layer(network->find_layer("adding")).precision.has_value());
  ASSERT_EQ(network->outputs.size(), 1u);
  EXPECT_EQ(network->tensor(network->outputs[0]).name, "between");
}

TEST_F(ScriptHostTest, AScriptThatChangesNothingChangesNothing) {
  const auto before = small_network();
  const auto after = postprocess("def postprocess(network):\n    pass\n");
  ASSERT_EQ(after->layers.size(), before->layers.size());
  for (LayerId i : before->layers.ids()) {
    EXPECT_EQ(after->layers[i].name, before->layers[i].name);
    EXPECT_EQ(after->layers[i].precision, before->layers[i].precision);
  }
  EXPECT_EQ(after->outputs, before->outputs);
}

TEST_F(ScriptHostTest, AddedLayersCanBePutBetweenOthers) {
  const auto network = postprocess(R"(
import numpy as np
import tensorrt as trt

def postprocess(network):
    scaling, adding = network[1], network[3]
    two = network.add_constant((1,), np.full(1, 2, np.float32)).get_output(0)
    doubled = network.add_elementwise(scaling.get_output(0), two, trt.ElementWiseOperation.PROD)
    assert doubled.name == "(Unnamed Layer* 5) [ElementWise]", doubled.name
    assert doubled.get_output(0).name == "(Unnamed Layer* 5) [ElementWise]_output"
    assert tuple(doubled.get_output(0).shape) == (2, 3) and doubled.get_output(0).dtype == trt.float32
    adding.set_input(0, doubled.get_output(0))
)");
  EXPECT_THAT(run(*network, {Tensor::of<float>({2, 3}, {1, 1, 1, 2, 2, 2})}), ElementsAre(12, 14, 16, 14, 18, 22));
}

TEST_F(ScriptHostTest, LoaderScriptsExtendTheModelAndSeeItsNetwork) {
  const ScriptNetwork loaded = load(R"(
from polygraphy import func
from polygraphy.backend.trt import NetworkFromOnnxPath
import tensorrt as trt

@func.extend(NetworkFromOnnxPath("model.onnx"))
def load_network(builder, network, parser):
    for layer in network:
        if layer.name in ("scaling", "adding"):
            layer.precision = trt.float16
)");
  EXPECT_EQ(loaded.network->layer(loaded.network->find_layer("scaling")).precision, DataType::kFloat16);
  EXPECT_FALSE(loaded.strongly_typed);
}

TEST_F(ScriptHostTest, ModelsComeFromBytesToo) {
  load(
      "from polygraphy.backend.trt import network_from_onnx_bytes\ndef load_network():\n    return "
      "network_from_onnx_bytes(b'12345')\n");
  EXPECT_EQ(imported_bytes_, 5u);
}

TEST_F(ScriptHostTest, NetworksAreBuiltByHand) {
  const ScriptNetwork loaded = load(R"(
import numpy as np
import tensorrt as trt
from polygraphy import func
from polygraphy.backend.trt import CreateNetwork

@func.extend(CreateNetwork(strongly_typed=True))
def load_network(builder, network):
    x = network.add_input(name="x", shape=(1, 1, 4, 4), dtype=trt.float32)
    kernel = np.ones((2, 1, 3, 3), np.float32)
    kernel[1] = -1
    conv = network.add_convolution_nd(x, 2, (3, 3), kernel, trt.Weights(np.array([0, 100], np.float32)))
    conv.padding_nd = (1, 1)
    relu = network.add_activation(conv.get_output(0), trt.ActivationType.RELU)
    pool = network.add_pooling_nd(relu.get_output(0), trt.PoolingType.MAX, (2, 2))
    pool.stride_nd = (2, 2)
    assert tuple(pool.get_output(0).shape) == (1, 2, 2, 2), pool.get_output(0).shape
    flat = network.add_shuffle(pool.get_output(0))
    flat.reshape_dims = (2, 4)
    weights = network.add_constant((3, 4), np.arange(12, dtype=np.float32).reshape(3, 4))
    product = network.add_matrix_multiply(flat.get_output(0), trt.MatrixOperation.NONE, weights.get_output(0), trt.MatrixOperation.TRANSPOSE)
    total = network.add_reduce(product.get_output(0), trt.ReduceOperation.SUM, 1 << 1, False)
    total.get_output(0).name = "total"
    network.mark_output(tensor=total.get_output(0))
)");
  EXPECT_TRUE(loaded.strongly_typed);
  const Network& network = *loaded.network;
  EXPECT_EQ(network.tensor(network.outputs[0]).name, "total");
  EXPECT_NE(network.find_layer("(Unnamed Layer* 0) [Convolution]"), kNone);
  // Ones convolved: 9 inside, 4 in the corners, 6 at the edges; the pool keeps 9 in every quarter. The other channel is
  // 100 minus that, at most 96. Rows of the weights sum to 6, 22 and 38.
  EXPECT_THAT(run(network, {Tensor::of<float>({1, 1, 4, 4}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1})}),
              ElementsAre(9 * 66, 96 * 66));
}

TEST_F(ScriptHostTest, EveryLayerOfTheApiComputesWhatItSays) {
  // Each expression makes a tensor of x = [[1, -2, 3], [4, 5, -6]]; the script's own NumPy says what it should be.
  const std::string body = R"(
import numpy as np
import tensorrt as trt

X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)

def constant(n, array):
    return n.add_constant(array.shape, array).get_output(0)

def cases(n, x):
    E, U, A, R, M = trt.ElementWiseOperation, trt.UnaryOperation, trt.ActivationType, trt.ReduceOperation, trt.MatrixOperation
    y = np.array([[2, 2, 2]], np.float32)
    for op, expected in ((E.SUM, X + y), (E.PROD, X * y), (E.MAX, np.maximum(X, y)), (E.MIN, np.minimum(X, y)), (E.SUB, X - y),
                         (E.DIV, X / y), (E.POW, X ** y), (E.FLOOR_DIV, np.floor(X / y))):
        yield n.add_elementwise(x, constant(n, y), op), expected
    for op, expected in ((U.EXP, np.exp(X)), (U.ABS, abs(X)), (U.NEG, -X), (U.SIGN, np.sign(X)), (U.FLOOR, np.floor(X)), (U.RECIP, 1 / X)):
        yield n.add_unary(x, op), expected
    yield n.add_activation(x, A.RELU), np.maximum(X, 0)
    yield n.add_activation(x, A.SIGMOID), 1 / (1 + np.exp(-X))
    clip = n.add_activation(x, A.CLIP)
    clip.alpha, clip.beta = -1, 3.5
    yield clip, np.clip(X, -1, 3.5)
    leaky = n.add_activation(x, A.LEAKY_RELU)
    leaky.alpha = 0.5
    yield leaky, np.where(X < 0, X / 2, X)
    tanh = n.add_activation(x, A.SCALED_TANH)
    tanh.alpha, tanh.beta = 2, 0.5
    yield tanh, 2 * np.tanh(X / 2)
    yield n.add_activation(x, A.GELU_TANH), 0.5 * X * (1 + np.tanh(np.sqrt(2 / np.pi) * (X + 0.044715 * X ** 3)))
    yield n.add_identity(x), X
    yield n.add_cast(n.add_cast(x, trt.int32).get_output(0), trt.float32), X
    yield n.add_matrix_multiply(x, M.TRANSPOSE, x, M.NONE), X.T @ X
    v = constant(n, np.array([1, 0, 2], np.float32))
    yield n.add_matrix_multiply(x, M.NONE, v, M.VECTOR), X @ [1, 0, 2]
    for op, expected in ((R.SUM, X.sum(0)), (R.AVG, X.mean(0)), (R.MAX, X.max(0)), (R.MIN, X.min(0)), (R.PROD, X.prod(0))):
        yield n.add_reduce(x, op, 1, False), expected
    yield n.add_reduce(x, R.SUM, 3, True), X.sum(keepdims=True)
    softmax = n.add_softmax(x)
    softmax.axes = 2
    e = np.exp(X)
    yield softmax, e / e.sum(1, keepdims=True)
    concat = n.add_concatenation([x, x])
    concat.axis = 1
    yield concat, np.concatenate([X, X], 1)
    yield n.add_slice(x, (0, 1), (2, 2), (1, 1)), X[:, 1:]
    yield n.add_slice(x, (1, 2), (2, 3), (-1, -1)), X[::-1, ::-1]
    yield n.add_gather(x, constant(n, np.array([2, 0], np.int32)), 1), X[:, [2, 0]]
    yield n.add_select(n.add_elementwise(x, v, E.GREATER).get_output(0), x, v), np.where(X > [1, 0, 2], X, [1, 0, 2])
    yield n.add_scale(n.add_shuffle(x).get_output(0), trt.ScaleMode.UNIFORM, np.float32([1]), np.float32([3]), np.float32([2])), (X * 3 + 1) ** 2
    yield n.add_scale_nd(x, trt.ScaleMode.CHANNEL, None, np.float32([1, 2, 3]), None, 1), X * [1, 2, 3]
    yield n.add_topk(x, trt.TopKOperation.MAX, 2, 2), -np.sort(-X, 1)[:, :2]
    shuffle = n.add_shuffle(x)
    shuffle.first_transpose, shuffle.reshape_dims, shuffle.second_transpose = (1, 0), (2, 3), (1, 0)
    yield shuffle, X.T.reshape(2, 3).T
    yield n.add_einsum([x, x], "ij,ij->i"), (X * X).sum(1)
    yield n.add_padding_nd(x, (0, 1), (0, 2)), np.pad(X, ((0, 0), (1, 2)))
    ones, zeros = constant(n, np.ones((1, 3), np.float32)), constant(n, np.zeros((1, 3), np.float32))
    norm = n.add_normalization(x, ones, zeros, 2)
    norm.epsilon = 0.0
    yield norm, (X - X.mean(1, keepdims=True)) / X.std(1, keepdims=True)
    image = n.add_shuffle(x)
    image.reshape_dims = (1, 1, 2, 3)
    resize = n.add_resize(image.get_output(0))
    resize.scales = (1, 1, 2, 2)
    yield resize, X.repeat(2, 0).repeat(2, 1)[None, None]
    up = n.add_deconvolution_nd(image.get_output(0), 1, (1, 1), np.float32([2]))
    yield up, 2 * X[None, None]
    yield n.add_fully_connected(image.get_output(0), 2, np.arange(12, dtype=np.float32), np.float32([1, 2])), (
        X.reshape(1, 6) @ np.arange(12).reshape(2, 6).T + [1, 2]).reshape(1, 2, 1, 1)
    yield n.add_quantize(x, constant(n, np.float32(0.5))), None
    scale = constant(n, np.float32(0.5))
    yield n.add_dequantize(n.add_quantize(x, scale).get_output(0), scale), X
    large, one = n.add_elementwise(x, constant(n, np.float32([[17]])), E.PROD).get_output(0), constant(n, np.float32(1))
    e4m3 = n.add_quantize(large, one, trt.fp8).get_output(0)
    assert e4m3.dtype == trt.fp8
    yield n.add_dequantize(e4m3, one), [[16, -32, 52], [64, 88, -104]]
    yield n.add_dequantize(e4m3, one, trt.float16), [[16, -32, 52], [64, 88, -104]]

def load_network():
    builder = trt.Builder(trt.Logger())
    n = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    x = n.add_input("x", trt.float32, X.shape)
    for i, (layer, expected) in enumerate(cases(n, x)):
        if expected is None:
            continue
        y = layer.get_output(0)
        expected = np.asarray(expected, np.float32)
        assert tuple(y.shape) == expected.shape, (i, layer, y.shape, expected.shape)
        difference = n.add_elementwise(y, n.add_constant(expected.shape, expected).get_output(0), trt.ElementWiseOperation.SUB)
        difference.get_output(0).name = f"{i} {type(layer).__name__}"
        n.mark_output(difference.get_output(0))
    return builder, n
)";
  const ScriptNetwork loaded = load(body);
  const std::vector<Tensor> results =
      evaluate(*loaded.network, std::vector{Tensor::of<float>({2, 3}, {1, -2, 3, 4, 5, -6})});
  ASSERT_GT(results.size(), 40u);
  for (std::size_t i = 0; i < results.size(); ++i)
    for (const float difference : results[i].values<float>())
      EXPECT_NEAR(difference, 0, 2e-3) << loaded.network->tensor(loaded.network->outputs[i]).name;
}

TEST_F(ScriptHostTest, LayersThatNoOperatorIsAreRefused) {
  const auto message_of = [&](const std::string& statement) {
    return std::string(error_of([&] {
                         load(
                             "import numpy as np\nimport tensorrt as trt\n"
                             "def load_network():\n"
                             "    builder = trt.Builder(trt.Logger())\n    n = builder.create_network()\n"
                             "    x = n.add_input('x', trt.float32, (1, 1, 4, 4))\n"
                             "    one = n.add_constant((), np.float32(1)).get_output(0)\n    " +
                             statement + "\n    n.mark_output(layer.get_output(0))\n    return builder, n\n");
                       }).what());
  };
  EXPECT_THAT(message_of("layer = n.add_quantize(x, one, trt.int4)"), HasSubstr("it may have INT8 or FP8"));
  EXPECT_THAT(message_of("layer = n.add_dequantize(x, one)"), HasSubstr("has elements of type DataType.FLOAT"));
  EXPECT_THAT(message_of("layer = n.add_convolution_nd(x, 1, (2, 2), np.ones(4, np.float32)); "
                         "layer.padding_mode = trt.PaddingMode.EXPLICIT_ROUND_UP"),
              HasSubstr("rounds sizes up"));
}

TEST_F(ScriptHostTest, WrongResultsAndArityAreNamed) {
  EXPECT_THAT(error_of([&] { load("def load_network():\n    return 5\n"); }).what(),
              HasSubstr("expected (builder, network)"));
  EXPECT_THAT(error_of([&] { load("def load_network():\n    pass\n"); }).what(), HasSubstr("got None"));
  const Error arity = error_of([&] {
    load(
        "from polygraphy import func\nfrom polygraphy.backend.trt import "
        "CreateNetwork\n@func.extend(CreateNetwork())\ndef load_network(b):\n    pass\n");
  });
  EXPECT_THAT(arity.what(), HasSubstr("accepts 1 parameter(s), but needs to accept 2"));
  const Error empty = error_of([&] { load("from polygraphy.backend.trt import create_network as load_network\n"); });
  EXPECT_THAT(empty.what(), HasSubstr("mark_output"));
}

TEST_F(ScriptHostTest, AMissingFileOrFunctionIsNotFound) {
  const Error file = error_of([&] { host().load_network({"/nonexistent/x.py", "load_network"}); });
  EXPECT_EQ(file.code(), ErrorCode::kNotFound);
  EXPECT_THAT(file.what(), HasSubstr("/nonexistent/x.py"));
  const Error function = error_of([&] { load("def other():\n    pass\n"); });
  EXPECT_EQ(function.code(), ErrorCode::kNotFound);
  EXPECT_THAT(function.what(), HasSubstr("'load_network'"));
  EXPECT_THAT(function.what(), HasSubstr("other"));
}

TEST_F(ScriptHostTest, AMissingModelKeepsItsMessage) {
  const Error error = error_of([&] {
    load(
        "from polygraphy.backend.trt import network_from_onnx_path\ndef load_network():\n    return "
        "network_from_onnx_path('no.onnx')\n");
  });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_THAT(error.what(), HasSubstr("no.onnx: no such file"));
}

TEST_F(ScriptHostTest, ExceptionsComeWithFileAndLine) {
  const Error error = error_of([&] {
    postprocess("def postprocess(network):\n    deeper()\n\ndef deeper():\n    raise ValueError('wrong')\n");
  });
  EXPECT_EQ(error.code(), ErrorCode::kScript);
  EXPECT_THAT(error.what(), HasSubstr("ValueError: wrong"));
  EXPECT_THAT(error.what(), HasSubstr("post.py\", line 5, in deeper"));
  EXPECT_THAT(error.what(), Not(HasSubstr("network_scripts.py")));
}

TEST_F(ScriptHostTest, ASyntaxErrorNamesTheLine) {
  EXPECT_THAT(error_of([&] { postprocess("def postprocess(network):\n  if\n"); }).what(), HasSubstr("line 2"));
}

TEST_F(ScriptHostTest, ExitIsAnErrorAndTheNextScriptRuns) {
  const Error error = error_of([&] { postprocess("import sys\ndef postprocess(network):\n    sys.exit(3)\n"); });
  EXPECT_EQ(error.code(), ErrorCode::kScript);
  EXPECT_THAT(error.what(), HasSubstr("exit with status 3"));
  EXPECT_NE(postprocess("def postprocess(network):\n    print('fine')\n"), nullptr);
  EXPECT_EQ(out_, "fine\n");
}

TEST_F(ScriptHostTest, AProcessThatEndsIsAnErrorAndTheNextScriptRuns) {
  EXPECT_THAT(error_of([&] { postprocess("import os\ndef postprocess(network):\n    os._exit(7)\n"); }).what(),
              HasSubstr("exited with status 7"));
  EXPECT_THAT(
      error_of([&] { postprocess("import os\ndef postprocess(network):\n    os.kill(os.getpid(), 9)\n"); }).what(),
      HasSubstr("signal 9"));
  EXPECT_NE(postprocess("def postprocess(network):\n    pass\n"), nullptr);
}

TEST_F(ScriptHostTest, AnEndlessLoopRunsIntoTheLimitAndItsLineIsNamed) {
  limit_ = std::chrono::milliseconds(1500);
  const Error error = error_of([&] { postprocess("def postprocess(network):\n    while True:\n        pass\n"); });
  EXPECT_EQ(error.code(), ErrorCode::kScript);
  EXPECT_THAT(error.what(), HasSubstr("ULPSCOPE_SCRIPT_TIMEOUT"));
  EXPECT_THAT(error.what(), HasSubstr("post.py"));
}

TEST_F(ScriptHostTest, UnknownNamesSayWhatThereIs) {
  EXPECT_THAT(
      error_of([&] { postprocess("import tensorrt as trt\ndef postprocess(network):\n    trt.float99\n"); }).what(),
      HasSubstr("ulpscope's tensorrt has no 'float99'"));
  EXPECT_THAT(error_of([&] { postprocess("def postprocess(network):\n    network[0].precission = 1\n"); }).what(),
              HasSubstr("precission"));
}

TEST_F(ScriptHostTest, ACycleIsNamed) {
  EXPECT_THAT(error_of([&] {
                postprocess("def postprocess(network):\n    network[1].set_input(0, network[3].get_output(0))\n");
              }).what(),
              HasSubstr("cycle"));
}

TEST_F(ScriptHostTest, ConfigScriptsMakeAndEditBuildOptions) {
  BuildOptions base;
  base.target = "l4";
  base.enabled.set(Precision::kINT8);
  const BuildOptions made = host().load_config({write("config.py", R"(
import tensorrt as trt
from polygraphy import func
from polygraphy.backend.trt import CreateConfig, Profile

@func.extend(CreateConfig(precision_constraints="obey", profiles=[Profile().add("x", (1, 3), (2, 3), (4, 3))]))
def load_config(builder, network, config):
    assert network.get_input(0).name == "x"
    config.set_flag(trt.BuilderFlag.FP16)
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 30)
)"),
                                                "load_config"},
                                               *small_network(), base);
  EXPECT_TRUE(made.enabled.has(Precision::kFP16));
  EXPECT_FALSE(made.enabled.has(Precision::kTF32));
  EXPECT_FALSE(made.enabled.has(Precision::kINT8));
  EXPECT_EQ(made.constraints, ConstraintMode::kObey);
  EXPECT_EQ(made.target, "l4");
  ASSERT_EQ(made.profiles.size(), 1u);
  EXPECT_EQ(made.profiles[0].max.at("x"), (Shape{4, 3}));
  const BuildOptions edited = host().postprocess_config({write("edit.py", R"(
import tensorrt as trt

def postprocess_config(builder, network, config):
    assert config.get_flag(trt.BuilderFlag.FP16) and config.get_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    config.clear_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    config.set_flag(trt.BuilderFlag.BF16)
)"),
                                                         "postprocess_config"},
                                                        *small_network(), made);
  EXPECT_EQ(edited.enabled, (PrecisionSet{Precision::kFP16, Precision::kBF16}));
  EXPECT_EQ(edited.constraints, ConstraintMode::kNone);
  EXPECT_EQ(edited.profiles.size(), 1u);
  // TensorRT has no flags for these: they stay as they were.
  BuildOptions of_formats;
  of_formats.enabled = {Precision::kNVFP4, Precision::kINT4Block32, Precision::kINT8Weights};
  const std::string with_int4 =
      "import tensorrt as trt\ndef postprocess_config(builder, network, config):\n"
      "    config.set_flag(trt.BuilderFlag.INT4)\n";
  const BuildOptions kept =
      host().postprocess_config({write("formats.py", with_int4), "postprocess_config"}, *small_network(), of_formats);
  of_formats.enabled.set(Precision::kINT4);
  EXPECT_EQ(kept.enabled, with_smaller_blocks(of_formats.enabled));
}

TEST_F(ScriptHostTest, TemplatesRunAsTheyAre) {
  EXPECT_EQ(load(trt_network_template("model.onnx")).network->layers.size(), 4u);
  const ScriptNetwork by_hand = load(trt_network_template(""));
  EXPECT_THAT(run(*by_hand.network, {Tensor::of<float>({1, 4}, {1, 2, 3, 4})}), ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(onnx_gs_template("a/mo\"del.onnx"), HasSubstr("onnx.load(\"a/mo\\\"del.onnx\")"));
}

}  // namespace
}  // namespace ulpscope
