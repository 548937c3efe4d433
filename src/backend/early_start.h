// A backend that opens its device while something else is done: a model is read.
#pragma once

#include <thread>

#include "backend/backend.h"

namespace ulpscope {

class EarlyStart {
 public:
  /// `backend` has static lifetime. What goes wrong is left to whoever plans.
  explicit EarlyStart(const Backend& backend) {
    if (backend.has_own_memory())
      thread_ = std::thread([&backend] {
        try {
          backend.start();
        } catch (...) {
        }
      });
  }
  /// Waits.
  ~EarlyStart() {
    if (thread_.joinable()) thread_.join();
  }
  EarlyStart(const EarlyStart&) = delete;
  EarlyStart& operator=(const EarlyStart&) = delete;

 private:
  std::thread thread_;
};

}  // namespace ulpscope
