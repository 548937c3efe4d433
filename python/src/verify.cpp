#include "ulpscope/verify.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "functions.h"
#include "long_call.h"
#include "samples.h"

namespace nb = nanobind;

namespace ulpscope::python {

void bind_verify(nb::module_& module) {
  module.def(
      "verify",
      [](const Model& model, const AnswerFile& answer, const nb::list& samples,
         const std::optional<CriterionOptions>& criterion, const nb::list& golden, const nb::list& candidate,
         const nb::object& progress) {
        LongCall call(progress);
        VerifyOptions options;
        options.criterion = criterion;
        options.golden = to_samples(golden, "golden outputs");
        options.candidate = to_samples(candidate, "outputs");
        const std::vector<TensorsByName> tensors = to_samples(samples, "sample");
        std::size_t done = 0;
        options.interrupt = [&] {
          call.report(done == 0, "judging samples", done, tensors.size());
          ++done;
        };
        return to_dict(call.run([&] { return verify(model, answer, tensors, options); }));
      },
      nb::arg("model"), nb::arg("answer"), nb::arg("samples"), nb::arg("criterion").none(), nb::arg("golden"),
      nb::arg("candidate"), nb::arg("progress").none());
}

}  // namespace ulpscope::python
