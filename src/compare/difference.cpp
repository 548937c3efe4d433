#include "compare/difference.h"

#include <cmath>
#include <type_traits>

#include "compare/statistics.h"
#include "compare/visit.h"

namespace ulpscope {
namespace {

constexpr double kEpsilon = 0x1p-52;

/// NumPy's type for arithmetic between types that cast_up gives.
DataType promoted(DataType a, DataType b) {
  if (a == b) return a;
  if (a == DataType::kBool) return b;
  if (b == DataType::kBool) return a;
  if (is_integer(a) && is_integer(b)) {
    const bool has_unsigned = a == DataType::kUInt64 || b == DataType::kUInt64;
    return has_unsigned ? DataType::kFloat64 : DataType::kInt64;
  }
  return DataType::kFloat64;  // float32 with int32 or wider, or any with float64
}

template <typename T>
T distance(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return a != b;
  } else if constexpr (std::is_floating_point_v<T>) {
    return std::fabs(a - b);
  } else {
    using U = std::make_unsigned_t<T>;
    const auto wrapped = static_cast<T>(static_cast<U>(a) - static_cast<U>(b));
    if constexpr (std::is_signed_v<T>) {
      return wrapped < 0 ? static_cast<T>(0 - static_cast<U>(wrapped)) : wrapped;
    } else {
      return wrapped;
    }
  }
}

}  // namespace

Difference difference(const Tensor& a, const Tensor& b, bool infinities_equal) {
  if (a.shape() != b.shape())
    throw InternalError("difference: shapes " + to_string(a.shape()) + " and " + to_string(b.shape()));
  const Tensor wide_a = cast_up(a), wide_b = cast_up(b);
  const DataType type = promoted(wide_a.type(), wide_b.type());
  const Tensor x = wide_a.type() == type ? wide_a : wide_a.cast(type);
  const Tensor y = wide_b.type() == type ? wide_b : wide_b.cast(type);
  const std::int64_t count = x.size();

  Difference result;
  result.absolute = Tensor(type, a.shape());
  visit_type(type, [&]<typename T>(T) {
    const T* p = x.data<T>();
    const T* q = y.data<T>();
    T* out = result.absolute.data<T>();
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = distance(p[i], q[i]);
      if constexpr (std::is_floating_point_v<T>)
        if (infinities_equal && std::isinf(p[i]) && p[i] == q[i]) out[i] = 0;
    }
  });

  // NumPy's where(condition, 0, x) gives float64 for float32.
  if (infinities_equal && type == DataType::kFloat32) result.absolute = result.absolute.cast(DataType::kFloat64);
  const bool in_f32 = result.absolute.type() == DataType::kFloat32;  // then b is float32 or bool
  result.relative = Tensor(in_f32 ? DataType::kFloat32 : DataType::kFloat64, a.shape());
  const auto divide = [&]<typename D, typename R, typename Q>(const D* absolute, const R* reference, Q* out) {
    for (std::int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_floating_point_v<R>) {
        R value = std::fabs(reference[i]);
        if (value == 0) {
          value = static_cast<R>(kEpsilon);
          result.zeros_in_reference = true;
        }
        out[i] = static_cast<Q>(absolute[i]) / static_cast<Q>(value);
      } else {
        out[i] = static_cast<Q>(absolute[i]) / static_cast<Q>(std::fabs(static_cast<double>(reference[i])));
      }
    }
  };
  visit_type(result.absolute.type(), [&]<typename D>(D) {
    visit_type(wide_b.type(), [&]<typename R>(R) {
      if (in_f32) {
        divide(result.absolute.data<D>(), wide_b.data<R>(), result.relative.data<float>());
      } else {
        divide(result.absolute.data<D>(), wide_b.data<R>(), result.relative.data<double>());
      }
    });
  });
  return result;
}

std::int64_t count_mismatches(const Difference& difference, double atol, double rtol) {
  std::int64_t mismatches = 0;
  // NumPy compares a float32 array with a Python float in float32.
  visit_elements(difference, [&]<typename A, typename R>(const A* absolute, const R* relative) {
    using LimitA = std::conditional_t<std::is_same_v<A, float>, float, double>;
    const auto limit_a = static_cast<LimitA>(atol);
    const auto limit_r = static_cast<R>(rtol);
    for (std::int64_t i = 0; i < difference.absolute.size(); ++i) {
      const auto a = static_cast<LimitA>(absolute[i]);
      mismatches += !(a <= limit_a) && !(relative[i] <= limit_r);
    }
  });
  return mismatches;
}

}  // namespace ulpscope
