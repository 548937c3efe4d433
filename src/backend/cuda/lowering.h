// Turns kernel descriptions into steps for the GPU: where tensors lie, in which type and order, and who computes them.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/kernel_cache.h"
#include "backend/cuda/movement_source.h"
#include "backend/cuda/program_source.h"
#include "backend/cuda/recurrent_source.h"
#include "backend/cuda/steps.h"
#include "backend/cuda/stored_matrix.h"
#include "backend/cuda/view.h"
#include "backend/prepared_constants.h"
#include "backend/product_form.h"
#include "engine/attention.h"
#include "ops/recurrent/form.h"

namespace ulpscope::cuda {

/// What lowering asks of the GPU it lowers for; a fake one serves the tests.
class LoweringTarget {
 public:
  virtual ~LoweringTarget() = default;
  /// These bytes on the device; kept in the cache under the key.
  virtual std::shared_ptr<const DeviceMemory> constant(WeightCache& weights, const std::string& key,
                                                       const std::function<Tensor()>& make) = 0;
  /// The same of matrices, one behind the other, as `type`; `make` gives the same elements.
  virtual std::shared_ptr<const DeviceMemory> matrices(WeightCache& weights, const std::string& key,
                                                       [[maybe_unused]] std::span<const StoredMatrix> parts,
                                                       [[maybe_unused]] DataType type,
                                                       const std::function<Tensor()>& make) {
    return constant(weights, key, make);
  }
  /// cuDNN computes this.
  virtual bool has_convolution(const ConvolutionSpec& spec) = 0;
  /// cuBLASLt computes this.
  virtual bool has_product(const MatrixProductSpec& spec) = 0;
  /// Kernels of product_source.h run on it.
  virtual bool has_fused_products() = 0;
};

/// `weights` and `subgraphs` as in Backend::plan.
Steps lower(const Specialization& spec, const Schedule& schedule, WeightCache& weights,
            const IdMap<LayerId, GraphFunction>& subgraphs, LoweringTarget& target);

/// The type that holds every value rounded so; float32 for kNone and tf32.
DataType type_of(Rounding rounding);
/// The rounding that elements of this type still lack if they are to be rounded so; kNone: they hold nothing else.
Rounding missing_rounding(DataType type, Rounding rounding);
/// The same elements as float32, with zeros behind them, in a shape.
Tensor zero_padded(const Tensor& values, const Shape& shape);

/// How many columns of results are computed where so many are wanted: of more than 256 a multiple of 8, since others
/// cost cuBLASLt dearly.
inline std::int64_t padded_columns(std::int64_t columns) { return columns > 256 ? (columns + 7) / 8 * 8 : columns; }

/// A program as it grows: inputs are bound to memory one by one.
class ProgramAssembly {
 public:
  ProgramAssembly(Shape domain, int row_dims);
  Register input(const View& view, std::vector<std::int64_t> strides, Rounding rounding);
  Register input(ProgramInput input, const Pointer& from);
  Program& program() { return spec_.program; }
  const Shape& domain() const { return spec_.domain; }
  void output(Register source, const View& view, std::vector<std::int64_t> strides, Rounding rounding,
              std::optional<Quantization> quantization = {});
  void output(ProgramOutput output, const Pointer& to);
  /// Runs it over finer dimensions, of which those of the domain are runs; input 0 has these strides. REQUIRES: no
  /// rows.
  void refine(const FineStrides& first);
  KernelStep finish() &&;

  const ProgramSpec& spec() const { return spec_; }
  const std::vector<Pointer>& reads() const { return reads_; }
  const std::vector<Pointer>& writes() const { return writes_; }

 private:
  ProgramSpec spec_;
  std::vector<Pointer> reads_, writes_;
};

class Lowering {
 public:
  Lowering(const Specialization& spec, const Schedule& schedule, WeightCache& weights,
           const IdMap<LayerId, GraphFunction>& subgraphs, LoweringTarget& target);
  Steps run();

