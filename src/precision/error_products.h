// What the error of one layer by itself does to the outputs of a network: local errors times gradients.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "precision/local_errors.h"
#include "precision/trials.h"

namespace ulpscope {

struct AdjointNetwork;

/// Products of gradients and local errors, for samples of the same shapes. Several threads may work on distinct
/// samples.
class ErrorProducts {
 public:
  /// What one local error is like.
  struct Kind {
    bool overflows = false;  ///< Some of it is not finite.
    bool exact = true;       ///< All of it is 0.
  };
  /// A sample between start() and the last project() of it.
  struct Sample {
    std::vector<Kind> kinds;  ///< Per candidate_outputs(); known once it has been projected.
    std::vector<Tensor> feeds;
    std::shared_ptr<ErrorProducts> instead;  ///< Takes over what one network cannot tell.
  };
  virtual ~ErrorProducts() = default;

  /// What such a sample takes in this process: its errors, and all else.
  struct Bytes {
    std::size_t errors = 0, other = 0;
    std::size_t all() const noexcept { return errors + other; }
  };
  virtual Bytes bytes() const { return {}; }

  /// `inputs` of the network, physical types.
  virtual Sample start(std::span<const Tensor> inputs) = 0;
  /// How the products of the elements of a gradient and of an error become a number.
  enum class Fold : std::uint8_t {
    kSum,             ///< All of them added.
    kChannelSquares,  ///< Those of an output channel added, of these sums the squares: see squares_of_channels().
  };
  /// Per candidate_outputs(): <gradient of sum over outputs of <seed, output>, local error>, folded; 0 where no
  /// gradient or no error is. An error that is not finite counts as a very large one. `seeds`: float32, per seeded().
  virtual std::vector<double> project(Sample& sample, std::span<const Tensor> seeds) = 0;

  /// The outputs that gradients start from: all of those asked for that have a known shape.
  const std::vector<TensorId>& seeded() const noexcept { return seeded_; }
  /// Of candidate_outputs(): no derivative tells the whole effect.
  bool incomplete(std::size_t place) const { return incomplete_[place] != 0; }

 protected:
  explicit ErrorProducts(Fold fold) : fold_(fold) {}
  Fold fold() const noexcept { return fold_; }
  /// `sums`: of rows, or of channels where these are wanted.
  double folded(std::span<const float> sums) const;
  /// The gradients of the outputs with respect to these places; says what seeded() and incomplete() are.
  AdjointNetwork adjoint_for(const Specialization& spec, std::span<const CandidateOutput> places,
                             std::span<const TensorId> outputs);

 private:
  const Fold fold_;
  std::vector<TensorId> seeded_;
  std::vector<char> incomplete_;
};

/// The expected square of the sum of all products, from those of each output channel, for errors of weights: each
/// channel has weights of its own, which round by themselves. Errors of rows (tokens) do not, since they share all
/// weights: of a key, what all rows have in common is nothing to softmax. Where gradients point one way within a head,
/// neighbors count together, too; so this is the mean over the sums of 1, 4, 16, 64 and 256 neighbors. Less of a
/// square is left to chance than of the square of one sum.
double squares_of_channels(std::span<const float> sums);

/// Makes them for one search.
class ErrorProductsMaker {
 public:
  /// `trials` outlives it and what it makes; `outputs`: the float ones that are judged; `precisions`: as in
  /// with_twins().
  ErrorProductsMaker(Trials& trials, const Assignment& low, std::span<const LayerId> candidates,
                     std::vector<TensorId> outputs, ErrorProducts::Fold fold = ErrorProducts::Fold::kSum,
                     std::span<const Precision> precisions = {});

  const std::vector<CandidateOutput>& candidate_outputs() const noexcept { return candidate_outputs_; }
  /// For the shapes of a sample. Errors and gradients are two networks where the backend's memory is this process's:
  /// the errors are computed once, however many projections there are. On a device they are one, and nothing but sums
  /// leaves it; `in_one` says so for any backend.
  std::shared_ptr<ErrorProducts> make(std::size_t sample) { return make(sample, in_one_by_default_); }
  std::shared_ptr<ErrorProducts> make(std::size_t sample, bool in_one);

 private:
  Trials& trials_;
  const Assignment low_;
  const std::vector<LayerId> candidates_;
  const std::vector<Precision> precisions_;
  const std::vector<TensorId> outputs_;
  const std::vector<CandidateOutput> candidate_outputs_;
  const ErrorProducts::Fold fold_;
  const bool in_one_by_default_;
  LocalErrors local_errors_;
};

}  // namespace ulpscope
