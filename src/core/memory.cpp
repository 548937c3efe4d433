#include "core/memory.h"

#include <fmt/format.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>
#include <vector>

#include "core/threads_at_fork.h"

namespace ulpscope {
namespace {

std::atomic<std::uint64_t> held_bytes{0}, peak_bytes{0};

void hold(std::size_t bytes) noexcept {
  const std::uint64_t now = held_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::uint64_t most = peak_bytes.load(std::memory_order_relaxed);
  while (now > most && !peak_bytes.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

/// Bytes by a line of /proc/self/status, such as "VmHWM:".
std::uint64_t status_bytes(const char* line) noexcept {
  std::FILE* file = std::fopen("/proc/self/status", "re");
  if (file == nullptr) return 0;
  std::uint64_t result = 0;
  char text[256];
  while (result == 0 && std::fgets(text, sizeof text, file) != nullptr)
    if (std::strncmp(text, line, std::strlen(line)) == 0)
      result = std::strtoull(text + std::strlen(line), nullptr, 10) * 1024;
  std::fclose(file);
  return result;
}

constexpr std::size_t kHugePage = std::size_t{2} << 20;

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

/// The number in a file of the kernel; unlimited where there is none ("max").
std::uint64_t number_in(const char* path) noexcept {
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return kUnlimited;
  unsigned long long value = 0;
  const bool read = std::fscanf(file, "%llu", &value) == 1;
  std::fclose(file);
  return read && value > 0 ? value : kUnlimited;
}

std::uint64_t measure() noexcept {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  std::uint64_t result = kUnlimited;
  if (pages > 0 && page > 0) result = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page);
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"})
    result = std::min(result, number_in(path));
  return result;
}

void ask_for_huge_pages(void* block, std::size_t bytes) noexcept {
#ifdef MADV_HUGEPAGE
  const auto begin = (reinterpret_cast<std::uintptr_t>(block) + kHugePage - 1) / kHugePage * kHugePage;
  const auto end = (reinterpret_cast<std::uintptr_t>(block) + bytes) / kHugePage * kHugePage;
  // Advice: where it is not taken, pages are small.
  if (end > begin) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  static_cast<void>(block);
  static_cast<void>(bytes);
#endif
}

/// A mapping, and where its first huge page begins.
struct Pages {
  void* mapping = nullptr;
  std::byte* data = nullptr;
  std::size_t bytes = 0;  ///< From `data` on.

  static Pages map(std::size_t bytes) {
    // Addresses for one more huge page, so that the first one is whole; nobody touches what is before.
    void* const mapping =
        ::mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    const auto begin = (reinterpret_cast<std::uintptr_t>(mapping) + kHugePage - 1) / kHugePage * kHugePage;
    ask_for_huge_pages(reinterpret_cast<void*>(begin), bytes);
    return {mapping, reinterpret_cast<std::byte*>(begin), bytes};
  }
  void unmap() const {
    if (mapping != nullptr) ::munmap(mapping, bytes + kHugePage);
  }
};

/// Pages that went back serve again: runs give the same sizes back and forth, and new pages have to be cleared first.
/// What waits here and what is held are together no more than the most that was held of late.
class SparePages {
 public:
  /// A process that is forked while another thread is in here can use it.
  static SparePages& of_process() {
    static auto& pages = *new SparePages;  // Never destroyed: tensors may be static.
    // Handlers run in reverse order, and threads that end give pages back.
    const auto lock = [] { end_threads(), pages.mutex_.lock(); };
    static const int handled = ::pthread_atfork(lock, [] { pages.mutex_.unlock(); }, [] { pages.mutex_.unlock(); });
    static_cast<void>(handled);
    return pages;
  }

  Pages take(std::size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      auto best = spare_.end();
      for (auto s = spare_.begin(); s != spare_.end(); ++s)
        if (s->bytes >= bytes && s->bytes - bytes <= bytes / 4 && (best == spare_.end() || s->bytes < best->bytes))
          best = s;
      if (best != spare_.end()) {
        const Pages pages = *best;
        spare_.erase(best);
        bytes_ -= pages.bytes;
        return pages;
      }
    }
    return Pages::map(bytes);
  }

  /// Those that waited longest give way.
  void put(const Pages& pages) { shrink(room(), &pages); }
  void clear() { shrink(0, nullptr); }

 private:
  static std::size_t room() {
    constexpr std::uint64_t kLeast = std::uint64_t{32} << 20, kMost = std::uint64_t{256} << 20;
    const std::uint64_t held = held_bytes.load(std::memory_order_relaxed),
                        most = std::max(peak_bytes.load(std::memory_order_relaxed), held);
    return std::clamp(most - held, kLeast, std::max(kMost, machine_memory() / 128));
  }
  void shrink(std::size_t room, const Pages* added) {
    std::vector<Pages> leaving;
    {
      const std::lock_guard lock(mutex_);
      if (added != nullptr) {
        spare_.push_back(*added);
        bytes_ += added->bytes;
      }
      for (; bytes_ > room; spare_.erase(spare_.begin())) {
        bytes_ -= spare_.front().bytes;
        leaving.push_back(spare_.front());
      }
    }
    for (const Pages& pages : leaving) pages.unmap();
  }

  std::mutex mutex_;
  std::vector<Pages> spare_;  ///< The oldest first.
  std::size_t bytes_ = 0;     ///< Of all.
};

}  // namespace

std::uint64_t machine_memory() noexcept {
  static const std::uint64_t bytes = measure();
  return bytes;
}

std::shared_ptr<std::byte> allocate_elements(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64, kPagesOfTheirOwn = std::size_t{1} << 20;
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  if (rounded >= kPagesOfTheirOwn) {
    const Pages pages = SparePages::of_process().take(rounded);
    hold(rounded);
    return {pages.data, [pages, rounded](std::byte*) {
              held_bytes.fetch_sub(rounded, std::memory_order_relaxed);
              SparePages::of_process().put(pages);
            }};
  }
  void* block = std::aligned_alloc(kAlignment, rounded);
  if (block == nullptr) throw std::bad_alloc();
  hold(rounded);
  return {static_cast<std::byte*>(block), [rounded](std::byte* p) {
            std::free(p);
            held_bytes.fetch_sub(rounded, std::memory_order_relaxed);
          }};
}

std::uint64_t held_element_bytes() noexcept { return held_bytes.load(std::memory_order_relaxed); }

std::uint64_t take_peak_element_bytes() noexcept {
  return std::max(peak_bytes.exchange(held_element_bytes(), std::memory_order_relaxed), held_element_bytes());
}

std::uint64_t anonymous_bytes() noexcept { return status_bytes("RssAnon:"); }
std::uint64_t peak_resident_bytes() noexcept { return status_bytes("VmHWM:"); }

void give_back_freed_memory() noexcept {
  SparePages::of_process().clear();
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

void release_pages(const void* begin, std::size_t bytes) noexcept {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = (reinterpret_cast<std::uintptr_t>(begin) + page - 1) / page * page;
  const auto last = (reinterpret_cast<std::uintptr_t>(begin) + bytes) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

std::optional<std::uint64_t> bytes_of(DataType type, const Shape& shape) noexcept {
  // Zeros are left out of the check, since strides are products of some of the dimensions.
  std::int64_t extent = static_cast<std::int64_t>(std::max<std::size_t>(size_of(type), 1));
  bool empty = size_of(type) == 0;
  for (std::int64_t dim : shape) {
    empty |= dim == 0;
    if (__builtin_mul_overflow(extent, std::max<std::int64_t>(dim, 1), &extent)) return std::nullopt;
  }
  return empty ? 0 : static_cast<std::uint64_t>(extent);
}

std::string to_size_string(std::uint64_t bytes) {
  constexpr std::array kUnits{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string why_too_large(DataType type, const Shape& shape) {
  const auto bytes = bytes_of(type, shape);
  if (!bytes) return fmt::format("shape {} has more elements than 64 bits count", to_string(shape));
  if (*bytes <= machine_memory()) return "";
  return fmt::format("shape {} of {} takes {}, this machine has {} of memory; try smaller inputs", to_string(shape),
                     name_of(type), to_size_string(*bytes), to_size_string(machine_memory()));
}

}  // namespace ulpscope