 private:
  /// Where the values of a tensor are, as its producer left them.
  struct Location {
    std::optional<View> device;
    int host = -1;
    /// On the device, where no strides over the tensor's own dimensions exist: strides are over these finer ones.
    std::optional<std::pair<View, Shape>> fine;
    /// Where `fine` is: the strides that a copy without finer dimensions is given; empty: row-major ones.
    std::vector<std::int64_t> order;
  };

  const Layer& layer(LayerId id) const { return network_.layer(id); }
  const Shape& shape(TensorId id) const { return *spec_.shape(id); }

  // lowering.cpp
  void lower(const KernelDescription& kernel);
  template <typename Work>
  void add(Work work) {
    if constexpr (std::is_same_v<Work, HostStep>)
      if (described_ != nullptr) work.computes = identity_of(*described_);
    made_.steps.push_back({std::move(work), current_});
  }
  int new_buffer(std::size_t bytes);
  View new_view(DataType type, const Shape& shape, std::vector<std::int64_t> strides);
  int new_host(DataType type, const std::optional<Shape>& shape);
  /// A value of the host that is known beforehand.
  int host_constant(Tensor value);
  static Pointer pointer(const View& view);
  Location& location(const Operand& operand);
  /// The tensor's elements on the device, where its producer left them; brings them there.
  View device_view(const Operand& operand);
  /// The same in exactly this type (of `operand.rounding`: type_of it), each element rounded; makes a copy where
  /// needed.
  View read_as(const Operand& operand, DataType type);
  /// The same with these strides.
  View read_as(const Operand& operand, DataType type, std::vector<std::int64_t> strides);
  /// Copies elements of that shape from one view to another, each to its type.
  void add_copy(const View& from, const View& to, const Shape& shape);
  /// A copy that only moves elements of the tensor `of` is a step of the layer that computed them: it is needed for
  /// where that one put them.
  View copied(const View& from, const Shape& shape, DataType type, Rounding rounding, std::vector<std::int64_t> strides,
              TensorId of = kNone);
  /// The layer that computed the elements, others having moved them; kNone: they are the caller's.
  LayerId maker_of(TensorId id) const;
  /// A value of the host: physical type, rounded.
  int host_value(const Operand& operand);
  View constant_view(const Tensor& value, const std::string& key, DataType type);
  View constant_view(const Operand& operand, DataType type);
  /// Names a constant operand with its roundings.
  std::string constant_key(const Operand& operand) const;
  /// Elements that are made when nobody has them; float32, become `type`.
  /// `stored`: the parts of it, where they are matrices of a file.
  View constant_memory(const std::string& key, DataType type, const ConstantSource& values,
                       std::span<const StoredMatrix> stored = {});
  /// Names a tensor by its bytes.
  static std::string content_key(const Tensor& tensor);
  /// Gives a tensor its place, of the type that holds what the store leaves, and the strides.
  View define(const Store& store, std::vector<std::int64_t> strides);
  /// Beside it, the exact values where Store says so.
  std::optional<View> define_exact(const Store& store, std::vector<std::int64_t> strides);
  /// The tensor's elements are at these strides over finer dimensions. `order`: Location::order.
  void place(TensorId id, View view, const Shape& dims, std::vector<std::int64_t> order = {});
  /// Where they are, without bringing them into an order of their own.
  std::pair<View, Shape> fine_view(const Operand& operand);
  /// Location::order, of all dimensions.
  std::vector<std::int64_t> order_of(const Operand& operand);
  /// The tensor is this view of what is there already, when that needs no other rounding.
  bool alias(const Store& store, View view);
  /// Puts steps that need nothing of the device first, and what only network outputs need last: they do not cut what
  /// runs there.
  void hoist_host_steps();
  void find_lifetimes();

  // split_rows.cpp
  /// The program as one kernel, or as several where it has few long rows.
  void add_program(ProgramAssembly assembly);

