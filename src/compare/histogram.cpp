#include "compare/histogram.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <type_traits>

#include "compare/statistics.h"
#include "compare/visit.h"

namespace ulpscope {
namespace {

/// Rounds to the type of the data, which is also that of the edges.
double to_type(double value, DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return static_cast<float>(value);
    case DataType::kFloat16:
      return round_to_f16(round_to_odd(value));
    case DataType::kBFloat16:
      return round_to_bf16(round_to_odd(value));
    default:
      return value;
  }
}

/// The arithmetic of numpy.histogram: that of the data's type after every step if the range is the data's own; else
/// float64, and only what is stored or compared with the data has its type.
class Arithmetic {
 public:
  Arithmetic(DataType type, bool own_range) : type_(type), own_range_(own_range) {}
  /// After a step of the computation.
  double step(double value) const { return own_range_ ? to_type(value, type_) : value; }
  double stored(double value) const { return to_type(value, type_); }

 private:
  DataType type_;
  bool own_range_;
};

/// numpy.linspace(first, last, 11)
std::array<double, 11> edges_of(double first, double last, const Arithmetic& in) {
  std::array<double, 11> edges{};
  const double delta = in.step(last - first), step = in.step(delta / 10);
  for (int i = 0; i < 11; ++i) {
    const double offset = step == 0 ? in.step(in.step(i / 10.0) * delta) : in.step(i * step);
    edges[static_cast<std::size_t>(i)] = in.stored(offset + first);
  }
  edges[10] = in.stored(last);
  return edges;
}

/// What positions are divided by. That of integers is exact, even where float64 cannot hold their ends.
template <typename T>
double width_of(const T* values, std::size_t count, double first, double last, bool own_range, const Arithmetic& in) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    if (own_range && first == std::floor(first) && last == std::floor(last)) {
      const auto [min, max] = std::minmax_element(values, values + count);
      return static_cast<double>(static_cast<std::uint64_t>(*max) - static_cast<std::uint64_t>(*min));
    }
  }
  return in.step(last - first);
}

template <typename T>
void count_into(Histogram& histogram, const T* values, std::size_t count, double first, double last, double width,
                const Arithmetic& in) {
  const double low = in.stored(first), high = in.stored(last);
  const auto& edges = histogram.edges;
  for (std::size_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(values[i]);
    if (!(value >= low && value <= high)) continue;
    const double position = in.step(in.step(in.stored(value - low) / width) * 10);
    // The division can be off by one bin; the edges decide.
    auto bin = static_cast<std::size_t>(std::clamp(position, 0.0, 10.0));
    if (bin == 10) bin = 9;
    if (value < edges[bin] && bin > 0) --bin;
    if (bin != 9 && value >= edges[bin + 1]) ++bin;
    ++histogram.counts[bin];
  }
}

std::string format_edge(double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof(buffer), "%.3g", value);
  return buffer;
}

}  // namespace

std::optional<Histogram> compute_histogram(const Tensor& tensor, std::optional<std::pair<double, double>> range) {
  if (tensor.type() == DataType::kBool || tensor.size() == 0) return std::nullopt;
  const bool own_range = !range;
  double first = range ? range->first : min_of(tensor);
  double last = range ? range->second : max_of(tensor);
  if (!std::isfinite(first) || !std::isfinite(last) || first > last) return std::nullopt;
  const DataType type = is_floating(tensor.type()) ? tensor.type() : DataType::kFloat64;
  if (first == last) {
    first = own_range ? to_type(first - 0.5, type) : first - 0.5;
    last = own_range ? to_type(last + 0.5, type) : last + 0.5;
  }
  Histogram histogram;
  const Arithmetic in(type, own_range);
  histogram.edges = edges_of(first, last, in);
  for (std::size_t i = 0; i < 10; ++i)
    if (!(histogram.edges[i] < histogram.edges[i + 1])) return std::nullopt;
  const Tensor data = widen(tensor);
  visit_type(data.type(), [&]<typename T>(T) {
    const auto count = static_cast<std::size_t>(data.size());
    const double width = width_of(data.data<T>(), count, first, last, own_range, in);
    count_into(histogram, data.data<T>(), count, first, last, width, in);
  });
  return histogram;
}

std::string to_text(const Histogram& histogram) {
  const std::int64_t largest = *std::ranges::max_element(histogram.counts);
  if (largest == 0) return "";
  std::array<std::string, 11> labels;
  std::size_t start_width = 0, end_width = 0;
  for (std::size_t i = 0; i < 11; ++i) {
    labels[i] = format_edge(histogram.edges[i]);
    start_width = std::max(start_width, labels[i].size());
    if (i > 0) end_width = std::max(end_width, labels[i].size());
  }
  const auto padded = [](std::string text, std::size_t width) {
    text.resize(std::max(width, text.size()), ' ');
    return text;
  };
  std::string text =
      "---- Histogram ----\n" + padded("Bin Range", start_width + end_width + 5) + "|  Num Elems | Visualization\n";
  for (std::size_t i = 0; i < 10; ++i) {
    const std::string count = std::to_string(histogram.counts[i]);
    const auto bar =
        static_cast<std::size_t>(40.0 * static_cast<double>(histogram.counts[i]) / static_cast<double>(largest));
    text.append("(").append(padded(labels[i], start_width)).append(", ").append(padded(labels[i + 1], end_width));
    text.append(") | ")
        .append(count.size() < 10 ? 10 - count.size() : 0, ' ')
        .append(count)
        .append(" | ")
        .append(bar, '#') += '\n';
  }
  return text;
}

}  // namespace ulpscope
