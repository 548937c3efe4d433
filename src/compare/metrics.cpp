#include "compare/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>

#include "compare/blocks.h"
#include "compare/visit.h"
#include "core/messages.h"
#include "core/parallel.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

constexpr std::int64_t kLanes = 8;

struct MetricRow {
  MetricKind kind;
  const char* name;
  bool higher_is_better;
};
constexpr MetricRow kMetrics[] = {
    {MetricKind::kRelativeL2, "rel-l2", false},
    {MetricKind::kRelativeMax, "rel-max", false},
    {MetricKind::kOneMinusCos, "one-minus-cos", false},
    {MetricKind::kPsnr, "psnr", true},
    {MetricKind::kSnr, "snr", true},
    {MetricKind::kKl, "kl", false},
    {MetricKind::kTopK, "top-k", true},
    {MetricKind::kIou, "iou", true},
};

const MetricRow& row_of(MetricKind kind) {
  for (const MetricRow& row : kMetrics)
    if (row.kind == kind) return row;
  throw InternalError("metrics: unknown metric");
}

/// float32 or float64 with the same values.
Tensor floating(const Tensor& tensor) {
  const Tensor wide = widen(tensor);
  return is_floating(wide.type()) ? wide : wide.cast(DataType::kFloat64);
}

/// Calls function(g, c) with pointers to the elements, each float or double.
template <typename Function>
decltype(auto) with_elements(const Tensor& golden, const Tensor& candidate, Function&& function) {
  if (golden.shape() != candidate.shape())
    throw InternalError("metrics: shapes " + to_string(golden.shape()) + " and " + to_string(candidate.shape()));
  const Tensor g = floating(golden), c = floating(candidate);
  if (g.type() == DataType::kFloat32 && c.type() == DataType::kFloat32)
    return function(g.data<float>(), c.data<float>());
  const Tensor wide_g = g.cast(DataType::kFloat64), wide_c = c.cast(DataType::kFloat64);
  return function(wide_g.data<double>(), wide_c.data<double>());
}

/// function(begin, end) for each block, its results folded in order by `fold`.
template <typename Result, typename Function, typename Fold>
Result fold_blocks(std::int64_t count, std::int64_t block, const Function& function, const Fold& fold) {
  Result total{};
  if (count == 0) return total;
  std::vector<Result> parts(static_cast<std::size_t>((count + block - 1) / block));
  parallel_for(count, block, [&](std::int64_t begin, std::int64_t end) {
    parts[static_cast<std::size_t>(begin / block)] = function(begin, end);
  });
  for (const Result& part : parts) fold(total, part);
  return total;
}

/// add(lane, i) for all of these, in lanes that the compiler puts side by side.
template <typename Add>
void for_lanes(std::int64_t begin, std::int64_t end, const Add& add) {
  std::int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) add(static_cast<std::size_t>(lane), i + lane);
  for (; i < end; ++i) add(static_cast<std::size_t>(i % kLanes), i);
}

template <typename T>
double lanes_sum(const std::array<T, kLanes>& lanes) {
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}
template <typename T>
double lanes_max(const std::array<T, kLanes>& lanes) {
  return *std::ranges::max_element(lanes);
}

struct Moments {
  double gg = 0, cc = 0, dd = 0;           ///< Sums of squares of golden, candidate and difference.
  double max_g = 0, max_c = 0, max_d = 0;  ///< Largest magnitudes; of no meaning with NaN.
};

template <typename T>
Moments block_moments(const T* g, const T* c, double scale, std::int64_t begin, std::int64_t end) {
  std::array<double, kLanes> gg{}, cc{}, dd{}, max_g{}, max_c{}, max_d{};
  const auto add = [&](std::size_t lane, std::int64_t i) {
    const double x = static_cast<double>(g[i]) * scale, y = static_cast<double>(c[i]) * scale, d = y - x;
    gg[lane] += x * x;
    cc[lane] += y * y;
    dd[lane] += d * d;
    const double ax = std::fabs(x), ay = std::fabs(y), ad = std::fabs(d);
    max_g[lane] = ax > max_g[lane] ? ax : max_g[lane];
    max_c[lane] = ay > max_c[lane] ? ay : max_c[lane];
    max_d[lane] = ad > max_d[lane] ? ad : max_d[lane];
  };
  for_lanes(begin, end, add);
  return {lanes_sum(gg), lanes_sum(cc), lanes_sum(dd), lanes_max(max_g), lanes_max(max_c), lanes_max(max_d)};
}

