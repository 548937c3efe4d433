// What a group is to a GPU: by its operators, shapes and types.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <set>

#include "engine/cost.h"
#include "engine/kernel_model.h"
#include "engine/narrow_limits.h"
#include "graph/deferred_fold.h"
#include "ops/forms.h"
#include "ops/window.h"

namespace ulpscope {
namespace {

/// Libraries take convolutions of as many input channels per group, and of integers in multiples of so many; others are
/// generated kernels, with all that follows in them.
constexpr std::int64_t kFewChannels = 8, kIntegerChannels = 16, kWholeWord = 4;

/// The form of weights alone that is nearest to what a file has behind a DequantizeLinear: of its format, in blocks no
/// larger than those of the file where there are such.
std::optional<Precision> form_of_file(const Tensor& weights, bool transposed) {
  const auto stored = dequantized_matrix(weights, transposed);
  if (!stored || !has_narrow_words(stored->codes.k, stored->codes.block)) return std::nullopt;
  const std::int64_t block =
      stored->elements->layout().blocked ? stored->codes.block : std::numeric_limits<std::int64_t>::max();
  std::optional<Precision> found;
  std::int64_t of_found = 0;
  for (const LayerForm& form : layer_forms()) {
    if (!form.is_of_weights() || form.weight.encoding->format != stored->codes.format) continue;
    const std::int64_t own =
        form.weight.encoding->granularity == Granularity::kBlock ? form.weight.encoding->block : block;
    if (!found || (own <= block ? own > of_found || of_found > block : own < of_found))
      found = form.precision, of_found = own;
  }
  return found;
}

/// Of a group in a precision, with the bytes per element of tensors that it reads and stores. `floats`: what layers
/// read whose weights alone are elements.
class WorkOfGroup {
 public:
  using BytesOf = std::function<double(TensorId)>;
  WorkOfGroup(const Specialization& spec, const Group& group, Precision precision, DataType floats, BytesOf bytes_of)
      : spec_(spec),
        network_(*spec.network),
        group_(group),
        of_weights_(is_of_weights(precision) ? std::optional(precision) : weights_in_file(precision)),
        precision_(is_of_weights(precision) ? *precision_from_type(floats) : precision),
        bytes_of_(std::move(bytes_of)) {}

  std::optional<KernelWork> work(int together) {
    const std::optional<KernelKind> kind = kind_of_group();
    if (!kind) return std::nullopt;
    const bool narrow = *kind == KernelKind::kNarrow;
    KernelWork result{.kind = *kind,
                      .precision = narrow              ? *of_weights_
                                   : multiplies(*kind) ? precision_
                                                       : Precision::kFP32};
    const auto set = [&](KernelTerm term, double value) { result.terms[static_cast<std::size_t>(term)] = value; };
    if (narrow) together = 1;
    set(KernelTerm::kCall, 1.0 / together);
    add_bytes(form_of(result.precision), set);
    if (!multiplies(*kind)) return result;
    double products = 0;
    for (const LayerId id : group_.layers) products += work_of(spec_, network_.layer(id)).multiply_adds;
    set(KernelTerm::kGop, 2e-9 * products);
    set(KernelTerm::kDepth, depth(*kind) / together);
    const bool generated = narrow || *kind == KernelKind::kTiled || *kind == KernelKind::kDepthwise;
    if (!generated && needs_program(*kind)) {
      set(KernelTerm::kProgram, 1.0 / together);
      set(KernelTerm::kProgramMb, 8e-6 * elements_of(spec_, head().outputs[0]));
    }
    return result;
  }

 private:
  /// Of a product that reads elements of the file.
  std::optional<Precision> weights_in_file(Precision precision) const {
    const Layer& product = head();
    if (!form_of(precision).is_float() || product.op->multiply_adds == nullptr || product.inputs.size() < 2 ||
        !spec_.is_constant(product.inputs[1]))
      return std::nullopt;
    const auto form = ops::matrix_form(product);
    return form ? form_of_file(spec_.value(product.inputs[1]), form->transpose_b) : std::nullopt;
  }

  /// The CUDA backend keeps scores of up to about so many in registers.
  static constexpr double kManyKeys = 384;

  const Layer& layer(std::size_t i) const { return network_.layer(group_.layers[i]); }
  /// The product that the group begins with, if it does.
  const Layer& head() const { return layer(0); }

