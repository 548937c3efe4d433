#include "runners/worker.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "core/error_names.h"
#include "core/messages.h"
#include "runners/message.h"
#include "runners/process.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTick{100};
constexpr milliseconds kGrace{2000};
constexpr milliseconds kSlow{10000};
constexpr std::size_t kKeptErrorOutput = 4096;

void print(bool is_stderr, std::string_view text) {
  std::FILE* file = is_stderr ? stderr : stdout;
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

WorkerOptions& defaults() {
  static WorkerOptions options = [] {
    WorkerOptions result;
    if (const char* seconds = std::getenv("ULPSCOPE_SCRIPT_TIMEOUT")) {
      const double value = std::strtod(seconds, nullptr);
      if (value > 0 && value < 1e9) result.call_limit = milliseconds(static_cast<std::int64_t>(value * 1000));
    }
    return result;
  }();
  return options;
}

std::mutex& defaults_mutex() {
  static std::mutex mutex;
  return mutex;
}

/// Closes what it has got by then.
struct Closer {
  int descriptor = -1;
  ~Closer() {
    if (descriptor >= 0) ::close(descriptor);
  }
};

/// What the user knows the call by: the script and its function, where there is one.
std::string place_of(const std::string& method, const Value& args) {
  if (!args.is_map()) return method;
  const Value& path = args["path"];
  const Value& function = args["function"];
  if (!path.is_string()) return method;
  return function.is_string() ? fmt::format("{}:{}", path.text(), function.text()) : path.text();
}

}  // namespace

void set_default_worker_options(WorkerOptions options) {
  const std::lock_guard lock(defaults_mutex());
  defaults() = std::move(options);
}

WorkerOptions default_worker_options() {
  const std::lock_guard lock(defaults_mutex());
  return defaults();
}

struct Worker::Impl {
  struct Frame {
    FrameHeader header;
    Value value;
  };

  WorkerOptions options;
  std::string interpreter;
  ChildProcess child;
  std::recursive_mutex mutex;
  std::uint32_t next_id = 1;
  std::string ended;         ///< Why the process is no more; empty while it lives.
  bool quiet = false;        ///< Output is kept for a message instead of being forwarded.
  std::string error_output;  ///< The last that it wrote to stderr while `quiet`.

  ~Impl() { finish(); }

  void close_all() {
    for (int* descriptor : {&child.socket, &child.out, &child.err})
      if (*descriptor >= 0) ::close(std::exchange(*descriptor, -1));
  }

