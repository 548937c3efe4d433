#include "compare/postprocess.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compare/visit.h"
#include "core/messages.h"
#include "ulpscope/error.h"

namespace ulpscope {

Tensor top_k_indices(const Tensor& tensor, const TopK& top_k) {
  const std::int64_t rank = tensor.rank();
  const std::int64_t axis = top_k.axis < 0 ? top_k.axis + rank : top_k.axis;
  if (axis < 0 || axis >= rank)
    throw invalid_argument("axis " + std::to_string(top_k.axis) + " is out of range for the shape " +
                           to_string(tensor.shape()));
  const auto at = static_cast<std::size_t>(axis);
  const std::int64_t length = tensor.shape()[at];
  const std::int64_t kept = std::min(top_k.k, length);
  std::int64_t inner = 1;
  for (std::size_t i = at + 1; i < tensor.shape().size(); ++i) inner *= tensor.shape()[i];
  Shape shape = tensor.shape();
  shape[at] = kept;
  Tensor result(DataType::kInt64, shape);
  if (result.size() == 0) return result;
  auto* out = result.data<std::int64_t>();
  const std::int64_t outer = tensor.size() / (length * inner);
  const Tensor data = widen(tensor);
  visit_type(data.type(), [&]<typename T>(T) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(length));
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t i = 0; i < inner; ++i) {
        const T* values = data.data<T>() + o * length * inner + i;
        std::iota(order.begin(), order.end(), std::int64_t{0});
        const auto before = [&](std::int64_t a, std::int64_t b) {
          const T x = values[a * inner], y = values[b * inner];
          if constexpr (std::is_floating_point_v<T>) {
            if (std::isnan(x) || std::isnan(y)) return std::isnan(x) == std::isnan(y) ? a < b : std::isnan(y);
          }
          return x == y ? a < b : x > y;
        };
        std::partial_sort(order.begin(), order.begin() + kept, order.end(), before);
        for (std::int64_t k = 0; k < kept; ++k) out[(o * kept + k) * inner + i] = order[static_cast<std::size_t>(k)];
      }
    }
  });
  return result;
}

void apply_top_k(RunResults& results, const PerName<TopK>& top_k) {
  for (auto& runner : results) {
    for (IterationResult& iteration : runner.second) {
      for (NamedTensor& output : iteration.outputs) {
        const TopK* wanted = top_k.find(output.name);
        if (wanted == nullptr) continue;
        try {
          output.tensor = top_k_indices(output.tensor, *wanted);
        } catch (const Error& error) {
          throw Error(error.code(), "[postprocess] output '" + output.name + "': " + error.what() +
                                        "; try another axis in --postprocess");
        }
      }
    }
  }
}

}  // namespace ulpscope
