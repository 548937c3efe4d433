#include "compare/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <type_traits>
#include <vector>

#include "compare/blocks.h"
#include "compare/visit.h"

namespace ulpscope {
namespace {

// numpy.getbufsize(): elements that are converted at a time when a reduction accumulates in another type.
constexpr std::size_t kCastBuffer = 8192;

/// NumPy's pairwise summation of get(begin), ..., get(begin + count - 1).
template <typename T, typename Get>
T pairwise(const Get& get, std::size_t begin, std::size_t count) {
  if (count < 8) {
    T sum = T(-0.0);
    for (std::size_t i = 0; i < count; ++i) sum += static_cast<T>(get(begin + i));
    return sum;
  }
  if (count <= 128) {
    T partial[8];
    for (std::size_t j = 0; j < 8; ++j) partial[j] = static_cast<T>(get(begin + j));
    const std::size_t unrolled = count - count % 8;
    for (std::size_t i = 8; i < unrolled; i += 8)
      for (std::size_t j = 0; j < 8; ++j) partial[j] += static_cast<T>(get(begin + i + j));
    T sum = ((partial[0] + partial[1]) + (partial[2] + partial[3])) +
            ((partial[4] + partial[5]) + (partial[6] + partial[7]));
    for (std::size_t i = unrolled; i < count; ++i) sum += static_cast<T>(get(begin + i));
    return sum;
  }
  std::size_t half = count / 2;
  half -= half % 8;
  return pairwise<T>(get, begin, half) + pairwise<T>(get, begin + half, count - half);
}

/// The sum of a reduction that converts `chunk` elements at a time; 0: all at once.
template <typename T, typename Get>
T sum(const Get& get, std::size_t count, std::size_t chunk) {
  if (chunk == 0) return T(0) + pairwise<T>(get, 0, count);
  T total = T(0);
  for (std::size_t begin = 0; begin < count; begin += chunk)
    total += pairwise<T>(get, begin, std::min(chunk, count - begin));
  return total;
}

float mean_in_f32(float total, std::size_t count) {
  return count == 0 ? std::numeric_limits<float>::quiet_NaN()
                    : static_cast<float>(static_cast<double>(total) / static_cast<double>(count));
}

template <typename T>
T magnitude(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::fabs(value);
  } else if constexpr (std::is_signed_v<T> && !std::is_same_v<T, bool>) {
    return value < 0 ? static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(value)) : value;
  } else {
    return value;
  }
}

/// Mean and mean magnitude; `type` is the type before widening, which decides how NumPy buffers.
template <typename T>
std::pair<float, float> means(const T* values, std::size_t count, DataType type) {
  const std::size_t chunk = type == DataType::kFloat32 || type == DataType::kBFloat16 ? 0 : kCastBuffer;
  const float plain = sum<float>([=](std::size_t i) { return static_cast<float>(values[i]); }, count, chunk);
  const float absolute =
      sum<float>([=](std::size_t i) { return static_cast<float>(magnitude(values[i])); }, count, chunk);
  return {mean_in_f32(plain, count), mean_in_f32(absolute, count)};
}

/// Population variance in float32 for float32, else in float64.
template <typename T>
double variance(const T* values, std::size_t count) {
  using A = std::conditional_t<std::is_same_v<T, float>, float, double>;
  const std::size_t chunk = std::is_same_v<A, T> ? 0 : kCastBuffer;
  const double n = static_cast<double>(count);
  const A mean = static_cast<A>(
      static_cast<double>(sum<A>([=](std::size_t i) { return static_cast<A>(values[i]); }, count, chunk)) / n);
  const A squares = sum<A>(
      [=](std::size_t i) {
        const A difference = static_cast<A>(values[i]) - mean;
        return difference * difference;
      },
      count, 0);
  return static_cast<A>(static_cast<double>(squares) / n);
}

/// NumPy's interpolation between neighbors of type T.
template <typename T>
double interpolate(T low, T high, double t) {
  if constexpr (std::is_floating_point_v<T>) {
    const T difference = high - low;
    if (t >= 0.5) return high - difference * static_cast<T>(1 - t);
    return low + difference * static_cast<T>(t);
  } else {
    const double difference = static_cast<double>(static_cast<T>(high - low));
    if (t >= 0.5) return static_cast<double>(high) - difference * (1 - t);
    return static_cast<double>(low) + difference * t;
  }
}

