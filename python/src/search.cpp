#include "ulpscope/search.h"

#include <fmt/ranges.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>

#include "arrays.h"
#include "core/messages.h"
#include "functions.h"
#include "long_call.h"
#include "precision/sample_server.h"
#include "samples.h"
#include "whole_number.h"

namespace nb = nanobind;

namespace ulpscope::python {
namespace {

Objective objective_named(const std::string& name) {
  if (const auto objective = ulpscope::objective_named(name)) return *objective;
  throw invalid_argument("[search] objective: expected one of {}, got '{}'", fmt::join(objective_names(), ", "), name);
}

nb::tuple search_model(const Model& model, const nb::list& samples, SearchOptions options, const nb::object& progress) {
  const std::vector<TensorsByName> tensors = to_samples(samples, "sample");
  LongCall call(progress);
  std::string stage;
  options.progress = [&](const SearchProgress& now) {
    const bool is_new = now.stage != stage || (now.all > 0 && now.done == now.all);
    stage = now.stage;
    call.report(is_new, now.stage, now.done, now.all, now.trials, now.best);
  };
  const AnswerFile answer = call.run([&] { return search(model, tensors, options); });
  return nb::make_tuple(answer, call.interrupted());
}

int to_workers(nb::handle value, std::string_view where) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();  // no less than any cluster has
  return static_cast<int>(std::clamp(to_whole_number(value, where), std::int64_t{-1}, kMost));
}

void bind_workers(nb::module_& module) {
  nb::class_<SampleServer>(module, "SampleServer")
      .def(
          "__init__",
          [](SampleServer* self, const std::filesystem::path& network, const nb::object& setup, int threads) {
            const Tensor bytes = to_tensor(setup, {"", "setup"});
            const nb::gil_scoped_release no_gil;
            new (self) SampleServer(network, bytes, threads);
          },
          nb::arg("network"), nb::arg("setup"), nb::arg("threads"))
      .def(
          "run",
          [](SampleServer& self, const nb::object& task) {
            const Tensor bytes = to_tensor(task, {"", "task"});
            Tensor result;
            {
              const nb::gil_scoped_release no_gil;
              result = self.run(bytes);
            }
            return to_array(std::move(result));
          },
          nb::arg("task"));
  module.def("process_identity", [] {
    const ProcessIdentity identity = process_identity();
    return nb::make_tuple(identity.version, identity.processor);
  });
}

}  // namespace

void bind_search(nb::module_& module) {
  nb::class_<SearchOptions> options(module, "SearchOptions");
  options.def(nb::init<>())
      .def_rw("criterion", &SearchOptions::criterion)
      .def_rw("keep", &SearchOptions::keep)
      .def_rw("lower", &SearchOptions::lower)
      .def_rw("hold_out", &SearchOptions::hold_out)
      .def_rw("margin", &SearchOptions::margin)
      .def_rw("bits", &SearchOptions::bits)
      .def_rw("shrink", &SearchOptions::shrink)
      .def_rw("repair", &SearchOptions::repair)
      .def_rw("time_limit", &SearchOptions::time_limit)
      .def_rw("time_spent", &SearchOptions::time_spent)
      .def_rw("ray", &SearchOptions::ray)
      .def_rw("journal", &SearchOptions::journal)
      .def_rw("resume", &SearchOptions::resume)
      .def_rw("answer_path", &SearchOptions::answer_path)
      .def_rw("calibration_cache", &SearchOptions::calibration_cache)
      .def("set_held_out",
           [](SearchOptions& self, const nb::list& samples) { self.held_out = to_samples(samples, "held-out sample"); })
      .def("set_golden",
           [](SearchOptions& self, const nb::list& outputs) { self.golden = to_samples(outputs, "golden outputs"); })
      .def("set_objective",
           [](SearchOptions& self, const std::string& name) { self.objective = objective_named(name); })
      .def("set_ladder", [](SearchOptions& self, const std::vector<std::string>& names) {
        self.ladder.clear();
        for (const std::string& name : names) {
          const auto precision = precision_named(name);
          if (!precision) throw invalid_argument("[search] fallback: there is no precision '{}'", name);
          self.ladder.push_back(*precision);
        }
      });
  def_number(options, "max_trials", &SearchOptions::max_trials, to_whole_number, "[search] max_trials");
  def_number(options, "memory_limit", &SearchOptions::memory_limit, to_bytes, "[search] memory_limit");
  def_number(options, "ray_workers", &SearchOptions::ray_workers, to_workers, "[search] ray_workers");
  bind_workers(module);
  module.def("search", &search_model, nb::arg("model"), nb::arg("samples"), nb::arg("options"),
             nb::arg("progress").none());
}

}  // namespace ulpscope::python
