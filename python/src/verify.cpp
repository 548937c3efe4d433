#include "ulpscope/verify.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "functions.h"
#include "judgement.h"
#include "long_call.h"
#include "samples.h"

namespace nb = nanobind;

namespace ulpscope::python {

nb::dict to_dict(const Judgement& judgement) {
  nb::list outputs;
  for (const Judgement::OutputError& each : judgement.outputs) {
    nb::dict output;
    output["output"] = each.output;
    output["used"] = each.used;
    output["value"] = each.value;
    output["sample"] = each.sample;
    outputs.append(output);
  }
  nb::dict result;
  result["used"] = judgement.used;
  result["value"] = judgement.value;
  result["worst_output"] = judgement.worst_output;
  result["worst_sample"] = judgement.worst_sample;
  result["problem"] = judgement.problem;
  result["outputs"] = outputs;
  return result;
}

void bind_verify(nb::module_& module) {
  module.def(
      "verify",
      [](const Model& model, const AnswerFile& answer, const nb::list& samples,
         const std::optional<CriterionOptions>& criterion, const nb::list& golden, const nb::list& candidate,
         const nb::object& progress) {
        LongCall call;
        VerifyOptions options;
        options.criterion = criterion;
        options.golden = to_samples(golden, "golden outputs");
        options.candidate = to_samples(candidate, "outputs");
        const std::vector<TensorsByName> tensors = to_samples(samples, "sample");
        std::size_t done = 0;
        options.interrupt = [&] {
          call.check();
          if (!progress.is_none())
            call.report(done == 0, [&] { progress("judging samples", done, tensors.size(), 0, -1); });
          ++done;
        };
        return to_dict(call.run([&] { return verify(model, answer, tensors, options); }));
      },
      nb::arg("model"), nb::arg("answer"), nb::arg("samples"), nb::arg("criterion").none(), nb::arg("golden"),
      nb::arg("candidate"), nb::arg("progress").none());
}

}  // namespace ulpscope::python
