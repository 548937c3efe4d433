#include "runtime/kernel_probes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "ops/layer_writer.h"

namespace ulpscope {
namespace {

constexpr int kOpset = 20;
using Ints = LayerWriter::Ints;

/// Small numbers of both signs.
Tensor small_numbers(const Shape& shape) {
  Tensor tensor(DataType::kFloat32, shape);
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.data<float>()[i] = static_cast<float>(i * 7 % 13 - 6) * 0.01f;
  return tensor;
}

enum class Act : std::uint8_t { kNone, kRelu, kSilu, kHardSwish, kClip, kGelu };

/// Layers as they are written, and what they are made of.
class Blocks : public LayerWriter {
 public:
  explicit Blocks(std::uint32_t seed) : LayerWriter(network_, kOpset), random_(seed) {}

  /// The input of a network of this kind.
  TensorId begin(const char* kind, const Shape& shape) {
    kind_ = kind;
    return input("x", shape_ = shape);
  }
  KernelProbe finish(int number, TensorId output) {
    network_.outputs = {output};
    return {fmt::format("{} {}", kind_, number), std::move(network_), std::move(shape_)};
  }
  /// From `least` to `most`, as likely in every octave, a multiple of `step`.
  std::int64_t size(std::int64_t least, std::int64_t most, std::int64_t step = 1) {
    const double u = std::uniform_real_distribution<double>(std::log(least), std::log(most))(random_);
    const auto value = static_cast<std::int64_t>(std::exp(u));
    return std::max(step, (value + step / 2) / step * step);
  }
  /// The same in steps as networks have them.
  std::int64_t channels(std::int64_t least, std::int64_t most) {
    return size(least, most, one_of<std::int64_t>({8, 16, 16, 32, 32, 64}));
  }
  template <typename T>
  T one_of(std::initializer_list<T> choices) {
    return *(choices.begin() + std::uniform_int_distribution<std::size_t>(0, choices.size() - 1)(random_));
  }

  /// A tensor that its reader prepares.
  TensorId weight(const Shape& shape) {
    return initializer(fmt::format("w{}", network_.tensors.size()), small_numbers(shape));
  }
  TensorId ints(const Ints& values) {
    return initializer(fmt::format("i{}", network_.tensors.size()),
                       Tensor::of<std::int64_t>({static_cast<std::int64_t>(values.size())}, values));
  }

  TensorId conv(TensorId x, std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride = 1,
                std::int64_t groups = 1) {
    return convolve({x, weight({out, in / groups, kernel, kernel}), weight({out})},
                    {{"kernel_shape", Ints{kernel, kernel}},
                     {"strides", Ints{stride, stride}},
                     {"pads", Ints(4, kernel / 2)},
                     {"group", groups}});
  }
  TensorId dense(TensorId x, std::int64_t in, std::int64_t out) {
    return add(product(x, constant(small_numbers({in, out}))), constant(small_numbers({out})));
  }
  TensorId norm(TensorId x, std::int64_t wide) { return layer_norm(x, weight({wide}), weight({wide})); }
  TensorId reshaped(TensorId x, const Ints& shape) { return reshape(x, ints(shape)); }
  TensorId act(TensorId x, Act kind) {
    switch (kind) {
      case Act::kRelu:
        return relu(x);
      case Act::kSilu:
        return multiply(x, sigmoid(x));
      case Act::kHardSwish:
        return hard_swish(x);
      case Act::kClip:
        return clip(x, constant(Tensor::scalar(0.0f)), constant(Tensor::scalar(6.0f)));
      case Act::kGelu:
        return gelu(x);
      case Act::kNone:
        break;
    }
    return x;
  }
  Act any_act() {
    return one_of({Act::kRelu, Act::kRelu, Act::kSilu, Act::kSilu, Act::kHardSwish, Act::kClip, Act::kNone});
  }