  std::optional<KernelKind> kind_of_group() const {
    if (group_.kind == GroupKind::kAttention || head().op->name == "Attention")
      return 1e3 * keys() > kManyKeys ? KernelKind::kLong : KernelKind::kAttention;
    if (head().op->multiply_adds != nullptr) {
      if (head().op->kind != OpKind::kContraction) return KernelKind::kRecurrent;
      if (ops::is_convolution(head())) return kind_of_convolution();
      if (of_weights_ && has_few_rows()) return KernelKind::kNarrow;
      return is_quantized(precision_) && has_odd_sizes() ? KernelKind::kTiled : KernelKind::kProduct;
    }
    if (!stores_floats()) return std::nullopt;
    if (group_.kind == GroupKind::kRow) return KernelKind::kRow;
    return kind_of_layer(layer(group_.layers.size() - 1));
  }

  /// The library multiplies integers in fours; others are convolutions of one tap. (197 keys of a vision transformer.)
  bool has_odd_sizes() const {
    const Shape* result = shape_of(head().outputs[0]);
    if (result == nullptr || result->empty()) return false;
    const auto k = std::llround(1e3 * depth(KernelKind::kProduct));
    return result->back() % kWholeWord != 0 || k % kWholeWord != 0;
  }

  /// Of 16 bits, by a matrix in whole words: of more rows, or other sizes, it is dequantized when the plan is made.
  bool has_few_rows() const {
    const Shape *left = shape_of(head().input(0)), *right = shape_of(head().input(1));
    if (left == nullptr || left->size() < 2 || right == nullptr || right->size() != 2 || right->front() == 0)
      return false;
    return storage_of(precision_) != DataType::kFloat32 && spec_.is_constant(head().input(1)) &&
           left->back() % kNarrowWord == 0 &&
           num_elements(*left) / std::max<std::int64_t>(1, left->back()) <= kMostNarrowRows;
  }

  KernelKind kind_of_convolution() const {
    const Shape *weights = shape_of(head().input(1)), *input = shape_of(head().input(0));
    if (weights == nullptr || input == nullptr) return KernelKind::kConvolution;
    const auto groups = head().attributes.integer("group", 1);
    const bool transposed = ops::is_transposed_convolution(head()), integers = is_quantized(precision_);
    const std::int64_t channels = transposed ? (*weights)[0] / groups : (*weights)[1];
    if (groups > 1 && channels == 1 && !transposed && (*weights)[0] == groups && groups % kFewChannels == 0)
      return KernelKind::kDepthwise;
    if ((groups > 1 && channels < kFewChannels) || (integers && channels % kIntegerChannels != 0))
      return KernelKind::kTiled;
    if (groups > 1) return KernelKind::kGrouped;
    const bool patches = !integers && !transposed && ops::conv_geometry(head(), *input, *weights).are_patches();
    return patches ? KernelKind::kProduct : is_irregular(channels) ? KernelKind::kIrregular : KernelKind::kConvolution;
  }

  bool is_narrow() const { return form_of(precision_).read_type() != DataType::kFloat32; }

  /// Libraries have their fast kernels for images, without gaps, whose channels in 16 bits are whole words of 16 bytes;
  /// channels of an image are filled up. What integers take does not differ by that.
  bool is_irregular(std::int64_t channels) const {
    if (is_quantized(precision_)) return false;
    const Shape& weights = *shape_of(head().input(1));
    const std::vector<std::int64_t> dilations = head().attributes.ints("dilations");
    const auto aligned = [&](std::int64_t count) { return count % kFewChannels == 0 || count < kWholeWord; };
    return weights.size() > 4 || std::ranges::any_of(dilations, [](std::int64_t d) { return d > 1; }) ||
           (is_narrow() && !(aligned(channels) && aligned(weights[0])));
  }

  std::optional<KernelKind> kind_of_layer(const Layer& last) const {
    if (ops::is_view(last, spec_.known_inputs(last)) || last.op->views) return std::nullopt;
    if (last.op->function == Function::kGlobalAveragePool) return KernelKind::kRow;
    if (last.op->kind == OpKind::kPooling || ops::is_resize(last)) return KernelKind::kWindow;
    if (last.op->kind == OpKind::kReduction || last.op->kind == OpKind::kSoftmax ||
        (last.op->kind == OpKind::kNormalization && !is_scale_shift(spec_, last)))
      return KernelKind::kRow;
    const auto rank =
        static_cast<std::int64_t>(shape_of(last.input(0)) != nullptr ? shape_of(last.input(0))->size() : 0);
    const bool gathers = ops::gather_axis(last, rank).has_value() || ops::is_pad(last);
    if (last.op->moves_values && !gathers) return KernelKind::kView;
    if (last.op->precision == PrecisionRule::kMovement || ops::is_where(last) || ops::is_cast(last))
      return KernelKind::kMove;
    return KernelKind::kPointwise;
  }

  bool stores_floats() const {
    for (const LayerId id : group_.layers)
      for (const TensorId output : present(network_.layer(id).outputs))
        if (is_floating(spec_.type(output)) && spec_.shape(output)) return true;
    return false;
  }

