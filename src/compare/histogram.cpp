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

/// numpy.linspace(first, last, 11). Computed in the type of the data if the range is its own, else in float64.
std::array<double, 11> edges_of(double first, double last, DataType type, bool own_range) {
  std::array<double, 11> edges{};
  if (own_range && type == DataType::kFloat32) {
    const float step = (static_cast<float>(last) - static_cast<float>(first)) / 10.0f;
    for (int i = 0; i < 11; ++i) {
      const float offset = step == 0
                               ? static_cast<float>(i) / 10.0f * (static_cast<float>(last) - static_cast<float>(first))
                               : static_cast<float>(i) * step;
      edges[static_cast<std::size_t>(i)] = offset + static_cast<float>(first);
    }
    edges[10] = static_cast<float>(last);
    return edges;
  }
  const double delta = last - first;
  const double step = delta / 10;
  for (int i = 0; i < 11; ++i) {
    const double offset = step == 0 ? i / 10.0 * delta : i * step;
    edges[static_cast<std::size_t>(i)] = to_type(offset + first, type);
  }
  edges[10] = to_type(last, type);
  return edges;
}

template <typename T>
void count_into(Histogram& histogram, const T* values, std::size_t count, double first, double last, DataType type,
                bool own_range) {
  const double low = to_type(first, type), high = to_type(last, type);
  const double width = last - first;
  const auto& edges = histogram.edges;
  for (std::size_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(values[i]);
    if (!(value >= low && value <= high)) continue;
    double position;
    if (std::is_same_v<T, float> && own_range && type == DataType::kFloat32) {
      const float offset = static_cast<float>(value) - static_cast<float>(first);
      position = offset / (static_cast<float>(last) - static_cast<float>(first)) * 10.0f;
    } else {
      position = to_type(value - low, type) / width * 10;
    }
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
  histogram.edges = edges_of(first, last, type, own_range);
  for (std::size_t i = 0; i < 10; ++i)
    if (!(histogram.edges[i] < histogram.edges[i + 1])) return std::nullopt;
  const Tensor data = widen(tensor);
  visit_type(data.type(), [&]<typename T>(std::type_identity<T>) {
    count_into(histogram, data.data<T>(), static_cast<std::size_t>(data.size()), first, last, type, own_range);
  });
  return histogram;
}

std::string to_text(const Histogram& histogram) {
  const std::int64_t largest = *std::max_element(histogram.counts.begin(), histogram.counts.end());
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
    text += "(" + padded(labels[i], start_width) + ", " + padded(labels[i + 1], end_width) + ") | " +
            std::string(count.size() < 10 ? 10 - count.size() : 0, ' ') + count + " | " + std::string(bar, '#') + "\n";
  }
  return text;
}

}  // namespace ulpscope
