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
    std::map<TensorId, int> registers;
    std::vector<int> inputs;  ///< Slots, in the order of the program's inputs.
  };
  /// As one program if possible, else layer by layer.
  void lower_sequence(std::span<const LayerId> members);
  bool lower_program(std::span<const LayerId> members);
  bool can_be_program(LayerId id) const;
  std::optional<ProgramDomain> program_domain(std::span<const LayerId> members) const;
  int program_operand(ProgramState& state, LayerId id, std::size_t index);
  bool append_to_program(ProgramState& state, LayerId id);
  bool read_outside(TensorId id, std::span<const LayerId> members) const;
  /// Runs the pointwise members in place on the raw results in `slot`; the last one's output stays there.
  bool lower_epilogue(std::span<const LayerId> members, TensorId source, int slot, Layout layout);

  // lower_product.cpp
  /// members[0] is the product, the others are its pointwise epilogue. False when the reference kernel must do it.
  bool lower_contraction(std::span<const LayerId> members);
  bool lower_matmul(std::span<const LayerId> members);
  bool lower_convolution(std::span<const LayerId> members);
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

  // lower_movement.cpp
  bool lower_pool(LayerId id);
  bool lower_movement(LayerId id);
  bool lower_view(LayerId id);
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
  std::vector<ActivationKey> keys_;  ///< Per tensor.
  std::map<std::tuple<TensorId, Layout, Rounding>, int> variants_;
};

}  // namespace ulpscope
