// Products of matrices, convolutions and attention: who computes the sums, on which operands, and what becomes of the
// epilogue.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "backend/cuda/attention_source.h"
#include "backend/cuda/narrow_source.h"
#include "backend/cuda/placement.h"
#include "backend/product_form.h"
#include "engine/attention.h"

namespace ulpscope::cuda {

/// The same elements as float32, with zeros behind them, in a shape.
Tensor zero_padded(const Tensor& values, const Shape& shape);

/// How many columns of results are computed where so many are wanted: of more than 256 a multiple of 8, since others
/// cost cuBLASLt dearly.
inline std::int64_t padded_columns(std::int64_t columns) { return columns > 256 ? (columns + 7) / 8 * 8 : columns; }

/// A constant operand of a product.
struct MatrixWeights {
  std::string key;
  ConstantSource values;  ///< k innermost.
  Tensor scale;           ///< Of integers: ProductResults::scale.
};

/// The rows of all batches as one matrix, in the order in which they lie in memory.
struct MatrixRows {
  View view;
  MatrixOperand matrix;
  FineStrides order;  ///< Over the dimensions before the last: the row of each index.
};

/// Operands of products as matrices.
class Matrices : KernelLowering {
 public:
  explicit Matrices(const KernelLowering& context) : KernelLowering(context) {}

  /// The operand as a matrix product takes it: one stride of 1, batches at one stride.
  View read_matrix(const Operand& operand, DataType type, const Shape& dims, MatrixOperand& matrix, std::int64_t batch);
  std::optional<MatrixRows> read_rows(const Operand& operand, DataType type);
  /// Rows of so many columns, the innermost of the finer dimensions.
  static std::optional<MatrixRows> rows_of(View view, const FineStrides& fine, std::int64_t columns);
  /// Results of so many columns, in the order of those rows.
  static FineStrides results_of(const MatrixRows& rows, std::int64_t n, std::int64_t columns);
  /// The elements of an operand with one scale, broadcast to a domain, over which the strides are: 8-bit integers, or
  /// fp8 as itself or in another float type.
  View read_elements(const Operand& operand, DataType type, const Shape& domain, std::vector<std::int64_t> strides);

  MatrixWeights float_weights(const Operand& b, const MatrixShape& matrices) const;
  /// Of a product, also where it stores its weights as elements.
  MatrixWeights float_weights(const ProductKernel& kernel, const MatrixShape& matrices) const;
  MatrixWeights integer_weights(const ProductKernel& kernel, const MatrixShape& matrices) const;
  /// As these, with the scales of the weights alone: one, or one per output channel.
  MatrixWeights element_weights(const ProductKernel& kernel, const MatrixShape& matrices) const;
  static MatrixWeights padded(const MatrixWeights& weights, std::int64_t columns);
  /// What the device can make the elements of float_weights() of, as `type`; nothing where they are rounded otherwise.
  std::optional<StoredMatrix> stored_matrix(const Operand& b, const MatrixShape& matrices, DataType type) const;
};

/// What a product left, and the register of its epilogue that this is; `scale` and `bias` are still to be applied.
struct ProductResults {
  View view;
  Register done = 0;
  Tensor scale, bias;  ///< acc * scale * second + bias: one element, or one per output channel.
  float second = 1;    ///< Of products of float elements with a scale per output channel: that of the other operand.
  std::size_t channel = 0;  ///< The dimension of the output channels.
  float alpha = 1, beta = 1;
  Operand addend;
};

/// What of an epilogue may ride on its product.
struct ProductFold {
  Operand bias, residual;
  bool relu = false;
  Register done = 0;   ///< The last register of these.
  bool whole = false;  ///< Nothing else is left to do, and one store.
};

/// What follows the sums of products.
class Epilogues : KernelLowering {
 public:
  Epilogues(const KernelLowering& context, Programs& programs) : KernelLowering(context), programs_(programs) {}

