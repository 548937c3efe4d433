// CUDA's libraries, opened at run time: nothing of CUDA is needed to build ulpscope, or to run it without a GPU.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ulpscope::cuda {

/// A shared library that stays open until the process ends.
class Library {
 public:
  /// Opens the first of `names` (newest version first) that is found: in the folders of ULPSCOPE_CUDA_LIBRARIES
  /// (separated by ':'), beside Python's packages nvidia/*, in the system's folders. `package`: the one of PyPI that
  /// brings it, for the message; empty: it comes with the driver.
  /// Throws Error(kUnsupported): what is missing and what installs it.
  Library(std::vector<std::string> names, std::string_view package);

  /// Becomes the pointer to a function that it is assigned to.
  struct Symbol {
    void* address;
    template <typename Pointer>
    operator Pointer() const {
      return reinterpret_cast<Pointer>(address);
    }
  };
  /// Throws Error(kUnsupported) naming library and function: the library is older than it has to be.
  Symbol function(const char* name) const;
  /// Where it was found, as the loader says; for messages.
  const std::string& path() const noexcept { return path_; }

 private:
  void* handle_ = nullptr;
  std::string path_;
};

/// The folders in which Library looks before it asks the system, those that exist.
std::vector<std::filesystem::path> library_folders();

}  // namespace ulpscope::cuda
