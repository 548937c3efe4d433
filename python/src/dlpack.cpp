#include "dlpack.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "core/messages.h"

namespace nb = nanobind;

namespace ulpscope::python {
namespace {

using DlDevice = nb::dlpack::device;
using DlTensor = nb::dlpack::dltensor;

// As dlpack.h declares them.
struct DlManagedTensor {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManagedTensor*);
};

struct DlVersion {
  std::uint32_t major, minor;
};
struct DlVersionedTensor {
  DlVersion version;
  void* context;
  void (*deleter)(DlVersionedTensor*);
  std::uint64_t flags;
  DlTensor tensor;
};
/// DLPackExchangeAPI (since 1.3): what a class of tensors does without Python. All but `version` and `earlier` may
/// change with the major version.
struct DlExchange {
  DlVersion version;
  const DlExchange* earlier;
  void* allocate;
  int (*give)(void* object, DlVersionedTensor** to);  ///< Waits for no stream.
  void* take;
  int (*look)(void* object, DlTensor* to);  ///< Keeps nothing alive. May be missing.
  int (*current_stream)(std::int32_t device_type, std::int32_t device, void** to);
};

enum DlDeviceType : std::int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13 };
constexpr const char *kFresh = "dltensor", *kUsed = "used_dltensor";

/// Of the protocol's methods: texts that Python finds by their address.
struct Names {
  PyObject* give = PyUnicode_InternFromString("__dlpack__");
  PyObject* device = PyUnicode_InternFromString("__dlpack_device__");
  PyObject* exchange = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
};
const Names& names() {
  static const Names made;
  return made;
}

[[noreturn]] void refuse(const ValueName& what, const std::string& why) {
  throw invalid_argument("[run] {}: {}", what.text(), why);
}

DataType type_of(const nb::dlpack::dtype& given, const ValueName& what) {
  if (const auto type = python::type_of(given)) return *type;
  refuse(what, fmt::format("expected a tensor of floats, integers or booleans with a whole number of bytes each, got "
                           "DLPack's type code {} with {} bits and {} lanes",
                           given.code, given.bits, given.lanes));
}

bool is_dense(const DlTensor& tensor) {
  if (tensor.strides == nullptr) return true;
  std::int64_t expected = 1;
  bool dense = true;
  for (std::int32_t d = tensor.ndim - 1; d >= 0; --d) {
    if (tensor.shape[d] == 0) return true;
    dense &= tensor.shape[d] == 1 || tensor.strides[d] == expected;
    expected *= tensor.shape[d];
  }
  return dense;
}

/// Releases it under Python's lock, from whichever thread drops the last handle.
template <typename Managed>
class DlOwner final : public DeviceOwner {
 public:
  explicit DlOwner(Managed* managed) : managed_(managed) {}
  ~DlOwner() override {
    if (managed_->deleter == nullptr) return;
    const nb::gil_scoped_acquire gil;
    managed_->deleter(managed_);
  }

 private:
  Managed* const managed_;
};

/// What the class of this tensor offers; null: nothing that is known here.
const DlExchange* exchange_of(nb::handle value) {
  constexpr std::uint32_t kMajor = 1;
  // Tensors are mostly of one class. It is kept alive, so that no other one has its address.
  static PyObject* last = nullptr;
  static const DlExchange* of_last = nullptr;
  PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(value.ptr()));
  if (type == last) return of_last;
  const DlExchange* found = nullptr;
  PyObject* const offered = PyObject_GetAttr(type, names().exchange);
  if (offered != nullptr) {
    found = static_cast<const DlExchange*>(PyCapsule_GetPointer(offered, "dlpack_exchange_api"));
    while (found != nullptr && found->version.major != kMajor) found = found->earlier;
    Py_DECREF(offered);
  }
  PyErr_Clear();
  PyObject* const before = std::exchange(last, nb::borrow(type).release().ptr());
  Py_XDECREF(before);
  return of_last = found;
}