  /// `order`: the strides that the results will have; empty: none over the domain.
  ProductFold fold_of(const ProductKernel& kernel, std::int64_t n, DataType type, const Operand& addend_of_form,
                      const std::vector<std::int64_t>& order) const;
  /// What the sums in the register `value` stand for: with scales, bias and addend.
  Register append_scaling(const ProductResults& results, ProgramAssembly& assembly, Register value);
  /// Runs what is left of the epilogue on the results.
  void lower(const ProductKernel& kernel, const ProductResults& results);
  /// The program that is left of it; nothing where the results are all there is.
  std::optional<ProgramAssembly> program_of(const ProductKernel& kernel, const ProductResults& results);
  /// The epilogue on sums in the register `raw`; what it stores lies in the order of these strides.
  void assemble(const ProductKernel& kernel, const ProductResults& results, Register raw,
                const std::vector<std::int64_t>& order, ProgramAssembly& assembly);

 private:
  bool is_residual(const Operand& operand, const Shape& domain, DataType type,
                   const std::vector<std::int64_t>& order) const;

  Programs& programs_;
};

/// [batch..., m, k] by [batch..., k, n]; where all batches share one matrix b, their rows are rows of one matrix a.
struct ElementShape {
  Shape batch;
  std::int64_t m = 1, n = 1, k = 1;
  std::int64_t batches() const { return num_elements(batch); }
};
/// Nothing where the layer multiplies vectors.
std::optional<ElementShape> element_shape(const ops::MatrixForm& form, Shape a, Shape b);
/// Of elements with k innermost, and results without gaps.
MatrixProductSpec element_product(const ElementShape& shape, DataType operands, DataType result);
/// What the sums of a product of elements are multiplied by: one factor, or one per output channel, and `second`.
/// `weights`: of a constant second operand, with that of the first in them where elements are bytes; else nothing.
struct ElementScales {
  Tensor scale;
  float second = 1;
};
ElementScales scales_of(const ProductKernel& kernel, const Tensor& weights);

/// Says once what the sums of this product of fp8 are, where that is not what was asked for. `by_fp8`: by the GPU's
/// tensor cores for fp8; else in float32.
void tell_how_fp8_adds_up(const ProductKernel& kernel, const Layer& layer, bool by_fp8, bool is_hopper);

/// MatMul and Gemm.
class Products : KernelLowering {
 public:
  Products(const KernelLowering& context, Matrices& matrices, Epilogues& epilogues)
      : KernelLowering(context), matrices_(matrices), epilogues_(epilogues) {}

  /// False: neither cuBLASLt nor a generated kernel takes it.
  bool lower(const ProductKernel& kernel);
  /// It was computed with others, ahead of its turn.
  bool is_lowered(const ProductKernel& kernel) const { return lowered_.contains(&kernel); }

 private:
  bool lower_matrices(const ProductKernel& kernel);
  /// Without a view and scales.
  ProductResults results_of(const ProductKernel& kernel, const ops::MatrixForm& form) const;
  /// How a product reads its first operand, and leaves results of so many columns.
  struct ResultLayout {
    std::optional<MatrixRows> rows;
    FineStrides order;
    std::int64_t columns = 0;
  };
  ResultLayout layout_of_results(const ProductKernel& kernel, const ops::MatrixForm& form, const MatrixShape& matrices,
                                 const MatrixProductSpec& spec);
  View read_second(const ProductKernel& kernel, const MatrixShape& matrices, std::int64_t columns,
                   MatrixProductSpec& spec);
  void fold_epilogue(const ProductKernel& kernel, MatrixProductSpec& spec, ProductStep& step, ProductResults& results,
                     const FineStrides& order);
  /// The product and what is left of its epilogue, whose stores lie in this order.
  void add_with_epilogue(ProductStep product, const ProductKernel& kernel, const ProductResults& results,
                         const FineStrides& order);
  /// Both in one step, where one kernel may do for them.
  void add_with_program(ProductStep product, ProgramAssembly program, const FineStrides& order);

  // lower_integers.cpp
  bool lower_integers(const ProductKernel& kernel, const ops::MatrixForm& form);
  /// Both operands of a product of elements, k innermost.
  struct ElementViews {
    View a, b;
  };
  ElementViews read_both(const ProductKernel& kernel, const ops::MatrixForm& form, const ElementShape& shape,
                         const MatrixWeights& weights, std::pair<DataType, DataType> types, bool by_library);
  View read_first(const ProductKernel& kernel, const ops::MatrixForm& form, const ElementShape& shape, DataType type,
                  bool by_library);
  View integer_sums(const View& a, const View& b, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batches);

