#include "ulpscope/criterion.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>

#include <memory>

#include "core/messages.h"
#include "functions.h"
#include "long_call.h"
#include "samples.h"
#include "ulpscope/error.h"

namespace nb = nanobind;

namespace ulpscope::python {
namespace {

std::map<std::string, double> values_of(nb::handle result, const std::string& name) {
  const auto number = [&](nb::handle value) {
    const nb::object as_float = nb::steal(PyNumber_Float(value.ptr()));
    if (as_float.is_valid()) return nb::cast<double>(as_float);
    PyErr_Clear();
    throw error_of(ErrorCode::kScript, "[criterion] {}: expected a number, or a dictionary of them by output, got {}",
                   name, nb::cast<std::string>(nb::repr(value)));
  };
  if (!nb::isinstance<nb::dict>(result)) return {{"", number(result)}};
  std::map<std::string, double> values;
  for (auto [key, value] : nb::borrow<nb::dict>(result)) values[nb::cast<std::string>(key)] = number(value);
  return values;
}

/// The library calls it without the GIL.
MetricFunction metric_of(const nb::object& function, const std::string& name, const std::string& identity,
                         bool higher_is_better) {
  MetricFunction metric{name, identity, higher_is_better, nullptr};
  // Whoever drops the last copy may hold no GIL.
  const std::shared_ptr<nb::object> held(new nb::object(function), [](nb::object* object) {
    const nb::gil_scoped_acquire gil;
    delete object;
  });
  metric.evaluate = [held, name](const std::map<std::string, Tensor>& golden,
                                 const std::map<std::string, Tensor>& candidate) {
    std::map<std::string, double> values;
    const auto evaluate = [&] { values = values_of((*held)(to_arrays(golden), to_arrays(candidate)), name); };
    if (LongCall* call = LongCall::of_thread()) {
      call->with_python(evaluate);
    } else {
      const nb::gil_scoped_acquire gil;
      evaluate();
    }
    return values;
  };
  return metric;
}

template <typename T>
PerName<T> per_name(const std::map<std::string, T>& values) {
  PerName<T> result;
  for (const auto& [name, value] : values) result.set(name, value);
  return result;
}

}  // namespace

void bind_criterion(nb::module_& module) {
  using Numbers = std::map<std::string, double>;
  nb::class_<CriterionOptions>(module, "Criterion")
      .def(nb::init<>())
      .def_rw("metric", &CriterionOptions::metric)
      .def_rw("metric_script", &CriterionOptions::metric_script)
      .def_rw("top_k", &CriterionOptions::top_k)
      .def_rw("iou_level", &CriterionOptions::iou_level)
      .def("set_threshold", [](CriterionOptions& self, const Numbers& values) { self.threshold = per_name(values); })
      .def("set_tolerances",
           [](CriterionOptions& self, const Numbers& rtol, const Numbers& atol) {
             self.rtol = per_name(rtol);
             self.atol = per_name(atol);
           })
      .def("set_function",
           [](CriterionOptions& self, const nb::object& function, const std::string& name, const std::string& identity,
              bool higher_is_better) { self.metric_function = metric_of(function, name, identity, higher_is_better); });
}

}  // namespace ulpscope::python