  /// Forwards what is in a pipe; closes it at its end.
  void drain(int& descriptor, bool is_stderr) {
    std::array<char, 65536> buffer;
    while (descriptor >= 0) {
      const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
      if (count > 0) {
        const std::string_view text(buffer.data(), static_cast<std::size_t>(count));
        if (!quiet) {
          options.output ? options.output(is_stderr, text) : print(is_stderr, text);
        } else if (is_stderr) {
          error_output.append(text);
          if (error_output.size() > 2 * kKeptErrorOutput) error_output.erase(0, error_output.size() - kKeptErrorOutput);
        }
        if (text.size() < buffer.size()) return;
      } else if (count < 0 && errno == EINTR) {
        continue;
      } else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return;
      } else {
        ::close(std::exchange(descriptor, -1));
      }
    }
  }

  void drain_all() {
    drain(child.out, false);
    drain(child.err, true);
  }

  /// Waits for the process until the limit; its wait status, or nothing while it runs.
  std::optional<int> reap(milliseconds limit) {
    const auto deadline = Clock::now() + limit;
    for (milliseconds pause{1};; pause = std::min(pause * 2, milliseconds(20))) {
      int status = 0;
      const int pid = ::waitpid(child.pid, &status, WNOHANG);
      if (pid == child.pid) return status;
      if (pid < 0 && errno != EINTR) return 0;
      drain_all();
      if (Clock::now() >= deadline) return std::nullopt;
      std::this_thread::sleep_for(pause);
    }
  }

  void kill_group() {
    if (child.pid <= 0) return;
    ::kill(-child.pid, SIGKILL);
    ::kill(child.pid, SIGKILL);
    int status = 0;
    while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
    }
    child.pid = -1;
    drain_all();
    close_all();
  }

  void finish() {
    if (child.pid <= 0) {
      close_all();
      return;
    }
    ::shutdown(child.socket, SHUT_WR);
    if (reap(kGrace)) {
      ::kill(-child.pid, SIGKILL);  // what the script started and left behind
      child.pid = -1;
    }
    kill_group();
    drain_all();
    close_all();
  }

  [[noreturn]] void process_ended(const std::string& place) {
    const std::optional<int> status = reap(kGrace);
    if (status) {
      ::kill(-child.pid, SIGKILL);
      child.pid = -1;
      ended = fmt::format("the Python process {}", describe_exit(*status));
    } else {
      ended = "the Python process closed its connection";
    }
    kill_group();
    drain_all();
    close_all();
    throw error_of(ErrorCode::kScript, "[script] {}: expected a result, got none: {}{}", place, ended, error_tail());
  }

  std::string error_tail() const {
    if (error_output.empty()) return "";
    std::string_view tail = error_output;
    if (tail.size() > 1500) tail.remove_prefix(tail.size() - 1500);
    while (!tail.empty() && tail.back() == '\n') tail.remove_suffix(1);
    return fmt::format("; it wrote:\n{}", tail);
  }

  [[noreturn]] void time_limit_passed(const std::string& place, milliseconds limit) {
    quiet = true;
    error_output.clear();
    ::kill(child.pid, SIGUSR1);  // makes the worker write where each thread is
    std::this_thread::sleep_for(milliseconds(200));
    drain_all();
    std::string where = error_tail();
    kill_group();
    ended = "the Python process took too long and was ended";
    throw error_of(ErrorCode::kScript,
                   "[script] {}: expected a result within {} s, got none: the Python process was ended; raise the "
                   "limit (--python-time-limit or ULPSCOPE_SCRIPT_TIMEOUT, in seconds) if this is no endless loop{}",
                   place, static_cast<double>(limit.count()) / 1000, where);
  }

  struct Waiting {
    std::string place;
    milliseconds limit;
    Clock::time_point begin = Clock::now();
    bool slow_reported = false;
  };

  /// Returns when the socket is ready for `events`. Forwards output meanwhile.
  void wait(short events, Waiting& waiting) {
    for (;;) {
      std::array<pollfd, 3> fds{pollfd{child.socket, events, 0}, pollfd{child.out, POLLIN, 0},
                                pollfd{child.err, POLLIN, 0}};
      const int ready = ::poll(fds.data(), fds.size(), static_cast<int>(kTick.count()));
      if (ready < 0 && errno != EINTR)
        throw error_of(ErrorCode::kIo, "[script] worker: poll failed: {}", std::strerror(errno));
      if (ready > 0) {
        if (fds[1].revents != 0) drain(child.out, false);
        if (fds[2].revents != 0) drain(child.err, true);
        if (fds[0].revents != 0) return;
      }
      if (options.interrupted && options.interrupted()) {
        kill_group();
        ended = "it was interrupted";
        throw error_of(ErrorCode::kInterrupted, "[script] {}: interrupted", waiting.place);
      }
      const auto elapsed = Clock::now() - waiting.begin;
      if (waiting.limit.count() > 0 && elapsed > waiting.limit) time_limit_passed(waiting.place, waiting.limit);
      if (!waiting.slow_reported && waiting.limit.count() == 0 && elapsed > kSlow) {
        waiting.slow_reported = true;
        log_info("Still waiting for {}; Ctrl-C ends it, --python-time-limit sets a limit", waiting.place);
      }
    }
  }

  void send_bytes(const char* data, std::size_t size, int descriptor, Waiting& waiting) {
    while (size > 0) {
      iovec piece{const_cast<char*>(data), size};
      msghdr message{};
      message.msg_iov = &piece;
      message.msg_iovlen = 1;
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
      if (descriptor >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof(control);
        cmsghdr* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
      }
      const ssize_t count = ::sendmsg(child.socket, &message, MSG_NOSIGNAL);
      if (count > 0) {
        data += count;
        size -= static_cast<std::size_t>(count);
        descriptor = -1;
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        wait(POLLOUT, waiting);
      } else if (errno != EINTR) {
        process_ended(waiting.place);
      }
    }
  }

  void send(FrameKind kind, std::uint32_t id, const Value& value, Waiting& waiting) {
    const PackedMessage packed = pack(value);
    FrameHeader header{kind, id, packed.message.size(), packed.shared_bytes};
    std::array<std::byte, kFrameHeaderBytes> bytes;
    header.write(bytes);
    Closer shared;
    if (packed.shared_bytes > 0) shared.descriptor = share_tensors(packed);
    send_bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size(), shared.descriptor, waiting);
    send_bytes(packed.message.data(), packed.message.size(), -1, waiting);
  }

  void receive_bytes(char* data, std::size_t size, int* descriptor, Waiting& waiting) {
    while (size > 0) {
      iovec piece{data, size};
      msghdr message{};
      message.msg_iov = &piece;
      message.msg_iovlen = 1;
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      const ssize_t count = ::recvmsg(child.socket, &message, MSG_CMSG_CLOEXEC);
      if (count > 0) {
        for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
          if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
          int received = -1;
          std::memcpy(&received, CMSG_DATA(header), sizeof(int));
          if (descriptor != nullptr && *descriptor < 0)
            *descriptor = received;
          else
            ::close(received);
        }
        data += count;
        size -= static_cast<std::size_t>(count);
      } else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        wait(POLLIN, waiting);
      } else if (count == 0 || errno != EINTR) {
        process_ended(waiting.place);
      }
    }
  }

  Frame receive(Waiting& waiting) {
    Closer shared;
    std::array<std::byte, kFrameHeaderBytes> bytes;
    receive_bytes(reinterpret_cast<char*>(bytes.data()), bytes.size(), &shared.descriptor, waiting);
    Frame frame;
    frame.header = FrameHeader::read(bytes);
    std::string message(frame.header.message_bytes, '\0');
    receive_bytes(message.data(), message.size(), &shared.descriptor, waiting);
    std::pair<std::span<std::byte>, std::shared_ptr<const void>> mapping;
    if (frame.header.shared_bytes > 0) mapping = map_shared(shared.descriptor, frame.header.shared_bytes);
    frame.value = unpack(message, mapping.first, mapping.second);
    return frame;
  }

  /// Answers a request of the worker; an exception that is no Error is kept for the caller.
  void answer(const Frame& request, const Handler& handler, Waiting& waiting, std::exception_ptr& failure) {
    Value response;
    FrameKind kind = FrameKind::kResponse;
    const auto fail = [&](std::string_view code, const std::string& message) {
      kind = FrameKind::kError;
      response = Value::Map{{"code", std::string(code)}, {"message", message}};
    };
    try {
      if (!handler) throw unsupported("[script] this script can only be used where a network is loaded");
      response = handler(request.value["method"].text(), request.value["args"]);
    } catch (const Error& error) {
      fail(name_of(error.code()), error.what());
    } catch (const std::exception& error) {
      failure = std::current_exception();
      fail("script", error.what());
    }
    send(kind, request.header.id, response, waiting);
  }

  /// A conversation that breaks off in the middle cannot go on: the process is ended.
  template <typename Function>
  auto unbroken(Function&& function) {
    try {
      return function();
    } catch (...) {
      if (ended.empty()) {
        ended = "a call to it was broken off";
        kill_group();
      }
      throw;
    }
  }

  Value call(const std::string& method, Value args, const Handler& handler) {
    const std::lock_guard lock(mutex);
    Waiting waiting{place_of(method, args), options.call_limit};
    if (!ended.empty())
      throw error_of(ErrorCode::kScript, "[script] {}: expected the Python worker, got none: earlier, {}",
                     waiting.place, ended);
    drain_all();
    const std::uint32_t id = next_id++;
    send(FrameKind::kRequest, id, Value::Map{{"method", method}, {"args", std::move(args)}}, waiting);
    std::exception_ptr failure;
    for (;;) {
      Frame frame = unbroken([&] { return receive(waiting); });
      drain_all();
      if (frame.header.kind == FrameKind::kRequest) {
        unbroken([&] { answer(frame, handler, waiting, failure); });
        continue;
      }
      if (failure) std::rethrow_exception(failure);
      if (frame.header.id != id) continue;
      if (frame.header.kind == FrameKind::kResponse) return std::move(frame.value);
      throw Error(error_code_named(frame.value["code"].text()), frame.value["message"].text());
    }
  }
};

