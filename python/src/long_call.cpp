#include "long_call.h"

#include "ulpscope/search.h"

namespace nb = nanobind;

namespace ulpscope::python {
namespace {

constexpr std::chrono::milliseconds kCheckEvery{20}, kShowEvery{50};
thread_local LongCall* current = nullptr;

}  // namespace

LongCall::LongCall(nb::handle progress) : progress_(progress), outer_(std::exchange(current, this)) {}
LongCall::~LongCall() { current = outer_; }

void LongCall::with_python(const std::function<void()>& python) {
  if (interrupted_) throw SearchInterrupted("Ctrl-C");
  const nb::gil_scoped_acquire gil;
  try {
    python();
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_KeyboardInterrupt)) {
      raised_ = std::current_exception();
      throw;
    }
    interrupted_ = true;
    throw SearchInterrupted("Ctrl-C");
  }
}

void LongCall::check() {
  if (interrupted_) throw SearchInterrupted("Ctrl-C");
  if (raised_) std::rethrow_exception(raised_);
  const auto now = Clock::now();
  if (now - checked_ < kCheckEvery) return;
  checked_ = now;
  with_python([] {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  });
}

void LongCall::report(bool is_new, std::string_view stage, std::int64_t done, std::int64_t all, std::int64_t trials,
                      std::int64_t best) {
  check();
  const auto now = Clock::now();
  if (progress_.is_none() || (!is_new && now - shown_ < kShowEvery)) return;
  shown_ = now;
  with_python([&] { progress_(nb::str(stage.data(), stage.size()), done, all, trials, best); });
}

LongCall* LongCall::of_thread() noexcept { return current; }

bool LongCall::should_end() {
  if (current == nullptr) return false;
  try {
    current->check();
    return false;
  } catch (...) {  // It is kept, and comes out where the call ends.
    return true;
  }
}

void LongCall::failed(const std::exception_ptr& error) {
  if (raised_) std::rethrow_exception(raised_);
  if (interrupted_) {
    PyErr_SetString(PyExc_KeyboardInterrupt, "the call was interrupted");
    throw nb::python_error();
  }
  std::rethrow_exception(error);
}

}  // namespace ulpscope::python