  // lower_fp8.cpp
  bool lower_fp8(const ProductKernel& kernel, const ops::MatrixForm& form);
  bool fold_fp8(const ProductKernel& kernel, ProductStep& step, ProductResults& results);

  // lower_narrow.cpp
  /// A product of few rows by constants of a few bits each, without its program.
  struct Narrow {
    NarrowProductSpec spec;
    NarrowWeights weights;
  };
  std::optional<Narrow> narrow_of(const ProductKernel& kernel) const;
  bool lower_narrow(const ProductKernel& kernel);

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
    ProductFold fold;
  };
  std::optional<Member> member_of(const Columns& columns, const ProductKernel& first);
  bool lower_with_others(const ProductKernel& first);
  /// A product of elements by a constant matrix, with no more behind it than a bias.
  struct ElementMember {
    const ProductKernel* kernel;
    MatrixWeights weights;
    std::int64_t n;
    Tensor bias;
  };
  std::optional<ElementMember> element_member(const ProductKernel& kernel, const ProductKernel& first,
                                              std::int64_t k) const;
  /// `spec`: the product that would compute the first one alone.
  bool lower_elements_with_others(const ProductKernel& first, MatrixProductSpec spec);

  Matrices& matrices_;
  Epilogues& epilogues_;
  std::set<const ProductKernel*> lowered_;  ///< With others, ahead of their turn.
};

/// Weights [k, c / groups, r...] with channels innermost, [k, r..., c / groups]; `padded` channels.
Tensor channels_innermost(const Tensor& weights, std::int64_t padded);

class Convolutions : KernelLowering {
 public:
  Convolutions(const KernelLowering& context, Matrices& matrices, Epilogues& epilogues)
      : KernelLowering(context), matrices_(matrices), epilogues_(epilogues) {}

  /// False: neither cuDNN nor a generated kernel takes it.
  bool lower(const ProductKernel& kernel) {
    return lower_patches(kernel) || lower_group_windows(kernel) || lower_transposed_patches(kernel) ||
           lower_convolution(kernel);
  }

 private:
  /// Weights and bias of a convolution, and what names them.
  struct Filters {
    std::string key, bias_key;
    ConstantSource weights;
    Tensor bias;
  };
  Filters filters_of(const ProductKernel& kernel) const;

  // lower_windows.cpp
  /// Windows side by side, as a product of matrices.
  bool lower_patches(const ProductKernel& kernel);
  bool lower_group_windows(const ProductKernel& kernel);
  bool slides_over_floats(const ProductKernel& kernel) const;
  View padded_input(const ProductKernel& kernel, const ops::WindowGeometry& g, DataType type);

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
                            const ProductResults& results);

  // lower_transposed.cpp
  /// Transposed convolutions whose windows lie side by side, as a product of matrices.
  bool lower_transposed_patches(const ProductKernel& kernel);
  bool fold_positions(const ProductKernel& kernel, bool biased, MatrixProductSpec& spec) const;
  /// A row per position, its channels as columns; nothing where they do not lie so.
  std::optional<MatrixRows> read_positions(const Operand& operand, DataType type);

  Matrices& matrices_;
  Epilogues& epilogues_;
};

class Attentions : KernelLowering {
 public:
  Attentions(const KernelLowering& context, const Schedule& schedule, Programs& programs);

  /// Null: the product is not the last one of any.
  const AttentionKernel* find(const ProductKernel& values) const;
  /// The kernel waits for the attention that it belongs to.
  bool is_part(const KernelDescription& kernel) const { return parts_of_all_.contains(&kernel); }
  /// False where the generated kernel has no form for it: then the parts are lowered by themselves.
  bool lower(const AttentionKernel& attention);

 private:
  static bool adds_up_as_asked(const ProductKernel& product);
  DataType type_before(const Operand& operand) const;
  std::optional<AttentionSpec> spec_of(const AttentionKernel& attention) const;
  AttentionSpec::Scores score_part(ProgramKernel kernel, Register source, TensorId given, const AttentionSpec& spec,
                                   KernelStep& step);

  Programs& programs_;
  std::map<const ProductKernel*, AttentionKernel> attentions_;  ///< By their last product.
  std::set<const KernelDescription*> parts_of_all_;
};

}  // namespace ulpscope::cuda