  const Shape* shape_of(TensorId id) const { return id != kNone && spec_.shape(id) ? &*spec_.shape(id) : nullptr; }

  /// Each tensor from outside once, constants in `form`; what others read, and the last results.
  template <typename Set>
  void add_bytes(const LayerForm& form, const Set& set) const {
    std::set<TensorId> inside, read;
    double activations = 0, weights = 0;
    for (const LayerId id : group_.layers)
      for (const TensorId output : network_.layer(id).outputs) inside.insert(output);
    for (const LayerId id : group_.layers)
      for (const TensorId input : present(network_.layer(id).inputs)) {
        if (inside.contains(input) || !read.insert(input).second) continue;
        if (spec_.is_constant(input))
          weights += elements_of(spec_, input) * (is_floating(spec_.type(input)) ? form.bytes(form.weight) : 0);
        else
          activations += elements_read(id, input) * bytes_of_(input);
      }
    for (const LayerId id : group_.layers)
      for (const TensorId output : present(network_.layer(id).outputs))
        if (id == group_.layers.back() || leaves_group(spec_, group_, output))
          activations += elements_of(spec_, output) * bytes_of_(output);
    set(KernelTerm::kMb, 1e-6 * activations);
    set(KernelTerm::kWeightMb, 1e-6 * weights);
  }

  /// What picks rows of a table does not read all of it.
  double elements_read(LayerId id, TensorId input) const {
    const Layer& reader = network_.layer(id);
    const double own = elements_of(spec_, input);
    return reader.op->precision == PrecisionRule::kMovement ? std::min(own, elements_of(spec_, reader.outputs[0]))
                                                            : own;
  }

  /// Thousands of them: columns of what the last product of an attention reads.
  double keys() const {
    const Shape* shape = shape_of(layer(group_.layers.size() - 1).input(0));
    return shape != nullptr && !shape->empty() ? 1e-3 * static_cast<double>(shape->back()) : 1;
  }

  double depth(KernelKind kind) const {
    if (kind == KernelKind::kRecurrent)
      return shape_of(head().input(0)) != nullptr ? static_cast<double>((*shape_of(head().input(0)))[0]) : 1;
    if (kind == KernelKind::kAttention || kind == KernelKind::kLong) return keys();
    const double results = elements_of(spec_, head().outputs[0]);
    return results > 0 ? 1e-3 * work_of(spec_, head()).multiply_adds / results : 0;
  }

  /// Whether more follows a product than the libraries compute along with it: a bias, a residual and Relu; behind a
  /// convolution of 16 bits also smooth activations, in fp32 no residual. Integer sums always need their scales.
  bool needs_program(KernelKind kind) const {
    if (is_quantized(precision_)) return true;
    if (kind == KernelKind::kProduct && ops::is_convolution(head())) return group_.layers.size() > 1;
    const bool convolution =
        kind == KernelKind::kConvolution || kind == KernelKind::kIrregular || kind == KernelKind::kGrouped;
    const bool narrow = is_narrow();
    for (std::size_t i = 1; i < group_.layers.size(); ++i) {
      const Layer& each = layer(i);
      const Function f = each.op->function;
      if (is_scale_shift(spec_, each) || f == Function::kRelu) continue;
      const bool constant =
          std::ranges::any_of(each.inputs, [&](TensorId id) { return id != kNone && spec_.is_constant(id); });
      if (f == Function::kAdd && (constant || !convolution || narrow)) continue;
      const bool smooth = f == Function::kSigmoid || f == Function::kTanh || f == Function::kGelu ||
                          f == Function::kSwish || (f == Function::kMul && !constant);
      if (convolution && narrow && smooth) continue;
      return true;
    }
    return false;
  }

  const Specialization& spec_;
  const Network& network_;
  const Group& group_;
  const std::optional<Precision> of_weights_;
  const Precision precision_;  ///< That it multiplies in.
  const BytesOf bytes_of_;
};

}  // namespace

std::optional<KernelWork> kernel_work(const Specialization& spec, const Group& group, const Assignment& assignment,
                                      int together) {
  const auto bytes = [&](TensorId id) {
    return static_cast<double>(size_of(is_floating(spec.type(id)) ? assignment.storage[id] : spec.type(id)));
  };
  return WorkOfGroup(spec, group, assignment.precision[group.layers.front()], assignment.int8_output, bytes)
      .work(together);
}

std::optional<KernelWork> kernel_work(const Specialization& spec, const Group& group, Precision precision,
                                      DataType stored, int together) {
  const auto bytes = [&](TensorId id) {
    return static_cast<double>(size_of(is_floating(spec.type(id)) ? stored : spec.type(id)));
  };
  return WorkOfGroup(spec, group, precision, stored, bytes).work(together);
}

}  // namespace ulpscope