template <typename T>
Moments moments(const T* g, const T* c, double scale, std::int64_t count) {
  return fold_blocks<Moments>(
      count, kBlock, [&](std::int64_t begin, std::int64_t end) { return block_moments(g, c, scale, begin, end); },
      [](Moments& total, const Moments& part) {
        total.gg += part.gg;
        total.cc += part.cc;
        total.dd += part.dd;
        total.max_g = std::max(total.max_g, part.max_g);
        total.max_c = std::max(total.max_c, part.max_c);
        total.max_d = std::max(total.max_d, part.max_d);
      });
}

/// |g / norm_g - c / norm_c|^2
template <typename T>
double unit_distance(const T* g, const T* c, double scale_g, double scale_c, std::int64_t count) {
  return fold_blocks<double>(
      count, kBlock,
      [&](std::int64_t begin, std::int64_t end) {
        std::array<double, kLanes> sums{};
        for_lanes(begin, end, [&](std::size_t lane, std::int64_t i) {
          const double d = static_cast<double>(g[i]) * scale_g - static_cast<double>(c[i]) * scale_c;
          sums[lane] += d * d;
        });
        return lanes_sum(sums);
      },
      [](double& total, double part) { total += part; });
}

double ratio(double numerator, double denominator) {
  if (numerator == 0) return 0;
  return denominator == 0 ? kInfinity : numerator / denominator;
}

double from_moments(MetricKind kind, const Moments& m, std::int64_t count) {
  switch (kind) {
    case MetricKind::kRelativeL2:
      return ratio(std::sqrt(m.dd), std::sqrt(m.gg));
    case MetricKind::kRelativeMax:
      return ratio(m.max_d, m.max_g);
    case MetricKind::kPsnr:
      if (m.dd == 0) return kInfinity;
      return 20 * std::log10(m.max_g) - 10 * std::log10(m.dd / static_cast<double>(count));
    default:
      if (m.dd == 0) return kInfinity;
      return 10 * (std::log10(m.gg) - std::log10(m.dd));
  }
}

/// Both tensors without the elements that are the same infinity, in float64.
std::pair<Tensor, Tensor> without_equal_infinities(const Tensor& golden, const Tensor& candidate) {
  std::vector<double> g, c;
  with_elements(golden, candidate, [&](const auto* x, const auto* y) {
    for (std::int64_t i = 0; i < golden.size(); ++i) {
      if (std::isinf(x[i]) && x[i] == y[i]) continue;
      g.push_back(static_cast<double>(x[i]));
      c.push_back(static_cast<double>(y[i]));
    }
  });
  const Shape shape{static_cast<std::int64_t>(g.size())};
  return {Tensor::of<double>(shape, std::span<const double>(g)), Tensor::of<double>(shape, std::span<const double>(c))};
}

template <typename T>
double distance_metric(MetricKind kind, const T* g, const T* c, std::int64_t count) {
  // Squares of float64 values may overflow or vanish: then once more in units of the largest. A power of two, so that
  // nothing is rounded.
  double scale = 1;
  Moments m = moments(g, c, scale, count);
  if constexpr (std::is_same_v<T, double>) {
    const double largest = std::max(m.max_g, m.max_c);
    if (std::isfinite(largest) && largest > 0 && (largest > 0x1p400 || largest < 0x1p-400)) {
      scale = std::ldexp(1.0, -std::clamp(std::ilogb(largest), -1000, 1000));
      m = moments(g, c, scale, count);
    }
  }
  if (kind != MetricKind::kOneMinusCos) return from_moments(kind, m, count);
  if (m.gg == 0 || m.cc == 0) return m.gg == m.cc ? 0 : 1;
  return unit_distance(g, c, scale / std::sqrt(m.gg), scale / std::sqrt(m.cc), count) / 2;
}

