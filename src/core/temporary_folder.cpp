#include "core/temporary_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>

#include "core/messages.h"
#include "ulpscope/error.h"

namespace ulpscope {

TemporaryFolder::TemporaryFolder(const std::filesystem::path& prefix) {
  std::error_code failed;
  std::filesystem::create_directories(prefix.parent_path(), failed);
  std::string name = prefix.string() + "XXXXXX";
  if (::mkdtemp(name.data()) == nullptr)
    throw error_of(ErrorCode::kIo, "[files] {}: cannot write there: {}", prefix.parent_path().string(),
                   std::strerror(errno));
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace ulpscope
