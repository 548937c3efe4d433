#include "backend/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <vector>

#include "core/memory.h"

namespace ulpscope {
namespace {

constexpr std::size_t kUnlimited = WeightCache::Limits::kNone;
constexpr std::string_view kConstant = "constant ";

std::string new_scope() {
  static std::atomic<int> next{0};
  return fmt::format("{}:", next++);
}

/// The numbers of the constants that a key names.
template <typename Function>
bool any_constant(std::string_view key, const Function& is_wanted) {
  for (std::size_t at = key.find(kConstant); at != std::string_view::npos; at = key.find(kConstant, at + 1)) {
    int number = -1;
    std::from_chars(key.data() + at + kConstant.size(), key.data() + key.size(), number);
    if (is_wanted(number)) return true;
  }
  return false;
}

}  // namespace

struct WeightCache::Entries {
  struct Entry {
    std::mutex making;  ///< Held while it is prepared; all else is guarded by Entries::mutex.
    std::shared_ptr<const void> object;
    std::size_t bytes = 0;
    bool on_device = false, costly = false;
    std::list<std::shared_ptr<Entry>>::iterator use;
  };
  struct Constant {
    int number;
    std::weak_ptr<const void> buffer;
    Tensor unowned;  ///< Of bytes that nobody owns.
    /// name_of() it as this type and shape, which it was last asked for.
    std::string name;
    DataType type = DataType::kUndefined;
    Shape shape;
  };

  std::shared_ptr<Entry> entry(const std::string& key) {
    const std::lock_guard lock(mutex);
    auto& found = prepared[key];
    if (found == nullptr) found = std::make_shared<Entry>();
    return found;
  }

  std::shared_ptr<const void> known(Entry& entry) {
    const std::lock_guard lock(mutex);
    if (entry.object != nullptr) uses.splice(uses.begin(), uses, entry.use);
    return entry.object;
  }

  std::shared_ptr<const void> get(const std::shared_ptr<Entry>& entry, const std::function<PreparedObject()>& make) {
    if (auto object = known(*entry)) return object;
    const std::lock_guard preparing(entry->making);
    if (auto object = known(*entry)) return object;
    PreparedObject made = make();  // May ask for other entries.
    const std::lock_guard lock(mutex);
    entry->object = made.object;
    entry->bytes = made.bytes;
    entry->on_device = made.on_device;
    entry->costly = made.costly;
    (made.on_device ? device_bytes : bytes) += made.bytes;
    uses.push_front(entry);
    entry->use = uses.begin();
    make_room();
    return made.object;
  }

  /// REQUIRES: `mutex` is held.
  void make_room(std::size_t more = 0) {
    drop_unused(false, [&] { return too_much(more); });
    if (too_much(more)) free_arenas.clear();
    make_device_room(0);
  }
  /// REQUIRES: `mutex` is held.
  void make_device_room(std::size_t more) {
    drop_unused(true, [&] { return device_bytes > limits.device || more > limits.device - device_bytes; });
  }
  template <typename TooMuch>
  void drop_unused(bool on_device, const TooMuch& too_much) {
    for (const bool costly : {false, true})
      for (auto at = uses.end(); at != uses.begin() && too_much();) {
        const std::shared_ptr<Entry> oldest = *--at;
        if (oldest->on_device != on_device || oldest->costly != costly || oldest->object.use_count() > 1) continue;
        ++at;
        drop(*oldest);
      }
  }
  bool too_much(std::size_t more = 0) const {
    return more > limits.prepared || bytes > limits.prepared - more || more > limits.process ||
           held_element_bytes() > limits.process - more;
  }

  /// REQUIRES: `mutex` is held.
  void drop(Entry& entry) {
    if (entry.object == nullptr) return;
    (entry.on_device ? device_bytes : bytes) -= entry.bytes;
    entry.object.reset();
    uses.erase(entry.use);  // May be the last owner.
  }

