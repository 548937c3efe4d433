#include "backend/strides.h"

namespace ulpscope {

std::vector<std::int64_t> channels_last_strides(const Shape& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t next = shape[1];
  strides[1] = 1;
  for (std::size_t d = shape.size(); d-- > 2; next *= shape[d]) strides[d] = next;
  strides[0] = next;
  return strides;
}

}  // namespace ulpscope