double distance_metric(MetricKind kind, const Tensor& golden, const Tensor& candidate) {
  if (!all_finite(golden) || !all_finite(candidate)) {
    const NonFinite foreign = count_non_finite(golden, candidate), in_golden = count_non_finite(golden);
    if (foreign.nan + foreign.inf + in_golden.nan > 0) return kNaN;
    const auto [g, c] = without_equal_infinities(golden, candidate);
    if (!all_finite(g)) return kNaN;  // infinite in golden alone
    return distance_metric(kind, g.data<double>(), c.data<double>(), g.size());
  }
  return with_elements(golden, candidate,
                       [&](const auto* g, const auto* c) { return distance_metric(kind, g, c, golden.size()); });
}

/// Rows along the last axis; a scalar is one row.
struct Rows {
  std::int64_t count, length;
};
Rows rows_of(const Tensor& tensor) {
  const std::int64_t length = tensor.rank() == 0 ? 1 : tensor.shape().back();
  return {length == 0 ? 0 : tensor.size() / length, length};
}
std::int64_t rows_per_block(std::int64_t length) { return std::max<std::int64_t>(1, kBlock / length); }

/// The sum over all rows of function(begin of the row).
template <typename Function>
double sum_rows(const Rows& rows, const Function& function) {
  return fold_blocks<double>(
      rows.count, rows_per_block(rows.length),
      [&](std::int64_t begin, std::int64_t end) {
        double sum = 0;
        for (std::int64_t row = begin; row < end; ++row) sum += function(row * rows.length);
        return sum;
      },
      [](double& total, double part) { total += part; });
}

template <typename T>
bool are_probabilities(const T* g, const Rows& rows) {
  const double foreign = sum_rows(rows, [&](std::int64_t at) {
    double sum = 0;
    bool negative = false;
    for (std::int64_t i = at; i < at + rows.length; ++i) {
      negative |= !(g[i] >= 0);
      sum += static_cast<double>(g[i]);
    }
    return negative || !(std::fabs(sum - 1) <= 1e-3) ? 1.0 : 0.0;
  });
  return foreign == 0;
}

/// q - p - p ln(q / p), where r is that logarithm: never negative, and with the digits of small differences. The first
/// two summands vanish in the sum over a distribution.
double kl_term(double p, double q, double r) {
  if (p == 0) return q;
  if (std::fabs(r) < 1e-2) return p * r * r * (0.5 + r * (1.0 / 6 + r * (1.0 / 24 + r * (1.0 / 120 + r / 720))));
  return q - p - p * r;
}

template <typename T>
double kl_of_probabilities(const T* g, const T* c, std::int64_t length) {
  constexpr double kFloor = 1e-12;
  double sum_g = 0, sum_c = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    sum_g += static_cast<double>(g[i]);
    if (std::isnan(c[i])) return kNaN;
    sum_c += std::max(static_cast<double>(c[i]), kFloor);
  }
  double divergence = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    const double p = static_cast<double>(g[i]) / sum_g, q = std::max(static_cast<double>(c[i]), kFloor) / sum_c;
    divergence += kl_term(p, q, p > 0 ? std::log(q / p) : 0);
  }
  return divergence;
}

/// The largest and the logarithm of the sum of exponentials relative to it.
template <typename T>
std::pair<double, double> log_sum_exp(const T* x, std::int64_t length) {
  double largest = -kInfinity, sum = 0;
  for (std::int64_t i = 0; i < length; ++i) largest = std::max(largest, static_cast<double>(x[i]));
  for (std::int64_t i = 0; i < length; ++i) sum += std::exp(static_cast<double>(x[i]) - largest);
  return {largest, std::log(sum)};
}

template <typename T>
double kl_of_logits(const T* g, const T* c, std::int64_t length) {
  const auto [max_g, log_g] = log_sum_exp(g, length);
  const auto [max_c, log_c] = log_sum_exp(c, length);
  if (std::isnan(log_g) || std::isnan(log_c)) return kNaN;
  double divergence = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    const double log_p = (static_cast<double>(g[i]) - max_g) - log_g,
                 log_q = (static_cast<double>(c[i]) - max_c) - log_c;
    divergence += kl_term(std::exp(log_p), std::exp(log_q), log_q - log_p);
  }
  return divergence;
}

