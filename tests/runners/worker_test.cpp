#include "runners/worker.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <cstring>
#include <thread>

#include "runners/process.h"
#include "runners/script_fixture.h"

namespace ulpscope {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using WorkerTest = ScriptTest;

TEST_F(WorkerTest, PlainValuesComeBackAsTheyWent) {
  const auto worker = Worker::start(options());
  Value value;
  value.set("nothing", {});
  value.set("yes", true);
  value.set("numbers",
            Value::Array{0, -1, 127, 128, -33, std::int64_t{1} << 62, -(std::int64_t{1} << 62), 0.1, -1e300});
  value.set("text", "t\xC3\xA9xt");
  value.set("not utf-8", std::string("\xff\xfe\0x", 4));
  value.set("long", std::string(100000, 'a'));
  value.set("empty", Value::Array{});
  const Value back = worker->call("echo", Value::Map{{"value", value}});
  EXPECT_TRUE(back["nothing"].is_null());
  EXPECT_TRUE(back["yes"].boolean());
  EXPECT_EQ(back["numbers"].array()[5].integer(), std::int64_t{1} << 62);
  EXPECT_EQ(back["numbers"].array()[4].integer(), -33);
  EXPECT_EQ(back["numbers"].array()[7].real(), 0.1);
  EXPECT_EQ(back["text"].text(), "t\xC3\xA9xt");
  EXPECT_EQ(back["not utf-8"].text(), std::string("\xff\xfe\0x", 4));
  EXPECT_EQ(back["long"].text().size(), 100000u);
  EXPECT_TRUE(back["empty"].array().empty());
  EXPECT_THROW(back["yes"].text(), Error);
}

TEST_F(WorkerTest, TensorsOfEveryTypeComeBackBitForBit) {
  const auto worker = Worker::start(options());
  Value::Array sent;
  for (int type = 1; type < static_cast<int>(DataType::kString); ++type)
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 0, 4}, Shape{2, 3, 5}}) {
      Tensor tensor(static_cast<DataType>(type), shape);
      auto* bytes = static_cast<unsigned char*>(tensor.raw());
      for (std::size_t i = 0; i < tensor.bytes(); ++i)
        bytes[i] = static_cast<unsigned char>(tensor.type() == DataType::kBool ? i % 2 : i * 37 + 11);
      sent.emplace_back(tensor);
    }
  const Value back = worker->call("echo", Value::Map{{"value", sent}, {"ask", true}},
                                  [](const std::string&, const Value& args) { return args["value"]; });
  ASSERT_EQ(back.array().size(), sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const Tensor &a = sent[i].tensor(), &b = back.array()[i].tensor();
    EXPECT_EQ(a.type(), b.type());
    EXPECT_EQ(a.shape(), b.shape());
    ASSERT_EQ(a.bytes(), b.bytes());
    if (a.bytes() > 0) {
      EXPECT_EQ(std::memcmp(a.raw(), b.raw(), a.bytes()), 0) << name_of(a.type());
    }
  }
}

TEST_F(WorkerTest, AHugePrintIsForwardedWhole) {
  const auto worker = Worker::start(options());
  worker->call("echo", Value::Map{{"repeat", 3000}});
  EXPECT_EQ(out_.size(), 3000u * 1001u);
}

TEST_F(WorkerTest, AnErrorOfTheHandlerKeepsItsCodeAndTheWorkerLives) {
  const auto worker = Worker::start(options());
  const Error error = error_of([&] {
    worker->call("echo", Value::Map{{"ask", true}}, [](const std::string&, const Value&) -> Value {
      throw Error(ErrorCode::kNotFound, "[onnx] x.onnx: no such file");
    });
  });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_THAT(error.what(), HasSubstr("x.onnx: no such file"));
  EXPECT_TRUE(worker->alive());
  EXPECT_EQ(worker->call("echo", Value::Map{{"value", 5}}).integer(), 5);
}

TEST_F(WorkerTest, AnExceptionThatIsNoErrorReachesTheCaller) {
  const auto worker = Worker::start(options());
  EXPECT_THROW(worker->call("echo", Value::Map{{"ask", true}},
                            [](const std::string&, const Value&) -> Value { throw InternalError("ours"); }),
               InternalError);
  EXPECT_EQ(worker->call("echo", Value::Map{{"value", 5}}).integer(), 5);
}

TEST_F(WorkerTest, AKilledWorkerIsAnErrorNowAndLater) {
  const auto worker = Worker::start(options());
  ::kill(worker->pid(), SIGKILL);
  const Error error = error_of([&] { worker->call("echo"); });
  EXPECT_EQ(error.code(), ErrorCode::kScript);
  EXPECT_THAT(error.what(), HasSubstr("signal 9"));
  EXPECT_FALSE(worker->alive());
  EXPECT_THAT(error_of([&] { worker->call("echo"); }).what(), HasSubstr("earlier"));
}

