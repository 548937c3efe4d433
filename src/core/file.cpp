#include "core/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "core/memory.h"
#include "core/messages.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

/// What to try where there is no file of this name.
std::string hint_of(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::path folder = path.parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, ignored))
    return fmt::format("; there is no folder '{}'", folder.string());
  if (path.filename().string().find_first_of("*?[") != std::string::npos)
    return "; no file matches this pattern, which the shell would have replaced by names";
  return path.is_relative()
             ? fmt::format("; try its path relative to {}", std::filesystem::current_path(ignored).string())
             : std::string();
}

[[noreturn]] void throw_system(const std::filesystem::path& path, std::string_view action, int error) {
  const bool missing = error == ENOENT;
  throw error_of(missing ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: cannot {}: {}{}", path.string(), action,
                 std::strerror(error), missing ? hint_of(path) : std::string());
}

class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const noexcept { return fd_; }
  /// Closes now, so that a late error (quota, network file system) is seen.
  int close() noexcept {
    const int result = ::close(fd_);
    fd_ = -1;
    return result;
  }

 private:
  int fd_;
};

/// Opens a regular file; with `streams`, also what others write into (`<(command)` of a shell).
Descriptor open_to_read(const std::filesystem::path& path, struct stat& info, bool streams) {
  const auto check = [&](int result) {
    if (result != 0) throw_system(path, "inspect it", errno);
    if (S_ISDIR(info.st_mode)) throw_system(path, "read it", EISDIR);
    if (S_ISREG(info.st_mode) || (streams && S_ISFIFO(info.st_mode))) return;
    throw error_of(ErrorCode::kIo, "{}: cannot read it: expected a regular file; try a copy of its content",
                   path.string());
  };
  // Before it is opened: that waits where nobody writes into a FIFO.
  if (::stat(path.c_str(), &info) == 0) check(0);
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) throw_system(path, "open it", errno);
  check(::fstat(file.get(), &info));
  return file;
}

