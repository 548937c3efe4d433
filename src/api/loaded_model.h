// A model that was read: what public functions and the program work on.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/early_start.h"
#include "backend/weights.h"
#include "compare/tensor_map.h"
#include "engine/options.h"
#include "engine/specialization.h"
#include "graph/network.h"
#include "runners/onnx_checks.h"
#include "runners/script_host.h"
#include "ulpscope/answer.h"
#include "ulpscope/criterion.h"
#include "ulpscope/model.h"

namespace ulpscope {

struct LoadedModel {
  std::string name;                      ///< As it was given, for messages and answers.
  std::filesystem::path path;            ///< Of the file (of the script that made the network); empty: from memory.
  std::vector<std::byte> bytes;          ///< Where there is no path.
  std::filesystem::path external_data;   ///< Empty: beside the file, or the working directory.
  std::shared_ptr<Network> network;      ///< With everything that was asked for.
  BuildOptions build;                    ///< What it is built for; int8 scales are those before repairs.
  std::optional<WeightScales> weight_scales;  ///< Where somebody asked for them.
  WeightCache weights;                        ///< What calibration prepared.
  std::shared_ptr<EarlyStart> start;     ///< Of the backend, while the model is read.
  std::vector<Repair> clamps;            ///< Done to the network already.
  BuildRecord record;                    ///< What made this network of the file, as answers keep it.
  /// Started by the program while the model was read.
  std::shared_ptr<OnnxChecks> checks;
  /// For metric scripts; made when it is needed, unless the program brings its own.
  std::shared_ptr<ScriptHost> host;

  ScriptHost& scripts();
  std::string hash() const;
  /// Of its external data; empty where it has none.
  std::string external_hash() const;
  /// As it was when the network was read of it, whatever has its name by now; another file is opened.
  std::shared_ptr<const MappedFile> file_at(const std::filesystem::path& name) const;
  /// Calls `use` with the file's bytes.
  void with_bytes(const std::function<void(std::span<const std::byte>)>& use) const;
  std::vector<std::string> output_names() const;
};

/// What a handle stands for, and a handle on it: the program edits networks between reading and use.
struct ModelAccess {
  static LoadedModel& loaded(const Model& model) noexcept { return *model.loaded_; }
  static Model handle(std::shared_ptr<LoadedModel> loaded) { return Model(std::move(loaded)); }
};

/// Of files that the network was read from; `what` was made with it.
void warn_of_replaced_files(const Network& network, std::string_view what);

/// Samples made to fit the inputs of the network, in its order (see adapt_inputs). Throws
/// Error(kInvalidArgument) for what does not fit.
std::vector<TensorMap> fitted_samples(const Network& network, std::span<const TensorsByName> samples);
/// Outputs in the order of the network, without others.
std::vector<TensorMap> ordered_outputs(const Network& network, std::span<const TensorsByName> outputs);

/// The network for the shapes of a sample.
std::shared_ptr<const Specialization> specialize_for(const Network& network, const TensorMap& sample);

/// Throws Error(kInvalidArgument), which starts with `where`, unless the answer was found for this model: its file and
/// its external data.
void check_answer_model(const LoadedModel& model, const AnswerFile& answer, const std::string& where);
/// Adds what the answer keeps to the types that the layers of a network of this model are asked for; what is kept in
/// float32 already stays so. Throws Error(kInvalidArgument), which starts with `where`, for a layer that the network
/// does not have, and for one that is asked for in another type.
void request_kept_layers(const LoadedModel& model, const Network& network, const AnswerFile& answer,
                         const std::string& where, Requests& requested);

/// The scales of weights and of blocks that the answer was found with. Throws Error(kInvalidFile), which starts with
/// `where`, for names that no version knows.
void take_scale_choice(const AnswerFile& answer, const std::string& where, BuildOptions& build);

/// The tolerance of the answer. Throws Error(kInvalidArgument), which starts with `where`, when it does not say one.
CriterionOptions criterion_of(const AnswerFile& answer, const std::string& where);

}  // namespace ulpscope