double kl(const Tensor& golden, const Tensor& candidate) {
  if (rows_of(golden).length < 2)
    throw invalid_argument(
        "[metric] kl: expected distributions of at least 2 elements along the last axis, got shape {}; try another "
        "metric, or name the outputs to judge",
        to_string(golden.shape()));
  return with_elements(golden, candidate, [&](const auto* g, const auto* c) {
    const Rows rows = rows_of(golden);
    const bool probabilities = are_probabilities(g, rows);
    const double sum = sum_rows(rows, [&](std::int64_t at) {
      return probabilities ? kl_of_probabilities(g + at, c + at, rows.length)
                           : kl_of_logits(g + at, c + at, rows.length);
    });
    return sum / static_cast<double>(rows.count);
  });
}

/// Indices of the k largest, ascending.
template <typename T>
void largest(const T* x, std::int64_t length, std::int64_t k, std::vector<std::int64_t>& order) {
  order.resize(static_cast<std::size_t>(length));
  std::iota(order.begin(), order.end(), 0);
  const auto before = [x](std::int64_t a, std::int64_t b) { return x[a] > x[b] || (x[a] == x[b] && a < b); };
  std::nth_element(order.begin(), order.begin() + k, order.end(), before);
  order.resize(static_cast<std::size_t>(k));
  std::ranges::sort(order);
}

template <typename T>
double top_1_agrees(const T* g, const T* c, std::int64_t length) {
  return std::max_element(g, g + length) - g == std::max_element(c, c + length) - c ? 1.0 : 0.0;
}

double top_k(const Tensor& golden, const Tensor& candidate, std::int64_t k) {
  const Rows rows = rows_of(golden);
  if (k < 1 || k >= rows.length)
    throw invalid_argument(
        "[metric] top-k: expected rows of more than k = {} elements along the last axis, got shape {}, where the {} "
        "largest are always the same; try another k, or name the outputs to judge",
        k, to_string(golden.shape()), rows.length);
  if (count_non_finite(golden).nan + count_non_finite(candidate).nan > 0) return kNaN;
  return with_elements(golden, candidate, [&](const auto* g, const auto* c) {
    if (k == 1)
      return sum_rows(rows, [&](std::int64_t at) { return top_1_agrees(g + at, c + at, rows.length); }) /
             static_cast<double>(rows.count);
    const double common = sum_rows(rows, [&](std::int64_t at) {
      std::vector<std::int64_t> first, second, both;
      largest(g + at, rows.length, k, first);
      largest(c + at, rows.length, k, second);
      std::set_intersection(first.begin(), first.end(), second.begin(), second.end(), std::back_inserter(both));
      return static_cast<double>(both.size());
    });
    return common / static_cast<double>(rows.count * k);
  });
}

double iou(const Tensor& golden, const Tensor& candidate, double level) {
  if (count_non_finite(golden).nan + count_non_finite(candidate).nan > 0) return kNaN;
  struct Counts {
    std::int64_t both = 0, either = 0;
  };
  const Counts counts = with_elements(golden, candidate, [&](const auto* g, const auto* c) {
    return fold_blocks<Counts>(
        golden.size(), kBlock,
        [&](std::int64_t begin, std::int64_t end) {
          Counts part;
          for (std::int64_t i = begin; i < end; ++i) {
            const bool in_g = static_cast<double>(g[i]) > level, in_c = static_cast<double>(c[i]) > level;
            part.both += in_g && in_c;
            part.either += in_g || in_c;
          }
          return part;
        },
        [](Counts& total, const Counts& part) {
          total.both += part.both;
          total.either += part.either;
        });
  });
  return counts.either == 0 ? 1 : static_cast<double>(counts.both) / static_cast<double>(counts.either);
}

}  // namespace

std::string_view name_of(MetricKind kind) { return row_of(kind).name; }

std::optional<MetricKind> metric_from_name(std::string_view name) {
  for (const MetricRow& row : kMetrics)
    if (row.name == name) return row.kind;
  return std::nullopt;
}

