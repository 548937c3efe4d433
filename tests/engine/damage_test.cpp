// Plan files and typed models with damage anywhere: they run, or one clear error says why not.
#define XXH_INLINE_ALL
#include "damage.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>

#include "core/file.h"
#include "engine/build_helpers.h"
#include "engine/random_network.h"
#include "engine/tactics.h"
#include "runtime/plan_file.h"

namespace ulpscope::testing {
namespace {

constexpr std::size_t kHeader = 32;

template <typename T>
void put(std::string& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

/// The file with a checksum that fits: what lies behind the checksum has to hold by itself.
std::string sealed(std::string file) {
  if (file.size() >= kHeader) put(file, 24, XXH3_64bits(file.data() + kHeader, file.size() - kHeader));
  return file;
}

nlohmann::json description_of(const std::string& file) {
  std::uint64_t size = 0;
  std::memcpy(&size, file.data() + 16, sizeof size);
  return nlohmann::json::from_msgpack(file.substr(kHeader, size));
}

/// The file with another description, and its weights.
std::string with_description(const std::string& file, const nlohmann::json& description) {
  std::uint64_t size = 0;
  std::memcpy(&size, file.data() + 16, sizeof size);
  const auto aligned = [](std::size_t at) { return (at + 63) / 64 * 64; };
  const std::string weights = file.substr(std::min(file.size(), aligned(kHeader + size)));
  std::string result = file.substr(0, kHeader);
  nlohmann::json::to_msgpack(description, result);
  put(result, 16, std::uint64_t{result.size() - kHeader});
  result.resize(aligned(result.size()));
  return sealed(result + weights);
}

/// Inputs of 0.5 or 1; nothing where they would be large.
std::optional<std::vector<Tensor>> small_inputs(const Engine& engine) {
  std::vector<Tensor> inputs;
  for (const Binding& binding : engine.inputs()) {
    Shape shape = binding.shape.value_or(Shape{});
    std::int64_t count = 1;
    for (std::int64_t& dim : shape) {
      if (dim < 0) dim = 2;
      if (dim > 4096 || (count *= std::max<std::int64_t>(dim, 1)) > 4096) return std::nullopt;
    }
    Tensor ones(DataType::kFloat32, shape);
    std::fill_n(ones.data<float>(), ones.size(), binding.type == DataType::kInt64 ? 1.0f : 0.5f);
    inputs.push_back(ones.cast(binding.type == DataType::kUndefined ? DataType::kFloat32 : binding.type));
  }
  return inputs;
}

void run_with_small_inputs(Engine& engine) {
  if (const auto inputs = small_inputs(engine)) engine.run(*inputs);
  engine.report();
}

/// A Scan rather than a Loop, which damage can make endless.
std::shared_ptr<Network> scan_network() {
  Model model;
  model.input("x", {2});
  model.input("all", {3, 2});
  auto& scan = model.node("Scan", {"x", "all"}, {"y", "sums"}, "scan");
  add_attribute(scan, "num_scan_inputs", onnx::AttributeProto::INT).set_i(1);
  auto& body = *add_attribute(scan, "body", onnx::AttributeProto::GRAPH).mutable_g();
  set_type(*body.add_input(), "state", onnx::TensorProto::FLOAT, {2});
  set_type(*body.add_input(), "element", onnx::TensorProto::FLOAT, {2});
  add_node(body, "Add", {"state", "element"}, {"next"}, "add");
  add_node(body, "Mul", {"next", "x"}, {"sum"}, "mul");
  for (const char* name : {"next", "sum"}) body.add_output()->set_name(name);
  model.output("y");
  model.output("sums");
  return model.load();
}

std::shared_ptr<Network> choice_network() {
  Model model;
  model.input("x", {2, 2});
  add_saturating_choice(model, "y");
  model.output("y");
  return model.load();
}

/// A product of quantized values between casts.
Model typed_model() {
  Model model(21);
  model.input("x", {2, 4});
  add_attribute(model.node("Cast", {"x"}, {"half"}, "down"), "to", onnx::AttributeProto::INT).set_i(10);
  add_attribute(model.node("Cast", {"half"}, {"wide"}, "up"), "to", onnx::AttributeProto::INT).set_i(1);
  model.node("QuantizeLinear", {"wide", "scale", "zero"}, {"q"}, "quantize");
  model.node("DequantizeLinear", {"q", "scale", "zero"}, {"d"}, "dequantize");
  model.node("DequantizeLinear", {"w", "scales"}, {"wd"}, "weights");
  model.node("MatMul", {"d", "wd"}, {"m"}, "product");
  model.node("Relu", {"m"}, {"y"}, "relu");
  *model.graph().add_initializer() = float_tensor("scale", {}, {0.25f});
  *model.graph().add_initializer() = float_tensor("scales", {3}, {0.5f, 0.25f, 0.125f});
  for (const auto& [name, count] : {std::pair{"zero", 1}, std::pair{"w", 12}}) {
    onnx::TensorProto& tensor = *model.graph().add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(onnx::TensorProto::INT8);
    if (count > 1) tensor.add_dims(4), tensor.add_dims(3);
    tensor.set_raw_data(std::string(static_cast<std::size_t>(count), count > 1 ? '\3' : '\0'));
  }
  model.output("y");
  return model;
}

/// Plan files of small networks.
std::vector<std::string> plan_files(const TemporaryFolder& folder) {
  std::vector<std::string> files;
  const auto add = [&](std::shared_ptr<const Network> network, const BuildOptions& options) {
    Engine::build(std::move(network), options)->save(folder / "good.plan");
    files.push_back(read_file(folder / "good.plan"));
  };
  auto constrained = add_sub();
  layer_named(*constrained, "Add").precision = DataType::kFloat16;
  layer_named(*constrained, "Add").output_types = {DataType::kFloat32};
  BuildOptions options = fp16_options(ConstraintMode::kPrefer);
  options.profiles.push_back({{{"x", {4}}}, {{"x", {4}}}, {{"x", {4}}}});
  add(constrained, options);
  add(scan_network(), fp16_options(ConstraintMode::kNone, Fusion::kFull, true));
  add(choice_network(), {});
  options = fp16_options(ConstraintMode::kNone, Fusion::kFull, true);
  options.enabled.set(Precision::kINT8);
  options.scales = {{"x", 0.1f}, {"m", 0.2f}, {"y", 0.3f}};
  add(typed_model().load(), options);
  Model product;
  product.input("x", {2, 4});
  *product.graph().add_initializer() = float_tensor("w", {4, 3}, std::vector<float>(12, 0.5f));
  product.node("MatMul", {"x", "w"}, {"m"}, "product");
  product.node("Relu", {"m"}, {"y"}, "relu");
  product.output("y");
  add(product.load(), options);
  add(RandomNetwork(3, 6).shared(), fp16_options());
  return files;
}

TEST(Damage, PlanFilesRunOrSayWhyNot) {
  const TemporaryFolder folder;
  const std::vector<std::string> files = plan_files(folder);
  int worked = 0;
  for (std::uint32_t seed = 0; seed < rounds(3000); ++seed) {
    std::mt19937 random(seed);
    const std::string& good = files[seed % files.size()];
    const bool json = random() % 4 != 0;
    const std::string bytes =
        json ? with_description(good, damaged_json(description_of(good), random)) : sealed(damaged(good, random));
    const auto path = folder.write("m.plan", bytes);
    worked +=
        works([&] { run_with_small_inputs(*Engine::load(path, {.threads = 1})); }, "seed " + std::to_string(seed));
  }
  EXPECT_GT(worked, 150);  // names and reasons may be any
  EXPECT_LT(worked, static_cast<int>(rounds(2000)));
}

TEST(Damage, PlanFilesNestedDeeplyAreRefused) {
  const TemporaryFolder folder;
  std::string file("ULPSPLAN\3\0\0\0", 12);
  file.resize(kHeader);
  file += std::string(1 << 20, '\x91');  // lists of one list
  put(file, 16, std::uint64_t{file.size() - kHeader});
  const auto path = folder.write("deep.plan", sealed(file));
  expect_error(ErrorCode::kInvalidFile, {"deep.plan", "nested"}, [&] { Engine::load(path); });
}

TEST(Damage, PlanFilesAreCheckedBeforeAnythingRuns) {
  const TemporaryFolder folder;
  Engine::build(add_sub(), {})->save(folder / "good.plan");
  const std::string good = read_file(folder / "good.plan");
  const nlohmann::json description = description_of(good);
  const auto expect = [&](const char* pointer, const nlohmann::json& value, const char* part) {
    nlohmann::json changed = description;
    changed[nlohmann::json::json_pointer(pointer)] = value;
    const auto path = folder.write("m.plan", with_description(good, changed));
    SCOPED_TRACE(pointer);
    expect_error(ErrorCode::kInvalidFile, {"m.plan", part}, [&] { Engine::load(path); });
  };
  expect("/network/layers/0/inputs/0", 1000, "from -1 to");
  expect("/network/layers/0/outputs/0", -2, "from -1 to");
  expect("/network/inputs/0", -1, "from 0 to");
  expect("/network/outputs/0", 77, "from 0 to");
  expect("/network/layers/0/outputs", {0, 0}, "which is not what its operator takes");
  expect("/network/tensors/0/type", "float7", "expected an element type");
  expect("/network/tensors/0/shape", {-7}, "from -1 to");
  expect("/network/tensors/0/shape", {1.5}, "expected a whole number");
  expect("/assignment/precision/0", 17, "from 0 to 16");
  expect("/assignment/precision", {0}, "does not fit the network");
  expect("/assignment/pinned", nlohmann::json::array(), "does not fit the network");
  expect("/assignment/reason", {"a"}, "does not fit the network");
  expect("/assignment/scale", std::vector<float>(description["network"]["tensors"].size(), -1), "scales");
  expect("/assignment/int8_output", "int8", "int8 layers store");
  expect("/options/fusion", 9, "from 0 to 2");
  for (std::size_t t = 0; t < description["network"]["tensors"].size(); ++t) {
    const std::string tensor = "/network/tensors/" + std::to_string(t);
    expect(("/assignment/storage/" + std::to_string(t)).c_str(), "int64", "is stored as int64");
    if (!description["network"]["tensors"][t].contains("value")) continue;
    expect((tensor + "/value/offset").c_str(), 1 << 20, "outside of the file");
    expect((tensor + "/value/offset").c_str(), 1, "outside of the file");
    expect((tensor + "/value/shape").c_str(), {std::int64_t{1} << 40, std::int64_t{1} << 40}, "outside of the file");
    expect((tensor + "/value/type").c_str(), "bool", "do not fit its type");
  }
}

TEST(Damage, TypedModelsRunOrSayWhyNot) {
  const std::string good = typed_model().bytes();
  Model choice;
  choice.input("x", {2, 2});
  add_saturating_choice(choice, "y");
  choice.output("y");
  const std::string files[] = {good, choice.bytes()};
  int worked = 0;
  for (std::uint32_t seed = 0; seed < rounds(2000); ++seed) {
    std::mt19937 random(seed);
    const std::string bytes = damaged(files[seed % 2], random);
    worked += works(
        [&] {
          const auto engine =
              Engine::build(Model::load_bytes(bytes), fp16_options(ConstraintMode::kNone, Fusion::kFull, true));
          run_with_small_inputs(*engine);
        },
        "seed " + std::to_string(seed));
  }
  EXPECT_GT(worked, 50);
}

TEST(Damage, TacticsApplyOrSayWhyNot) {
  const auto network = add_sub();
  const auto good = nlohmann::ordered_json::parse(Engine::build(network, fp16_options())->tactic_replay_json());
  for (std::uint32_t seed = 0; seed < rounds(1000); ++seed) {
    std::mt19937 random(seed);
    BuildOptions options = fp16_options();
    const std::string text =
        random() % 2 == 0
            ? damaged(good.dump(), random)
            : damaged_json(good, random).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    works(
        [&] {
          options.tactic_replay = std::make_shared<const TacticReplay>(tactics_from_json(text));
          run_with_small_inputs(*Engine::build(network, options));
        },
        "seed " + std::to_string(seed));
  }
  for (const char* number : {"-9223372036854775808", "18446744073709551615", "2147483654", "1e300", "\"1\"", "null"})
    works([&] { tactics_from_json(std::string("{\"replay\":{\"a\":{\"implementation\":") + number + "}}}"); }, number);
}

TEST(Damage, TacticsOfNamesThatAreNoText) {
  Model model;
  model.input("x", {4});
  model.node("Relu", {"x"}, {"y"}, "relu\xff\xfe");
  model.output("y");
  const auto engine = Engine::build(model.load(), fp16_options());
  EXPECT_EQ(tactics_from_json(engine->tactic_replay_json()).groups.size(), 1u);
}

TEST(Damage, ProfilesOfAnotherRankAreRefused) {
  BuildOptions options;
  options.profiles = {{{{"x", {4}}}, {{"x", {4}}}, {{"x", {4}}}}, {{{"x", {}}}, {{"x", {}}}, {{"x", {}}}}};
  expect_error(ErrorCode::kInvalidArgument, {"input 'x'", "(4,)", "got ()"},
               [&] { Engine::build(add_sub(), options); });
}

}  // namespace
}  // namespace ulpscope::testing