  // lower_program.cpp
  void lower(const ProgramKernel& kernel);
  /// Places for outputs without elements.
  void define_empty(std::span<const ProgramKernel::Output> outputs);
  Register load(const ProgramKernel& kernel, const Load& load, ProgramAssembly& assembly);
  /// Appends what the kernel's outputs need, where `registers` has what is there already.
  void assemble(const ProgramKernel& kernel, ProgramAssembly& assembly, std::vector<Register>& registers);
  void store_outputs(const ProgramKernel& kernel, ProgramAssembly& assembly, const std::vector<Register>& registers,
                     const std::vector<std::int64_t>& order);

  // lower_product.cpp
  /// What a product left, and the register of its epilogue that this is; `scale` and `bias` are still to be applied.
  struct Results {
    View view;
    Register done = 0;
    Tensor scale, bias;       ///< acc * scale + bias: one element, or one per output channel.
    std::size_t channel = 0;  ///< The dimension of the output channels.
    float alpha = 1, beta = 1;
    Operand addend;
  };
  void lower(const ProductKernel& kernel);
  /// A constant operand of a product.
  struct Weights {
    std::string key;
    ConstantSource values;  ///< k innermost.
    Tensor scale;           ///< Of integers: Results::scale.
  };
  Weights float_weights(const Operand& b, const MatrixShape& matrices) const;
  /// What the device can make the elements of float_weights() of, as `type`; nothing where they are rounded otherwise.
  std::optional<StoredMatrix> stored_matrix(const Operand& b, const MatrixShape& matrices, DataType type) const;
  Weights integer_weights(const ProductKernel& kernel, const MatrixShape& matrices) const;
  static Weights padded(const Weights& weights, std::int64_t columns);
  /// What of an epilogue may ride on its product.
  struct Fold {
    Operand bias, residual;
    bool relu = false;
    Register done = 0;   ///< The last register of these.
    bool whole = false;  ///< Nothing else is left to do, and one store.
  };
  /// `order`: the strides that the results will have; empty: none over the domain.
  Fold fold_of(const ProductKernel& kernel, std::int64_t n, DataType type, const Operand& addend_of_form,
               const std::vector<std::int64_t>& order);
  bool is_residual(const Operand& operand, const Shape& domain, DataType type, const std::vector<std::int64_t>& order);
  /// The rows of all batches as one matrix, in the order in which they lie in memory.
  struct Rows {
    View view;
    MatrixOperand matrix;
    FineStrides order;  ///< Over the dimensions before the last: the row of each index.
  };
  std::optional<Rows> read_rows(const Operand& operand, DataType type);
  /// Rows of so many columns, the innermost of the finer dimensions.
  static std::optional<Rows> rows_of(View view, const FineStrides& fine, std::int64_t columns);
  /// Results of so many columns, in the order of those rows.
  static FineStrides results_of(const Rows& rows, std::int64_t n, std::int64_t columns);
  void fold_epilogue(const ProductKernel& kernel, MatrixProductSpec& spec, ProductStep& step, Results& results,
                     const FineStrides& order);
  bool lower_matrices(const ProductKernel& kernel);
  /// How a product reads its first operand, and leaves results of so many columns.
  struct ResultLayout {
    std::optional<Rows> rows;
    FineStrides order;
    std::int64_t columns = 0;
  };
  ResultLayout layout_of_results(const ProductKernel& kernel, const ops::MatrixForm& form, const MatrixShape& matrices,
                                 const MatrixProductSpec& spec);
  View read_second(const ProductKernel& kernel, const MatrixShape& matrices, std::int64_t columns,
                   MatrixProductSpec& spec);
  void lower_host_product(const ProductKernel& kernel);
  /// Runs what is left of the epilogue on the results.
  void lower_epilogue(const ProductKernel& kernel, const Results& results);
  /// The program that is left of it; nothing where the results are all there is.
  std::optional<ProgramAssembly> epilogue_program(const ProductKernel& kernel, const Results& results);
  /// Both in one step, where one kernel may do for them.
  void add_with_program(ProductStep product, ProgramAssembly program, const FineStrides& order);
  /// The epilogue on sums in the register `raw`; what it stores lies in the order of these strides.
  void assemble_epilogue(const ProductKernel& kernel, const Results& results, Register raw,
                         const std::vector<std::int64_t>& order, ProgramAssembly& assembly);
  Register append_scaling(const Results& results, ProgramAssembly& assembly, Register value);
  /// The operand as a matrix product takes it: one stride of 1, batches at one stride.
  View read_matrix(const Operand& operand, DataType type, const Shape& shape, MatrixOperand& matrix,
                   std::int64_t batch);