/// What its class gives without Python, where nobody has to wait: on the CPU, or if its owner works on this stream.
/// Null: __dlpack__ is to be asked, and says what is wrong.
DlVersionedTensor* given_at_once(nb::handle value, DlPlace place, StreamHandle stream) {
  const DlExchange* const exchange = exchange_of(value);
  if (exchange == nullptr) return nullptr;
  void* current = nullptr;
  DlVersionedTensor* result = nullptr;
  const bool works = !place.is_on_cuda() || (exchange->current_stream(place.type, place.number, &current) == 0 &&
                                             current == to_stream(stream));
  if (!works || exchange->give(value.ptr(), &result) != 0) result = nullptr;
  PyErr_Clear();
  return result;
}

std::string said(nb::python_error& error) {
  return fmt::format("{}: {}", nb::cast<std::string>(error.type().attr("__name__")),
                     nb::cast<std::string>(nb::str(error.value())));
}

nb::object called(nb::handle value) {
  PyObject* const capsule = PyObject_CallMethodObjArgs(value.ptr(), names().give, nullptr);
  if (capsule == nullptr) throw nb::python_error();
  return nb::steal(capsule);
}

/// What it gives, taken out of its capsule.
DlManagedTensor* exported(nb::handle value, bool on_cuda, StreamHandle stream, const ValueName& what) {
  nb::object capsule;
  try {
    capsule =
        on_cuda ? value.attr("__dlpack__")(nb::arg("stream") = stream == 0 ? StreamHandle{1} : stream) : called(value);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
    refuse(what, fmt::format("expected a tensor that gives its memory, and its __dlpack__ raised {}", said(error)));
  }
  auto* const managed = static_cast<DlManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), kFresh));
  if (managed == nullptr) {
    PyErr_Clear();
    refuse(what, fmt::format("expected its __dlpack__ to give a capsule '{}'", kFresh));
  }
  PyCapsule_SetName(capsule.ptr(), kUsed);
  return managed;
}

/// What a capsule of ours keeps.
struct Export {
  DlManagedTensor managed;
  DeviceTensor tensor;
  std::vector<std::int64_t> strides;
};

DlDevice dl_device_of(const DeviceTensor& tensor) {
  return tensor.cuda ? DlDevice{kCuda, *tensor.cuda} : DlDevice{kCpu, 0};
}

void free_unused(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kFresh) == 0) return;
  auto* const managed = static_cast<DlManagedTensor*>(PyCapsule_GetPointer(capsule, kFresh));
  managed->deleter(managed);
}

}  // namespace

bool is_dlpack(nb::handle value) {
  static PyObject* const ndarray = nb::object(nb::module_::import_("numpy").attr("ndarray")).release().ptr();
  static PyObject* const scalar = nb::object(nb::module_::import_("numpy").attr("generic")).release().ptr();
  // Tensors are mostly of one class. It is kept alive, so that no other one has its address.
  static PyObject* last = nullptr;
  PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(value.ptr()));
  if (type == last) return true;
  if (type == ndarray || PyObject_IsInstance(value.ptr(), ndarray) == 1 ||
      PyObject_IsInstance(value.ptr(), scalar) == 1 || PyObject_HasAttr(value.ptr(), names().give) == 0 ||
      PyObject_HasAttr(value.ptr(), names().device) == 0)
    return false;
  if (PyObject_HasAttr(type, names().give) == 1 && PyObject_HasAttr(type, names().device) == 1) {
    PyObject* const before = std::exchange(last, nb::borrow(type).release().ptr());
    Py_XDECREF(before);
  }
  return true;
}

namespace {

[[noreturn]] void refuse_place(nb::handle value, const std::string& why) {
  throw invalid_argument("[run] a tensor of class '{}': expected its __dlpack_device__ to give (type, number): {}",
                         nb::cast<std::string>(value.type().attr("__name__")), why);
}

}  // namespace

