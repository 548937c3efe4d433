// Turns groups into steps. Used by Plan's constructor only.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "backend/cpu/product.h"
#include "backend/cpu/program.h"
#include "backend/cpu/program_lowering.h"
#include "engine/int8.h"
#include "engine/plan.h"

namespace ulpscope {

class PlanBuilder {
 public:
  PlanBuilder(Plan& plan, const Assignment& assignment, WeightCache& weights,
              std::span<const cpu::GraphFunction> subgraphs);
  void build();

 private:
  /// Where the values of a tensor are, as its producer left them.
  struct Home {
    int slot = -1;
    Layout layout = Layout::kDense;
    DataType storage = DataType::kUndefined;  ///< float32: not rounded to anything narrower.
  };

  const Layer& layer(LayerId id) const { return network_.layer(id); }
  const Shape& shape(TensorId id) const { return *spec_.shape(id); }
  Precision precision(LayerId id) const { return assignment_.precision[static_cast<std::size_t>(id)]; }
  DataType storage(TensorId id) const { return assignment_.storage[static_cast<std::size_t>(id)]; }
  bool internal(TensorId id) const { return plan_.grouping_.internal[static_cast<std::size_t>(id)] != 0; }
  /// How a layer's step rounds what it stores of this tensor.
  Rounding store_rounding(TensorId id) const;
  /// The same for a step that carries out this part of a group: what other parts read as it is, settle() rounds.
  Rounding store_rounding(TensorId id, std::span<const LayerId> part) const;
  /// The reader is in one group with the layer that computes the tensor, and reads it unrounded.
  bool reads_exact(TensorId id, LayerId reader) const;
  /// Layers of the tensor's group outside of this part read it unrounded, although it is stored for others.
  bool exact_beyond(TensorId id, std::span<const LayerId> part) const;
  /// To be called after the step that computes the tensor in `part` of a group: stores it rounded where exact_beyond().
  void settle(TensorId id, std::span<const LayerId> part);
  /// Where this reader finds the tensor.
  const Home& home_for(TensorId id, LayerId reader) const;
  /// How a layer rounds what it reads as input `index`.
  Rounding load_rounding(const Layer& l, LayerId id, std::size_t index) const;

  int new_slot(DataType declared, const std::optional<Shape>& shape);
  void add_step(std::shared_ptr<const Kernel> kernel, std::vector<int> inputs, std::vector<int> outputs, LayerId layer);
  int define(TensorId id, Layout layout);
  /// The tensor's values in this layout, rounded; makes a conversion step when no slot has them yet.
  int read(TensorId id, Layout layout, Rounding rounding, LayerId reader);
  /// Names a constant in the cache of prepared weights, which outlives this specialization.
  std::string constant_key(TensorId id) const;
  Tensor constant(TensorId id, Layout layout, Rounding rounding);
  int constant_slot(Tensor value);

  /// Names what the group left behind, for ActivationStore.
  void name_values(const Group& group, std::size_t first_step);
  ActivationKey key_of(TensorId id) const;

  void lower_group(const Group& group);
  void lower_single(LayerId id);

  // lower_program.cpp
  struct ProgramDomain {
    Shape shape;
    int row_dims = 0;
    std::int64_t row_elements = 1;
    Layout layout = Layout::kDense;
  };
  struct ProgramState {
    ProgramDomain domain;
    cpu::ProgramBuilder program;
    std::map<std::pair<TensorId, bool>, int> registers;  ///< true: read as one value per channel.
    std::vector<int> inputs;                             ///< Slots, in the order of the program's inputs.
  };
  /// As one program if possible, else layer by layer.
  void lower_sequence(std::span<const LayerId> members);
  bool lower_program(std::span<const LayerId> members);
  bool can_be_program(LayerId id) const;
  /// How many of these layers, from the first one on, can be the epilogue of a product.
  std::size_t epilogue_size(std::span<const LayerId> members) const;
  std::optional<ProgramDomain> program_domain(std::span<const LayerId> members) const;
  int program_operand(ProgramState& state, LayerId id, std::size_t index);
  /// Of a value that the program itself computes.
  static int result_register(const ProgramState& state, TensorId id) { return state.registers.at({id, false}); }
  bool append_to_program(ProgramState& state, LayerId id);
  /// A Cast in one group with the product of integers whose results it stores.
  bool is_fused_cast(LayerId id) const;
  bool read_outside(TensorId id, std::span<const LayerId> members) const;
  /// What makes real numbers of the sums of a product: float32, one element or one per output channel.
  struct ProductScaling {
    Tensor scale, bias;  ///< acc * scale + bias, each rounded to float32; either may be absent.
    bool last = false;   ///< The channels are the last dimension, else dimension 1.
  };
  int append_scaling(ProgramState& state, int value, const ProductScaling& scaling);
  /// Runs the pointwise members in place on the raw results in `slot`; the last one's output stays there. Members
  /// that have no instructions, and those behind them, run after that.
  bool lower_epilogue(std::span<const LayerId> members, TensorId source, int slot, Layout layout,
                      const ProductScaling* scaling = nullptr);