const std::vector<std::string>& metric_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const MetricRow& row : kMetrics) result.emplace_back(row.name);
    return result;
  }();
  return names;
}

bool higher_is_better(MetricKind kind) { return row_of(kind).higher_is_better; }

bool rows_are_probabilities(const Tensor& golden) {
  if (golden.size() == 0) return true;
  return with_elements(golden, golden,
                       [&](const auto* g, const auto*) { return are_probabilities(g, rows_of(golden)); });
}

double compute_metric(MetricKind kind, const Tensor& golden, const Tensor& candidate,
                      const MetricParameters& parameters) {
  if (golden.size() == 0) {
    const bool decibels = kind == MetricKind::kPsnr || kind == MetricKind::kSnr;
    return decibels ? kInfinity : higher_is_better(kind) ? 1 : 0;
  }
  switch (kind) {
    case MetricKind::kKl:
      return kl(golden, candidate);
    case MetricKind::kTopK:
      return top_k(golden, candidate, parameters.k);
    case MetricKind::kIou:
      return iou(golden, candidate, parameters.iou_level);
    default:
      return distance_metric(kind, golden, candidate);
  }
}

double share_of_threshold(MetricKind kind, double value, double threshold) {
  if (std::isnan(value)) return kInfinity;
  const bool meets = higher_is_better(kind) ? value >= threshold : value <= threshold;
  double used = 0;
  if (kind == MetricKind::kPsnr || kind == MetricKind::kSnr) {
    used = std::pow(10.0, (threshold - value) / 20);
  } else {
    const double loss = higher_is_better(kind) ? 1 - value : value, room = threshold_as_loss(kind, threshold);
    used = loss <= 0 ? 0 : room > 0 ? loss / room : kInfinity;
  }
  // Rounding must not turn the verdict.
  return meets ? std::min(used, 1.0) : std::max(used, std::nextafter(1.0, 2.0));
}

double threshold_as_loss(MetricKind kind, double threshold) {
  if (kind == MetricKind::kPsnr || kind == MetricKind::kSnr) return std::pow(10.0, -threshold / 20);
  return higher_is_better(kind) ? 1 - threshold : threshold;
}

NonFinite count_non_finite(const Tensor& tensor) {
  NonFinite result;
  if (!is_floating(tensor.type()) || all_finite(tensor)) return result;
  with_elements(tensor, tensor, [&](const auto* x, const auto*) {
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      result.nan += std::isnan(x[i]);
      result.inf += std::isinf(x[i]);
    }
  });
  return result;
}

NonFinite count_non_finite(const Tensor& golden, const Tensor& candidate) {
  NonFinite result;
  if (!is_floating(candidate.type()) || all_finite(candidate)) return result;
  with_elements(golden, candidate, [&](const auto* g, const auto* c) {
    for (std::int64_t i = 0; i < golden.size(); ++i) {
      if (std::isnan(g[i]) || g[i] == c[i]) continue;
      result.nan += std::isnan(c[i]);
      result.inf += std::isinf(c[i]);
    }
  });
  return result;
}

bool all_finite(const Tensor& tensor) {
  if (!is_floating(tensor.type())) return true;
  const Tensor wide = widen(tensor);
  return visit_type(wide.type(), [&]<typename T>(T) {
    if constexpr (std::is_floating_point_v<T>) {
      const T* x = wide.data<T>();
      // x * 0 is NaN exactly for what is not finite.
      const double sum = fold_blocks<double>(
          wide.size(), kBlock,
          [x](std::int64_t begin, std::int64_t end) {
            std::array<T, kLanes> sums{};
            std::int64_t i = begin;
            for (; i + kLanes <= end; i += kLanes)
              for (std::int64_t lane = 0; lane < kLanes; ++lane)
                sums[static_cast<std::size_t>(lane)] += x[i + lane] * 0;
            for (; i < end; ++i) sums[0] += x[i] * 0;
            return lanes_sum(sums);
          },
          [](double& total, double part) { total += part; });
      return sum == 0;
    }
    return true;
  });
}

}  // namespace ulpscope
