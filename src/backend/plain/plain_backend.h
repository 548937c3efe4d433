// The simplest code that carries out any description, to be read and compared with: no layouts, no prepared weights, no
// arena. Products add up in float64 and give the nearest float32; every instruction of a program does the same.
#pragma once

#include "backend/backend.h"

namespace ulpscope::plain {

const Backend& plain_backend();

}  // namespace ulpscope::plain
