#include "formats/encoding.h"

#include <fmt/format.h>

namespace ulpscope {

ScaleLayout::ScaleLayout(const Encoding& encoding, const Shape& shape) {
  if (encoding.granularity == Granularity::kNone || encoding.granularity == Granularity::kTensor) return;
  const auto at = static_cast<std::size_t>(encoding.axis);
  shared = false;
  blocked = encoding.granularity == Granularity::kBlock;
  axis = shape[at];
  for (std::size_t d = at + 1; d < shape.size(); ++d) inner *= shape[d];
  block = blocked ? encoding.block : 1;
  groups = (axis + block - 1) / block;
  scales = blocked ? shape : Shape{axis};
  if (blocked) scales[at] = groups;
}

std::string to_string(const Encoding& encoding) {
  const std::string_view format = format_of(encoding.format).name, scale = format_of(encoding.scale).name;
  if (encoding.granularity == Granularity::kNone) return std::string(format);
  std::string text = encoding.second_scale ? fmt::format("{} * ({} * fp32) per ", format, scale)
                                           : fmt::format("{} * {} per ", format, scale);
  if (encoding.granularity == Granularity::kTensor) return text + "tensor";
  text += encoding.granularity == Granularity::kBlock ? fmt::format("block of {}", encoding.block) : "channel";
  if (encoding.axis >= 0) text += fmt::format(" of axis {}", encoding.axis);
  if (encoding.rule == BlockScale::kLargestRoundedDown) text += ", rounded down";
  return encoding.rule == BlockScale::kLeastError ? text + ", of least error" : text;
}

}  // namespace ulpscope
