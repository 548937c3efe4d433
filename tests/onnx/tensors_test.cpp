// Elements of tensors: raw, typed and external.
#include <gmock/gmock.h>

#include "onnx/model_builder.h"

namespace ulpscope::testing {
namespace {

using Proto = onnx::TensorProto;
using ::testing::ElementsAre;

/// The value of the one initializer of a model.
Tensor imported(const Proto& tensor) {
  Model model;
  *model.graph().add_initializer() = tensor;
  model.output(tensor.name());
  const auto network = model.load();
  return network->tensor(network->outputs[0]).value;
}

Proto typed(int type, const Dims& dims) {
  Proto tensor;
  tensor.set_name("w");
  tensor.set_data_type(type);
  for (std::int64_t dim : dims) tensor.add_dims(dim);
  return tensor;
}

template <typename T>
void expect_values(int type, const std::vector<T>& expected, const std::function<void(Proto&)>& fill) {
  Proto tensor = typed(type, {static_cast<std::int64_t>(expected.size())});
  fill(tensor);
  const Tensor value = imported(tensor);
  EXPECT_THAT(value.values<T>(), ::testing::ElementsAreArray(expected));
  tensor.add_dims(2);
  expect_error(ErrorCode::kInvalidFile, {"'w'", "expected"}, [&] { imported(tensor); });
}

TEST(Tensors, TypedData) {
  expect_values<float>(Proto::FLOAT, {1.5f, -2}, [](Proto& t) { t.add_float_data(1.5f), t.add_float_data(-2); });
  expect_values<double>(Proto::DOUBLE, {1.25, -2}, [](Proto& t) { t.add_double_data(1.25), t.add_double_data(-2); });
  expect_values<std::int64_t>(Proto::INT64, {-1, 1ll << 40},
                              [](Proto& t) { t.add_int64_data(-1), t.add_int64_data(1ll << 40); });
  expect_values<std::uint64_t>(Proto::UINT64, {~0ull, 3},
                               [](Proto& t) { t.add_uint64_data(~0ull), t.add_uint64_data(3); });
  expect_values<std::uint32_t>(Proto::UINT32, {~0u, 3}, [](Proto& t) { t.add_uint64_data(~0u), t.add_uint64_data(3); });
  const auto ints = [](Proto& t) { t.add_int32_data(-7), t.add_int32_data(100); };
  expect_values<std::int32_t>(Proto::INT32, {-7, 100}, ints);
  expect_values<std::int16_t>(Proto::INT16, {-7, 100}, ints);
  expect_values<std::int8_t>(Proto::INT8, {-7, 100}, ints);
  const auto naturals = [](Proto& t) { t.add_int32_data(200), t.add_int32_data(1); };
  expect_values<std::uint16_t>(Proto::UINT16, {200, 1}, naturals);
  expect_values<std::uint8_t>(Proto::UINT8, {200, 1}, naturals);
  expect_values<std::uint16_t>(Proto::FLOAT16, {200, 1}, naturals);
  expect_values<std::uint16_t>(Proto::BFLOAT16, {200, 1}, naturals);
  expect_values<bool>(Proto::BOOL, {true, true}, naturals);
}

TEST(Tensors, PackedElements) {
  struct Row {
    int type;
    std::string raw;
    std::vector<int> entries;  // of int32_data
    std::vector<std::uint8_t> codes;
  };
  const Row rows[] = {
      {Proto::INT4, "\x21\xf8\x05", {0x21, 0xf8, 0x05}, {1, 2, 8, 15, 5}},
      {Proto::FLOAT4E2M1, "\x7f\x21\x03", {0x7f, 0x21, 0x03}, {15, 7, 1, 2, 3}},
      {Proto::UINT2, "\x39\x02", {0x39, 0x02}, {1, 2, 3, 0, 2}},
      {Proto::FLOAT6E2M3, std::string("\x3f\xf0\x03\x01", 4), {63, 0, 63, 0, 1}, {63, 0, 63, 0, 1}},
      {Proto::FLOAT8E8M0, "\x01\x7f\xff\x80\x05", {1, 127, 255, 128, 5}, {1, 127, 255, 128, 5}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.type);
    Proto raw = typed(row.type, {5}), entries = raw;
    raw.set_raw_data(row.raw);
    for (int entry : row.entries) entries.add_int32_data(entry);
    for (Proto tensor : {raw, entries}) {
      EXPECT_THAT(imported(tensor).values<std::uint8_t>(), ::testing::ElementsAreArray(row.codes));
      tensor.set_dims(0, 11);
      expect_error(ErrorCode::kInvalidFile, {"'w'", "expected"}, [&] { imported(tensor); });
    }
  }
}

TEST(Tensors, TypedDataInSeveralPieces) {
  Model model;
  *model.graph().add_initializer() = int64_tensor("w", {3}, {1, 2, 3});
  model.output("w");
  std::string bytes = model.bytes();
  // One packed field of three elements becomes two unpacked elements and a packed one.
  const std::string packed("\x3a\x03\x01\x02\x03", 5), pieces("\x38\x01\x38\x02\x3a\x01\x03", 7);
  const std::size_t at = bytes.find(packed);
  ASSERT_NE(at, std::string::npos);
  std::string tensor = model.graph().initializer(0).SerializeAsString();
  tensor.replace(tensor.find(packed), packed.size(), pieces);
  std::string graph = "\x2a" + std::string(1, static_cast<char>(tensor.size())) + tensor;
  model.graph().clear_initializer();
  bytes = model.bytes() + "\x3a" + std::string(1, static_cast<char>(graph.size())) + graph;  // graphs are merged
  const auto network = Model::load_bytes(bytes);
  EXPECT_THAT(network->tensor(network->outputs[0]).value.values<std::int64_t>(), ElementsAre(1, 2, 3));
}

TEST(Tensors, RawDataOfEveryType) {
  const std::pair<int, std::size_t> types[] = {
      {Proto::FLOAT, 4}, {Proto::DOUBLE, 8}, {Proto::FLOAT16, 2}, {Proto::BFLOAT16, 2}, {Proto::INT8, 1},
      {Proto::UINT8, 1}, {Proto::INT16, 2},  {Proto::UINT16, 2},  {Proto::INT32, 4},    {Proto::UINT32, 4},
      {Proto::INT64, 8}, {Proto::UINT64, 8}, {Proto::BOOL, 1}};
  for (const auto& [type, size] : types) {
    Proto tensor = typed(type, {2, 3});
    std::string raw(6 * size, '\0');
    raw[0] = 1;
    tensor.set_raw_data(raw);
    const Tensor value = imported(tensor);
    EXPECT_EQ(value.shape(), (Shape{2, 3}));
    ASSERT_EQ(value.bytes(), raw.size());
    EXPECT_EQ(std::memcmp(value.raw(), raw.data(), raw.size()), 0);
    tensor.set_raw_data(raw.substr(1));
    expect_error(ErrorCode::kInvalidFile, {"'w'", "(2, 3)"}, [&] { imported(tensor); });
  }
}

TEST(Tensors, BooleansAreZeroOrOne) {
  Proto tensor = typed(Proto::BOOL, {3});
  tensor.set_raw_data(std::string("\x00\xff\x01", 3));
  const Tensor value = imported(tensor);
  const auto* bytes = static_cast<const std::uint8_t*>(value.raw());
  EXPECT_THAT(std::vector<int>(bytes, bytes + 3), ElementsAre(0, 1, 1));
}

TEST(Tensors, EmptyTensorsAndScalars) {
  EXPECT_EQ(imported(typed(Proto::FLOAT, {0, 5})).shape(), (Shape{0, 5}));
  EXPECT_EQ(imported(float_tensor("w", {}, {2})).shape(), Shape{});
}

TEST(Tensors, AbsurdShapes) {
  const std::int64_t huge = std::int64_t{1} << 62;
  for (const Dims& dims : {Dims{huge, huge}, Dims{huge}, Dims{1 << 30, 1 << 30}, Dims{-1}, Dims{0, huge, huge}}) {
    Proto tensor = typed(Proto::FLOAT, dims);
    tensor.set_raw_data("1234");
    expect_error(ErrorCode::kInvalidFile, {"'w'"}, [&] { imported(tensor); });
    tensor.clear_raw_data();
    expect_error(ErrorCode::kInvalidFile, {"'w'"}, [&] { imported(tensor); });
  }
}

/// A model whose initializer w = (1, 2) lies in another file.
struct ExternalModel {
  TemporaryFolder folder;
  Model model;
  explicit ExternalModel(const std::string& location = "weights.bin", std::int64_t dim = 2) {
    Proto tensor = typed(Proto::FLOAT, {dim});
    tensor.set_data_location(Proto::EXTERNAL);
    *model.graph().add_initializer() = tensor;
    entry("location", location);
    model.output("w");
    const float values[] = {0, 1, 2, 3};
    folder.write("models/weights.bin", std::string(reinterpret_cast<const char*>(values), sizeof values));
    folder.write("outside.bin", std::string(reinterpret_cast<const char*>(values), sizeof values));
  }
  void entry(const std::string& key, const std::string& value) {
    auto* added = model.graph().mutable_initializer(0)->add_external_data();
    added->set_key(key);
    added->set_value(value);
  }
  std::shared_ptr<Network> load(const ImportOptions& options = {}) {
    return import_onnx(folder.write("models/model.onnx", model.bytes()), op_registry(), options);
  }
  void expect_refused(ErrorCode code, const std::vector<std::string>& parts) {
    expect_error(code, parts, [&] { load(); });
  }
};

TEST(ExternalData, IsReadAtItsOffset) {
  ExternalModel external;
  external.entry("offset", "4");
  external.entry("length", "8");
  const auto network = external.load();
  EXPECT_THAT(network->tensor(network->outputs[0]).value.values<float>(), ElementsAre(1, 2));
}

TEST(ExternalData, IsCopiedWhenItIsNotAligned) {
  ExternalModel external;
  external.entry("offset", "1");
  const auto network = external.load();
  const Tensor& value = network->tensor(network->outputs[0]).value;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(value.raw()) % 4, 0u);
  EXPECT_EQ(static_cast<const unsigned char*>(value.raw())[6], 0x3f);  // the last byte of 1.0f, one byte earlier
}

TEST(ExternalData, LiesInTheFolderThatTheOptionsName) {
  ExternalModel external;
  external.folder.write("elsewhere/weights.bin", std::string(8, '\0'));
  const auto network = external.load({.external_data_dir = external.folder / "elsewhere"});
  EXPECT_THAT(network->tensor(network->outputs[0]).value.values<float>(), ElementsAre(0, 0));
}

TEST(ExternalData, IsReplacedByZerosOnRequest) {
  ExternalModel external("missing.bin");
  const auto network = external.load({.ignore_external_data = true});
  EXPECT_THAT(network->tensor(network->outputs[0]).value.values<float>(), ElementsAre(0, 0));
}

TEST(ExternalData, OutOfRangeIsRefused) {
  ExternalModel beyond;
  beyond.entry("offset", "12");
  beyond.expect_refused(ErrorCode::kInvalidFile, {"'w'", "weights.bin", "16"});
  ExternalModel far;
  far.entry("offset", "18446744073709551615");
  far.expect_refused(ErrorCode::kInvalidFile, {"'w'", "weights.bin"});
  ExternalModel length;
  length.entry("length", "4");
  length.expect_refused(ErrorCode::kInvalidFile, {"'w'", "expected 8 bytes", "4"});
  ExternalModel large("weights.bin", std::int64_t{1} << 40);
  large.expect_refused(ErrorCode::kInvalidFile, {"'w'"});
  for (const char* number : {"-1", "4x", "", "99999999999999999999999"}) {
    ExternalModel malformed;
    malformed.entry("offset", number);
    malformed.expect_refused(ErrorCode::kInvalidFile, {"'w'", "offset"});
  }
}

TEST(ExternalData, OutsideOfTheFolderIsRefused) {
  ExternalModel("../outside.bin").expect_refused(ErrorCode::kInvalidFile, {"'w'", "../outside.bin", "folder"});
  ExternalModel("sub/../../outside.bin").expect_refused(ErrorCode::kInvalidFile, {"'w'", "folder"});
  ExternalModel("/etc/hostname").expect_refused(ErrorCode::kInvalidFile, {"'w'", "/etc/hostname", "folder"});
  ExternalModel("").expect_refused(ErrorCode::kInvalidFile, {"'w'", "location"});
  ExternalModel(".").expect_refused(ErrorCode::kInvalidFile, {"'w'"});
  ExternalModel link("link.bin");
  std::filesystem::create_symlink("../outside.bin", link.folder / "models/link.bin");
  link.expect_refused(ErrorCode::kInvalidFile, {"'w'", "link"});
  ExternalModel inside("link.bin");
  std::filesystem::create_symlink("weights.bin", inside.folder / "models/link.bin");
  EXPECT_NO_THROW(inside.load());
}

// As caches of downloads have them: blobs of which each model's folder has links.
TEST(ExternalData, LinksLeadToWhereTheModelIsALinkTo) {
  ExternalModel cached("model.onnx.data");
  cached.folder.write("blobs/a1", cached.model.bytes());
  std::filesystem::rename(cached.folder / "models/weights.bin", cached.folder / "blobs/b2");
  std::filesystem::create_symlink("../blobs/a1", cached.folder / "models/model.onnx");
  std::filesystem::create_symlink("../blobs/b2", cached.folder / "models/model.onnx.data");
  const auto network = import_onnx(cached.folder / "models/model.onnx", op_registry());
  EXPECT_THAT(network->tensor(network->outputs[0]).value.values<float>(), ElementsAre(0, 1));
  // The data of another model, or what lies in no such folder.
  std::filesystem::remove(cached.folder / "models/model.onnx.data");
  std::filesystem::create_symlink("../outside.bin", cached.folder / "models/model.onnx.data");
  expect_error(ErrorCode::kInvalidFile, {"'w'", "link", "outside.bin", "--external-data-dir"},
               [&] { import_onnx(cached.folder / "models/model.onnx", op_registry()); });
}

TEST(ExternalData, MissingIsRefused) {
  ExternalModel("missing.bin").expect_refused(ErrorCode::kNotFound, {"'w'", "missing.bin", "--external-data-dir"});
}

}  // namespace
}  // namespace ulpscope::testing
