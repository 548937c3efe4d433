#include "ops/window.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/fail.h"

namespace ulpscope::ops {
namespace {

/// Bounds every number, so that sums and products of two of them fit into 64 bits.
void check_range(const Layer& layer, std::string_view name, const Shape& values) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 30;
  for (std::int64_t value : values)
    if (value < -kLimit || value > kLimit)
      fail(layer, "{} {} are out of range: expected at most {}", name, to_string(values), kLimit);
}

Shape per_dimension(const Layer& layer, std::string_view name, std::size_t rank, std::int64_t default_value) {
  Shape values = layer.attributes.ints(name);
  if (values.empty()) values.assign(rank, default_value);
  if (values.size() != rank)
    fail(layer, "expected {} values in '{}', one per spatial dimension, got {}", rank, name, values.size());
  check_range(layer, name, values);
  return values;
}

void read_strides(const Layer& layer, WindowGeometry& g) {
  check_range(layer, "kernel sizes", g.kernel);
  g.strides = per_dimension(layer, "strides", g.rank(), 1);
  g.dilations = per_dimension(layer, "dilations", g.rank(), 1);
  for (std::size_t i = 0; i < g.rank(); ++i) {
    if (g.strides[i] < 1 || g.dilations[i] < 1 || g.kernel[i] < 1)
      fail(layer, "expected positive strides, dilations and kernel sizes, got {}, {} and {}", to_string(g.strides),
           to_string(g.dilations), to_string(g.kernel));
  }
}

void read_pads(const Layer& layer, WindowGeometry& g) {
  Shape pads = layer.attributes.ints("pads");
  if (pads.empty()) pads.assign(2 * g.rank(), 0);
  if (pads.size() != 2 * g.rank()) fail(layer, "expected {} values in 'pads', got {}", 2 * g.rank(), pads.size());
  check_range(layer, "pads", pads);
  g.pads_begin.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(g.rank()));
  g.pads_end.assign(pads.begin() + static_cast<std::ptrdiff_t>(g.rank()), pads.end());
}

std::string auto_pad_of(const Layer& layer) {
  const std::string mode = layer.attributes.text("auto_pad", "NOTSET");
  if (mode != "NOTSET" && mode != "" && mode != "VALID" && mode != "SAME_UPPER" && mode != "SAME_LOWER")
    fail(layer, "expected 'auto_pad' to be NOTSET, VALID, SAME_UPPER or SAME_LOWER, got '{}'", mode);
  return mode.empty() ? "NOTSET" : mode;
}

/// Pads and output sizes of a forward window (convolution and pooling).
void place_windows(const Layer& layer, WindowGeometry& g, bool ceil_mode) {
  const std::string mode = auto_pad_of(layer);
  read_pads(layer, g);
  g.output.resize(g.rank());
  for (std::size_t i = 0; i < g.rank(); ++i) {
    const std::int64_t extent = (g.kernel[i] - 1) * g.dilations[i] + 1;
    if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
      g.output[i] = (g.input[i] + g.strides[i] - 1) / g.strides[i];
      const std::int64_t total = std::max<std::int64_t>(0, (g.output[i] - 1) * g.strides[i] + extent - g.input[i]);
      g.pads_begin[i] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
      g.pads_end[i] = total - g.pads_begin[i];
      continue;
    }
    if (mode == "VALID") g.pads_begin[i] = g.pads_end[i] = 0;
    const std::int64_t room = g.input[i] + g.pads_begin[i] + g.pads_end[i] - extent;
    if (room < 0 && !(ceil_mode && room + g.strides[i] > 0))
      fail(layer, "a window of {} does not fit into {} elements with pads {} and {} (spatial dimension {})", extent,
           g.input[i], g.pads_begin[i], g.pads_end[i], i);
    const std::int64_t up = ceil_mode ? g.strides[i] - 1 : 0;
    g.output[i] = (room + up) / g.strides[i] + 1;
    // The last window starts inside of the input or its leading pad.
    if (ceil_mode && (g.output[i] - 1) * g.strides[i] >= g.input[i] + g.pads_begin[i]) --g.output[i];
  }
}

WindowGeometry start(const Layer& layer, const Shape& x) {
  if (x.size() < 3) fail(layer, "expected an input (N, C, spatial dimensions...), got shape {}", to_string(x));
  check_range(layer, "input dimensions", x);
  WindowGeometry g;
  g.batch = x[0];
  g.in_channels = g.out_channels = x[1];
  g.input.assign(x.begin() + 2, x.end());
  return g;
}

WindowGeometry start_with_weights(const Layer& layer, const Shape& x, const Shape& w) {
  WindowGeometry g = start(layer, x);
  if (w.size() != x.size()) fail(layer, "expected weights of rank {}, got shape {}", x.size(), to_string(w));
  g.kernel.assign(w.begin() + 2, w.end());
  if (const Shape kernel = layer.attributes.ints("kernel_shape"); !kernel.empty() && kernel != g.kernel)
    fail(layer, "'kernel_shape' is {}, but the weights have shape {}", to_string(kernel), to_string(w));
  g.groups = layer.attributes.integer("group", 1);
  if (g.groups < 1) fail(layer, "expected 'group' >= 1, got {}", g.groups);
  check_range(layer, "weight dimensions and groups", {w[0], w[1], g.groups});
  read_strides(layer, g);
  return g;
}

}  // namespace