  // lower_integers.cpp
  bool lower_integers(const ProductKernel& kernel, const ops::MatrixForm& form);
  /// The operand as 8-bit integers, broadcast to a domain, over which the strides are.
  View read_integers(const Operand& operand, const Shape& domain, std::vector<std::int64_t> strides);
  View integer_sums(const View& a, const View& b, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batches);

  // lower_together.cpp
  /// A product of floats by a constant matrix, one for all rows, that may be adjacent to others in memory.
  struct Columns {
    const ProductKernel* kernel;
    MatrixShape matrices;
  };
  std::optional<MatrixShape> matrix_of_columns(const ProductKernel& kernel) const;
  /// Those of the same tensor, in the order of the schedule, in whatever types; none: `kernel` is none of them. Of
  /// several with the same matrix, one that may be computed with `kernel`.
  std::vector<Columns> adjacent_columns(const ProductKernel& kernel) const;
  /// The matrices of all in memory of this type, k innermost; the view begins at that of `kernel`. Nothing of it
  /// depends on the others' types: assignments find there what others left.
  View column_weights(const ProductKernel& kernel, const std::vector<Columns>& adjacent, DataType type);
  /// A product that another one with the same first operand can compute.
  struct Member {
    const ProductKernel* kernel;
    MatrixShape matrices;
    Fold fold;
  };
  std::optional<Member> member_of(const Columns& columns, const ProductKernel& first);
  bool lower_with_others(const ProductKernel& first);

  // lower_convolution.cpp
  /// Weights and bias of a convolution, and what names them.
  struct Filters {
    std::string key, bias_key;
    ConstantSource weights;
    Tensor bias;
  };
  Filters filters_of(const ProductKernel& kernel) const;
  /// Windows side by side, as a product of matrices.
  bool lower_patches(const ProductKernel& kernel);
  bool lower_convolution(const ProductKernel& kernel);
  ConvolutionSpec convolution_spec(const ProductKernel& kernel, std::vector<std::int64_t>& spread) const;
  View convolution_input(const ProductKernel& kernel, const ConvolutionSpec& spec,
                         const std::vector<std::int64_t>& spread);
  /// What of an epilogue its convolution computes: up to register `done`.
  struct ConvolutionFold {
    Register done = 0;
    bool whole = false, biased = false;  ///< All of it; the bias.
  };
  ConvolutionFold fold_convolution(const ProductKernel& kernel, ConvolutionSpec& spec, ConvolveStep& step,
                                   const Tensor& bias, const std::string& bias_key);
  bool generate_convolution(const ProductKernel& kernel, ConvolutionSpec spec, const ConvolveStep& step,
                            const Results& results);

  // lower_transposed.cpp
  /// Transposed convolutions whose windows lie side by side, as a product of matrices.
  bool lower_transposed_patches(const ProductKernel& kernel);
  bool fold_positions(const ProductKernel& kernel, bool biased, MatrixProductSpec& spec) const;
  /// A row per position, its channels as columns; nothing where they do not lie so.
  std::optional<Rows> read_positions(const Operand& operand, DataType type);

  // lower_attention.cpp
  void lower_parts(const AttentionKernel& attention);
  bool lower_attention(const AttentionKernel& attention);
  std::optional<AttentionSpec> attention_spec(const AttentionKernel& attention) const;
  AttentionSpec::Scores score_part(ProgramKernel kernel, Register source, TensorId given, const AttentionSpec& spec,
                                   KernelStep& step);

