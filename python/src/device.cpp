#include <fmt/format.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "dlpack.h"
#include "functions.h"
#include "runtime/device_run.h"
#include "ulpscope/device_tensor.h"
#include "ulpscope/onnx_engine.h"

namespace nb = nanobind;

namespace ulpscope::python {
namespace {

using Tensors = std::map<std::string, DeviceTensor>;
using Objects = std::map<std::string, nb::object>;

/// A result, with the stream of its run.
struct Result {
  DeviceTensor tensor;
  StreamHandle stream;
};

/// Values by name, each asked once where it is.
class Given {
 public:
  explicit Given(const Objects& values) {
    for (const auto& [name, value] : values)
      all_.push_back({name, value, is_dlpack(value) ? std::optional(place_of(value)) : std::nullopt});
  }

  /// The first that is on a device; none: null.
  nb::handle on_device() const {
    for (const auto& [name, value, place] : all_)
      if (place && !place->is_on_cpu()) return value;
    return {};
  }

  Tensors inputs(StreamHandle stream) const {
    Tensors tensors;
    for (const auto& [name, value, place] : all_) {
      const ValueName what{"input", name};
      tensors.emplace_hint(
          tensors.end(), name,
          place ? from_dlpack(value, *place, stream, what, true) : to_device_tensor(to_tensor(value, what)));
    }
    return tensors;
  }
  /// Arrays of NumPy are tensors of DLPack, too.
  Tensors outputs(StreamHandle stream) const {
    Tensors tensors;
    for (const auto& [name, value, place] : all_)
      tensors.emplace_hint(tensors.end(), name,
                           from_dlpack(value, place ? *place : place_of(value), stream, {"output", name}, false));
    return tensors;
  }

 private:
  struct Each {
    const std::string& name;
    nb::handle value;
    std::optional<DlPlace> place;
  };
  std::vector<Each> all_;  ///< In the order of names.
};

/// `stream_of`: says the stream of a caller whose first tensor on a device this is, or None.
StreamHandle stream_for(std::initializer_list<const Given*> all, const nb::callable& stream_of) {
  for (const Given* given : all)
    if (const nb::handle first = given->on_device(); first.is_valid()) return nb::cast<StreamHandle>(stream_of(first));
  return nb::cast<StreamHandle>(stream_of(nb::none()));
}

std::map<std::string, Result> results_of(Tensors tensors, StreamHandle stream) {
  std::map<std::string, Result> results;
  for (auto& [name, tensor] : tensors) results.emplace(name, Result{std::move(tensor), stream});
  return results;
}

nb::object dlpack_of(const Result& self, std::optional<std::intptr_t> stream, nb::handle device, nb::handle copy) {
  if ((!device.is_none() && !device.equal(dlpack_device_of(self.tensor))) || (!copy.is_none() && nb::cast<bool>(copy)))
    throw nb::buffer_error("an ulpscope.DeviceTensor gives its memory where it is, without a copy");
  if (self.tensor.cuda && self.tensor.owner != nullptr && stream != -1)
    self.tensor.owner->used_on(to_stream(static_cast<StreamHandle>(stream.value_or(0))));
  return to_dlpack(self.tensor);
}

}  // namespace

void bind_device(nb::module_& module) {
  nb::class_<Result>(module, "DeviceTensor")
      .def_prop_ro("shape", [](const Result& self) { return nb::tuple(nb::cast(self.tensor.shape)); })
      .def_prop_ro("dtype", [](const Result& self) { return dtype_of(self.tensor.type); })
      .def_prop_ro(
          "device",
          [](const Result& self) { return self.tensor.cuda ? fmt::format("cuda:{}", *self.tensor.cuda) : "cpu"; })
      .def("numpy",
           [](const Result& self) {
             Tensor host;
             {
               const nb::gil_scoped_release no_gil;
               host = to_host(self.tensor, to_stream(self.stream));
             }
             return to_array(std::move(host));
           })
      .def("__dlpack_device__", [](const Result& self) { return dlpack_device_of(self.tensor); })
      .def(
          "__dlpack__",
          [](const Result& self, std::optional<std::intptr_t> stream, nb::handle, nb::handle device, nb::handle copy) {
            return dlpack_of(self, stream, device, copy);
          },
          nb::kw_only(), nb::arg("stream") = nb::none(), nb::arg("max_version") = nb::none(),
          nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none());
  nb::class_<BoundRun>(module, "BoundRun")
      .def(
          "run", [](const BoundRun& self, StreamHandle stream) { self.run(to_stream(stream)); }, nb::arg("stream"),
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "outputs", [](const BoundRun& self, StreamHandle stream) { return results_of(self.outputs(), stream); },
          nb::arg("stream"));
  module.def("is_dlpack", &is_dlpack, nb::arg("value").none());
  module.def(
      "is_on_device", [](nb::handle value) { return is_dlpack(value) && !place_of(value).is_on_cpu(); },
      nb::arg("value").none());
  module.def(
      "run_on_device",
      [](const OnnxEngine& engine, const Objects& inputs, const nb::callable& stream_of) {
        const Given given(inputs);
        const StreamHandle stream = stream_for({&given}, stream_of);
        const Tensors tensors = given.inputs(stream);
        const nb::gil_scoped_release no_gil;
        return results_of(engine.run_on_device(tensors, to_stream(stream)), stream);
      },
      nb::arg("engine"), nb::arg("inputs"), nb::arg("stream_of"));
  module.def(
      "bind",
      [](const OnnxEngine& engine, const Objects& inputs, const Objects& outputs, const nb::callable& stream_of) {
        const Given given_inputs(inputs), given_outputs(outputs);
        const StreamHandle stream = stream_for({&given_inputs, &given_outputs}, stream_of);
        const Tensors in = given_inputs.inputs(stream), out = given_outputs.outputs(stream);
        const nb::gil_scoped_release no_gil;
        return std::pair(engine.bind(in, out, to_stream(stream)), stream);
      },
      nb::arg("engine"), nb::arg("inputs"), nb::arg("outputs"), nb::arg("stream_of"));
}

}  // namespace ulpscope::python
