# Writes OUTPUT, a source that says which commit of FOLDER is built: what git says, or the file COMMIT of a source
# distribution, or nothing. It is touched only when that changes.
set(commit "")
if(EXISTS ${FOLDER}/.git)
  execute_process(COMMAND git describe --always --exclude=* --abbrev=12 --dirty WORKING_DIRECTORY ${FOLDER}
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
elseif(EXISTS ${FOLDER}/COMMIT)
  file(STRINGS ${FOLDER}/COMMIT commit LIMIT_COUNT 1)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#include "commit.h"

namespace ulpscope::cli {

std::string_view commit() { return "@commit@"; }

}  // namespace ulpscope::cli
]])