  // lower_concat.cpp
  /// What a generated kernel computes and nobody but a Concat reads, where it lies in the whole without gaps.
  void find_parts();
  TensorId generated_part(TensorId id, const std::set<TensorId>& network_outputs) const;
  /// As define(), in the whole; nothing where it has no place there.
  std::optional<View> define_part(const Store& store, const std::vector<std::int64_t>& strides);
  View whole_of(const Store& store);
  bool lower_concat(const LayerKernel& kernel);
  bool lower_magnitudes(const LayerKernel& kernel);

  // lower_recurrent.cpp
  bool lower_recurrent(const LayerKernel& kernel);
  /// W x as float32 [rows of X, columns]: those of all directions and gates, and some that nobody reads. No view where
  /// cuBLASLt does not take it.
  View input_sums(const LayerKernel& kernel, const ops::RecurrentForm& form, std::int64_t& columns);
  std::vector<Pointer> recurrent_parameters(const LayerKernel& kernel, RecurrentStepSpec& step);
  View recurrent_weights(const Operand& r, const RecurrentStepSpec& step);
  /// What lies where for the time steps of a layer.
  struct Recurrence;
  void add_time_steps(const RecurrentStepSpec& step, const Recurrence& memory);

  // lower_layer.cpp
  void lower(const LayerKernel& kernel);
  bool lower_view(const LayerKernel& kernel);
  /// Resize that repeats whole elements: a view of them.
  bool lower_repeats(const LayerKernel& kernel);
  /// Resize in modes linear and cubic.
  bool lower_resample(const LayerKernel& kernel);
  bool lower_traced(const LayerKernel& kernel);
  bool lower_gather(const LayerKernel& kernel);
  bool lower_where(const LayerKernel& kernel);
  bool lower_cast(const LayerKernel& kernel);
  bool lower_pool(const LayerKernel& kernel);
  bool lower_rows(const LayerKernel& kernel);
  void lower_host(const LayerKernel& kernel);
  /// An operand as 8-bit integers times their scale, on the host.
  int host_integers(const Operand& operand);

  const Specialization& spec_;
  const Schedule& schedule_;
  const Network& network_;
  WeightCache& weights_;
  const PreparedConstants constants_;
  const IdMap<LayerId, GraphFunction>& subgraphs_;
  LoweringTarget& target_;
  Steps made_;
  LayerId current_ = kNone;                       ///< Whose steps are being added.
  const KernelDescription* described_ = nullptr;  ///< The same; null: network outputs are copied.
  IdMap<TensorId, Location> locations_;
  std::map<TensorId, Location> exact_;  ///< Of stored tensors: the values that other kernels of their group read.
  std::map<std::tuple<TensorId, bool, DataType, Rounding, std::vector<std::int64_t>>, View> copies_;
  /// Operands as integers, by tensor, Operand::exact, quantization, domain and strides.
  std::map<std::tuple<TensorId, bool, float, bool, Shape, std::vector<std::int64_t>>, View> integers_;
  std::set<std::string> host_layers_;       ///< Names, for one warning.
  std::set<const ProductKernel*> lowered_;  ///< With others, ahead of their turn.
  const IdMap<TensorId, KernelUses> uses_;
  /// Of the results of Concat: whole, and where a part begins in it.
  struct Part {
    const Store* whole = nullptr;
    std::int64_t offset = 0;
  };
  std::map<TensorId, Part> parts_;
  std::map<TensorId, View> wholes_;  ///< That some part was computed into.
  std::set<TensorId> cleared_;       ///< Those that held zeros before any part.
  std::map<const ProductKernel*, AttentionKernel> attentions_;  ///< By their last product.
  std::set<const KernelDescription*> deferred_;  ///< Kernels that wait for the attention they belong to.
};

}  // namespace ulpscope::cuda
