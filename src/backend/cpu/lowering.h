// Turns kernel descriptions into steps: layouts, slots, prepared constants, and which kernel does what.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "backend/conversion.h"
#include "backend/cpu/join.h"
#include "backend/cpu/plan.h"
#include "backend/cpu/product.h"
#include "backend/cpu/program.h"
#include "backend/cpu/quantized_layers.h"
#include "backend/cpu/recurrent.h"
#include "backend/prepared_constants.h"
#include "ops/forms.h"
#include "ops/quantization/byte_loops.h"

namespace ulpscope::cpu {

/// `weights` and `subgraphs` as in Backend::plan.
Steps lower(const Specialization& spec, const Schedule& schedule, WeightCache& weights,
            const IdMap<LayerId, GraphFunction>& subgraphs);

class Lowering {
 public:
  Lowering(const Specialization& spec, const Schedule& schedule, WeightCache& weights,
           const IdMap<LayerId, GraphFunction>& subgraphs);
  Steps run();

 private:
  /// Where the values of a tensor are, as its producer left them.
  struct ValueLocation {
    int slot = -1;
    Layout layout = Layout::kDense;
    DataType storage = DataType::kUndefined;  ///< float32: not rounded to anything narrower.
  };

  const Layer& layer(LayerId id) const { return network_.layer(id); }
  const Shape& shape(TensorId id) const { return *spec_.shape(id); }
  ValueLocation& location(TensorId id) { return locations_[id]; }
  const ValueLocation& location(TensorId id) const { return locations_[id]; }
  Slot& slot_of(TensorId id) { return made_.slots[location(id).slot]; }

  int new_slot(DataType declared, const std::optional<Shape>& shape);
  int new_float_slot(const Shape& shape) { return new_slot(DataType::kFloat32, shape); }
  void add_step(std::shared_ptr<const Kernel> kernel, std::vector<int> inputs, std::vector<int> outputs, LayerId layer);
  /// The step's kernel is made when all steps are known, see join.h. False where it cannot be, see ProgramBuilder.
  bool add_program(const ProgramBuilder& program, std::vector<int> inputs, std::vector<int> outputs, LayerId layer);
  /// A step whose kernel is likewise made later: a product of integers, whose sums go to a new slot.
  int add_sums(SumsMaker make, std::vector<int> inputs, const Shape& shape, LayerId layer);
  /// A step that makes integers of what `source` has, in this layout, into `target`.
  void add_quantization(const Quantization& by, IntegerForm form, const Shape& shape, Layout layout, int source,
                        int target, LayerId layer, std::int32_t zero = 0);
  int define(TensorId id, Layout layout);
  /// The same for what a program leaves, the sums of rows among it.
  int define(const Store& store, Layout layout);
  /// Keeps the exact values beside the rounded ones where Store says so: to be called when the tensor has its location.
  void settle(const Store& store, LayerId layer);
  /// Rounds what a step left in `slot`, where the tensor is, and settles it.
  void store(int slot, const Store& store, LayerId layer);
  /// How a step that writes the tensor itself rounds it; settle() does the rest.
  static Rounding step_rounding(const Store& store) { return store.exact ? Rounding::kNone : store.rounding; }
  const ValueLocation& location_for(const Operand& operand) const;
  /// The tensor's values in this layout, rounded; makes a conversion step when no slot has them yet.
  int read(const Operand& operand, Layout layout, LayerId reader);
  /// The same as 8-bit integers, or as these times their scale again.
  int read_elements(const Operand& operand, Layout layout, IntegerForm form, LayerId reader);
  /// An operand of a layer that runs by itself: rounded, or through integers.
  int read_operand(LayerId id, const Operand& operand, Layout layout);
  Tensor constant(const Operand& operand, Layout layout = Layout::kDense);
  /// `by_parts`: for a kernel that reads parts of what is not in memory.
  int constant_slot(Tensor value, bool by_parts = false);
  ObjectCache object_cache();

