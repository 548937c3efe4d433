#include "core/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "ulpscope/error.h"

namespace ulpscope {
namespace {

class Files : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("ulpscope_file_test_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path path(const std::string& name) const { return folder_ / name; }
  std::ptrdiff_t count() const {
    return std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator());
  }
  std::filesystem::path folder_;
};

TEST_F(Files, AreReplacedAsAWholeAndLeaveNothingBeside) {
  const auto path = folder_ / "new" / "a.txt";
  write_file(path, "first");
  write_file(path, "second");
  EXPECT_EQ(read_file(path), "second");
  EXPECT_EQ(
      std::distance(std::filesystem::directory_iterator(path.parent_path()), std::filesystem::directory_iterator()), 1);
}

/// In a process of its own, which is killed in the middle of the write.
void die_while_writing(const std::filesystem::path& path) {
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string_view content = "new";
    write_file(path, {&content, 1}, [] { ::raise(SIGKILL); });
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST_F(Files, OfProcessesThatAreKilledLeaveNothingBeside) {
  write_file(path("f"), "old");
  die_while_writing(path("f"));
  EXPECT_EQ(read_file(path("f")), "old");
  EXPECT_EQ(count(), 1);
}

TEST_F(Files, LeftOverFromKilledProcessesGoWithTheNextWrite) {
  const auto make = [&](const char* name) { std::ofstream(path(name)) << "part"; };
  make(".f.ulpscope-a1B2c3");
  const char* const others[] = {".f.ulpscope-a1B2c3d", ".g.ulpscope-a1B2c3", "f.ulpscope-a1B2c3", ".f.backup"};
  for (const char* other : others) make(other);
  // Of a process that lives: it has the lock.
  make(".f.ulpscope-locked");
  const int living = ::open(path(".f.ulpscope-locked").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(living, LOCK_EX), 0);
  write_file(path("f"), "whole");
  EXPECT_FALSE(std::filesystem::exists(path(".f.ulpscope-a1B2c3")));
  EXPECT_TRUE(std::filesystem::exists(path(".f.ulpscope-locked")));
  for (const char* other : others) EXPECT_TRUE(std::filesystem::exists(path(other))) << other;
  ::close(living);
  write_file(path("f"), "again");
  EXPECT_FALSE(std::filesystem::exists(path(".f.ulpscope-locked")));
  EXPECT_EQ(read_file(path("f")), "again");
}

TEST_F(Files, OfManyThreadsAreAllWhole) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) write_file(path("f"), std::string(1000, static_cast<char>('a' + t)));
    });
  threads.clear();
  const std::string content = read_file(path("f"));
  EXPECT_EQ(content, std::string(1000, content[0]));
  EXPECT_EQ(count(), 1);
}

TEST_F(Files, OfLongNamesAreWritten) {
  const std::string name(250, 'n');
  write_file(path(name), "long");
  EXPECT_EQ(read_file(path(name)), "long");
}

TEST_F(Files, AreMappedOnlyIfTheyAreRegular) {
  const auto pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(MappedFile::open(pipe), Error);  // and does not wait for somebody to write
  EXPECT_THROW(MappedFile::open(folder_), Error);
  EXPECT_THROW(read_file("/dev/zero"), Error);
}

TEST_F(Files, KeepTheirModeAndTheirLinks) {
  const auto path = folder_ / "a.txt", link = folder_ / "link.txt";
  write_file(path, "first");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  std::filesystem::create_symlink(path, link);
  write_file(link, "second");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(read_file(path), "second");
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms::owner_all);
}

TEST_F(Files, SayWhichPathFailedAndWhy) {
  const auto expect = [](auto&& call, ErrorCode code, std::string_view part) {
    try {
      call();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_NE(std::string_view(e.what()).find(part), std::string_view::npos) << e.what();
    }
  };
  expect([&] { read_file(folder_ / "missing"); }, ErrorCode::kNotFound, "missing");
  expect([&] { read_file(folder_); }, ErrorCode::kIo, "directory");
  expect([&] { MappedFile::open(folder_ / "missing"); }, ErrorCode::kNotFound, "missing");
  expect([&] { write_file(folder_, "x"); }, ErrorCode::kIo, "directory");
  expect([&] { write_file("/dev/full", "x"); }, ErrorCode::kIo, "No space");
}

std::string message_of(const MappedFile& file) {
  try {
    file.check_unchanged();
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    return error.what();
  }
}

