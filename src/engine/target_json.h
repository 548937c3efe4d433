// What files of targets and of measured probes have in common.
#pragma once

#include "core/json_reader.h"
#include "engine/target.h"

namespace ulpscope::json {

Json from_origin(const Target::Origin& origin);
Target::Origin to_origin(const Reader& reader);
/// "fp32", ...
Precision to_precision(const Reader& reader);

}  // namespace ulpscope::json