Shape WindowGeometry::output_shape() const {
  Shape shape{batch, out_channels};
  shape.insert(shape.end(), output.begin(), output.end());
  return shape;
}

bool WindowGeometry::are_patches() const {
  constexpr std::int64_t kFewPositions = 64;
  if (num_elements(kernel) == 1 && batch * num_elements(output) > kFewPositions) return false;
  for (std::size_t d = 0; d < rank(); ++d)
    if (strides[d] != kernel[d] || dilations[d] != 1 || pads_begin[d] != 0 || pads_end[d] != 0) return false;
  return true;
}

WindowGeometry conv_geometry(const Layer& layer, const Shape& x, const Shape& w) {
  WindowGeometry g = start_with_weights(layer, x, w);
  g.out_channels = w[0];
  if (w[1] * g.groups != g.in_channels || g.out_channels % g.groups != 0)
    fail(layer, "weights {} in {} group(s) do not fit an input of {} channels", to_string(w), g.groups, g.in_channels);
  place_windows(layer, g, false);
  return g;
}

WindowGeometry conv_transpose_geometry(const Layer& layer, const Shape& x, const Shape& w) {
  WindowGeometry g = start_with_weights(layer, x, w);
  if (w[0] != g.in_channels || g.in_channels % g.groups != 0)
    fail(layer, "weights {} in {} group(s) do not fit an input of {} channels", to_string(w), g.groups, g.in_channels);
  g.out_channels = w[1] * g.groups;
  const std::string mode = auto_pad_of(layer);
  read_pads(layer, g);
  const Shape extra = per_dimension(layer, "output_padding", g.rank(), 0);
  Shape wanted = layer.attributes.ints("output_shape");
  if (wanted.size() == g.rank() + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);  // some exporters add N and C
  if (!wanted.empty() && wanted.size() != g.rank())
    fail(layer, "expected {} values in 'output_shape', got {}", g.rank(), wanted.size());
  check_range(layer, "output_shape", wanted);
  const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  g.output.resize(g.rank());
  for (std::size_t i = 0; i < g.rank(); ++i) {
    const std::int64_t full = g.strides[i] * (g.input[i] - 1) + extra[i] + (g.kernel[i] - 1) * g.dilations[i] + 1;
    if (!wanted.empty() || same) {
      const std::int64_t target = wanted.empty() ? g.input[i] * g.strides[i] : wanted[i];
      const std::int64_t total = std::max<std::int64_t>(0, full - target);
      g.pads_begin[i] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
      g.pads_end[i] = total - g.pads_begin[i];
      g.output[i] = wanted.empty() ? full - total : target;
    } else {
      if (mode == "VALID") g.pads_begin[i] = g.pads_end[i] = 0;
      g.output[i] = full - g.pads_begin[i] - g.pads_end[i];
    }
    if (g.output[i] < 0)
      fail(layer, "pads {} and {} leave nothing of {} elements", g.pads_begin[i], g.pads_end[i], full);
  }
  return g;
}

WindowGeometry pool_geometry(const Layer& layer, const Shape& x) {
  WindowGeometry g = start(layer, x);
  g.groups = g.in_channels;
  g.kernel = layer.attributes.required_ints("kernel_shape");
  if (g.kernel.size() != g.rank())
    fail(layer, "expected {} values in 'kernel_shape', got {}", g.rank(), g.kernel.size());
  read_strides(layer, g);
  place_windows(layer, g, layer.attributes.integer("ceil_mode", 0) != 0);
  return g;
}

bool averages_in_double(const Shape& kernel) {
  constexpr std::int64_t kLongest = 4096;
  return num_elements(kernel) > kLongest;
}

Window3 to_window3(const Layer& layer, const WindowGeometry& g) {
  if (g.rank() > 3)
    fail(layer, fmt::format("has kernels for up to 3 spatial dimensions, got {}", g.rank()), ErrorCode::kUnsupported);
  Window3 w;
  for (std::size_t i = 0; i < g.rank(); ++i) {
    const std::size_t to = 3 - g.rank() + i;
    w.input[to] = g.input[i];
    w.kernel[to] = g.kernel[i];
    w.strides[to] = g.strides[i];
    w.dilations[to] = g.dilations[i];
    w.pads_begin[to] = g.pads_begin[i];
    w.pads_end[to] = g.pads_end[i];
    w.output[to] = g.output[i];
  }
  return w;
}

OutputRange valid_outputs(std::int64_t outputs, std::int64_t inputs, std::int64_t stride,
                          std::int64_t offset) noexcept {
  std::int64_t begin = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
  const std::int64_t last = inputs - 1 - offset;
  std::int64_t end = last < 0 ? 0 : last / stride + 1;
  begin = std::min(begin, outputs);
  end = std::clamp(end, begin, outputs);
  return {begin, end};
}

}  // namespace ulpscope::ops