  /// Of what a group left behind, for ActivationStore.
  void set_activation_keys(const Group& group, std::span<const KernelDescription> kernels, std::size_t first_step);

  // lower_layer.cpp
  void lower(const LayerKernel& kernel);
  bool lower_pool(const LayerKernel& kernel);
  bool lower_movement(const LayerKernel& kernel);
  bool lower_view(const LayerKernel& kernel);
  bool lower_cast(const LayerKernel& kernel);
  bool lower_concat(const LayerKernel& kernel);
  bool lower_resize(const LayerKernel& kernel);
  /// Slice and Split of what lies channels last; a Slice of everything is a view.
  bool lower_cut(const LayerKernel& kernel);
  bool lower_rows(const LayerKernel& kernel);

  // lower_einsum.cpp
  /// Einsum of two tensors that is a product of matrices.
  bool lower_einsum(const LayerKernel& kernel);
  int arranged(int slot, const std::vector<std::int64_t>& strides, const std::vector<std::size_t>& order,
               const Shape& sizes, LayerId id);
  /// Softmax and LogSoftmax over other than last dimensions.
  bool lower_softmax(const LayerKernel& kernel);
  /// A QuantizeLinear and its DequantizeLinear are one step, which keeps the layout of what they read: what follows
  /// then sums in the order of the weakly typed int8 layer.
  bool lower_quantization(const LayerKernel& kernel);
  /// The float tensor that the DequantizeLinear `dequantize` gets through a QuantizeLinear of its own scale and type;
  /// kNone: there is none.
  TensorId quantized_source(LayerId dequantize) const;
  /// `instead`: the rounding of the results, if it is not their own. `layout`: of the results.
  void run_reference(const LayerKernel& kernel, std::vector<int> inputs, Rounding instead = Rounding::kNone,
                     Layout layout = Layout::kDense);

  // lower_quantized.cpp
  /// MatMulInteger, QLinearMatMul, ConvInteger, QLinearConv and QGemm by constants.
  bool lower_integer_product(const LayerKernel& kernel);
  bool lower_integer_matrices(const LayerKernel& kernel, const ops::IntegerProductForm& form);
  bool lower_integer_convolution(const LayerKernel& kernel, const ops::IntegerProductForm& form);
  /// The elements of a tensor whose shape is known.
  std::optional<std::int64_t> known_count(TensorId id) const;
  /// Less their zero points, which change with every `inner` elements. `key` names them.
  ConstantSource centered_weights(const ops::IntegerProductForm& form, const Layer& l, std::int64_t inner,
                                  std::string& key) const;
  /// Less their zero points, int8 holds them.
  bool has_symmetric_weights(const ops::IntegerProductForm& form, const Layer& l) const;
  /// Of what is quantized, where it is the same in every row.
  std::optional<Requantization> requantization(const ops::IntegerProductForm& form, const Layer& l,
                                               std::int64_t channels) const;
  /// Where the channels of an image are put: last, if there is more than one position.
  Layout image_layout(TensorId id) const;
  /// What a convolution of integers takes: input 0 channels last as int16 less its zero point, or as uint8, and the
  /// zero point.
  std::vector<int> read_image(const LayerKernel& kernel, int zero_input, bool as_bytes);
  /// The same of bytes that are in these slots as they lie: the image, and its zero point.
  std::vector<int> image_inputs(TensorId image, std::vector<int> slots, bool as_bytes, LayerId reader);
  /// A convolution in float32 of numbers that a DequantizeLinear with a zero point makes of bytes, by constants that
  /// another makes of int8: its sums are taken of the bytes, exactly, and then scaled.
  struct BytesOfConvolution {
    LayerId x, w;               ///< The layers that dequantize.
    std::vector<float> scales;  ///< Of the sums, one per channel.
  };
  std::optional<BytesOfConvolution> bytes_of_convolution(const ProductKernel& kernel) const;
  bool lower_dequantized_convolution(const ProductKernel& kernel, ConvolutionSpec spec);
  /// All that read these numbers are such convolutions.
  bool is_read_as_bytes(TensorId dequantized) const;
  /// As it lies; -1: there is none.
  int input_slot(const LayerKernel& kernel, int input);

