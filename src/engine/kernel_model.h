// What kernels take on a GPU: by what they compute and on how much of it, for GPUs that nobody measured a network on.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "engine/fusion.h"
#include "engine/specialization.h"
#include "graph/assignment.h"

namespace ulpscope {

/// What one group is to a GPU.
enum class KernelKind : std::uint8_t {
  kProduct,      ///< Of matrices.
  kNarrow,       ///< Of few rows by a matrix of a few bits per element (narrow_limits.h), which are all that is read.
  kConvolution,  ///< By a library, on tensor cores where the precision has them,
  kIrregular,    ///< where it is slower: dilated, in three dimensions, of channels that no 16 bytes hold,
  kGrouped,      ///< in groups of channels,
  kTiled,        ///< by a kernel that takes what libraries do not: few channels per group, odd numbers of int8,
  kDepthwise,    ///< or of one channel per group.
  kAttention,    ///< Two products with the softmax between them, on few keys;
  kLong,         ///< on so many that a kernel goes over them in tiles.
  kRecurrent,    ///< LSTM, GRU, RNN: a kernel per step of time.
  kPointwise,    ///< Element by element.
  kRow,          ///< Reductions, normalization, softmax.
  kWindow,       ///< Pooling, resampling.
  kMove,         ///< Elements to other places: Concat, Gather, Pad.
  kView,         ///< The same elements, read otherwise: Transpose, Slice. A copy where their readers need one.
  kCast,         ///< To another type, or to the integers of int8.
  kRun,          ///< What every run of a network takes, whatever is in it.
};
inline constexpr std::size_t kKernelKinds = 17;
std::string_view name_of(KernelKind kind) noexcept;
std::optional<KernelKind> kernel_kind_named(std::string_view name) noexcept;
/// Its time depends on the precision that it multiplies in; that of the others on bytes alone.
bool multiplies(KernelKind kind) noexcept;

/// What the time of a kernel is a sum of, each times a factor in microseconds.
enum class KernelTerm : std::uint8_t {
  kCall,       ///< 1.
  kDepth,      ///< Thousands of products that one element of the result adds up one after the other; steps of time.
  kGop,        ///< 10^9 operations; a multiply-add counts two.
  kMb,         ///< 10^6 bytes of activations read and written,
  kWeightMb,   ///< and of constants.
  kProgram,    ///< 1 where an epilogue is a kernel of its own,
  kProgramMb,  ///< and 10^6 bytes that pass between the two.
};
inline constexpr std::size_t kKernelTerms = 7;
std::string_view name_of(KernelTerm term) noexcept;

using KernelTerms = std::array<double, kKernelTerms>;

struct KernelWork {
  KernelKind kind = KernelKind::kPointwise;
  Precision precision = Precision::kFP32;
  KernelTerms terms{};
};

/// Nothing for groups that take no time: other shapes of the same elements, and what computes shapes.
/// `assignment`: precisions and storage. `together`: how many products of one operand are computed as one. Kernels on
/// 8-bit integers take floats, make integers of them, and store floats again.
std::optional<KernelWork> kernel_work(const Specialization& spec, const Group& group, const Assignment& assignment,
                                      int together);
/// The same where everything in the group runs in `precision`, and what it reads and stores is `stored`.
std::optional<KernelWork> kernel_work(const Specialization& spec, const Group& group, Precision precision,
                                      DataType stored, int together);
/// A pass over so many elements that gives them another type: by bytes read and written per element.
KernelWork cast_work(double elements, double bytes_per_element);
KernelWork run_work();
/// The same kernel with nothing to compute.
KernelWork launch_of(const KernelWork& work);

/// Factors of the terms, fitted to measurements (runtime/measure_kernels.h).
struct KernelModel {
  /// Of those that do not multiply: fp32 stands for every precision.
  std::map<std::pair<KernelKind, Precision>, KernelTerms> us{};
  /// How well they tell what they were fitted to: how many networks, and the median and the 90th percentile of
  /// |estimated / measured - 1|.
  int networks = 0;
  double median_error = 0, large_error = 0;
  /// The GPU that the factors are of, if it is another one; empty: they are this one's own.
  std::string of{};

  /// Microseconds. `rate`: of arithmetic per precision, for those that have no factors of their own: they take those of
  /// the precision that is nearest, as the rates are to each other.
  double operator()(const KernelWork& work, std::span<const double> rates) const;
};

}  // namespace ulpscope