  // lower_product.cpp
  /// members[0] is the product, the others are its pointwise epilogue. False when the reference kernel must do it.
  bool lower_contraction(std::span<const LayerId> members);
  /// Like lower_single for a product, with the BatchNormalization that is folded into it. How many members are done.
  std::size_t lower_reference_contraction(std::span<const LayerId> members);
  /// The BatchNormalization behind a convolution that goes into its weights and bias; null: none.
  const Layer* folded_normalization(std::span<const LayerId> members) const;
  bool lower_matmul(std::span<const LayerId> members);
  bool lower_convolution(std::span<const LayerId> members);
  /// `spec` has the float weights.
  bool lower_integer_convolution(LayerId id, cpu::ConvolutionSpec spec, const Layer* folded,
                                 std::span<const LayerId> epilogue);
  /// The weights of a convolution, with a following BatchNormalization multiplied in when `folded` is one.
  Tensor convolution_weights(const Layer& l, const Layer* folded, Rounding rounding, std::string& key);
  Tensor convolution_bias(const Layer& l, const Layer* folded, Rounding rounding, std::int64_t channels,
                          std::string& key);
  /// The values are never stored, and no other layer needs them: they may be replaced in place.
  bool only_read_by(TensorId id, LayerId reader) const;
  std::string scale_shift_key(const Layer& l) const;
  Tensor scale_of(const Layer& l) const;
  Tensor shift_of(const Layer& l) const;
  /// What an unfolded BatchNormalization multiplies by or adds, in the precision of the layer.
  Tensor rounded_scale_shift(LayerId id, bool shift);
  cpu::ObjectCache object_cache();

  // lower_int8.cpp
  struct IntegerWeights {
    Tensor integers;  ///< As float32, the shape of the weights.
    Tensor scales;    ///< One per output channel.
  };
  void find_int8_layers();
  /// The layer reads its operands as 8-bit integers: because of its precision, or since the file has it so.
  bool computes_in_int8(LayerId id) const { return integers_[static_cast<std::size_t>(id)] != 0; }
  Quantisation quantisation_of(TensorId id) const;
  /// Like read(): the tensor as integers, or times their scale again.
  int read_quantised(TensorId id, Layout layout, bool dequantise, LayerId reader);
  /// A constant operand of an int8 layer: integers times their scales.
  Tensor quantised_constant(LayerId id, std::size_t index);
  /// A QuantizeLinear and its DequantizeLinear are one step, which keeps the layout of what they read: what follows
  /// then sums in the order of the weakly typed int8 layer.
  bool lower_quantisation(LayerId id);
  /// The float tensor that the DequantizeLinear behind this tensor gets through a QuantizeLinear of its own scale and
  /// type; kNone: there is none.
  TensorId quantised_source(LayerId dequantize) const;
  /// Operand `index` as the layer's reference kernel wants it: rounded, or through int8.
  int read_operand(LayerId id, std::size_t index, Layout layout);
  /// The output channel that an element of the weights belongs to.
  std::int64_t weight_channel(const Layer& l, const Shape& weights, std::int64_t element) const;
  /// Names the integers of a product's weights: the same for layers, of any network, that use a constant in one way.
  std::string integer_weights_key(LayerId id, TensorId tensor) const;
  /// `folded`: the values are no longer those of the file.
  std::shared_ptr<const IntegerWeights> integer_weights(const Layer& l, const Tensor& values, const std::string& key,
                                                        bool folded);
  Tensor product_scales(const Quantisation& x, const Tensor& weights, const std::string& key);
  /// Where to cut k, first and last included, so that every sum of a piece is exact in float32. `b`: nothing when that
  /// is constant.
  std::vector<std::int64_t> exact_slices(const cpu::MatMulSpec& spec, const Quantisation& a,
                                         const std::optional<Quantisation>& b);
  /// Weights that add up to `integers`, each so small that every sum is exact in float32.
  std::vector<Tensor> exact_parts(const Layer& l, const Tensor& integers, const Quantisation& x,
                                  const std::string& key);
  /// Runs the kernels and adds up what they give; the slot of the sum.
  int add_integer_parts(std::vector<std::unique_ptr<Kernel>> kernels, const std::vector<int>& inputs, TensorId output,
                        LayerId id);

  // lower_movement.cpp
  bool lower_pool(LayerId id);
  bool lower_movement(LayerId id);
  bool lower_view(LayerId id);
  bool lower_cast(LayerId id);
  bool lower_concat(LayerId id);
  bool lower_resize(LayerId id);
  static bool scales_match(const Tensor& scales, const Shape& input, const Shape& output);

  Plan& plan_;
  const Specialization& spec_;
  const Network& network_;
  const Assignment& assignment_;
  WeightCache& weights_;
  std::span<const cpu::GraphFunction> subgraphs_;
  std::vector<Home> home_;           ///< Per tensor.
  std::map<TensorId, Home> exact_;   ///< Stored tensors as the other parts of their group read them.
  std::vector<ActivationKey> keys_;  ///< Per tensor.
  std::map<std::tuple<TensorId, Layout, Rounding>, int> variants_;
  std::map<std::tuple<TensorId, Layout, bool>, int> quantised_;
  std::vector<char> integers_;  ///< Per layer: see computes_in_int8.
};

}  // namespace ulpscope