  // lower_bytes.cpp
  /// Layers of bytes between such products, in the layout that these leave.
  bool lower_byte_layer(const LayerKernel& kernel);
  bool lower_byte_arithmetic(const LayerKernel& kernel, bool multiplies);
  bool lower_byte_means(const LayerKernel& kernel, bool of_all);
  bool lower_byte_concat(const LayerKernel& kernel);
  /// MaxPool of bytes.
  bool lower_byte_maximum(const LayerKernel& kernel);
  /// QuantizeLinear to bytes by one scale as a program, which may join the one that makes its input.
  bool lower_quantize(const LayerKernel& kernel);
  /// QuantizeLinear and DequantizeLinear by one scale, in the layout of their input.
  bool lower_one_scale(const LayerKernel& kernel);
  /// The scale in input `i` of a layer, and its zero point behind it; nothing where they are computed.
  std::optional<ops::ByteScale> byte_scale(const Layer& l, int i) const;
  ops::ByteSign byte_sign(TensorId id) const {
    return spec_.type(id) == DataType::kInt8 ? ops::ByteSign::kSigned : ops::ByteSign::kUnsigned;
  }
  /// The layout in which images among these inputs lie: channels last where one of them does.
  Layout shared_layout(const Layer& l, std::span<const int> inputs) const;

  // lower_recurrent.cpp
  /// LSTM, GRU or RNN as one product with all inputs and the recurrence over time.
  bool lower_recurrent(const LayerKernel& kernel);
  bool lower_dynamic_lstm(const LayerKernel& kernel);
  int add_dynamic_product(const LayerKernel& kernel, const ops::RecurrentForm& form, const ops::DynamicMatrix& w);
  /// `sums`: of the inputs and the biases.
  void add_recurrence(const LayerKernel& kernel, RecurrentSpec spec, int sums);

  // lower_program.cpp
  void lower(const ProgramKernel& kernel);
  /// A mean over all positions of each channel, of what lies channels last.
  bool lower_spatial_mean(const ProgramKernel& kernel);
  /// The layout that all loads and stores of the domain's shape take.
  Layout layout_of(const ProgramKernel& kernel) const;
  struct LoadForm {
    Layout layout;        ///< Of the domain.
    bool expand = false;  ///< Loads that move within rows are spread over the domain first.
  };
  /// Compiles values [first, ...) into `program`; `registers` has what was made before. Loads become inputs: their
  /// slots are appended to `inputs`.
  void compile(const ProgramKernel& kernel, const LoadForm& form, ProgramBuilder& program,
               std::vector<Register>& registers, std::vector<int>& inputs, std::size_t first);
  Register compile_load(const ProgramKernel& kernel, const Load& load, const LoadForm& form, ProgramBuilder& program,
                        std::vector<int>& inputs);
  /// What makes real numbers of a product of integers: float32, one element or one per output channel.
  struct Scaling {
    Tensor scale, bias;  ///< acc * scale + bias, each rounded to float32; either may be absent.
    float second = 1;    ///< acc * scale * second + bias.
    bool last = false;   ///< The channels are the last dimension, else dimension 1.
  };
  Register compile_scaling(ProgramBuilder& program, const Shape& domain, Layout layout, std::vector<int>& inputs,
                           Register value, const Scaling& scaling);