 private:
  Network network_;
  const char* kind_ = "";
  Shape shape_;
  std::mt19937 random_;
};

/// Operations of a layer, and elements of a tensor, that are enough.
constexpr double kMostOperations = 4e9, kMostOfProducts = 1e10, kMostElements = 1.2e7;

/// Sides of images of so many channels that keep a convolution below the limit.
std::int64_t side_for(Blocks& b, std::int64_t channels, double operations_per_position) {
  std::int64_t side = b.size(5, 160);
  const auto too_large = [&] {
    const auto positions = static_cast<double>(side * side);
    return operations_per_position * positions > kMostOperations ||
           static_cast<double>(channels) * positions > kMostElements;
  };
  while (side > 5 && too_large()) side = side * 3 / 4;
  return side;
}

TensorId convolutions(Blocks& b) {
  const std::int64_t batch = b.one_of<std::int64_t>({1, 1, 2, 8}), wide = b.channels(16, 640),
                     inner = b.channels(16, 512), first = b.one_of<std::int64_t>({1, 1, 3, 3, 5}),
                     second = b.one_of<std::int64_t>({1, 3});
  const std::int64_t side =
      side_for(b, batch * std::max(wide, inner),
               2.0 * static_cast<double>(batch * wide * inner * std::max(first * first, second * second)));
  const Act act = b.any_act();
  const bool residual = b.one_of({true, false});
  TensorId x = b.begin("convolutions", {batch, wide, side, side});
  for (int block = 0; block < 3; ++block) {
    TensorId y = b.conv(b.act(b.conv(x, wide, inner, first), act), inner, wide, second);
    if (residual) y = b.add(y, x);
    x = b.act(y, act);
  }
  return x;
}

TensorId bottlenecks(Blocks& b) {
  const std::int64_t batch = b.one_of<std::int64_t>({1, 1, 2, 8}), inner = b.channels(32, 512), wide = 4 * inner;
  const std::int64_t side = side_for(b, batch * wide, 18.0 * static_cast<double>(batch * inner * inner));
  const Act act = b.one_of({Act::kRelu, Act::kRelu, Act::kSilu});
  TensorId x = b.begin("bottlenecks", {batch, wide, side, side});
  for (int block = 0; block < 3; ++block) {
    const TensorId y = b.act(b.conv(b.act(b.conv(x, wide, inner, 1), act), inner, inner, 3), act);
    x = b.act(b.add(b.conv(y, inner, wide, 1), x), act);
  }
  return x;
}

/// A whole classifier: an image of three channels, halved in every stage.
TensorId stages(Blocks& b) {
  const std::int64_t batch = b.one_of<std::int64_t>({1, 1, 2, 8}), side = b.size(64, 320, 32),
                     kernel = b.one_of<std::int64_t>({3, 3, 5, 7});
  std::int64_t wide = b.channels(16, 64);
  const Act act = b.any_act();
  const bool pools = b.one_of({true, false});
  TensorId x = b.act(b.conv(b.begin("stages", {batch, 3, side, side}), 3, wide, kernel, 2), act);
  if (pools) x = b.max_pool(x, {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"pads", Ints(4, 1)}});
  for (int stage = 0; stage < 3; ++stage) {
    x = b.act(b.conv(x, wide, 2 * wide, 3, 2), act);
    wide *= 2;
    x = b.act(b.conv(x, wide, wide, b.one_of<std::int64_t>({1, 3})), act);
  }
  return b.dense(b.mean(x, b.ints({2, 3}), false), wide, 1000);
}

TensorId depthwise(Blocks& b) {
  const std::int64_t batch = b.one_of<std::int64_t>({1, 1, 2, 8}), wide = b.size(16, 256, 8),
                     inner = wide * b.one_of<std::int64_t>({1, 3, 6}), kernel = b.one_of<std::int64_t>({3, 3, 5, 7});
  const std::int64_t side = side_for(b, batch * inner, 2.0 * static_cast<double>(batch * wide * inner));
  const Act act = b.any_act();
  const bool excites = b.one_of({true, false});
  TensorId x = b.begin("depthwise", {batch, wide, side, side});
  for (int block = 0; block < 2; ++block) {
    TensorId y = b.act(b.conv(x, wide, inner, 1), act);
    y = b.act(b.conv(y, inner, inner, kernel, 1, inner), act);
    if (excites) {
      const std::int64_t few = std::max<std::int64_t>(8, inner / 4 / 8 * 8);
      const TensorId means = b.mean(y, b.ints({2, 3}), true);
      const TensorId s = b.act(b.conv(means, inner, few, 1), Act::kRelu);
      y = b.multiply(y, b.sigmoid(b.conv(s, few, inner, 1)));
    }
    x = b.add(b.conv(y, inner, wide, 1), x);
  }
  return x;
}

/// Large windows per channel, then products over the channels, which are innermost meanwhile.
TensorId grouped(Blocks& b) {
  const std::int64_t batch = b.one_of<std::int64_t>({1, 1, 2, 8}),
                     each = b.one_of<std::int64_t>({4, 8, 8, 16, 24, 32, 64}),
                     groups = b.size(2, std::max<std::int64_t>(2, 1024 / each)), inner = groups * each,
                     wide = b.one_of<std::int64_t>({1, 2}) * inner;
  const std::int64_t side = side_for(b, batch * wide, 2.0 * static_cast<double>(batch * inner * (2 * wide + 9 * each)));
  const Act act = b.any_act();
  const bool residual = b.one_of({true, false});
  const std::int64_t kernel = b.one_of<std::int64_t>({3, 3, 3, 5});
  TensorId x = b.begin("grouped", {batch, wide, side, side});
  for (int block = 0; block < 3; ++block) {
    TensorId y = b.act(b.conv(x, wide, inner, 1), act);
    for (int layer = 0; layer < 2; ++layer) y = b.act(b.conv(y, inner, inner, kernel, 1, groups), act);
    y = b.conv(y, inner, wide, 1);
    x = b.act(residual ? b.add(y, x) : y, act);
  }
  return x;
}

TensorId channels_last(Blocks& b) {
  const std::int64_t batch = b.one_of<std::int64_t>({1, 1, 2, 8}), wide = b.channels(32, 512),
                     kernel = b.one_of<std::int64_t>({5, 7});
  const std::int64_t side = side_for(b, 4 * batch * wide, 8.0 * static_cast<double>(batch * wide * wide));
  TensorId x = b.begin("channels_last", {batch, wide, side, side});
  for (int block = 0; block < 3; ++block) {
    TensorId y = b.transpose(b.conv(x, wide, wide, kernel, 1, wide), {0, 2, 3, 1});
    y = b.dense(b.act(b.dense(b.norm(y, wide), wide, 4 * wide), Act::kGelu), 4 * wide, wide);
    x = b.add(b.transpose(y, {0, 3, 1, 2}), x);
  }
  return x;
}

/// Two products with an activation between them, behind a normalization and beside a residual if `normed`.
TensorId two_products(Blocks& b, TensorId x, std::int64_t wide, std::int64_t inner, Act act, bool normed) {
  const TensorId y = b.dense(b.act(b.dense(normed ? b.norm(x, wide) : x, wide, inner), act), inner, wide);
  return normed ? b.add(y, x) : y;
}

TensorId products(Blocks& b) {
  const std::int64_t wide = b.channels(32, 2048), inner = b.channels(32, 4096);
  std::int64_t rows = b.size(1, 4096);
  while (2.0 * static_cast<double>(rows * wide * inner) > kMostOfProducts) rows /= 2;
  const Act act = b.one_of({Act::kNone, Act::kRelu, Act::kGelu, Act::kSilu});
  const bool normed = b.one_of({true, false});
  TensorId x = b.begin("products", {rows, wide});
  for (int block = 0; block < 3; ++block) x = two_products(b, x, wide, inner, act, normed);
  return x;
}

/// As many blocks as have matrices that no cache keeps, up to what a process should take for them.
TensorId few_rows(Blocks& b) {
  constexpr std::int64_t kEnough = 96 << 20;
  const std::int64_t rows = b.one_of<std::int64_t>({1, 1, 1, 2, 4, 8}), wide = b.size(512, 4096, 64),
                     inner = std::min<std::int64_t>(b.size(1024, 16384, 64), kEnough / 2 / wide / 64 * 64);
  const Act act = b.one_of({Act::kNone, Act::kRelu, Act::kGelu, Act::kSilu});
  const bool normed = b.one_of({true, false});
  const std::int64_t most = b.one_of<std::int64_t>({2, 8, 16});
  TensorId x = b.begin("few_rows", {rows, wide});
  for (std::int64_t block = 0; block < std::clamp<std::int64_t>(kEnough / (2 * wide * inner), 1, most); ++block)
    x = two_products(b, x, wide, inner, act, normed);
  return x;
}

TensorId transformer(Blocks& b) {
  const std::int64_t batch = b.one_of<std::int64_t>({1, 1, 2, 8}), heads = b.one_of<std::int64_t>({2, 4, 8, 12, 16}),
                     each = b.one_of<std::int64_t>({32, 64}), wide = heads * each;
  std::int64_t length = b.size(16, 512);
  while (8.0 * static_cast<double>(batch * length * wide * wide) > kMostOfProducts) length /= 2;
  const Act act = b.one_of({Act::kGelu, Act::kRelu, Act::kSilu});
  const bool gated = act == Act::kSilu, masked = b.one_of({true, false});
  TensorId x = b.begin("transformer", {batch, length, wide});
  const auto split = [&](TensorId y, std::vector<std::int64_t> order) {
    return b.transpose(b.reshaped(b.dense(y, wide, wide), {batch, length, heads, each}), std::move(order));
  };
  for (int block = 0; block < 2; ++block) {
    const TensorId y = b.norm(x, wide);
    const TensorId q = split(y, {0, 2, 1, 3}), k = split(y, {0, 2, 3, 1}), v = split(y, {0, 2, 1, 3});
    const TensorId scale = b.constant(Tensor::scalar(0.125f));
    TensorId scores = b.multiply(b.product(q, k), scale);
    if (masked) scores = b.add(scores, b.constant(small_numbers({1, 1, length, length})));
    const TensorId mixed = b.product(b.softmax(scores), v);
    const TensorId joined = b.reshaped(b.transpose(mixed, {0, 2, 1, 3}), {batch, length, wide});
    x = b.add(b.dense(joined, wide, wide), x);
    const TensorId z = b.norm(x, wide);
    TensorId inner = b.act(b.dense(z, wide, 4 * wide), act);
    if (gated) inner = b.multiply(inner, b.dense(z, wide, 4 * wide));
    x = b.add(b.dense(inner, 4 * wide, wide), x);
  }
  return x;
}

/// Reductions with transpositions, joints and cuts between: nothing to compute along with them.
TensorId rows(Blocks& b) {
  const std::int64_t count = b.size(8, 8192), wide = b.size(16, 2048, 8);
  TensorId x = b.begin("rows", {count, wide});
  for (int block = 0; block < 4; ++block) {
    x = b.softmax(b.transpose(b.norm(x, wide), {1, 0}));
    x = b.concat({b.sigmoid(x), x}, 0);
    const std::vector<TensorId> halves = b.halves(x, 0);
    x = b.transpose(b.subtract(halves[0], halves[1]), {1, 0});
  }
  return x;
}

TensorId pyramid(Blocks& b) {
  const std::int64_t batch = b.one_of<std::int64_t>({1, 1, 2, 8}), wide = b.channels(16, 256);
  const std::int64_t side =
      std::max<std::int64_t>(8, side_for(b, 2 * batch * wide, 18.0 * static_cast<double>(batch * wide * wide)) / 4 * 4);
  const Act act = b.any_act();
  const std::string mode = b.one_of<const char*>({"nearest", "linear"});
  const auto pool = b.one_of({&Blocks::max_pool, &Blocks::max_pool, &Blocks::average_pool});
  const std::int64_t window = b.one_of<std::int64_t>({3, 5});
  TensorId x = b.begin("pyramid", {batch, wide, side, side});
  const TensorId scales = b.constant(Tensor::of<float>({4}, {1, 1, 2, 2}));
  for (int block = 0; block < 2; ++block) {
    const TensorId half = b.act(b.conv(x, wide, wide, 3, 2), act);
    const TensorId pooled = b.max_pool(x, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
    const TensorId both = b.concat({half, pooled}, 1);
    const TensorId y = b.act(b.conv(both, 2 * wide, wide, 1), act);
    const TensorId smoothed =
        (b.*pool)(y, {{"kernel_shape", Ints{window, window}}, {"strides", Ints{1, 1}}, {"pads", Ints(4, window / 2)}});
    const TensorId large = b.resize(smoothed, scales, mode);
    x = b.act(b.conv(b.concat({large, x}, 1), 2 * wide, wide, 1), act);
  }
  return x;
}

TensorId recurrent(Blocks& b) {
  const std::int64_t steps = b.size(4, 128), sequences = b.one_of<std::int64_t>({1, 1, 4, 8}),
                     wide = b.channels(32, 512), hidden = b.channels(32, 512),
                     directions = b.one_of<std::int64_t>({1, 2});
  const TensorId x = b.begin("recurrent", {steps, sequences, wide});
  return b.lstm({x, b.weight({directions, 4 * hidden, wide}), b.weight({directions, 4 * hidden, hidden})},
                {{"hidden_size", hidden}, {"direction", std::string(directions == 2 ? "bidirectional" : "forward")}});
}

}  // namespace

KernelProbe kernel_probe(int number) {
  using Maker = TensorId (*)(Blocks&);
  static constexpr std::array<Maker, 16> kMakers{
      convolutions,  products,     depthwise, bottlenecks, transformer, pyramid,     stages,   products,
      channels_last, convolutions, depthwise, transformer, rows,        bottlenecks, products, recurrent};
  Blocks blocks(static_cast<std::uint32_t>(number) * 2654435761u + 1);
  const Maker make = number >= kFirstOfGroups    ? grouped
                     : number >= kFirstOfFewRows ? few_rows
                                                 : kMakers[static_cast<std::size_t>(number) % kMakers.size()];
  return blocks.finish(number, make(blocks));
}

}  // namespace ulpscope
