#include "compare/random_state.h"

#include <bit>
#include <limits>
#include <string>

#include "ulpscope/error.h"

namespace ulpscope {
namespace {

constexpr std::size_t kStateSize = 624;
constexpr std::size_t kShift = 397;

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

std::uint64_t mask_of(std::uint64_t range) {
  return range == 0 ? 0 : std::numeric_limits<std::uint64_t>::max() >> std::countl_zero(range);
}

template <typename T, typename Draw>
void fill(T* out, std::int64_t count, std::uint64_t offset, std::uint64_t range, const Draw& draw) {
  const std::uint64_t mask = mask_of(range);
  for (std::int64_t i = 0; i < count; ++i) {
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
  const auto bits = static_cast<int>(size_of(type)) * 8;
  switch (type) {
    case DataType::kBool:
      return {0, 1};
    case DataType::kInt8:
    case DataType::kInt16:
    case DataType::kInt32:
    case DataType::kInt64:
      return {-(std::int64_t{1} << (bits - 2)) * 2, (std::uint64_t{1} << (bits - 1)) - 1};
    case DataType::kUInt8:
    case DataType::kUInt16:
    case DataType::kUInt32:
    case DataType::kUInt64:
      return {0, std::numeric_limits<std::uint64_t>::max() >> (64 - bits)};
    default:
      throw Error(ErrorCode::kInvalidArgument,
                  "[random data] randint: expected an integer type or bool, got " + std::string(name_of(type)));
  }
}

}  // namespace

RandomState::RandomState(std::uint32_t seed) : position_(kStateSize) {
  // init_genrand of the reference implementation.
  for (std::size_t i = 0; i < kStateSize; ++i) {
    state_[i] = seed;
    seed = 1812433253u * (seed ^ (seed >> 30)) + static_cast<std::uint32_t>(i) + 1u;
  }
}

void RandomState::refill() noexcept {
  const auto twist = [](std::uint32_t high, std::uint32_t low) {
    const std::uint32_t y = (high & 0x80000000u) | (low & 0x7fffffffu);
    return (y >> 1) ^ ((low & 1u) != 0 ? 0x9908b0dfu : 0u);
  };
  for (std::size_t i = 0; i < kStateSize; ++i)
    state_[i] = state_[(i + kShift) % kStateSize] ^ twist(state_[i], state_[(i + 1) % kStateSize]);
  position_ = 0;
}

std::uint32_t RandomState::next_uint32() noexcept {
  if (position_ == kStateSize) refill();
  std::uint32_t y = state_[position_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

double RandomState::next_double() noexcept {
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
  if (low >= high) throw Error(ErrorCode::kInvalidArgument, where() + "expected low < high; try a wider range");
  const std::int64_t last = high - 1;
  if (low < bounds.low || (last > 0 && static_cast<std::uint64_t>(last) > bounds.high))
    throw Error(ErrorCode::kInvalidArgument, where() + "the range is outside of the type; try a narrower range");

  Tensor result(type, shape);
  const std::int64_t count = result.size();
  const std::uint64_t offset = static_cast<std::uint64_t>(low);
  const std::uint64_t range = static_cast<std::uint64_t>(last) - offset;
  const auto word = [this] { return std::uint64_t{next_uint32()}; };
  const auto two_words = [this] {
    const std::uint64_t upper = next_uint32();
    return upper << 32 | next_uint32();
  };
  if (range == 0) {  // NumPy draws nothing then.
    const auto nothing = [] { return std::uint64_t{0}; };
    switch (size_of(type)) {
      case 1:
        fill(static_cast<std::uint8_t*>(result.raw()), count, offset, 0, nothing);
        break;
      case 2:
        fill(static_cast<std::uint16_t*>(result.raw()), count, offset, 0, nothing);
        break;
      case 4:
        fill(static_cast<std::uint32_t*>(result.raw()), count, offset, 0, nothing);
        break;
      default:
        fill(static_cast<std::uint64_t*>(result.raw()), count, offset, 0, nothing);
        break;
    }
    return result;
  }
  switch (size_of(type)) {
    case 1: {
      BufferedBits bits(*this, type == DataType::kBool ? 1 : 8);
      fill(static_cast<std::uint8_t*>(result.raw()), count, offset, range, [&] { return std::uint64_t{bits.next()}; });
      break;
    }
    case 2: {
      BufferedBits bits(*this, 16);
      fill(static_cast<std::uint16_t*>(result.raw()), count, offset, range, [&] { return std::uint64_t{bits.next()}; });
      break;
    }
    case 4:
      fill(static_cast<std::uint32_t*>(result.raw()), count, offset, range, word);
      break;
    default:
      if (range <= 0xffffffffu)
        fill(static_cast<std::uint64_t*>(result.raw()), count, offset, range, word);
      else
        fill(static_cast<std::uint64_t*>(result.raw()), count, offset, range, two_words);
  }
  return result;
}

}  // namespace ulpscope
