// Constants, prepared once for every way in which layers read them, and the arenas of activations.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "ulpscope/tensor.h"

namespace ulpscope {

/// Something prepared, and how many bytes it takes.
struct PreparedObject {
  std::shared_ptr<const void> object;
  std::size_t bytes = 0;
  bool on_device = false;  ///< The bytes are none of this process's memory.
  bool costly = false;     ///< Slow to prepare for its size: evicted after all that is not.
};

/// The prepared object, which is prepared now if it never was or was evicted since. Thread-safe.
using PreparedSource = std::function<std::shared_ptr<const void>()>;
/// The same, where each call says how to prepare it.
using PreparedAccess = std::function<std::shared_ptr<const void>(const std::function<PreparedObject()>& make)>;

/// Shared by all plans of one network, and by networks that have constants in common; thread-safe. A copy refers to the
/// same entries, with a scope of its own. Above a limit, the least recently used of what nobody holds is evicted.
class WeightCache {
 public:
  struct Limits {
    static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
    std::size_t prepared = kNone;  ///< Bytes of what is prepared.
    std::size_t process = kNone;   ///< Bytes of all tensors, arenas and prepared weights of the process.
    std::size_t device = kNone;    ///< Bytes of what is prepared on a device, which are none of the others.
  };

  WeightCache();
  /// Also drops what was prepared of constants that are gone.
  WeightCache(const WeightCache& other);
  WeightCache& operator=(const WeightCache& other);
  ~WeightCache();

  /// There are none before the first call.
  void set_limits(const Limits& limits);
  std::size_t device_limit() const;
  bool has_process_limit() const;
  std::size_t device_bytes() const;  ///< Of what is prepared on a device.
  /// Evicts what is prepared on a device and nobody holds, the least recently used first, until so many more bytes fit
  /// within the limit.
  void make_device_room(std::size_t bytes);
  /// Evicts all of it.
  void drop_unused_on_device() { make_device_room(Limits::kNone); }

  /// A function to be called right before so many bytes are prepared. It evicts what they would evict later, so that
  /// this is not in memory at the same time as what they are made of.
  std::function<void()> room(std::size_t bytes);

  /// The tensor that `make` gives. `key` names the constants and what is done to them.
  Tensor get(const std::string& key, const std::function<Tensor()>& make);

  /// The same for anything that a kernel keeps.
  std::shared_ptr<const void> get_object(const std::string& key, const std::function<PreparedObject()>& make);

  /// The same for what a kernel asks for in every run, and does not keep between them.
  PreparedSource source(const std::string& key, std::function<PreparedObject()> make);
  PreparedAccess access(const std::string& key);

  /// Drops what was prepared of constants that are gone. What plans use lives on with them.
  void drop_expired();

  /// Names a constant of a network by its bytes, whatever network it is in. They must not change while somebody has
  /// them; bytes that nobody owns must outlive the cache.
  std::string name_of(const Tensor& constant);
  /// Names what is this network's own.
  const std::string& scope() const noexcept { return scope_; }

  /// Memory for the activations of one run, for its owner alone; goes back when the last copy is gone, and serves the
  /// next run.
  std::shared_ptr<std::byte> arena(std::size_t bytes);

 private:
  struct Entries;
  std::shared_ptr<Entries> entries_;
  std::string scope_;
};

}  // namespace ulpscope