TEST_F(Files, ThatAreNotThereHaveAHint) {
  const auto message = [](const std::filesystem::path& path) -> std::string {
    try {
      read_file(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNotFound);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message("nothing.json"), ::testing::EndsWith("No such file or directory; try its path relative to " +
                                                           std::filesystem::current_path().string()));
  EXPECT_THAT(message("/nowhere/n*.json"), ::testing::EndsWith("; there is no folder '/nowhere'"));
  EXPECT_THAT(message(folder_ / "nothing*.npz"), ::testing::HasSubstr("; no file matches this pattern"));
  EXPECT_THAT(message(folder_ / "nothing.npz"), ::testing::EndsWith("No such file or directory"));
}

TEST_F(Files, ThatAreCutOffWhileTheyAreMappedReadAsZerosAndSaySo) {
  const auto path = folder_ / "weights";
  write_file(path, std::string(100000, 'x'));
  const auto file = MappedFile::open(path), other = MappedFile::open(folder_ / "weights");
  EXPECT_EQ(message_of(*file), "");
  std::filesystem::resize_file(path, 10000);
  const auto byte = [&](std::size_t at) {
    return static_cast<int>(reinterpret_cast<const volatile unsigned char*>(file->bytes().data())[at]);
  };
  EXPECT_EQ(byte(5000), 'x');
  EXPECT_EQ(byte(99999), 0);  // No SIGBUS.
  EXPECT_EQ(byte(50000), 0);
  EXPECT_NE(message_of(*file).find("weights: the file changed while it was in use: expected 100000 bytes, found 10000"),
            std::string::npos)
      << message_of(*file);
  std::filesystem::remove(path);  // Neither is forgotten.
  EXPECT_NE(message_of(*file).find("expected 100000 bytes, found fewer"), std::string::npos) << message_of(*file);
}

TEST_F(Files, ThatSomebodyWritesIntoAreNoticed) {
  const auto path = folder_ / "weights";
  write_file(path, std::string(5000, 'x'));
  const auto file = MappedFile::open(path);
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(1));
  EXPECT_NE(message_of(*file).find("somebody wrote to it"), std::string::npos) << message_of(*file);
}

TEST_F(Files, WhoseTimeAloneIsSetAreUnchangedWhereTheirHashIsKnown) {
  const auto path = folder_ / "weights";
  const auto later = [&] {
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(1));
  };
  static int made = 0;
  const auto sum = [](const MappedFile& file) {
    ++made;
    std::size_t result = 0;
    for (const std::byte each : file.bytes()) result += static_cast<std::size_t>(each);
    return std::to_string(result);
  };
  write_file(path, std::string(5000, 'x'));
  const auto file = MappedFile::open(path);
  EXPECT_EQ(file->hash(sum), std::to_string(5000 * 'x'));
  later();
  EXPECT_EQ(message_of(*file), "");
  EXPECT_EQ(message_of(*file), "");
  EXPECT_EQ(file->hash(sum), std::to_string(5000 * 'x'));
  EXPECT_EQ(made, 2);
  std::fstream(path, std::ios::in | std::ios::out) << 'y';
  later();
  EXPECT_NE(message_of(*file).find("somebody wrote to it"), std::string::npos) << message_of(*file);
  EXPECT_THROW(file->hash(sum), Error);
  std::fstream(path, std::ios::in | std::ios::out) << 'x';
  later();
  EXPECT_EQ(message_of(*file), "");
  std::filesystem::resize_file(path, 4999);
  EXPECT_NE(message_of(*file).find("expected 5000 bytes, found 4999"), std::string::npos) << message_of(*file);
}

TEST_F(Files, ThatAreReplacedOrRemovedWhileTheyAreMappedStayWhatTheyWere) {
  const auto path = folder_ / "weights";
  write_file(path, std::string(5000, 'x'));
  const auto file = MappedFile::open(path);
  EXPECT_FALSE(file->is_replaced());
  write_file(path, std::string(10, 'y'));
  EXPECT_EQ(file->bytes()[4999], std::byte{'x'});
  EXPECT_EQ(message_of(*file), "");
  EXPECT_TRUE(file->is_replaced());
  std::filesystem::remove(path);
  EXPECT_EQ(message_of(*file), "");
  EXPECT_TRUE(file->is_replaced());
}

TEST_F(Files, ThatChangeWhileTheyAreReadAreTheReasonOfWhatGoesWrong) {
  const auto path = folder_ / "weights";
  write_file(path, std::string(5000, 'x'));
  const auto read = [&](bool change, bool fail) -> std::string {
    const auto file = MappedFile::open(path);
    try {
      const int result = file->read_whole([&] {
        if (change) std::filesystem::resize_file(path, 10 + std::filesystem::file_size(path));
        if (fail) throw Error(ErrorCode::kInvalidFile, "malformed");
        return 7;
      });
      return std::to_string(result);
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(read(false, false), "7");
  EXPECT_EQ(read(false, true), "malformed");
  EXPECT_NE(read(true, false).find("weights: the file changed"), std::string::npos);
  EXPECT_NE(read(true, true).find("weights: the file changed"), std::string::npos);
}

TEST_F(Files, KeepTheirContentWhenWhatComesBeforeTheRenamingThrows) {
  const auto path = folder_ / "weights";
  write_file(path, "old");
  const std::string_view fresh = "new";
  EXPECT_THROW(write_file(path, std::span(&fresh, 1), [] { throw Error(ErrorCode::kIo, "changed"); }), Error);
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

}  // namespace
}  // namespace ulpscope
