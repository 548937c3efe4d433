#include "ulpscope/verify.h"

#include <fmt/ranges.h>

#include "api/loaded_model.h"
#include "core/messages.h"
#include "graph/layer_choice.h"
#include "precision/criterion_options.h"
#include "precision/repair.h"
#include "precision/trials.h"
#include "runtime/memory_limit.h"

namespace ulpscope {

Judgement verify(const Model& model, const AnswerFile& answer, std::span<const TensorsByName> samples,
                 const VerifyOptions& options) {
  LoadedModel& loaded = ModelAccess::loaded(model);
  const std::string where = "[verify] answer";
  check_answer_model(loaded, answer, where);
  const CriterionOptions tolerance = options.criterion ? *options.criterion : criterion_of(answer, where);
  const auto criterion = make_criterion(tolerance, loaded.scripts(), loaded.output_names());
  begin_limited(*loaded.network, loaded.build.memory_limit);
  const std::vector<TensorMap> fitted = fitted_samples(*loaded.network, samples);
  BuildOptions build = loaded.build;
  build.constraints = ConstraintMode::kObey;
  // Golden outputs are those of the network without repairs.
  std::vector<TensorMap> golden = ordered_outputs(*loaded.network, options.golden);
  if (golden.empty()) {
    Trials exact(loaded.network, build, fitted, loaded.weights);
    golden = exact.run(exact.full_precision(), 0, fitted.size(), /*keep=*/false, options.interrupt);
  }
  check_golden_of(golden, *criterion, tolerance.infinities_equal, std::ssize(fitted));
  if (!options.candidate.empty()) return criterion->judge(golden, ordered_outputs(*loaded.network, options.candidate));
  const auto repaired = std::make_shared<Network>(*loaded.network);
  if (build.scales.empty()) build.scales = answer.scales;
  take_scale_choice(answer, where, build);
  apply_repairs(*repaired, build.scales, answer.answer.repairs);
  Requests requested = own_requests(*repaired);
  request_kept_layers(loaded, *repaired, answer, where, requested);
  Trials trials(repaired, build, fitted, loaded.weights);
  const Assignment assignment = trials.assign(requested);
  Judgement judged =
      criterion->judge(golden, trials.run(assignment, 0, fitted.size(), /*keep=*/false, options.interrupt));
  if (const std::vector<std::string> idle = trials.idle_bodies(assignment); !idle.empty())
    log_warning("[verify] No sample runs {}: the verdict says nothing of the layers there; try samples that run it",
                fmt::join(idle, ", "));
  end_limited(loaded.build.memory_limit, "the inputs and both outputs of all samples, and what a run holds, took",
              "fewer or smaller samples");
  return judged;
}

}  // namespace ulpscope
