#include "ulpscope/answer.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "functions.h"
#include "long_call.h"
#include "ulpscope/model.h"
#include "ulpscope/report.h"

namespace nb = nanobind;

namespace ulpscope::python {

void bind_answer(nb::module_& module) {
  nb::class_<AnswerFile>(module, "Answer")
      .def_static("from_json", &answer_from_json, nb::arg("text"), nb::arg("where"))
      .def_static("read", &read_answer, nb::arg("path"))
      // What no file says has to survive a pickle, too.
      .def("__getstate__",
           [](const AnswerFile& self) { return std::tuple(answer_to_json(self), self.path, self.set_options); })
      .def("__setstate__",
           [](AnswerFile& self, const std::tuple<std::string, std::filesystem::path, std::vector<std::string>>& state) {
             AnswerFile made = answer_from_json(std::get<0>(state), "[answer]");
             made.path = std::get<1>(state);
             made.set_options = std::get<2>(state);
             new (&self) AnswerFile(std::move(made));
           })
      .def("write", [](const AnswerFile& self) { write_answer(self.path, self); })
      .def("to_json", &answer_to_json)
      .def("text", &answer_text, nb::arg("everything"))
      .def("with_trial", &with_trial, nb::arg("trial"))
      .def("moved_to", &moved_to, nb::arg("path"))
      .def(
          "report",
          [](const AnswerFile& self, const std::filesystem::path& output, const std::filesystem::path& typed,
             const AnswerFile* compare) {
            ReportOptions options{.output = output, .typed = typed};
            if (compare != nullptr) options.compare = *compare;
            LongCall call;
            return call.run([&] { return report(self, options); });
          },
          nb::arg("output"), nb::arg("typed"), nb::arg("compare").none())
      .def("model_options", &options_for)
      .def_ro("path", &AnswerFile::path)
      .def_ro("model", &AnswerFile::model)
      .def_ro("precisions", &AnswerFile::precisions)
      .def_ro("criterion_options", &AnswerFile::criterion_options)
      .def_ro("calibration_cache", &AnswerFile::calibration_cache)
      .def_ro("scales", &AnswerFile::scales)
      .def_rw("inputs", &AnswerFile::inputs)
      .def_rw("golden", &AnswerFile::golden);
}

}  // namespace ulpscope::python
