// Channel equalization by powers of two: a repair for int8. One scale serves a whole activation; where some channels
// are much larger than the others, dividing them by powers of two, in the constants of the layer that makes them, and
// multiplying the weights that meet them, changes no bit in floating point but makes the integer steps finer.
// Nagel, van Baalen, Blankevoort and Welling, "Data-free quantization through weight equalization and bias correction"
// (ICCV 2019); Xiao, Lin, Seznec, Wu, Demouth and Han, "SmoothQuant" (ICML 2023). Powers of two keep it exact.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "calibration/calibration.h"
#include "engine/specialization.h"
#include "graph/assignment.h"
#include "graph/network.h"

namespace ulpscope {

/// A tensor whose channels are rescaled for the products that read it.
struct Equalization {
  std::string tensor;
  /// Where nothing around the tensor can take the factors, because others read it too or its producer has no constant:
  /// a layer is added that multiplies by them, a step that quantizing kernels do on the way, and the readers get its
  /// output. The tensor itself stays as it is.
  bool copies = false;
  std::string producer;              ///< The layer that computes it; empty for an input,
  std::vector<std::string> readers;  ///< and the products that read it.
  /// Per channel: values are divided by 2^e, weights that meet them multiplied by it.
  std::vector<std::int8_t> exponents;
  float scale_before = 0, scale_after = 0;  ///< int8 scales of the tensor, or of its copy.
};

/// The tensors that can be equalized, with their channel axes: read by int8 products with constant weights (MatMul and
/// Gemm along their last axis, Conv and ConvTranspose along axis 1). Constants take the factors where those are the
/// only readers, the tensor is no output, and it is computed by Mul or Div by a constant, by a product with constant
/// weights or by a normalization; between them may lie Add and Sub of constants, Relu, LeakyRelu, PRelu, MaxPool and
/// Identity, if nothing else reads what lies between. Layers of `low` that quantize the constant take none. In network
/// order.
std::vector<ChannelAxis> equalizable_tensors(const Specialization& spec, const Assignment& low);

/// Chooses exponents for them that minimize the estimated squared error of their readers in int8: of activation steps
/// and of weight steps, each output channel with its own. Returned are those whose estimate falls by at least half.
/// `ranges`: of the equalizable tensors; those without an entry or without a scale in `scales` are left out.
std::vector<Equalization> find_equalizations(const Specialization& spec, const Assignment& low,
                                             const std::map<std::string, ChannelRange>& ranges,
                                             const std::map<std::string, float>& scales);

/// Rescales the constants of the producer (or adds the layer that copies: ids of later layers grow by one) and of the
/// readers, and sets the scale of the tensor or of its copy. Constants are replaced by new tensors, so that other
/// layers that read them keep theirs. Scales of tensors between the producer and the tensor stay: they remain upper
/// bounds, and no layer quantizes by them. Throws Error(kInvalidArgument) for a tensor that the network does not have
/// or that cannot be equalized, for another number of channels, and for exponents by which a constant would not be
/// rescaled exactly; then nothing was changed.
void apply_equalization(Network& network, std::map<std::string, float>& scales, const Equalization& equalization);

}  // namespace ulpscope
