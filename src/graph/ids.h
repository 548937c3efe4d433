// Ids of layers and tensors, which are neither numbers nor each other, and the vectors that they index.
#pragma once

#include <cassert>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ranges>
#include <utility>
#include <vector>

namespace ulpscope {

/// No layer, no tensor; -1 where something else is counted by ints.
struct None {
  constexpr operator std::int32_t() const noexcept { return -1; }
};
inline constexpr None kNone;

/// The position of a `Thing` in an IdMap, or kNone, which comes before all others.
template <class Thing>
class Id {
 public:
  constexpr Id(None = {}) noexcept {}
  template <std::integral Number>
  constexpr explicit Id(Number number) noexcept : number_(static_cast<std::int32_t>(number)) {}

  constexpr std::int32_t number() const noexcept { return number_; }
  /// REQUIRES: it is not kNone.
  constexpr std::size_t index() const noexcept { return static_cast<std::size_t>(number_); }

  friend constexpr auto operator<=>(Id, Id) noexcept = default;

 private:
  std::int32_t number_ = -1;
};

using LayerId = Id<struct Layer>;
using TensorId = Id<struct TensorInfo>;

/// Those that are not kNone. The list outlives the result.
template <class Thing>
auto present(const std::vector<Id<Thing>>& ids) {
  return std::views::filter(ids, [](Id<Thing> id) { return id != kNone; });
}
template <class Thing>
void present(std::vector<Id<Thing>>&&) = delete;

/// The first `count` ids, in order.
template <class Key>
constexpr auto first_ids(std::size_t count) {
  return std::views::iota(std::int32_t{0}, static_cast<std::int32_t>(count)) |
         std::views::transform([](std::int32_t number) { return Key(number); });
}

/// A vector with one element per id.
template <class Key, class T>
class IdMap : private std::vector<T> {
  using Base = std::vector<T>;

 public:
  using Base::assign, Base::back, Base::begin, Base::clear, Base::empty, Base::end, Base::front, Base::pop_back,
      Base::push_back, Base::reserve, Base::resize, Base::size;
  using typename Base::const_iterator, typename Base::const_reference, typename Base::iterator,
      typename Base::reference, typename Base::size_type, typename Base::value_type;

  IdMap() = default;
  explicit IdMap(std::size_t size, const T& value = T()) : Base(size, value) {}
  explicit IdMap(Base values) : Base(std::move(values)) {}

  /// REQUIRES: contains(id).
  reference operator[](Key id) {
    assert(contains(id));
    return Base::operator[](id.index());
  }
  const_reference operator[](Key id) const {
    assert(contains(id));
    return Base::operator[](id.index());
  }
  bool contains(Key id) const { return id.number() >= 0 && id.index() < size(); }

  /// Appends, and returns the id.
  Key add(T value) {
    push_back(std::move(value));
    return Key(size() - 1);
  }

  /// The ids from there on grow by one.
  void insert(Key at, T value) { Base::insert(begin() + at.number(), std::move(value)); }

  /// Those there are now; what is added while one goes through them is not among them.
  auto ids() const { return first_ids<Key>(size()); }
  auto items() const {
    return ids() | std::views::transform([this](Key id) { return std::pair<Key, const T&>(id, (*this)[id]); });
  }

  friend bool operator==(const IdMap&, const IdMap&) = default;
};

}  // namespace ulpscope

template <class Thing>
struct std::hash<ulpscope::Id<Thing>> {
  std::size_t operator()(ulpscope::Id<Thing> id) const noexcept { return std::hash<std::int32_t>()(id.number()); }
};
