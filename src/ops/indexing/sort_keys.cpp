#include "ops/indexing/sort_keys.h"

#include <bit>

#include "ops/common.h"

namespace ulpscope::ops {
namespace {

template <typename T>
std::uint64_t key_of(T value) noexcept {
  if constexpr (std::is_floating_point_v<T>) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    constexpr Bits kSign = Bits{1} << (8 * sizeof(T) - 1);
    if (value != value) return ~std::uint64_t{0};
    const Bits bits = std::bit_cast<Bits>(value == 0 ? T{0} : value);
    return (bits & kSign) != 0 ? static_cast<Bits>(~bits) : static_cast<Bits>(bits | kSign);
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(value)) ^ std::uint64_t{1} << 63;
  } else {
    return value;
  }
}

template <typename... Ts>
void write_keys(TypeList<Ts...>, const Tensor& tensor, std::int64_t begin, std::int64_t step, std::int64_t count,
                std::uint64_t* keys) {
  const auto write = [&](const auto* values) {
    for (std::int64_t i = 0; i < count; ++i) keys[i] = key_of(values[begin + i * step]);
    return true;
  };
  static_cast<void>(((tensor.type() == type_of<Ts>() && write(tensor.data<Ts>())) || ...));
}

}  // namespace

void sort_keys(const Tensor& tensor, std::int64_t begin, std::int64_t step, std::int64_t count, std::uint64_t* keys) {
  write_keys(AllTypes{}, tensor, begin, step, count, keys);
}

}  // namespace ulpscope::ops
