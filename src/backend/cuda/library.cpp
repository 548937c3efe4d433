#include "backend/cuda/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "core/messages.h"

namespace ulpscope::cuda {
namespace {

namespace fs = std::filesystem;

/// Adds the folders with libraries of the packages nvidia/* below a folder of Python's packages.
void add_packages(const fs::path& site, std::vector<fs::path>& folders) {
  std::error_code none;
  for (const fs::directory_entry& package : fs::directory_iterator(site / "nvidia", none)) {
    for (const char* inner : {"lib", "lib/x86_64"})
      if (fs::is_directory(package.path() / inner, none)) folders.push_back(package.path() / inner);
  }
}

/// site-packages and dist-packages of the interpreters below a prefix, such as a virtual environment.
void add_prefix(const fs::path& prefix, std::vector<fs::path>& folders) {
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(prefix / "lib", none))
    if (entry.path().filename().string().starts_with("python3"))
      for (const char* inner : {"site-packages", "dist-packages"}) add_packages(entry.path() / inner, folders);
}

void add_list(const char* variable, std::vector<fs::path>& folders,
              void (*add)(const fs::path&, std::vector<fs::path>&)) {
  const char* list = std::getenv(variable);
  std::string_view rest = list == nullptr ? "" : list;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    if (end > 0) add(fs::path(rest.substr(0, end)), folders);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

}  // namespace

std::vector<fs::path> library_folders() {
  std::vector<fs::path> folders;
  add_list("ULPSCOPE_CUDA_LIBRARIES", folders, [](const fs::path& folder, std::vector<fs::path>& all) {
    std::error_code none;
    if (fs::is_directory(folder, none)) all.push_back(folder);
    add_packages(folder, all);
  });
  add_list("PYTHONPATH", folders, add_packages);
  if (const char* environment = std::getenv("VIRTUAL_ENV")) add_prefix(environment, folders);
  // The packages that this code was installed among, when it is part of a wheel.
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&library_folders), &here) != 0 && here.dli_fname != nullptr) {
    std::error_code none;
    for (fs::path p = fs::weakly_canonical(here.dli_fname, none).parent_path(); p.has_relative_path();
         p = p.parent_path())
      if (p.filename() == "site-packages" || p.filename() == "dist-packages") add_packages(p, folders);
  }
  // That of the Python that PATH leads to, without asking it.
  add_list("PATH", folders, [](const fs::path& bin, std::vector<fs::path>& all) {
    std::error_code none;
    if (fs::exists(bin / "python3", none)) add_prefix(bin.parent_path(), all);
  });
  for (const char* toolkit : {"/usr/local/cuda/lib64", "/usr/local/cuda/lib"}) {
    std::error_code none;
    if (fs::is_directory(toolkit, none)) folders.emplace_back(toolkit);
  }
  return folders;
}

Library::Library(std::vector<std::string> names, std::string_view package) {
  // The driver belongs to the system: a copy that lies about elsewhere is a stub.
  if (!package.empty()) {
    static const std::vector<fs::path> folders = library_folders();
    for (const fs::path& folder : folders)
      for (const std::string& name : names) {
        const fs::path file = folder / name;
        std::error_code none;
        if (handle_ == nullptr && fs::exists(file, none)) handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle_ != nullptr && path_.empty()) path_ = file.string();
      }
  }
  std::string reason;
  for (const std::string& name : names) {
    if (handle_ != nullptr) return;
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      path_ = name;
    } else if (const char* said = dlerror(); said != nullptr && reason.empty()) {
      reason = said;
    }
  }
  if (handle_ != nullptr) return;
  throw Error(ErrorCode::kUnsupported,
              package.empty()
                  ? fmt::format("[build] backend 'cuda': no NVIDIA driver: {} ({}); install the driver of the GPU, or "
                                "leave out --backend cuda",
                                names.front(), reason)
                  : fmt::format("[build] backend 'cuda': {} is missing ({}); try: pip install '{}' or pip install "
                                "'ulpscope[cuda]', or name its folder in ULPSCOPE_CUDA_LIBRARIES",
                                names.front(), reason, package));
}

Library::Symbol Library::function(const char* name) const {
  if (void* found = dlsym(handle_, name)) return {found};
  throw unsupported(
      "[build] backend 'cuda': {} has no function {}: it is too old; try: pip install --upgrade 'ulpscope[cuda]', or a "
      "newer driver",
      path_, name);
}

}  // namespace ulpscope::cuda