  std::mutex mutex;
  Limits limits;
  std::size_t bytes = 0, device_bytes = 0;
  std::map<std::string, std::shared_ptr<Entry>, std::less<>> prepared;
  std::list<std::shared_ptr<Entry>> uses;  ///< Of entries that have their object; the most recent one first.
  std::map<const void*, Constant> constants;
  int next_constant = 0;
  std::vector<std::pair<std::size_t, std::shared_ptr<std::byte>>> free_arenas;
};

WeightCache::WeightCache() : entries_(std::make_shared<Entries>()), scope_(new_scope()) {}
WeightCache::WeightCache(const WeightCache& other) : entries_(other.entries_), scope_(new_scope()) { drop_expired(); }
WeightCache& WeightCache::operator=(const WeightCache& other) {
  entries_ = other.entries_;
  scope_ = new_scope();
  return *this;
}
WeightCache::~WeightCache() = default;

void WeightCache::set_limits(const Limits& limits) {
  const std::lock_guard lock(entries_->mutex);
  entries_->limits = limits;
  entries_->make_room();
}

std::size_t WeightCache::device_limit() const {
  const std::lock_guard lock(entries_->mutex);
  return entries_->limits.device;
}

bool WeightCache::has_process_limit() const {
  const std::lock_guard lock(entries_->mutex);
  return entries_->limits.process != kUnlimited;
}

std::size_t WeightCache::device_bytes() const {
  const std::lock_guard lock(entries_->mutex);
  return entries_->device_bytes;
}

void WeightCache::make_device_room(std::size_t bytes) {
  const std::lock_guard lock(entries_->mutex);
  entries_->make_device_room(bytes);
}

std::function<void()> WeightCache::room(std::size_t bytes) {
  return [entries = entries_, bytes] {
    const std::lock_guard lock(entries->mutex);
    entries->make_room(bytes);
  };
}

Tensor WeightCache::get(const std::string& key, const std::function<Tensor()>& make) {
  const auto object = get_object(key, [&]() -> PreparedObject {
    auto made = std::make_shared<Tensor>(make());
    return {made, made->bytes()};
  });
  // The handle keeps the entry in use, as whoever copies the elements' owner would not.
  const auto& tensor = *static_cast<const Tensor*>(object.get());
  return Tensor::borrow(tensor.type(), tensor.shape(), const_cast<void*>(tensor.raw()), object);
}

std::shared_ptr<const void> WeightCache::get_object(const std::string& key,
                                                    const std::function<PreparedObject()>& make) {
  const auto entry = entries_->entry(key);
  return entries_->get(entry, make);
}

PreparedSource WeightCache::source(const std::string& key, std::function<PreparedObject()> make) {
  return
      [entries = entries_, entry = entries_->entry(key), make = std::move(make)] { return entries->get(entry, make); };
}

PreparedAccess WeightCache::access(const std::string& key) {
  return [entries = entries_, entry = entries_->entry(key)](const std::function<PreparedObject()>& make) {
    return entries->get(entry, make);
  };
}

void WeightCache::drop_expired() {
  const std::lock_guard lock(entries_->mutex);
  std::set<int> gone;
  std::erase_if(entries_->constants, [&](const auto& each) {
    const Entries::Constant& constant = each.second;
    const bool expired = !constant.unowned && constant.buffer.expired();
    if (expired) gone.insert(constant.number);
    return expired;
  });
  if (gone.empty()) return;
  std::erase_if(entries_->prepared, [&](const auto& each) {
    if (!any_constant(each.first, [&](int number) { return gone.contains(number); })) return false;
    entries_->drop(*each.second);
    return true;
  });
}

std::string WeightCache::name_of(const Tensor& constant) {
  const std::lock_guard lock(entries_->mutex);
  auto found = entries_->constants.find(constant.place());
  const auto buffer = constant.buffer();
  const bool owned = !buffer.expired();
  if (found != entries_->constants.end() && owned &&
      (found->second.buffer.owner_before(buffer) || buffer.owner_before(found->second.buffer)))
    found->second = {entries_->next_constant++, buffer, {}, {}, {}, {}};  // Other bytes at the same place.
  if (found == entries_->constants.end())
    found = entries_->constants
                .emplace(constant.place(),
                         Entries::Constant{entries_->next_constant++, buffer, owned ? Tensor() : constant, {}, {}, {}})
                .first;
  Entries::Constant& known = found->second;
  if (known.name.empty() || known.type != constant.type() || known.shape != constant.shape()) {
    known.type = constant.type();
    known.shape = constant.shape();
    known.name =
        fmt::format("{}{} {}{}", kConstant, known.number, ulpscope::name_of(known.type), to_string(known.shape));
  }
  return known.name;
}

std::shared_ptr<std::byte> WeightCache::arena(std::size_t bytes) {
  std::pair<std::size_t, std::shared_ptr<std::byte>> taken;
  {
    const std::lock_guard lock(entries_->mutex);
    auto& free = entries_->free_arenas;
    auto best = std::ranges::min_element(free, {}, [&](const auto& each) {
      return each.first >= bytes ? each.first : kUnlimited - each.first;  // The smallest that fits, else the largest.
    });
    if (best != free.end()) {
      taken = std::move(*best);
      free.erase(best);
    }
  }
  if (taken.second == nullptr || taken.first < bytes) {
    taken.second.reset();
    taken = {bytes, allocate_elements(bytes)};
  }
  std::byte* const data = taken.second.get();
  return {data, [entries = entries_, taken](std::byte*) {
            const std::lock_guard lock(entries->mutex);
            if (!entries->too_much()) entries->free_arenas.push_back(taken);
          }};
}

}  // namespace ulpscope
