#include "compare/array_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include "compare/visit.h"

namespace ulpscope {
namespace {

constexpr int kPrecision = 8;

/// A decimal number: sign, digits before and after the point, exponent (scientific notation only).
struct Decimal {
  std::string integer;  ///< With the sign.
  std::string fraction;
  std::string exponent;  ///< "+07"
};

Decimal split(const std::string& text) {
  Decimal result;
  const std::size_t e = text.find('e');
  const std::string mantissa = text.substr(0, e);
  if (e != std::string::npos) result.exponent = text.substr(e + 1);
  const std::size_t point = mantissa.find('.');
  result.integer = mantissa.substr(0, point);
  if (point != std::string::npos) result.fraction = mantissa.substr(point + 1);
  return result;
}

void drop_zeros(std::string& digits) {
  while (!digits.empty() && digits.back() == '0') digits.pop_back();
}

/// The shortest digits that read back as the same number of that type.
template <typename T>
std::string shortest(T value, DataType type, bool scientific) {
  if (type == DataType::kFloat16) {
    char buffer[64];
    for (int digits = 0; digits < 8; ++digits) {
      std::snprintf(buffer, sizeof(buffer), "%.*e", digits, static_cast<double>(value));
      if (round_to_f16(std::strtof(buffer, nullptr)) == static_cast<float>(value)) break;
    }
    if (scientific) return buffer;
    // The same digits without exponent: a float16 needs at most 5 significant ones, so double holds them well.
    char fixed[64];
    const auto end =
        std::to_chars(fixed, fixed + sizeof(fixed), std::strtod(buffer, nullptr), std::chars_format::fixed).ptr;
    return {fixed, end};
  }
  char buffer[512];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value,
                                 scientific ? std::chars_format::scientific : std::chars_format::fixed)
                       .ptr;
  return {buffer, end};
}

/// The shortest digits, but at most kPrecision after the point.
template <typename T>
Decimal digits_of(T value, DataType type, bool scientific) {
  Decimal result = split(shortest(value, type, scientific));
  if (result.fraction.size() > kPrecision) {
    char buffer[512];
    std::snprintf(buffer, sizeof(buffer), scientific ? "%.*e" : "%.*f", kPrecision, static_cast<double>(value));
    result = split(buffer);
  }
  drop_zeros(result.fraction);
  return result;
}

/// Arrays with larger values are printed with exponents: 10 to the decimal digits that the type can hold, at most 8.
double cutoff_of(DataType type) { return type == DataType::kFloat16 ? 1e3 : type == DataType::kFloat64 ? 1e8 : 1e6; }

std::string padded_left(const std::string& text, std::size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

template <typename T>
std::vector<std::string> float_words(const T* values, std::size_t count, DataType type) {
  bool any = false;
  T largest = 0, smallest = std::numeric_limits<T>::infinity();
  bool non_finite = false, negative_infinity = false;
  for (std::size_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) {
      non_finite = true;
      negative_infinity = negative_infinity || (std::isinf(values[i]) && values[i] < 0);
    } else if (values[i] != 0) {
      any = true;
      largest = std::max(largest, std::fabs(values[i]));
      smallest = std::min(smallest, std::fabs(values[i]));
    }
  }
  const bool scientific =
      any && (largest >= cutoff_of(type) || smallest < 0.0001 || static_cast<T>(largest / smallest) > 1000);

  std::vector<Decimal> decimals(count);
  std::size_t left = 0, right = 0, exponent = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) continue;
    decimals[i] = digits_of(values[i], type, scientific);
    left = std::max(left, decimals[i].integer.size());
    right = std::max(right, decimals[i].fraction.size());
    exponent = std::max(exponent, decimals[i].exponent.size());
  }
  // Width after the integer part and the point; the exponent counts with its 'e' and sign.
  const std::size_t tail = right + (scientific ? exponent + 1 : 0);
  if (non_finite) {
    const std::size_t needed = negative_infinity ? 4 : 3;
    if (needed > tail + 1) left = std::max(left, needed - (tail + 1));
  }
  std::vector<std::string> words(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) {
      words[i] = padded_left(std::isnan(values[i]) ? "nan" : values[i] < 0 ? "-inf" : "inf", left + tail + 1);
      continue;
    }
    if (scientific) {  // every number with as many digits as the longest one needs
      char buffer[64];
      std::snprintf(buffer, sizeof(buffer), "%.*e", static_cast<int>(right), static_cast<double>(values[i]));
      const Decimal d = split(buffer);
      words[i] = padded_left(d.integer, left) + "." + d.fraction + "e" + d.exponent[0] +
                 std::string(exponent - d.exponent.size(), '0') + d.exponent.substr(1);
    } else {
      const Decimal& d = decimals[i];
      words[i] = padded_left(d.integer, left) + "." + d.fraction + std::string(right - d.fraction.size(), ' ');
    }
  }
  return words;
}