TEST_F(WorkerTest, AMissingInterpreterIsNamed) {
  WorkerOptions bad = options();
  bad.interpreter = "/nonexistent/python3";
  const Error error = error_of([&] { Worker::start(bad); });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_THAT(error.what(), HasSubstr("/nonexistent/python3"));
  EXPECT_THAT(error.what(), HasSubstr("ULPSCOPE_PYTHON"));
}

TEST_F(WorkerTest, AnInterpreterWithoutThePackageIsNamed) {
  std::filesystem::create_directories(folder_ / "elsewhere");
  WorkerOptions bad = options();
  bad.interpreter = write("python", "#!/bin/sh\necho \"No module named ulpscope.worker\" >&2\nexit 1\n");
  std::filesystem::permissions(bad.interpreter, std::filesystem::perms::owner_all);
  const Error error = error_of([&] { Worker::start(bad); });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_THAT(error.what(), HasSubstr("-m pip install ulpscope"));
}

TEST_F(WorkerTest, MissingNumPyIsNamedWithTheCommandThatInstallsIt) {
  write("numpy.py", "raise ModuleNotFoundError(\"No module named 'numpy'\", name='numpy')\n");
  ::setenv("PYTHONPATH", folder_.c_str(), 1);
  const Error error = error_of([&] { Worker::start(options()); });
  ::unsetenv("PYTHONPATH");
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_THAT(error.what(), HasSubstr("-m pip install numpy"));
}

TEST_F(WorkerTest, AWorkerThatNeverStartsRunsIntoTheLimit) {
  WorkerOptions slow = options();
  slow.interpreter = write("python", "#!/bin/sh\nsleep 100\n");
  std::filesystem::permissions(slow.interpreter, std::filesystem::perms::owner_all);
  slow.start_limit = std::chrono::milliseconds(300);
  EXPECT_EQ(error_of([&] { Worker::start(slow); }).code(), ErrorCode::kScript);
}

TEST_F(WorkerTest, WhoGivesCallsMoreTimeGivesItToTheStart) {
  WorkerOptions patient = options();
  patient.start_limit = std::chrono::milliseconds(1);
  // One that never starts: a busy machine may take longer to look at the clock than others take to start.
  WorkerOptions endless = patient;
  endless.interpreter = write("endless", "#!/bin/sh\nexec sleep 100\n");
  std::filesystem::permissions(endless.interpreter, std::filesystem::perms::owner_all);
  EXPECT_EQ(error_of([&] { Worker::start(endless); }).code(), ErrorCode::kScript);
  patient.call_limit = std::chrono::minutes(5);
  EXPECT_NO_THROW(Worker::start(patient)->call("echo", Value::Map{{"ask", false}}));
}

TEST_F(WorkerTest, AProgramThatSaysSomethingElseIsRefused) {
  WorkerOptions bad = options();
  bad.interpreter = write("python", "#!/bin/sh\nprintf 'HTTP/1.1 400 Bad Request -- something else' >&3\nsleep 100\n");
  std::filesystem::permissions(bad.interpreter, std::filesystem::perms::owner_all);
  const Error error = error_of([&] { Worker::start(bad); });
  EXPECT_EQ(error.code(), ErrorCode::kScript);
  EXPECT_THAT(error.what(), HasSubstr("protocol"));
}

TEST_F(WorkerTest, InterruptionEndsTheWorkerAndItsChildren) {
  WorkerOptions interruptible = options();
  bool stop = false;
  interruptible.interrupted = [&] { return stop; };
  const auto worker = Worker::start(interruptible);
  const int pid = worker->pid();
  const Error error = error_of([&] {
    worker->call("echo", Value::Map{{"ask", true}}, [&](const std::string&, const Value&) -> Value {
      stop = true;
      ::kill(pid, SIGSTOP);
      return {};
    });
  });
  EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST(FindWorkerTest, TheEnvironmentAroundTheProgramComesFirst) {
  std::string pattern = (std::filesystem::temp_directory_path() / "ulpscope-venv-XXXXXX").string();
  const std::filesystem::path root = ::mkdtemp(pattern.data());
  std::filesystem::create_directories(root / "bin");
  std::filesystem::create_directories(root / "lib/python3.11/site-packages/ulpscope/worker");
  std::ofstream(root / "bin/python3") << "#!/bin/sh\n";
  std::ofstream(root / "lib/python3.11/site-packages/ulpscope/worker/__main__.py") << "\n";
  ::setenv("ULPSCOPE_PYTHON", "/from/the/environment", 1);
  EXPECT_EQ(find_worker({}, root / "bin/ulpscope").interpreter, (root / "bin/python3").string());
  EXPECT_EQ(find_worker({}, "/opt/x/bin/ulpscope").interpreter, "/from/the/environment");
  ::unsetenv("ULPSCOPE_PYTHON");
  EXPECT_EQ(find_worker({}, "/opt/x/bin/ulpscope").interpreter, "python3");
  EXPECT_EQ(find_worker({}, "/opt/x/bin/ulpscope").arguments.front(), "-m");
  WorkerOptions named;
  named.interpreter = "/named";
  EXPECT_EQ(find_worker(named, root / "bin/ulpscope").interpreter, "/named");
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace ulpscope
