// Peak memory of loading, measured in processes of their own.
#include <sys/wait.h>
#include <unistd.h>

#include "onnx/model_builder.h"

namespace ulpscope::testing {
namespace {

/// VmHWM of this process, in KiB.
long peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stol(line.substr(6));
  return -1;
}

/// What loading adds to the peak memory of a fresh process, in KiB; negative when it failed.
long loading_adds(const std::filesystem::path& path) {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    long added = -1;
    try {
      const long before = peak_memory();
      const auto network = import_onnx(path, op_registry());
      added = network->layers.empty() ? -1 : peak_memory() - before;
    } catch (...) {
    }
    const bool written = ::write(ends[1], &added, sizeof added) == sizeof added;
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  long added = -1;
  if (::read(ends[0], &added, sizeof added) != sizeof added) added = -1;
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return added;
}

class LoadingMemory : public ::testing::TestWithParam<bool> {};

TEST_P(LoadingMemory, IsTheFileAndALittle) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer has memory of its own";
#endif
  const TemporaryFolder folder;
  Model model;
  model.input("x", {1, 4096});
  std::string value = "x";
  for (int i = 0; i < 3; ++i) {
    // Names of different lengths put the raw data at every alignment.
    onnx::TensorProto tensor = float_tensor("weight" + std::string(static_cast<std::size_t>(i), 'w'), {4096, 4096}, {});
    if (GetParam())
      tensor.set_raw_data(std::string(std::size_t{4096} * 4096 * 4, '\1'));
    else
      tensor.mutable_float_data()->Resize(4096 * 4096, 1.0f), tensor.clear_raw_data();
    const std::string result = "y" + std::to_string(i);
    model.node("MatMul", {value, tensor.name()}, {result});
    *model.graph().add_initializer() = std::move(tensor);
    value = result;
  }
  model.output(value);
  const auto path = folder / "large.onnx";
  {
    std::ofstream file(path, std::ios::binary);
    ASSERT_TRUE(model.proto.SerializeToOstream(&file));
  }
  model.proto.Clear();
  const long size = static_cast<long>(std::filesystem::file_size(path) / 1024);
  ASSERT_GT(size, 190 * 1024);
  const long added = loading_adds(path);
  EXPECT_GE(added, 0);
  EXPECT_LE(added, size + 64 * 1024);
}

INSTANTIATE_TEST_SUITE_P(RawAndTyped, LoadingMemory, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "raw" : "typed"; });

}  // namespace
}  // namespace ulpscope::testing