Worker::Worker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Worker::~Worker() = default;

std::shared_ptr<Worker> Worker::start(WorkerOptions options) {
  auto impl = std::make_unique<Impl>();
  impl->options = std::move(options);
  const WorkerCommand command = find_worker(impl->options, current_executable());
  impl->interpreter = command.interpreter;
  impl->quiet = true;
  // Who gives scripts more time has a slow machine.
  const milliseconds limit = impl->options.call_limit;
  impl->options.call_limit = std::max(impl->options.start_limit, limit);
  log_verbose("Starting the Python worker with {}", command.interpreter);
  impl->child = spawn_worker(command);
  try {
    impl->call("hello", {}, {});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kScript) throw;
    const bool no_package = impl->error_output.find("No module named ulpscope") != std::string::npos ||
                            impl->error_output.find("No module named 'ulpscope") != std::string::npos;
    if (no_package)
      throw error_of(ErrorCode::kNotFound,
                     "[script] worker: expected the Python package ulpscope, got none in '{}'; try '{} -m pip install "
                     "ulpscope', or name the folder that holds it in the environment variable ULPSCOPE_PYTHON_PATH",
                     command.interpreter, command.interpreter);
    throw error_of(ErrorCode::kScript, "{}\n(started with '{}'; another Python can be named in ULPSCOPE_PYTHON)",
                   error.what(), command.interpreter);
  }
  impl->quiet = false;
  impl->options.call_limit = limit;
  impl->error_output.clear();
  return std::shared_ptr<Worker>(new Worker(std::move(impl)));
}

Value Worker::call(const std::string& method, Value args, const Handler& handler) {
  return impl_->call(method, std::move(args), handler);
}

void Worker::set_call_limit(milliseconds limit) {
  const std::lock_guard lock(impl_->mutex);
  impl_->options.call_limit = limit;
}

bool Worker::alive() const noexcept { return impl_->ended.empty(); }
int Worker::pid() const noexcept { return impl_->child.pid; }

}  // namespace ulpscope
