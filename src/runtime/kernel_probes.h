// Small networks of random sizes that a GPU is measured with, for the model of its kernels (engine/kernel_model.h).
#pragma once

#include <string>

#include "graph/network.h"
#include "ulpscope/shape.h"

namespace ulpscope {

struct KernelProbe {
  std::string name;  ///< "convolutions 17".
  Network network;   ///< One input, "x".
  Shape input;
};

/// Numbers from here on are products of few rows by large matrices, as decoders have them, for weights of a few bits.
inline constexpr int kFirstOfFewRows = 100'000;
/// And from here on blocks with convolutions in groups of channels (ResNeXt, RegNet).
inline constexpr int kFirstOfGroups = 200'000;

/// Network `number`, the same at every call: some blocks of one kind in a row (convolutions, depthwise convolutions,
/// products, transformers, rows, pyramids of images, recurrent layers), each kind in turn. Constants are small.
KernelProbe kernel_probe(int number);

}  // namespace ulpscope