/// float16, operation by operation.
double interpolate_f16(float low, float high, double t) {
  const float difference = round_to_f16(high - low);
  const auto narrow = [](double value) { return round_to_f16(round_to_odd(value)); };
  if (t >= 0.5) return round_to_f16(high - round_to_f16(difference * narrow(1 - t)));
  return round_to_f16(low + round_to_f16(difference * narrow(t)));
}

/// Order statistics of a copy of the data; asked for in ascending order of position, it sorts each part once.
template <typename T>
class OrderStatistics {
 public:
  OrderStatistics(const T* values, std::size_t count, DataType type) : values_(values, values + count), type_(type) {}

  double median() {
    const std::size_t middle = values_.size() / 2;
    if (values_.size() % 2 == 1) return static_cast<double>(at(middle));
    const T low = at(middle - 1);
    const T high = at(middle);
    if constexpr (std::is_same_v<T, float>) {
      return static_cast<float>(static_cast<double>(low + high) / 2);
    } else {
      return (static_cast<double>(low) + static_cast<double>(high)) / 2;
    }
  }

  double quantile(double q) {
    const double position = static_cast<double>(values_.size() - 1) * q;
    const double floor = std::floor(position);
    if (position >= static_cast<double>(values_.size() - 1)) return static_cast<double>(at(values_.size() - 1));
    const T low = at(static_cast<std::size_t>(floor));
    const T high = at(static_cast<std::size_t>(floor) + 1);
    if constexpr (std::is_same_v<T, float>)
      if (type_ == DataType::kFloat16) return interpolate_f16(low, high, position - floor);
    return interpolate(low, high, position - floor);
  }

 private:
  T at(std::size_t index) {
    if (index < sorted_) sorted_ = 0;
    const auto position = values_.begin() + static_cast<std::ptrdiff_t>(index);
    std::nth_element(values_.begin() + static_cast<std::ptrdiff_t>(sorted_), position, values_.end());
    sorted_ = index;
    return *position;
  }

  std::vector<T> values_;
  std::size_t sorted_ = 0;  ///< Elements before this position are not larger than those after it.
  DataType type_;
};

template <typename T>
std::optional<std::size_t> first_nan(const T* values, std::size_t count) {
  if constexpr (std::is_floating_point_v<T>) {
    for (std::size_t i = 0; i < count; ++i)
      if (std::isnan(values[i])) return i;
  }
  return std::nullopt;
}

Shape unravel(std::size_t index, const Shape& shape) {
  Shape result(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    result[axis] = static_cast<std::int64_t>(index) % shape[axis];
    index /= static_cast<std::size_t>(shape[axis]);
  }
  return result;
}

/// bool as uint8: order statistics and extremes then need no special case.
Tensor countable(const Tensor& tensor) {
  return tensor.type() == DataType::kBool ? tensor.cast(DataType::kUInt8) : widen(tensor);
}

template <typename T>
std::pair<std::size_t, std::size_t> extremes(const T* values, std::size_t count) {
  std::size_t low = 0, high = 0;
  for (std::size_t i = 1; i < count; ++i) {
    if (values[i] < values[low]) low = i;
    if (values[i] > values[high]) high = i;
  }
  return {low, high};
}

}  // namespace

Tensor cast_up(const Tensor& tensor) {
  if (is_storage_only(tensor.type())) return cast_up(widen(tensor));
  const std::size_t size = size_of(tensor.type());
  if (is_floating(tensor.type()) && size < 4) return tensor.cast(DataType::kFloat32);
  if (is_integer(tensor.type()) && size < 4) return tensor.cast(DataType::kInt32);
  return tensor.type() == DataType::kUInt32 ? tensor.cast(DataType::kInt64) : tensor;
}