bool DlPlace::is_on_cpu() const { return type == kCpu || type == kCudaHost; }
bool DlPlace::is_on_cuda() const { return type == kCuda || type == kCudaManaged; }

DlPlace place_of(nb::handle value) {
  if (const DlExchange* exchange = exchange_of(value); exchange != nullptr && exchange->look != nullptr) {
    DlTensor tensor{};
    if (exchange->look(value.ptr(), &tensor) == 0) return {tensor.device.device_type, tensor.device.device_id};
    PyErr_Clear();
  }
  try {
    PyObject* const given = PyObject_CallMethodObjArgs(value.ptr(), names().device, nullptr);
    if (given == nullptr) throw nb::python_error();
    const nb::object device = nb::steal(given);
    return {nb::cast<int>(nb::int_(device[0])), nb::cast<int>(nb::int_(device[1]))};
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
    refuse_place(value, said(error));
  } catch (const nb::cast_error&) {
    refuse_place(value, "it gives no numbers");
  }
}

DeviceTensor from_dlpack(nb::handle value, DlPlace place, StreamHandle stream, const ValueName& what, bool is_read) {
  const bool on_cuda = place.is_on_cuda();
  if (!on_cuda && !place.is_on_cpu())
    refuse(what, fmt::format("expected a tensor on the CPU or on a CUDA device, got one on DLPack's device type {}",
                             place.type));
  DeviceTensor result;
  DlTensor tensor{};
  if (DlVersionedTensor* quick = is_read ? given_at_once(value, place, stream) : nullptr) {
    result.owner = std::make_shared<DlOwner<DlVersionedTensor>>(quick);
    tensor = quick->tensor;
  } else {
    DlManagedTensor* const managed = exported(value, on_cuda, stream, what);
    result.owner = std::make_shared<DlOwner<DlManagedTensor>>(managed);
    tensor = managed->tensor;
  }
  result.type = type_of(tensor.dtype, what);
  result.shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  if (on_cuda) result.cuda = place.number;
  if (!is_dense(tensor))
    refuse(what, fmt::format("expected elements in row-major order without gaps, got the shape {} with strides {}; try "
                             ".contiguous()",
                             to_string(result.shape), to_string(Shape(tensor.strides, tensor.strides + tensor.ndim))));
  result.data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  if (reinterpret_cast<std::uintptr_t>(result.data) % size_of(result.type) != 0)
    refuse(what,
           fmt::format("expected an address that is a multiple of the {} bytes of an element", size_of(result.type)));
  return result;
}

nb::object to_dlpack(const DeviceTensor& tensor) {
  const auto type = dlpack_type_of(tensor.type);
  if (!type)
    throw nb::buffer_error(
        fmt::format("DLPack has no tensors of {} with one element per byte; try .numpy()", name_of(tensor.type))
            .c_str());
  auto made = std::make_unique<Export>(Export{{}, tensor, std::vector<std::int64_t>(tensor.shape.size())});
  std::int64_t stride = 1;
  for (std::size_t d = tensor.shape.size(); d-- > 0; stride *= tensor.shape[d]) made->strides[d] = stride;
  made->managed.tensor = {tensor.data,
                          dl_device_of(tensor),
                          static_cast<std::int32_t>(tensor.shape.size()),
                          *type,
                          made->tensor.shape.data(),
                          made->strides.data(),
                          0};
  made->managed.context = made.get();
  made->managed.deleter = [](DlManagedTensor* managed) { delete static_cast<Export*>(managed->context); };
  PyObject* const capsule = PyCapsule_New(&made->managed, kFresh, free_unused);
  if (capsule == nullptr) throw nb::python_error();
  (void)made.release();
  return nb::steal(capsule);
}

nb::tuple dlpack_device_of(const DeviceTensor& tensor) {
  const DlDevice device = dl_device_of(tensor);
  return nb::make_tuple(static_cast<int>(device.device_type), device.device_id);
}

}  // namespace ulpscope::python