  // lower_product.cpp
  /// A product whose results are in a slot, and what of its epilogue is still to be done.
  struct Results {
    int slot = -1;
    Layout layout = Layout::kDense;
    Register done = 0;  ///< The register of the epilogue whose values the slot has.
    Scaling scaling;
  };
  void lower(const ProductKernel& kernel);
  bool lower_matrices(const ProductKernel& kernel);
  int read_first(const ProductKernel& kernel, IntegerForm form, MatMulSpec& spec);
  void read_second(const ProductKernel& kernel, bool bytes, MatMulSpec& spec, Results& results,
                   std::vector<int>& inputs);
  bool fold_bias(const ProductKernel& kernel, const ops::MatrixForm& form, const Operand& c, MatMulSpec& spec,
                 Results& results);
  std::vector<std::unique_ptr<Kernel>> exact_products(const ProductKernel& kernel, MatMulSpec spec);
  std::unique_ptr<Kernel> weighted_product(MatMulSpec spec, const Operand& weights);
  void add_addend(const ProductKernel& kernel, const ops::MatrixForm& form, const Operand& c, Results& results);
  bool lower_convolution(const ProductKernel& kernel);
  bool lower_deep_convolution(const ProductKernel& kernel, ConvolutionSpec spec);
  void set_scales(const ProductKernel& kernel, const PreparedConstants::ElementWeights& weights, const std::string& key,
                  Scaling& scaling);
  bool lower_element_convolution(const ProductKernel& kernel, ConvolutionSpec spec);
  SumsMaker byte_convolution(ConvolutionSpec spec, const Quantization& x, const Tensor& integers,
                             const std::string& key);
  std::string element_key(const ProductKernel& kernel, const std::string& weights) const;
  /// The operator's reference kernel on the prepared operands.
  void lower_reference_product(const ProductKernel& kernel);
  /// Runs what is left of the epilogue, in place.
  void lower_epilogue(const ProductKernel& kernel, const Results& results);

  // lower_accumulated.cpp
  /// A product that is added up as a tensor core does: the operator's reference kernel, slow.
  void lower_accumulated(const ProductKernel& kernel);
  void read_element_matrix(const ProductKernel& kernel, Results& results, std::vector<int>& inputs);
  void read_element_convolution(const ProductKernel& kernel, Results& results, std::vector<int>& inputs);

  // lower_int8.cpp
  /// Where to cut k, first and last included, so that every sum of a piece is exact in float32. `b`: nothing when that
  /// is constant.
  std::vector<std::int64_t> exact_slices(const MatMulSpec& spec, const Quantization& a,
                                         const std::optional<Quantization>& b);
  /// Weights that add up to `integers`, each so small that every sum is exact in float32.
  std::vector<Tensor> exact_parts(const Layer& l, const Tensor& integers, const Quantization& x,
                                  const std::string& key);
  /// Runs the kernels and adds up what they give; the slot of the sum.
  int add_integer_parts(std::vector<std::unique_ptr<Kernel>> kernels, const std::vector<int>& inputs,
                        const Shape& shape, LayerId id);

  const Specialization& spec_;
  const Schedule& schedule_;
  const Network& network_;
  WeightCache& weights_;
  const PreparedConstants constants_;
  const IdMap<LayerId, GraphFunction>& subgraphs_;
  Steps made_;
  std::map<LayerId, const ProductKernel*> products_;
  std::map<int, ProgramForm> programs_;  ///< Per step that is one.
  std::map<int, SumsMaker> sums_;        ///< Likewise.
  IdMap<TensorId, ValueLocation> locations_;
  std::map<TensorId, ValueLocation> exact_;  ///< Of stored tensors: the values that other kernels of their group read.
  std::map<TensorId, ValueLocation> row_sums_;  ///< See Store::row_sums.
  IdMap<TensorId, ActivationKey> keys_;
  std::map<std::tuple<TensorId, Layout, Rounding, Rounding, bool>, int> variants_;
  /// As elements, by layout, and by what else differs (the encoding, its scale, how integers are held).
  std::map<std::tuple<TensorId, Layout, std::string>, int> elements_;
};

}  // namespace ulpscope::cpu
