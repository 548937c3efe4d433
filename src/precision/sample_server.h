// A process that runs samples of a search that goes on elsewhere: by the functions that the search itself would call.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "precision/criterion.h"
#include "precision/predictor.h"
#include "precision/search.h"
#include "precision/trials.h"
#include "runners/script_host.h"

namespace ulpscope {

/// What the processes of a search are started with: the network as a file, and all the rest as bytes. The criterion
/// goes along where it judges each sample by itself and words can say it: `judges` says whether it does.
struct SampleSetup {
  Tensor bytes;
  bool judges = false;
};
/// Writes the network to `file`. Throws Error(kIo).
SampleSetup make_sample_setup(const SearchData& data, const SearchTask& task, const CriterionOptions& options,
                              const Criterion& criterion, const std::filesystem::path& file);

/// What decides about the bits of results besides the input: the release, and the instructions that this processor has
/// (those that ULPSCOPE_ISA and ONEDNN_MAX_CPU_ISA leave).
struct ProcessIdentity {
  std::string version, processor;
};
ProcessIdentity process_identity();

/// Keeps plans, weights, activations and golden outputs between tasks. Not thread-safe.
class SampleServer {
 public:
  /// `threads`: 0: one per core. Throws Error for a file that is not the network of the setup.
  SampleServer(const std::filesystem::path& network, const Tensor& setup, int threads);
  ~SampleServer();
  /// The result of a task (remote_samples.cpp), or the error that it ended with.
  Tensor run(const Tensor& task);

 private:
  /// The network after some repairs.
  struct State {
    std::string key;
    std::unique_ptr<Trials> trials;
    std::unique_ptr<SamplePredictor> predictor;
    std::string predicted;  ///< What the predictor is for.
  };

  Value answer(const Value& task);
  State& state_of(const Tensor& repairs);
  State& base() { return *states_.front(); }
  const TensorMap& golden(std::size_t sample);
  Value effects(State& state, const Value& task, const Assignment& low, std::size_t sample);

  std::shared_ptr<const Network> network_;
  BuildOptions build_;
  std::vector<TensorMap> samples_;
  std::size_t memory_limit_ = 0;
  ScriptHost host_;
  std::unique_ptr<Criterion> judge_, prediction_;
  std::vector<std::unique_ptr<State>> states_;  ///< The unchanged network first, then the latest other one.
  std::optional<Assignment> exact_;             ///< Of the unchanged network.
  std::map<std::size_t, TensorMap> golden_;     ///< By sample.
};

}  // namespace ulpscope