Statistics compute_statistics(const Tensor& tensor) {
  Statistics result;
  const bool quantiles = tensor.type() != DataType::kBool;
  if (tensor.size() == 0) {
    result.mean = result.avg_magnitude = kNaN;
    if (quantiles) result.p90 = result.p95 = result.p99 = std::numeric_limits<double>::infinity();
    return result;
  }
  const Tensor data = countable(tensor);
  visit_type(data.type(), [&]<typename T>(T) {
    if constexpr (!std::is_same_v<T, bool>) {
      const T* values = data.data<T>();
      const auto count = static_cast<std::size_t>(data.size());
      const auto [mean, avg_magnitude] = means(values, count, tensor.type());
      result.mean = mean;
      result.avg_magnitude = avg_magnitude;
      result.variance = variance(values, count);
      result.std_dev =
          std::is_same_v<T, float> ? std::sqrt(static_cast<float>(result.variance)) : std::sqrt(result.variance);
      if (const auto nan = first_nan(values, count)) {
        result.median = result.min = result.max = kNaN;
        result.min_index = result.max_index = unravel(*nan, tensor.shape());
        result.p90 = result.p95 = result.p99 = kNaN;
        return;
      }
      const auto [low, high] = extremes(values, count);
      result.min = static_cast<double>(values[low]);
      result.max = static_cast<double>(values[high]);
      result.min_index = unravel(low, tensor.shape());
      result.max_index = unravel(high, tensor.shape());
      OrderStatistics<T> order(values, count, tensor.type());
      result.median = order.median();
      if (quantiles) {
        result.p90 = order.quantile(0.9);
        result.p95 = order.quantile(0.95);
        result.p99 = order.quantile(0.99);
      }
    }
  });
  return result;
}

std::string to_string(const Statistics& s, bool is_empty) {
  const std::string min_index = is_empty ? "0" : to_string(s.min_index);
  const std::string max_index = is_empty ? "0" : to_string(s.max_index);
  std::string text = "mean=" + format_g5(s.mean) + ", std-dev=" + format_g5(s.std_dev) +
                     ", var=" + format_g5(s.variance) + ", median=" + format_g5(s.median) +
                     ", min=" + format_g5(s.min) + " at " + min_index + ", max=" + format_g5(s.max) + " at " +
                     max_index + ", avg-magnitude=" + format_g5(s.avg_magnitude);
  if (s.p90) text += ", p90=" + format_g5(*s.p90) + ", p95=" + format_g5(*s.p95) + ", p99=" + format_g5(*s.p99);
  return text;
}

float mean_f32(const Tensor& tensor) {
  const Tensor data = widen(tensor);
  return visit_type(data.type(), [&]<typename T>(T) {
    const T* values = data.data<T>();
    const std::size_t chunk =
        tensor.type() == DataType::kFloat32 || tensor.type() == DataType::kBFloat16 ? 0 : kCastBuffer;
    const auto count = static_cast<std::size_t>(data.size());
    return mean_in_f32(sum<float>([=](std::size_t i) { return static_cast<float>(values[i]); }, count, chunk), count);
  });
}

namespace {

template <typename Function>
double order_statistic(const Tensor& tensor, double when_empty, const Function& function) {
  if (tensor.size() == 0) return when_empty;
  const Tensor data = countable(tensor);
  return visit_type(data.type(), [&]<typename T>(T) -> double {
    if constexpr (std::is_same_v<T, bool>) {
      return 0;
    } else {
      const T* values = data.data<T>();
      const auto count = static_cast<std::size_t>(data.size());
      if (first_nan(values, count)) return kNaN;
      return function(values, count);
    }
  });
}

}  // namespace

double median_of(const Tensor& tensor) {
  return order_statistic(tensor, 0, [&]<typename T>(const T* values, std::size_t count) {
    return OrderStatistics<T>(values, count, tensor.type()).median();
  });
}

double quantile_of(const Tensor& tensor, double q) {
  return order_statistic(tensor, std::numeric_limits<double>::infinity(),
                         [&]<typename T>(const T* values, std::size_t count) {
                           return OrderStatistics<T>(values, count, tensor.type()).quantile(q);
                         });
}

double min_of(const Tensor& tensor) {
  return order_statistic(tensor, 0, []<typename T>(const T* values, std::size_t count) {
    return static_cast<double>(*std::min_element(values, values + count));
  });
}

double max_of(const Tensor& tensor) {
  return order_statistic(tensor, 0, []<typename T>(const T* values, std::size_t count) {
    return static_cast<double>(*std::max_element(values, values + count));
  });
}

float pairwise_sum(const float* values, std::size_t count) {
  return sum<float>([=](std::size_t i) { return values[i]; }, count, 0);
}

double pairwise_sum(const double* values, std::size_t count) {
  return sum<double>([=](std::size_t i) { return values[i]; }, count, 0);
}

std::string format_g5(double value) {
  if (std::isnan(value)) return "nan";
  char buffer[64];
  std::snprintf(buffer, sizeof(buffer), "%.5g", value);
  return buffer;
}

}  // namespace ulpscope
