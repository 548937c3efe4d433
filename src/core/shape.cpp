#include "ulpscope/shape.h"

#include <fmt/format.h>

#include "core/messages.h"
#include "ulpscope/error.h"

namespace ulpscope {

std::int64_t num_elements(const Shape& shape) {
  std::int64_t product = 1;
  bool overflow = false;
  for (std::int64_t dim : shape) {
    if (dim < 0) throw InternalError(fmt::format("num_elements of the unknown shape {}", to_string(shape)));
    overflow |= __builtin_mul_overflow(product, dim, &product);
    if (dim == 0) return 0;
  }
  if (overflow) throw invalid_argument("shape {} has more elements than 64 bits count", to_string(shape));
  return product;
}

std::string to_string(const Shape& shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

std::string to_option_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

}  // namespace ulpscope