void write_all(int fd, std::string_view content, const std::filesystem::path& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), std::min<std::size_t>(content.size(), 1u << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_system(path, "write it", errno);
    content.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// A file beside another one, to be renamed to it when it is whole. While it is written it has no name, where the file
/// system lets that be; else, and in the moment before the rename, one that says whose it is. Its lock says that its
/// process lives: those without one are left over from processes that were killed, and go with the next write.
class TemporaryFile {
 public:
  /// Throws Error, which names `target`.
  explicit TemporaryFile(const std::filesystem::path& target)
      : target_(target), folder_(target.has_parent_path() ? target.parent_path() : std::filesystem::path(".")) {
    remove_left_over();
    // It gets its name through /proc.
    if (::access("/proc/self/fd", X_OK) == 0)
      file_ = Descriptor(::open(folder_.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
    if (file_.get() >= 0) ::flock(file_.get(), LOCK_EX | LOCK_NB);
    if (file_.get() < 0) create_named();
  }
  ~TemporaryFile() {
    if (!name_.empty()) ::unlink(name_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  int get() const noexcept { return file_.get(); }

  void rename_to_target() {
    if (name_.empty()) link();
    if (::rename(name_.c_str(), target_.c_str()) != 0) throw_system(target_, "rename it into place", errno);
    name_.clear();
    if (file_.close() != 0) throw_system(target_, "close it", errno);
  }

 private:
  static constexpr std::string_view kMark = ".ulpscope-";
  static constexpr std::size_t kRandom = 6, kNameLength = 200;

  /// ".NAME.ulpscope-", without the random part; of long names the beginning.
  std::string prefix() const { return fmt::format(".{}{}", target_.filename().string().substr(0, kNameLength), kMark); }
  std::string pattern() const { return (folder_ / (prefix() + std::string(kRandom, 'X'))).string(); }

  void create_named() {
    for (;;) {
      name_ = pattern();
      file_ = Descriptor(::mkostemp(name_.data(), O_CLOEXEC));
      if (file_.get() < 0) {
        name_.clear();
        throw_system(target_, "write into its folder", errno);
      }
      ::flock(file_.get(), LOCK_EX);
      struct stat info {};
      // Another process may have taken it for one that is left over before it was locked.
      if (::fstat(file_.get(), &info) != 0 || info.st_nlink > 0) return;
    }
  }

  /// Gives the file a name.
  void link() {
    const std::string from = fmt::format("/proc/self/fd/{}", file_.get());
    static std::atomic<unsigned> count{0};
    for (int tries = 0; tries < 1000; ++tries) {
      std::string name = pattern();
      // Any that is free: those of other processes and threads differ by one of the two.
      name.replace(name.size() - kRandom, kRandom,
                   fmt::format("{:06x}", (static_cast<unsigned>(::getpid()) * 4099u + count++) & 0xffffffu));
      if (::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
        name_ = std::move(name);
        return;
      }
      if (errno != EEXIST) break;
    }
    throw_system(target_, "name a file beside it", errno);
  }

  void remove_left_over() const {
    const std::string begin = prefix();
    std::error_code ignored;
    for (std::filesystem::directory_iterator each(folder_, ignored), end; !ignored && each != end;
         each.increment(ignored)) {
      const std::string name = each->path().filename().string();
      if (!name.starts_with(begin) || name.size() != begin.size() + kRandom) continue;
      const Descriptor file(::open(each->path().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
      if (file.get() >= 0 && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(each->path().c_str());
    }
  }

  const std::filesystem::path target_, folder_;
  Descriptor file_{-1};
  std::string name_;  ///< Empty: it has none.
};

std::mutex mappings_mutex;

/// Of all mapped files: first byte and size. Never destroyed: files of static objects may outlive it.
std::map<const std::byte*, std::size_t>& mappings() {
  static auto& files = *new std::map<const std::byte*, std::size_t>;
  return files;
}

}  // namespace

struct MappedFile::Mark {
  dev_t device;
  ino_t inode;
  off_t size;
  timespec written;

  bool is_of_same_file(const Mark& other) const { return device == other.device && inode == other.inode; }
  static Mark of(const struct stat& info) { return {info.st_dev, info.st_ino, info.st_size, info.st_mtim}; }
};

/// What the handler of SIGBUS looks at: a list that only grows, whose entries serve again.
struct MappedFile::Entry {
  std::atomic<const std::byte*> begin{nullptr};
  std::atomic<std::size_t> size{0};
  std::atomic<bool> cut_off{false};
  Entry* next = nullptr;

  static inline std::atomic<Entry*> first{nullptr};
  static inline struct sigaction before {};

  /// REQUIRES: mappings_mutex is held.
  static Entry* take(const std::byte* data, std::size_t size) {
    Entry* free = first;
    while (free != nullptr && free->begin != nullptr) free = free->next;
    if (free == nullptr) {
      free = new Entry;
      free->next = first;
      first = free;
    }
    free->cut_off = false;
    free->size = size;
    free->begin = data;
    return free;
  }

  static void install() {
    struct sigaction action {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, &before);
  }

  /// Zeros in place of the pages that the file has no more.
  static void handle(int signal, siginfo_t* info, void* context) {
    const auto* at = static_cast<const std::byte*>(info->si_addr);
    for (Entry* each = first; each != nullptr; each = each->next) {
      const std::byte* begin = each->begin;
      if (begin == nullptr || at < begin || at >= begin + each->size) continue;
      const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
      auto* const from = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(at) / page * page);
      if (::mmap(from, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) break;
      each->cut_off = true;
      return;
    }
    if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr)
      return before.sa_sigaction(signal, info, context);
    if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return before.sa_handler(signal);
    ::signal(SIGBUS, SIG_DFL);  // The instruction is run again, and ends the program.
  }
};

MappedFile::MappedFile(std::filesystem::path path, std::byte* data, std::size_t size, const Mark& mark)
    : path_(std::move(path)), data_(data), size_(size), mark_(std::make_unique<Mark>(mark)) {
  if (size_ == 0) return;
  static std::once_flag installed;
  std::call_once(installed, Entry::install);
  const std::lock_guard lock(mappings_mutex);
  mappings()[data_] = size_;
  entry_ = Entry::take(data_, size_);
}

MappedFile::~MappedFile() {
  if (size_ == 0) return;
  {
    const std::lock_guard lock(mappings_mutex);
    mappings().erase(data_);
    entry_->begin = nullptr;
  }
  ::munmap(data_, size_);
}

bool MappedFile::is_replaced() const {
  struct stat info {};
  return ::stat(path_.c_str(), &info) != 0 || !mark_->is_of_same_file(Mark::of(info));
}

void MappedFile::check_unchanged() const {
  struct stat info {};
  const bool there = ::stat(path_.c_str(), &info) == 0;
  const Mark now = Mark::of(info);
  const bool same_file = there && mark_->is_of_same_file(now);
  const bool cut_off = entry_ != nullptr && entry_->cut_off;
  const auto fail = [&](const std::string& what) {
    throw error_of(ErrorCode::kIo,
                   "{}: the file changed while it was in use: {}; what was computed with it is not used; try again "
                   "when nobody writes to it, or with a copy",
                   path_.string(), what);
  };
  if (same_file && now.size != mark_->size) fail(fmt::format("expected {} bytes, found {}", mark_->size, now.size));
  if (cut_off) fail(fmt::format("expected {} bytes, found fewer", mark_->size));
  const std::lock_guard lock(mutex_);
  if (!same_file || (now.written.tv_sec == mark_->written.tv_sec && now.written.tv_nsec == mark_->written.tv_nsec))
    return;
  if (hash_.empty() || make_hash_(*this) != hash_) fail("somebody wrote to it, or set its time");
  mark_->written = now.written;
}

std::string MappedFile::hash(std::string (*make)(const MappedFile&)) const {
  std::unique_lock lock(mutex_);
  std::string known = hash_;
  lock.unlock();
  if (!known.empty()) return read_whole([&] { return known; });
  known = read_whole([&] { return make(*this); });
  lock.lock();
  make_hash_ = make;
  return hash_ = known;
}

void MappedFile::release(const void* begin, std::size_t bytes) noexcept {
  const auto* first = static_cast<const std::byte*>(begin);
  const std::lock_guard lock(mappings_mutex);
  const auto after = mappings().upper_bound(first);
  if (after == mappings().begin()) return;
  const auto& [data, size] = *std::prev(after);
  if (first + bytes <= data + size) release_pages(begin, bytes);
}

std::shared_ptr<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  struct stat info {};
  const Descriptor file = open_to_read(path, info, false);
  const std::size_t size = static_cast<std::size_t>(info.st_size);
  void* data = nullptr;
  if (size != 0) {
    data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (data == MAP_FAILED) throw_system(path, "map it", errno);
  }
  return std::shared_ptr<MappedFile>(new MappedFile(path, static_cast<std::byte*>(data), size, Mark::of(info)));
}

std::string read_file(const std::filesystem::path& path) {
  struct stat info {};
  const Descriptor file = open_to_read(path, info, true);
  std::string content;
  content.reserve(static_cast<std::size_t>(info.st_size));
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(file.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_system(path, "read it", errno);
    if (got == 0) return content;
    content.append(buffer, static_cast<std::size_t>(got));
  }
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  write_file(path, std::span<const std::string_view>(&content, 1));
}

void write_file(const std::filesystem::path& path, std::span<const std::string_view> pieces,
                const std::function<void()>& before_rename) {
  struct stat info {};
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) throw_system(path, "write it", EISDIR);
  if (exists && !S_ISREG(info.st_mode)) {
    Descriptor device(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (device.get() < 0) throw_system(path, "open it for writing", errno);
    for (std::string_view piece : pieces) write_all(device.get(), piece, path);
    return;
  }
  // A symbolic link keeps pointing where it points: the file behind it is replaced.
  std::error_code ignored;
  const std::filesystem::path target = exists ? std::filesystem::canonical(path, ignored) : path;
  const std::filesystem::path folder = target.has_parent_path() ? target.parent_path() : std::filesystem::path(".");
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) throw_system(folder, "create this folder", failed.value());
  TemporaryFile file(target);
  for (std::string_view piece : pieces) write_all(file.get(), piece, path);
  mode_t mask = ::umask(0);
  ::umask(mask);
  if (::fchmod(file.get(), exists ? info.st_mode & 07777 : 0666 & ~mask) != 0)
    throw_system(path, "set its mode", errno);
  if (::fsync(file.get()) != 0 && errno != EINVAL) throw_system(path, "flush it to the disk", errno);
  if (before_rename) before_rename();
  file.rename_to_target();
}

}  // namespace ulpscope
