// C++ exceptions as Python exceptions of the same names.
#pragma once

namespace ulpscope::python {

/// From now on Error arrives as ulpscope.Error (with `.code`), and InternalError as ulpscope.InternalError.
void register_errors();

}  // namespace ulpscope::python