template <typename T>
std::vector<std::string> words_of(const T* values, std::size_t count, DataType type) {
  if constexpr (std::is_floating_point_v<T>) {
    return float_words(values, count, type);
  } else {
    std::vector<std::string> words(count);
    std::size_t width = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<T, bool>) {
        words[i] = values[i] ? "True" : "False";
      } else {
        words[i] = std::to_string(values[i]);
      }
      width = std::max(width, words[i].size());
    }
    if (std::is_same_v<T, bool>) width = 5;  // also when all are True
    for (std::string& word : words) word = padded_left(word, width);
    return words;
  }
}

/// A scalar: all digits that it needs.
template <typename T>
std::string scalar_text(T value, DataType type) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "True" : "False";
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(value);
  } else {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    const double size = std::fabs(static_cast<double>(value));
    const double cutoff = type == DataType::kFloat64 ? 1e16 : cutoff_of(type);
    const bool scientific = size != 0 && (size < 1e-4 || size >= cutoff);
    std::string text = shortest(value, type, scientific);
    if (!scientific && text.find('.') == std::string::npos) text += ".0";
    return text;
  }
}

/// The words of an array in brackets. `shape` counts the words that there are; `cut`, per axis: items are left out in
/// the middle.
class Layout {
 public:
  Layout(const std::vector<std::string>& words, const Shape& shape, const std::vector<char>& cut)
      : words_(words), shape_(shape), cut_(cut) {}

  std::string text(std::size_t line_width) {
    next_ = 0;
    return nested(0, " ", line_width);
  }

 private:
  static void extend(std::string& text, std::string& line, const std::string& word, const std::string& margin,
                     std::size_t width) {
    if (line.size() + word.size() > width - 1 && line.size() > margin.size()) {
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
      line = margin;
    }
    line += word;
  }

  std::string nested(std::size_t axis, const std::string& margin, std::size_t width) {
    if (axis == shape_.size()) return words_[next_++];
    const std::int64_t length = shape_[axis];
    const std::int64_t gap = cut_[axis] ? length / 2 : -1;  // before this item
    std::string text;
    if (axis + 1 == shape_.size()) {
      std::string line = margin;
      for (std::int64_t i = 0; i < length; ++i) {
        if (i == gap) {
          extend(text, line, "...", margin, width);
          line += " ";
        }
        extend(text, line, words_[next_++], margin, width);
        if (i + 1 < length) line += " ";
      }
      text += line;
    } else {
      const std::string newlines(shape_.size() - axis - 1, '\n');
      for (std::int64_t i = 0; i < length; ++i) {
        if (i == gap) text += margin + "..." + newlines;
        text += margin + nested(axis + 1, margin + " ", width - 1);
        if (i + 1 < length) text += newlines;
      }
    }
    return "[" + text.substr(margin.size()) + "]";
  }

  const std::vector<std::string>& words_;
  const Shape& shape_;
  const std::vector<char>& cut_;
  std::size_t next_ = 0;
};

/// The elements that are shown of an array whose marked axes are cut to 2 * edge items.
template <typename T>
std::vector<T> edges_of(const T* values, const Shape& shape, const Shape& shown, const std::vector<char>& cut) {
  std::vector<T> result;
  const std::int64_t count = num_elements(shown);
  result.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i, offset = 0, stride = 1;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      std::int64_t at = rest % shown[axis];
      rest /= shown[axis];
      if (cut[axis] && at >= shown[axis] / 2) at += shape[axis] - shown[axis];
      offset += at * stride;
      stride *= shape[axis];
    }
    result.push_back(values[offset]);
  }
  return result;
}

}  // namespace

std::string array_text(const Tensor& tensor, const ArrayTextOptions& options) {
  if (tensor.size() == 0) return "[]";
  const Tensor data = widen(tensor);
  Shape shown = tensor.shape();
  std::vector<char> cut(shown.size(), 0);
  bool any_cut = false;
  if (tensor.size() > options.threshold) {
    for (std::size_t axis = 0; axis < shown.size(); ++axis) {
      if (options.edge_items >= shown[axis] || 2 * options.edge_items >= shown[axis]) continue;
      cut[axis] = 1;
      any_cut = true;
      shown[axis] = 2 * options.edge_items;
    }
  }
  return visit_type(data.type(), [&]<typename T>(T) {
    const T* values = data.data<T>();
    if (tensor.rank() == 0) return scalar_text(values[0], tensor.type());
    const auto text = [&](const T* elements, std::int64_t count) {
      return Layout(words_of(elements, static_cast<std::size_t>(count), tensor.type()), shown, cut)
          .text(options.line_width);
    };
    if (!any_cut) return text(values, data.size());
    if constexpr (std::is_same_v<T, bool>) {  // std::vector<bool> has no elements to point to
      const Tensor bytes = Tensor::borrow(DataType::kUInt8, data.shape(), const_cast<bool*>(values), nullptr);
      const auto edges = edges_of(bytes.data<std::uint8_t>(), tensor.shape(), shown, cut);
      const auto copy = std::make_unique<bool[]>(edges.size());
      std::copy(edges.begin(), edges.end(), copy.get());
      return text(copy.get(), static_cast<std::int64_t>(edges.size()));
    } else {
      const std::vector<T> edges = edges_of(values, tensor.shape(), shown, cut);
      return text(edges.data(), static_cast<std::int64_t>(edges.size()));
    }
  });
}

}  // namespace ulpscope
