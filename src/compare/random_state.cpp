#include "compare/random_state.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <type_traits>

#include "core/element_types.h"
#include "core/messages.h"

namespace ulpscope {
namespace {

/// Draws of 1, 8 or 16 bits from words of 32 bits, the low bits first.
class BufferedBits {
 public:
  BufferedBits(RandomState& source, int bits) : source_(source), bits_(bits) {}
  std::uint32_t next() {
    if (left_ == 0) {
      word_ = source_.next_uint32();
      left_ = 32 / bits_ - 1;
    } else {
      word_ >>= bits_;
      --left_;
    }
    return word_ & ((1u << bits_) - 1u);
  }

 private:
  RandomState& source_;
  int bits_;
  std::uint32_t word_ = 0;
  int left_ = 0;
};

/// Elements of type T, uniform by masked rejection; NumPy draws nothing for a range of 0.
template <typename T, typename Draw>
void fill(Tensor& result, std::uint64_t offset, std::uint64_t range, const Draw& draw) {
  T* out = static_cast<T*>(result.raw());
  if (range == 0) return std::fill_n(out, result.size(), static_cast<T>(offset)), void();
  const std::uint64_t mask = std::numeric_limits<std::uint64_t>::max() >> std::countl_zero(range);
  for (std::int64_t i = 0; i < result.size(); ++i) {
    std::uint64_t value;
    do value = draw() & mask;
    while (value > range);
    out[i] = static_cast<T>(offset + value);
  }
}

struct Bounds {
  std::int64_t low;
  std::uint64_t high;  ///< Inclusive.
};

Bounds bounds_of(DataType type) {
  Bounds result{0, 1};
  if (is_integer(type) && physical_type(type) == type)
    visit_type(AllTypes{}, type, [&]<typename T>(T) {
      using Limits = std::numeric_limits<T>;
      if constexpr (std::is_integral_v<T>)
        result = {static_cast<std::int64_t>(Limits::min()), static_cast<std::uint64_t>(Limits::max())};
    });
  else if (type != DataType::kBool)
    throw invalid_argument("[random data] randint: expected an integer type or bool, got {}", name_of(type));
  return result;
}

}  // namespace

double RandomState::next_double() {
  const std::uint32_t high = next_uint32() >> 5;
  const std::uint32_t low = next_uint32() >> 6;
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

Tensor RandomState::random_sample(const Shape& shape) {
  Tensor result(DataType::kFloat64, shape);
  double* out = result.data<double>();
  for (std::int64_t i = 0; i < result.size(); ++i) out[i] = next_double();
  return result;
}

Tensor RandomState::randint(std::int64_t low, std::int64_t high, const Shape& shape, DataType type) {
  const Bounds bounds = bounds_of(type);
  const auto where = [&] {
    return "[random data] randint(" + std::to_string(low) + ", " + std::to_string(high) + ", " +
           std::string(name_of(type)) + "): ";
  };
  if (low >= high) throw invalid_argument(where() + "expected low < high; try a wider range");
  const std::int64_t last = high - 1;
  if (low < bounds.low || (last > 0 && static_cast<std::uint64_t>(last) > bounds.high))
    throw invalid_argument(where() + "the range is outside of the type; try a narrower range");

  Tensor result(type, shape);
  const std::uint64_t offset = static_cast<std::uint64_t>(low), range = static_cast<std::uint64_t>(last) - offset;
  const std::size_t width = size_of(type);
  BufferedBits bits(*this, type == DataType::kBool ? 1 : width == 1 ? 8 : 16);
  const auto few = [&] { return std::uint64_t{bits.next()}; };
  const auto word = [&] { return std::uint64_t{next_uint32()}; };
  if (width == 1) {
    fill<std::uint8_t>(result, offset, range, few);
  } else if (width == 2) {
    fill<std::uint16_t>(result, offset, range, few);
  } else if (width == 4) {
    fill<std::uint32_t>(result, offset, range, word);
  } else if (range <= 0xffffffffu) {
    fill<std::uint64_t>(result, offset, range, word);
  } else {
    fill<std::uint64_t>(result, offset, range, [&] {
      const std::uint64_t upper = next_uint32();
      return upper << 32 | next_uint32();
    });
  }
  return result;
}

}  // namespace ulpscope
