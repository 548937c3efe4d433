// Verdicts on outputs as dictionaries, with the keys that answers have in JSON.
#pragma once

#include <nanobind/nanobind.h>

#include "ulpscope/answer.h"

namespace ulpscope::python {

nanobind::dict to_dict(const Judgement& judgement);

}  // namespace ulpscope::python
